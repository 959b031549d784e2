//! What actions write to objects other than running pods: the workload, and what it owns.

use serde_json::Value;

use crate::api::JsonText;
use crate::api::names::{self, HookPoint};
use crate::observed::{InPlaceRecord, PodRef};

/// Changes of the workload's own spec, annotations and finalizers, in one patch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WorkloadPatch {
    /// New spec.updateStrategy.paused.
    pub paused: Option<bool>,
    /// Annotations to set, or (None) to remove.
    pub annotations: Vec<(String, Option<String>)>,
    /// Hook points whose `retry` is set back to false.
    pub retry_off: Vec<HookPoint>,
    /// New spec.scaleStrategy.podsToDelete.
    pub pods_to_delete: Option<Vec<String>>,
    /// New metadata.finalizers.
    pub finalizers: Option<Vec<String>>,
    /// A merge patch of spec.template.
    pub template: Option<Value>,
}

impl WorkloadPatch {
    /// Whether the progress of the rollout depends on it.
    pub(super) fn steers_rollout(&self) -> bool {
        let steers =
            |key: &str| [names::PAUSE_ANNOTATION, names::PROMOTE_ANNOTATION].contains(&key);
        self.paused.is_some()
            || self.template.is_some()
            || self.annotations.iter().any(|(key, _)| steers(key))
    }

    /// Sets an annotation, or (None) removes it.
    pub fn annotation(key: &str, value: Option<String>) -> Self {
        Self { annotations: vec![(key.to_owned(), value)], ..Self::default() }
    }
}

/// A ControllerRevision to create.
#[derive(Clone, Debug, PartialEq)]
pub struct NewRevision {
    /// Its name.
    pub name: String,
    /// Its number.
    pub number: i64,
    /// What it records.
    pub data: RevisionData,
    /// Why it was created, in the user's words.
    pub cause: Option<String>,
}

/// What a ControllerRevision records.
#[derive(Clone, Debug, PartialEq)]
pub enum RevisionData {
    /// The pod template of a workload.
    Template(JsonText),
    /// What a SidecarSet injects.
    Sidecars(Value),
}

/// A pod to create.
#[derive(Clone, Debug, PartialEq)]
pub struct NewPod {
    /// Its name.
    pub name: String,
    /// Its revision.
    pub revision: String,
    /// The whole object, owner reference and labels included.
    pub pod: JsonText,
    /// Whether it has the readiness gate of in-place updates.
    pub has_gate: bool,
}

/// A pod as it may be sent in a dry run: without the annotation on which a webhook allocates ports, even for a dry run, and
/// never frees them.
pub fn without_side_effects(mut pod: Value) -> Value {
    let annotations = pod.pointer_mut("/metadata/annotations");
    if let Some(annotations) = annotations.and_then(Value::as_object_mut) {
        annotations.remove(names::PORT_POOLS_ANNOTATION);
    }
    pod
}

/// A PodDisruptionBudget that guards pods.
#[derive(Clone, Debug, PartialEq)]
pub struct Budget {
    /// Its name.
    pub name: String,
    /// The object.
    pub budget: Value,
}

/// A change of the sidecars of a pod, by their SidecarSet.
#[derive(Clone, Debug, PartialEq)]
pub struct SidecarPatch {
    /// The pod. If images are changed, it must be unchanged.
    pub pod: PodRef,
    /// The name of the set.
    pub set: String,
    /// The mark that the pod has now.
    pub from: String,
    /// The mark that it gets.
    pub to: String,
    /// New images of a pod of another controller, with the record of the change. None leaves the containers as they
    /// are: a workload changes its pods itself.
    pub images: Option<(Vec<NewImage>, InPlaceRecord)>,
}

/// The new image of a sidecar.
#[derive(Clone, Debug, PartialEq)]
pub struct NewImage {
    /// The container.
    pub container: String,
    /// Its new image.
    pub image: String,
    /// Whether it is a native sidecar.
    pub native: bool,
}

/// A change of a node, by a Cluster: its record of what has passed, and whether it is cordoned.
#[derive(Clone, Debug, PartialEq)]
pub struct NodePatch {
    /// The node's name.
    pub name: String,
    /// Its uid, a precondition.
    pub uid: String,
    /// Its resourceVersion, a precondition.
    pub resource_version: String,
    /// The new record; None removes it.
    pub record: Option<String>,
    /// Whether to cordon (true) or uncordon (false) the node; None changes nothing.
    pub cordon: Option<bool>,
}

/// A volume claim to create.
#[derive(Clone, Debug, PartialEq)]
pub struct NewClaim {
    /// Its name.
    pub name: String,
    /// The claim.
    pub claim: Value,
}

/// A change of a claim's owners.
#[derive(Clone, Debug, PartialEq)]
pub struct ClaimOwnership {
    /// The claim's name.
    pub name: String,
    /// Its uid, a precondition.
    pub uid: String,
    /// Owner reference to add.
    pub add: Option<Value>,
    /// Uids of owners to remove.
    pub remove: Vec<String>,
}
