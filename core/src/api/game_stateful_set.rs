//! GameStatefulSet: game servers with an identity (ordinal, volume).

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::workload::MAX_REVISION_HISTORY;
use super::{
    CanaryStrategy, InPlaceUpdateStrategy, JsonText, PodHookStrategy, Protection,
    UpdateStrategyType, WorkloadStatus, schema,
};

/// GameStatefulSet runs game servers that keep their name and volumes.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "tkex.tencent.com",
    version = "v1alpha1",
    kind = "GameStatefulSet",
    namespaced,
    doc = "GameStatefulSet runs game servers that keep their name and volumes.",
    plural = "gamestatefulsets",
    shortname = "gsts",
    category = "game",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.activeReplicas",
        label_selector_path = ".status.labelSelector"
    ),
    status = "GameStatefulSetStatus",
    derive = "Default",
    derive = "PartialEq",
    validation = schema::workload_name(),
    validation = schema::dns_label_name()
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = schema::selector_matches_template()))]
pub struct GameStatefulSetSpec {
    /// Desired number of pods.
    #[schemars(range(min = 0), extend("default" = 1))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Selects the pods of this workload; immutable.
    #[schemars(schema_with = "schema::label_selector")]
    pub selector: LabelSelector,
    /// Template of the pods.
    #[schemars(schema_with = "schema::pod_template")]
    pub template: JsonText,
    /// Name of the headless Service that governs the pods' DNS names.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(
        length(max = 253),
        extend(
            "default" = "",
            "x-kubernetes-validations" = [schema::immutable("create a new workload with the new service")]
        )
    )]
    pub service_name: String,
    /// Whether pods are created and deleted one after the other.
    #[serde(default)]
    #[schemars(extend(
        "x-kubernetes-validations" = [schema::immutable("create a new workload with the new policy")]
    ))]
    pub pod_management_policy: PodManagementPolicy,
    /// Templates of the claims that each pod gets; immutable.
    #[schemars(schema_with = "schema::volume_claim_templates")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volume_claim_templates: Vec<JsonText>,
    /// What happens to claims when the workload or a pod is deleted.
    #[serde(default)]
    pub persistent_volume_claim_retention_policy: PvcRetentionPolicy,
    /// Where ordinals start.
    #[serde(default)]
    pub ordinals: Ordinals,
    /// Ordinals for which no pod is created; the next higher ones are used instead. Claims of reserved
    /// ordinals are kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 1000),
        inner(range(min = 0)),
        extend("x-kubernetes-list-type" = "set")
    )]
    pub reserve_orders: Vec<i32>,
    /// Seconds a pod must be ready before it counts as available.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub min_ready_seconds: i32,
    /// Seconds for which a pod may be unready after it was created or changed, before condition Progressing becomes
    /// False with reason ProgressDeadlineExceeded. The time for which a pod waits for its hook does not count.
    #[schemars(range(min = 1), extend("default" = 600))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress_deadline_seconds: Option<i32>,
    /// Number of old revisions to keep for rollbacks.
    #[schemars(range(min = 0, max = MAX_REVISION_HISTORY), extend("default" = 10))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision_history_limit: Option<i32>,
    /// How pods are created.
    #[serde(default)]
    pub scale_strategy: GameStatefulSetScaleStrategy,
    /// How pods are updated to a new revision.
    #[serde(default)]
    pub update_strategy: GameStatefulSetUpdateStrategy,
    /// Whether new pods are created without the readiness gate that in-place updates close.
    #[serde(default)]
    pub disable_readiness_gate: bool,
    /// Hook that must succeed before a pod is deleted. Without a PreInplace hook it must also succeed
    /// before a pod is updated in place.
    #[serde(default)]
    pub pre_delete_update_strategy: PodHookStrategy,
    /// Hook that must succeed before a pod is updated in place. Without a PreDelete hook it must also
    /// succeed before a pod is recreated for an update.
    #[serde(default)]
    pub pre_inplace_update_strategy: PodHookStrategy,
    /// Hook that must succeed after a pod has been updated in place, before the pod receives traffic again.
    #[serde(default)]
    pub post_inplace_update_strategy: PodHookStrategy,
    /// How pods are protected against deletions by other clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protection: Option<Protection>,
}

