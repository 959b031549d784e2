//! Invariant 7: no pod with a reserved ordinal is created. OrderedReady creates pods upward, each after the pods below
//! it are available. It deletes them downward, each after all pods that remain are available.
//!
//! Also invariants 2 and 3 for pods with ordinals.

use super::{Case, Violation, is_available, violation};
use crate::state::*;

impl Case<'_> {
    /// The ordinals that should have a pod when `surge` more pods than replicas are wanted.
    pub(super) fn wanted(&self, surge: i64) -> Vec<Name> {
        self.workload.ordinals(self.replicas() + surge)
    }

    /// Checks the creation of a pod.
    pub(super) fn ordinal_created(&self, ordinal: Name) -> Result<(), Violation> {
        if self.workload.is_reserved(ordinal) {
            return violation("7: reserved ordinals", format!("{ordinal} is created"));
        }
        let wanted = self.wanted(self.model.scope.max_surge(self.workload.replicas));
        if !wanted.contains(&ordinal) {
            return violation(
                "2: not too many pods",
                format!("ordinal {ordinal}, not one of {wanted:?}"),
            );
        }
        if self.model.scope.is_ordered() {
            let below = wanted.into_iter().filter(|it| *it < ordinal);
            self.all_available(below, &format!("{ordinal} is created"))?;
        }
        Ok(())
    }

    /// Checks the deletion of a pod for a scale-in, or because its ordinal is reserved. The budget of updates also
    /// applies to the deletion of a surge pod, because the surge pod is part of an update.
    pub(super) fn scaled_in(&self, pod: &Pod) -> Result<(), Violation> {
        if self.model.scope.stateful_set.is_none() {
            return self.surplus_deleted(pod);
        }
        let wanted = self.wanted(0);
        if wanted.contains(&pod.name) {
            return violation("2: enough pods", format!("{pod:?} is not surplus"));
        }
        self.substituted(pod, &wanted)?;
        if self.is_surge(pod) {
            self.budget(pod)?;
        }
        if !self.model.scope.is_ordered() {
            return Ok(());
        }
        let mut pods = self.state.pods.now.iter();
        let is_above = |it: &&Pod| it.name > pod.name && !wanted.contains(&it.name);
        if let Some(above) = pods.find(is_above) {
            return violation("7: ordinals", format!("{pod:?} is deleted before {above:?}"));
        }
        let action = format!("{} is deleted", pod.name);
        self.all_available(wanted, &action)
    }

    /// Checks the deletion of a surplus pod of a GameDeployment. If the surplus consists of surge pods, a pod whose
    /// replacement was requested is deleted only within the budget, because its replacement may not be available yet.
    fn surplus_deleted(&self, pod: &Pod) -> Result<(), Violation> {
        let surplus = self.active().count() as i64 - self.replicas();
        let facts = self.model.translator.facts(self.state.last_status());
        if self.is_replacement_requested(pod) && surplus <= i64::from(facts.surge) {
            return self.budget(pod);
        }
        Ok(())
    }

    /// Invariant 2: there are never fewer pods than replicas while other ordinals replace reserved ones, and a pod is
    /// deleted only when its substitute is available.
    fn substituted(&self, pod: &Pod, wanted: &[Name]) -> Result<(), Violation> {
        if !self.model.scope.reserves() {
            return Ok(());
        }
        let pods = || self.state.pods.now.iter();
        let exists = |ordinal: &&Name| {
            let was_seen = self.reconcile.seen_ordinals & (1 << **ordinal) != 0;
            was_seen || pods().any(|pod| pod.name == **ordinal)
        };
        let is_left = |it: &&Pod| it.is_active() && it.uid != pod.uid && !wanted.contains(&it.name);
        let left = wanted.iter().filter(exists).count() + pods().filter(is_left).count();
        if left < wanted.len() {
            let replicas = wanted.len();
            return violation(
                "2: enough pods",
                format!("without {pod:?}, only {left} of {replicas} pods are left"),
            );
        }
        let is_replaced = |it: &Pod| {
            let is_within = wanted.last().is_some_and(|last| it.name < *last);
            is_within && self.workload.is_reserved(it.name)
        };
        if !is_replaced(pod) {
            return Ok(());
        }
        let replaced = pods().filter(|it| it.is_active() && is_replaced(it));
        let substitutes = wanted.iter().filter(|it| **it >= self.workload.replicas);
        let missing = substitutes.filter(|ordinal| !self.may_be_available(**ordinal));
        if missing.count() >= replaced.count() {
            return violation(
                "2: enough pods",
                format!("{pod:?} is deleted before its substitute is available"),
            );
        }
        Ok(())
    }

    /// Whether a pod was created as one of the surge pods that an update may have.
    pub(super) fn is_surge(&self, pod: &Pod) -> bool {
        let max = self.model.scope.max_surge(self.workload.replicas);
        self.state.memory.surge & (1 << pod.name) != 0 && self.wanted(max).contains(&pod.name)
    }

    /// Checks the update of a pod.
    pub(super) fn ordinal_updated(&self, ordinal: Name) -> Result<(), Violation> {
        let kept = self.workload.ordinals(self.kept_count());
        if kept.contains(&ordinal) || self.workload.is_reserved(ordinal) {
            return violation(
                "3: partition",
                format!("ordinal {ordinal} is updated, but it is reserved or one of {kept:?}"),
            );
        }
        Ok(())
    }

    /// Whether an ordinal has an available pod, as far as the operator could know.
    fn may_be_available(&self, ordinal: Name) -> bool {
        let mut pods = self.state.pods.now.iter();
        pods.any(|pod| {
            let was_seen = self.reconcile.seen_available & (1 << pod.uid) != 0;
            let is_available = was_seen || is_available(self.model, pod, self.reconcile.at);
            pod.name == ordinal && is_available
        })
    }

    /// Checks that each of these ordinals has an available pod, as far as the operator could know.
    fn all_available(
        &self,
        ordinals: impl IntoIterator<Item = Name>,
        action: &str,
    ) -> Result<(), Violation> {
        let mut ordinals = ordinals.into_iter();
        let missing = ordinals.find(|ordinal| !self.may_be_available(*ordinal));
        match missing.filter(|_| !self.model.scope.has_surprises()) {
            Some(ordinal) => {
                violation("7: ordinals", format!("{action} although {ordinal} is not available"))
            }
            None => Ok(()),
        }
    }
}
