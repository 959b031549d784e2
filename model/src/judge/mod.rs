//! The invariants, checked at each write of the operator.
//!
//! A write is checked against what the operator could know: the workload that the quorum GET returned, and the
//! pods. Changes by kubelets and users that its caches have not observed yet are disregarded.

use gamekeeper_core::api::names::HookPoint;
use gamekeeper_core::api::{HookPhase, UpdateStrategyType};
use gamekeeper_core::observed::PodPhase;
use gamekeeper_core::write::DeletionReason;

use crate::model::{Model, Violation};
use crate::operator::Planned;
use crate::pauses;
use crate::scope::Quota;
use crate::state::*;
use crate::translate::View;

mod allowed;
mod guard;
mod in_place;
mod nodes;
mod ordinals;
pub mod sidecars;

pub use guard::{change_by_user, collection};

/// How long a success is valid.
const FRESH: Time = 6;
/// How far in the future a success may be dated, because clocks differ.
const AHEAD: Time = 1;

fn violation<T>(rule: &'static str, why: String) -> Result<T, Violation> {
    Err(Violation { rule, why })
}

/// A write with the state against which it is checked.
struct Case<'a> {
    model: &'a Model,
    state: &'a State,
    reconcile: &'a Reconcile,
    workload: &'a Workload,
}

/// Checks the deletions of a plan together, after the quorum GET: they are made in parallel, so a single one
/// does not show whether there are too many.
pub fn deletions(model: &Model, state: &State, reconcile: &Reconcile) -> Result<(), Violation> {
    let case = Case::new(model, state, reconcile);
    let is_scale_in =
        |write: &&Write| matches!(write, Write::DeletePod(_, DeletionReason::ScaleIn, _));
    if model.scope.stateful_set.is_some() {
        return Ok(()); // The ordinal alone shows whether a pod is one too many.
    }
    let deleted = reconcile.after.iter().filter(is_scale_in).count() as i64;
    let excess = case.excess();
    if deleted > excess.max(0) && !model.scope.has_surprises() {
        return violation(
            "2: enough pods",
            format!("{deleted} pods are deleted, but {excess} are surplus"),
        );
    }
    Ok(())
}

/// Checks a plan. Among other things, it must delete successful HookRuns whose action is no longer planned.
pub fn plan(model: &Model, view: &View, planned: &Planned) -> Result<(), Violation> {
    guard::plan(view, planned)?;
    hot_patches(view, planned)?;
    nodes::plan(model, view, planned)?;
    sidecars::plan(model, view, planned)?;
    let writes = || planned.before.iter().chain(&planned.after);
    if writes().any(|write| matches!(write, Write::Workload(_))) {
        return Ok(()); // Actions that depend on this change follow in the next plan.
    }
    let is_updating = |uid: Uid| {
        let mut pods = view.pods.iter();
        pods.any(|pod| pod.uid == uid && pod.is_updating())
    };
    let is_outdated = |run: &&Run| {
        run.phase == HookPhase::Successful
            && run.id.point != HookPoint::PostInplace
            && match run.id.sidecars {
                None => run.id.target.is_some_and(|it| it != view.workload.template),
                Some(_) => sidecars::is_outdated(view, run),
            }
            && !run.id.pod.is_some_and(is_updating)
            && !writes().any(|write| matches!(write, Write::DeleteRun(id) if *id == run.id))
    };
    match view.runs.iter().find(is_outdated) {
        Some(run) => violation(
            "1: hook first",
            format!("{run:?} is outdated, but kept by the plan {planned:?}"),
        ),
        None => Ok(()),
    }
}

/// Checks hot patches: once one has restarted a container, no other pod is patched.
fn hot_patches(view: &View, planned: &Planned) -> Result<(), Violation> {
    let is_hot = |write: &&Write| matches!(write, Write::Patch(patch) if patch.record.hot);
    let patch = planned.after.iter().find(is_hot);
    let mut pods = view.pods.iter().filter(|pod| pod.rev == view.workload.template);
    match (patch, pods.find(|pod| pod.was_restarted_by_hot_patch())) {
        (Some(patch), Some(pod)) => {
            violation("hot patches", format!("{patch:?} although another one restarted {pod:?}"))
        }
        _ => Ok(()),
    }
}

