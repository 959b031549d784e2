//! Changes of running pods that the API server refuses.

use jiff::Timestamp;

use super::World;
use crate::api::Reason;
use crate::observed::Pod;
use crate::workload::decision::Blocked;
use crate::write::Refused;

/// An update in place, or a deletion, that was refused for one pod: by a dry run, or after the pod had left service.
#[derive(Clone, Debug, PartialEq)]
pub struct RefusedChange {
    /// What the pod was to be updated to, or [`Rehearsal::DELETION`](crate::write::Rehearsal::DELETION).
    pub goal: String,
    /// The API server's message.
    pub message: String,
    /// When it is tried again: a quota may have been raised, or a policy changed.
    pub again_at: Timestamp,
    /// Whether the pod had left service, so that the next attempts come later each time.
    pub left_service: bool,
}

impl RefusedChange {
    /// How this blocks the update of a pod.
    pub fn blocked(&self, pod: &Pod) -> Blocked {
        let again = match self.left_service {
            true => format!("tried again at {}", self.again_at),
            false => Refused::RETRY.to_owned(),
        };
        let message =
            format!("pod {} cannot be changed in place: {}; {again}", pod.name, self.message);
        Blocked { reason: Reason::FailedUpdate, message }
    }
}

impl World {
    /// The change of a pod that is not tried at present, because it was refused a moment ago.
    pub fn refused_change(&self, pod: &Pod) -> Option<RefusedChange> {
        self.memory.rehearsals.refused(&pod.uid, self.now)
    }

    /// The same, if it led to this goal.
    pub fn refused_change_to(&self, pod: &Pod, goal: &str) -> Option<RefusedChange> {
        self.refused_change(pod).filter(|it| it.goal == goal)
    }
}
