//! Limits: how many pods there may be, and how many of them may be updated.

use gamekeeper_core::api::UpdateStrategyType;
use gamekeeper_core::api::names::HookPoint;

use super::Case;
use crate::pauses;
use crate::state::*;

impl Case<'_> {
    pub(super) fn active(&self) -> impl Iterator<Item = &Pod> {
        self.state.pods.now.iter().filter(|pod| pod.is_active())
    }

    pub(super) fn replicas(&self) -> i64 {
        i64::from(self.workload.replicas)
    }

    /// Whether there is a rollout from a stable revision to another one.
    pub(super) fn is_rollout(&self) -> bool {
        let facts = self.model.translator.facts(self.state.last_status());
        facts.stable.is_some_and(|it| it != self.workload.template)
    }

    /// How many pods may have the update revision.
    pub(super) fn max_updated(&self) -> i64 {
        let all = self.replicas();
        if !self.is_rollout() {
            return all;
        }
        let facts = self.model.translator.facts(self.state.last_status());
        let steps = &self.model.scope.steps[usize::from(self.workload.steps)];
        if steps.is_empty() {
            let wanted = (all - i64::from(self.workload.partition)).max(0);
            return self.held().map_or(wanted, |held| held.min(wanted));
        }
        if facts.update != Some(self.workload.template) {
            return 0;
        }
        let index = usize::from(facts.index.unwrap_or(0));
        if index >= steps.len() {
            return all;
        }
        let at_entry = i64::from(self.state.memory.replicas_at_partition);
        let last = pauses::last_partition(steps, index);
        last.map_or(0, |partition| {
            let now = all - partition.kept(all);
            now.min(at_entry - partition.kept(at_entry)).max(0)
        })
    }

    /// How many pods may have the update revision during a user's pause of a rollout without steps: as many as
    /// when the pause began.
    fn held(&self) -> Option<i64> {
        let held = self.state.memory.held.filter(|_| self.workload.paused);
        let (rev, pods) = held?;
        (rev == self.workload.template).then_some(i64::from(pods))
    }

    /// How many of the lowest ordinals must not have the update revision.
    pub(super) fn kept_count(&self) -> i64 {
        if !self.is_rollout() {
            return 0;
        }
        let facts = self.model.translator.facts(self.state.last_status());
        let all = self.replicas();
        let steps = &self.model.scope.steps[usize::from(self.workload.steps)];
        let index = usize::from(facts.index.unwrap_or(0));
        if steps.is_empty() {
            return i64::from(self.workload.partition);
        }
        if index >= steps.len() && self.max_updated() > 0 {
            return 0;
        }
        pauses::last_partition(steps, index).map_or(all, |partition| partition.kept(all))
    }

    /// How many surge pods an update may have.
    pub(super) fn surge(&self) -> i64 {
        let is_old = |pod: &&Pod| pod.rev != self.workload.template;
        let old = self.active().filter(is_old).count() as i64;
        self.surge_for(old - (self.replicas() - self.max_updated()))
    }

    /// How many surge pods there may be for an update, or for requested replacements. The cache may not show yet that
    /// a user requested or canceled a move, so surge pods for a move may be missing, and pods that are surplus
    /// without the move may be deleted.
    pub(super) fn surge_with_replacements(&self) -> i64 {
        let requested = self.active().filter(|pod| self.is_replacement_requested(pod));
        self.surge().max(self.surge_for(requested.count() as i64))
    }

    /// Whether podsToDelete names a pod, or a move was requested.
    pub(super) fn is_replacement_requested(&self, pod: &Pod) -> bool {
        self.workload.pods_to_delete.contains(&pod.name) || pod.move_requested.is_some()
    }

    /// The number of surge pods when this many pods are being replaced.
    fn surge_for(&self, replaced: i64) -> i64 {
        let scope = &self.model.scope;
        let replicas = self.workload.replicas;
        let may_surge = match self.workload.strategy {
            UpdateStrategyType::RollingUpdate => true,
            UpdateStrategyType::InplaceUpdate => scope.max_unavailable(replicas) == 0,
            UpdateStrategyType::HotPatchUpdate | UpdateStrategyType::OnDelete => false,
        };
        if may_surge { replaced.max(0).min(scope.max_surge(replicas)) } else { 0 }
    }

    /// The number of surplus pods. Only as many surge pods are kept as the status recorded when the plan was made.
    pub(super) fn excess(&self) -> i64 {
        let recorded = self.model.translator.facts(self.reconcile.planned.status).surge;
        let surge = self.surge().min(i64::from(recorded));
        self.active().count() as i64 - self.replicas() - surge
    }

    pub(super) fn is_waiting(&self, pod: &Pod) -> bool {
        self.state.runs.now.iter().any(|run| {
            let id = &run.id;
            id.pod == Some(pod.uid) && id.point == HookPoint::PreDelete && id.target.is_none()
        })
    }

    /// Whether a pod is chosen for deletion because there are too many.
    pub(super) fn is_victim(&self, pod: &Pod) -> bool {
        match self.model.scope.stateful_set {
            Some(_) => !self.wanted(self.surge()).contains(&pod.name) && !self.is_surge(pod),
            None => {
                // Requested replacements use surge pods as well.
                let recorded = self.model.translator.facts(self.state.last_status()).surge;
                let surge = self.surge().max(i64::from(recorded));
                let is_surplus = self.active().count() as i64 > self.replicas() + surge;
                is_surplus && self.is_waiting(pod) && pod.move_requested.is_none()
            }
        }
    }
}
