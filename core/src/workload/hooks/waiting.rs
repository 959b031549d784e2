//! Guarded pods that wait for their PreDelete hook: why they wait, and what ends the wait without the hook
//! (invariant 11).

use jiff::Timestamp;

use crate::api::HookRun;
use crate::api::names::HookPoint;
use crate::observed::Pod;
use crate::workload::hooks::{Hooks, Intent, lost_node};

impl Hooks<'_> {
    pub(super) fn hook_was_removed(&self, point: HookPoint, pod: &Pod) -> bool {
        point == HookPoint::PreDelete
            && self.workload.guarded.is_some()
            && self.workload.guards(pod)
            && !self.is_configured(point)
    }

    /// Whether a guarded pod waits for its PreDelete hook, or is about to.
    pub(super) fn is_waiting(&self, pod: &Pod, intent: &Intent) -> bool {
        let waits =
            intent.possible || self.has_run(intent.point, pod) || self.waits_already(pod, intent);
        intent.point == HookPoint::PreDelete && waits && self.workload.guarded.is_some()
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
    pub(crate) fn has_waited(&self, pod: &Pod) -> bool {
        self.workload.guarded.is_some() && self.waited_since(pod).is_some()
    }

    /// Since when a guarded pod has waited for its deletion; None if its wait begins now.
    pub(super) fn waited_since(&self, pod: &Pod) -> Option<Timestamp> {
        self.workload.waits.recorded(pod, self.world.now)
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
    pub(crate) fn is_on_lost_node(&self, pod: &Pod) -> bool {
        let given_up_at = lost_node::given_up_at(self.workload, self.world, pod);
        given_up_at.is_some_and(|at| at <= self.world.now)
    }
}
