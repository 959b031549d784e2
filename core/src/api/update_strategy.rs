//! The update of pods to a new revision: strategy, limits and canary steps.
//! Shared by GameDeployment and GameStatefulSet.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{HookStep, schema};

/// How pods are updated to a new revision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum UpdateStrategyType {
    /// Delete the pod (after its PreDelete hook or, if there is none, its PreInplace hook) and create a new one.
    #[default]
    RollingUpdate,
    /// Change the running pod: images, labels, annotations and resources, restarting only what changed.
    InplaceUpdate,
    /// Change the image without a restart; requires support in the kubelet.
    HotPatchUpdate,
    /// Update a pod only when it is deleted: its replacement is created at the new revision.
    OnDelete,
}

/// The order in which the containers of a pod get their new images. Native sidecars come first, then the other
/// containers in the order of the template.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum ContainerOrder {
    /// All at once.
    #[default]
    DisOrdered,
    /// Each after the previous one runs its new image and is ready.
    OrderedReady,
    /// Each after the previous one has been started from its new image.
    OrderedUpdated,
}

/// What happens to a template change that cannot be made in place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum WhenImpossible {
    /// Refuse it with condition FailedUpdate; running pods do not change.
    #[default]
    Refuse,
    /// Recreate the pod instead, after its PreDelete hook or, if there is none, its PreInplace hook.
    Recreate,
}

/// Settings of in-place updates.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InPlaceUpdateStrategy {
    /// Seconds between closing the pod's readiness gate and changing the pod.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub grace_period_seconds: i32,
    /// The order in which the containers of a pod get their new images: DisOrdered (all at once),
    /// OrderedReady (each after the previous one is ready) or OrderedUpdated (each after the previous one
    /// runs its new image).
    #[serde(default)]
    pub policy: ContainerOrder,
    /// What to do with a template change that cannot be made in place.
    #[serde(default)]
    pub when_impossible: WhenImpossible,
}

/// The steps of a canary rollout.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CanaryStrategy {
    /// Steps, taken in order in each rollout.
    #[schemars(length(max = 100), extend("x-kubernetes-list-type" = "atomic"))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<CanaryStep>,
}

/// One canary step: exactly one of partition, pause and hook.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [schema::exactly_one_of(&["partition", "pause", "hook"])]))]
pub struct CanaryStep {
    /// Pods (number or percentage of replicas) to keep at the old revision in this step.
    #[schemars(schema_with = "schema::pods_or_percentage")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<IntOrString>,
    /// Pause the rollout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause: Option<CanaryPause>,
    /// Run a hook; continue only once it has succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hook: Option<HookStep>,
}

/// A pause; without a duration it lasts until a user resumes the rollout.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CanaryPause {
    /// Seconds, as an integer or a string of digits, or a duration such as 90s, 5m or 1h30m.
    #[schemars(schema_with = "schema::pause_duration")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration: Option<IntOrString>,
}
