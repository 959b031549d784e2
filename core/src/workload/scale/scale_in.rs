//! Which pods are deleted when there are too many, and in which order.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};

use crate::api::names::HookPoint;
use crate::observed::{Pod, PodPhase, PodUid, RevisionName};
use crate::workload::hooks::Hooks;
use crate::workload::in_place::is_at;
use crate::workload::rollout::Rollout;
use crate::workload::scale::sizes::{Choice, Sizing};
use crate::workload::scale::slots::Slots;
use crate::workload::spec::Workload;
use crate::workload::world::World;

/// Ranks the pods of a workload, and chooses victims.
pub(crate) struct ScaleIn<'a> {
    workload: &'a Workload<'a>,
    node_costs: &'a BTreeMap<String, i64>,
    pod_cost_descends: bool,
    /// The number of the workload's pods on each node.
    neighbors: HashMap<&'a str, usize>,
}

/// What a pod waits for, according to its HookRuns and its annotation. Pods with lower values are deleted
/// first, so that a victim remains a victim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Waiting {
    /// The hook of its removal.
    ForRemoval,
    /// The PreDelete hook of an update, or a PreDelete hook whose run has not been created yet.
    Marked,
    /// Nothing.
    No,
}

/// The rank of a pod: pods with lower ranks are deleted first. Fields are compared from top to bottom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank<'a> {
    replacement_not_requested: bool,
    waiting: Waiting,
    scheduled: bool,
    phase: u8,
    ready: bool,
    pod_cost: i64,
    node_cost: i64,
    neighbors: Reverse<usize>,
    newest: Reverse<jiff::Timestamp>,
    name: &'a str,
}

impl<'a> ScaleIn<'a> {
    /// The ranking of these pods.
    pub(crate) fn new(workload: &'a Workload<'a>, world: &'a World, pods: &[&'a Pod]) -> Self {
        let mut neighbors = HashMap::new();
        for node in pods.iter().filter_map(|pod| pod.node.as_deref()) {
            *neighbors.entry(node).or_insert(0) += 1;
        }
        Self {
            workload,
            node_costs: &world.node_costs,
            pod_cost_descends: workload.pod_cost_descends(),
            neighbors,
        }
    }

    /// A pod's rank.
    pub(crate) fn rank(&self, pod: &'a Pod, waiting: Waiting) -> Rank<'a> {
        let node = pod.node.as_deref();
        let cost = node.and_then(|node| self.node_costs.get(node)).copied().unwrap_or_default();
        let pod_cost = pod.deletion_cost;
        Rank {
            replacement_not_requested: !self.workload.replacement_requested(pod),
            waiting,
            scheduled: node.is_some(),
            phase: match pod.phase {
                PodPhase::Failed | PodPhase::Succeeded => 0,
                PodPhase::Pending => 1,
                PodPhase::Unknown => 2,
                PodPhase::Running => 3,
            },
            ready: pod.is_ready(),
            pod_cost: match self.pod_cost_descends {
                true => pod_cost.saturating_neg(),
                false => pod_cost,
            },
            node_cost: cost,
            neighbors: Reverse(
                node.and_then(|node| self.neighbors.get(node)).copied().unwrap_or(0),
            ),
            newest: Reverse(pod.created),
            name: &pod.name,
        }
    }

    /// Chooses victims. Pods whose replacement was requested, or that already wait for their hook, are chosen first,
    /// regardless of their revision. The others are chosen so that each revision keeps as many pods as it has slots
    /// (`slots` counts the same pods); among the old ones, those that an earlier rollout left come before the stable
    /// ones.
    pub(crate) fn victims(
        &self,
        pods: &[&'a Pod],
        (stable, update): (Option<RevisionName>, RevisionName),
        waiting: impl Fn(&Pod) -> Waiting,
        slots: &Slots,
    ) -> HashSet<PodUid<'a>> {
        let mut excess = slots.excess();
        if excess <= 0 {
            return HashSet::new();
        }
        let mut surplus = [slots.to_update(), -slots.missing_updated()];
        let mut ranked: Vec<_> =
            pods.iter().map(|pod| (self.rank(pod, waiting(pod)), *pod)).collect();
        ranked.sort_unstable_by_key(|(rank, pod)| {
            let is_left = !is_at(pod, update) && Some(pod.revision()) != stable;
            (rank.replacement_not_requested, rank.waiting, !is_left, *rank)
        });
        let mut victims = HashSet::new();
        for preferred in [true, false] {
            for (rank, pod) in &ranked {
                let is_preferred = !(rank.replacement_not_requested && rank.waiting == Waiting::No);
                let group = usize::from(is_at(pod, update));
                let may_choose = preferred || surplus[group] > 0;
                if excess > 0 && is_preferred == preferred && may_choose {
                    victims.insert(pod.uid());
                    surplus[group] -= 1;
                    excess -= 1;
                }
            }
        }
        victims
    }
}

/// Surge and victims for this state of the rollout.
pub(crate) fn choose<'a>(
    sizing: &Sizing<'a>,
    order: &ScaleIn<'a>,
    hooks: &Hooks,
    rollout: &Rollout,
) -> Choice<'a> {
    let update = sizing.revisions.update.name();
    let slots = Slots::new(sizing.workload.replicas, rollout.target, sizing.active, update);
    let limit = surge_limit(sizing);
    let replacement_surge = sizing.surge(requested_replacements(sizing)).min(limit);
    let surge = sizing.surge(slots.to_update()).min(limit).max(replacement_surge);
    let slots = Slots { surge, ..slots };
    let waiting = |pod: &Pod| {
        let is_to_change = hooks.has_run(HookPoint::PreInplace, pod);
        if hooks.has_removal_run(pod) {
            Waiting::ForRemoval
        } else if hooks.has_run(HookPoint::PreDelete, pod)
            || hooks.has_waited(pod)
            || (pod.marked_deleting && !is_to_change)
        {
            Waiting::Marked
        } else {
            Waiting::No
        }
    };
    Choice {
        surge,
        replacement_surge,
        victims: order.victims(sizing.active, (rollout.progress.stable(), update), waiting, &slots),
    }
}

/// The highest surge for which pods may be kept or created. If there are more pods than replicas plus the surge pods in
/// the status, the workload is being scaled in, and there are no further surge pods until it has been: otherwise old pods
/// would be kept in their place, for as long as the rollout is paused or its template refused.
fn surge_limit(sizing: &Sizing) -> i64 {
    let Workload { replicas, progress, max_surge, .. } = sizing.workload;
    let is_scaling_in = sizing.active.len() as i64 > replicas + progress.surge;
    match (is_scaling_in, replicas) {
        (_, 0) => 0,
        (true, _) => progress.surge,
        (false, _) => *max_surge,
    }
}

/// The number of pods whose requested replacement may be created before they are deleted. A scale-in deletes such pods
/// first, and without a replacement.
fn requested_replacements(sizing: &Sizing) -> i64 {
    let is_requested = |pod: &&&Pod| sizing.workload.replacement_requested(pod);
    sizing.active.iter().filter(is_requested).count() as i64
}
