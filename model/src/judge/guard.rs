//! Invariant 11: no client ends a guarded pod before its hook is successful or its deadline has passed.
//!
//! The policy and the budget are enforced by the API server, as long as each pod has its label and the budget exists.

use super::{Case, violation};
use crate::model::{Model, Violation};
use crate::scope::User;
use crate::state::*;
use crate::translate::DEADLINE;

const GUARDED: &str = "11: guarded";

/// Checks the labels and the budget of guarded pods.
pub(super) fn state(model: &Model, state: &State) -> Result<(), Violation> {
    let guard = state.workload.now.guard;
    let pods = &state.pods.now;
    let is_labeled = |pod: &&Pod| pod.guarded && !pod.terminating;
    if let Some(pod) = pods.iter().find(is_labeled).filter(|_| !state.budget) {
        return violation(
            GUARDED,
            format!("{pod:?} may be evicted: there is no budget"),
        );
    }
    if state.budget && !guard.finalizer {
        return violation(GUARDED, format!("the budget is left behind: {guard:?}"));
    }
    let switches = model.scope.user.iter();
    let is_switched = switches.into_iter().any(|it| matches!(it, User::Guard(_)));
    let is_kept = guard.wanted && guard.finalizer && !is_switched;
    let is_orphaning = matches!(guard.deletion, Some(Cascade::Orphan | Cascade::Orphaned));
    let is_open = |pod: &&Pod| pod.up && !pod.guarded && !pod.terminating && !pod.orphan;
    match pods.iter().find(is_open) {
        Some(pod) if is_kept && !is_orphaning && state.workload.now.hooked => {
            violation(GUARDED, format!("{pod:?} has no label"))
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

    /// Checks a deletion because the workload is deleted. Orphaned pods belong to the user.
    pub(super) fn deleted_with_its_workload(&self, pod: &Pod) -> Result<(), Violation> {
        if pod.orphan || self.workload.guard.deletion.is_none() {
            return violation(GUARDED, format!("{pod:?} is not to be deleted"));
        }
        Ok(())
    }

    /// Checks the removal of the finalizer: no match may be in progress.
    pub(super) fn finalizer_removed(&self, change: &WorkloadChange) -> Result<(), Violation> {
        let guard = self.state.workload.now.guard;
        let is_awaited = guard.wanted && guard.deletion == Some(Cascade::Background);
        let is_playing = |pod: &&Pod| pod.up && !pod.terminating && !pod.orphan;
        match self.state.pods.now.iter().find(is_playing) {
            Some(pod) if is_awaited && change.finalizer == Some(false) => {
                violation(GUARDED, format!("{pod:?} goes with its workload"))
            }
            _ => Ok(()),
        }
    }
}
