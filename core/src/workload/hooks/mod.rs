//! The hooks of pods: whether a hook allows an action, and which HookRuns are started, kept and deleted.
//!
//! A rule that intends an action calls [`Hooks::may_touch`], or [`Hooks::clear`] directly. A HookRun that no rule has
//! needed by the end of the plan is deleted.
//! [`runs`] decides which HookRun counts for which action.

mod lost_node;
pub mod retry;
pub mod run_maker;

mod case;
mod configured;
mod intent;
mod runs;
mod same_plan;
mod template_order;
mod token;
mod waiting;

pub use intent::{Intent, Target};
pub use same_plan::makes_same_plan;
pub use token::token_hook;
pub use waiting::Waiting;

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use jiff::Timestamp;
use kube::ResourceExt;

use crate::api::names::{self, HookPoint};
use crate::api::{HookPhase, HookRun, PauseReason, PodHookCondition, WaitReason};
use crate::guard::HookAnswer;
use crate::observed::time::earlier;
use crate::observed::{Pod, PodRef, PodUid};
use crate::text::truncate;
use crate::workload::decision::Concern;
use crate::workload::hooks::configured::Hook;
use crate::workload::hooks::retry::Retry;
use crate::workload::hooks::run_maker::CannotMake;
use crate::workload::hooks::run_maker::HookMaker;
use crate::workload::hooks::run_maker::Subject;
use crate::workload::spec::Workload;
use crate::workload::world::World;
use crate::write::{Rehearsal, WorkloadPatch, Write};

/// The maximum number of pod hooks that one plan starts. Each run is a copy of its template, and no more
/// than this number can be created in the half second for which a plan is valid. The next plan starts the others.
const MAX_STARTS: usize = 500;
/// The maximum length of the runs that one plan starts, in bytes of JSON, for the same reason: a template may be 1 MB.
const MAX_STARTED_BYTES: usize = 2 << 20;
/// The longest message of a run that a status shows, in characters: a status shows the messages of hundreds of runs.
const MAX_MESSAGE: usize = 1_000;

/// A pod whose hook was not successful and is run again only when a user asks for it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Refused {
    /// When the hook started.
    pub since: Timestamp,
    /// The pod, and how the hook ended.
    pub message: String,
}

/// A pod whose hook is running.
pub struct RunningHook<'a> {
    /// The pod's name.
    pub pod: &'a str,
    /// When the hook was created.
    pub since: Timestamp,
    /// Why its last measurement ended in an error, if it did.
    pub error: Option<&'a str>,
}

/// The HookRuns of a workload's pods, and what the plan does with them.
pub struct Hooks<'a> {
    workload: &'a Workload<'a>,
    world: &'a World,
    /// The runs of pods, in the order in which they were observed.
    pod_runs: Vec<&'a HookRun>,
    /// The same runs by point and pod.
    runs: HashMap<(HookPoint, PodUid<'a>), Vec<&'a HookRun>>,
    /// The hooks that are configured.
    hooks: BTreeMap<HookPoint, Hook<'a>>,
    /// The names of all runs, collected before the first one is created.
    names: OnceCell<HashSet<&'a str>>,
    retry: Option<Retry>,
    /// The names of the runs to keep.
    wanted: HashSet<&'a str>,
    /// Pods that get the annotation game-pod-deleting. For those that wait for their deletion: since when, which a second
    /// annotation shows.
    marked: HashMap<PodUid<'a>, Option<Timestamp>>,
    /// Hooks to start.
    starts: Vec<Write>,
    /// Pods whose hook did not end Successful, by point.
    pub blocked: BTreeMap<HookPoint, Vec<PodHookCondition>>,
    /// When the first hook of a point that did not end Successful is run again without a user.
    pub reruns: BTreeMap<HookPoint, Timestamp>,
    /// Pods whose hook is running, by point.
    pub running: BTreeMap<HookPoint, Vec<RunningHook<'a>>>,
    /// The pod with a hook that did not end Successful that has waited longest for a user.
    pub refused: Option<Refused>,
    /// Guarded pods that wait for their PreDelete hook, by name.
    pub waiting: BTreeMap<&'a str, Waiting<'a>>,
    /// When the next hook is run again, or the next deadline of a pod passes.
    pub wake: Option<Timestamp>,
    /// Why hooks could not be created, and what that blocks.
    pub problems: BTreeSet<(Concern, CannotMake)>,
}

