//! Layers that Cargo cannot enforce: in the operator `runtime <- kinds, provider <- reconcile <- metrics <- manager`, and
//! in the core `api <- observed <- guard <- write <- revision <- hook_run, sidecar_set, lifecycle <- workload <- admission <- lint`.
//! Each uses only those to its left. The core also has no clock.

mod sources;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use sources::{files, root};

/// A folder of layers, each with the other layers that it may use.
type Layers = (&'static str, &'static [(&'static str, &'static [&'static str])]);

const CORE: Layers = (
    "core/src",
    &[
        ("api", &[]),
        ("observed", &["api"]),
        ("guard", &["observed"]),
        ("write", &["api", "observed", "guard"]),
        ("revision", &["api", "observed"]),
        ("hook_run", &["api", "observed"]),
        ("sidecar_set", &["api", "observed", "write", "revision"]),
        ("lifecycle", &["api", "observed", "write"]),
        ("workload", &["api", "observed", "guard", "write", "revision", "hook_run", "sidecar_set"]),
        ("expr", &["api"]),
        (
            "admission",
            &["api", "observed", "hook_run", "sidecar_set", "lifecycle", "workload", "expr"],
        ),
        ("lint", &["api", "expr", "admission"]),
    ],
);

const OPERATOR: Layers = (
    "src",
    &[
        ("runtime", &[]),
        ("kinds", &["runtime"]),
        ("provider", &["runtime"]),
        ("reconcile", &["runtime", "kinds", "provider"]),
        ("node_hook", &[]),
        ("try_run", &["provider"]),
        ("unguard", &[]),
        ("webhook", &["runtime", "kinds"]),
        ("metrics", &["runtime", "kinds", "reconcile", "webhook"]),
        ("manager", &["runtime", "kinds", "provider", "reconcile", "webhook", "metrics"]),
    ],
);

/// The modules of the planner of workloads: each may use those before it, so there are no cycles.
const WORKLOAD_MODULES: [&str; 15] = [
    "decision",
    "spec",
    "world",
    "hooks",
    "protection",
    "revision",
    "in_place",
    "rollout",
    "pods",
    "scale",
    "update",
    "status",
    "deletion",
    "outline",
    "planned",
];

/// Names that must not occur in the core, because its functions are pure.
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

/// The files of a folder with their code, without comments.
fn code(folder: &str) -> Vec<(PathBuf, String)> {
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).expect("a source file");
        let is_code = |line: &&str| !line.trim_start().starts_with("//");
        let code: Vec<_> = text.lines().filter(is_code).collect();
        (path, code.join("\n"))
    };
    files(&root().join(folder)).into_iter().map(read).collect()
}

#[test]
fn no_layer_uses_one_above_it() {
    for (folder, layers) in [CORE, OPERATOR] {
        for (layer, may_use) in layers {
            for (path, text) in code(&format!("{folder}/{layer}")) {
                for (other, _) in layers {
                    let uses = text.contains(&format!("crate::{other}::"))
                        || text.contains(&format!("crate::{{{other}::"));
                    let allowed = other == layer || may_use.contains(other);
                    assert!(
                        allowed || !uses,
                        "{} uses crate::{other}, which is above {layer}",
                        path.display()
                    );
                }
            }
        }
    }
}

/// Files whose log lines no tenant can cause: the lease, the process itself, the webhook's certificates, the state of
/// watches and connections, and Clusters, which only administrators create.
const LOG_WITHOUT_LIMIT: [&str; 11] = [
    "kinds/comparison.rs",
    "runtime/descriptors.rs",
    "runtime/inbound/listener.rs",
    "runtime/inbound/mod.rs",
    "runtime/lease.rs",
    "runtime/watch.rs",
    "runtime/log_limiter.rs",
    "manager/catch_up.rs",
    "manager/mod.rs",
    "manager/operator.rs",
    "webhook/rotation.rs",
];

/// Tenants cause most log lines, as often as they like.
#[test]
fn log_lines_that_tenants_can_cause_are_limited() {
    let mut checked = 0;
    for (path, text) in code("src") {
        let limited = text.matches("log_limited!(").count();
        checked += limited;
        let is_exempt = LOG_WITHOUT_LIMIT.iter().any(|it| path.ends_with(it));
        for macro_name in ["info!(", "warn!(", "error!("] {
            let uses = text.match_indices(macro_name);
            let mut uses = uses.filter(|(at, _)| {
                !text[..*at].ends_with(|it: char| it.is_alphanumeric() || "_:".contains(it))
            });
            let found = uses.next().filter(|_| !is_exempt);
            assert!(found.is_none(), "{}: write {macro_name} as log_limited!", path.display());
        }
    }
    assert!(checked > 10, "{checked}");
}

/// The names that follow a path in code: modules or items.
fn names_after<'t>(path: &str, text: &'t str) -> Vec<&'t str> {
    let is_in_name = |c: char| c.is_alphanumeric() || c == '_';
    let names = |rest: &'t str| -> Vec<&'t str> {
        let Some(list) = rest.strip_prefix('{') else {
            return vec![rest];
        };
        let (mut depth, mut starts) = (0, vec![list]);
        for (index, c) in list.char_indices() {
            match c {
                '{' => depth += 1,
                '}' if depth == 0 => break,
                '}' => depth -= 1,
                ',' if depth == 0 => starts.push(&list[index + 1..]),
                _ => {}
            }
        }
        starts
    };
    let found = text.match_indices(path);
    let found = found.flat_map(|(start, _)| names(&text[start + path.len()..]));
    let found = found.map(|rest| rest.trim_start());
    let found = found.map(|rest| rest.split(|c| !is_in_name(c)).next().unwrap_or_default());
    found.filter(|name| !name.is_empty()).collect()
}

