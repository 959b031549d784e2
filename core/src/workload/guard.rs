//! Decides when a pod may be deleted or changed. No other code decides that.
//!
//! Only this file creates a [`Cleared`], and only for an action that is possible now. Deletions and the start of
//! in-place updates require a [`Cleared`]. These writes do not:
//! - a hot patch, because it restarts nothing;
//! - a newer target for an update that is in progress behind a closed gate;
//! - the next container, or the new resources, of a pod that is being updated;
//! - a new closing time for a gate that is already closed;
//! - a forced deletion, because the pod is already Terminating.

use jiff::Timestamp;

use crate::api::names::HookPoint;
use crate::observed::{Pod, PodPhase, RevisionName};
use crate::workload::hooks::{Clearance, Hooks, Intent};
use crate::write::{Action, Deletion, DeletionReason, Ground, InPlacePatch, PodRef};

/// Permission for one action on a pod, now: its hook allows the action, or none is needed.
pub struct Cleared<'a> {
    pod: &'a Pod,
    ground: Ground,
    /// When the success on which the permission rests becomes invalid.
    until: Option<Timestamp>,
}

impl<'a> Cleared<'a> {
    /// The pod.
    pub fn pod(&self) -> &'a Pod {
        self.pod
    }

    /// The first write of the pod's in-place update, after which the pod gets no new traffic. If there is no grace
    /// period, `then` is the change that follows immediately.
    pub fn close_gate(self, revision: RevisionName, then: Option<InPlacePatch>) -> Action {
        let pod = self.pod_ref();
        let then = then.map(|patch| InPlacePatch { pod: pod.clone(), ..patch });
        Action::CloseGate { pod, revision: revision.to_string(), then: then.map(Box::new) }
    }

    /// The in-place change of a pod whose traffic does not have to be stopped first. If none of the pod's
    /// containers was observed running, one may have started meanwhile, so the write fails if the pod has changed
    /// since it was observed. This applies whether or not a hook guards the pod.
    pub fn change(self, patch: InPlacePatch) -> Action {
        let mut pod = self.pod_ref();
        if !may_have_players(self.pod) {
            pod.version = Some(self.pod.resource_version);
        }
        Action::PatchInPlace(InPlacePatch { pod, ..patch })
    }

    /// The deletion of the pod.
    pub fn delete(self, reason: DeletionReason) -> Action {
        Action::DeletePod(Deletion { pod: self.pod_ref(), reason, ground: self.ground })
    }

    /// The deletion of the pod, if it has not changed since it was observed.
    pub fn delete_unchanged(self, reason: DeletionReason) -> Action {
        Action::DeletePod(Deletion {
            pod: PodRef { allowed_until: self.until, ..PodRef::unchanged(self.pod) },
            reason,
            ground: self.ground,
        })
    }

    fn pod_ref(&self) -> PodRef {
        let pod = match self.ground {
            // A container may have started, or the node may have come back. The kubelet's next status shows it.
            Ground::NothingRuns | Ground::NodeLost => PodRef::unchanged(self.pod),
            Ground::NoHook | Ground::Hook | Ground::Released | Ground::Deadline => {
                PodRef::of(self.pod)
            }
        };
        PodRef { allowed_until: self.until, ..pod }
    }
}

/// Whether players may be on a pod: whether any of its containers (including native sidecars) runs. The pod's
/// phase does not tell: a pod is Pending if its game runs but a sidecar still waits for its image, and Running
/// even if its game is in a crash loop. The phase counts only for containers without a status.
pub fn may_have_players(pod: &Pod) -> bool {
    let is_up = matches!(pod.phase, PodPhase::Running | PodPhase::Unknown);
    let mut containers = pod.containers.iter();
    containers.any(|container| match &container.status {
        Some(status) => status.running,
        None => is_up,
    })
}

/// Invariant 1. A pod may be deleted, or changed in place, when that is possible now, the pod is not yet
/// Terminating, and
/// - no hook guards the action (the intent names the hook point), or
/// - no players can be on it, or
/// - its hook was successful, for exactly this pod, target, change and hook, a short time ago, or
/// - it is guarded (spec.protection), and a user released it, or
/// - it is guarded, the action deletes it, and its node is lost or its deadline has passed.
///
/// The last two items are invariant 11 (see `protection`).
pub fn may_touch<'a>(pod: &'a Pod, intent: &Intent, hooks: &mut Hooks<'a>) -> Option<Cleared<'a>> {
    let ground = ground(pod, intent, hooks)?;
    let until = match ground {
        Ground::Hook => hooks.valid_until(pod, intent),
        _ => None,
    };
    intent.possible.then_some(Cleared { pod, ground, until })
}

/// What happens to a gate that is already closed.
pub enum ClosedGate<'a> {
    /// It opens again: nothing allows the change anymore.
    Opens,
    /// It stays closed: the change is allowed, but not possible now.
    Stays,
    /// The change may be made.
    Change(Cleared<'a>),
}

/// What happens to a pod whose gate is already closed, by the rules of [`may_touch`].
pub fn closed_gate<'a>(pod: &'a Pod, intent: &Intent, hooks: &mut Hooks<'a>) -> ClosedGate<'a> {
    match ground(pod, intent, hooks) {
        None => ClosedGate::Opens,
        Some(_) if !intent.possible => ClosedGate::Stays,
        // The success had to be valid when the gate was closed.
        Some(ground) => ClosedGate::Change(Cleared { pod, ground, until: None }),
    }
}

/// What allows an action once it is possible; None if nothing does.
fn ground<'a>(pod: &'a Pod, intent: &Intent, hooks: &mut Hooks<'a>) -> Option<Ground> {
    if pod.terminating {
        return None;
    }
    if !hooks.is_needed(intent.point, pod) {
        return Some(Ground::NoHook);
    }
    if !may_have_players(pod) {
        return Some(Ground::NothingRuns);
    }
    if intent.deletes && hooks.is_on_lost_node(pod) {
        return Some(Ground::NodeLost);
    }
    if hooks.is_released(pod) {
        return Some(Ground::Released);
    }
    match hooks.clear(pod, intent) {
        Clearance::Allowed => Some(Ground::Hook),
        Clearance::PastDeadline => Some(Ground::Deadline),
        Clearance::Held => None,
    }
}

/// The point that guards a recreation for an update, whatever the update type: PreDelete, or PreInplace
/// if only that one is configured. A PreDelete hook that was removed while it guarded the pod still counts.
pub fn point_of_recreation(hooks: &Hooks, pod: &Pod) -> HookPoint {
    if hooks.is_needed(HookPoint::PreDelete, pod) {
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