impl<'a> Hooks<'a> {
    /// The HookRuns of this world, by point and pod.
    pub fn new(workload: &'a Workload<'a>, world: &'a World) -> Self {
        let mut pod_runs = Vec::new();
        let mut runs: HashMap<_, Vec<_>> = HashMap::new();
        for run in &world.runs {
            let point = run.pod_point(workload.kind);
            let pod = run.annotations().get(names::RUN_POD_UID);
            if let (Some(point), Some(pod)) = (point, pod) {
                pod_runs.push(run.as_ref());
                runs.entry((point, PodUid::of(pod))).or_default().push(run.as_ref());
            }
        }
        let points = HookPoint::OF_PODS.into_iter();
        let configured = points.filter_map(|point| Hook::of(workload, point));
        Self {
            workload,
            world,
            pod_runs,
            runs,
            hooks: configured.map(|hook| (hook.point, hook)).collect(),
            names: OnceCell::new(),
            retry: Retry::of(workload),
            wanted: HashSet::new(),
            marked: HashMap::new(),
            starts: Vec::new(),
            blocked: BTreeMap::new(),
            reruns: BTreeMap::new(),
            running: BTreeMap::new(),
            refused: None,
            waiting: BTreeMap::new(),
            wake: None,
            problems: BTreeSet::new(),
        }
    }

    /// Whether a hook is configured for a point.
    pub fn is_configured(&self, point: HookPoint) -> bool {
        self.hooks.contains_key(&point)
    }

    /// Whether an action on this pod needs a hook at this point: one is configured, or the pod is still guarded
    /// although its PreDelete hook was removed from the workload.
    pub fn is_needed(&self, point: HookPoint, pod: &Pod) -> bool {
        self.is_configured(point) || self.hook_was_removed(point, pod)
    }

    /// Whether the pod's hook allows an action, or the deadline of spec.protection allows the deletion of a guarded
    /// pod even though its hook does not.
    pub fn clear(&mut self, pod: &'a Pod, intent: &Intent) -> HookAnswer {
        if self.hook_was_removed(intent.point, pod) {
            if intent.possible || self.waits_already(pod, intent) {
                self.mark(pod, intent);
            }
            let message = format!(
                "its PreDelete hook was removed from the workload; configure a hook, or confirm with kubectl game \
                 release pod/{} -n {}",
                pod.name, pod.namespace
            );
            self.record_wait(pod, intent, WaitReason::HookRemoved, message);
            return self.past_deadline(pod, intent).unwrap_or(HookAnswer::Held);
        }
        match self.state(pod, intent) {
            HookAnswer::Held => {
                let (reason, message) = (WaitReason::HookRunning, String::new());
                self.record_wait(pod, intent, reason, message);
                self.past_deadline(pod, intent).unwrap_or(HookAnswer::Held)
            }
            answer => {
                // The pod waits until it is deleted: the deletion may be refused, or come too late.
                if self.waits_already(pod, intent) {
                    self.record_wait(pod, intent, WaitReason::HookRunning, String::new());
                }
                answer
            }
        }
    }

    /// Whether the pod's hook allows an action. The hook is started only if the pod has no run at this point, in any
    /// phase (invariant 6). A run that is not checked here is deleted by [`Hooks::settle`].
    fn state(&mut self, pod: &'a Pod, intent: &Intent) -> HookAnswer {
        if !self.is_configured(intent.point) {
            return HookAnswer::Allowed;
        }
        let Some(run) = self.run_for(pod, intent) else {
            if intent.possible && !self.has_run(intent.point, pod) {
                self.start(pod, intent);
            } else if self.waits_already(pod, intent) || (pod.marked_deleting && intent.possible) {
                // The run of another intent is deleted first; the pod stays marked meanwhile. And the deadline of a pod
                // whose hook cannot run must not start over because its deletion is not possible for a moment.
                self.mark(pod, intent);
            }
            return HookAnswer::Held;
        };
        match run.phase() {
            HookPhase::Successful if self.is_fresh(run, intent.at) => {
                self.keep(run, pod, intent);
                HookAnswer::Allowed
            }
            // `settle` deletes the run, and the next plan starts another one. The pod stays marked meanwhile.
            HookPhase::Successful if intent.possible => {
                if pod.marked_deleting || self.waits_already(pod, intent) {
                    self.mark(pod, intent);
                }
                HookAnswer::Held
            }
            HookPhase::Pending | HookPhase::Running | HookPhase::Successful => {
                self.record_running(run, pod, intent.point);
                self.keep(run, pod, intent);
                HookAnswer::Held
            }
            HookPhase::Failed | HookPhase::Error | HookPhase::Inconclusive => {
                self.block(run, pod, intent);
                HookAnswer::Held
            }
        }
    }

