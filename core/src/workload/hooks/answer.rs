//! What a pod's hook answers to an intent, and what the answer needs. Nothing is changed here.

use jiff::Timestamp;

use crate::api::names::HookPoint;
use crate::api::{HookPhase, HookRun, WaitReason};
use crate::guard::HookAnswer;
use crate::observed::time::earlier;
use crate::observed::{Pod, PodRef};
use crate::text::truncate;
use crate::workload::hooks::need::{Mark, Need, RunNeed, Start, Wait};
use crate::workload::hooks::run_maker::Subject;
use crate::workload::hooks::settle::MAX_MESSAGE;
use crate::workload::hooks::{Asked, Hooks, Intent, Needs};
use crate::write::Rehearsal;

impl<'a> Hooks<'a> {
    /// Whether the pod's hook allows an action, or the deadline of spec.protection allows the deletion of a guarded
    /// pod even though its hook does not.
    pub fn ask(&self, pod: &'a Pod, intent: &Intent) -> Asked<'a, HookAnswer> {
        let (answer, need) = self.answer(pod, intent);
        Asked::new(answer, Needs::from_iter([need]))
    }

    /// The same, with what the answer needs.
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
        if self.is_waiting(pod, intent) {
            need.wait.get_or_insert_with(Wait::for_hook);
        }
        let deadline = self.deadline(pod, intent);
        if deadline.is_some_and(|at| at <= self.world.now) {
            return (HookAnswer::PastDeadline, need);
        }
        need.wake = earlier(need.wake, deadline);
        (answer, need)
    }

    /// Whether the pod's hook allows an action. The hook is started only if the pod has no run at this point, in any
    /// phase (invariant 6). A run that is not kept is deleted by [`Hooks::settle`].
    fn state(&self, pod: &'a Pod, intent: &Intent) -> (HookAnswer, Need<'a>) {
        let nothing = Need::nothing(pod, intent.point);
        if !self.is_configured(intent.point) {
            return (HookAnswer::Allowed, nothing);
        }
        let Some(run) = self.run_for(pod, intent) else {
            if intent.possible && !self.has_run(intent.point, pod) {
                return (HookAnswer::Held, self.need_of_start(pod, intent));
            }
            // The run of another intent is deleted first; the pod stays marked meanwhile. And the deadline of a pod
            // whose hook cannot run must not start over because its deletion is not possible for a moment.
            let stays = self.waits_already(pod, intent) || (pod.marked_deleting && intent.possible);
            return (HookAnswer::Held, self.marked_if(stays, intent, nothing));
        };
        match run.phase() {
            HookPhase::Successful if self.is_fresh(run, intent.at) => {
                let need = Need { run: RunNeed::Keep(run), ..nothing };
                (HookAnswer::Allowed, self.marked(intent, need))
            }
            // The run is not kept, and the next plan starts another one. The pod stays marked meanwhile.
            HookPhase::Successful if intent.possible => {
                (HookAnswer::Held, self.marked_if(self.is_marked(pod, intent), intent, nothing))
            }
            HookPhase::Pending | HookPhase::Running | HookPhase::Successful => {
                let need = Need { run: RunNeed::Await(run), ..nothing };
                (HookAnswer::Held, self.marked(intent, need))
            }
            HookPhase::Failed | HookPhase::Error | HookPhase::Inconclusive => {
                (HookAnswer::Held, self.need_of_refusal(run, pod, intent))
            }
        }
    }

    /// The needs of the hooks of removals alone. It is not known yet which pods will be updated, and a success of an
    /// earlier rollout must not count after a revert.
    pub fn keep_only_removals(&self, pods: &[&'a Pod]) -> Needs<'a> {
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
        needs.collect()
    }

    /// The PreDelete hook of a guarded pod was removed from the workload.
    fn need_of_removed_hook(&self, pod: &'a Pod, intent: &Intent) -> Need<'a> {
        let message = format!(
            "its PreDelete hook was removed from the workload; configure a hook, or confirm with kubectl game \
             release pod/{} -n {}",
            pod.name, pod.namespace
        );
        let wait = Wait { reason: WaitReason::HookRemoved, message };
        let wait = self.is_waiting(pod, intent).then_some(wait);
        let is_marked = intent.possible || self.waits_already(pod, intent);
        self.marked_if(is_marked, intent, Need { wait, ..Need::nothing(pod, intent.point) })
    }

    /// The hook ended without success.
    fn need_of_refusal(&self, run: &'a HookRun, pod: &'a Pod, intent: &Intent) -> Need<'a> {
        let need = self.marked(intent, Need::nothing(pod, intent.point));
        if self.is_retried(intent.point, run) {
            return need;
        }
        let message = truncate(message_of(run), MAX_MESSAGE);
        let message = format!("its PreDelete hook ended {:?}: {message}", run.phase());
        let wait = Wait { reason: WaitReason::HookNotSuccessful, message };
        let wait = self.is_waiting(pod, intent).then_some(wait);
        let rerun_at = self.rerun_at(run, pod, intent);
        // When it is time to run it again, the run is not kept, and the next plan starts another one.
        let run = match rerun_at.is_some_and(|at| at <= self.world.now) {
            true => RunNeed::Nothing,
            false => RunNeed::Refused(run, rerun_at),
        };
        Need { run, wait, ..need }
    }

    /// The hook has to be started.
    fn need_of_start(&self, pod: &'a Pod, intent: &Intent) -> Need<'a> {
        let nothing = Need::nothing(pod, intent.point);
        let Some(hook) = self.hooks.get(&intent.point) else {
            return nothing;
        };
        let subject = Subject::Pod {
            pod,
            target: intent.target,
            modified: intent.modified,
            changes: intent.changes,
        };
        let maker = hook.maker(self.workload, self.world).as_ref();
        match maker.map_err(Clone::clone).and_then(|maker| maker.heading(&subject)) {
            Ok(heading) => {
                let deletion = || Rehearsal::of_deletion(intent.attempt(), &PodRef::of(pod));
                let rehearsal = intent.rehearsal.cloned();
                let rehearsal = rehearsal.or_else(|| intent.deletes.then(deletion));
                let is_marked = self.is_marked(pod, intent);
                let run = RunNeed::Start(Box::new(Start { heading, rehearsal, is_marked }));
                self.marked(intent, Need { run, ..nothing })
            }
            Err(problem) => {
                let is_guarded =
                    self.workload.guarded.is_some() && intent.point == HookPoint::PreDelete;
                let message = problem.to_string();
                let wait = Wait { reason: WaitReason::HookCannotRun, message };
                let run = RunNeed::CannotStart(intent.target.concern(), problem);
                let wait = is_guarded.then_some(wait);
                // The pod's deadline starts now.
                self.marked_if(is_guarded, intent, Need { run, wait, ..nothing })
            }
        }
    }

    /// Whether a pod has been marked for this intent before.
    fn is_marked(&self, pod: &Pod, intent: &Intent) -> bool {
        pod.marked_deleting || self.waits_already(pod, intent)
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

impl<'a> Need<'a> {
    fn nothing(pod: &'a Pod, point: HookPoint) -> Self {
        Self { pod, point, run: RunNeed::Nothing, mark: None, wait: None, wake: None }
    }
}

impl Wait {
    fn for_hook() -> Self {
        Self { reason: WaitReason::HookRunning, message: String::new() }
    }
}

/// Why a run ended as it did.
pub(super) fn message_of(run: &HookRun) -> &str {
    let status = run.status.as_ref();
    status.and_then(|it| it.message.as_deref()).unwrap_or_default()
}
