//! The examples can be applied together: none replaces an object of another one.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

/// The names in bk-bcs' walkthroughs, each of which starts with its own variant of these two objects.
const OF_WALKTHROUGHS: [&str; 2] = ["HookTemplate /test", "GameDeployment /test-gamedeployment"];

/// All manifests in a folder and its subfolders.
fn manifests(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder of examples");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let paths = paths.flat_map(|path| match path.is_dir() {
        true => manifests(&path),
        false => vec![path],
    });
    paths.collect()
}

/// The objects of a manifest.
fn objects(manifest: &Path) -> Vec<Value> {
    let text = fs::read_to_string(manifest).expect("a manifest");
    let documents = serde_yaml_ng::Deserializer::from_str(&text).map(Value::deserialize);
    let objects = documents.map(|it| it.unwrap_or_else(|error| panic!("{manifest:?}: {error}")));
    objects.collect()
}

/// Kind, namespace and name. The namespace is empty if the user chooses it.
fn identity(object: &Value) -> String {
    let field = |path| object.pointer(path).and_then(Value::as_str);
    let kind = field("/kind").expect("a kind");
    let namespace = field("/metadata/namespace").unwrap_or_default();
    let name = field("/metadata/name").expect("a name");
    format!("{kind} {namespace}/{name}")
}

#[test]
fn no_example_replaces_an_object_of_another_one() {
    let mut defined: BTreeMap<String, (PathBuf, Value)> = BTreeMap::new();
    let mut replaced = Vec::new();
    for manifest in manifests(&Path::new(env!("CARGO_MANIFEST_DIR")).join("examples")) {
        for object in objects(&manifest) {
            let identity = identity(&object);
            match defined.get(&identity) {
                Some((other, same)) if *same != object => {
                    replaced.push((identity, other.clone(), manifest.clone()));
                }
                _ => drop(defined.insert(identity, (manifest.clone(), object))),
            }
        }
    }
    assert!(defined.len() > 40, "{:#?}", defined.keys());
    replaced.retain(|(identity, _, _)| !OF_WALKTHROUGHS.contains(&identity.as_str()));
    assert!(replaced.is_empty(), "{replaced:#?}");
}
