//! What must always hold (design, section 4), judged at each write of the operator.
//!
//! The operator is judged by what it could know: the workload as the quorum GET before the write
//! showed it, and the pods as they are, save for what kubelets and users did to them since its
//! caches saw them.

use gamekeeper_core::api::HookPhase;
use gamekeeper_core::api::names::HookPoint;
use gamekeeper_core::plan::{DeletionReason, PodPhase};

use crate::model::{Broken, Model};
use crate::operator::Planned;
use crate::pauses;
use crate::state::*;
use crate::translate::View;

mod allowed;
mod ordinals;

/// How long a success is good for.
const FRESH: Time = 6;
/// By how much it may be in the future, because clocks differ.
const AHEAD: Time = 1;

fn broken<T>(rule: &'static str, why: String) -> Result<T, Broken> {
    Err(Broken { rule, why })
}

/// A write, and what it is judged by.
struct Case<'a> {
    model: &'a Model,
    state: &'a State,
    sync: &'a Sync,
    workload: &'a Workload,
}

/// Judges the deletions of a plan together, when the quorum GET has shown the workload: made side
/// by side, no single one of them tells whether there are too many pods.
pub fn deletions(model: &Model, state: &State, sync: &Sync) -> Result<(), Broken> {
    let case = Case::new(model, state, sync);
    let scale_in =
        |write: &&Write| matches!(write, Write::DeletePod(_, DeletionReason::ScaleIn, _));
    if model.scope.set.is_some() {
        return Ok(()); // An ordinal says by itself whether its pod is one too many.
    }
    let too_many = sync.after.iter().filter(scale_in).count() as i64;
    let excess = case.excess();
    if too_many > excess.max(0) && !model.scope.has_surprises() {
        return broken(
            "2: enough pods",
            format!("{too_many} pods go, {excess} are too many"),
        );
    }
    Ok(())
}

/// Judges a plan: no success outlives its reason.
pub fn plan(view: &View, planned: &Planned) -> Result<(), Broken> {
    let writes = || planned.before.iter().chain(&planned.after);
    if writes().any(|write| matches!(write, Write::Workload(_))) {
        return Ok(()); // What rests on that change comes with the next plan.
    }
    let is_under_way = |uid: Uid| {
        let mut pods = view.pods.iter();
        pods.any(|pod| pod.uid == uid && pod.is_under_way())
    };
    let is_outdated = |run: &&Run| {
        run.phase == HookPhase::Successful
            && run.id.point != HookPoint::PostInplace
            && run.id.target.is_some_and(|it| it != view.workload.template)
            && !run.id.pod.is_some_and(is_under_way)
            && !writes().any(|write| matches!(write, Write::DeleteRun(id) if *id == run.id))
    };
    match view.runs.iter().find(is_outdated) {
        Some(run) => broken(
            "1: hook first",
            format!("{run:?} outlives its reason; the plan is {planned:?}"),
        ),
        None => Ok(()),
    }
}

/// Judges a write right before it takes effect.
pub fn write(model: &Model, state: &State, sync: &Sync, write: &Write) -> Result<(), Broken> {
    let case = Case::new(model, state, sync);
    match write {
        Write::DeletePod(uid, reason, _) => case.deletion(*uid, *reason),
        Write::CloseGate(uid, rev, ..) => case.gate_closed(*uid, *rev),
        Write::Patch(patch) => case.patched(patch),
        Write::CreatePod { rev, ordinal, .. } => case.pod_created(*rev, *ordinal),
        Write::OpenGate(uid) => case.gate_opened(*uid),
        Write::DeleteRun(id) => case.run_deleted(id),
        Write::Workload(change) => pauses::workload(model, state, sync, change),
        _ => Ok(()),
    }
}

/// Whether a pod is ready, and no update of it has begun.
pub fn is_ready(pod: &Pod) -> bool {
    let is_running = pod.is_active() && pod.phase == PodPhase::Running;
    is_running && !pod.is_under_way() && pod.ready.is_some()
}

/// Whether a pod can be counted on.
pub fn is_available(model: &Model, pod: &Pod, now: Time) -> bool {
    let is_long = |since| since + model.scope.min_ready <= now;
    is_ready(pod) && pod.ready.is_some_and(is_long)
}

