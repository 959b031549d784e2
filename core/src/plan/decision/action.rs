//! What a plan decides: values that can be printed and compared. `apply` carries them out.

use jiff::Timestamp;
use serde_json::Value;

use crate::api::HookRun;
use crate::api::names::{self, HookPoint};
use crate::plan::observed::{InPlaceRecord, Pod};

/// What one reconcile is to do.
///
/// Order: actions of [`Phase::Before`], in parallel; the status, if it must be written first; a quorum
/// GET of the workload, if an action is irrevocable; actions of [`Phase::After`], in parallel.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan<S> {
    /// What to do.
    pub actions: Vec<Action>,
    /// The status to show; None leaves the old one.
    pub status: Option<S>,
    /// Whether the status must be written before actions of [`Phase::After`], because they depend on
    /// it (step index, stable revision, held replicas), or because it acknowledges a new generation.
    /// Otherwise it is only informative, and may wait a second.
    pub status_first: bool,
    /// When to plan again even if nothing is seen to change.
    pub wake: Option<Timestamp>,
    /// What to tell the user.
    pub events: Vec<Event>,
}

/// A Kubernetes event about the workload.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Warning, or Normal.
    pub warning: bool,
    /// CamelCase reason.
    pub reason: String,
    /// Sentence for people.
    pub message: String,
}

/// When an action is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Before the status is written: it takes something back, or only prepares.
    Before,
    /// After it.
    After,
}

/// A pod that an action is about. What it holds are preconditions of each write.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PodRef {
    /// Name.
    pub name: String,
    /// Uid.
    pub uid: String,
    /// Its resourceVersion, where the write requires that the pod has not changed since.
    pub version: Option<u64>,
}

/// One write (or dry run).
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Patch the workload itself, with its resourceVersion as precondition.
    PatchWorkload(WorkloadPatch),
    /// Create a ControllerRevision.
    CreateRevision(NewRevision),
    /// Give a revision that is used again the highest number.
    RenumberRevision {
        /// Its name.
        name: String,
        /// The number.
        number: i64,
    },
    /// Delete a revision beyond the history limit.
    DeleteRevision {
        /// Its name.
        name: String,
        /// Its uid, a precondition.
        uid: String,
    },
    /// Adopt an orphaned revision.
    AdoptRevision {
        /// Its name.
        name: String,
        /// Its uid, a precondition.
        uid: String,
    },
    /// Adopt an orphaned pod, after a live GET of the workload.
    AdoptPod(PodRef),
    /// Release a pod that the selector no longer matches.
    ReleasePod(PodRef),
    /// Ask the API server, with a strict dry run, whether it would create a pod of this revision.
    DryRun {
        /// The revision's name.
        revision: String,
        /// The pod as it would be created.
        pod: Value,
    },
    /// Create a pod.
    CreatePod(NewPod),
    /// Delete a pod. Only what may be deleted gets here: see `guard`.
    DeletePod(Deletion),
    /// Force the deletion of a pod that cannot end, because its node is lost. It is Terminating
    /// already.
    ForceDeletePod(PodRef),
    /// Fix labels that belong to a pod's identity.
    LabelPod {
        /// The pod.
        pod: PodRef,
        /// Labels to set.
        labels: Vec<(String, String)>,
    },
    /// Create a volume claim.
    CreateClaim(NewClaim),
    /// Change the owners of a claim.
    OwnClaim(ClaimOwnership),
    /// Set the annotation game-pod-deleting.
    MarkDeleting(PodRef),
    /// Remove the annotation game-pod-deleting.
    UnmarkDeleting(PodRef),
    /// Create a HookRun.
    CreateHookRun(Box<HookRun>),
    /// Delete a HookRun.
    DeleteHookRun {
        /// Its name.
        name: String,
        /// Its uid, a precondition.
        uid: String,
    },
    /// Close the readiness gate (condition False), which begins an in-place update.
    CloseGate {
        /// The pod.
        pod: PodRef,
        /// The revision it is closed for.
        revision: String,
        /// What follows at once, without a grace period. If the process ends in between, the next plan
        /// continues from the closed gate.
        then: Option<Box<InPlacePatch>>,
    },
    /// Open the readiness gate (condition True).
    OpenGate(PodRef),
    /// Change a running pod: an in-place update or a hot patch, one write.
    PatchInPlace(InPlacePatch),
    /// Set a container's resources through the resize subresource.
    ResizePod {
        /// The pod.
        pod: PodRef,
        /// Resources by container.
        resources: Vec<(String, Value)>,
    },
    /// Record on a pod without readiness gate that its update is done.
    FinishInPlace {
        /// The pod.
        pod: PodRef,
        /// The record with `done` set.
        record: InPlaceRecord,
    },
}

