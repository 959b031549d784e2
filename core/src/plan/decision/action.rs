//! What a plan decides: values that can be printed and compared. `apply` carries them out.

use jiff::Timestamp;
use serde_json::Value;

use crate::api::HookRun;
use crate::api::names::{self, HookPoint};
use crate::plan::observed::{InPlaceRecord, Pod};

/// What one reconcile will do.
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
    /// When to plan again even if no change is observed.
    pub wake: Option<Timestamp>,
    /// Events to publish.
    pub events: Vec<Event>,
}

/// A Kubernetes event about the workload.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Whether its type is Warning rather than Normal.
    pub warning: bool,
    /// The reason, in CamelCase.
    pub reason: String,
    /// A message for users.
    pub message: String,
}

/// When an action is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Before the status is written: the action undoes something, or only prepares.
    Before,
    /// After the status is written.
    After,
}

/// The pod that an action concerns. Its fields are preconditions of the write.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PodRef {
    /// Name.
    pub name: String,
    /// Uid.
    pub uid: String,
    /// Its resourceVersion, if the write requires that the pod has not changed since.
    pub version: Option<u64>,
}

/// One write (or dry run).
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Patch the workload itself, with its resourceVersion as precondition.
    PatchWorkload(WorkloadPatch),
    /// Create a ControllerRevision.
    CreateRevision(NewRevision),
    /// Give the highest number to a revision that is used again.
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
    /// Check with a strict server-side dry run whether the API server would create a pod of this revision.
    DryRun {
        /// The revision's name.
        revision: String,
        /// The pod as it would be created.
        pod: Value,
    },
    /// Create a pod.
    CreatePod(NewPod),
    /// Delete a pod. For the conditions under which this action is created, see `guard`.
    DeletePod(Deletion),
    /// Force the deletion of a Terminating pod that cannot terminate because its node is lost.
    ForceDeletePod(PodRef),
    /// Set labels of a pod's identity.
    LabelPod {
        /// The pod.
        pod: PodRef,
        /// Labels to set.
        labels: Vec<(String, String)>,
    },
    /// Guard a pod, or stop guarding it, by its label and the annotations for autoscalers.
    GuardPod {
        /// The pod.
        pod: PodRef,
        /// The label's value; None removes it.
        label: Option<String>,
        /// Annotations to set, or (None) to remove.
        annotations: Vec<(&'static str, Option<&'static str>)>,
    },
    /// Create a volume claim.
    CreateClaim(NewClaim),
    /// Change the owners of a claim.
    OwnClaim(ClaimOwnership),
    /// Request the replacement of a pod whose node is going to be removed, or withdraw that request.
    RequestMove {
        /// The pod.
        pod: PodRef,
        /// Whether it is to be replaced.
        requested: bool,
    },
    /// Set the annotation game-pod-deleting.
    MarkDeleting {
        /// The pod.
        pod: PodRef,
        /// Since when it has waited for its PreDelete hook; recorded on guarded pods.
        since: Option<Timestamp>,
    },
    /// Remove the annotation game-pod-deleting, and the time that was recorded with it.
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
        /// The change that follows immediately if there is no grace period. If the process ends in between, the next
        /// plan continues from the closed gate.
        then: Option<Box<InPlacePatch>>,
    },
    /// Open the readiness gate (condition True).
    OpenGate(PodRef),
    /// Change a running pod in one write: an in-place update or a hot patch.
    PatchInPlace(InPlacePatch),
    /// Set a container's resources through the resize subresource.
    ResizePod {
        /// The pod.
        pod: PodRef,
        /// Resources by container.
        resources: Vec<(String, Value)>,
    },
    /// Record on a pod without the readiness gate that its update is complete.
    FinishInPlace {
        /// The pod.
        pod: PodRef,
        /// The record with `done` set.
        record: InPlaceRecord,
    },
    /// Create, or restore, the PodDisruptionBudget that guards the workload's pods.
    ApplyBudget(Budget),
    /// Dry-run the deletion of this budget. The API server's refusal shows that
    /// the policies are in force, and that the budget exists.
    ProbeGuard {
        /// The budget's name.
        budget: String,
    },
    /// Delete the budget, which no longer guards any pod.
    DeleteBudget {
        /// Its name.
        name: String,
    },
}

/// Changes of the workload's own spec, annotations and finalizers, in one patch.
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
    /// New metadata.finalizers.
    pub finalizers: Option<Vec<String>>,
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
    /// What allows it.
    pub ground: Ground,
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

/// What allows an action on a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ground {
    /// No hook guards it.
    Unguarded,
    /// Its hook allowed it.
    Hook,
    /// A hook guards it, but none of its containers runs. A kubelet may start one at any moment, so the write has the
    /// pod's resourceVersion as a precondition, which changes with the status that reports the container. No other
    /// precondition of a deletion would detect that.
    NothingRuns,
    /// It is guarded, and its node is lost: neither its hook nor its players can reach it.
    NodeLost,
    /// A user released the guarded pod, so it no longer needs a hook.
    Released,
    /// It is guarded, and its hook did not allow it before the deadline of spec.protection.
    Deadline,
}

