//! What a plan does for the answers of all hooks together, and what the status shows of it.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use jiff::Timestamp;
use kube::ResourceExt;

use crate::api::names::HookPoint;
use crate::api::{HookRun, PodHookCondition, WaitReason};
use crate::observed::time::earlier;
use crate::observed::{Pod, PodRef, PodUid};
use crate::workload::decision::Concern;
use crate::workload::hooks::need::{Mark, Need, RunNeed, Start, Wait};
use crate::workload::hooks::run_maker::{CannotMake, HookMaker, Subject};
use crate::workload::hooks::runs::message_of;
use crate::workload::hooks::{Hooks, Needs, lost_node};
use crate::write::{Rehearsal, Write};

/// The maximum number of pod hooks that one plan starts. Each run is a copy of its template, and no more
/// than this number can be created in the half second for which a plan is valid. The next plan starts the others.
const MAX_STARTS: usize = 500;
/// The maximum length of the runs that one plan starts, in bytes of JSON, for the same reason: a template may be 1 MB.
const MAX_STARTED_BYTES: usize = 2 << 20;

/// What a plan does about the hooks of pods.
pub(crate) struct Settled<'a> {
    /// Starts hooks, deletes runs that nothing needs, and marks pods.
    pub writes: Vec<Write>,
    /// What the status shows.
    pub awaited: Awaited<'a>,
}

/// The hooks that pods wait for.
#[derive(Default)]
pub(crate) struct Awaited<'a> {
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
    /// When the next hook is run again, the next deadline of a pod passes, or the next pod on a lost node is given up.
    pub wake: Option<Timestamp>,
    /// Why hooks could not be created, and what that blocks.
    pub problems: BTreeSet<(Concern, CannotMake)>,
    /// Pods that get the annotation game-pod-deleting.
    marked: HashMap<PodUid<'a>, Mark>,
}

/// The start of a run.
#[allow(clippy::large_enum_variant, reason = "most are made now, and none is kept")]
enum Started {
    /// It is started. The API server refused that a moment ago, or what it allows, for this reason if there is one.
    Now(Write, Option<String>),
    /// It is left to a later plan.
    Later,
    /// It cannot be created, which blocks this concern.
    Never(Concern, CannotMake),
}

/// A pod whose hook was not successful and is run again only when a user asks for it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Refused {
    /// When the hook started.
    pub since: Timestamp,
    /// The pod, and how the hook ended.
    pub message: String,
}

/// A pod whose hook is running.
pub(crate) struct RunningHook<'a> {
    /// The pod's name.
    pub pod: &'a str,
    /// When the hook was created.
    pub since: Timestamp,
    /// Why its last measurement ended in an error, if it did.
    pub error: Option<&'a str>,
}

/// A guarded pod that waits for its PreDelete hook.
pub(crate) struct Waiting<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// Why it waits.
    pub reason: WaitReason,
    /// The reason as a sentence.
    pub message: String,
}

impl Awaited<'_> {
    /// Since when this pod waits for its deletion, as decided by this plan.
    pub(crate) fn waiting_since(&self, pod: &Pod) -> Option<Timestamp> {
        self.marked.get(&pod.uid()).and_then(|mark| mark.since)
    }
}