/// Changes of the workload's own spec and annotations, in one patch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WorkloadPatch {
    /// New spec.updateStrategy.paused.
    pub paused: Option<bool>,
    /// Annotations to set, or (None) to remove.
    pub annotations: Vec<(String, Option<String>)>,
    /// Points whose `retry` is set back to false.
    pub retry_off: Vec<HookPoint>,
    /// New spec.scaleStrategy.podsToDelete.
    pub pods_to_delete: Option<Vec<String>>,
}

/// A ControllerRevision to create.
#[derive(Clone, Debug, PartialEq)]
pub struct NewRevision {
    /// Its name.
    pub name: String,
    /// Its number.
    pub number: i64,
    /// The pod template.
    pub template: Value,
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
    pub pod: Value,
}

/// A pod to delete, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Deletion {
    /// The pod.
    pub pod: PodRef,
    /// Why it is deleted.
    pub reason: DeletionReason,
    /// Whether a hook guards it. Then what allows the deletion (the hook's success, or that no
    /// container runs) is valid for a moment only.
    pub guarded: bool,
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

/// Why a pod is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeletionReason {
    /// More pods than wanted.
    ScaleIn,
    /// Its ordinal is reserved.
    Reserved,
    /// A new one of the update revision takes its place.
    Update,
    /// Named in podsToDelete.
    Replace,
    /// It ended by itself.
    Ended,
    /// It ended by itself, as soon as it was started: see [`Backoff`](crate::plan::Backoff).
    EndedAtOnce,
}

impl DeletionReason {
    /// Why a pod is deleted that ended by itself.
    pub fn of_end(pod: &Pod) -> Self {
        match pod.ended_at_once {
            Some(_) => Self::EndedAtOnce,
            None => Self::Ended,
        }
    }
}

/// One patch of a running pod. Everything decided on is tested by the API server: uid (and version),
/// the images that are changed, and the revision label.
#[derive(Clone, Debug, PartialEq)]
pub struct InPlacePatch {
    /// The pod.
    pub pod: PodRef,
    /// Revision label as decided on.
    pub from_revision: String,
    /// Images to change.
    pub images: Vec<ImageChange>,
    /// Labels to set, or (None) to remove; the revision label is among them.
    pub labels: Vec<(String, Option<String>)>,
    /// Whether the pod has any annotation so far.
    pub annotated: bool,
    /// Annotations to set, or (None) to remove.
    pub annotations: Vec<(String, Option<String>)>,
    /// The record to leave on the pod.
    pub record: InPlaceRecord,
}

/// A container's image to change.
#[derive(Clone, Debug, PartialEq)]
pub struct ImageChange {
    /// Whether it is an init container (one that keeps running).
    pub init: bool,
    /// Its place in the list.
    pub index: usize,
    /// Its name, tested.
    pub name: String,
    /// The image now, tested.
    pub from: String,
    /// The image wanted.
    pub to: String,
}

impl InPlacePatch {
    /// Whether it only goes on with an update that has begun, with the next container: the first patch has
    /// set the revision.
    pub fn goes_on(&self) -> bool {
        self.labels.is_empty()
    }
}

impl NewPod {
    /// Whether it has the readiness gate of in-place updates.
    pub fn has_gate(&self) -> bool {
        let gates = self.pod.pointer("/spec/readinessGates");
        let mut gates = gates.and_then(Value::as_array).into_iter().flatten();
        gates.any(|gate| gate["conditionType"] == names::IN_PLACE_GATE)
    }
}

