//! Cluster: lifecycle hooks. They are scripts that run on the cluster's nodes at install, upgrade
//! and deletion.
//!
//! The names of hooks, fields and conditions are those of TKEStack's Cluster: its manifests can be applied once the
//! apiVersion is changed and passwords are removed. Scripts run as Jobs on the nodes, without ssh.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, OwnerReference};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{LifecycleStep, schema};

/// Cluster runs scripts on the nodes of the operator's own cluster, at install, upgrade and deletion.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "tkex.tencent.com",
    version = "v1alpha1",
    kind = "Cluster",
    doc = "Cluster runs scripts on the nodes of the operator's own cluster, at install, upgrade and deletion.",
    plural = "clusters",
    category = "game",
    status = "ClusterStatus",
    derive = "Default",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase")]
pub struct ClusterSpec {
    /// Kubernetes version of the cluster; a change starts an upgrade. Scripts find it in the environment variable
    /// VERSION. A leading v and a suffix that begins with - or + are ignored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub version: Option<String>,
    /// The node with the address of the first machine is the first master, on which cluster hooks run. The default is
    /// the oldest control-plane node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), extend("x-kubernetes-list-type" = "atomic"))]
    pub machines: Vec<Machine>,
    /// Files and hooks, and how the hooks run.
    #[serde(default)]
    pub features: ClusterFeatures,
    /// While true, no script starts; a running script is not interrupted.
    #[serde(default)]
    pub paused: bool,
    /// Accepted for TKEStack's manifests; has no effect.
    #[serde(default, rename = "clusterCIDR", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub cluster_cidr: Option<String>,
    /// Accepted for TKEStack's manifests; has no effect.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub type_: Option<String>,
    /// Accepted for TKEStack's manifests; has no effect.
    #[serde(default, rename = "tenantID", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub tenant_id: Option<String>,
}

/// A machine, as in TKEStack's manifests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = schema::no_credentials()))]
pub struct Machine {
    /// Address of the node.
    #[schemars(length(min = 1, max = 45))]
    pub ip: String,
    /// Accepted for TKEStack's manifests; has no effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<i32>,
    /// Accepted for TKEStack's manifests; has no effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub username: Option<String>,
    /// Refused: scripts run as Jobs, so no password is needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 65536))]
    pub password: Option<String>,
    /// Refused: scripts run as Jobs, so no key is needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 65536))]
    pub private_key: Option<String>,
    /// Refused: scripts run as Jobs, so no key is needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 65536))]
    pub pass_phrase: Option<String>,
}

/// Files and hooks, and how the hooks run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterFeatures {
    /// Sources of files, in namespace gamekeeper-hooks. A file without a source is read from the ConfigMap that is
    /// named by the first part of its src.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), transform = schema::merged_by("path"))]
    pub sources: Vec<FileSource>,
    /// Files to copy to every node before a script runs there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), transform = schema::merged_by("dst"))]
    pub files: Vec<HookFile>,
    /// The scripts.
    pub hooks: ClusterHooks,
    /// Conditions that count as passed; their scripts do not run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "set"))]
    pub skip_conditions: Vec<LifecycleStep>,
    /// Maximum number of nodes on which scripts run at the same time.
    #[schemars(range(min = 1, max = 1000))]
    pub parallelism: i32,
    /// Maximum duration of one attempt.
    #[schemars(range(min = 1, max = 86400))]
    pub hook_timeout_seconds: i32,
    /// Labels of the nodes on which scripts run.
    #[schemars(schema_with = "schema::node_selector")]
    pub node_selector: std::collections::BTreeMap<String, String>,
    /// How nodes are upgraded.
    pub upgrade: UpgradeOptions,
}

/// How nodes are upgraded.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct UpgradeOptions {
    /// What happens to a node before its upgrade.
    pub strategy: UpgradeStrategy,
}

/// What happens to a node before its upgrade.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct UpgradeStrategy {
    /// Cordon each node before its upgrade, and wait until its game pods have been replaced on other nodes, which
    /// their hooks and budgets must allow.
    pub drain_node_before_upgrade: bool,
}

impl Default for ClusterFeatures {
    fn default() -> Self {
        let linux = ("kubernetes.io/os".to_owned(), "linux".to_owned());
        Self {
            sources: Vec::new(),
            files: Vec::new(),
            hooks: ClusterHooks::default(),
            skip_conditions: Vec::new(),
            parallelism: 1,
            hook_timeout_seconds: 3600,
            node_selector: [linux].into(),
            upgrade: UpgradeOptions::default(),
        }
    }
}

