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
    if let Some(pod) = pods.iter().find(is_labeled).filter(|_| state.budget.is_none()) {
        return violation(GUARDED, format!("{pod:?} may be evicted: there is no budget"));
    }
    if state.budget.is_some() && !guard.finalizer {
        return violation(GUARDED, format!("the budget is left behind: {guard:?}"));
    }
    if let Some(pod) = pods.iter().find(|pod| pod.released && pod.guarded) {
        return violation(GUARDED, format!("{pod:?} was released, and is guarded again"));
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

/// Checks since when pods wait for their deletion. A wait begins with the plan that records it, if the pod is about to
/// be deleted, and not updated in place; its time does not change while it lasts; and a pod shows the recorded time.
pub(super) fn plan(view: &View, planned: &Planned) -> Result<(), Violation> {
    let workload = &view.workload;
    let in_place = workload.strategy == UpdateStrategyType::InplaceUpdate;
    let active = view.pods.iter().filter(|pod| pod.is_active()).count();
    let has_surplus = active > usize::from(workload.replicas);
    let may_be_deleted = |pod: &Pod| {
        let is_outdated = !in_place && pod.rev != workload.template;
        let is_requested =
            workload.pods_to_delete.contains(&pod.name) || pod.move_requested.is_some();
        has_surplus || is_outdated || is_requested || workload.guard.deletion.is_some()
    };
    let waits = match planned.status {
        Some(_) => &planned.waits,
        None => &workload.waits,
    };
    for (uid, since) in waits {
        let pod = view.pods.iter().find(|pod| pod.uid == *uid);
        let mut earlier = workload.waits.iter().filter(|(it, _)| it == uid);
        let expected = earlier.next().map_or(view.now, |(_, since)| *since);
        let begins = expected == view.now && planned.status.is_some();
        if *since != expected || (begins && !pod.is_some_and(may_be_deleted)) {
            return violation(
                GUARDED,
                format!(
                    "{pod:?} waits since {since} instead of {expected}, or need not be deleted"
                ),
            );
        }
    }
    let writes = || planned.before.iter().chain(&planned.after);
    let changes_workload = writes().any(|write| matches!(write, Write::Workload(_)));
    for write in writes() {
        if let Write::Mark(uid, Some(since)) = write
            && !waits.contains(&(*uid, *since))
            && !changes_workload
        {
            return violation(
                GUARDED,
                format!("{uid} shows that it waits since {since}, but {waits:?} are recorded"),
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
        Some(pod) => violation(GUARDED, format!("{pod:?} is evicted despite {:?}", state.budget)),
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
        let mut waits = self.state.workload.now.waits.iter();
        let wait = waits.find(|(uid, _)| *uid == pod.uid);
        self.workload.guard.wanted && wait.is_some_and(|(_, since)| is_over(*since))
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
            return violation(GUARDED, format!("{pod:?} has lost its hook, and is not kept"));
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
            format!("{pod:?} is deleted as lost, but its node is {:?}", self.state.node),
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
            && matches!(guard.deletion, Some(Cascade::Background | Cascade::Foreground));
        let is_playing = |pod: &&Pod| pod.up && !pod.terminating && !pod.orphan;
        match self.state.pods.now.iter().find(is_playing) {
            Some(pod) if is_awaited && change.finalizer == Some(false) => {
                violation(GUARDED, format!("{pod:?} is deleted with its workload"))
            }
            _ => Ok(()),
        }
    }
}
