//! Documents that show what was typed and what was printed, read so that it can be typed again.

use anyhow::{Context, Result};

/// A command, and what the document shows that it printed.
#[derive(Clone, Debug, PartialEq)]
pub struct Typed {
    /// The command line.
    pub command: String,
    /// Lines that follow it; none when the document shows none.
    pub printed: Vec<String>,
}

/// The commands in the indented blocks of a section of a Markdown document, in their order. A
/// command begins with `$`; a line that ends in a backslash goes on in the next one.
pub fn commands(document: &str, section: &str) -> Result<Vec<Typed>> {
    let heading = format!("## {section}");
    let mut lines = document.lines().skip_while(|line| *line != heading);
    lines.next().with_context(|| format!("no {heading:?}"))?;
    let mut typed: Vec<Typed> = Vec::new();
    let mut goes_on = false;
    for line in lines.take_while(|line| !line.starts_with("## ")) {
        let Some(line) = line.strip_prefix("    ") else {
            continue;
        };
        let last = typed.last_mut();
        match (line.strip_prefix("$ "), last) {
            (Some(command), _) => typed.push(Typed {
                command: command.trim_end_matches('\\').to_owned(),
                printed: Vec::new(),
            }),
            (None, Some(last)) if goes_on => {
                last.command.push_str(line.trim().trim_end_matches('\\'));
            }
            (None, Some(last)) => last.printed.push(line.to_owned()),
            (None, None) => {}
        }
        goes_on = line.ends_with('\\');
    }
    Ok(typed)
}

/// What stays of a text from run to run: its lines in words, without the lines that lead through a
/// tree, with `AGE` for ages, `POD` and `HASH` for what is drawn or computed, and sorted, because
/// names that are drawn sort as they like.
pub fn lasting<'a>(lines: impl IntoIterator<Item = &'a str>, workload: &str) -> Vec<String> {
    let start = format!("{workload}-");
    let word = |word: &str| -> String {
        let parts: Vec<&str> = word.split(&start).collect();
        let Some((first, rest)) = parts.split_first() else {
            return age(word).to_owned();
        };
        let rest = rest.iter().map(|part| format!("{start}{}", drawn(part)));
        age(first).to_owned() + &rest.collect::<String>()
    };
    let lasting = lines.into_iter().filter_map(|line| {
        let words = line.trim_start_matches(['|', '`', '-', ' ']);
        let words: Vec<String> = words.split_whitespace().map(word).collect();
        (!words.is_empty()).then(|| words.join(" "))
    });
    let mut lasting: Vec<String> = lasting.collect();
    lasting.sort();
    lasting
}

/// What Kubernetes draws names from, and writes hashes with.
const ALPHABET: &str = "bcdfghjklmnpqrstvwxz2456789";

/// `HASH-POD-more` for what follows a workload's name.
fn drawn(rest: &str) -> String {
    let parts = rest.split('-').map(|part| {
        let is_drawn = part.chars().all(|it| ALPHABET.contains(it));
        match part.len() {
            5 if is_drawn => "POD",
            8..=10 if is_drawn => "HASH",
            _ => part,
        }
    });
    parts.collect::<Vec<_>>().join("-")
}

/// `AGE` for 5s, 3m12s, 2h and the like.
fn age(word: &str) -> &str {
    let bare = word.trim_matches(['(', ')', ',', '.', ':']);
    let digits = bare.chars().next().is_some_and(|it| it.is_ascii_digit());
    let units = bare
        .chars()
        .all(|it| it.is_ascii_digit() || "smhd".contains(it));
    match digits && units && !bare.chars().all(|it| it.is_ascii_digit()) {
        true => "AGE",
        false => word,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_is_read_as_it_was_typed() {
        let document = "## One\n    $ no\n## Two\nText.\n\n    $ a \\\n        b\n    said\n\n    $ c\n## Three\n    $ no\n";
        let typed = commands(document, "Two").expect("a section");
        let expected = [("a b", vec!["said".to_owned()]), ("c", Vec::new())];
        let expected = expected.map(|(command, printed)| Typed {
            command: command.to_owned(),
            printed,
        });
        assert_eq!(typed, expected);
        assert!(commands(document, "Four").is_err());
    }

    #[test]
    fn what_differs_from_run_to_run_is_left_out() {
        let lines = [
            "|  `- arena-fgw8c   Pod   Running   31s   1/1 ready",
            "`- arena-764b7b946d  Revision  since 3m2s, #2",
            "pre-delete-hook-arena-764b7b946d-fgw8c-nobody-plays  4",
        ];
        let expected = [
            "arena-HASH Revision since AGE #2",
            "arena-POD Pod Running AGE 1/1 ready",
            "pre-delete-hook-arena-HASH-POD-nobody-plays 4",
        ];
        assert_eq!(lasting(lines, "arena"), expected);
    }
}
