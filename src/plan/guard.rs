//! When may a pod be deleted or changed? Here, and nowhere else.
//!
//! Only this file makes a [`Cleared`], and only a [`Cleared`] becomes a deletion or the start of an
//! in-place update. So whoever wants to touch a pod has asked its hook.

use jiff::Timestamp;

use super::draft::Draft;
use super::hooks::{Answer, Hooks, Intent};
use super::{Action, Deletion, DeletionReason, Pod, PodPhase, PodRef};
use crate::api::names::HookPoint;

/// A pod whose hook said yes, or that has nothing to lose.
pub struct Cleared<'a>(&'a Pod);

impl<'a> Cleared<'a> {
    /// The pod.
    pub fn pod(&self) -> &'a Pod {
        self.0
    }

    /// The first write of its in-place update: no traffic from now on.
    pub fn close_gate(self, revision: &str) -> Action {
        Action::CloseGate {
            pod: PodRef::of(self.0),
            revision: revision.to_owned(),
        }
    }

    /// Its deletion.
    pub fn delete(self, reason: DeletionReason) -> Action {
        Action::DeletePod(Deletion {
            pod: PodRef::of(self.0),
            reason,
        })
    }
}

/// Whether players may be on it: only such a pod has something to lose.
pub fn may_have_players(pod: &Pod) -> bool {
    matches!(pod.phase, PodPhase::Running | PodPhase::Unknown)
}

/// A pod that ended by itself may go at once.
pub fn ended(pod: &Pod) -> Option<Cleared<'_>> {
    (pod.ended() && !pod.terminating).then_some(Cleared(pod))
}

/// A pod may be deleted, or changed in place, when it is not Terminating already, and
/// - nobody can be playing on it, or
/// - no hook guards this (the intent says which one would), or
/// - the hook that does was successful, for this very pod, target and hook, a short while ago.
pub fn may_touch<'a>(
    pod: &'a Pod,
    intent: &Intent,
    hooks: &mut Hooks<'a>,
    draft: &mut Draft,
) -> Option<Cleared<'a>> {
    if pod.terminating {
        return None;
    }
    if !may_have_players(pod) {
        return Some(Cleared(pod));
    }
    match hooks.clear(pod, intent, draft) {
        Answer::Cleared => Some(Cleared(pod)),
        Answer::Held => None,
    }
}

/// The point that guards a deletion for an update. Where pods are meant to be updated in place and
/// only a PreInplace hook is configured, that one guards a recreation too.
pub fn point_of_update_deletion(hooks: &Hooks, in_place: bool) -> HookPoint {
    if in_place && !hooks.is_configured(HookPoint::PreDelete) {
        HookPoint::PreInplace
    } else {
        HookPoint::PreDelete
    }
}

/// The point that guards an in-place update.
pub fn point_of_change(hooks: &Hooks) -> HookPoint {
    if hooks.is_configured(HookPoint::PreInplace) {
        HookPoint::PreInplace
    } else {
        HookPoint::PreDelete
    }
}

/// The intent to delete a pod for good, or to replace it by one of the same revision.
pub fn removal(possible: bool, now: Timestamp) -> Intent<'static> {
    Intent {
        point: HookPoint::PreDelete,
        target: "",
        modified: &[],
        possible,
        at: now,
    }
}
