//! What writes change.

use std::fmt::Debug;

use serde_json::Value;

use super::fingerprint::{shown, without_times};
use super::{
    Budget, ClaimOwnership, Fingerprint, NewClaim, NewPod, NewRevision, NodePatch, SidecarPatch,
    WorkloadPatch,
};
use crate::api::HookRun;
use crate::guard::Ground;
use crate::observed::{InPlaceRecord, Pod, PodRef};

/// What one write (or dry run) changes.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Patch the object itself that the plan is for, with its resourceVersion as a precondition.
    PatchWorkload(WorkloadPatch),
    /// Create a ControllerRevision.
    CreateRevision(NewRevision),
    /// Give the highest number to a revision that is used again.
    RenumberRevision {
        /// Its name.
        name: String,
        /// Its uid, a precondition.
        uid: String,
        /// The number.
        number: i64,
    },
    /// Adopt an orphaned revision.
    AdoptRevision {
        /// Its name.
        name: String,
        /// Its uid, a precondition.
        uid: String,
        /// Its new number, if it gets one.
        number: Option<i64>,
    },
    /// Adopt an orphaned pod.
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
    /// Delete a pod. [`guard`](crate::guard) decides when.
    DeletePod(Deletion),
    /// Force the deletion of a Terminating pod that cannot terminate because its node is lost.
    ForceDeletePod(PodRef),
    /// Set or remove labels and annotations of a pod.
    SetMetadata {
        /// The pod.
        pod: PodRef,
        /// Labels to set, or (None) to remove.
        labels: Vec<(String, Option<String>)>,
        /// Annotations to set, or (None) to remove.
        annotations: Vec<(&'static str, Option<String>)>,
    },
    /// Create a volume claim.
    CreateClaim(NewClaim),
    /// Change the owners of a claim.
    OwnClaim(ClaimOwnership),
    /// Create a HookRun.
    CreateHookRun(Box<HookRun>),
    /// Change a node.
    PatchNode(NodePatch),
    /// Remove the taint of a node whose install is complete.
    AdmitNode {
        /// The node's name.
        name: String,
        /// Its uid, a precondition.
        uid: String,
        /// The index of the taint, which must be there.
        taint: usize,
    },
    /// Delete an object that the owner no longer needs.
    Delete {
        /// What it is.
        kind: Owned,
        /// Its name.
        name: String,
        /// Its uid, a precondition; empty for a budget.
        uid: String,
    },
    /// Set the condition of the readiness gate.
    SetGate {
        /// The pod.
        pod: PodRef,
        /// The revision that the gate is closed for (False), which begins an in-place update; None opens it (True).
        closed_for: Option<String>,
        /// The change that follows immediately if there is no grace period. If the process ends in between, the next
        /// plan continues from the closed gate.
        then: Option<Box<InPlacePatch>>,
    },
    /// Change a running pod in one write: an in-place update or a hot patch.
    PatchInPlace(InPlacePatch),
    /// Change the sidecars of a pod, or allow its workload to change them.
    PatchSidecars(SidecarPatch),
    /// Set a container's resources through the resize subresource.
    ResizePod {
        /// The pod.
        pod: PodRef,
        /// The goal of the update that this belongs to.
        goal: String,
        /// Resources by container.
        resources: Vec<(String, Value)>,
    },
    /// Create, or restore, the PodDisruptionBudget that guards the workload's pods.
    ApplyBudget(Budget),
    /// Dry-run the deletion of this budget. The API server's refusal shows that the policy is in force, and that
    /// the budget exists.
    ProbeGuard {
        /// The budget's name.
        budget: String,
    },
}

/// Objects of a workload that its plans delete, apart from pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owned {
    /// A ControllerRevision beyond the history limit.
    Revision,
    /// A HookRun that no rule needs.
    HookRun,
    /// The run of a script of a Cluster. It exists until its script has ended, because its node is busy until then.
    Script,
    /// The PodDisruptionBudget, which no longer guards any pod.
    Budget,
}

impl Change {
    /// The pod that is changed.
    pub fn pod(&self) -> Option<&PodRef> {
        match self {
            Change::DeletePod(it) => Some(&it.pod),
            Change::PatchInPlace(it) => Some(&it.pod),
            Change::PatchSidecars(it) => Some(&it.pod),
            Change::AdoptPod(pod)
            | Change::ReleasePod(pod)
            | Change::ForceDeletePod(pod)
            | Change::SetMetadata { pod, .. }
            | Change::SetGate { pod, .. }
            | Change::ResizePod { pod, .. } => Some(pod),
            Change::PatchWorkload(_)
            | Change::CreateRevision(_)
            | Change::RenumberRevision { .. }
            | Change::AdoptRevision { .. }
            | Change::DryRun { .. }
            | Change::CreatePod(_)
            | Change::CreateClaim(_)
            | Change::OwnClaim(_)
            | Change::CreateHookRun(_)
            | Change::PatchNode(_)
            | Change::AdmitNode { .. }
            | Change::Delete { .. }
            | Change::ApplyBudget(_)
            | Change::ProbeGuard { .. } => None,
        }
    }

