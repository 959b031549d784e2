//! GameStatefulSet: game servers with an identity (ordinal, volume).

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    CanaryStatus, CanaryStrategy, InPlaceUpdateStrategy, PauseCondition, PodHookCondition,
    PodHookStrategy, schema,
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
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.labelSelector"
    ),
    status = "GameStatefulSetStatus",
    derive = "Default",
    derive = "PartialEq",
    validation = schema::workload_name(),
    validation = schema::dns_label_name()
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = schema::game_stateful_set_rules()))]
pub struct GameStatefulSetSpec {
    /// Pods wanted.
    #[schemars(range(min = 0), extend("default" = 1))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Which pods belong to this workload; cannot change.
    #[schemars(schema_with = "schema::label_selector")]
    pub selector: LabelSelector,
    /// The pods to make.
    #[schemars(schema_with = "schema::pod_template")]
    pub template: serde_json::Value,
    /// The headless service that governs the pods' names.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(
        length(max = 253),
        extend(
            "default" = "",
            "x-kubernetes-validations" = [schema::immutable("make a new workload with the new service")]
        )
    )]
    pub service_name: String,
    /// Whether pods are made and removed one after the other.
    #[serde(default)]
    #[schemars(extend(
        "x-kubernetes-validations" = [schema::immutable("make a new workload with the new policy")]
    ))]
    pub pod_management_policy: PodManagementPolicy,
    /// Claims that each pod gets; cannot change.
    #[schemars(schema_with = "schema::volume_claim_templates")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volume_claim_templates: Vec<serde_json::Value>,
    /// What happens to claims when the workload or a pod goes.
    #[serde(default)]
    pub persistent_volume_claim_retention_policy: PvcRetentionPolicy,
    /// Where ordinals start.
    #[serde(default)]
    pub ordinals: Ordinals,
    /// Seconds a pod must be ready before it counts as available.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub min_ready_seconds: i32,
    /// Old revisions to keep for rollbacks.
    #[schemars(range(min = 0), extend("default" = 10))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision_history_limit: Option<i32>,
    /// How pods are brought to a new revision.
    #[serde(default)]
    pub update_strategy: GameStatefulSetUpdateStrategy,
    /// Hook that a pod must pass before it is deleted.
    #[serde(default)]
    pub pre_delete_update_strategy: PodHookStrategy,
    /// Hook that a pod must pass before it is updated in place.
    #[serde(default)]
    pub pre_inplace_update_strategy: PodHookStrategy,
    /// Hook that a pod must pass after an in-place update, before it gets traffic again.
    #[serde(default)]
    pub post_inplace_update_strategy: PodHookStrategy,
}

/// Whether pods are made and removed one after the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum PodManagementPolicy {
    /// Upward and downward by ordinal, each after its predecessor is ready.
    #[default]
    OrderedReady,
    /// Side by side.
    Parallel,
}

/// What happens to a claim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum PvcRetention {
    /// The claim stays.
    #[default]
    Retain,
    /// The claim goes too.
    Delete,
}

/// What happens to claims when the workload or a pod goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PvcRetentionPolicy {
    /// When the workload is deleted.
    #[serde(default)]
    pub when_deleted: PvcRetention,
    /// When a pod is scaled in.
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

/// How a GameStatefulSet's pods are brought to a new revision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum GameStatefulSetUpdateType {
    /// Delete the pod (behind its PreDelete hook) and create a new one.
    #[default]
    RollingUpdate,
    /// Change the running pod.
    InplaceUpdate,
    /// Change the image without a restart; needs a kubelet that can.
    HotPatchUpdate,
    /// Pods are updated only when somebody deletes them.
    OnDelete,
}

/// Update limits at the place where bk-bcs keeps them.
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
    /// Pods (number or percentage) above replicas during an update; Parallel only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::pods_or_percentage")]
    pub max_surge: Option<IntOrString>,
}

/// How a GameStatefulSet's pods are brought to a new revision.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = schema::game_stateful_set_limits()))]
pub struct GameStatefulSetUpdateStrategy {
    /// RollingUpdate, InplaceUpdate, HotPatchUpdate or OnDelete.
    #[serde(default, rename = "type")]
    pub type_: GameStatefulSetUpdateType,
    /// Limits, at the place where bk-bcs keeps them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rolling_update: Option<GameStatefulSetRollingUpdate>,
    /// As rollingUpdate.partition; only one of the two may be set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::pods_or_percentage")]
    pub partition: Option<IntOrString>,
    /// As rollingUpdate.maxUnavailable; only one of the two may be set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::pods_or_percentage")]
    pub max_unavailable: Option<IntOrString>,
    /// As rollingUpdate.maxSurge; only one of the two may be set.
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

/// What the operator last saw of a GameStatefulSet and its pods.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GameStatefulSetStatus {
    /// The generation that the counts below stand for.
    #[serde(default)]
    pub observed_generation: i64,
    /// Pods that exist, victims included.
    #[serde(default)]
    pub replicas: i32,
    /// Pods that are ready.
    #[serde(default)]
    pub ready_replicas: i32,
    /// Pods that have been ready for minReadySeconds.
    #[serde(default)]
    pub available_replicas: i32,
    /// Pods at the current (stable) revision.
    #[serde(default)]
    pub current_replicas: i32,
    /// Pods at the update revision.
    #[serde(default)]
    pub updated_replicas: i32,
    /// Pods at the update revision that are ready.
    #[serde(default)]
    pub updated_ready_replicas: i32,
    /// Name of the stable revision.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub current_revision: String,
    /// Name of the revision that the template stands for.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub update_revision: String,
    /// Times that a revision's name was taken by another template.
    #[serde(default)]
    pub collision_count: i32,
    /// The selector as text, for the scale subresource.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub label_selector: String,
    /// Index of the canary step; the number of steps when they are over.
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
    #[schemars(extend(
        "x-kubernetes-list-type" = "map",
        "x-kubernetes-list-map-keys" = ["reason"]
    ))]
    pub pause_conditions: Vec<PauseCondition>,
    /// Pods whose deletion is blocked by their PreDelete hook.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend(
        "x-kubernetes-list-type" = "map",
        "x-kubernetes-list-map-keys" = ["podName"]
    ))]
    pub pre_delete_hook_condition: Vec<PodHookCondition>,
    /// Pods whose in-place update is blocked by their PreInplace hook.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend(
        "x-kubernetes-list-type" = "map",
        "x-kubernetes-list-map-keys" = ["podName"]
    ))]
    pub pre_inplace_hook_condition: Vec<PodHookCondition>,
    /// Pods kept from traffic by their PostInplace hook.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend(
        "x-kubernetes-list-type" = "map",
        "x-kubernetes-list-map-keys" = ["podName"]
    ))]
    pub post_inplace_hook_condition: Vec<PodHookCondition>,
    /// Standard conditions: Ready, Progressing, FailedScale, FailedUpdate.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend(
        "x-kubernetes-list-type" = "map",
        "x-kubernetes-list-map-keys" = ["type"]
    ))]
    pub conditions: Vec<Condition>,
}
