//! Which writes are the same: whether a plan writes again what an earlier one wrote.

use std::fmt::Debug;
use std::hash::{DefaultHasher, Hash, Hasher};

use super::Change;
use crate::observed::PodRef;

/// What a write changes, and the content that it gives it, as hashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    /// The object, and which part of it.
    pub subject: u64,
    /// The new content of that part.
    pub content: u64,
}

impl Fingerprint {
    /// A write that gives a subject this content.
    pub fn of(subject: &impl Hash, content: &impl Debug) -> Self {
        let hash = |write: &dyn Fn(&mut DefaultHasher)| {
            let mut hasher = DefaultHasher::new();
            write(&mut hasher);
            hasher.finish()
        };
        Self {
            subject: hash(&|hasher| subject.hash(hasher)),
            content: hash(&|hasher| format!("{content:?}").hash(hasher)),
        }
    }
}

impl Change {
    /// What is changed in an object that exists, without the preconditions and the time of the change; None for
    /// creations, deletions and dry runs. They have limits of their own: refused and altered objects are not created
    /// again at once, and a pod is deleted once.
    pub fn fingerprint(&self) -> Option<Fingerprint> {
        let of_pod = |pod: &PodRef, part: &str, content: &dyn Debug| {
            Some(Fingerprint::of(&(&pod.uid, &pod.name, part), &content))
        };
        match self {
            Change::PatchWorkload(patch) => Some(Fingerprint::of(&"the workload", patch)),
            Change::RenumberRevision { uid, number, .. } => {
                Some(Fingerprint::of(&(uid, "number"), number))
            }
            Change::AdoptRevision { uid, .. } => Some(Fingerprint::of(&(uid, "owner"), &"adopted")),
            Change::AdoptPod(pod) => of_pod(pod, "owner", &"adopted"),
            Change::ReleasePod(pod) => of_pod(pod, "owner", &"released"),
            Change::SetMetadata { pod, labels, annotations } => {
                // Some annotations contain the time.
                let annotations: Vec<_> =
                    annotations.iter().map(|(key, value)| (key, value.is_some())).collect();
                of_pod(pod, "metadata", &(labels, annotations))
            }
            Change::OwnClaim(claim) => {
                Some(Fingerprint::of(&(&claim.uid, "owners"), &(&claim.add, &claim.remove)))
            }
            Change::PatchNode(node) => {
                Some(Fingerprint::of(&(&node.uid, "node"), &(&node.record, node.cordon)))
            }
            Change::AdmitNode { uid, .. } => Some(Fingerprint::of(&(uid, "taint"), &"removed")),
            Change::SetGate { pod, closed_for, .. } => of_pod(pod, "gate", closed_for),
            Change::PatchInPlace(it) => of_pod(&it.pod, "containers", &(&it.images, &it.labels)),
            Change::PatchSidecars(it) => of_pod(&it.pod, "sidecars", &(&it.set, &it.to)),
            Change::ResizePod { pod, resources } => of_pod(pod, "resources", resources),
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
}