/// A source of files; exactly one of configMap and persistentVolumeClaim is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [schema::exactly_one_of(&["configMap", "persistentVolumeClaim"])]))]
pub struct FileSource {
    /// The beginning of each src that is read from here, such as hooks/pre.
    #[schemars(schema_with = "schema::relative_path")]
    pub path: String,
    /// A ConfigMap in namespace gamekeeper-hooks; its keys are the files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map: Option<ConfigMapSource>,
    /// A PersistentVolumeClaim in namespace gamekeeper-hooks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persistent_volume_claim: Option<ClaimSource>,
}

/// A ConfigMap in namespace gamekeeper-hooks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigMapSource {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// A PersistentVolumeClaim in namespace gamekeeper-hooks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClaimSource {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub claim_name: String,
}

/// A file, or the files of a directory, to copy to every node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HookFile {
    /// File or directory in a source.
    #[schemars(schema_with = "schema::relative_path")]
    pub src: String,
    /// Where it is copied to on the node; parent directories are created.
    #[schemars(schema_with = "schema::node_path")]
    pub dst: String,
}

/// The scripts: each value is the path of a file on the node, followed by its first arguments.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct ClusterHooks {
    /// Runs on every node, which need not be ready yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 4096))]
    pub pre_install: Option<String>,
    /// Runs on every node, once it is ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 4096))]
    pub post_install: Option<String>,
    /// Runs on the first master, before the scripts of the nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 4096))]
    pub pre_cluster_install: Option<String>,
    /// Runs on the first master, after the scripts of the nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 4096))]
    pub post_cluster_install: Option<String>,
    /// Runs on every node, before its kubelet is upgraded.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 4096))]
    pub pre_upgrade: Option<String>,
    /// Runs on every node, once its kubelet has the new version.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 4096))]
    pub post_upgrade: Option<String>,
    /// Runs on the first master, before the first node is upgraded.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 4096))]
    pub pre_cluster_upgrade: Option<String>,
    /// Runs on the first master, after the last node has been upgraded.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 4096))]
    pub post_cluster_upgrade: Option<String>,
    /// Runs on the first master, when the Cluster is deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 4096))]
    pub pre_cluster_delete: Option<String>,
    /// Runs on the first master, before the Cluster is removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 4096))]
    pub post_cluster_delete: Option<String>,
}

/// Phase in the life of a Cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum ClusterPhase {
    /// The install hooks run.
    #[default]
    Initializing,
    /// The install is complete; nodes that join are installed.
    Running,
    /// The upgrade hooks run, node by node.
    Upgrading,
    /// The delete hooks run.
    Terminating,
}

/// Last observed state of a Cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterStatus {
    /// Generation of the spec that the status describes.
    pub observed_generation: i64,
    /// Phase in the life of the Cluster.
    pub phase: ClusterPhase,
    /// The node on which cluster hooks run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_master: Option<String>,
    /// Version after the install or the last upgrade.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The upgrade in progress, or the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upgrade: Option<ClusterUpgrade>,
    /// Cluster hooks that have succeeded. Each node has an annotation with the hooks that have succeeded on it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "set"))]
    pub passed_steps: Vec<LifecycleStep>,
    /// Number of selected nodes.
    pub nodes: i32,
    /// Number of nodes whose install is complete.
    pub installed_nodes: i32,
    /// One condition for each step of the phase, and Ready.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = schema::merged_by("type"))]
    pub conditions: Vec<Condition>,
}

/// An upgrade of all nodes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterUpgrade {
    /// Number of the upgrade. Steps that passed in an earlier upgrade do not count.
    pub number: i64,
    /// The new version.
    pub to: String,
}

impl Cluster {
    /// The owner reference of objects that are deleted with the Cluster. It is not a controller reference, because
    /// a HookRun that has a controller does not expire.
    pub fn owner_reference(&self) -> OwnerReference {
        OwnerReference {
            api_version: super::API_VERSION.to_owned(),
            kind: Self::KIND.to_owned(),
            name: self.metadata.name.clone().unwrap_or_default(),
            uid: self.metadata.uid.clone().unwrap_or_default(),
            controller: None,
            block_owner_deletion: None,
        }
    }

    /// The name of the kind.
    pub const KIND: &'static str = "Cluster";
}
