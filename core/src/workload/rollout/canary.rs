//! Canary steps: the current step of a rollout, and how far it may go. No more pods are updated than partition
//! and steps allow (invariant 3). A pause ends only when a user ends it or its duration is over, and the step
//! index only grows (invariant 4).
//!
//! The pause of a step is one patch of the workload: `paused: true` together with an annotation that
//! names the revision, step list and step. A user who sets `paused: false` resumes. The annotation
//! distinguishes the operator's own pause from a user's, survives a crash at any point, and becomes void
//! when the template or the steps change. So even during a pause, one patch of the image is enough to roll back.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

use crate::api::names::{self, HookPoint};
use crate::api::{CanaryStep, HookPhase, HookRun, HookStep, PauseCondition, PauseReason};
use crate::observed::RevisionName;
use crate::observed::limits::partition;
use crate::observed::time::{duration, rounded_up};
use crate::workload::decision::Draft;
use crate::workload::hooks::retry::Retry;
use crate::workload::hooks::run_maker;
use crate::workload::hooks::run_maker::CannotMake;
use crate::workload::hooks::run_maker::{HookMaker, Subject};
use crate::workload::rollout::pause::{OwnPause, lift, remove};
use crate::workload::rollout::{pause, promotion, undo};
use crate::workload::spec::Progress;
use crate::workload::spec::Workload;
use crate::workload::world::World;
use crate::write::Write;

/// How far a rollout may go right now.
#[derive(Clone, Debug, PartialEq)]
pub struct Rollout {
    /// Its progress, as the status records it.
    pub progress: Progress,
    /// Pods to keep at the old revision.
    pub partition: i64,
    /// Pods that should be at the update revision: those beyond the partition, or fewer while the
    /// rollout is held by a step or a pause that began with fewer.
    pub target: i64,
    /// Whether no pod update may start.
    pub paused: bool,
    /// Why the HookRun of the current step cannot be created.
    pub problem: Option<CannotMake>,
    /// Whether a resume is ignored because it came with an apply.
    pub resume_ignored: bool,
    /// Whether the next plan ends a pause of the operator.
    pub ends_pause: bool,
}

/// The counts of pods that steps depend on. Victims are not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Pods at the update revision.
    pub updated: i64,
    /// Those of them that are available.
    pub updated_available: i64,
    /// Whether a pod is being updated to the update revision in place.
    pub any_changing_in_place: bool,
    /// Pods that are not at the update revision, except those whose replacement was requested.
    pub old: i64,
}

/// The state of a rollout, and the actions that follow from it.
#[derive(Debug)]
pub(crate) struct Advance {
    /// None if the steps start over and HookRuns of an earlier rollout have to be deleted first, so that none of them
    /// is mistaken for one of this rollout.
    pub rollout: Option<Rollout>,
    /// The actions.
    pub draft: Draft,
}

/// Computes the state of the rollout to `update`. `stable` is None if no revision has worked yet.
pub(crate) fn advance(
    workload: &Workload,
    world: &World,
    stable: Option<RevisionName>,
    update: RevisionName,
    counts: Counts,
) -> Advance {
    let hash = workload.step_hash();
    let recorded = &workload.progress;
    let mut progress = Progress {
        update_revision: update.to_string(),
        step_hash: hash.clone(),
        pause_conditions: Vec::new(),
        ..recorded.clone()
    };
    progress.canary.revision = stable.map(|it| it.to_string()).unwrap_or_default();
    let stable = stable.unwrap_or(update);
    progress.canary.pause_start_time = None;
    let started_over = recorded.update() != update || recorded.step_hash != hash;
    if started_over {
        // The number of held replicas belongs to an earlier rollout.
        progress.canary.held_replicas = None;
    }
    let runs = world.runs.iter().map(AsRef::as_ref);
    let runs: Vec<&HookRun> = runs.filter(|run| is_step_run(workload, run)).collect();
    let mut draft = Draft::default();
    let has_steps = update != stable && !workload.steps.is_empty();
    if started_over && has_steps {
        if !runs.is_empty() {
            draft.extend(deletions(&runs));
            return Advance { rollout: None, draft };
        }
        progress.step_index = Some(0);
    }
    let pause = OwnPause::of(workload.annotations);
    let is_current = |pause: &&OwnPause| {
        has_steps && pause.revision == update.as_str() && Some(&pause.step_hash) == hash.as_ref()
    };
    let current_pause = pause.as_ref().filter(is_current);
    let foreign_pause = pause.as_ref().filter(|_| current_pause.is_none());
    // The annotation goes once the status shows that its rollout is over. Without annotation, a pause in the status is one
    // that a client has dropped (`Walk::pause`), and a rollout that comes back must not end with the time of the one before.
    let is_told = !started_over || recorded.pause_conditions.is_empty();
    draft.patch_workload(foreign_pause.filter(|_| is_told).map(|pause| lift(workload, pause)));
    let promoted = has_steps && promotion::is_promoted(workload, update);
    if !promoted {
        draft.patch_workload(promotion::forget(workload));
    }
    draft.patch_workload(undo::to_stable(workload, world, stable, update));
    let walk = Walk {
        workload,
        world,
        stable,
        update,
        counts,
        runs,
        pause: current_pause,
        lifted: foreign_pause.is_some_and(|pause| !pause.over),
        ends_later: foreign_pause.is_some() && !is_told,
        started_over,
        skips_steps: !has_steps || (promoted && !workload.paused),
        problem: None,
        resume_ignored: false,
        draft,
    };
    walk.run(progress)
}