    /// Keeps only the hooks of removals. It is not known yet which pods will be updated, and a success of an earlier
    /// rollout must not count after a revert.
    pub fn keep_only_removals(&mut self, pods: &[&'a Pod]) {
        for pod in pods.iter().filter(|pod| !pod.terminating) {
            let intent = Intent { possible: false, ..Intent::removal(self.world.now) };
            if let Some(run) = self.run_for(pod, &intent) {
                self.keep(run, pod, &intent);
            } else if self.waits_already(pod, &intent) {
                // Its hook cannot run. Its deadline must not start over.
                self.mark(pod, &intent);
            }
        }
    }

    /// Starts hooks, deletes HookRuns that no rule needs anymore or whose pods no longer exist or are Terminating,
    /// and adds and removes the annotation game-pod-deleting.
    pub fn settle(&mut self, pods: &[&Pod]) -> Vec<Write> {
        let mut writes = std::mem::take(&mut self.starts);
        for run in &self.pod_runs {
            let name = run.metadata.name.as_deref().unwrap_or_default();
            if !self.wanted.contains(name) && run.metadata.deletion_timestamp.is_none() {
                writes.push(Write::delete_run(run));
            }
        }
        // Other clients may have changed either annotation.
        for pod in pods.iter().filter(|pod| !pod.terminating) {
            let shown = (pod.marked_deleting, pod.waiting_since);
            match self.marked.get(&pod.uid()) {
                Some(&since) if shown != (true, since) => {
                    writes.push(Write::mark_deleting(PodRef::of(pod), since));
                }
                None if shown != (false, None) => {
                    writes.push(Write::unmark_deleting(pod));
                }
                _ => {}
            }
        }
        writes
    }

    /// Marks a pod whose hook runs. The deadline of guarded pods applies only to deletions, and only to the PreDelete
    /// hook. So the time that a pod waits for an in-place update is not recorded.
    fn mark(&mut self, pod: &'a Pod, intent: &Intent) {
        if intent.point.marks_pods() {
            let waits = &self.workload.waits;
            let since = self.may_wait(intent).then(|| waits.since(pod, self.world.now));
            let marked = self.marked.entry(pod.uid()).or_default();
            *marked = marked.or(since);
        }
    }

    /// Ends a retry when no run that it covers is left. A retry that begins now includes the points of
    /// the previous one, so the annotation stays.
    pub fn end_retry(&self) -> Option<WorkloadPatch> {
        let begins = !self.workload.hooks.points_to_retry().is_empty();
        let retry = self.retry.as_ref().filter(|_| !begins)?;
        let mut pauses = self.workload.progress.pause_conditions.iter();
        let is_paused = pauses.any(|it| it.reason == PauseReason::PausedByStepBasedHook);
        if retry.is_of_step() && is_paused {
            return None;
        }
        let is_left = self.runs.iter().any(|((point, _), runs)| {
            let mut runs = runs.iter();
            runs.any(|run| retry.covers(*point, run))
        });
        (!is_left).then(retry::end)
    }

    /// Whether a user requested that this unsuccessful run is repeated.
    fn is_retried(&self, point: HookPoint, run: &HookRun) -> bool {
        let retry = self.retry.as_ref();
        retry.is_some_and(|retry| retry.covers(point, run))
    }

    fn keep(&mut self, run: &'a HookRun, pod: &'a Pod, intent: &Intent) {
        self.wanted.insert(run.metadata.name.as_deref().unwrap_or_default());
        self.mark(pod, intent);
    }

    fn record_running(&mut self, run: &'a HookRun, pod: &'a Pod, point: HookPoint) {
        if run.phase().is_completed() {
            return;
        }
        let since = run.creation_timestamp().map_or(self.world.now, |it| it.0);
        let running = RunningHook { pod: &pod.name, since, error: run.current_error() };
        self.running.entry(point).or_default().push(running);
    }

    fn block(&mut self, run: &'a HookRun, pod: &'a Pod, intent: &Intent) {
        self.mark(pod, intent);
        if self.is_retried(intent.point, run) {
            return;
        }
        let status = run.status.as_ref();
        let message = status.and_then(|it| it.message.as_deref()).unwrap_or_default();
        let message = truncate(message, MAX_MESSAGE);
        let why = format!("its PreDelete hook ended {:?}: {}", run.phase(), message);
        self.record_wait(pod, intent, WaitReason::HookNotSuccessful, why);
        let rerun_at = self.rerun_at(run, pod, intent);
        if rerun_at.is_some_and(|at| at <= self.world.now) {
            // `settle` deletes the run, and the next plan starts another one.
            return;
        }
        self.wake = earlier(self.wake, rerun_at);
        if let Some(at) = rerun_at {
            let first = self.reruns.entry(intent.point).or_insert(at);
            *first = at.min(*first);
        }
        self.keep(run, pod, intent);
        let started = status.and_then(|status| status.started_at.clone());
        let Some(start_time) = started.or_else(|| run.creation_timestamp()) else {
            return;
        };
        if rerun_at.is_none() {
            let refused = Refused {
                since: start_time.0,
                message: format!(
                    "the {} hook of pod {} ended {:?}: {}; it is run again with {}",
                    intent.point.as_str(),
                    pod.name,
                    run.phase(),
                    message,
                    self.workload.command("retry", &format!(" --point {}", intent.point.as_str()))
                ),
            };
            let earliest = self.refused.take().into_iter().chain([refused]).min();
            self.refused = earliest;
        }
        self.blocked.entry(intent.point).or_default().push(PodHookCondition {
            pod_name: pod.name.clone(),
            phase: run.phase(),
            start_time,
            message,
        });
    }

    fn start(&mut self, pod: &'a Pod, intent: &Intent) {
        let Some(hook) = self.hooks.get(&intent.point) else {
            return;
        };
        let subject = Subject::Pod {
            pod,
            target: intent.target,
            modified: intent.modified,
            changes: intent.changes,
        };
        let run = match hook.maker(self.workload, self.world) {
            // This plan already starts as many runs as it may, or the run's name is taken: by the run of an
            // earlier pod with the same ordinal, which has to be deleted first.
            Ok(maker)
                if self.starts.len() >= most_starts(maker)
                    || self.is_name_taken(&maker.name(&subject)) =>
            {
                if pod.marked_deleting || self.waits_already(pod, intent) {
                    self.mark(pod, intent);
                }
                return;
            }
            Ok(maker) => maker.make(&subject),
            Err(problem) => Err(problem.clone()),
        };
        match run {
            Ok(run) => {
                let rehearsal = intent.rehearsal.cloned();
                let deletion = || Rehearsal::of_deletion(intent.attempt(), &PodRef::of(pod));
                let rehearsal = rehearsal.or_else(|| intent.deletes.then(deletion));
                let failures = &self.world.failures;
                let tried = rehearsal.as_ref().and_then(|it| failures.of(it.attempt));
                let start = Write::create_run(run, rehearsal);
                if let Some(why) = start.attempt().and_then(|it| failures.of(it)).or(tried) {
                    self.record_wait(pod, intent, WaitReason::HookCannotRun, why.to_owned());
                }
                self.starts.push(start);
                self.mark(pod, intent);
            }
            Err(problem) => {
                let is_guarded = self.workload.guarded.is_some();
                if is_guarded && intent.point == HookPoint::PreDelete {
                    // The pod's deadline starts now.
                    self.mark(pod, intent);
                    self.record_wait(pod, intent, WaitReason::HookCannotRun, problem.to_string());
                }
                self.problems.insert((intent.target.concern(), problem));
            }
        }
    }
}

/// How many runs of a hook one plan starts.
fn most_starts(maker: &HookMaker) -> usize {
    MAX_STARTS.min(MAX_STARTED_BYTES / maker.run_bytes.max(1)).max(1)
}
