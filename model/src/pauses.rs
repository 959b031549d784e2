//! Invariant 4: a pause step is ended only by a user or by its duration, and a hook step only by a success or a user.
//! Within one rollout the step index only grows. The operator ends no pause but its own.

use gamekeeper_core::api::HookPhase;
use gamekeeper_core::api::names::HookPoint;

use serde_json::Value;

use super::model::{Model, Violation};
use super::scope::{Amount, Step};
use super::state::*;
use super::translate::{Facts, View};

const RULE: &str = "4: pauses";

fn violation(why: String) -> Result<(), Violation> {
    Err(Violation { rule: RULE, why })
}

/// The partition that the last partition step at or before `index` sets.
pub fn last_partition(steps: &[Step], index: usize) -> Option<Amount> {
    let mut reached = steps.iter().take(index + 1).rev();
    reached.find_map(|step| match step {
        Step::Partition(kept) => Some(*kept),
        _ => None,
    })
}

/// Checks a change of the workload.
pub fn check_workload_change(
    model: &Model,
    state: &State,
    reconcile: &Reconcile,
    change: &WorkloadChange,
) -> Result<(), Violation> {
    let workload = &state.workload.now;
    let facts = model.translator.facts(state.last_status());
    let own_pause = state.memory.pause.as_ref();
    match change.paused {
        Some(true) if state.memory.user_paused => violation("replaces a user's pause".to_owned()),
        Some(true) => {
            let is_same =
                |pause: &&OwnPause| pause.belongs_to(workload) && Some(pause.index) == facts.index;
            match own_pause.filter(is_same).filter(|pause| pause.resumed && !pause.outdated) {
                Some(pause) => violation(format!("pauses again at {pause:?}")),
                None => Ok(()),
            }
        }
        Some(false) if workload.paused => {
            let may_lift = |pause: &OwnPause| {
                !pause.belongs_to(workload)
                    || facts.stable == Some(workload.template)
                    || pause.is_over(model, workload, reconcile.at)
            };
            if state.memory.user_paused || !own_pause.is_some_and(may_lift) {
                return violation(format!("ends a pause without a reason: {own_pause:?}"));
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

impl OwnPause {
    /// Whether this is a pause of the workload's current rollout.
    fn belongs_to(&self, workload: &Workload) -> bool {
        (self.template, self.steps) == (workload.template, workload.steps)
    }

    fn is_over(&self, model: &Model, workload: &Workload, now: Time) -> bool {
        let steps = &model.scope.steps[usize::from(workload.steps)];
        match steps.get(usize::from(self.index)) {
            Some(Step::Pause(Some(length))) => self.at + length <= now,
            _ => false,
        }
    }
}

/// Whether the annotation of the operator's pause marks the pause as over.
pub fn is_marked_over(model: &Model, annotation: Text) -> bool {
    let annotation: Value =
        serde_json::from_str(&model.translator.text(annotation)).unwrap_or_default();
    annotation["over"] == true
}

/// Records a pause by the operator.
pub fn record_pause(
    model: &Model,
    state: &mut State,
    reconcile: &Reconcile,
    change: &WorkloadChange,
) {
    if change.paused != Some(true) {
        return;
    }
    let workload = &state.workload.now;
    let index = model.translator.facts(workload.status).index.unwrap_or(0);
    let pause = OwnPause {
        template: workload.template,
        steps: workload.steps,
        index,
        at: reconcile.at,
        resumed: false,
        outdated: false,
    };
    let is_same = |old: &OwnPause| OwnPause { at: pause.at, ..old.clone() } == pause;
    if !state.memory.pause.as_ref().is_some_and(is_same) {
        state.memory.pause = Some(pause);
    }
}

/// Records the number of updated pods when the operator observes a user's pause of a rollout without steps.
pub fn record_held_pods(model: &Model, state: &mut State, view: &View) {
    let Workload { template, steps, paused, .. } = *view.workload;
    let has_steps = !model.scope.steps[usize::from(steps)].is_empty();
    let held = &mut state.memory.held;
    if !paused || has_steps {
        *held = None;
    } else if held.is_none_or(|(rev, _)| rev != template) {
        let is_updated = |pod: &&Pod| pod.is_active() && pod.rev == template;
        let updated = view.pods.iter().filter(is_updated).count();
        *held = Some((template, updated as u8));
    }
}

/// Whether the change of the status from `old` to `new` enters a partition step, or records held replicas for the
/// first time.
pub fn enters_partition(model: &Model, planned: &Workload, old: &Facts, new: &Facts) -> bool {
    let steps = &model.scope.steps[usize::from(planned.steps)];
    let from = if old.is_same_rollout(new) {
        old.index.map_or(0, |index| usize::from(index) + 1)
    } else {
        0
    };
    let to = usize::from(new.index.unwrap_or(0));
    let entered = (from..=to).filter_map(|index| steps.get(index));
    let is_recorded = old.held.is_none() && new.held.is_some();
    is_recorded || entered.into_iter().any(|step| matches!(step, Step::Partition(_)))
}

/// Checks a status.
pub fn check_status(
    model: &Model,
    state: &State,
    reconcile: &Reconcile,
    new: Status,
) -> Result<(), Violation> {
    let old = model.translator.facts(state.workload.now.status);
    let new = model.translator.facts(new);
    if old.stable.is_none() {
        check_first_stable(model, state, &old, &new)?;
    } else if new.stable != old.stable {
        check_new_stable(model, state, reconcile, &new)?;
    }
    if !new.is_rolling() {
        return Ok(());
    }
    let is_same_rollout = old.is_same_rollout(&new);
    let from = if is_same_rollout { old.index.unwrap_or(0) } else { 0 };
    let to = new.index.unwrap_or(0);
    if to < from {
        return violation(format!("the step index decreases from {from} to {to}"));
    }
    if to > from && is_same_rollout && reconcile.planned.paused && state.memory.user_paused {
        return violation(format!("advances from step {from} to {to} during a user's pause"));
    }
    let steps = &model.scope.steps[usize::from(reconcile.planned.steps)];
    for index in from..to.min(steps.len() as u8) {
        if !may_leave(model, state, reconcile, steps[usize::from(index)], index) {
            let pause = &state.memory.pause;
            return violation(format!("leaves step {index} for {to}; pause: {pause:?}"));
        }
    }
    Ok(())
}

/// A revision becomes stable only when all pods have it.
fn check_new_stable(
    model: &Model,
    state: &State,
    reconcile: &Reconcile,
    new: &Facts,
) -> Result<(), Violation> {
    let active = || state.pods.now.iter().filter(|pod| pod.is_active());
    let at_stable = active().filter(|pod| Some(pod.rev) == new.stable).count();
    let wanted = usize::from(reconcile.planned.replicas);
    if at_stable < wanted.max(1) && !model.scope.has_surprises() {
        return violation(format!("{:?} becomes stable with only {at_stable} pods", new.stable));
    }
    Ok(())
}

/// If a workload whose status was lost has pods that are not at the update revision, that revision does not become stable
/// immediately. A workload without a stable revision whose status was not lost is new: none of its revisions has worked, so
/// the first one that does becomes stable, whatever pods there are.
fn check_first_stable(
    model: &Model,
    state: &State,
    old: &Facts,
    new: &Facts,
) -> Result<(), Violation> {
    let mut pods = state.pods.now.iter();
    let is_old = |pod: &Pod| pod.is_active() && Some(pod.rev) != new.update;
    let was_lost = old.update.is_none();
    let is_settled = new.stable == new.update;
    if was_lost && is_settled && pods.any(is_old) && !model.scope.has_surprises() {
        return violation(format!("{:?} becomes stable immediately", new.stable));
    }
    Ok(())
}

/// Whether this rollout is fully promoted.
fn is_promoted(model: &Model, workload: &Workload) -> bool {
    let promotion = model.translator.promotion(workload.template, workload.steps);
    workload.promote_annotation == promotion && !workload.paused
}

fn may_leave(model: &Model, state: &State, reconcile: &Reconcile, step: Step, index: u8) -> bool {
    let planned = &reconcile.planned;
    if is_promoted(model, planned) {
        return true;
    }
    let pause = state.memory.pause.as_ref();
    let own_pause = pause.filter(|pause| pause.index == index && pause.belongs_to(planned));
    let is_resumed = own_pause.is_some_and(|pause| pause.resumed);
    match step {
        Step::Pause(_) => {
            is_resumed || own_pause.is_some_and(|it| it.is_over(model, planned, reconcile.at))
        }
        Step::Hook => {
            let has_passed = |run: &Run| {
                (run.id.point, run.id.rev) == (HookPoint::Step, planned.template)
                    && run.id.name == index
                    && run.id.generation >= state.memory.rollout_since
                    && run.phase == HookPhase::Successful
            };
            is_resumed || state.runs.now.iter().any(has_passed)
        }
        Step::Partition(kept) => {
            let active = state.pods.now.iter().filter(|pod| pod.is_active());
            let updated = active.filter(|pod| pod.rev == planned.template).count() as i64;
            let wanted = |replicas: u8| {
                let replicas = i64::from(replicas);
                replicas - kept.kept(replicas)
            };
            let at_entry = wanted(state.memory.replicas_at_partition);
            updated >= wanted(planned.replicas).min(at_entry) || model.scope.has_surprises()
        }
    }
}