/// Judges a state, whoever made it.
pub fn state(state: &State) -> Result<(), Broken> {
    let pods = &state.pods.now;
    for (place, pod) in pods.iter().enumerate() {
        if let Some(other) = pods[place + 1..].iter().find(|it| it.name == pod.name) {
            return broken("7: ordinals", format!("{pod:?} and {other:?}"));
        }
    }
    let runs = &state.runs.now;
    for (place, run) in runs.iter().enumerate() {
        let same = |other: &&Run| match run.id.pod {
            Some(_) => (other.id.pod, other.id.point) == (run.id.pod, run.id.point),
            None => other.id.has_name_of(&run.id),
        };
        if let Some(other) = runs[place + 1..].iter().find(same) {
            return broken("6: one HookRun", format!("{run:?} and {other:?}"));
        }
    }
    Ok(())
}

impl<'a> Case<'a> {
    fn new(model: &'a Model, state: &'a State, sync: &'a Sync) -> Self {
        Self {
            model,
            state,
            sync,
            workload: sync.judged.as_ref().unwrap_or(&sync.planned),
        }
    }

    fn deletion(&self, uid: Uid, reason: DeletionReason) -> Result<(), Broken> {
        let Some(pod) = self.state.pod(uid).filter(|pod| !pod.has_ended()) else {
            return Ok(());
        };
        let is_for_update = reason == DeletionReason::Update;
        match reason {
            DeletionReason::ScaleIn => self.removed(pod)?,
            DeletionReason::Ended | DeletionReason::EndedAtOnce => {
                return broken("1: hook first", format!("{pod:?} runs"));
            }
            DeletionReason::Replace if !self.workload.named.contains(&pod.name) => {
                return broken("2: enough pods", format!("nobody named {pod:?}"));
            }
            DeletionReason::Replace => self.budget(pod)?,
            DeletionReason::Update => {
                self.update_begins(pod)?;
                self.budget(pod)?;
            }
        }
        let point = if is_for_update && !self.has_hook(HookPoint::PreDelete) {
            HookPoint::PreInplace
        } else {
            HookPoint::PreDelete
        };
        let target = is_for_update.then_some(self.workload.template);
        self.hook_first(pod, point, target, self.sync.at)
    }

    fn gate_closed(&self, uid: Uid, rev: Rev) -> Result<(), Broken> {
        let Some(pod) = self.state.pod(uid).filter(|pod| pod.is_active()) else {
            return Ok(());
        };
        self.update_begins(pod)?;
        self.moved_to(rev, pod.name)?;
        self.budget(pod)?;
        self.hook_first(pod, self.point_of_change(), Some(rev), self.sync.at)
    }

    fn patched(&self, patch: &Patch) -> Result<(), Broken> {
        let Some(pod) = self.state.pod(patch.pod).filter(|pod| pod.is_active()) else {
            return Ok(());
        };
        self.update_begins(pod)?;
        self.moved_to(patch.rev, pod.name)?;
        self.budget(pod)?;
        if patch.record.hot || pod.is_patched() {
            return Ok(());
        }
        let at = match pod.gate {
            Gate::Closed(since) => since.at,
            _ => self.sync.at,
        };
        self.hook_first(pod, self.point_of_change(), Some(patch.rev), at)?;
        let is_open = matches!(pod.gate, Gate::Unset | Gate::Open);
        if is_open && pod.up {
            return broken("behind its gate", format!("{pod:?} is changed"));
        }
        Ok(())
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
    ) -> Result<(), Broken> {
        if !pod.up || !self.has_hook(point) {
            return Ok(());
        }
        let allows = |run: &Run| {
            run.id.point == point
                && run.id.pod == Some(pod.uid)
                && run.id.target == target
                && run.id.hook == self.workload.hook
                && run.phase == HookPhase::Successful
                && run.finished + FRESH >= at
                && run.finished <= self.sync.at + AHEAD
        };
        if self.state.runs.now.iter().any(allows) {
            return Ok(());
        }
        let runs = &self.state.runs.now;
        broken(
            "1: hook first",
            format!("{pod:?} without {point:?} for {target:?}; runs: {runs:?}"),
        )
    }

    /// Invariant 5, and that the API server has to accept a revision first.
    fn update_begins(&self, pod: &Pod) -> Result<(), Broken> {
        if self.workload.paused {
            return broken("5: paused", format!("an update of {pod:?} begins"));
        }
        if self.model.scope.refused == Some(self.workload.template) {
            return broken("accepted first", format!("an update of {pod:?} begins"));
        }
        Ok(())
    }

