//! SidecarSet: containers that are injected into pods when they are created, and updated in place.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::LocalObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::schema;

/// SidecarSet injects containers into new pods that it selects, and updates the containers' images.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "tkex.tencent.com",
    version = "v1alpha1",
    kind = "SidecarSet",
    doc = "SidecarSet injects containers into new pods that it selects, and updates the containers' images.",
    plural = "sidecarsets",
    shortname = "scs",
    category = "game",
    status = "SidecarSetStatus",
    derive = "Default",
    derive = "PartialEq",
    validation = schema::sidecar_set_name()
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = schema::sidecar_set_rules()))]
pub struct SidecarSetSpec {
    /// Labels of the pods that get the containers.
    #[schemars(schema_with = "schema::pod_selector")]
    pub selector: LabelSelector,
    /// The only namespace whose pods get the containers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub namespace: Option<String>,
    /// Labels of the namespaces whose pods get the containers; all namespaces when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::possibly_empty_selector")]
    pub namespace_selector: Option<LabelSelector>,
    /// Init containers to inject; native sidecars have restartPolicy Always.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::sidecar_containers")]
    pub init_containers: Vec<Value>,
    /// Containers to inject.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::sidecar_containers")]
    pub containers: Vec<Value>,
    /// Volumes of the containers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::sidecar_volumes")]
    pub volumes: Vec<Value>,
    /// Secrets for the registries of the containers' images.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::pull_secrets")]
    pub image_pull_secrets: Vec<LocalObjectReference>,
    /// Annotations that new pods get together with the containers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "atomic"))]
    pub patch_pod_metadata: Vec<PodMetadataPatch>,
    /// When the containers are injected.
    #[serde(default)]
    pub injection_strategy: InjectionStrategy,
    /// How the containers of running pods are updated when their images change.
    #[serde(default)]
    pub update_strategy: SidecarUpdateStrategy,
    /// Number of old revisions to keep for rollbacks. Revisions that pods still have are always kept.
    #[schemars(range(min = 0), extend("default" = 10))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision_history_limit: Option<i32>,
}

/// How the containers of running pods are updated. Only images can change in a running pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = schema::sidecar_update_rules()))]
pub struct SidecarUpdateStrategy {
    /// RollingUpdate updates running pods. A pod of a game workload is updated only after its PreInplace hook (or
    /// PreDelete, if that is the only one), and within its workload's maxUnavailable. NotUpdate leaves running pods
    /// as they are.
    #[serde(default, rename = "type")]
    pub type_: SidecarUpdateType,
    /// While true, no update of a pod starts.
    #[serde(default)]
    pub paused: bool,
    /// Only pods with these labels are updated; all matched pods when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::possibly_empty_selector")]
    pub selector: Option<LabelSelector>,
    /// The number, or percentage, of matched pods that keep their containers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::pods_or_percentage")]
    pub partition: Option<IntOrString>,
    /// The number, or percentage, of matched pods whose containers are updated at a time; 1 when absent. A percentage is
    /// rounded down, but never to 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::batch")]
    pub max_unavailable: Option<IntOrString>,
    /// Has no effect. Accepted with a warning, so that manifests of OpenKruise can be applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::any_object")]
    pub priority_strategy: Option<Value>,
    /// Has no effect. Accepted with a warning, so that manifests of OpenKruise can be applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::any_list")]
    pub scatter_strategy: Option<Value>,
}

/// Whether the containers of running pods are updated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum SidecarUpdateType {
    /// In place, a few pods at a time.
    #[default]
    RollingUpdate,
    /// Not at all.
    NotUpdate,
}

/// Annotations that new pods get together with the containers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodMetadataPatch {
    /// The annotations.
    #[schemars(schema_with = "schema::pod_annotations")]
    pub annotations: BTreeMap<String, String>,
    /// What happens to annotations that the pod already has; Retain when absent. Retain keeps their values; Overwrite
    /// replaces them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::patch_policy")]
    pub patch_policy: Option<PatchPolicy>,
}

