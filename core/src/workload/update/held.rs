//! Pods that have ended as soon as they were started, and wait for their replacement (see `Backoff`).

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::api::Reason;
use crate::observed::{Pod, PodUid, RevisionName};
use crate::workload::decision::{Blocked, Obstacles};
use crate::workload::world::{Backoff, World};

/// Pods that have ended as soon as they were started, and keep their place until the next round of replacements is
/// due.
#[derive(Default)]
pub(crate) struct Held<'a> {
    pods: BTreeMap<PodUid<'a>, &'a Pod>,
    due: Timestamp,
}

impl<'a> Held<'a> {
    /// The pods that wait: at most `limit` of those for which `needs_replacement` is true, and none if the next round
    /// is due now. `needs_replacement` is false for pods of a revision that is no longer used: they do not wait,
    /// because the next build may work.
    pub(crate) fn of(
        own: &[&'a Pod],
        needs_replacement: impl Fn(&Pod) -> bool,
        limit: i64,
        world: &World,
    ) -> Self {
        let is_not_due = |it: &Backoff| it.due() > world.now;
        let Some(backoff) = world.memory.backoff.filter(is_not_due) else {
            return Self::default();
        };
        let ended = own.iter().filter(|pod| !pod.terminating && pod.ended_at_once.is_some());
        let pods = ended.filter(|pod| needs_replacement(pod));
        let pods = pods.take(usize::try_from(limit).unwrap_or(0));
        Self { pods: pods.map(|pod| (pod.uid(), *pod)).collect(), due: backoff.due() }
    }

    /// When the held pods are replaced; None if no pod is held.
    pub(crate) fn wake(&self) -> Option<Timestamp> {
        (!self.pods.is_empty()).then_some(self.due)
    }

    /// The number of held pods.
    pub(crate) fn count(&self) -> i64 {
        self.pods.len() as i64
    }

    /// Those of `pods` that are not held.
    pub(crate) fn others(&self, pods: &[&'a Pod]) -> Vec<&'a Pod> {
        let is_not_held = |pod: &&&Pod| !self.pods.contains_key(&pod.uid());
        pods.iter().filter(is_not_held).copied().collect()
    }

    /// Why pods are not replaced. Pods of a revision that is being rolled out block the update; others block scaling.
    pub(crate) fn obstacles(&self, update: RevisionName, stable: RevisionName) -> Obstacles {
        let is_updated = |pod: &&Pod| pod.revision() == update && stable != update;
        let (updated, others): (Vec<&Pod>, Vec<_>) =
            self.pods.values().copied().partition(is_updated);
        let first = |pods: Vec<&Pod>| {
            let first = pods.into_iter().min_by_key(|pod| (pod.created, &pod.name));
            first.map(|pod| self.blocked(pod))
        };
        Obstacles { update: first(updated), scale: first(others), upkeep: None }
    }

    fn blocked(&self, pod: &Pod) -> Blocked {
        let why = pod.ended_at_once.as_deref().unwrap_or_default();
        Blocked {
            reason: Reason::PodsEndAtOnce,
            message: format!(
                "pod {} terminated within ten seconds of its start, as did an earlier one; the next is created at {}: {why}",
                pod.name, self.due
            ),
        }
    }
}
