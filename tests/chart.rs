//! The chart's values are described in three places, which must agree: values.yaml, its schema, and the table in
//! its README. What the chart renders is tested with helm, in `e2e/tests/chart.rs`.

use std::fs;
use std::path::Path;

use serde_json::Value;

/// The maximum length of a default in the table, in bytes.
const LONGEST_DEFAULT: usize = 60;

/// A value that users may set.
struct Setting {
    /// Its path from the root.
    path: Vec<String>,
    /// The comment above it.
    meaning: String,
}

fn read(path: &str) -> String {
    let chart = Path::new(env!("CARGO_MANIFEST_DIR")).join("charts/gamekeeper");
    fs::read_to_string(chart.join(path)).expect("a file of the chart")
}

/// The settings: each key of values.yaml with a comment right above it.
fn settings(values: &str) -> Vec<Setting> {
    let (mut settings, mut comment) = (Vec::new(), Vec::new());
    let mut parents: Vec<(usize, String)> = Vec::new();
    for line in values.lines() {
        let text = line.trim_start();
        let indent = line.len() - text.len();
        if let Some(words) = text.strip_prefix("# ") {
            comment.push(words);
            continue;
        }
        if let Some((key, _)) = text.split_once(':').filter(|_| !text.starts_with('-')) {
            parents.retain(|(column, _)| *column < indent);
            parents.push((indent, key.to_owned()));
            if !comment.is_empty() {
                settings.push(Setting {
                    path: parents.iter().map(|(_, key)| key.clone()).collect(),
                    meaning: comment.join(" "),
                });
            }
        }
        comment.clear();
    }
    settings
}

fn defaults(values: &str) -> Value {
    serde_yaml_ng::from_str(values).expect("values.yaml is YAML")
}

#[test]
fn the_readme_shows_each_value_with_its_default_and_meaning() {
    let values = read("values.yaml");
    let defaults = defaults(&values);
    let rows = settings(&values).into_iter().map(|setting| {
        let name = setting.path.join(".");
        let default = &defaults.pointer(&format!("/{}", setting.path.join("/")));
        let default = default.expect("each comment is above a key").to_string();
        let default = match default.len() {
            0..=LONGEST_DEFAULT => format!("`{default}`"),
            _ => "see values.yaml".to_owned(),
        };
        format!("| {name} | {default} | {} |\n", setting.meaning)
    });
    let table: String = rows.collect();
    assert!(
        read("README.md").ends_with(&format!("|---|---|---|\n{table}")),
        "the table in charts/gamekeeper/README.md is not\n{table}"
    );
}

#[test]
fn every_value_is_documented() {
    let values = read("values.yaml");
    let settings = settings(&values);
    let mut undocumented = Vec::new();
    walk(&defaults(&values), &mut Vec::new(), &mut |path| {
        if !settings.iter().any(|setting| path.starts_with(&setting.path)) {
            undocumented.push(path.join("."));
        }
    });
    assert!(undocumented.is_empty(), "without a comment in values.yaml: {undocumented:?}");
}

/// Visits the path of each scalar, list and empty object.
fn walk(value: &Value, path: &mut Vec<String>, visit: &mut impl FnMut(&[String])) {
    match value.as_object().filter(|fields| !fields.is_empty()) {
        None => visit(path),
        Some(fields) => {
            for (name, field) in fields {
                path.push(name.clone());
                walk(field, path, visit);
                path.pop();
            }
        }
    }
}

/// Of two keys with the same name, JSON parsers use one and silently ignore the other.
#[test]
fn the_schema_has_no_key_twice() {
    let schema = read("values.schema.json");
    let parsed = serde_yaml_ng::from_str::<serde_yaml_ng::Value>(&schema);
    parsed.expect("JSON, which is YAML, without duplicate keys");
}

#[test]
fn the_schema_describes_exactly_the_values() {
    let schema: Value = serde_json::from_str(&read("values.schema.json")).expect("JSON");
    let mut known = Vec::new();
    collect(&schema, "", &mut known);
    known.sort();
    let settings = settings(&read("values.yaml"));
    let mut wanted: Vec<String> = settings.iter().map(|it| it.path.join(".")).collect();
    wanted.sort();
    // An object of a Kubernetes type has one comment for all its fields.
    known.retain(|path| !path.starts_with("resources."));
    wanted.retain(|path| path != "resources");
    assert_eq!(known, wanted);
}

/// Collects the paths of properties that have no properties of their own.
fn collect(schema: &Value, path: &str, known: &mut Vec<String>) {
    let Some(properties) = schema["properties"].as_object() else {
        known.push(path.to_owned());
        return;
    };
    // Umbrella charts have globals for other charts, too.
    let is_closed = schema["additionalProperties"] == false;
    assert_eq!(is_closed, path != "global", "at {path:?}");
    for (name, property) in properties {
        let path = match path {
            "" => name.clone(),
            _ => format!("{path}.{name}"),
        };
        collect(property, &path, known);
    }
}