/// Checks a write right before it takes effect.
pub fn write(
    model: &Model,
    state: &State,
    reconcile: &Reconcile,
    write: &Write,
) -> Result<(), Violation> {
    let case = Case::new(model, state, reconcile);
    match write {
        Write::DeletePod(uid, reason, _) => case.deletion(*uid, *reason),
        Write::CloseGate(uid, rev, ..) => case.gate_closed(*uid, *rev),
        Write::Patch(patch) => case.patched(patch),
        Write::CreatePod { rev, ordinal, .. } => case.pod_created(*rev, *ordinal),
        Write::OpenGate(uid) => case.gate_opened(*uid),
        Write::DeleteRun(id) => case.run_deleted(id),
        Write::Workload(change) => {
            case.finalizer_removed(change)?;
            pauses::check_workload_change(model, state, reconcile, change)
        }
        _ => Ok(()),
    }
}

/// Whether a pod is ready and not being updated.
pub fn is_ready(pod: &Pod) -> bool {
    let is_running = pod.is_active() && pod.phase == PodPhase::Running;
    is_running && !pod.is_updating() && pod.ready.is_some()
}

/// Whether a pod is available.
pub fn is_available(model: &Model, pod: &Pod, now: Time) -> bool {
    let is_long_enough = |since| since + model.scope.min_ready <= now;
    is_ready(pod) && pod.ready.is_some_and(is_long_enough)
}

/// Whether there is at least one pod and all pods are available. From then on, pods are no longer created in batches.
pub fn are_all_available(model: &Model, state: &State) -> bool {
    let pods = state.pods.now.iter();
    let available = pods.filter(|pod| is_available(model, pod, state.clock));
    let replicas = usize::from(state.workload.now.replicas);
    model.scope.batch > 0 && available.count() >= replicas.max(1)
}

/// Checks a state.
pub fn state(model: &Model, state: &State) -> Result<(), Violation> {
    guard::state(model, state)?;
    sidecars::state(model, state)?;
    let pods = &state.pods.now;
    let is_restarted =
        |pod: &&Pod| pod.rev == state.workload.now.template && pod.was_restarted_by_hot_patch();
    if pods.iter().filter(is_restarted).count() > 1 {
        return violation("hot patches", format!("more than one was restarted: {pods:?}"));
    }
    for (index, pod) in pods.iter().enumerate() {
        if let Some(other) = pods[index + 1..].iter().find(|it| it.name == pod.name) {
            return violation("7: ordinals", format!("{pod:?} and {other:?}"));
        }
        let has_its_index = |it: &&Pod| pod.index.is_some() && it.index == pod.index;
        if let Some(other) = pods[index + 1..].iter().find(has_its_index) {
            return violation("7: pod indexes", format!("{pod:?} and {other:?}"));
        }
    }
    let runs = &state.runs.now;
    for (index, run) in runs.iter().enumerate() {
        let is_duplicate = |other: &&Run| match run.id.pod {
            Some(_) => (other.id.pod, other.id.point) == (run.id.pod, run.id.point),
            None => other.id.has_same_name(&run.id),
        };
        if let Some(other) = runs[index + 1..].iter().find(is_duplicate) {
            return violation("6: one HookRun", format!("{run:?} and {other:?}"));
        }
    }
    Ok(())
}

impl<'a> Case<'a> {
    fn new(model: &'a Model, state: &'a State, reconcile: &'a Reconcile) -> Self {
        Self {
            model,
            state,
            reconcile,
            workload: reconcile.judged.as_ref().unwrap_or(&reconcile.planned),
        }
    }

