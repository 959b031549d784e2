//! The versions of Kubernetes that the documents name are those on which the tests run.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

fn read(path: impl AsRef<Path>) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The version of Kubernetes that a go.mod requires, such as 1.30.14.
fn required(go_mod: &str) -> Option<String> {
    let version =
        go_mod.lines().find_map(|line| line.trim().strip_prefix("k8s.io/kubernetes v"))?;
    Some(version.split(' ').next()?.to_owned())
}

/// The minor version: 30 in 1.30.14.
fn minor(version: &str) -> u32 {
    let minor = version.split('.').nth(1).expect("a minor version");
    minor.parse().expect("a number")
}

/// The versions on which the tests run, by minor version.
fn tested() -> BTreeMap<u32, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("e2e/compatibility");
    let folders = fs::read_dir(folder).expect("e2e/compatibility");
    let modules = folders.map(|entry| entry.expect("an entry").path().join("go.mod"));
    let modules = modules.filter(|path| path.exists()).map(read);
    let modules = modules.chain([read("e2e/cluster/go.mod")]);
    let versions = modules.filter_map(|module| required(&module));
    versions.map(|version| (minor(&version), version)).collect()
}

#[test]
fn each_minor_version_from_the_oldest_to_the_newest_is_tested() {
    let minors: Vec<u32> = tested().into_keys().collect();
    let all: Vec<u32> = (minors[0]..=minors[minors.len() - 1]).collect();
    assert_eq!(minors, all);
    assert!(minors.len() > 1);
}

#[test]
fn the_documents_name_the_oldest_version_that_is_tested() {
    let oldest = minor(tested().first_key_value().expect("a version").1);
    for (file, words) in [
        ("README.md", format!("Kubernetes 1.{oldest} ")),
        ("charts/gamekeeper/Chart.yaml", format!("kubeVersion: \">=1.{oldest}.0-0\"")),
        ("charts/gamekeeper/README.md", format!("needs Kubernetes 1.{oldest} ")),
        ("Makefile", format!("E2E_KUBERNETES=1.{oldest} ")),
    ] {
        assert!(read(file).contains(&words), "{file} lacks {words:?}");
    }
}

#[test]
fn the_table_of_versions_lists_what_is_tested() {
    let page = read("docs/operations.md");
    for version in tested().values() {
        let row = format!("| {version} |");
        assert!(page.contains(&row), "docs/operations.md lacks {row:?}");
    }
}
