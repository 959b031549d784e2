//! Invariant 7: which ordinals there are to be, which pods are too many, and which are to be updated.
//!
//! Pods have ordinals from `start` on. Those with an ordinal of `start` + partition and up are updated,
//! highest first. Surge pods have the highest ordinals, and are deleted at the end.

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;

use crate::plan::observed::Pod;
use crate::plan::pods::availability::is_available;
use crate::plan::revision::Revisions;
use crate::plan::rollout::Rollout;
use crate::plan::scale::moves::Moves;
use crate::plan::scale::sizes::{Choice, Sizes, Sizing};
use crate::plan::workload::identity::Identity;
use crate::plan::workload::{UpdateType, Workload};
use crate::plan::world::World;

/// The pods of a workload by their ordinal.
pub struct Ordinals<'a> {
    workload: &'a Workload<'a>,
    world: &'a World,
    identity: Identity<'a>,
    /// All own pods, Terminating and ended ones too.
    pods: BTreeMap<i64, &'a Pod>,
}

impl<'a> Ordinals<'a> {
    /// Own pods by their ordinal.
    pub fn new(
        workload: &'a Workload<'a>,
        identity: Identity<'a>,
        world: &'a World,
        own: &[&'a Pod],
    ) -> Self {
        let pods = own.iter().copied();
        let pods = pods.filter_map(|pod| Some((workload.ordinal(pod)?, pod)));
        Self {
            workload,
            world,
            identity,
            pods: pods.collect(),
        }
    }

    /// Wanted ordinals, without surge.
    pub fn regular(&self) -> Range<i64> {
        self.identity.start..self.identity.start + self.workload.replicas
    }

    /// Wanted ordinals.
    pub fn wanted(&self, surge: i64) -> Range<i64> {
        let Range { start, end } = self.regular();
        start..end + surge
    }

    /// A pod's ordinal.
    pub fn of(&self, pod: &Pod) -> i64 {
        self.workload.ordinal(pod).unwrap_or(self.identity.start)
    }

    /// Those of these pods that are neither surge pods nor too many.
    pub fn regular_of(&self, pods: &[&'a Pod]) -> Vec<&'a Pod> {
        let is_regular = |pod: &&&Pod| self.regular().contains(&self.of(pod));
        pods.iter().filter(is_regular).copied().collect()
    }

    /// Surge and victims when the rollout is that far: victims are pods below and above the wanted
    /// ordinals.
    pub fn choose(&self, sizing: &Sizing<'a>, rollout: &Rollout) -> Choice<'a> {
        let update = sizing.revisions.update.name();
        let reach = Reach::of(self, rollout);
        let is_old = |pod: &&&Pod| pod.revision() != update && reach.covers(self.of(pod));
        let to_move = sizing.counted.iter().filter(is_old).count() as i64;
        let updated = sizing.counted.iter().filter(|pod| pod.revision() == update);
        let surge = sizing.surge(to_move.min(reach.room(updated.count() as i64)));
        let wanted = self.wanted(surge);
        let too_many = sizing.active.iter();
        let too_many = too_many.filter(|pod| !wanted.contains(&self.of(pod)));
        Choice {
            surge,
            victims: too_many.map(|pod| pod.uid()).collect(),
        }
    }

    /// Old pods that the rollout reaches, highest first.
    pub fn moves(&self, revisions: &Revisions, sizes: &Sizes<'a>) -> Moves<'a> {
        let update = revisions.update.name();
        let reach = Reach::of(self, &sizes.rollout);
        let is_old = |pod: &&&Pod| pod.revision() != update && reach.covers(self.of(pod));
        let old: Vec<&Pod> = sizes.kept.iter().filter(is_old).copied().collect();
        let room = reach
            .room(self.updated(revisions, sizes))
            .min(old.len() as i64);
        // With OnDelete a pod is updated when a user deletes it.
        let count = match self.workload.update {
            UpdateType::OnDelete => 0,
            _ => room,
        };
        Moves {
            old,
            count,
            in_place: count,
        }
    }

    /// Regular pods that are at the update revision.
    pub fn updated(&self, revisions: &Revisions, sizes: &Sizes<'a>) -> i64 {
        let regular = self.regular_of(&sizes.kept);
        let is_updated = |pod: &&&Pod| pod.revision() == revisions.update.name();
        regular.iter().filter(is_updated).count() as i64
    }

    /// Ordinals for which a pod may be created now, highest first, at most so many. With OrderedReady
    /// it is the lowest one without a pod, when every pod below it is available.
    pub fn missing(&self, surge: i64, most: usize) -> Vec<i64> {
        let pods = self.world.pods.iter();
        let taken: HashSet<i64> = pods.filter_map(|pod| self.workload.ordinal(pod)).collect();
        let is_free = |ordinal: &i64| !taken.contains(ordinal);
        let wanted = self.wanted(surge);
        if self.identity.ordered {
            let lowest = wanted.into_iter().find(is_free);
            let below = |ordinal: &i64| self.all_available(self.identity.start..*ordinal);
            return lowest.filter(below).into_iter().collect();
        }
        wanted.rev().filter(is_free).take(most).collect()
    }

    /// Whether a victim may be deleted now. With OrderedReady the highest is deleted first, when every
    /// pod that stays is available and the one deleted before is gone.
    pub fn may_go(&self, pod: &Pod) -> bool {
        if !self.identity.ordered {
            return true;
        }
        let regular = self.regular();
        let highest = self.pods.keys().rfind(|it| !regular.contains(it));
        highest == Some(&self.of(pod)) && self.all_available(regular)
    }

    fn all_available(&self, mut ordinals: Range<i64>) -> bool {
        ordinals.all(|ordinal| {
            let pod = self.pods.get(&ordinal);
            pod.is_some_and(|pod| !pod.ended() && is_available(pod, self.workload, self.world.now))
        })
    }
}

/// How far a rollout reaches.
pub struct Reach {
    /// The lowest ordinal that it covers.
    from: i64,
    /// Pods that may be at the update revision, when that is not all that are covered: a step or
    /// a pause began with fewer pods, and what came since is not to grow an unproven build.
    held: Option<i64>,
}

impl Reach {
    /// How far this rollout reaches.
    pub fn of(ordinals: &Ordinals, rollout: &Rollout) -> Self {
        let all = ordinals.workload.replicas - rollout.partition;
        Self {
            from: ordinals.identity.start + rollout.partition,
            held: (rollout.target < all).then_some(rollout.target),
        }
    }

    /// Whether it covers an ordinal.
    pub fn covers(&self, ordinal: i64) -> bool {
        ordinal >= self.from
    }

    /// How many pods may still be brought there when so many are.
    pub fn room(&self, updated: i64) -> i64 {
        self.held.map_or(i64::MAX, |held| (held - updated).max(0))
    }
}
