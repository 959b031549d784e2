//! Documents that show what was typed and what was printed, read so that it can be typed again.

use anyhow::{Result, ensure};
use serde_json::Value;

/// Programs whose name begins a command in a block that has no `$`.
const PROGRAMS: [&str; 5] = ["make", "docker", "helm", "kubectl", "gamekeeper"];

/// A command, and what the document shows that it printed.
#[derive(Clone, Debug, PartialEq)]
pub struct Typed {
    /// The section that it stands in.
    pub section: String,
    /// The command line.
    pub command: String,
    /// Lines that follow it; none when the document shows none.
    pub printed: Vec<String>,
}

/// The commands in the indented blocks of a Markdown document, in their order. In a block with a `$`
/// they begin with it, and what they print follows; a block that begins with the name of a program has
/// one on each line. A line that ends in a backslash goes on in the next one. Any other block must be
/// YAML, or PromQL, or it might be a command that no test types.
pub fn commands(document: &str) -> Result<Vec<Typed>> {
    let mut typed = Vec::new();
    for (section, block) in blocks(document) {
        let first = block[0].split_whitespace().next().unwrap_or_default();
        if block.iter().any(|line| line.starts_with("$ ")) {
            typed.extend(with_dollars(&section, &block));
        } else if PROGRAMS.contains(&first) {
            typed.extend(plain(&section, &block));
        } else {
            let text = block.join("\n");
            let yaml: Result<Value, _> = serde_yaml_ng::from_str(&text);
            let is_yaml = yaml.is_ok_and(|yaml| yaml.is_object());
            ensure!(
                is_yaml || text.contains("[15m]"),
                "{section}: neither commands nor YAML nor PromQL:\n{text}"
            );
        }
    }
    Ok(typed)
}

/// Runs of indented lines, blank ones between them included, and the sections that they stand in.
fn blocks(document: &str) -> Vec<(String, Vec<&str>)> {
    let mut blocks: Vec<(String, Vec<&str>)> = Vec::new();
    let (mut section, mut fenced, mut open) = ("", false, false);
    for line in document.lines() {
        fenced ^= line.starts_with("```");
        if let Some(heading) = line.strip_prefix("## ") {
            section = heading;
        }
        if let Some(line) = line.strip_prefix("    ").filter(|_| !fenced) {
            match blocks.last_mut().filter(|_| open) {
                Some((_, block)) => block.push(line),
                None => blocks.push((section.to_owned(), vec![line])),
            }
        }
        open = !fenced && (line.starts_with("    ") || open && line.is_empty());
    }
    blocks
}

fn with_dollars(section: &str, block: &[&str]) -> Vec<Typed> {
    let mut typed: Vec<Typed> = Vec::new();
    let mut goes_on = false;
    for line in block {
        let last = typed.last_mut();
        match (line.strip_prefix("$ "), last) {
            (Some(command), _) => typed.push(one(section, command)),
            (None, Some(last)) if goes_on => {
                last.command.push_str(line.trim().trim_end_matches('\\'));
            }
            (None, Some(last)) => last.printed.push((*line).to_owned()),
            (None, None) => {}
        }
        goes_on = line.ends_with('\\');
    }
    typed
}

fn plain(section: &str, block: &[&str]) -> Vec<Typed> {
    let whole = block.join("\n").replace("\\\n", "");
    let lines = whole.lines().filter(|line| !line.is_empty());
    lines.map(|line| one(section, line)).collect()
}

/// A command, without the comment behind it.
fn one(section: &str, line: &str) -> Typed {
    let command = line
        .split_once(" # ")
        .map(|(command, _)| command.trim_end());
    Typed {
        section: section.to_owned(),
        command: command.unwrap_or(line).trim_end_matches('\\').to_owned(),
        printed: Vec::new(),
    }
}