struct Walk<'a> {
    workload: &'a Workload<'a>,
    world: &'a World,
    stable: RevisionName<'a>,
    update: RevisionName<'a>,
    counts: Counts,
    runs: Vec<&'a HookRun>,
    pause: Option<&'a OwnPause>,
    /// Whether the operator's pause of another rollout ends in this plan or the next.
    lifted: bool,
    /// Whether it ends in the next plan.
    ends_later: bool,
    /// Whether this plan is the first of the rollout.
    started_over: bool,
    /// Whether the rollout has no steps, or a user lets it skip the remaining ones.
    skips_steps: bool,
    /// Why the HookRun of the current step cannot be created.
    problem: Option<CannotMake>,
    /// Whether a resume is ignored because it came with an apply.
    resume_ignored: bool,
    /// The actions so far.
    draft: Draft,
}

/// Whether a rollout may leave a step.
enum Step {
    /// It continues with the next step.
    Done,
    /// It stays at this step.
    Wait,
}

impl<'a> Walk<'a> {
    /// Walks from step to step until one holds the rollout.
    fn run(mut self, mut progress: Progress) -> Advance {
        let end = i32::try_from(self.workload.steps.len()).unwrap_or(i32::MAX);
        let recorded_index = self.workload.progress.step_index.unwrap_or(0);
        let mut index = progress.step_index.unwrap_or(0).clamp(0, end);
        if self.pause.is_some_and(|pause| pause.index < recorded_index) {
            // The status shows a later step: the annotation is no longer needed, and `paused` belongs to
            // the user again.
            self.draft.patch_workload(remove());
        }
        if self.skips_steps {
            self.draft.extend(deletions(&self.runs));
            index = end;
        }
        while index < end && !self.paused_by_user(index) {
            self.enter(index, &mut progress);
            match self.step(index, &mut progress) {
                Step::Done => index += 1,
                Step::Wait => break,
            }
        }
        if self.workload.held.is_some() && self.is_recorded(index) && self.pause_at(index).is_none()
        {
            // The annotation of a pause may be gone, and cannot be written again at present.
            self.keep_pauses(&mut progress);
        }
        let paused = self.is_paused(index);
        let (partition, target) = if index == end {
            self.after_steps(index, &mut progress)
        } else {
            let kept = self.kept_at(index).unwrap_or(self.workload.replicas);
            (kept, self.target(index, &progress))
        };
        let hook = self.spec_of(index).and_then(|step| step.hook.as_ref());
        let run_name = hook.map(|hook| run_maker::step_run_name(hook, self.update, index));
        progress.canary.current_step_hook_run = run_name;
        progress.step_index = (end > 0).then_some(index);
        Advance {
            rollout: Some(Rollout {
                progress,
                partition,
                target,
                paused,
                problem: self.problem,
                resume_ignored: self.resume_ignored,
                ends_pause: self.ends_later,
            }),
            draft: self.draft,
        }
    }

    /// How many pods are kept and how many updated when no step holds the rollout. While a user's pause lasts,
    /// the number of pods at the update revision must not grow: a scale-out must not spread a build that was stopped.
    fn after_steps(&self, index: i32, progress: &mut Progress) -> (i64, i64) {
        let is_stable = self.update == self.stable;
        let kept = if is_stable { 0 } else { self.workload.partition };
        let wanted = (self.workload.replicas - kept).max(0);
        let recorded = progress.canary.held_replicas.map(i64::from);
        let held = recorded.unwrap_or(self.counts.updated.min(wanted));
        let held = (self.paused_by_user(index) && !is_stable).then_some(held);
        progress.canary.held_replicas = held.and_then(|held| i32::try_from(held).ok());
        (kept, held.map_or(wanted, |held| held.min(wanted)))
    }

