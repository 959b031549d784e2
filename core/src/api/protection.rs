//! Protection of pods against deletions by other clients: the field `spec.protection` and its status.
//! Shared by GameDeployment and GameStatefulSet.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::schema;

/// How pods are protected against deletions by other clients: kubectl, drains, garbage collection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [schema::deadline_after_first_rerun()]))]
pub struct Protection {
    /// Guarded: no client can delete, evict or restart a pod before its PreDelete hook allows it.
    #[serde(default)]
    pub pods: PodProtection,
    /// What happens to pods on a node that is going to be removed: one that is cordoned, or has a taint that announces
    /// its removal.
    #[serde(default)]
    pub on_node_going: OnNodeGoing,
    /// Seconds until the PreDelete hook of a guarded pod is run again after it has refused the deletion. The
    /// interval doubles each time, up to ten times this value.
    #[serde(default = "ask_again_seconds")]
    #[schemars(range(min = 1, max = 86400))]
    pub ask_again_seconds: i32,
    /// Seconds after which a guarded pod that waits for its PreDelete hook is deleted even though the hook does
    /// not allow it. Without a deadline, the pod waits until the hook allows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub deadline_seconds: Option<i32>,
}

fn ask_again_seconds() -> i32 {
    60
}

/// Whether pods are protected against deletions by other clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum PodProtection {
    /// Only deletions by the operator wait for hooks.
    #[default]
    None,
    /// Deletions by all clients wait for hooks.
    Guarded,
}

/// What happens to pods on a node that is going to be removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum OnNodeGoing {
    /// They stay.
    #[default]
    Wait,
    /// They are replaced as soon as their hooks and maxUnavailable allow it.
    Move,
}

/// The state of the protection of a workload's pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProtectionStatus {
    /// Pods that carry the label of guarded pods.
    #[serde(default)]
    pub guarded: i32,
    /// Pods that will be replaced because of `kubectl game move`, or because their node is going to be removed.
    #[serde(default)]
    pub moving: i32,
    /// Pods that wait for their PreDelete hook before they are deleted: the 100 that have waited longest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = schema::merged_by("podName"))]
    pub waiting: Vec<WaitingPod>,
    /// Names of a GameStatefulSet's pods that left nodes that are going to be removed. No pod with such a name is
    /// created for a few seconds, so that a drain of the node does not try to evict the new pod.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = schema::merged_by("podName"))]
    pub vacated: Vec<VacatedName>,
}

impl ProtectionStatus {
    /// The maximum number of waiting pods in a status.
    pub const MAX_WAITING: usize = 100;
}

/// The name of a pod that left its node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VacatedName {
    /// The name.
    pub pod_name: String,
    /// When the pod was deleted.
    pub since: Time,
}

/// A guarded pod that waits for its PreDelete hook.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WaitingPod {
    /// The pod.
    pub pod_name: String,
    /// Its node.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub node: String,
    /// When its hook was first needed.
    pub since: Time,
    /// What it waits for.
    pub reason: WaitReason,
    /// The reason as a sentence.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// What a guarded pod waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum WaitReason {
    /// Its hook is running, or is about to start.
    HookRunning,
    /// Its hook refused the deletion, and is run again later.
    HookNotSuccessful,
    /// Its hook cannot be run.
    HookCannotRun,
    /// Its hook was removed from the workload, and the removal has to be confirmed.
    HookRemoved,
}
