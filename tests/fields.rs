//! docs/bk-bcs-fields.md describes each field of the CRDs that bk-bcs has too. The page and these CRDs must have the
//! same fields.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::Value;

/// Fields whose subfields are defined by Kubernetes.
const OPAQUE: [&str; 3] = ["spec.template", "spec.selector", "spec.volumeClaimTemplates"];

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A field in a row of the page.
struct Listed {
    kind: String,
    /// Such as `spec.args[].name`.
    field: String,
    /// What it does in Gamekeeper.
    behavior: String,
}

/// The fields on the page.
fn listed() -> Vec<Listed> {
    let page = read("docs/bk-bcs-fields.md");
    let mut listed = Vec::new();
    for line in page.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [kinds, fields, behavior] = cells[..] else {
            panic!("{line}");
        };
        for kind in kinds.split(", ") {
            let fields = fields.split('`').skip(1).step_by(2).flat_map(expanded);
            listed.extend(fields.map(|field| Listed {
                kind: kind.to_owned(),
                field,
                behavior: behavior.to_owned(),
            }));
        }
    }
    listed
}

/// Expands the alternatives in a name: `spec.{a,b}` stands for the fields `spec.a` and `spec.b`.
fn expanded(field: &str) -> Vec<String> {
    let Some((prefix, rest)) = field.split_once('{') else {
        return vec![field.to_owned()];
    };
    let (alternatives, suffix) = rest.split_once('}').expect("a brace is closed");
    let names = alternatives.split(',');
    names.flat_map(|name| expanded(&format!("{prefix}{name}{suffix}"))).collect()
}

/// The fields of a CRD that have no subfields.
fn leaves(kind: &str) -> Vec<String> {
    let crd = read(&format!("crds/{}s.yaml", kind.to_lowercase()));
    let crd: Value = serde_yaml_ng::from_str(&crd).expect("a CRD");
    let root = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];
    let mut found = Vec::new();
    for part in ["spec", "status"] {
        add_leaves(&root[part], part, &mut found);
    }
    found
}

fn add_leaves(schema: &Value, field: &str, found: &mut Vec<String>) {
    let item = &schema["items"]["properties"];
    let (fields, name) = match item.is_object() {
        true => (item, format!("{field}[]")),
        false => (&schema["properties"], field.to_owned()),
    };
    match fields.as_object().filter(|_| !OPAQUE.contains(&field)) {
        Some(fields) => {
            for (inner, schema) in fields {
                add_leaves(schema, &format!("{name}.{inner}"), found);
            }
        }
        None if schema.is_null() => {}
        None => found.push(field.to_owned()),
    }
}

/// Whether a leaf is this field, or is below it.
fn is_within(leaf: &str, field: &str) -> bool {
    let rest = leaf.strip_prefix(field);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

#[test]
fn each_field_on_the_page_exists() {
    let mut leaves_by_kind: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let listed = listed();
    for Listed { kind, field, behavior } in &listed {
        let words = ["same", "safer: ", "refused: ", "ours"];
        assert!(words.iter().any(|it| behavior.starts_with(it)), "{field}: {behavior}");
        let leaves = leaves_by_kind.entry(kind.clone()).or_insert_with(|| leaves(kind));
        let exists = match behavior.starts_with("ours") {
            true => leaves.iter().any(|leaf| is_within(leaf, field)),
            false => leaves.contains(field),
        };
        assert!(exists || behavior.starts_with("refused: "), "{kind} {field}");
    }
    let bk_bcs_fields = listed.iter().filter(|it| !it.behavior.starts_with("ours"));
    assert_eq!(bk_bcs_fields.count(), 200, "the number of fields of bk-bcs");
}

#[test]
fn each_field_of_the_crds_is_on_the_page() {
    let listed = listed();
    for kind in ["GameDeployment", "GameStatefulSet", "HookRun", "HookTemplate"] {
        for leaf in leaves(kind) {
            let mut kind_fields = listed.iter().filter(|it| it.kind == kind);
            assert!(kind_fields.any(|it| is_within(&leaf, &it.field)), "{kind} {leaf}");
        }
    }
}

/// Whether a manifest has a field such as `spec.args[].name`.
fn has_field(manifest: &Value, field: &str) -> bool {
    let Some((name, rest)) = field.split_once('.') else {
        return !manifest[field].is_null();
    };
    match name.strip_suffix("[]") {
        Some(name) => {
            let items = manifest[name].as_array();
            items.is_some_and(|items| items.iter().any(|item| has_field(item, rest)))
        }
        None => has_field(&manifest[name], rest),
    }
}

#[test]
fn the_end_to_end_manifests_have_every_field_of_bk_bcs() {
    for (kind, file) in [
        ("GameDeployment", "game-deployment"),
        ("GameStatefulSet", "game-stateful-set"),
        ("HookRun", "hook-run"),
        ("HookTemplate", "hook-template"),
    ] {
        let manifest = read(&format!("e2e/manifests/bk-bcs/{file}.yaml"));
        let manifest: Value = serde_yaml_ng::from_str(&manifest).expect("a manifest");
        let kind_fields = listed().into_iter().filter(|it| it.kind == kind);
        let spec_fields = kind_fields.filter(|it| it.field.starts_with("spec."));
        let bk_bcs = spec_fields.filter(|it| !it.behavior.starts_with("ours"));
        for Listed { field, .. } in bk_bcs.filter(|it| !it.behavior.starts_with("refused: ")) {
            assert!(has_field(&manifest, &field), "{file}.yaml has no {field}");
        }
    }
}