    /// The operator's pause of this step.
    fn pause_at(&self, index: i32) -> Option<&'a OwnPause> {
        self.pause.filter(|pause| pause.index == index)
    }

    /// Whether the workload is paused by a user rather than by the operator.
    fn paused_by_user(&self, index: i32) -> bool {
        let is_own_pause = self.lifted || self.pause_at(index).is_some_and(|pause| !pause.over);
        self.workload.paused && !is_own_pause
    }

    /// Whether no pod update may start at this step.
    fn is_paused(&self, index: i32) -> bool {
        let at_pause_step = self.spec_of(index).is_some_and(|step| step.pause.is_some());
        let held = self.pause_at(index).is_some_and(|pause| !self.resumed(pause));
        at_pause_step || held || self.ends_later || self.paused_by_user(index)
    }

    fn resumed(&self, pause: &OwnPause) -> bool {
        pause.over || (!self.workload.paused && !self.workload.resume_by_apply)
    }

    /// Enters a step: a partition step records how many pods it updates. There is nothing to record while there are no
    /// pods: what no pod has run is not proven.
    fn enter(&self, index: i32, progress: &mut Progress) {
        let held = &mut progress.canary.held_replicas;
        let is_new =
            self.started_over || Some(index) != self.workload.progress.step_index || held.is_none();
        let is_new = is_new && self.workload.replicas > 0;
        if let Some(kept) = self.partition_of(index).filter(|_| is_new) {
            *held = i32::try_from((self.workload.replicas - kept).max(0)).ok();
        }
    }

    fn spec_of(&self, index: i32) -> Option<&'a CanaryStep> {
        self.workload.steps.get(usize::try_from(index).ok()?)
    }

    fn partition_of(&self, index: i32) -> Option<i64> {
        let partition_step = self.spec_of(index)?.partition.as_ref()?;
        Some(partition(Some(partition_step), self.workload.replicas))
    }

    /// Number of pods that the last partition step up to `index` keeps at the old revision; None if there
    /// is no partition step up to `index`.
    fn kept_at(&self, index: i32) -> Option<i64> {
        let mut steps = (0..=index).rev();
        steps.find_map(|index| self.partition_of(index))
    }

    /// Number of pods that should be at the update revision while step `index` holds: the number that the last
    /// partition step recorded, but no more than that step allows; 0 before the first partition step.
    fn target(&self, index: i32, progress: &Progress) -> i64 {
        let Some(kept) = self.kept_at(index) else {
            return 0;
        };
        let allowed = (self.workload.replicas - kept).max(0);
        // If a user's pause is older than the rollout, no step has recorded anything yet.
        let updated = self.counts.updated;
        let held = progress.canary.held_replicas.map_or(updated, i64::from);
        let target = held.min(allowed);
        // A scale-out must not spread a build that a user has stopped.
        match self.paused_by_user(index) {
            true => target.min(updated),
            false => target,
        }
    }

    fn step(&mut self, index: i32, progress: &mut Progress) -> Step {
        let Some(step) = self.spec_of(index) else {
            return Step::Wait;
        };
        if step.partition.is_some() {
            let target = self.target(index, progress);
            let Counts { updated, updated_available, any_changing_in_place, old } = self.counts;
            // A pod that a surge pod has replaced is deleted first: during a pause, it would stay.
            let replicas = self.workload.replicas;
            let done = replicas > 0
                && updated >= target
                && updated_available >= target
                && old <= replicas - target
                && !any_changing_in_place;
            return if done { Step::Done } else { Step::Wait };
        }
        if let Some(pause) = self.pause_at(index) {
            if self.resumed(pause) {
                return Step::Done;
            }
            let is_for_hook = pause.reason == PauseReason::PausedByStepBasedHook;
            self.hold_pause(pause, step, progress);
            let retry = Retry::of(self.workload).filter(|it| is_for_hook && it.is_of_step());
            if let Some(retry) = retry {
                self.retry_hook(index, retry);
            }
            return Step::Wait;
        }
        match (&step.pause, &step.hook) {
            (Some(_), _) => {
                let begun = self.begun(index, PauseReason::PausedByCanaryPauseStep);
                let end = begun.and_then(|it| end_of(step, it.start_time.0));
                if end.is_some_and(|end| end <= self.world.now) {
                    return Step::Done;
                }
                self.pause(index, PauseReason::PausedByCanaryPauseStep, progress);
                Step::Wait
            }
            (None, Some(hook)) => self.hook_step(index, hook, progress),
            (None, None) => Step::Done, // Nothing to do; the schema refuses such a step.
        }
    }

    /// Holds the operator's own pause: shows it in the status, ends it when its duration is over, and pauses
    /// again after a `paused: false` that came with an apply.
    fn hold_pause(&mut self, pause: &OwnPause, step: &CanaryStep, progress: &mut Progress) {
        progress
            .pause_conditions
            .push(PauseCondition { reason: pause.reason, start_time: Time(pause.time) });
        if pause.reason == PauseReason::PausedByCanaryPauseStep {
            progress.canary.pause_start_time = Some(Time(pause.time));
        }
        self.resume_ignored = pause.apply_ignored || self.workload.resume_by_apply;
        let end = end_of(step, pause.time);
        match end {
            Some(end) if end <= self.world.now => {
                self.draft.patch_workload(pause::end(pause));
            }
            Some(end) => self.draft.wake_at(end),
            None => {}
        }
        if !self.workload.paused && end.is_none_or(|end| end > self.world.now) {
            self.draft
                .patch_workload(pause::set(&OwnPause { apply_ignored: true, ..pause.clone() }));
        }
    }

    /// Whether the status shows that this rollout has reached this step.
    fn is_recorded(&self, index: i32) -> bool {
        !self.started_over && self.workload.progress.step_index == Some(index)
    }

    /// The pause of this step in the status. A client that replaces the whole workload drops the annotation of a pause that
    /// has begun.
    fn begun(&self, index: i32, reason: PauseReason) -> Option<&'a PauseCondition> {
        let mut pauses = self.workload.progress.pause_conditions.iter();
        pauses.find(|it| it.reason == reason && self.is_recorded(index))
    }

    /// Lets the status show the pauses that it shows.
    fn keep_pauses(&self, progress: &mut Progress) {
        let recorded = &self.workload.progress;
        progress.pause_conditions.clone_from(&recorded.pause_conditions);
        progress.canary.pause_start_time.clone_from(&recorded.canary.pause_start_time);
    }

    /// Pauses, once the status shows that the rollout has reached this step.
    fn pause(&mut self, index: i32, reason: PauseReason, progress: &mut Progress) {
        if !self.is_recorded(index) {
            return;
        }
        let begun = self.begun(index, reason);
        if begun.is_some() {
            self.keep_pauses(progress);
        }
        let pause = OwnPause {
            revision: self.update.to_string(),
            step_hash: self.workload.step_hash().unwrap_or_default(),
            index,
            reason,
            time: begun.map_or_else(|| rounded_up(self.world.now), |it| it.start_time.0),
            over: false,
            apply_ignored: false,
        };
        self.draft.patch_workload(pause::set(&pause));
    }

    /// Lets the hook of a step run again: deletes the unsuccessful run, and ends the pause once it is gone.
    fn retry_hook(&mut self, index: i32, retry: Retry) {
        let hook = self.spec_of(index).and_then(|step| step.hook.as_ref());
        let name = hook.map(|hook| run_maker::step_run_name(hook, self.update, index));
        let run = self.runs.iter().find(|run| Some(run.name_any()) == name);
        match run {
            Some(run) => self.draft.extend(deletions(&[run])),
            None => {
                self.draft.patch_workload(pause::begin_again());
                self.draft.patch_workload(retry.end_of_step());
            }
        }
    }

    fn hook_step(&mut self, index: i32, hook: &HookStep, progress: &mut Progress) -> Step {
        let name = run_maker::step_run_name(hook, self.update, index);
        let is_own = |run: &HookRun| {
            let workload_uid = run.annotations().get(names::RUN_WORKLOAD_UID);
            workload_uid == Some(&self.workload.uid) && run.name_any() == name
        };
        let run = self.runs.iter().find(|run| is_own(run));
        match run.map(|run| run.phase()) {
            Some(HookPhase::Successful) => return Step::Done,
            Some(HookPhase::Pending | HookPhase::Running) => {}
            Some(HookPhase::Failed | HookPhase::Error | HookPhase::Inconclusive) => {
                self.pause(index, PauseReason::PausedByStepBasedHook, progress);
            }
            None => {
                let subject = Subject::Step { revision: self.update, index };
                let maker = HookMaker::new(self.workload, self.world, HookPoint::Step, hook);
                match maker.and_then(|maker| maker.make(&subject)) {
                    Ok(run) => self.draft.extend([Write::create_run(run, None)]),
                    Err(problem) => self.problem = Some(problem),
                }
            }
        }
        Step::Wait
    }
}

/// When the pause of a step ends that began at this time; None if only a user ends it.
fn end_of(step: &CanaryStep, start: Timestamp) -> Option<Timestamp> {
    let length = step.pause.as_ref()?.duration.as_ref().and_then(duration)?;
    start.checked_add(length).ok()
}

fn is_step_run(workload: &Workload, run: &HookRun) -> bool {
    run.point(workload.kind) == Some(HookPoint::Step)
}

/// Deletes runs that are not being deleted already.
fn deletions(runs: &[&HookRun]) -> Vec<Write> {
    let remaining = runs.iter();
    let remaining = remaining.filter(|run| run.metadata.deletion_timestamp.is_none());
    remaining.map(|run| Write::delete_run(run)).collect()
}