    /// Invariant 2, before an update or a replacement of this pod begins: ready for however short a
    /// time, it may have players.
    fn budget(&self, pod: &Pod) -> Result<(), Broken> {
        let seen = self.sync.seen_available;
        let is_available = |pod: &Pod| is_available(self.model, pod, self.sync.at);
        if !is_ready(pod) || self.sync.seen_ready & (1 << pod.uid) == 0 {
            return Ok(());
        }
        // What was seen available and broke since, the operator could not know.
        let by_sight = |uid: &Uid| seen & !self.sync.touched & (1 << uid) != 0;
        let uids = (0..32).filter(|uid| *uid != pod.uid);
        let left = uids.filter(|uid| match self.state.pod(*uid) {
            Some(it) => (by_sight(uid) || is_available(it)) && !self.is_victim(it),
            None => by_sight(uid),
        });
        let left = left.count() as i64;
        let floor = self.replicas() - self.model.scope.max_unavailable(self.workload.replicas);
        if left < floor {
            return broken(
                "2: enough pods",
                format!("{pod:?} leaves {left}, fewer than {floor}"),
            );
        }
        Ok(())
    }

    /// Invariant 3, before one more pod is brought to a revision.
    fn moved_to(&self, rev: Rev, name: Name) -> Result<(), Broken> {
        let update = self.workload.template;
        if rev != update {
            return broken(
                "3: partition",
                format!("revision {rev} instead of {update}"),
            );
        }
        if self.model.scope.set.is_some() {
            return self.ordinal_moved(name);
        }
        if !self.is_rollout() {
            return Ok(()); // There is nothing to hold back, also while there are too many pods.
        }
        let is_updated = |pod: &&Pod| pod.rev == update && !self.is_victim(pod);
        let updated = self.active().filter(is_updated).count() as i64 + 1;
        let most = self.may_be_updated();
        if updated > most {
            return broken(
                "3: partition",
                format!("{updated} pods are updated, above {most}"),
            );
        }
        Ok(())
    }

    fn pod_created(&self, rev: Rev, ordinal: Option<Name>) -> Result<(), Broken> {
        let facts = self.model.translator.facts(self.state.last_status());
        if facts.stable != Some(rev) {
            self.moved_to(rev, ordinal.unwrap_or(0))?;
        }
        if let Some(ordinal) = ordinal {
            return self.ordinal_made(ordinal);
        }
        let waiting = self.active().filter(|pod| self.is_waiting(pod)).count() as i64;
        let excess = self.excess() + 1 - waiting;
        if excess > 0 {
            return broken("2: not too many pods", format!("{excess} too many"));
        }
        Ok(())
    }

    /// An update is over only when the new image runs, and its PostInplace hook has said so.
    fn gate_opened(&self, uid: Uid) -> Result<(), Broken> {
        let Some(pod) = self.state.pod(uid).filter(|pod| pod.is_patched()) else {
            return Ok(());
        };
        if !pod.runs_its_spec() {
            return broken("done", format!("{pod:?} does not run its image yet"));
        }
        let (point, target) = (HookPoint::PostInplace, Some(pod.rev));
        let workload = &self.sync.planned;
        let is_guarded = workload.hooked && self.model.scope.post_inplace;
        let allows = |run: &Run| {
            (run.id.point, run.id.pod, run.id.target) == (point, Some(uid), target)
                && run.phase == HookPhase::Successful
                && run.id.hook == workload.hook
        };
        if is_guarded && !self.state.runs.now.iter().any(allows) {
            return broken(
                "1: hook first",
                format!("{pod:?} gets traffic without {point:?}"),
            );
        }
        Ok(())
    }

    /// Who was chosen to go stays chosen: nobody's players are sent off for nothing.
    fn run_deleted(&self, id: &RunId) -> Result<(), Broken> {
        let is_current = self.state.workload.now.generation == self.workload.generation
            && id.hook == self.workload.hook
            && self.workload.hooked
            && self.workload.named.is_empty()
            && !self.model.scope.has_surprises();
        let is_live = |run: &Run| run.id == *id && !run.phase.is_completed();
        let is_chosen = id.point == HookPoint::PreDelete && id.target.is_none();
        let is_there = id.pod.and_then(|uid| self.state.pod(uid));
        if !is_current
            || !is_chosen
            || !is_there.is_some_and(Pod::is_active)
            || !self.state.runs.now.iter().any(is_live)
        {
            return Ok(());
        }
        let waiting = self.active().filter(|pod| self.is_waiting(pod)).count() as i64;
        let is_in_order = self.model.scope.set.is_some();
        if is_in_order && i64::from(id.name) < self.replicas() + self.surge() {
            return Ok(());
        }
        if is_in_order || self.excess() >= waiting {
            return broken(
                "victims stay",
                format!("{id:?} is called off while too many are left"),
            );
        }
        Ok(())
    }
}
