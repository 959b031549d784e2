//! What the chart tells Artifact Hub is so: its CRDs, examples, image, license and changes.

use std::fs;
use std::path::Path;

use serde::Deserialize;
use serde_json::{Value, json};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn yaml(text: &str) -> Value {
    serde_yaml_ng::from_str(text).expect("YAML")
}

fn chart() -> Value {
    yaml(&read("charts/gamekeeper/Chart.yaml"))
}

/// The value of an annotation, as text.
fn annotation(name: &str) -> String {
    let value = chart()["annotations"][format!("artifacthub.io/{name}")].clone();
    value.as_str().unwrap_or_else(|| panic!("no annotation {name}")).to_owned()
}

/// The items of an annotation that is a list.
fn items(name: &str) -> Vec<Value> {
    yaml(&annotation(name)).as_array().expect("a list").clone()
}

/// All objects of the manifests in a folder.
fn objects(folder: &str) -> Vec<Value> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root().join(folder)).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.strip_prefix(root()).expect("a path").to_string_lossy().into_owned();
        if path.is_dir() {
            found.extend(objects(&name));
        } else {
            let text = read(&name);
            let documents = serde_yaml_ng::Deserializer::from_str(&text).map(Value::deserialize);
            found.extend(documents.map(|it| it.expect("a document")));
        }
    }
    found
}

#[test]
fn the_crds_are_listed() {
    let crds = objects("crds").into_iter();
    let expected = crds.map(|crd| {
        let spec = &crd["spec"];
        json!([spec["names"]["kind"], spec["versions"][0]["name"], crd["metadata"]["name"]])
    });
    let listed = items("crds").into_iter();
    let listed = listed.map(|it| json!([it["kind"], it["version"], it["name"]]));
    assert_eq!(sorted(listed), sorted(expected));
}

#[test]
fn each_kind_has_an_example_that_the_tests_apply() {
    let examples = items("crdsExamples");
    let kinds = examples.iter().map(|it| it["kind"].clone());
    let listed = items("crds").into_iter().map(|it| it["kind"].clone());
    assert_eq!(sorted(kinds), sorted(listed));
    let all = objects("examples");
    for example in examples {
        assert!(all.contains(&example), "not in examples: {example:#}");
    }
}

#[test]
fn image_and_license_are_those_of_the_project() {
    let version = chart()["appVersion"].as_str().expect("a version").to_owned();
    let image = format!("gamekeeper:{version}");
    assert_eq!(items("images"), [json!({"name": "gamekeeper", "image": image})]);
    assert!(read("Cargo.toml").contains(&format!("license = \"{}\"", annotation("license"))));
}

#[test]
fn the_changes_are_in_the_changelog() {
    let changelog = read("CHANGELOG.md");
    let heading = format!("\n## [{}]", chart()["version"].as_str().expect("a version"));
    let section = changelog.split(&heading).nth(1).expect("a section of the version");
    let section = section.split("\n## ").next().unwrap_or_default();
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let changes = items("changes");
    assert!(!changes.is_empty());
    for change in changes {
        let kind = change["kind"].as_str().unwrap_or_default();
        assert!(["added", "changed", "fixed", "removed", "security"].contains(&kind), "{kind}");
        let description = change["description"].as_str().unwrap_or_default();
        assert!(words(section).contains(&words(description)), "not in CHANGELOG.md: {description}");
    }
}

fn sorted(values: impl Iterator<Item = Value>) -> Vec<String> {
    let mut values: Vec<String> = values.map(|it| it.to_string()).collect();
    values.sort();
    values
}
