//! How many pods of a GameDeployment there should be, and at which revision: the numbers that creations, updates and
//! deletions follow from. A GameStatefulSet has ordinals instead (see `ordinals`); its new pods have the same roles.
//!
//! There are `replicas` slots, `target` of which the rollout gives to the update revision, and `surge` more while pods
//! are replaced.

use crate::observed::{Pod, RevisionName};
use crate::workload::in_place::is_at;

/// The slots of a workload, and the pods that fill them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slots {
    /// spec.replicas.
    pub replicas: i64,
    /// The number of pods that may be at the update revision, without surge.
    pub target: i64,
    /// The number of pods by which replicas may be exceeded.
    pub surge: i64,
    /// The part of the surge that replaces pods whose replacement was requested, at either revision.
    pub replacement_surge: i64,
    /// The number of pods at the update revision.
    pub updated: i64,
    /// The number of pods at other revisions.
    pub old: i64,
    /// The number of other pods that fill a slot: orphans that are being adopted, and pods that have ended and whose
    /// replacements have to wait.
    pub held: i64,
}

/// The role of a missing pod in the rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The partition keeps it at the stable revision.
    Kept,
    /// The rollout reaches it.
    Reached,
    /// It is a surge pod of the rollout, above replicas.
    Surge,
}

impl Slots {
    /// The slots of `replicas` pods, `target` of which may be at the update revision, and the pods that fill them.
    /// There is no surge.
    pub(crate) fn new(replicas: i64, target: i64, pods: &[&Pod], update: RevisionName) -> Self {
        let updated = pods.iter().filter(|pod| is_at(pod, update)).count() as i64;
        let old = pods.len() as i64 - updated;
        Self { replicas, target, surge: 0, replacement_surge: 0, updated, old, held: 0 }
    }

    /// The number of pods to delete; negative if pods are missing.
    pub(crate) fn excess(self) -> i64 {
        self.updated + self.old - self.replicas - self.surge
    }

    /// How many of the pods at other revisions are surplus. The rollout updates them, or deletes them once surge pods
    /// have replaced them.
    pub(crate) fn to_update(self) -> i64 {
        self.old - (self.replicas - self.target)
    }

    /// How many pods are missing at the update revision; negative if there are too many. No more pods than these may be
    /// updated in place: surge pods have replaced the others.
    pub(crate) fn missing_updated(self) -> i64 {
        self.target - self.updated
    }

    /// The number of pods to create.
    pub(crate) fn missing(self) -> i64 {
        (self.replicas + self.surge - self.filled()).max(0)
    }

    /// The role of each pod to create, in the order in which they are created: those at the update revision up to
    /// `target`, those at the stable revision, the surge.
    pub(crate) fn places(self) -> impl Iterator<Item = Place> {
        let missing = self.missing();
        let reached = self.missing_updated().clamp(0, missing);
        let above_replicas = missing - (self.replicas - self.filled()).max(0);
        // Only the surge pods of the rollout have to be at the update revision.
        let surge = (above_replicas.min(reached) - self.replacement_surge).max(0);
        let places = [
            (Place::Reached, reached - surge),
            (Place::Kept, missing - reached),
            (Place::Surge, surge),
        ];
        places.into_iter().flat_map(|(place, count)| (0..count).map(move |_| place))
    }

    fn filled(self) -> i64 {
        self.updated + self.old + self.held
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn creations_updates_and_deletions_follow_from_the_slots() {
        // replicas, target, surge, of which for replacements | updated, old, held
        // | to update, missing at the update revision, to delete | to create: reached, kept, surge
        for (wanted, pods, changes, missing) in [
            // Nothing to do.
            ([5, 5, 0, 0], [5, 0, 0], [0, 0, 0], [0, 0, 0]),
            ([5, 2, 0, 0], [2, 3, 0], [0, 0, 0], [0, 0, 0]),
            // The first pods, and a scale-out.
            ([5, 5, 0, 0], [0, 0, 0], [0, 5, -5], [5, 0, 0]),
            ([5, 5, 0, 0], [3, 0, 0], [0, 2, -2], [2, 0, 0]),
            // A scale-out during a rollout creates as many pods at the update revision as the rollout allows.
            ([8, 2, 0, 0], [1, 4, 0], [-2, 1, -3], [1, 2, 0]),
            // A scale-in.
            ([3, 3, 0, 0], [5, 0, 0], [0, -2, 2], [0, 0, 0]),
            ([3, 1, 0, 0], [2, 3, 0], [1, -1, 2], [0, 0, 0]),
            // A rollout without surge updates old pods, or recreates those that are gone.
            ([5, 5, 0, 0], [0, 5, 0], [5, 5, 0], [0, 0, 0]),
            ([5, 5, 0, 0], [1, 3, 0], [3, 4, -1], [1, 0, 0]),
            ([5, 2, 0, 0], [0, 5, 0], [2, 2, 0], [0, 0, 0]),
            // With surge, new pods come first; then old pods are deleted instead of updated.
            ([5, 5, 2, 0], [0, 5, 0], [5, 5, -2], [0, 0, 2]),
            ([5, 5, 2, 0], [2, 5, 0], [5, 3, 0], [0, 0, 0]),
            ([5, 5, 2, 0], [2, 4, 0], [4, 3, -1], [0, 0, 1]),
            ([5, 5, 0, 0], [5, 1, 0], [1, 0, 1], [0, 0, 0]),
            // A step of two pods needs no more than two surge pods.
            ([5, 2, 2, 0], [0, 5, 0], [2, 2, -2], [0, 0, 2]),
            // Replacements of requested pods have the revision of the pods that they replace, where that is kept.
            ([5, 5, 1, 1], [5, 0, 0], [0, 0, -1], [0, 1, 0]),
            ([5, 0, 1, 1], [0, 5, 0], [0, 0, -1], [0, 1, 0]),
            ([5, 5, 2, 1], [0, 5, 0], [5, 5, -2], [1, 0, 1]),
            // A pod that is being adopted or held fills a slot.
            ([5, 5, 0, 0], [3, 0, 1], [0, 2, -2], [1, 0, 0]),
            ([5, 5, 0, 0], [3, 0, 2], [0, 2, -2], [0, 0, 0]),
        ] {
            let [replicas, target, surge, replacement_surge] = wanted;
            let [updated, old, held] = pods;
            let slots = Slots { replicas, target, surge, replacement_surge, updated, old, held };
            let changed = [slots.to_update(), slots.missing_updated(), slots.excess()];
            assert_eq!(changed, changes, "{slots:?}");
            let places: Vec<Place> = slots.places().collect();
            let roles = [Place::Reached, Place::Kept, Place::Surge].into_iter().zip(missing);
            let expected: Vec<Place> =
                roles.flat_map(|(place, count)| vec![place; count]).collect();
            assert_eq!(places, expected, "{slots:?}");
            assert_eq!(slots.missing(), places.len() as i64);
        }
    }
}
