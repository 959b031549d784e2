//! The cluster that the model of lifecycle hooks starts with, and the node that may join it.

use std::collections::{BTreeMap, BTreeSet};

use gamekeeper_core::api::Cluster;
use gamekeeper_core::lifecycle::ClusterNode;
use serde_json::{Value, json};

use super::fault::Fault;
use super::state::{LONG_AGO, Objects, Scope, State, VERSIONS};

fn node(name: &str, labels: &[&str]) -> ClusterNode {
    let labels = labels.iter().chain(&["kubernetes.io/os=linux"]);
    let labels = labels.filter_map(|it| it.split_once('='));
    ClusterNode {
        name: name.to_owned(),
        uid: format!("{name}-uid"),
        created: Some(LONG_AGO),
        labels: labels.map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
        ready: true,
        version: VERSIONS[0].to_owned(),
        ..ClusterNode::default()
    }
}

/// The hooks of an upgrade if versions change, and the hooks of an install and a deletion if not. All of them together
/// would lead to too many states.
fn hooks(scope: &Scope) -> Value {
    let keys: &[&str] = match scope.version_changes {
        0 => &[
            "PreClusterInstall",
            "PreInstall",
            "PostClusterInstall",
            "PreClusterDelete",
            "PostClusterDelete",
        ],
        _ => &["PreClusterUpgrade", "PreUpgrade", "PostUpgrade", "PostClusterUpgrade"],
    };
    keys.iter().map(|key| (*key, "/b")).collect()
}

/// A node that joins.
pub fn joining_node() -> ClusterNode {
    ClusterNode { not_installed_taint_index: Some(0), ..node("late", &[]) }
}

impl State {
    pub fn start(scope: &Scope, fault: Option<Fault>) -> Self {
        let parallelism = if scope.version_changes > 0 { 1 } else { 2 };
        let cluster = json!({
            "apiVersion": "tkex.tencent.com/v1alpha1", "kind": "Cluster",
            "metadata": {"name": "xa", "uid": "xa-uid", "generation": 1, "resourceVersion": "1"},
            "spec": {"version": VERSIONS[0], "features": {
                "parallelism": parallelism,
                "files": [{"src": "a/b", "dst": "/b"}],
                "skipConditions": ["EnsureCopyFiles"],
                "hooks": hooks(scope),
                "upgrade": {"strategy": {"drainNodeBeforeUpgrade": scope.version_changes > 0}},
            }},
        });
        let cluster: Cluster = serde_json::from_value(cluster).expect("a Cluster");
        let mut nodes = vec![node("master", &["node-role.kubernetes.io/control-plane="])];
        nodes.extend((0..scope.workers).map(|it| node(&format!("worker-{it}"), &[])));
        let stored = Objects { cluster: Some(cluster), nodes, runs: Vec::new() };
        State {
            cached: stored.clone(),
            stored,
            own_writes: Vec::new(),
            pending: Vec::new(),
            planned_for: None,
            planned_nodes: Vec::new(),
            confirmed: None,
            remaining: *scope,
            fault,
            passed: BTreeSet::new(),
            upgrades: BTreeMap::new(),
            last_resource_version: 1,
        }
    }
}
