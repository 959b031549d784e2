//! Guarded pods that wait for their PreDelete hook: why they wait, and what ends the wait without the hook
//! (invariant 11).

use jiff::Timestamp;

use crate::api::names::HookPoint;
use crate::api::{HookRun, WaitReason};
use crate::guard::HookAnswer;
use crate::observed::Pod;
use crate::observed::time::earlier;
use crate::workload::hooks::{Hooks, Intent, lost_node};

/// A guarded pod that waits for its PreDelete hook.
#[derive(Clone, Debug)]
pub struct Waiting<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// Why it waits.
    pub reason: WaitReason,
    /// The reason as a sentence.
    pub message: String,
}

impl<'a> Hooks<'a> {
    pub(super) fn hook_was_removed(&self, point: HookPoint, pod: &Pod) -> bool {
        point == HookPoint::PreDelete
            && self.workload.guarded.is_some()
            && self.workload.guards(pod)
            && !self.is_configured(point)
    }

    /// Records why a guarded pod waits. A reason that is already recorded is more precise, so it is kept.
    pub(super) fn record_wait(
        &mut self,
        pod: &'a Pod,
        intent: &Intent,
        reason: WaitReason,
        message: String,
    ) {
        let waits =
            intent.possible || self.has_run(intent.point, pod) || self.waits_already(pod, intent);
        if intent.point == HookPoint::PreDelete && waits && self.workload.guarded.is_some() {
            self.waiting.entry(&pod.name).or_insert(Waiting { pod, reason, message });
        }
    }

    /// Whether the time for which a pod waits for this action counts: only deletions of guarded pods have a deadline.
    pub(super) fn may_wait(&self, intent: &Intent) -> bool {
        intent.point == HookPoint::PreDelete && intent.deletes && self.workload.guarded.is_some()
    }

    /// Whether a guarded pod already waits for its deletion.
    pub(super) fn waits_already(&self, pod: &Pod, intent: &Intent) -> bool {
        self.may_wait(intent) && self.has_waited(pod)
    }

    /// Whether this guarded pod has waited for its deletion until now.
    pub fn has_waited(&self, pod: &Pod) -> bool {
        self.workload.guarded.is_some() && self.waited_since(pod).is_some()
    }

    /// Since when a guarded pod has waited for its deletion; None if its wait begins now.
    fn waited_since(&self, pod: &Pod) -> Option<Timestamp> {
        self.workload.waits.recorded(pod, self.world.now)
    }

    /// Since when this pod waits for its deletion, as decided by this plan.
    pub fn waiting_since(&self, pod: &Pod) -> Option<Timestamp> {
        self.marked.get(&pod.uid()).copied().flatten()
    }

    pub(super) fn past_deadline(&mut self, pod: &Pod, intent: &Intent) -> Option<HookAnswer> {
        let guarded = self.workload.guarded.as_ref()?;
        let since = self.waited_since(pod)?;
        let applies = intent.possible && self.may_wait(intent);
        let deadline = guarded.deadline.filter(|_| applies)?;
        let at = since.checked_add(deadline).ok()?;
        if at <= self.world.now {
            return Some(HookAnswer::PastDeadline);
        }
        self.wake = earlier(self.wake, Some(at));
        None
    }

    /// When the hook of a guarded pod runs again after an unsuccessful run.
    pub(super) fn rerun_at(&self, run: &HookRun, pod: &Pod, intent: &Intent) -> Option<Timestamp> {
        let guarded = self.workload.guarded.as_ref()?;
        if intent.point != HookPoint::PreDelete || !intent.possible {
            return None;
        }
        let ended = run.status.as_ref()?.finished_at.as_ref()?.0;
        let since = self.waited_since(pod).unwrap_or(ended);
        ended.checked_add(guarded.interval(ended.duration_since(since))).ok()
    }

    /// Whether this is a guarded pod on a lost node.
    pub fn is_on_lost_node(&mut self, pod: &Pod) -> bool {
        let given_up_at = lost_node::given_up_at(self.workload, self.world, pod);
        let is_lost = given_up_at.is_some_and(|at| at <= self.world.now);
        if !is_lost {
            self.wake = earlier(self.wake, given_up_at);
        }
        is_lost
    }
}