/// What stays of a text from run to run: its lines in words, two spaces further in than the line that
/// they hang on, with `AGE` for ages, `POD` and `HASH` for what is drawn or computed. Lines keep their
/// order, but for those next to each other that begin with a name that is drawn, and sorts as it likes.
pub fn lasting<'a>(lines: impl IntoIterator<Item = &'a str>, workload: &str) -> Vec<String> {
    let lines = lines.into_iter().filter_map(|line| {
        let words = line.trim_start_matches(['|', '`', '-', ' ']);
        let indent = line.len() - words.len();
        let words: Vec<String> = words
            .split_whitespace()
            .map(|it| word(it, workload))
            .collect();
        (!words.is_empty()).then(|| (indent, words.join(" ")))
    });
    let lines: Vec<_> = lines.collect();
    let mut lasting = Vec::new();
    for branch in branches(&lines) {
        branch.write(0, &mut lasting);
    }
    lasting
}

/// A line, and those that hang on it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Branch {
    line: String,
    parts: Vec<Branch>,
}

impl Branch {
    fn is_drawn(&self) -> bool {
        let first = self.line.split(' ').next().unwrap_or_default();
        first.ends_with("POD") || first.contains("POD-")
    }

    fn write(self, depth: usize, to: &mut Vec<String>) {
        to.push(format!("{}{}", "  ".repeat(depth), self.line));
        for part in self.parts {
            part.write(depth + 1, to);
        }
    }
}

/// Lines with their indents, as the branches that they make.
fn branches(mut lines: &[(usize, String)]) -> Vec<Branch> {
    let mut branches = Vec::new();
    while let Some(((indent, line), rest)) = lines.split_first() {
        let hangs = |(other, _): &&(usize, String)| other > indent;
        let (parts, next) = rest.split_at(rest.iter().take_while(hangs).count());
        branches.push(Branch {
            line: line.clone(),
            parts: self::branches(parts),
        });
        lines = next;
    }
    let drawn = branches.chunk_by_mut(|one, other| one.is_drawn() == other.is_drawn());
    for alike in drawn.filter(|alike| alike[0].is_drawn()) {
        alike.sort();
    }
    branches
}

/// A word, as it is in every run.
fn word(word: &str, workload: &str) -> String {
    let start = format!("{workload}-");
    let parts: Vec<&str> = word.split(&start).collect();
    let Some((first, rest)) = parts.split_first() else {
        return age(word).to_owned();
    };
    let rest = rest.iter().map(|part| format!("{start}{}", drawn(part)));
    age(first).to_owned() + &rest.collect::<String>()
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

    fn typed(section: &str, command: &str, printed: &[&str]) -> Typed {
        Typed {
            section: section.to_owned(),
            command: command.to_owned(),
            printed: printed.iter().map(|it| (*it).to_owned()).collect(),
        }
    }

    #[test]
    fn a_document_is_read_as_it_was_typed() {
        let document = "## One\n    make it    # so\n    helm a \\\n      b\n## Two\nText.\n\n    \
                        $ a \\\n        b\n    said\n\n    more\n    $ c -w   # looks\n\n\
                        And:\n\n    spec:\n      steps: []\n```\n    a --> b\n```\n";
        let expected = [
            typed("One", "make it", &[]),
            typed("One", "helm a   b", &[]),
            typed("Two", "a b", &["said", "more"]),
            typed("Two", "c -w", &[]),
        ];
        assert_eq!(commands(document).expect("commands"), expected);
    }

    #[test]
    fn what_is_neither_a_command_nor_yaml_is_not_passed_over() {
        assert!(commands("## One\n    ./configure && cargo build\n").is_err());
    }

    #[test]
    fn what_differs_from_run_to_run_is_left_out_and_the_shape_of_a_tree_is_not() {
        let lines = [
            "arena  Paused",
            "|- arena-764b7b946d  Revision  since 3m2s, #2",
            "|  `- arena-zgw8c   Pod   Running   31s   1/1 ready",
            "`- arena-864b7b946d  Revision  #1",
            "   |- arena-fgw8c   Pod   Running",
            "   |  `- pre-delete-hook-arena-764b7b946d-fgw8c-nobody-plays  4",
            "   `- arena-ggw8c   Pod   Broken",
        ];
        let expected = [
            "arena Paused",
            "  arena-HASH Revision since AGE #2",
            "    arena-POD Pod Running AGE 1/1 ready",
            "  arena-HASH Revision #1",
            "    arena-POD Pod Broken",
            "    arena-POD Pod Running",
            "      pre-delete-hook-arena-HASH-POD-nobody-plays 4",
        ];
        assert_eq!(lasting(lines, "arena"), expected);
    }
}