/// Why a pod is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeletionReason {
    /// There are more pods than desired.
    ScaleIn,
    /// Its ordinal is reserved.
    Reserved,
    /// A new pod of the update revision replaces it.
    Update,
    /// Its replacement was requested: podsToDelete names it, or it is to be moved.
    Replace,
    /// Its node is lost.
    NodeLost,
    /// Its workload is being deleted.
    WorkloadDeleted,
    /// It has ended by itself.
    Ended,
    /// It has ended by itself as soon as it was started: see [`Backoff`](crate::plan::Backoff).
    EndedAtOnce,
}

impl DeletionReason {
    /// The reason for the deletion of a pod that has ended by itself.
    pub fn of_end(pod: &Pod) -> Self {
        match pod.ended_at_once {
            Some(_) => Self::EndedAtOnce,
            None => Self::Ended,
        }
    }
}

/// One patch of a running pod. The API server tests everything that the decision is based on: uid (and
/// resourceVersion), the images that are changed, the revision label, and the tokens of SidecarSets.
#[derive(Clone, Debug, PartialEq)]
pub struct InPlacePatch {
    /// The pod.
    pub pod: PodRef,
    /// The revision label that the decision is based on.
    pub from_revision: String,
    /// Images to change.
    pub images: Vec<ImageChange>,
    /// Labels to set, or (None) to remove; the revision label is among them.
    pub labels: Vec<(String, Option<String>)>,
    /// Whether the pod already has any annotation.
    pub annotated: bool,
    /// Annotations to set, or (None) to remove.
    pub annotations: Vec<(String, Option<String>)>,
    /// The annotations with the tokens that allow sidecars to be changed, as they were observed.
    pub tokens: Vec<(String, String)>,
    /// The record to leave on the pod.
    pub record: InPlaceRecord,
}

/// A container's image to change.
#[derive(Clone, Debug, PartialEq)]
pub struct ImageChange {
    /// Whether it is a native sidecar (an init container that keeps running).
    pub init: bool,
    /// Its index in the list.
    pub index: usize,
    /// Its name, which the patch tests.
    pub name: String,
    /// Its current image, which the patch tests.
    pub from: String,
    /// Its new image.
    pub to: String,
}

impl InPlacePatch {
    /// Whether it continues an update with the next container. The first patch of the update has already set the
    /// revision label.
    pub fn is_continuation(&self) -> bool {
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
            | Action::GuardPod { .. }
            | Action::RequestMove { .. }
            | Action::OwnClaim(ClaimOwnership { add: None, .. })
            | Action::FinishInPlace { .. }
            | Action::ApplyBudget(_)
            | Action::ProbeGuard { .. }
            | Action::DeleteBudget { .. } => Phase::Before,
            Action::DeleteRevision { .. }
            | Action::DryRun { .. }
            | Action::CreatePod(_)
            | Action::DeletePod(_)
            | Action::ForceDeletePod(_)
            | Action::CreateClaim(_)
            | Action::OwnClaim(ClaimOwnership { add: Some(_), .. })
            | Action::MarkDeleting { .. }
            | Action::CreateHookRun(_)
            | Action::CloseGate { .. }
            | Action::PatchInPlace(_)
            | Action::ResizePod { .. } => Phase::After,
        }
    }

    /// Whether it cannot be undone, and so requires a quorum GET of the workload first.
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
            | Action::GuardPod { .. }
            | Action::RequestMove { .. }
            | Action::OwnClaim(ClaimOwnership { add: None, .. })
            | Action::MarkDeleting { .. }
            | Action::UnmarkDeleting(_)
            | Action::DeleteHookRun { .. }
            | Action::OpenGate(_)
            | Action::FinishInPlace { .. }
            | Action::ApplyBudget(_)
            | Action::ProbeGuard { .. }
            | Action::DeleteBudget { .. } => false,
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
            | Action::MarkDeleting { pod, .. }
            | Action::UnmarkDeleting(pod)
            | Action::OpenGate(pod)
            | Action::LabelPod { pod, .. }
            | Action::GuardPod { pod, .. }
            | Action::RequestMove { pod, .. }
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
            // What allows any other deletion is valid for a moment only.
            Action::DeletePod(it) => {
                it.reason == DeletionReason::ScaleIn && it.ground == Ground::Unguarded
            }
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
    /// A reference to a pod.
    pub fn of(pod: &Pod) -> Self {
        Self {
            name: pod.name.clone(),
            uid: pod.uid.clone(),
            version: None,
        }
    }

    /// A reference to a pod as it was observed: the write fails if the pod has changed since.
    pub fn unchanged(pod: &Pod) -> Self {
        Self {
            version: Some(pod.resource_version),
            ..Self::of(pod)
        }
    }
}

impl<S> Plan<S> {
    /// A plan that does nothing.
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
