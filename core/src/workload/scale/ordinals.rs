//! Invariant 7: which ordinals should have a pod, which pods are surplus, and which ones a rollout updates.
//!
//! Pods have the first ordinals that are not reserved, counted from `start`. The first `partition` of them are kept
//! at the old revision; the others are updated, highest first. Surge pods have the highest ordinals, and are deleted
//! when all other pods are available.

use std::collections::{BTreeMap, HashSet};

use crate::observed::{Pod, PodUid};
use crate::workload::in_place::is_at;
use crate::workload::pods::availability::is_available;
use crate::workload::revision::Revisions;
use crate::workload::rollout::Rollout;
use crate::workload::scale::ordinal_range::OrdinalRange;
use crate::workload::scale::sizes::{Choice, Sizes, Sizing};
use crate::workload::scale::to_update::ToUpdate;
use crate::workload::spec::Workload;
use crate::workload::spec::identity::Identity;
use crate::workload::world::World;

/// The pods of a workload by their ordinal.
pub(crate) struct Ordinals<'a> {
    workload: &'a Workload<'a>,
    world: &'a World,
    identity: Identity<'a>,
    /// All own pods, including Terminating and ended ones.
    pods: BTreeMap<i64, &'a Pod>,
    /// Ordinals that have a pod, whether the workload controls it or not.
    taken: HashSet<i64>,
}

impl<'a> Ordinals<'a> {
    /// Finds the ordinals of these pods.
    pub(crate) fn new(
        workload: &'a Workload<'a>,
        identity: Identity<'a>,
        world: &'a World,
        own: &[&'a Pod],
    ) -> Self {
        let pods = own.iter().copied();
        let pods = pods.filter_map(|pod| Some((workload.ordinal(pod)?, pod)));
        let all_pods = world.pods.iter();
        Self {
            workload,
            world,
            identity,
            pods: pods.collect(),
            taken: all_pods.filter_map(|pod| workload.ordinal(pod)).collect(),
        }
    }

    /// The ordinals that should have a pod, without surge.
    pub(crate) fn regular(&self) -> OrdinalRange<'a> {
        self.wanted(0)
    }