#[test]
fn modules_of_the_planner_of_workloads_use_only_those_before_them() {
    let planner = root().join("core/src/workload");
    let mut files_read = 0;
    for (path, text) in code("core/src/workload") {
        let relative = path.strip_prefix(&planner).expect("a path in the folder");
        let module = relative.iter().next().and_then(|name| name.to_str());
        let module = module.expect("a name").trim_end_matches(".rs");
        let is_exempt = ["mod", "tests", "game_deployment", "game_stateful_set"].contains(&module);
        if is_exempt || path.ends_with("tests.rs") {
            continue;
        }
        let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        let order = WORKLOAD_MODULES.iter().position(|it| *it == module);
        let order = order.unwrap_or_else(|| {
            panic!("{module} is not a known module: add it to WORKLOAD_MODULES")
        });
        files_read += 1;
        for name in names_after("crate::workload::", text) {
            if module == "planned" && name.starts_with("game_") {
                continue; // This module comes after the two plans.
            }
            let used = WORKLOAD_MODULES.iter().position(|it| *it == name);
            let is_before = used.is_some_and(|used| used <= order);
            assert!(is_before, "{} uses workload::{name}, which {module} may not", path.display());
        }
    }
    assert!(files_read > 40, "only {files_read} files were read");
}

#[test]
fn decisions_are_pure() {
    for (path, text) in code("core/src") {
        for word in IMPURE {
            assert!(
                !text.contains(word) || may_measure_time(&path),
                "{} contains {word}: a decision has no client, async or clock",
                path.display()
            );
        }
    }
}

/// A test may measure how long a decision takes.
fn may_measure_time(path: &Path) -> bool {
    path.ends_with("tests.rs")
}

/// The lines that `cargo tree` prints in this format.
fn tree(format: &str, args: &[&str]) -> Vec<String> {
    let mut tree = Command::new(env!("CARGO"));
    tree.args(["tree", "--offline", "--locked", "--prefix", "none", "--no-dedupe"]);
    tree.args(["--format", format]).args(args);
    let output = tree.current_dir(root()).output().expect("cargo");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("names");
    text.lines().map(str::to_owned).collect()
}

/// The packages that a package is built from.
fn dependencies(package: &str) -> Vec<String> {
    tree("{lib}", &["--edges", "normal", "--package", package])
}

/// The features of each package.
fn features(args: &[&str]) -> BTreeMap<String, BTreeSet<String>> {
    let mut features: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in tree("{p}|{f}", args).iter().filter(|line| !line.is_empty()) {
        let (package, names) = line.split_once('|').expect("a package with features");
        let package = package.trim_end_matches(" (proc-macro)").to_owned();
        features.entry(package).or_default().extend(names.split(',').map(str::to_owned));
    }
    features
}

/// The programs that the end-to-end tests run are built together with the tests, whose dependencies may enable features
/// that the released programs lack. None of these may make a difference.
#[test]
fn tests_enable_only_known_features_of_what_is_released() {
    let released =
        features(&["--edges", "normal", "--package", "gamekeeper", "--package", "kubectl-game"]);
    let tested = features(&["--edges", "normal,dev", "--workspace"]);
    let mut added: Vec<String> = Vec::new();
    for (package, features) in &released {
        let name = package.split(' ').next().unwrap_or_default();
        let all = tested.get(package).unwrap_or_else(|| panic!("{package} is not tested"));
        added.extend(all.difference(features).map(|it| format!("{name}/{it}")));
    }
    let known = [
        "bit-vec/default",
        "fastrand/default",
        "rustix/default",
        "rustix/fs",
        "sync_wrapper/futures",
        "sync_wrapper/futures-core",
        "tokio/test-util",
        "tower/timeout",
    ];
    assert_eq!(added, known);
}

#[test]
fn the_core_is_built_without_client_runtime_or_io() {
    let found = dependencies("gamekeeper-core");
    assert!(found.contains(&"kube_core".to_owned()), "{found:?}");
    for foreign in [
        "tokio",
        "futures",
        "hyper",
        "axum",
        "reqwest",
        "rustls",
        "kube_client",
        "kube_runtime",
        "tracing",
        "clap",
    ] {
        assert!(!found.contains(&foreign.to_owned()), "the core is built with {foreign}");
    }
}

#[test]
fn the_plugin_is_built_without_dependencies_of_the_operator() {
    let found = dependencies("kubectl-game");
    assert!(found.contains(&"kube_client".to_owned()), "{found:?}");
    for foreign in ["gamekeeper", "rcgen", "reqwest", "prometheus_client"] {
        assert!(!found.contains(&foreign.to_owned()), "the plugin is built with {foreign}");
    }
}

#[test]
fn every_folder_is_a_layer() {
    for (folder, layers) in [CORE, OPERATOR] {
        for entry in fs::read_dir(root().join(folder)).expect("a folder") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().and_then(|name| name.to_str());
            let name = name.expect("a name");
            let is_known = layers.iter().any(|(layer, _)| *layer == name);
            assert!(is_known || path.is_file(), "{folder}/{name} is not a layer");
        }
    }
}