    fn deletion(&self, uid: Uid, reason: DeletionReason) -> Result<(), Violation> {
        let Some(pod) = self.state.pod(uid).filter(|pod| !pod.has_ended()) else {
            return Ok(());
        };
        let is_for_update = reason == DeletionReason::Update;
        match reason {
            DeletionReason::ScaleIn | DeletionReason::Reserved => self.scaled_in(pod)?,
            DeletionReason::WorkloadDeleted => self.deleted_with_its_workload(pod)?,
            DeletionReason::NodeLost => return self.on_lost_node(pod),
            DeletionReason::Ended | DeletionReason::EndedAtOnce => {
                return violation("1: hook first", format!("{pod:?} runs"));
            }
            DeletionReason::Replace if !self.is_replacement_requested(pod) => {
                return violation("2: enough pods", format!("{pod:?} must not be replaced"));
            }
            DeletionReason::Replace => self.budget(pod)?,
            DeletionReason::Update => {
                self.update_starts(pod)?;
                self.budget(pod)?;
                self.given_up_for_quota(pod)?;
            }
        }
        let needs_pre_delete = self.has_hook(HookPoint::PreDelete) || self.is_guarded(pod);
        let point = if is_for_update && !needs_pre_delete {
            HookPoint::PreInplace
        } else {
            HookPoint::PreDelete
        };
        if self.is_past_deadline(pod) || self.may_go_without_hook(pod) {
            return Ok(());
        }
        let target = is_for_update.then_some(self.workload.template);
        let is_for_deletion = |run: &RunId| run.sidecars.is_none() && run.changes.is_none();
        self.hook_first(pod, point, target, self.reconcile.at, is_for_deletion)
    }

    /// Until a pod of a template exists for which a quota has no room, one pod is given up for it, and no other one if
    /// that was in vain.
    fn given_up_for_quota(&self, pod: &Pod) -> Result<(), Violation> {
        let template = self.workload.template;
        let quota = self.model.scope.quota.filter(|quota| quota.rev == template);
        let exists = self.state.pods.now.iter().any(|pod| pod.rev == template);
        let is_missing = (self.active().count() as i64) < self.replicas();
        let was_in_vain = self.state.operator.refused.is_some_and(|it| it.trial == Trial::Failed);
        let is_vain = |quota: Quota| is_missing || was_in_vain || !quota.may_have_room();
        match !exists && quota.is_some_and(is_vain) {
            true => violation("one trial", format!("{pod:?} is given up, too")),
            false => Ok(()),
        }
    }

    fn has_hook(&self, point: HookPoint) -> bool {
        self.workload.hooked && self.model.scope.has_hook(point)
    }

    fn point_of_change(&self) -> HookPoint {
        if self.has_hook(HookPoint::PreInplace) {
            HookPoint::PreInplace
        } else {
            HookPoint::PreDelete
        }
    }

    /// Invariant 1.
    fn hook_first(
        &self,
        pod: &Pod,
        point: HookPoint,
        target: Option<Rev>,
        at: Time,
        is_for_action: impl Fn(&RunId) -> bool,
    ) -> Result<(), Violation> {
        if !pod.up {
            return Ok(());
        }
        if !self.has_hook(point) {
            return self.hook_not_removed(pod, point);
        }
        let allows = |run: &Run| {
            run.id.point == point
                && run.id.pod == Some(pod.uid)
                && run.id.target == target
                && is_for_action(&run.id)
                && run.id.hook == self.workload.hook
                && run.phase == HookPhase::Successful
                && run.finished + FRESH >= at
                && run.finished <= self.reconcile.at + AHEAD
        };
        if self.state.runs.now.iter().any(allows) {
            return Ok(());
        }
        let runs = &self.state.runs.now;
        violation(
            "1: hook first",
            format!("{pod:?} without {point:?} for {target:?}; runs: {runs:?}"),
        )
    }

    /// Invariant 5. The API server must also have accepted the revision, and with OnDelete no update starts.
    fn update_starts(&self, pod: &Pod) -> Result<(), Violation> {
        if self.workload.strategy == UpdateStrategyType::OnDelete {
            return violation("on delete", format!("an update of {pod:?} starts"));
        }
        if self.workload.paused {
            return violation("5: paused", format!("an update of {pod:?} starts"));
        }
        if self.model.scope.refused == Some(self.workload.template) {
            return violation("accepted first", format!("an update of {pod:?} starts"));
        }
        Ok(())
    }

