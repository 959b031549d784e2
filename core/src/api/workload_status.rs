//! The status of a workload: counts, the state of its rollout, and blocked pods.
//! Shared by GameDeployment and GameStatefulSet.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::hook_run::is_zero;
use super::names::HookPoint;
use super::{Cause, HookPhase, ProtectionStatus, schema};

/// Last observed state of a workload and its pods.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadStatus {
    /// The generation that the counts below describe.
    #[serde(default)]
    pub observed_generation: i64,
    /// Pods that exist, including those to be deleted.
    #[serde(default)]
    pub replicas: i32,
    /// Pods that are not to be removed: those that hold one of the spec.replicas places. The scale subresource, and with
    /// it an autoscaler, counts these.
    #[serde(default)]
    pub active_replicas: i32,
    /// Pods that are ready.
    #[serde(default)]
    pub ready_replicas: i32,
    /// Pods that have been ready for minReadySeconds.
    #[serde(default)]
    pub available_replicas: i32,
    /// Pods at the update revision.
    #[serde(default)]
    pub updated_replicas: i32,
    /// Pods at the update revision that are ready.
    #[serde(default)]
    pub updated_ready_replicas: i32,
    /// Name of the revision of the current template.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub update_revision: String,
    /// Name of the stable revision: the last one at which all pods were available, or the first one, once one of its
    /// pods has been available.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub current_revision: String,
    /// Whether the workload's first pods are still being created, in batches of scaleStrategy.createBatch.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub creating_in_batches: bool,
    /// Pods above spec.replicas that an update or a requested replacement uses now (maxSurge).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub surge_replicas: i32,
    /// Number of hash collisions of revision names.
    #[serde(default)]
    pub collision_count: i32,
    /// The selector as a string, for the scale subresource.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub label_selector: String,
    /// Index of the current canary step; the number of steps when all are completed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_step_index: Option<i32>,
    /// Hash of the step list that the index belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_step_hash: Option<String>,
    /// State of the canary rollout.
    #[serde(default)]
    pub canary: CanaryStatus,
    /// Why the operator paused the rollout.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = schema::merged_by("reason"))]
    pub pause_conditions: Vec<PauseCondition>,
    /// Pods whose deletion is blocked by their PreDelete hook: the 100 that have waited longest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = schema::merged_by("podName"))]
    pub pre_delete_hook_condition: Vec<PodHookCondition>,
    /// Pods whose update is blocked by their PreInplace hook: the 100 that have waited longest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = schema::merged_by("podName"))]
    pub pre_inplace_hook_condition: Vec<PodHookCondition>,
    /// Pods without traffic because of their PostInplace hook: the 100 that have waited longest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = schema::merged_by("podName"))]
    pub post_inplace_hook_condition: Vec<PodHookCondition>,
    /// The state of the guarded pods, if there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protection: Option<ProtectionStatus>,
    /// Why the workload is not what its spec describes, most urgent first. Empty if it is, nothing waits,
    /// and its hooks can run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub causes: Vec<Cause>,
    /// Revisions that were stable before the current one, the latest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub earlier_stable_revisions: Vec<String>,
    /// Standard conditions: Ready, Progressing, FailedScale, FailedUpdate, FailedUpkeep, Guarded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = schema::merged_by("type"))]
    pub conditions: Vec<Condition>,
}

impl WorkloadStatus {
    /// Pods whose hook did not end Successful, by hook point.
    pub fn blocked_pods(&self) -> [(HookPoint, &[PodHookCondition]); 3] {
        [
            (HookPoint::PreDelete, &self.pre_delete_hook_condition),
            (HookPoint::PreInplace, &self.pre_inplace_hook_condition),
            (HookPoint::PostInplace, &self.post_inplace_hook_condition),
        ]
    }
}

impl AsRef<Self> for WorkloadStatus {
    fn as_ref(&self) -> &Self {
        self
    }
}

impl AsMut<Self> for WorkloadStatus {
    fn as_mut(&mut self) -> &mut Self {
        self
    }
}

/// State of the canary rollout.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CanaryStatus {
    /// The stable revision: the last one at which all pods were available.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub revision: String,
    /// When the current pause began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause_start_time: Option<Time>,
    /// The HookRun of the current hook step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_step_hook_run: Option<String>,
    /// Pods that may be at the update revision until the rollout continues: recorded when a partition
    /// step or a pause begins, so that a scale-out in the meantime adds no pods of an unproven build.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_replicas: Option<i32>,
}

/// Why the operator paused the rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum PauseReason {
    /// A pause step.
    PausedByCanaryPauseStep,
    /// A hook step that did not end Successful.
    PausedByStepBasedHook,
}

/// A pause by the operator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PauseCondition {
    /// Reason for the pause.
    pub reason: PauseReason,
    /// Start of the pause.
    pub start_time: Time,
}

/// A pod whose hook did not end Successful.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodHookCondition {
    /// The pod.
    pub pod_name: String,
    /// How the hook ended.
    pub phase: HookPhase,
    /// When the hook started.
    pub start_time: Time,
    /// Reason for the phase.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}
