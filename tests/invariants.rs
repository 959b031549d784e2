//! Each invariant of ARCHITECTURE.md is cited by its number where it is implemented, and where it is checked.

mod sources;

use std::fs;

use sources::{files, root};

/// Where invariants are implemented, and where they are checked. Invariant 9 (only the leader writes) concerns
/// neither the planner nor the model. The model checks invariant 10 along with the others.
const PLACES: [(&str, &[u32]); 4] = [
    ("core/src", &[1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 13]),
    ("src", &[9]),
    ("model/src", &[1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 13]),
    ("e2e/judge/src", &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13]),
];

/// The text of all sources in a folder.
fn text_of(folder: &str) -> String {
    let read = |path| fs::read_to_string(path).expect("a source file");
    files(&root().join(folder)).into_iter().map(read).collect()
}

/// The numbers in the list of invariants.
fn invariants() -> Vec<u32> {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    let (_, list) = text.split_once("## What always holds").expect("the list");
    let list = list.split("\n## ").next().unwrap_or_default();
    let number = |line: &str| line.split_once(". ")?.0.parse().ok();
    list.lines().filter_map(number).collect()
}

/// The numbers that a source file cites, as `invariant 1`, `| 1: ...` or `"1: ..."`.
fn cited(text: &str) -> Vec<u32> {
    let digits = |rest: &str| {
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        rest[..end].parse().ok().map(|number: u32| (number, rest[end..].to_owned()))
    };
    let mut found = Vec::new();
    // The first letter is left out, because it may be a capital.
    for (start, word) in text.match_indices("nvariant ") {
        found.extend(digits(&text[start + word.len()..]).map(|(number, _)| number));
    }
    for mark in ["| ", "\""] {
        for (start, _) in text.match_indices(mark) {
            let number = digits(&text[start + mark.len()..]);
            let number = number.filter(|(_, rest)| rest.starts_with(": "));
            found.extend(number.map(|(number, _)| number));
        }
    }
    found
}

#[test]
fn each_invariant_is_cited_where_it_is_implemented_and_checked() {
    let invariants = invariants();
    assert_eq!(invariants, (1..=13).collect::<Vec<_>>());
    for (folder, wanted) in PLACES {
        let cited = cited(&text_of(folder));
        for number in wanted {
            assert!(invariants.contains(number), "there is no invariant {number}");
            assert!(cited.contains(number), "{folder} does not cite invariant {number}");
        }
        let unknown = cited.iter().find(|number| !invariants.contains(number));
        assert!(
            unknown.is_none(),
            "{folder} cites invariant {unknown:?}, which is not in the list"
        );
    }
}