impl<'a> Hooks<'a> {
    /// What the plan does for these needs: starts hooks, deletes HookRuns that nothing needs anymore or whose pods no
    /// longer exist or are Terminating, and adds and removes the annotation game-pod-deleting.
    pub(crate) fn settle(&self, needs: Needs<'a>, pods: &[&'a Pod]) -> Settled<'a> {
        let mut awaited = Awaited { wake: self.next_given_up(pods), ..Awaited::default() };
        let (mut writes, mut kept) = (Vec::new(), HashSet::new());
        for Need { pod, point, run, mut mark, mut wait, deadline } in needs.0 {
            awaited.wake = earlier(awaited.wake, deadline);
            match run {
                RunNeed::Nothing => {}
                RunNeed::Keep(run) => {
                    kept.insert(name(run));
                }
                RunNeed::Await(run) => {
                    kept.insert(name(run));
                    let since = run.creation_timestamp().map_or(self.world.now, |it| it.0);
                    let running = RunningHook { pod: &pod.name, since, error: run.current_error() };
                    awaited.running.entry(point).or_default().push(running);
                }
                RunNeed::Refused(run, rerun_at) => {
                    kept.insert(name(run));
                    self.add_refused(&mut awaited, run, rerun_at, pod, point);
                }
                RunNeed::Start(start) => {
                    let is_marked = start.is_marked;
                    match self.start(*start, pod, point, writes.len()) {
                        Started::Now(write, refusal) => {
                            writes.push(write);
                            wait = wait.map(|wait| refusal.map_or(wait, Wait::cannot_run));
                        }
                        Started::Later => mark = mark.filter(|_| is_marked),
                        Started::Never(concern, problem) => {
                            // The deadline of a guarded pod starts now.
                            mark = mark.filter(|_| wait.is_some());
                            wait = wait.map(|_| Wait::cannot_run(problem.to_string()));
                            awaited.problems.insert((concern, problem));
                        }
                    }
                }
            }
            if let Some(mark) = mark {
                let marked = awaited.marked.entry(pod.uid()).or_insert(mark);
                marked.since = marked.since.or(mark.since);
            }
            if let Some(Wait { reason, message }) = wait {
                awaited.waiting.entry(&pod.name).or_insert(Waiting { pod, reason, message });
            }
        }
        writes.extend(self.unneeded_runs(&kept));
        writes.extend(marks(pods, &awaited.marked));
        Settled { writes, awaited }
    }

    /// Starts a run, unless this plan starts as many as it may already, or the run's name is taken: by the run of an
    /// earlier pod with the same ordinal, which has to be deleted first.
    fn start(&self, start: Start, pod: &Pod, point: HookPoint, started: usize) -> Started {
        let Some(hook) = self.hooks.get(&point) else {
            return Started::Later;
        };
        let target = start.target.target();
        let changes = start.changes.as_deref();
        let subject = Subject::Pod { pod, target, modified: &start.modified, changes };
        let run = match hook.maker(self.workload, self.world) {
            Ok(maker)
                if started >= most_starts(maker) || self.is_name_taken(&maker.name(&subject)) =>
            {
                return Started::Later;
            }
            Ok(maker) => maker.make(&subject),
            Err(problem) => Err(problem.clone()),
        };
        let run = match run {
            Ok(run) => run,
            Err(problem) => return Started::Never(target.concern(), problem),
        };
        let deletion = || Rehearsal::of_deletion(target.attempt(), &PodRef::of(pod));
        let rehearsal = start.rehearsal.or_else(|| start.deletes.then(deletion));
        let failures = &self.world.memory.failures;
        let rehearsed = rehearsal.as_ref().and_then(|it| failures.of(it.attempt));
        let write = Write::create_run(run, rehearsal);
        let refusal = write.attempt().and_then(|it| failures.of(it)).or(rehearsed);
        let refusal = refusal.map(str::to_owned);
        Started::Now(write, refusal)
    }

    fn add_refused(
        &self,
        awaited: &mut Awaited<'a>,
        run: &HookRun,
        rerun_at: Option<Timestamp>,
        pod: &Pod,
        point: HookPoint,
    ) {
        awaited.wake = earlier(awaited.wake, rerun_at);
        if let Some(at) = rerun_at {
            let first = awaited.reruns.entry(point).or_insert(at);
            *first = at.min(*first);
        }
        let started = run.status.as_ref().and_then(|status| status.started_at.clone());
        let Some(start_time) = started.or_else(|| run.creation_timestamp()) else {
            return;
        };
        let message = message_of(run);
        if rerun_at.is_none() {
            let refused = Refused {
                since: start_time.0,
                message: format!(
                    "the {} hook of pod {} ended {:?}: {}; it is run again with {}",
                    point.as_str(),
                    pod.name,
                    run.phase(),
                    message,
                    self.workload.command("retry", &format!(" --point {}", point.as_str()))
                ),
            };
            awaited.refused = awaited.refused.take().into_iter().chain([refused]).min();
        }
        awaited.blocked.entry(point).or_default().push(PodHookCondition {
            pod_name: pod.name.clone(),
            phase: run.phase(),
            start_time,
            message,
        });
    }

    /// Deletes the runs that are not kept.
    fn unneeded_runs(&self, kept: &HashSet<&str>) -> impl Iterator<Item = Write> {
        let is_unneeded = |run: &&&HookRun| {
            !kept.contains(name(run)) && run.metadata.deletion_timestamp.is_none()
        };
        let runs = self.pod_runs.iter().filter(is_unneeded);
        runs.map(|run| Write::delete_run(run))
    }

    /// When the next guarded pod on a lost node is given up.
    fn next_given_up(&self, pods: &[&Pod]) -> Option<Timestamp> {
        let staying = pods.iter().filter(|pod| !pod.terminating);
        let given_up =
            staying.filter_map(|pod| lost_node::given_up_at(self.workload, self.world, pod));
        given_up.filter(|at| *at > self.world.now).min()
    }
}

/// Adds and removes the annotations of pods whose hooks run. Other clients may have changed either of them.
fn marks(pods: &[&Pod], marked: &HashMap<PodUid, Mark>) -> Vec<Write> {
    let pods = pods.iter().filter(|pod| !pod.terminating);
    let writes = pods.filter_map(|pod| {
        let shown = (pod.marked_deleting, pod.waiting_since);
        match marked.get(&pod.uid()) {
            Some(Mark { since }) => {
                (shown != (true, *since)).then(|| Write::mark_deleting(PodRef::of(pod), *since))
            }
            None => (shown != (false, None)).then(|| Write::unmark_deleting(pod)),
        }
    });
    writes.collect()
}

fn name(run: &HookRun) -> &str {
    run.metadata.name.as_deref().unwrap_or_default()
}

/// How many runs of a hook one plan starts.
fn most_starts(maker: &HookMaker) -> usize {
    MAX_STARTS.min(MAX_STARTED_BYTES / maker.run_bytes.max(1)).max(1)
}
