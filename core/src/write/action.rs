//! Every write that a plan may contain, when it is carried out, and whether it can be undone. The matches that decide
//! this are exhaustive, so every new action must be classified.

use jiff::Timestamp;
use serde_json::Value;

use super::{
    Budget, ClaimOwnership, Deletion, DeletionReason, Ground, InPlacePatch, NewClaim, NewPod,
    NewRevision, Phase, PodRef, WorkloadPatch,
};
use crate::api::HookRun;
use crate::observed::InPlaceRecord;

/// One write (or dry run).
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Patch the workload itself, with its resourceVersion as a precondition.
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
    /// Set a pod's identity labels.
    LabelPod {
        /// The pod.
        pod: PodRef,
        /// Labels to set.
        labels: Vec<(String, String)>,
    },
    /// Guard a pod, or stop guarding it: set or remove its label and the annotations for autoscalers.
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
        /// True to request the replacement, false to withdraw the request.
        requested: bool,
    },
    /// Set the annotation game-pod-deleting.
    MarkDeleting {
        /// The pod.
        pod: PodRef,
        /// When the pod began to wait for its PreDelete hook; recorded on guarded pods.
        since: Option<Timestamp>,
    },
    /// Remove the annotation game-pod-deleting, and the time since which the pod has waited.
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
        /// The revision that the gate is closed for.
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
    /// Dry-run the deletion of this budget. The API server's refusal shows that the policy is in force, and that
    /// the budget exists.
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

impl Action {
    /// When the action is carried out.
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

    /// Whether the action cannot be undone, and so requires a quorum GET of the workload first.
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

    /// The pod that the action writes to.
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

    /// Whether the action stays valid while the workload does not change, whatever happens to other pods.
    pub fn depends_on_workload_alone(&self) -> bool {
        match self {
            Action::CreatePod(_) => true,
            // Every other deletion rests on conditions that hold only for a moment.
            Action::DeletePod(it) => {
                it.reason == DeletionReason::ScaleIn && it.ground == Ground::NoHook
            }
            _ => false,
        }
    }
}
