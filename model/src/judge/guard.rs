//! Invariant 11: no client deletes a guarded pod before its hook is successful or its deadline has passed.
//!
//! The policy and the budget are enforced by the API server, as long as each pod has its label and the budget exists.

use gamekeeper_core::api::UpdateStrategyType;
use gamekeeper_core::api::names::HookPoint;

use super::{Case, violation};
use crate::model::{Model, Violation};
use crate::operator::Planned;
use crate::scope::User;
use crate::state::*;
use crate::translate::{DEADLINE, View};

const GUARDED: &str = "11: guarded";

/// Checks the labels and the budget of guarded pods.
pub(super) fn state(model: &Model, state: &State) -> Result<(), Violation> {
    let guard = state.workload.now.guard;
    let pods = &state.pods.now;
    let is_labeled = |pod: &&Pod| pod.guarded && !pod.terminating;
    if let Some(pod) = pods
        .iter()
        .find(is_labeled)
        .filter(|_| state.budget.is_none())
    {
        return violation(
            GUARDED,
            format!("{pod:?} may be evicted: there is no budget"),
        );
    }
    if state.budget.is_some() && !guard.finalizer {
        return violation(GUARDED, format!("the budget is left behind: {guard:?}"));
    }
    if let Some(pod) = pods.iter().find(|pod| pod.released && pod.guarded) {
        return violation(
            GUARDED,
            format!("{pod:?} was released, and is guarded again"),
        );
    }
    let is_exposed =
        |pod: &&Pod| pod.up && !pod.guarded && !pod.released && !pod.terminating && !pod.orphan;
    match pods.iter().find(is_exposed) {
        Some(pod) if must_guard_all(model, state) => {
            violation(GUARDED, format!("{pod:?} has no label"))
        }
        _ => Ok(()),
    }
}

/// Checks each record of since when a pod waits for its deletion: it must have the time of the plan, and the pod must be
/// about to be deleted, not updated in place.
pub(super) fn plan(model: &Model, view: &View, planned: &Planned) -> Result<(), Violation> {
    let in_place = model.scope.strategy == UpdateStrategyType::InplaceUpdate;
    let workload = &view.workload;
    let active = view.pods.iter().filter(|pod| pod.is_active()).count();
    let has_surplus = active > usize::from(workload.replicas);
    let may_be_deleted = |pod: &Pod| {
        let is_outdated = !in_place && pod.rev != workload.template;
        let is_requested =
            workload.pods_to_delete.contains(&pod.name) || pod.move_requested.is_some();
        has_surplus || is_outdated || is_requested || workload.guard.deletion.is_some()
    };
    for write in planned.before.iter().chain(&planned.after) {
        let Write::Mark(uid, Some(since)) = write else {
            continue;
        };
        let pod = view.pods.iter().find(|pod| pod.uid == *uid);
        if *since != view.now || !pod.is_some_and(may_be_deleted) {
            return violation(
                GUARDED,
                format!(
                    "{pod:?} is recorded as waiting since {since}, but the time is {}, or it need not be deleted",
                    view.now
                ),
            );
        }
    }
    Ok(())
}

/// Whether all pods with players must be guarded: users do not switch the guard on or off in this scope, and the pods
/// are not left to the user.
fn must_guard_all(model: &Model, state: &State) -> bool {
    let guard = state.workload.now.guard;
    let mut changes = model.scope.user.iter();
    let is_switched = changes.any(|it| matches!(it, User::Guard(_)));
    let is_orphaning = matches!(guard.deletion, Some(Cascade::Orphan | Cascade::Orphaned));
    guard.wanted && guard.finalizer && !is_switched && !is_orphaning && state.workload.now.hooked
}

/// Checks a change by a user before it takes effect: an eviction must not end a guarded match.
pub fn change_by_user(state: &State, change: User) -> Result<(), Violation> {
    let User::Evict(name) = change else {
        return Ok(());
    };
    let pods = &state.pods.now;
    let is_playing = |pod: &&Pod| pod.name == name && pod.guarded && pod.up && !pod.terminating;
    match pods.iter().find(is_playing) {
        Some(pod) => violation(
            GUARDED,
            format!("{pod:?} is evicted despite {:?}", state.budget),
        ),
        None => Ok(()),
    }
}

/// Checks a deletion by the garbage collector, which the policy does not refuse.
pub fn collection(model: &Model, state: &State, uid: Uid) -> Result<(), Violation> {
    let pod = state.pod(uid);
    let is_playing = |pod: &&Pod| pod.up && !pod.released && !pod.orphan;
    match pod.filter(is_playing) {
        Some(pod) if must_guard_all(model, state) => {
            violation(GUARDED, format!("{pod:?} is collected with its workload"))
        }
        _ => Ok(()),
    }
}

impl Case<'_> {
    /// Whether the pod's deadline has passed.
    pub(super) fn is_past_deadline(&self, pod: &Pod) -> bool {
        let is_over = |since: Time| since + DEADLINE <= self.reconcile.at;
        self.workload.guard.wanted && pod.waiting_since.is_some_and(is_over)
    }

    /// Whether a user released the pod from its guard, or its node is lost, so its deletion needs no hook.
    pub(super) fn may_go_without_hook(&self, pod: &Pod) -> bool {
        let is_lost = pod.disrupted && pod.unreported;
        (pod.released || is_lost) && self.workload.guard.wanted
    }

    pub(super) fn is_guarded(&self, pod: &Pod) -> bool {
        pod.guarded && self.workload.guard.wanted
    }

    /// Checks an action for which no hook is configured: if the PreDelete hook was removed while the pod was guarded,
    /// the pod is kept.
    pub(super) fn hook_not_removed(&self, pod: &Pod, point: HookPoint) -> Result<(), Violation> {
        if point == HookPoint::PreDelete && self.is_guarded(pod) {
            return violation(
                GUARDED,
                format!("{pod:?} has lost its hook, and is not kept"),
            );
        }
        Ok(())
    }

    /// Checks the deletion of a pod because its node is lost. A pod whose kubelet reports again is no
    /// longer lost.
    pub(super) fn on_lost_node(&self, pod: &Pod) -> Result<(), Violation> {
        if self.may_go_without_hook(pod) || !pod.up {
            return Ok(());
        }
        violation(
            GUARDED,
            format!(
                "{pod:?} is deleted as lost, but its node is {:?}",
                self.state.node
            ),
        )
    }

    /// Checks the deletion of a pod because its workload is deleted. Orphaned pods belong to the user.
    pub(super) fn deleted_with_its_workload(&self, pod: &Pod) -> Result<(), Violation> {
        if pod.orphan || self.workload.guard.deletion.is_none() {
            return violation(GUARDED, format!("{pod:?} must not be deleted"));
        }
        Ok(())
    }

    /// Checks the removal of the finalizer: no match may be in progress.
    pub(super) fn finalizer_removed(&self, change: &WorkloadChange) -> Result<(), Violation> {
        let guard = self.state.workload.now.guard;
        let is_awaited = guard.wanted
            && matches!(
                guard.deletion,
                Some(Cascade::Background | Cascade::Foreground)
            );
        let is_playing = |pod: &&Pod| pod.up && !pod.terminating && !pod.orphan;
        match self.state.pods.now.iter().find(is_playing) {
            Some(pod) if is_awaited && change.finalizer == Some(false) => {
                violation(GUARDED, format!("{pod:?} is deleted with its workload"))
            }
            _ => Ok(()),
        }
    }
}
