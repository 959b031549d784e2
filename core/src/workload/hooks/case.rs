//! What the guard asks about a pod: the hook point, the runs, and the wait of the pod.

use std::cell::OnceCell;

use jiff::Timestamp;

use crate::api::names::HookPoint;
use crate::guard;
use crate::guard::{Case, ClosedGate, HookAnswer, Permit};
use crate::observed::Pod;
use crate::workload::hooks::need::Need;
use crate::workload::hooks::{Asked, Hooks, Intent, Needs};

struct Question<'h, 'a> {
    hooks: &'h Hooks<'a>,
    pod: &'a Pod,
    intent: &'h Intent<'h>,
    /// What the hook answers; empty until the guard asks it.
    answer: OnceCell<(HookAnswer, Need<'a>)>,
}

impl Case for Question<'_, '_> {
    fn is_possible(&self) -> bool {
        self.intent.possible
    }

    fn deletes(&self) -> bool {
        self.intent.deletes
    }

    fn needs_hook(&self) -> bool {
        self.hooks.is_needed(self.intent.point, self.pod)
    }

    fn is_released(&self) -> bool {
        self.hooks.workload.is_released(self.pod)
    }

    fn is_on_lost_node(&self) -> bool {
        self.hooks.is_on_lost_node(self.pod)
    }

    fn hook(&self) -> HookAnswer {
        self.answer.get_or_init(|| self.hooks.answer(self.pod, self.intent)).0
    }

    fn valid_until(&self) -> Option<Timestamp> {
        self.hooks.valid_until(self.pod, self.intent)
    }
}

impl<'a> Hooks<'a> {
    /// Asks the guard whether this may be done now: [`guard::may_touch`].
    pub(crate) fn may_touch(&self, pod: &'a Pod, intent: &Intent) -> Asked<'a, Option<Permit<'a>>> {
        self.ask_guard(pod, intent, |question| guard::may_touch(pod, question))
    }

    /// Asks the guard what happens to the pod's closed gate: [`guard::closed_gate`].
    pub(crate) fn closed_gate(&self, pod: &'a Pod, intent: &Intent) -> Asked<'a, ClosedGate<'a>> {
        self.ask_guard(pod, intent, |question| guard::closed_gate(pod, question))
    }

    fn ask_guard<T>(
        &self,
        pod: &'a Pod,
        intent: &Intent,
        decide: impl FnOnce(&Question) -> T,
    ) -> Asked<'a, T> {
        let question = Question { hooks: self, pod, intent, answer: OnceCell::new() };
        let decision = decide(&question);
        let need = question.answer.into_inner().map(|(_, need)| need);
        Asked::new(decision, Needs(need.into_iter().collect()))
    }

    /// The point that guards a recreation for an update, whatever the update type: PreDelete, or PreInplace if only that
    /// one is configured. A PreDelete hook that was removed while it guarded the pod still counts.
    pub(crate) fn point_of_recreation(&self, pod: &Pod) -> HookPoint {
        match self.is_needed(HookPoint::PreDelete, pod) {
            true => HookPoint::PreDelete,
            false => HookPoint::PreInplace,
        }
    }

    /// The point that guards an in-place update.
    pub(crate) fn point_of_change(&self) -> HookPoint {
        match self.is_configured(HookPoint::PreInplace) {
            true => HookPoint::PreInplace,
            false => HookPoint::PreDelete,
        }
    }
}