    /// The ordinals that should have a pod, including this many surge pods.
    pub(crate) fn wanted(&self, surge: i64) -> OrdinalRange<'a> {
        self.first(self.workload.replicas + surge)
    }

    fn first(&self, count: i64) -> OrdinalRange<'a> {
        OrdinalRange::first(count, self.identity.start, &self.workload.reserved)
    }

    /// A pod's ordinal.
    pub(crate) fn ordinal_of(&self, pod: &Pod) -> i64 {
        self.workload.ordinal(pod).unwrap_or(self.identity.start)
    }

    /// The pods among these that are neither surge pods nor surplus.
    pub(crate) fn regular_of(&self, pods: &[&'a Pod]) -> Vec<&'a Pod> {
        let regular = self.regular();
        let is_regular = |pod: &&&Pod| regular.contains(self.ordinal_of(pod));
        pods.iter().filter(is_regular).copied().collect()
    }

    /// Surge and victims for this state of the rollout. Victims are pods whose ordinal is below or above the wanted
    /// ones, or reserved.
    pub(crate) fn choose(&self, sizing: &Sizing<'a>, rollout: &Rollout) -> Choice<'a> {
        let update = sizing.revisions.update.name();
        let reach = Reach::of(self, rollout);
        let is_old = |pod: &&&Pod| !is_at(pod, update) && reach.covers(self.ordinal_of(pod));
        let to_update = sizing.counted.iter().filter(is_old).count() as i64;
        let updated = sizing.counted.iter().filter(|pod| is_at(pod, update));
        let to_update = to_update.min(reach.room(updated.count() as i64));
        let surge = sizing.surge(to_update).max(self.surge_to_keep(sizing, to_update));
        let wanted = self.wanted(surge);
        let surplus = sizing.active.iter();
        let surplus = surplus.filter(|pod| !wanted.contains(self.ordinal_of(pod)));
        Choice {
            surge,
            // The replacement of a pod has the same ordinal, so it cannot be created first.
            replacement_surge: 0,
            victims: surplus.map(|pod| pod.uid()).collect(),
        }
    }

    /// The number of existing surge pods that the update still needs while `to_update` pods are to be updated. Surge
    /// pods that exist also make up for unavailable pods, such as the one that was updated last, but none is created
    /// for that purpose. If the status records no surge, the number is 0: after a scale-in, surplus pods are deleted
    /// even if other pods are broken.
    fn surge_to_keep(&self, sizing: &Sizing<'a>, to_update: i64) -> i64 {
        let wanted = self.wanted(self.workload.progress.surge);
        let is_active = |ordinal: &i64| {
            let pod = self.pods.get(ordinal);
            pod.is_some_and(|pod| !pod.terminating && !pod.ended())
        };
        let surge_ordinals = wanted.starting_at(self.regular().end());
        let existing = surge_ordinals.iter().take_while(is_active).count() as i64;
        if existing == 0 {
            return 0;
        }
        let update = sizing.revisions.update.name();
        let is_old = |ordinal: &i64| {
            let pod = self.pods.get(ordinal);
            pod.is_some_and(|pod| is_active(ordinal) && !is_at(pod, update))
        };
        let is_awaited = |ordinal: &i64| !is_old(ordinal) && !self.is_available(*ordinal);
        let awaited = self.regular().iter().filter(is_awaited).count() as i64;
        sizing.surge(to_update + awaited).min(existing)
    }

    /// Old pods that the rollout reaches, highest first.
    pub(crate) fn to_update(&self, revisions: &Revisions, sizes: &Sizes<'a>) -> ToUpdate<'a> {
        let update = revisions.update.name();
        let reach = Reach::of(self, &sizes.rollout);
        let is_old = |pod: &&&Pod| !is_at(pod, update) && reach.covers(self.ordinal_of(pod));
        let old: Vec<&Pod> = sizes.kept.iter().filter(is_old).copied().collect();
        let room = reach.room(self.updated(revisions, sizes));
        let count = room.min(old.len() as i64);
        let last_vacant = self.last_updated_vacancy(&reach, room);
        let comes_back_old =
            |pod: &&&Pod| last_vacant.is_some_and(|vacant| self.ordinal_of(pod) < vacant);
        let not_recreated = old.iter().filter(comes_back_old).map(|pod| pod.uid()).collect();
        ToUpdate { old, count, in_place: count, not_recreated }
    }

    /// The lowest ordinal for which a pod is yet to be created at the update revision ([`Self::reached`]), if those that are
    /// take all the room. A pod below it that is deleted for its update would come back at the stable revision, and be
    /// deleted again, without end.
    fn last_updated_vacancy(&self, reach: &Reach, room: i64) -> Option<i64> {
        reach.held?;
        let covered = self.regular().starting_at(reach.from);
        let mut vacant = covered.iter().rev().filter(|ordinal| self.is_vacant(*ordinal));
        vacant.nth(usize::try_from(room).ok()?.checked_sub(1)?)
    }

    /// Whether a pod is yet to be created for an ordinal, now or once the old one is gone. A pod that terminates on a lost
    /// node may never be gone.
    fn is_vacant(&self, ordinal: i64) -> bool {
        let Some(pod) = self.pods.get(&ordinal) else {
            return !self.taken.contains(&ordinal);
        };
        let is_lost = pod.node.as_ref().is_some_and(|it| self.world.lost_nodes.contains_key(it));
        pod.ended() || (pod.terminating && !is_lost)
    }

    /// The number of regular pods at the update revision.
    pub(crate) fn updated(&self, revisions: &Revisions, sizes: &Sizes<'a>) -> i64 {
        let regular = self.regular_of(&sizes.kept);
        let is_updated = |pod: &&&Pod| is_at(pod, revisions.update.name());
        regular.iter().filter(is_updated).count() as i64
    }

    /// At most `limit` ordinals for which a pod may be created now, lowest first: if there is room for a part of them
    /// only, the lowest ones exist. With OrderedReady, only the lowest ordinal without a pod, once every pod below it is
    /// available.
    pub(crate) fn missing(&self, surge: i64, limit: usize) -> Vec<i64> {
        let is_free = |ordinal: &i64| !self.taken.contains(ordinal);
        let wanted = self.wanted(surge);
        if self.identity.ordered {
            let lowest = wanted.iter().find(is_free);
            let may_follow = |ordinal: &i64| self.all_available(&wanted.below(*ordinal));
            return lowest.filter(may_follow).into_iter().collect();
        }
        wanted.iter().filter(is_free).take(limit).collect()
    }

    /// Those of the lowest free ordinals whose pods are created at the update revision, if `room` more pods may have it:
    /// as for updates, the highest of all free ordinals that the rollout covers.
    pub(crate) fn reached(&self, free: &[i64], reach: &Reach, room: i64) -> HashSet<i64> {
        let covered = self.regular().starting_at(reach.from);
        let taken = self.taken.iter().filter(|it| covered.contains(**it)).count() as i64;
        let below = covered.len().saturating_sub(taken).saturating_sub(room);
        let free = free.iter().filter(|it| covered.contains(**it));
        free.skip(usize::try_from(below).unwrap_or(0)).copied().collect()
    }

    /// Victims that may be deleted now.
    ///
    /// With OrderedReady this is the highest victim, once every pod that stays is available and the previous victim no
    /// longer exists. With Parallel, one victim is kept for each pod that is still to be created, if pods can be
    /// created now (`can_create`), so there are never too few pods. The pod of a reserved ordinal is kept until its
    /// substitute is available.
    pub(crate) fn leaving(
        &self,
        victims: &HashSet<PodUid<'a>>,
        can_create: bool,
    ) -> HashSet<PodUid<'a>> {
        let regular = self.regular();
        if self.identity.ordered {
            let is_not_regular = |(ordinal, _): &(&i64, &&'a Pod)| !regular.contains(**ordinal);
            let highest = self.pods.iter().rfind(is_not_regular);
            let highest = highest.filter(|_| self.all_available(&regular));
            return highest.map(|(_, pod)| pod.uid()).into_iter().collect();
        }
        let is_victim = |(_, pod): &(&i64, &&'a Pod)| victims.contains(&pod.uid());
        let span = self.identity.start..regular.end();
        let reserved = &self.workload.reserved;
        let is_replaced = |ordinal: &i64| span.contains(ordinal) && reserved.contains(ordinal);
        let leaving = self.pods.iter().rev().filter(is_victim);
        let (replaced, others): (Vec<_>, Vec<_>) =
            leaving.partition(|(ordinal, _)| is_replaced(ordinal));
        // The ordinals from `start` + replicas on replace the reserved ones.
        let substitutes = regular.starting_at(self.identity.start + self.workload.replicas);
        let unavailable = substitutes.iter().filter(|it| !self.is_available(*it));
        let replaced_now = replaced.len().saturating_sub(unavailable.count());
        let missing = if can_create { self.count_missing(&regular) } else { 0 };
        let limit = (replaced.len() + others.len()).saturating_sub(missing);
        let leaving = others.into_iter().chain(replaced.into_iter().take(replaced_now));
        leaving.take(limit).map(|(_, pod)| pod.uid()).collect()
    }

    /// How many of the regular ordinals have no pod.
    fn count_missing(&self, regular: &OrdinalRange) -> usize {
        let taken = self.taken.iter().filter(|it| regular.contains(**it));
        let wanted = usize::try_from(self.workload.replicas).unwrap_or(0);
        wanted.saturating_sub(taken.count())
    }

    fn all_available(&self, ordinals: &OrdinalRange) -> bool {
        ordinals.iter().all(|ordinal| self.is_available(ordinal))
    }

    fn is_available(&self, ordinal: i64) -> bool {
        let pod = self.pods.get(&ordinal);
        pod.is_some_and(|pod| !pod.ended() && is_available(pod, self.workload, self.world.now))
    }
}

/// How far a rollout reaches.
pub(crate) struct Reach {
    /// The lowest ordinal that the rollout covers.
    from: i64,
    /// The number of pods that may be at the update revision; None if it is the number of covered ordinals. It can be
    /// lower for two reasons. A step or a pause began with fewer pods, and a scale-out must not spread an unproven
    /// build. Or an ordinal was reserved in the meantime, so that some updated pods are no longer covered.
    held: Option<i64>,
}

impl Reach {
    /// How far this rollout reaches.
    pub(crate) fn of(ordinals: &Ordinals, rollout: &Rollout) -> Self {
        let workload = ordinals.workload;
        let is_held = rollout.target < workload.replicas - rollout.partition;
        Self {
            from: ordinals.first(rollout.partition).end(),
            held: (is_held || !workload.reserved.is_empty()).then_some(rollout.target),
        }
    }

    /// Whether the rollout covers this ordinal.
    pub(crate) fn covers(&self, ordinal: i64) -> bool {
        ordinal >= self.from
    }

    /// How many more pods may be at the update revision, if `updated` pods already are.
    pub(crate) fn room(&self, updated: i64) -> i64 {
        self.held.map_or(i64::MAX, |held| (held - updated).max(0))
    }
}