/// Whether pods are created and deleted one after the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum PodManagementPolicy {
    /// One at a time by ordinal, each after its predecessor is ready.
    #[default]
    OrderedReady,
    /// In parallel.
    Parallel,
}

/// What happens to a claim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum PvcRetention {
    /// The claim stays.
    #[default]
    Retain,
    /// The claim is deleted.
    Delete,
}

/// What happens to claims when the workload or a pod is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PvcRetentionPolicy {
    /// Applies when the workload is deleted.
    #[serde(default)]
    pub when_deleted: PvcRetention,
    /// Applies when a scale-in deletes a pod.
    #[serde(default)]
    pub when_scaled: PvcRetention,
}

/// Where ordinals start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Ordinals {
    /// The first ordinal.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub start: i32,
}

/// How pods are created.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GameStatefulSetScaleStrategy {
    /// Number or percentage (rounded up) of pods that may be created but not yet available at the same time. Applies
    /// only while the workload's first pods are created; later creations are never limited. No limit when absent.
    /// Only with podManagementPolicy Parallel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::batch")]
    pub create_batch: Option<IntOrString>,
}

/// Update limits, in the place where bk-bcs has them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GameStatefulSetRollingUpdate {
    /// Pods (number or percentage) to keep at the old revision, lowest ordinals first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::pods_or_percentage")]
    pub partition: Option<IntOrString>,
    /// Pods (number or percentage) that may be unavailable during an update.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::pods_or_percentage")]
    pub max_unavailable: Option<IntOrString>,
    /// Pods (number or percentage) that may exist above replicas during an update; has no effect with OrderedReady.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::pods_or_percentage")]
    pub max_surge: Option<IntOrString>,
}

/// How a GameStatefulSet's pods are updated to a new revision.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = schema::game_stateful_set_limits()))]
pub struct GameStatefulSetUpdateStrategy {
    /// RollingUpdate, InplaceUpdate, HotPatchUpdate or OnDelete.
    #[serde(default, rename = "type")]
    pub type_: UpdateStrategyType,
    /// Update limits, in the place where bk-bcs has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rolling_update: Option<GameStatefulSetRollingUpdate>,
    /// Same as rollingUpdate.partition; only one of the two may be set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::pods_or_percentage")]
    pub partition: Option<IntOrString>,
    /// Same as rollingUpdate.maxUnavailable; only one of the two may be set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::pods_or_percentage")]
    pub max_unavailable: Option<IntOrString>,
    /// Same as rollingUpdate.maxSurge; only one of the two may be set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::pods_or_percentage")]
    pub max_surge: Option<IntOrString>,
    /// While true, no pod update starts.
    #[serde(default)]
    pub paused: bool,
    /// Settings of in-place updates.
    #[serde(default)]
    pub in_place_update_strategy: InPlaceUpdateStrategy,
    /// Canary steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub canary: Option<CanaryStrategy>,
}

/// Last observed state of a GameStatefulSet and its pods.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GameStatefulSetStatus {
    /// The fields that all workloads have.
    #[serde(flatten)]
    pub workload: WorkloadStatus,
    /// Pods at the current (stable) revision.
    #[serde(default)]
    pub current_replicas: i32,
}

impl AsRef<WorkloadStatus> for GameStatefulSetStatus {
    fn as_ref(&self) -> &WorkloadStatus {
        &self.workload
    }
}

impl AsMut<WorkloadStatus> for GameStatefulSetStatus {
    fn as_mut(&mut self) -> &mut WorkloadStatus {
        &mut self.workload
    }
}