/// What happens to annotations that a pod already has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum PatchPolicy {
    /// They keep their values.
    #[default]
    Retain,
    /// They get the values of the set.
    Overwrite,
}

/// When containers are injected.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InjectionStrategy {
    /// While true, new pods get no containers of this set.
    #[serde(default)]
    pub paused: bool,
    /// The revision that new pods get.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<InjectionRevision>,
}

/// The revision that new pods get.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [schema::revision_by_name()]))]
pub struct InjectionRevision {
    /// The name of a revision of this set. When absent, new pods get the newest one, unless the update strategy
    /// holds it back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub revision_name: Option<String>,
    /// Refused: set revisionName instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub custom_version: Option<String>,
    /// Only Always is accepted.
    #[schemars(extend("x-kubernetes-validations" = [schema::policy_always()]), length(max = 63))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
}

impl InjectionStrategy {
    /// The name of the revision that new pods get, if the user has chosen one.
    pub fn pinned(&self) -> Option<&str> {
        let name = self.revision.as_ref()?.revision_name.as_deref();
        name.filter(|name| !name.is_empty())
    }
}

/// The fields of a SidecarSet's container that other containers do not have.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SidecarOptions {
    /// Whether the container is placed before or after the pod's own. When absent, containers are placed before, and
    /// init containers after.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_inject_policy: Option<PodInjectPolicy>,
    /// Whether the container mounts what the pod's own containers mount; disabled when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share_volume_policy: Option<ShareVolumePolicy>,
    /// Environment variables to copy from the pod's own containers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "atomic"))]
    pub transfer_env: Vec<TransferEnv>,
    /// How the container is updated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upgrade_strategy: Option<SidecarUpgradeStrategy>,
    /// Refused: set resources instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::any_object")]
    pub resources_policy: Option<Value>,
    /// Refused: set volumeDevices instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::any_object")]
    pub share_volume_device_policy: Option<Value>,
}

/// Whether the container is placed before or after the pod's own. When absent, containers are placed before, and init
/// containers after.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PodInjectPolicy {
    /// Before the pod's own containers.
    BeforeAppContainer,
    /// After the pod's own containers.
    AfterAppContainer,
}

/// Whether a container mounts what the pod's own containers mount.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ShareVolumePolicy {
    /// enabled or disabled.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_: Option<ShareVolumeType>,
}

/// Whether the container mounts what the pod's own containers mount; disabled when absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ShareVolumeType {
    /// The container mounts what the pod's own containers mount, at the same paths.
    Enabled,
    /// The container has only its own mounts.
    Disabled,
}

/// An environment variable of another container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TransferEnv {
    /// The container that defines the variable.
    #[schemars(length(min = 1, max = 63))]
    pub source_container_name: String,
    /// The variable's name.
    #[schemars(length(min = 1, max = 1024))]
    pub env_name: String,
}

/// How a container is updated.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SidecarUpgradeStrategy {
    /// Only ColdUpgrade is accepted.
    #[schemars(extend("x-kubernetes-validations" = [schema::cold_upgrade()]), length(max = 63))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upgrade_type: Option<String>,
}

/// Last observed state of a SidecarSet and its pods.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SidecarSetStatus {
    /// The generation of the spec that this status describes.
    pub observed_generation: i64,
    /// Pods that match and have the containers.
    pub matched_pods: i32,
    /// Matched pods with the containers of the latest revision.
    pub updated_pods: i32,
    /// Matched pods that are ready.
    pub ready_pods: i32,
    /// Matched pods of the latest revision that are ready.
    pub updated_ready_pods: i32,
    /// Pods that match but do not have the containers.
    pub uninjected_pods: i32,
    /// The revision of the spec's containers and volumes.
    pub latest_revision: String,
    /// The revision that most matched pods have, or last had. New pods get it while the update strategy holds the latest
    /// revision back.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub stable_revision: String,
    /// The namespace of the ControllerRevisions of this set.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub revision_namespace: String,
    /// Number of hash collisions of revision names.
    pub collision_count: i32,
    /// Ready, Progressing and Injecting.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}