impl Action {
    /// When it is carried out.
    pub fn phase(&self) -> Phase {
        match self {
            Action::DeleteHookRun { .. }
            | Action::UnmarkDeleting(_)
            | Action::OpenGate(_)
            | Action::PatchWorkload(_)
            | Action::CreateRevision(_)
            | Action::RenumberRevision { .. }
            | Action::AdoptRevision { .. }
            | Action::AdoptPod(_)
            | Action::ReleasePod(_)
            | Action::LabelPod { .. }
            | Action::OwnClaim(ClaimOwnership { add: None, .. })
            | Action::FinishInPlace { .. } => Phase::Before,
            Action::DeleteRevision { .. }
            | Action::DryRun { .. }
            | Action::CreatePod(_)
            | Action::DeletePod(_)
            | Action::ForceDeletePod(_)
            | Action::CreateClaim(_)
            | Action::OwnClaim(ClaimOwnership { add: Some(_), .. })
            | Action::MarkDeleting(_)
            | Action::CreateHookRun(_)
            | Action::CloseGate { .. }
            | Action::PatchInPlace(_)
            | Action::ResizePod { .. } => Phase::After,
        }
    }

    /// Whether it cannot be taken back, so that a quorum GET of the workload comes first.
    pub fn is_irrevocable(&self) -> bool {
        match self {
            Action::DeletePod(_)
            | Action::ForceDeletePod(_)
            | Action::CreatePod(_)
            | Action::CreateClaim(_)
            | Action::OwnClaim(ClaimOwnership { add: Some(_), .. })
            | Action::PatchInPlace(_)
            | Action::CloseGate { .. }
            | Action::ResizePod { .. }
            | Action::CreateHookRun(_) => true,
            Action::PatchWorkload(_)
            | Action::CreateRevision(_)
            | Action::RenumberRevision { .. }
            | Action::DeleteRevision { .. }
            | Action::AdoptRevision { .. }
            | Action::AdoptPod(_)
            | Action::ReleasePod(_)
            | Action::DryRun { .. }
            | Action::LabelPod { .. }
            | Action::OwnClaim(ClaimOwnership { add: None, .. })
            | Action::MarkDeleting(_)
            | Action::UnmarkDeleting(_)
            | Action::DeleteHookRun { .. }
            | Action::OpenGate(_)
            | Action::FinishInPlace { .. } => false,
        }
    }

    /// The pod that it writes to.
    pub fn pod(&self) -> Option<&PodRef> {
        match self {
            Action::DeletePod(it) => Some(&it.pod),
            Action::PatchInPlace(it) => Some(&it.pod),
            Action::AdoptPod(pod)
            | Action::ReleasePod(pod)
            | Action::ForceDeletePod(pod)
            | Action::MarkDeleting(pod)
            | Action::UnmarkDeleting(pod)
            | Action::OpenGate(pod)
            | Action::LabelPod { pod, .. }
            | Action::CloseGate { pod, .. }
            | Action::ResizePod { pod, .. }
            | Action::FinishInPlace { pod, .. } => Some(pod),
            _ => None,
        }
    }

    /// Whether it stays valid while the workload does not change, whatever happens to other pods.
    pub fn lasts(&self) -> bool {
        match self {
            Action::CreatePod(_) => true,
            Action::DeletePod(it) => it.reason == DeletionReason::ScaleIn && !it.guarded,
            _ => false,
        }
    }
}

impl WorkloadPatch {
    /// Sets an annotation, or (None) removes it.
    pub fn annotation(key: &str, value: Option<String>) -> Self {
        Self {
            annotations: vec![(key.to_owned(), value)],
            ..Self::default()
        }
    }
}

impl PodRef {
    /// The reference of a pod.
    pub fn of(pod: &Pod) -> Self {
        Self {
            name: pod.name.clone(),
            uid: pod.uid.clone(),
            version: None,
        }
    }

    /// The reference of a pod as it was seen: any write to it since makes this one fail.
    pub fn unchanged(pod: &Pod) -> Self {
        Self {
            version: Some(pod.resource_version),
            ..Self::of(pod)
        }
    }
}

impl<S> Plan<S> {
    /// Nothing is to be done.
    pub fn nothing() -> Self {
        Self {
            actions: Vec::new(),
            status: None,
            status_first: false,
            wake: None,
            events: Vec::new(),
        }
    }
}
