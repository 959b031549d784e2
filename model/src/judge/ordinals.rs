//! Invariant 7: OrderedReady creates pods upward and deletes them downward, one at a time, each after the
//! others are available; and invariants 2 and 3 for pods with ordinals.

use super::{Case, Violation, is_available, violation};
use crate::state::*;

impl Case<'_> {
    /// Checks the creation of a pod.
    pub(super) fn ordinal_created(&self, ordinal: Name) -> Result<(), Violation> {
        let most = self.replicas() + self.model.scope.max_surge(self.workload.replicas);
        if i64::from(ordinal) >= most {
            return violation(
                "2: not too many pods",
                format!("ordinal {ordinal} of {most}"),
            );
        }
        if self.model.scope.is_ordered() {
            self.all_available(0..ordinal, &format!("{ordinal} is created"))?;
        }
        Ok(())
    }

    /// Checks the deletion of a pod for a scale-in.
    pub(super) fn scaled_in(&self, pod: &Pod) -> Result<(), Violation> {
        if self.model.scope.set.is_none() {
            return Ok(());
        }
        if i64::from(pod.name) < self.replicas() {
            return violation("2: enough pods", format!("{pod:?} is not one too many"));
        }
        if !self.model.scope.is_ordered() {
            return Ok(());
        }
        let mut pods = self.state.pods.now.iter();
        if let Some(above) = pods.find(|it| it.name > pod.name) {
            return violation(
                "7: ordinals",
                format!("{pod:?} is deleted before {above:?}"),
            );
        }
        let what = format!("{} is deleted", pod.name);
        self.all_available(0..self.workload.replicas, &what)
    }

    /// Checks the update of a pod.
    pub(super) fn ordinal_updated(&self, ordinal: Name) -> Result<(), Violation> {
        let first = self.first_to_update();
        if i64::from(ordinal) < first {
            return violation(
                "3: partition",
                format!("ordinal {ordinal} is updated, below {first}"),
            );
        }
        Ok(())
    }

    /// Checks that each of these ordinals has an available pod, as far as the operator could know.
    fn all_available(
        &self,
        mut ordinals: std::ops::Range<Name>,
        what: &str,
    ) -> Result<(), Violation> {
        let may_be_available = |pod: &Pod| {
            let was_seen = self.reconcile.seen_available & (1 << pod.uid) != 0;
            was_seen || is_available(self.model, pod, self.reconcile.at)
        };
        let missing = ordinals.find(|ordinal| {
            let mut pods = self.state.pods.now.iter();
            !pods.any(|pod| pod.name == *ordinal && may_be_available(pod))
        });
        match missing.filter(|_| !self.model.scope.has_surprises()) {
            Some(ordinal) => violation(
                "7: ordinals",
                format!("{what} although {ordinal} is not available"),
            ),
            None => Ok(()),
        }
    }
}
