//! Protection of pods against deletions by other clients: the field `spec.protection` and its status.
//! Shared by GameDeployment and GameStatefulSet.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::schema;

/// How pods are protected against deletions by other clients: kubectl, drains, garbage collection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [schema::deadline_after_first_question()]))]
pub struct Protection {
    /// Guarded: nobody deletes, evicts or restarts a pod before its PreDelete hook allows it.
    #[serde(default)]
    pub pods: PodProtection,
    /// Seconds until the PreDelete hook of a guarded pod is run again after it did not allow the deletion. The
    /// pause doubles up to ten times this.
    #[serde(default = "ask_again_seconds")]
    #[schemars(range(min = 1, max = 86400))]
    pub ask_again_seconds: i32,
    /// Seconds after which a guarded pod that waits for its PreDelete hook is deleted although the hook does not
    /// allow it. Without it, the pod waits for as long as it takes.
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
    /// All do.
    Guarded,
}

/// What the status shows of a workload whose pods are guarded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProtectionStatus {
    /// Pods that carry the label of guarded pods.
    #[serde(default)]
    pub guarded: i32,
    /// Pods that are to be deleted and wait for their PreDelete hook: the 100 that have waited longest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = schema::merged_by("podName"))]
    pub waiting: Vec<WaitingPod>,
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
    /// When its hook was first asked.
    pub since: Time,
    /// What it waits for.
    pub reason: WaitReason,
    /// The same as a sentence.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// What a guarded pod waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum WaitReason {
    /// Its hook runs, or is about to.
    HookRunning,
    /// Its hook did not allow the deletion, and is run again later.
    HookNotSuccessful,
    /// Its hook cannot be run.
    HookCannotRun,
    /// Its hook was removed from the workload, which has to be confirmed.
    HookRemoved,
}
