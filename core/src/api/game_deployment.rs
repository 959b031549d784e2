//! GameDeployment: interchangeable game servers.

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

/// GameDeployment runs interchangeable game servers and never deletes one before its hook allows it.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "tkex.tencent.com",
    version = "v1alpha1",
    kind = "GameDeployment",
    namespaced,
    doc = "GameDeployment runs interchangeable game servers and never deletes one before its hook allows it.",
    plural = "gamedeployments",
    shortname = "gd",
    category = "game",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.activeReplicas",
        label_selector_path = ".status.labelSelector"
    ),
    status = "GameDeploymentStatus",
    derive = "Default",
    derive = "PartialEq",
    validation = schema::workload_name()
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = schema::selector_matches_template()))]
pub struct GameDeploymentSpec {
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
    /// Has no effect; accepted because bk-bcs accepts it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253))]
    pub service_name: String,
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
    /// How pods are created, and which ones a scale-in deletes first.
    #[serde(default)]
    pub scale_strategy: GameDeploymentScaleStrategy,
    /// How pods are updated to a new revision.
    #[serde(default)]
    pub update_strategy: GameDeploymentUpdateStrategy,
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

/// How pods are created, and which ones a scale-in deletes first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GameDeploymentScaleStrategy {
    /// Names of pods to delete. A scale-in deletes these pods first. Without a scale-in, they are deleted and replaced.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10000), extend("x-kubernetes-list-type" = "set"))]
    pub pods_to_delete: Vec<String>,
    /// Number or percentage (rounded up) of pods that may be created but not yet available at the same time. Applies
    /// only while the workload's first pods are created; later creations are never limited. No limit when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::batch")]
    pub create_batch: Option<IntOrString>,
}

/// How a GameDeployment's pods are updated to a new revision.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = schema::game_deployment_limits()))]
pub struct GameDeploymentUpdateStrategy {
    /// RollingUpdate, InplaceUpdate, HotPatchUpdate or OnDelete.
    #[serde(default, rename = "type")]
    pub type_: UpdateStrategyType,
    /// Pods (number or percentage) to keep at the old revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::pods_or_percentage", extend("default" = 0))]
    pub partition: Option<IntOrString>,
    /// Pods (number or percentage) that may be unavailable during an update.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::pods_or_percentage", extend("default" = "20%"))]
    pub max_unavailable: Option<IntOrString>,
    /// Pods (number or percentage) that may exist above replicas during an update.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::pods_or_percentage", extend("default" = 0))]
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

/// Last observed state of a GameDeployment and its pods.
pub type GameDeploymentStatus = WorkloadStatus;
