//! The HookRuns of pods: which one belongs to an action, and how long its success is valid.
//!
//! A HookRun counts only for the action that it was created for: the same pod (uid), target revision, changed
//! containers (none if the pod is deleted), workload (uid) and hook (template and arguments). It must also have the name that the operator gives
//! such a run, so a copy with a different name never counts.

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;

use crate::api::names::{self, HookPoint};
use crate::api::{HookPhase, HookRun};
use crate::observed::Pod;
use crate::observed::time::MAX_CLOCK_SKEW;
use crate::text::truncate;
use crate::workload::hooks::{Hooks, Intent, Target, run_maker};

/// How long a success is valid. It expires because players may have joined since.
const SUCCESS_VALIDITY: SignedDuration = SignedDuration::from_secs(60);

/// The longest message of a run that a status shows, in characters: a status shows the messages of hundreds of runs.
const MAX_MESSAGE: usize = 1_000;

/// Why a run ended as it did.
pub(super) fn message_of(run: &HookRun) -> String {
    let message = run.status.as_ref().and_then(|status| status.message.as_deref());
    truncate(message.unwrap_or_default(), MAX_MESSAGE)
}

impl<'a> Hooks<'a> {
    /// Whether a HookRun of this pod exists at this point, in whatever phase.
    pub(crate) fn has_run(&self, point: HookPoint, pod: &Pod) -> bool {
        self.runs.contains_key(&(point, pod.uid()))
    }

    /// Whether this pod has a HookRun for an update of its sidecars alone.
    pub(crate) fn has_run_for_sidecars(&self, point: HookPoint, pod: &Pod) -> bool {
        let runs = self.runs.get(&(point, pod.uid()));
        runs.into_iter().flatten().any(|run| {
            let target = run.annotations().get(names::RUN_TARGET);
            target.is_some_and(|it| Target::is_for_sidecars(it, pod.revision()))
        })
    }

    /// Whether this pod has a HookRun for its removal.
    pub(crate) fn has_removal_run(&self, pod: &Pod) -> bool {
        let runs = self.runs.get(&(HookPoint::PreDelete, pod.uid()));
        runs.into_iter().flatten().any(|run| run.is_for_removal())
    }

    /// Whether this pod's hook was successful for the intent's target, and the success is still valid.
    pub(crate) fn has_passed(&self, pod: &Pod, intent: &Intent) -> bool {
        self.run_for(pod, intent).is_some_and(|run| {
            run.phase() == HookPhase::Successful && self.is_fresh(run, intent.at)
        })
    }

    /// Until when the success of this pod's hook is valid.
    pub(crate) fn valid_until(&self, pod: &Pod, intent: &Intent) -> Option<Timestamp> {
        let status = self.run_for(pod, intent)?.status.as_ref()?;
        status.finished_at.as_ref()?.0.checked_add(SUCCESS_VALIDITY).ok()
    }

    /// Whether this pod's hook has refused its removal, and is not to be run again now.
    pub(crate) fn has_refused_removal(&self, pod: &Pod) -> bool {
        let intent = Intent::removal(self.world.now);
        let run = self
            .run_for(pod, &intent)
            .filter(|run| run.phase().is_completed() && run.phase() != HookPhase::Successful);
        run.is_some_and(|run| {
            let rerun_at = self.rerun_at(run, pod, &intent);
            !self.is_retried(intent.point, run) && rerun_at.is_none_or(|at| at > self.world.now)
        })
    }

    /// When the run of this pod's removal hook refused the removal; None if it did not, or there is no run.
    pub(crate) fn refused_at(&self, pod: &Pod) -> Option<Timestamp> {
        let run = self.run_for(pod, &Intent::removal(self.world.now))?;
        let has_refused = run.phase().is_completed() && run.phase() != HookPhase::Successful;
        let finished = run.status.as_ref()?.finished_at.as_ref()?;
        has_refused.then_some(finished.0)
    }

    pub(super) fn run_for(&self, pod: &Pod, intent: &Intent) -> Option<&'a HookRun> {
        let hook = self.hooks.get(&intent.point)?;
        let runs = self.runs.get(&(intent.point, pod.uid()))?;
        let name = run_maker::pod_run_name(hook.step, intent.point, pod, intent.target);
        runs.iter().copied().find(|run| {
            let annotations = run.annotations();
            let annotation = |key: &str| annotations.get(key).map(String::as_str);
            run.metadata.name.as_ref() == Some(&name)
                && annotation(names::RUN_TARGET) == Some(intent.target.annotation())
                && annotation(names::RUN_CHANGES) == intent.changes
                && annotation(names::RUN_HOOK_HASH) == Some(hook.hash.as_str())
                && annotation(names::RUN_WORKLOAD_UID) == Some(self.workload.uid.as_str())
                && run.metadata.deletion_timestamp.is_none()
        })
    }

    /// Whether a run's success is valid at this time.
    pub(super) fn is_fresh(&self, run: &HookRun, at: Timestamp) -> bool {
        let status = run.status.as_ref();
        let finished = status.and_then(|status| status.finished_at.as_ref());
        finished.is_some_and(|finished| {
            at.duration_since(finished.0) <= SUCCESS_VALIDITY
                && finished.0.duration_since(self.world.now) <= MAX_CLOCK_SKEW
        })
    }

    pub(super) fn is_name_taken(&self, name: &str) -> bool {
        let names = self.names.get_or_init(|| {
            let runs = self.world.runs.iter();
            let names = runs.filter_map(|it| it.metadata.name.as_deref());
            names.collect()
        });
        names.contains(name)
    }
}
