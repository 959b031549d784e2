//! Compares the reader with kubectl: each row of the table is a file, with what the real kubectl makes of it.

use serde::Deserialize;
use serde_json::Value;

use super::number::normalize;
use super::*;

/// A row of testdata/kubectl.json. An end-to-end test compares the rows with kubectl.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    /// The file; or, in its place, the fields of the spec of an object.
    file: Option<String>,
    spec: Option<String>,
    /// The documents, or the spec.
    json: Option<Value>,
    /// kubectl's message.
    refused: Option<String>,
}

const HEAD: &str = "apiVersion: example.com/v1\nkind: Row\nmetadata: {name: row}\nspec:\n";

impl Row {
    fn text(&self) -> String {
        match (&self.file, &self.spec) {
            (Some(file), None) => file.clone(),
            (None, Some(spec)) => {
                let lines = spec.split('\n').map(|line| format!("  {line}\n"));
                HEAD.to_owned() + &lines.collect::<String>()
            }
            _ => panic!("{self:?}"),
        }
    }
}

/// kubectl takes the mark for a part of the name of the field, so the object would have no apiVersion.
#[test]
fn a_byte_order_mark_within_a_file_is_refused() {
    let refused = read("# a game\n\u{feff}apiVersion: v1\n").expect_err("a mark");
    assert_eq!(refused.line, 2);
    assert!(refused.why.contains("byte order mark"), "{refused:?}");
    let documents = read("\u{feff}a: 1\n---\n\u{feff}b: 2\n").expect("marks before documents");
    assert_eq!(documents.len(), 2);
}

/// A few lines would expand to gigabytes.
#[test]
fn documents_that_grow_without_bound_are_refused() {
    let list = |name: &str, item: &str| format!("{name}: &{name} [{}]\n", [item; 10].join(","));
    let mut bomb = list("a", "x");
    for (name, item) in
        [("b", "*a"), ("c", "*b"), ("d", "*c"), ("e", "*d"), ("f", "*e"), ("g", "*f")]
    {
        bomb += &list(name, item);
    }
    let refused = read(&bomb).expect_err("a bomb");
    assert!(refused.why.contains("comes from aliases"), "{refused:?}");
    let deep = format!("a: {}{}\n", "[".repeat(100_000), "]".repeat(100_000));
    let refused = read(&deep).expect_err("a deep list");
    assert!(refused.why.contains("nested more than"), "{refused:?}");
}

#[test]
fn files_are_read_as_kubectl_reads_them() {
    let rows: Vec<Row> =
        serde_json::from_str(include_str!("../testdata/kubectl.json")).expect("a table of rows");
    assert!(rows.len() >= 500, "{} rows", rows.len());
    let mut wrong = Vec::new();
    for row in rows {
        let read = read(&decode(row.text().as_bytes()));
        let found = match &read {
            Ok(documents) if row.spec.is_some() => {
                documents.first().map(|it| it.object["spec"].clone())
            }
            Ok(documents) => Some(documents.iter().map(|it| it.object.clone()).collect()),
            Err(_) => None,
        };
        let expected = row.json.clone().map(|mut json| {
            normalize(&mut json);
            json
        });
        if found != expected || row.json.is_some() == row.refused.is_some() {
            wrong.push(format!("{row:?}\n    found: {read:?}"));
        }
    }
    assert!(wrong.is_empty(), "{} rows:\n{}", wrong.len(), wrong.join("\n"));
}
