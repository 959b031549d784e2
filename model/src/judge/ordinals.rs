//! Invariant 7: OrderedReady makes pods upward and removes them downward, one at a time, each after
//! the others are available; and what invariants 2 and 3 mean where pods have ordinals.

use super::{Broken, Case, broken, is_available};
use crate::state::*;

impl Case<'_> {
    /// A pod is made.
    pub(super) fn ordinal_made(&self, ordinal: Name) -> Result<(), Broken> {
        let most = self.replicas() + self.model.scope.max_surge(self.workload.replicas);
        if i64::from(ordinal) >= most {
            return broken(
                "2: not too many pods",
                format!("ordinal {ordinal} of {most}"),
            );
        }
        if self.model.scope.is_ordered() {
            self.all_available(0..ordinal, &format!("{ordinal} is made"))?;
        }
        Ok(())
    }

    /// A pod is removed for good.
    pub(super) fn removed(&self, pod: &Pod) -> Result<(), Broken> {
        if self.model.scope.set.is_none() {
            return Ok(());
        }
        if i64::from(pod.name) < self.replicas() {
            return broken("2: enough pods", format!("{pod:?} is not too many"));
        }
        if !self.model.scope.is_ordered() {
            return Ok(());
        }
        let mut pods = self.state.pods.now.iter();
        if let Some(above) = pods.find(|it| it.name > pod.name) {
            return broken("7: ordinals", format!("{pod:?} goes before {above:?}"));
        }
        let what = format!("{} is removed", pod.name);
        self.all_available(0..self.workload.replicas, &what)
    }

    /// A pod is brought to the update revision.
    pub(super) fn ordinal_moved(&self, ordinal: Name) -> Result<(), Broken> {
        let first = self.first_to_update();
        if i64::from(ordinal) < first {
            return broken(
                "3: partition",
                format!("ordinal {ordinal} is updated, below {first}"),
            );
        }
        Ok(())
    }

    /// Whether each of these ordinals has an available pod, as far as the operator could know.
    fn all_available(&self, mut ordinals: std::ops::Range<Name>, what: &str) -> Result<(), Broken> {
        let is_fine = |pod: &Pod| {
            let was_seen = self.sync.seen_available & (1 << pod.uid) != 0;
            was_seen || is_available(self.model, pod, self.sync.at)
        };
        let missing = ordinals.find(|ordinal| {
            let mut pods = self.state.pods.now.iter();
            !pods.any(|pod| pod.name == *ordinal && is_fine(pod))
        });
        match missing.filter(|_| !self.model.scope.has_surprises()) {
            Some(ordinal) => broken(
                "7: ordinals",
                format!("{what} although {ordinal} is not available"),
            ),
            None => Ok(()),
        }
    }
}
