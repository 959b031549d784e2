//! The layers, each using only those below it: `api <- plan <- cache, apply, expr, provider <-
//! controller <- manager <- main`. And `plan` has no client, no async and no clock.

use std::fs;
use std::path::{Path, PathBuf};

/// Each layer with those that it may use besides itself.
const LAYERS: [(&str, &[&str]); 15] = [
    ("api", &[]),
    ("fair", &[]),
    ("metrics", &[]),
    ("plan", &["api"]),
    ("expr", &["api", "fair", "plan"]),
    ("cache", &["api", "plan"]),
    ("apply", &["api", "metrics", "plan"]),
    ("provider", &["api", "fair", "plan", "expr"]),
    (
        "controller",
        &[
            "api", "fair", "metrics", "plan", "expr", "cache", "apply", "provider",
        ],
    ),
    ("admission", &["api", "plan", "expr", "provider"]),
    ("lint", &["api", "expr", "admission"]),
    (
        "rehearsal",
        &["api", "plan", "provider", "admission", "lint"],
    ),
    ("inbound", &[]),
    (
        "webhook",
        &[
            "api",
            "fair",
            "metrics",
            "plan",
            "expr",
            "cache",
            "admission",
            "inbound",
        ],
    ),
    (
        "manager",
        &[
            "api",
            "fair",
            "metrics",
            "plan",
            "expr",
            "cache",
            "apply",
            "provider",
            "controller",
            "inbound",
            "webhook",
        ],
    ),
];

/// What a pure function has no use for.
const IMPURE: [&str; 12] = [
    "tokio",
    "futures",
    "hyper_util",
    "async fn",
    "async move",
    ".await",
    "kube::Client",
    "kube::Api",
    "kube::client",
    "kube::runtime",
    "Timestamp::now",
    "SystemTime",
];

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder of the source");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths
        .flat_map(|path| {
            if path.is_dir() {
                files(&path)
            } else {
                vec![path]
            }
        })
        .filter(|path| path.extension().is_some_and(|it| it == "rs"))
        .collect()
}

fn source(layer: &str) -> Vec<(PathBuf, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("src")
        .join(layer);
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).expect("a source file");
        let code: Vec<_> = text
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"))
            .collect();
        (path, code.join("\n"))
    };
    files(&folder).into_iter().map(read).collect()
}

#[test]
fn no_layer_looks_up() {
    for (layer, may_use) in LAYERS {
        for (path, text) in source(layer) {
            for (other, _) in LAYERS {
                let uses = text.contains(&format!("crate::{other}::"))
                    || text.contains(&format!("crate::{{{other}::"));
                let allowed = other == layer || may_use.contains(&other);
                assert!(
                    allowed || !uses,
                    "{} uses crate::{other}, which is above {layer}",
                    path.display()
                );
            }
        }
    }
}

#[test]
fn plans_and_rules_are_pure() {
    for layer in ["api", "plan", "admission"] {
        for (path, text) in source(layer) {
            for word in IMPURE {
                assert!(
                    !text.contains(word),
                    "{} has {word}: a decision has no client, async or clock",
                    path.display()
                );
            }
        }
    }
}

#[test]
fn the_plugin_knows_objects_and_rules_and_nothing_of_how_the_operator_works() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("kubectl-game/src");
    for path in files(&folder) {
        let text = fs::read_to_string(&path).expect("a source file");
        for layer in ["cache", "apply", "provider", "controller", "manager"] {
            let uses = text.contains(&format!("gamekeeper::{layer}"));
            assert!(!uses, "{} uses gamekeeper::{layer}", path.display());
        }
    }
}

#[test]
fn every_folder_is_a_layer() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    for entry in fs::read_dir(source).expect("src") {
        let path = entry.expect("an entry").path();
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .expect("a name")
            .to_owned();
        let known = LAYERS.iter().any(|(layer, _)| *layer == name);
        assert!(known || path.is_file(), "src/{name} is no layer");
    }
}
