//! What the guard asks about a pod: the hook point, the runs, and the wait of the pod.

use jiff::Timestamp;

use crate::api::names::HookPoint;
use crate::guard;
use crate::guard::{Case, ClosedGate, HookAnswer, Permit};
use crate::observed::Pod;
use crate::workload::hooks::{Hooks, Intent};

struct Asked<'h, 'a> {
    hooks: &'h mut Hooks<'a>,
    pod: &'a Pod,
    intent: &'h Intent<'h>,
}

impl Case for Asked<'_, '_> {
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

    fn is_on_lost_node(&mut self) -> bool {
        self.hooks.is_on_lost_node(self.pod)
    }

    fn hook(&mut self) -> HookAnswer {
        self.hooks.clear(self.pod, self.intent)
    }

    fn valid_until(&self) -> Option<Timestamp> {
        self.hooks.valid_until(self.pod, self.intent)
    }
}

impl<'a> Hooks<'a> {
    /// Asks the guard whether this may be done now: [`guard::may_touch`].
    pub fn may_touch(&mut self, pod: &'a Pod, intent: &Intent) -> Option<Permit<'a>> {
        guard::may_touch(pod, &mut Asked { hooks: self, pod, intent })
    }

    /// Asks the guard what happens to the pod's closed gate: [`guard::closed_gate`].
    pub fn closed_gate(&mut self, pod: &'a Pod, intent: &Intent) -> ClosedGate<'a> {
        guard::closed_gate(pod, &mut Asked { hooks: self, pod, intent })
    }

    /// The point that guards a recreation for an update, whatever the update type: PreDelete, or PreInplace if only that
    /// one is configured. A PreDelete hook that was removed while it guarded the pod still counts.
    pub fn point_of_recreation(&self, pod: &Pod) -> HookPoint {
        match self.is_needed(HookPoint::PreDelete, pod) {
            true => HookPoint::PreDelete,
            false => HookPoint::PreInplace,
        }
    }

    /// The point that guards an in-place update.
    pub fn point_of_change(&self) -> HookPoint {
        match self.is_configured(HookPoint::PreInplace) {
            true => HookPoint::PreInplace,
            false => HookPoint::PreDelete,
        }
    }
}