    /// What is changed in an object that exists, without the preconditions and the time of the change; None for
    /// creations, deletions and dry runs. They have limits of their own: refused and altered objects are not created
    /// again at once, and a pod is deleted once.
    pub fn fingerprint(&self) -> Option<Fingerprint> {
        let of_pod =
            |pod: &PodRef, part, content: &dyn Debug| shown(&(&pod.uid, &pod.name, part), content);
        match self {
            Change::PatchWorkload(patch) => shown(&"the workload", patch),
            Change::RenumberRevision { uid, number, .. } => shown(&(uid, "number"), number),
            Change::AdoptRevision { uid, .. } => shown(&(uid, "owner"), &"adopted"),
            Change::AdoptPod(pod) => of_pod(pod, "owner", &"adopted"),
            Change::ReleasePod(pod) => of_pod(pod, "owner", &"released"),
            Change::SetMetadata { pod, labels, annotations } => {
                let annotations: Vec<_> = annotations
                    .iter()
                    .map(|(key, value)| (key, value.as_deref().map(without_times)))
                    .collect();
                of_pod(pod, "metadata", &(labels, annotations))
            }
            Change::OwnClaim(it) => shown(&(&it.uid, "owners"), &(&it.add, &it.remove)),
            Change::PatchNode(it) => shown(&(&it.uid, "node"), &(&it.record, it.cordon)),
            Change::AdmitNode { uid, .. } => shown(&(uid, "taint"), &"removed"),
            Change::SetGate { pod, closed_for, .. } => of_pod(pod, "gate", closed_for),
            Change::PatchInPlace(it) => of_pod(&it.pod, "containers", &(&it.images, &it.labels)),
            Change::PatchSidecars(it) => of_pod(&it.pod, "sidecars", &(&it.set, &it.to)),
            Change::ResizePod { pod, resources, .. } => of_pod(pod, "resources", resources),
            Change::CreateRevision(_)
            | Change::DryRun { .. }
            | Change::CreatePod(_)
            | Change::DeletePod(_)
            | Change::ForceDeletePod(_)
            | Change::CreateClaim(_)
            | Change::CreateHookRun(_)
            | Change::Delete { .. }
            | Change::ApplyBudget(_)
            | Change::ProbeGuard { .. } => None,
        }
    }

    /// The goal of the update in place that this is a part of; None for any other change.
    pub fn goal(&self) -> Option<String> {
        match self {
            Change::PatchInPlace(patch) if !patch.record.hot => Some(patch.record.goal()),
            Change::ResizePod { goal, .. } => Some(goal.clone()),
            _ => None,
        }
    }

    /// The new value of a pod's label, if this changes nothing but labels and annotations; None in it removes the label.
    pub fn label(&self, key: &str) -> Option<Option<&str>> {
        let Change::SetMetadata { labels, .. } = self else {
            return None;
        };
        labels.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_deref())
    }

    /// The same for an annotation.
    pub fn annotation(&self, key: &str) -> Option<Option<&str>> {
        let Change::SetMetadata { annotations, .. } = self else {
            return None;
        };
        annotations.iter().find(|(name, _)| *name == key).map(|(_, value)| value.as_deref())
    }
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

/// Why a pod is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeletionReason {
    /// There are more pods than desired.
    ScaleIn,
    /// Its ordinal is reserved.
    Reserved,
    /// A new pod of the update revision replaces it.
    Update,
    /// Its replacement was requested: podsToDelete names it, or a move was requested.
    Replace,
    /// Its node is lost.
    NodeLost,
    /// Its workload is being deleted.
    WorkloadDeleted,
    /// It has ended on its own.
    Ended,
    /// It has ended on its own right after it was started: see [`Backoff`](crate::workload::Backoff).
    EndedAtOnce,
}

impl DeletionReason {
    /// The reason to delete a pod that has ended on its own.
    pub fn of_ended_pod(pod: &Pod) -> Self {
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
    /// Whether the pod already has any annotations.
    pub annotated: bool,
    /// Annotations to set, or (None) to remove.
    pub annotations: Vec<(String, Option<String>)>,
    /// The annotations with the tokens that allow sidecars to be changed, as they were observed.
    pub tokens: Vec<(String, String)>,
    /// The record to leave on the pod.
    pub record: InPlaceRecord,
}

impl InPlacePatch {
    /// Whether this patch continues an update with the next container. The update's first patch has already set the
    /// revision label.
    pub fn is_continuation(&self) -> bool {
        self.labels.is_empty()
    }
}

/// The change of one container's image.
#[derive(Clone, Debug, PartialEq)]
pub struct ImageChange {
    /// Whether the container is a native sidecar (an init container that keeps running).
    pub init: bool,
    /// Its index in spec.containers or spec.initContainers.
    pub index: usize,
    /// Its name, which the patch tests.
    pub name: String,
    /// Its current image, which the patch tests.
    pub from: String,
    /// Its new image.
    pub to: String,
}
