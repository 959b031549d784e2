//! What a pod's hook answers to an intent, and what the answer needs. Nothing is changed here.

use jiff::Timestamp;

use crate::api::{HookPhase, HookRun, WaitReason};
use crate::guard::HookAnswer;
use crate::observed::Pod;
use crate::workload::hooks::need::{Mark, Need, RunNeed, Start, Wait};
use crate::workload::hooks::runs::message_of;
use crate::workload::hooks::{Asked, Hooks, Intent, Needs};

impl<'a> Hooks<'a> {
    /// Whether the pod's hook allows an action, or the deadline of spec.protection allows the deletion of a guarded
    /// pod even though its hook does not.
    pub(crate) fn ask(&self, pod: &'a Pod, intent: &Intent) -> Asked<'a, HookAnswer> {
        let (answer, need) = self.answer(pod, intent);
        Asked::new(answer, Needs(vec![need]))
    }

    /// The answer and what it needs, for the guard.
    pub(super) fn answer(&self, pod: &'a Pod, intent: &Intent) -> (HookAnswer, Need<'a>) {
        let (answer, mut need) = match self.hook_was_removed(intent.point, pod) {
            true => (HookAnswer::Held, self.need_of_removed_hook(pod, intent)),
            false => self.state(pod, intent),
        };
        if answer != HookAnswer::Held {
            // The pod waits until it is deleted: the deletion may be refused, or come too late.
            need.wait = self.waits_already(pod, intent).then(Wait::for_hook);
            return (answer, need);
        }
        let is_waiting = self.is_waiting(pod, intent);
        need.wait = is_waiting.then(|| need.wait.take().unwrap_or_else(Wait::for_hook));
        let deadline = self.deadline(pod, intent);
        if deadline.is_some_and(|at| at <= self.world.now) {
            return (HookAnswer::PastDeadline, need);
        }
        (answer, Need { deadline, ..need })
    }

    /// Whether the pod's hook allows an action. The hook is started only if the pod has no run at this point, in any
    /// phase (invariant 6). A run that is not kept is deleted by [`Hooks::settle`].
    fn state(&self, pod: &'a Pod, intent: &Intent) -> (HookAnswer, Need<'a>) {
        let need = |run| Need { run, ..Need::nothing(pod, intent.point) };
        if !self.is_configured(intent.point) {
            return (HookAnswer::Allowed, need(RunNeed::Nothing));
        }
        // The deadline of a pod whose hook cannot run must not start over because its deletion is not possible for a
        // moment.
        let stays_marked =
            self.waits_already(pod, intent) || (pod.marked_deleting && intent.possible);
        let Some(run) = self.run_for(pod, intent) else {
            if intent.possible && !self.has_run(intent.point, pod) {
                let start = RunNeed::Start(Box::new(Start::of(intent, stays_marked)));
                return (HookAnswer::Held, self.marked(intent, need(start)));
            }
            // The run of another intent is deleted first; the pod stays marked meanwhile.
            let need = need(RunNeed::Nothing);
            return (HookAnswer::Held, self.marked_if(stays_marked, intent, need));
        };
        match run.phase() {
            HookPhase::Successful if self.is_fresh(run, intent.at) => {
                (HookAnswer::Allowed, self.marked(intent, need(RunNeed::Keep(run))))
            }
            // The run is not kept, and the next plan starts another one. The pod stays marked meanwhile.
            HookPhase::Successful if intent.possible => {
                (HookAnswer::Held, self.marked_if(stays_marked, intent, need(RunNeed::Nothing)))
            }
            HookPhase::Successful => {
                (HookAnswer::Held, self.marked(intent, need(RunNeed::Keep(run))))
            }
            HookPhase::Pending | HookPhase::Running => {
                (HookAnswer::Held, self.marked(intent, need(RunNeed::Await(run))))
            }
            HookPhase::Failed | HookPhase::Error | HookPhase::Inconclusive => {
                (HookAnswer::Held, self.need_of_refusal(run, pod, intent))
            }
        }
    }

    /// The needs of the hooks of removals alone. It is not known yet which pods will be updated, and a success of an
    /// earlier rollout must not count after a revert.
    pub(crate) fn keep_only_removals(&self, pods: &[&'a Pod]) -> Needs<'a> {
        let intent = Intent { possible: false, ..Intent::removal(self.world.now) };
        let pods = pods.iter().filter(|pod| !pod.terminating);
        let needs = pods.map(|pod| {
            let nothing = Need::nothing(pod, intent.point);
            match self.run_for(pod, &intent) {
                Some(run) => self.marked(&intent, Need { run: RunNeed::Keep(run), ..nothing }),
                // Its hook cannot run. Its deadline must not start over.
                None => self.marked_if(self.waits_already(pod, &intent), &intent, nothing),
            }
        });
        Needs(needs.collect())
    }

    /// The PreDelete hook of a guarded pod was removed from the workload.
    fn need_of_removed_hook(&self, pod: &'a Pod, intent: &Intent) -> Need<'a> {
        let message = format!(
            "its PreDelete hook was removed from the workload; configure a hook, or confirm with kubectl game \
             release pod/{} -n {}",
            pod.name, pod.namespace
        );
        let wait = Some(Wait { reason: WaitReason::HookRemoved, message });
        let is_marked = intent.possible || self.waits_already(pod, intent);
        self.marked_if(is_marked, intent, Need { wait, ..Need::nothing(pod, intent.point) })
    }

    /// The hook ended without success.
    fn need_of_refusal(&self, run: &'a HookRun, pod: &'a Pod, intent: &Intent) -> Need<'a> {
        let need = self.marked(intent, Need::nothing(pod, intent.point));
        if self.is_retried(intent.point, run) {
            return need;
        }
        let message = format!("its PreDelete hook ended {:?}: {}", run.phase(), message_of(run));
        let wait = Some(Wait { reason: WaitReason::HookNotSuccessful, message });
        let rerun_at = self.rerun_at(run, pod, intent);
        // When it is time to run it again, the run is not kept, and the next plan starts another one.
        let run = match rerun_at.is_some_and(|at| at <= self.world.now) {
            true => RunNeed::Nothing,
            false => RunNeed::Refused(run, rerun_at),
        };
        Need { run, wait, ..need }
    }

    /// Marks the pod. The deadline of guarded pods applies only to deletions, and only to the PreDelete hook. So the
    /// time that a pod waits for an in-place update is not recorded.
    fn marked(&self, intent: &Intent, need: Need<'a>) -> Need<'a> {
        let waits = &self.workload.waits;
        let since = self.may_wait(intent).then(|| waits.since(need.pod, self.world.now));
        let mark = intent.point.marks_pods().then_some(Mark { since });
        Need { mark, ..need }
    }

    fn marked_if(&self, is_marked: bool, intent: &Intent, need: Need<'a>) -> Need<'a> {
        match is_marked {
            true => self.marked(intent, need),
            false => need,
        }
    }

    /// The deadline of a guarded pod that waits for its deletion, if the deletion is possible.
    fn deadline(&self, pod: &Pod, intent: &Intent) -> Option<Timestamp> {
        let guarded = self.workload.guarded.as_ref()?;
        let applies = intent.possible && self.may_wait(intent);
        let deadline = guarded.deadline.filter(|_| applies)?;
        self.waited_since(pod)?.checked_add(deadline).ok()
    }
}

#[cfg(test)]
mod tests;
