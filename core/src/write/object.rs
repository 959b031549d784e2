//! What actions write to objects other than running pods: the workload, and what it owns.

use serde_json::Value;

use crate::api::JsonText;
use crate::api::names::HookPoint;

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
}

impl WorkloadPatch {
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
    /// The pod template.
    pub template: JsonText,
    /// Why it was created, in the user's words.
    pub cause: Option<String>,
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

/// A PodDisruptionBudget that guards pods.
#[derive(Clone, Debug, PartialEq)]
pub struct Budget {
    /// Its name.
    pub name: String,
    /// The object.
    pub budget: Value,
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
