//! Parses the commands and outputs in a document, so that a test can run them.

use anyhow::{Result, ensure};
use serde_json::Value;

/// Programs with which a block of commands without `$` may begin.
const PROGRAMS: [&str; 5] = ["make", "docker", "helm", "kubectl", "gamekeeper"];

/// A command in a document, with its output.
#[derive(Clone, Debug, PartialEq)]
pub struct DocCommand {
    /// The heading of its section.
    pub section: String,
    /// The command line.
    pub command: String,
    /// The lines of the output; empty if the document shows none.
    pub output: Vec<String>,
}

/// The commands in the indented blocks of a Markdown document, in order. In a block with a `$`, each
/// command begins with `$`, and its output follows. A block that begins with the name of a program has a command
/// on each line. A backslash at the end of a line continues the command. Any other block must be YAML or
/// PromQL; otherwise it might be a command that no test runs.
pub fn commands(document: &str) -> Result<Vec<DocCommand>> {
    let mut commands = Vec::new();
    for (section, block) in blocks(document) {
        let first = block[0].split_whitespace().next().unwrap_or_default();
        if block.iter().any(|line| line.starts_with("$ ")) {
            commands.extend(parse_prompts(&section, &block));
        } else if PROGRAMS.contains(&first) {
            commands.extend(parse_plain(&section, &block));
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
    Ok(commands)
}

/// Blocks of indented lines, with their sections. Blank lines may be part of a block.
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

fn parse_prompts(section: &str, block: &[&str]) -> Vec<DocCommand> {
    let mut commands: Vec<DocCommand> = Vec::new();
    let mut continues = false;
    for line in block {
        let last = commands.last_mut();
        match (line.strip_prefix("$ "), last) {
            (Some(command), _) => commands.push(parse_command(section, command)),
            (None, Some(last)) if continues => {
                last.command.push_str(line.trim().trim_end_matches('\\'));
            }
            (None, Some(last)) => last.output.push((*line).to_owned()),
            (None, None) => {}
        }
        continues = line.ends_with('\\');
    }
    commands
}

fn parse_plain(section: &str, block: &[&str]) -> Vec<DocCommand> {
    let whole = block.join("\n").replace("\\\n", "");
    let lines = whole.lines().filter(|line| !line.is_empty());
    lines.map(|line| parse_command(section, line)).collect()
}

/// Parses a command line, without its comment.
fn parse_command(section: &str, line: &str) -> DocCommand {
    let command = line.split_once(" # ").map(|(command, _)| command.trim_end());
    DocCommand {
        section: section.to_owned(),
        command: command.unwrap_or(line).trim_end_matches('\\').to_owned(),
        output: Vec::new(),
    }
}

/// The lines of an output, without the parts that differ from run to run: ages become `AGE`, and the random or computed
/// parts of names become `POD` and `HASH`. In a tree, a line is indented by two spaces more than its parent. Lines
/// keep their order, except that siblings whose names are random are sorted.
pub fn normalized<'a>(lines: impl IntoIterator<Item = &'a str>, workload: &str) -> Vec<String> {
    let lines = lines.into_iter().filter_map(|line| {
        let words = line.trim_start_matches(['|', '`', '-', ' ']);
        let indent = line.len() - words.len();
        let words: Vec<String> =
            words.split_whitespace().map(|word| normalized_word(word, workload)).collect();
        (!words.is_empty()).then(|| (indent, words.join(" ")))
    });
    let lines: Vec<_> = lines.collect();
    let mut normalized = Vec::new();
    for branch in branches(&lines) {
        branch.write(0, &mut normalized);
    }
    normalized
}

/// A line with its children in a tree.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Branch {
    line: String,
    children: Vec<Branch>,
}

impl Branch {
    fn is_random(&self) -> bool {
        let first = self.line.split(' ').next().unwrap_or_default();
        first.ends_with("POD") || first.contains("POD-")
    }

    fn write(self, depth: usize, lines: &mut Vec<String>) {
        lines.push(format!("{}{}", "  ".repeat(depth), self.line));
        for child in self.children {
            child.write(depth + 1, lines);
        }
    }
}

