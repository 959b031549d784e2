//! The hooks of pods: whether a hook allows an action, and which HookRuns are started, kept and deleted.
//!
//! A rule that intends an action asks with [`Hooks::may_touch`], or [`Hooks::ask`] directly. Neither changes anything:
//! the answer comes with what it needs ([`Needs`]). [`Hooks::settle`] does that for all answers together. [`runs`]
//! decides which HookRun counts for which action.

mod answer;
mod asked;
mod case;
mod configured;
mod intent;
mod lost_node;
mod need;
pub(super) mod retry;
pub(super) mod run_maker;
mod runs;
mod same_plan;
mod settle;
mod template_order;
mod token;
mod waiting;

pub(super) use asked::{Asked, Needs};
pub(super) use intent::{Intent, Target};
pub use same_plan::makes_same_plan;
pub(super) use settle::{Awaited, Refused, RunningHook, Settled};
pub use token::token_hook;

use std::cell::OnceCell;
use std::collections::{BTreeMap, HashMap, HashSet};

use kube::ResourceExt;

use crate::api::names::{self, HookPoint};
use crate::api::{HookRun, PauseReason};
use crate::observed::{Pod, PodUid};
use crate::workload::hooks::configured::Hook;
use crate::workload::hooks::retry::Retry;
use crate::workload::spec::Workload;
use crate::workload::world::World;
use crate::write::WorkloadPatch;

/// The HookRuns of a workload's pods, and the hooks that are configured.
pub(super) struct Hooks<'a> {
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
}

impl<'a> Hooks<'a> {
    /// The HookRuns of this world, by point and pod.
    pub(super) fn new(workload: &'a Workload<'a>, world: &'a World) -> Self {
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
        }
    }

    /// Whether a hook is configured for a point.
    pub(super) fn is_configured(&self, point: HookPoint) -> bool {
        self.hooks.contains_key(&point)
    }

    /// Whether an action on this pod needs a hook at this point: one is configured, or the pod is still guarded
    /// although its PreDelete hook was removed from the workload.
    pub(super) fn is_needed(&self, point: HookPoint, pod: &Pod) -> bool {
        self.is_configured(point) || self.hook_was_removed(point, pod)
    }

    /// Ends a retry when no run that it covers is left. A retry that begins now includes the points of
    /// the previous one, so the annotation stays.
    pub(super) fn end_retry(&self) -> Option<WorkloadPatch> {
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
}
