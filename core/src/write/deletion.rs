//! Why a pod is deleted, and what allows that.

use super::PodRef;
use crate::observed::Pod;

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

/// What allows an action on a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ground {
    /// The action needs no hook.
    NoHook,
    /// The pod's hook allowed the action.
    Hook,
    /// The action needs a hook, but none of the pod's containers runs. The kubelet may start one at any moment, so
    /// the write has the pod's resourceVersion as a precondition: it changes when the status reports the container.
    /// No other precondition of a deletion would detect the start.
    NothingRuns,
    /// The pod is guarded, and its node is lost: neither its hook nor its players can reach it.
    NodeLost,
    /// A user released the guarded pod, so it no longer needs a hook.
    Released,
    /// The pod is guarded, and its hook did not allow the action before the deadline of spec.protection.
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