/// The trees that these lines form; each line comes with its indent.
fn branches(mut lines: &[(usize, String)]) -> Vec<Branch> {
    let mut branches = Vec::new();
    while let Some(((indent, line), rest)) = lines.split_first() {
        let is_below = |(other, _): &&(usize, String)| other > indent;
        let (children, next) = rest.split_at(rest.iter().take_while(is_below).count());
        branches.push(Branch { line: line.clone(), children: self::branches(children) });
        lines = next;
    }
    let siblings = branches.chunk_by_mut(|one, other| one.is_random() == other.is_random());
    for random in siblings.filter(|siblings| siblings[0].is_random()) {
        random.sort();
    }
    branches
}

/// A word, without the parts that differ from run to run.
fn normalized_word(word: &str, workload: &str) -> String {
    let start = format!("{workload}-");
    let parts: Vec<&str> = word.split(&start).collect();
    let Some((first, rest)) = parts.split_first() else {
        return age(word).to_owned();
    };
    let rest = rest.iter().map(|part| format!("{start}{}", random_part(part)));
    age(first).to_owned() + &rest.collect::<String>()
}

/// The characters of random names and hashes in Kubernetes.
const ALPHABET: &str = "bcdfghjklmnpqrstvwxz2456789";

/// Replaces the random parts of what follows a workload's name, as in `HASH-POD-more`.
fn random_part(rest: &str) -> String {
    // A name may be followed by a quote or a comma.
    let name = rest.trim_end_matches(|letter: char| !letter.is_ascii_alphanumeric());
    let parts = name.split('-').map(|part| {
        let is_random = part.chars().all(|letter| ALPHABET.contains(letter));
        match part.len() {
            5 if is_random => "POD",
            8..=10 if is_random => "HASH",
            _ => part,
        }
    });
    parts.collect::<Vec<_>>().join("-") + &rest[name.len()..]
}

/// `AGE` for 5s, 3m12s, 2h and the like.
fn age(word: &str) -> &str {
    let bare = word.trim_matches(['(', ')', ',', '.', ':']);
    let has_digit_first = bare.chars().next().is_some_and(|letter| letter.is_ascii_digit());
    let has_digits_and_units_only =
        bare.chars().all(|letter| letter.is_ascii_digit() || "smhd".contains(letter));
    match has_digit_first
        && has_digits_and_units_only
        && !bare.chars().all(|letter| letter.is_ascii_digit())
    {
        true => "AGE",
        false => word,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(section: &str, command: &str, output: &[&str]) -> DocCommand {
        DocCommand {
            section: section.to_owned(),
            command: command.to_owned(),
            output: output.iter().map(|it| (*it).to_owned()).collect(),
        }
    }

    #[test]
    fn commands_and_outputs_are_parsed() {
        let document = "## One\n    make it    # so\n    helm a \\\n      b\n## Two\nText.\n\n    \
                        $ a \\\n        b\n    said\n\n    more\n    $ c -w   # looks\n\n\
                        And:\n\n    spec:\n      steps: []\n```\n    a --> b\n```\n";
        let expected = [
            command("One", "make it", &[]),
            command("One", "helm a   b", &[]),
            command("Two", "a b", &["said", "more"]),
            command("Two", "c -w", &[]),
        ];
        assert_eq!(commands(document).expect("commands"), expected);
    }

    #[test]
    fn an_unknown_block_is_an_error() {
        assert!(commands("## One\n    ./configure && cargo build\n").is_err());
    }

    #[test]
    fn random_names_in_a_sentence_are_normalized() {
        let line = "pods \"arena-fgw8c\" is forbidden: players may be on arena-fgw8c, and";
        let expected = "pods \"arena-POD\" is forbidden: players may be on arena-POD, and";
        assert_eq!(normalized([line], "arena"), [expected]);
    }

    #[test]
    fn random_parts_are_normalized_and_the_tree_is_kept() {
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
        assert_eq!(normalized(lines, "arena"), expected);
    }
}
