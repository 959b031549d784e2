//! When may a pod be deleted or changed? Here, and nowhere else.
//!
//! Only this file makes a [`Cleared`], and only a [`Cleared`] becomes a deletion or the start of an
//! in-place update. So whoever wants to touch a pod has asked its hook. Two changes need no asking,
//! and `update` says so where it makes them: a hot patch, which restarts nothing, and the next
//! target of a pod that is changed already.

use jiff::Timestamp;

use super::draft::Draft;
use super::hooks::{Answer, Hooks, Intent};
use super::{Action, Deletion, DeletionReason, InPlacePatch, Pod, PodPhase, PodRef};
use crate::api::names::HookPoint;

/// A pod whose hook said yes, or that has nothing to lose.
pub struct Cleared<'a> {
    pod: &'a Pod,
    /// Whether it was a hook that said yes; what it said does not hold for long.
    by_hook: bool,
}

impl<'a> Cleared<'a> {
    /// The pod.
    pub fn pod(&self) -> &'a Pod {
        self.pod
    }

    /// The first write of its in-place update: no traffic from now on. Where there is nothing to
    /// wait for, the change follows at once.
    pub fn close_gate(self, revision: &str, then: Option<InPlacePatch>) -> Action {
        Action::CloseGate {
            pod: PodRef::of(self.pod),
            revision: revision.to_owned(),
            then: then.map(Box::new),
        }
    }

    /// The change, where no traffic has to end first.
    pub fn change(self, patch: InPlacePatch) -> Action {
        Action::PatchInPlace(patch)
    }

    /// Its deletion.
    pub fn delete(self, reason: DeletionReason) -> Action {
        Action::DeletePod(Deletion {
            pod: PodRef::of(self.pod),
            reason,
            by_hook: self.by_hook,
        })
    }
}

/// Whether players may be on it: only such a pod has something to lose.
pub fn may_have_players(pod: &Pod) -> bool {
    matches!(pod.phase, PodPhase::Running | PodPhase::Unknown)
}

/// A pod that ended by itself may go at once.
pub fn ended(pod: &Pod) -> Option<Cleared<'_>> {
    let by_hook = false;
    (pod.ended() && !pod.terminating).then_some(Cleared { pod, by_hook })
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
        let by_hook = false;
        return Some(Cleared { pod, by_hook });
    }
    let by_hook = hooks.is_configured(intent.point);
    match hooks.clear(pod, intent, draft) {
        Answer::Cleared => Some(Cleared { pod, by_hook }),
        Answer::Held => None,
    }
}

/// The point that guards a recreation for an update, whatever the update type: PreDelete, and where
/// only a PreInplace hook is configured, that one.
pub fn point_of_recreation(hooks: &Hooks) -> HookPoint {
    if hooks.is_configured(HookPoint::PreDelete) {
        HookPoint::PreDelete
    } else {
        HookPoint::PreInplace
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
