//! Lifecycle hooks of Clusters. Most tests have a control plane of their own, with the operator as the chart installs
//! it. Simulated nodes run no scripts. Instead, a script's arguments, such as `--kwok-exit=3`, say how it ends.

use std::time::Duration;

use anyhow::Result;
use e2e::checkout::repository;
use e2e::cluster::control_plane::ControlPlane;
use e2e::cluster::lifecycle::{SYSTEM, Stage};
use serde_json::{Value, json};

mod chart;
mod failures;
mod install;
mod interruptions;
mod upgrades;

/// How long a test watches an object that must not change.
const QUIET: Duration = Duration::from_secs(3);
/// Deletes the nodes that a test with two nodes does not need.
const DELETE_NODES: &str = "delete node node-2 node-3 node-4";

/// A node with this address and these taints.
fn node(name: &str, address: &str, taints: Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/os": "linux", "kubernetes.io/hostname": name},
            "annotations": {"stage.gamekeeper/address": address},
        },
        "spec": {"podCIDR": "127.40.0.0/16", "taints": taints},
    })
}

/// Like the Cluster of the example `one-file`, but with only this PreInstall script and this machine.
fn cluster_one(pre_install: &str, machine: Value) -> Value {
    json!({
        "apiVersion": "tkex.tencent.com/v1alpha1", "kind": "Cluster",
        "metadata": {"name": "one"},
        "spec": {
            "machines": [machine],
            "features": {
                "parallelism": 10,
                "files": [{"src": "hooks/pre-install", "dst": "/tmp/hooks/pre-install"}],
                "hooks": {"PreInstall": pre_install},
            },
        },
    })
}

async fn apply_example(stage: &Stage, name: &str) -> Result<()> {
    let folder = repository().join("examples/lifecycle").join(name);
    stage.kubectl(&format!("apply -f {}", folder.display())).await?;
    Ok(())
}

/// Sets the version of a node's kubelet to 1.37.0.
async fn upgrade_kubelet(stage: &Stage, node: &str) -> Result<()> {
    let version = json!({"status": {"nodeInfo": {"kubeletVersion": "v1.37.0"}}}).to_string();
    let patch = ["patch", "node", node, "--subresource=status", "--type=merge", "-p", &version];
    stage.plane.kubectl(&patch, "").await?;
    Ok(())
}

/// Whether the chart's operator has read or watched Clusters. The audit log shows a watch once it has ended.
fn has_read_clusters(plane: &ControlPlane) -> Result<bool> {
    let log = std::fs::read_to_string(plane.audit.path())?;
    let user = format!("\"username\":\"system:serviceaccount:{SYSTEM}:gamekeeper\"");
    Ok(log.lines().any(|line| {
        let is_read = ["get", "list", "watch"]
            .iter()
            .any(|verb| line.contains(&format!("\"verb\":\"{verb}\"")));
        is_read && line.contains("\"resource\":\"clusters\"") && line.contains(&user)
    }))
}
