//! Each promise of the documents about what the operator does is listed in `tests/promises.txt`, with the tests that would
//! fail if it were false.

use std::fs;
use std::path::Path;

/// The documents whose promises are listed.
const DOCUMENTS: [&str; 5] = [
    "docs/reliability.md",
    "docs/guard.md",
    "docs/updates.md",
    "docs/game-deployment.md",
    "docs/game-stateful-set.md",
];

/// The words of a promise.
const WORDS: [&str; 5] = ["never", "always", "at most", "only", "until"];

/// A line of the list, and the tests below it.
struct Listed<'t> {
    document: &'t str,
    /// How the sentence begins.
    sentence: &'t str,
    /// Paths and names of tests; empty if the sentence is no promise.
    tests: Vec<(&'t str, &'t str)>,
}

fn read(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The entries of the list.
fn listed(list: &str) -> Vec<Listed<'_>> {
    let mut all: Vec<Listed> = Vec::new();
    for line in list.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        match line.strip_prefix("    ") {
            Some("no promise") => {}
            Some(test) => {
                let test = test.split_once("::").unwrap_or_else(|| panic!("{test}: no test"));
                all.last_mut().expect("a sentence").tests.push(test);
            }
            None => {
                let (document, sentence) =
                    line.split_once(": ").unwrap_or_else(|| panic!("{line}: no sentence"));
                all.push(Listed { document, sentence, tests: Vec::new() });
            }
        }
    }
    all
}

/// The sentences of a document that contain a word of a promise, each on one line. A row of a table or an item of a list
/// begins a new one, and commands and output are left out.
fn promises(document: &str) -> Vec<String> {
    let mut paragraphs = vec![String::new()];
    for line in document.lines().filter(|line| !line.starts_with("    ")) {
        let begins = line.starts_with("| ") || line.starts_with("- ") || is_numbered(line);
        if begins || line.trim().is_empty() {
            paragraphs.push(String::new());
        }
        let paragraph = paragraphs.last_mut().expect("a paragraph");
        paragraph.push(' ');
        paragraph.push_str(line.trim());
    }
    let all = paragraphs.iter().flat_map(|it| sentences(it.trim()));
    all.filter(|sentence| is_promise(sentence)).collect()
}

fn is_numbered(line: &str) -> bool {
    line.split_once(". ").is_some_and(|(number, _)| number.parse::<u32>().is_ok())
}

fn sentences(paragraph: &str) -> Vec<String> {
    let mut all = vec![String::new()];
    for word in paragraph.split_whitespace() {
        let before = all.last_mut().expect("a sentence");
        let ends = before.ends_with(['.', ':', ';']);
        let begins =
            word.starts_with(|it: char| it.is_uppercase() || ['`', '*', '['].contains(&it));
        if ends && begins {
            all.push(String::new());
        }
        let sentence = all.last_mut().expect("a sentence");
        if !sentence.is_empty() {
            sentence.push(' ');
        }
        sentence.push_str(word);
    }
    all
}

fn is_promise(sentence: &str) -> bool {
    let words: String = sentence
        .to_lowercase()
        .chars()
        .map(|it| if it.is_alphanumeric() { it } else { ' ' })
        .collect();
    let words = format!(" {} ", words.split_whitespace().collect::<Vec<_>>().join(" "));
    WORDS.iter().any(|word| words.contains(&format!(" {word} ")))
}

#[test]
fn each_promise_of_the_documents_is_listed_with_its_tests() {
    let list = read("tests/promises.txt");
    let listed = listed(&list);
    for document in DOCUMENTS {
        let promises = promises(&read(document));
        let is_listed = |promise: &&String| {
            let mut entries = listed.iter().filter(|it| it.document == document);
            entries.any(|it| promise.starts_with(it.sentence))
        };
        let missing: Vec<_> = promises.iter().filter(|it| !is_listed(it)).collect();
        assert!(missing.is_empty(), "{document}: not in tests/promises.txt: {missing:#?}");
        for entry in listed.iter().filter(|it| it.document == document) {
            let exists = promises.iter().any(|promise| promise.starts_with(entry.sentence));
            assert!(exists, "{document} no longer has the sentence {:?}", entry.sentence);
        }
    }
    let mut others = listed.iter().filter(|it| !DOCUMENTS.contains(&it.document));
    assert!(others.next().is_none(), "an entry of a document that is not checked");
}

#[test]
fn the_tests_of_each_promise_exist() {
    for entry in listed(&read("tests/promises.txt")) {
        for (path, test) in entry.tests {
            let source = read(path);
            let is_declared = source.contains(&format!("fn {test}("));
            assert!(is_declared, "{path} has no test {test}, for {:?}", entry.sentence);
        }
    }
}

#[test]
fn a_sentence_with_a_word_of_a_promise_is_found_in_text_lists_and_tables() {
    let document = "# T\n\nOne is so. It is never\nso.\n- only this: Other\n| a | until b |\n    never in code\n1. At most 2";
    let expected = ["It is never so.", "- only this:", "| a | until b |", "At most 2"];
    assert_eq!(promises(document), expected);
}
