//! The permission for one action on a pod.

use jiff::Timestamp;

use super::may_have_players;
use crate::observed::{Pod, PodRef};

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

/// Permission for one action on a pod, now. It is used up by the action.
#[derive(Debug)]
pub struct Permit<'a> {
    pod: &'a Pod,
    ground: Ground,
    /// When the success on which the permission rests becomes invalid.
    until: Option<Timestamp>,
}

impl<'a> Permit<'a> {
    pub(super) fn new(pod: &'a Pod, ground: Ground, until: Option<Timestamp>) -> Self {
        Self { pod, ground, until }
    }

    /// The pod.
    pub fn pod(&self) -> &'a Pod {
        self.pod
    }

    /// What allows the action.
    pub fn ground(&self) -> Ground {
        self.ground
    }

    /// The pod as an action names it, with the preconditions that the permission requires.
    pub fn for_action(&self) -> PodRef {
        let pod = match self.ground {
            // A container may have started, or the node may have come back. The kubelet's next status shows it.
            Ground::NothingRuns | Ground::NodeLost => PodRef::unchanged(self.pod),
            Ground::NoHook | Ground::Hook | Ground::Released | Ground::Deadline => {
                PodRef::of(self.pod)
            }
        };
        PodRef { allowed_until: self.until, ..pod }
    }

    /// The same for a change in place. If none of the pod's containers was observed running, one may have started
    /// meanwhile, so the write fails if the pod has changed since. This applies whether or not a hook guards the pod.
    pub fn for_change(&self) -> PodRef {
        match may_have_players(self.pod) {
            true => self.for_action(),
            false => self.for_unchanged(),
        }
    }

    /// The same for an action that fails if the pod has changed since it was observed.
    pub fn for_unchanged(&self) -> PodRef {
        PodRef { allowed_until: self.until, ..PodRef::unchanged(self.pod) }
    }
}