    /// Invariant 2, before an update or a replacement of this pod. A pod that is ready may have players, even if
    /// it is not available yet.
    fn budget(&self, pod: &Pod) -> Result<(), Violation> {
        let seen = self.reconcile.seen_available;
        let is_available = |pod: &Pod| is_available(self.model, pod, self.reconcile.at);
        if !is_ready(pod) || self.reconcile.seen_ready & (1 << pod.uid) == 0 {
            return Ok(());
        }
        // The operator cannot know of pods that broke after it observed them.
        let was_available = |uid: &Uid| seen & !self.reconcile.touched & (1 << uid) != 0;
        let uids = (0..32).filter(|uid| *uid != pod.uid);
        let remaining = uids.filter(|uid| match self.state.pod(*uid) {
            Some(it) => (was_available(uid) || is_available(it)) && !self.is_victim(it),
            None => was_available(uid),
        });
        let remaining = remaining.count() as i64;
        let floor = self.replicas() - self.model.scope.max_unavailable(self.workload.replicas);
        if remaining < floor {
            return violation(
                "2: enough pods",
                format!("without {pod:?}, only {remaining} pods are available, fewer than {floor}"),
            );
        }
        Ok(())
    }

    /// Invariant 3, before another pod is updated to a revision.
    fn updated_to(&self, rev: Rev, name: Name) -> Result<(), Violation> {
        let update = self.workload.template;
        if rev != update {
            return violation("3: partition", format!("revision {rev} instead of {update}"));
        }
        if self.model.scope.stateful_set.is_some() {
            return self.ordinal_updated(name);
        }
        if !self.is_rollout() {
            return Ok(()); // Without a rollout there is no limit, even if there are too many pods.
        }
        let is_updated = |pod: &&Pod| pod.rev == update && !self.is_victim(pod);
        let updated = self.active().filter(is_updated).count() as i64 + 1;
        let max = self.max_updated();
        if updated > max {
            return violation("3: partition", format!("{updated} pods are updated, above {max}"));
        }
        Ok(())
    }

    fn pod_created(&self, rev: Rev, ordinal: Option<Name>) -> Result<(), Violation> {
        let facts = self.model.translator.facts(self.state.last_status());
        if facts.stable != Some(rev) {
            self.updated_to(rev, ordinal.unwrap_or(0))?;
        }
        self.in_batches()?;
        if let Some(ordinal) = ordinal {
            return self.ordinal_created(ordinal);
        }
        let surplus =
            self.active().count() as i64 - self.replicas() - self.surge_with_replacements();
        let excess = surplus + 1;
        if excess > 0 {
            return violation("2: not too many pods", format!("{excess} too many"));
        }
        Ok(())
    }

    /// The first pods are created in batches until all have been available at the same time.
    fn in_batches(&self) -> Result<(), Violation> {
        let batch = usize::from(self.model.scope.batch);
        if batch == 0 || self.state.memory.all_available {
            return Ok(());
        }
        let is_awaited = |pod: &&Pod| {
            let is_available = is_available(self.model, pod, self.state.clock);
            !is_available && !self.is_victim(pod)
        };
        let awaited = self.active().filter(is_awaited).count();
        if awaited < batch {
            return Ok(());
        }
        violation("batches", format!("a pod is created while {awaited} others are not available"))
    }

    /// A pod that was chosen for deletion stays chosen: after a change of choice, a second pod would wait for its
    /// players to leave.
    fn run_deleted(&self, id: &RunId) -> Result<(), Violation> {
        let is_current = self.state.workload.now.generation == self.workload.generation
            && id.hook == self.workload.hook
            && self.workload.hooked
            && self.workload.guard.deletion.is_none()
            && self.workload.pods_to_delete.is_empty()
            // The cache may not yet show that another pod will be moved.
            && !self.active().any(|pod| pod.move_requested.is_some())
            && !self.model.scope.has_surprises();
        let is_live = |run: &Run| run.id == *id && !run.phase.is_completed();
        let is_chosen = id.point == HookPoint::PreDelete && id.target.is_none();
        let pod = id.pod.and_then(|uid| self.state.pod(uid));
        if !is_current
            || !is_chosen
            // A released pod is deleted without its hook.
            || !pod.is_some_and(|pod| pod.is_active() && !pod.released)
            || !self.state.runs.now.iter().any(is_live)
        {
            return Ok(());
        }
        let waiting = self.active().filter(|pod| self.is_waiting(pod)).count() as i64;
        let has_ordinals = self.model.scope.stateful_set.is_some();
        if has_ordinals && self.wanted(self.surge()).contains(&id.name) {
            return Ok(());
        }
        if has_ordinals || self.excess() >= waiting {
            return violation(
                "choice of pods",
                format!("{id:?} is canceled while there are too many pods"),
            );
        }
        Ok(())
    }
}
