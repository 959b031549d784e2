//! Pod names of a GameStatefulSet that stay free for some time after the pods have left their nodes.
//!
//! `kubectl drain` retries a refused eviction every five seconds by the pod's name, and ends when no such pod exists
//! or the pod is Terminating. If the pod's replacement, on another node, already existed at the next attempt, the drain
//! would try to evict the replacement, and never end.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::api::{Reason, VacatedName};
use crate::observed::Pod;
use crate::observed::time::rounded_up;
use crate::workload::decision::{Blocked, Draft};
use crate::workload::protection::node_going::is_going;
use crate::workload::spec::Workload;
use crate::workload::world::World;

/// How long a name stays free: the interval between a drain's attempts, plus some time for a slow API server.
const FREE_FOR: SignedDuration = SignedDuration::from_secs(10);

/// Names that stay free, and since when.
#[derive(Clone, Debug, Default)]
pub(crate) struct Vacated(BTreeMap<String, Timestamp>);

impl Vacated {
    /// The names that the last status recorded and that still stay free.
    pub(crate) fn of(workload: &Workload, world: &World) -> Self {
        let recorded = workload.progress.vacated.iter();
        let recorded = recorded.map(|it| (it.pod_name.clone(), it.since.0));
        let free = recorded.filter(|(_, since)| free_until(*since) > world.now);
        Self(free.collect())
    }

    /// Adds the names of guarded pods that this plan deletes from nodes that are going to be removed.
    pub(crate) fn add(&mut self, workload: &Workload, world: &World, own: &[&Pod], draft: &Draft) {
        if world.going_nodes.is_empty() {
            return;
        }
        let deleted = draft.deleted_pods();
        let leaves = |pod: &&&Pod| {
            deleted.contains(&pod.uid()) && workload.guards(pod) && is_going(workload, world, pod)
        };
        let names = own.iter().filter(leaves).map(|pod| pod.name.clone());
        let since = rounded_up(world.now);
        self.0.extend(names.map(|name| (name, since)));
    }

    /// Whether a name stays free.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// When the next name can be used again.
    pub(crate) fn wake(&self) -> Option<Timestamp> {
        self.0.values().copied().map(free_until).min()
    }

    /// What the creation of pods waits for.
    pub(crate) fn waits_for(&self) -> Option<Blocked> {
        let (name, since) = self.0.first_key_value()?;
        Some(Blocked {
            reason: Reason::NodeDraining,
            message: format!(
                "pod {name} was deleted because its node is going to be removed, and is created again at {}, so that a \
                 drain of the node can notice the deletion",
                free_until(*since)
            ),
        })
    }

    /// What the status records.
    pub(crate) fn status(&self) -> Vec<VacatedName> {
        let names = self
            .0
            .iter()
            .map(|(name, since)| VacatedName { pod_name: name.clone(), since: Time(*since) });
        names.collect()
    }
}

/// When a name can be used again.
fn free_until(since: Timestamp) -> Timestamp {
    since.checked_add(FREE_FOR).unwrap_or(since)
}
