//! The controller of Clusters. Only one Cluster is active and its writes are few, so they are made one after another, and
//! the first one that fails ends the plan.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;
use tracing::debug;

use super::Shared;
use super::memories::{Memories, Remembered};
use crate::kinds::{Cache, Whole};
use crate::reconcile::apply::{Target, instant};
use crate::runtime::objects::{Kind, ObjectKey};
use crate::runtime::queue::Requeue;
use crate::runtime::store::Cached;
use gamekeeper_core::api::names::HOOKS_NAMESPACE;
use gamekeeper_core::api::{Cluster, ClusterPhase, HookRun};
use gamekeeper_core::lifecycle::{ClusterWorld, GamePod, Memory, plan, seniority};
use gamekeeper_core::write::Owner;

/// How long to wait before the creation of a refused run is retried.
const REFUSED_INTERVAL: Duration = Duration::from_secs(10);

/// Reconciles Clusters.
pub(crate) struct Clusters {
    shared: Shared,
    /// The image that runs scripts: the operator's own.
    image: String,
    memories: Memories<Memory>,
}

impl Clusters {
    pub(crate) fn new(shared: Shared, image: String) -> Self {
        Self { shared, image, memories: Memories::default() }
    }

    fn cache(&self) -> &Cache {
        &self.shared.cache
    }

    /// Reconciles one Cluster: waits until the cache shows our own last writes, plans, and applies.
    pub(crate) async fn reconcile(self: Arc<Self>, key: ObjectKey) -> Requeue {
        let reflector = &self.cache().clusters;
        if let Some(unreadable) = reflector.unreadable(&key) {
            let reporter = &self.shared.unreadable;
            return reporter.report(Kind::Cluster, &key, &unreadable).await;
        }
        if let Some(known) = reflector.get(&key) {
            self.cache().until_caught_up(known.uid()).await;
        }
        let Some(cluster) = reflector.get(&key) else {
            self.memories.forget(self.cache(), &key);
            return Requeue::Settled(None);
        };
        let mut remembered = self.memories.recall(self.cache(), &key, cluster.uid());
        let requeue = self.plan_and_apply(&cluster, &mut remembered).await;
        self.memories.keep(key, remembered);
        requeue
    }

    async fn plan_and_apply(
        self: &Arc<Self>,
        cluster: &Arc<Whole<Cluster>>,
        remembered: &mut Remembered<Memory>,
    ) -> Requeue {
        let Remembered { memory, pace, .. } = remembered;
        let read_at = Instant::now();
        let (this, subject, known) = (Arc::clone(self), Arc::clone(cluster), memory.clone());
        let planned = self.shared.planners.run(move || {
            let world = this.world(&subject, known);
            (world.now, plan(&subject.object, &world))
        });
        let (now, plan): (Timestamp, _) = planned.await;
        debug!(writes = ?plan.writes, wake = ?plan.wake, "planned");
        memory.retain_refused(&plan.writes);
        let has_writes = !plan.writes.is_empty();
        let wake = plan.wake.map(|at| instant(at, now));
        let mut target = target(cluster, read_at);
        let on_write = |written| self.cache().expectations.record(cluster.uid(), written);
        let old_status = cluster.object.status.as_ref();
        let applier = &self.shared.applier;
        let report =
            applier.carry_out(&mut target, plan, old_status, memory, pace, &on_write).await;
        if memory.forgets_refusal(has_writes, now) {
            return Requeue::Now;
        }
        let retry_at = (!memory.refused.is_empty()).then(|| Instant::now() + REFUSED_INTERVAL);
        report.requeue(wake.into_iter().chain(retry_at).min())
    }

    fn world(&self, cluster: &Whole<Cluster>, memory: Memory) -> ClusterWorld {
        let nodes = self.cache().nodes.store().all();
        let runs = self.cache().hook_runs.store().all();
        let is_own = |run: &HookRun| {
            let mut owners = run.metadata.owner_references.iter().flatten();
            owners.any(|owner| owner.uid == cluster.uid())
        };
        let runs = runs.iter().filter(|run| run.namespace() == HOOKS_NAMESPACE);
        let runs = runs.map(|run| Arc::clone(&run.object));
        let nodes = nodes.iter().filter_map(|node| node.for_clusters.clone());
        ClusterWorld {
            now: Timestamp::now(),
            nodes: nodes.collect(),
            runs: runs.filter(|run| is_own(run)).collect(),
            older_cluster: self.older_cluster(cluster),
            image: self.image.clone(),
            game_pods: self.game_pods(cluster),
            memory,
        }
    }

    /// The pods of game workloads, without those that have ended; empty unless nodes are drained for an upgrade.
    fn game_pods(&self, cluster: &Whole<Cluster>) -> Vec<GamePod> {
        let strategy = &cluster.object.spec.features.upgrade.strategy;
        let status = cluster.object.status.as_ref();
        let is_upgrading = status.is_some_and(|it| it.phase == ClusterPhase::Upgrading);
        if !strategy.drain_node_before_upgrade || !is_upgrading {
            return Vec::new();
        }
        let pods = self.cache().pods.store().all();
        let pods = pods.iter().filter_map(|pod| pod.own());
        let pods = pods.filter(|pod| !pod.ended());
        pods.filter_map(|pod| {
            Some(GamePod {
                node: pod.node.clone()?,
                namespace: pod.namespace.to_string(),
                name: pod.name.to_string(),
                uid: pod.uid.clone(),
                move_requested: pod.move_requested.is_some(),
            })
        })
        .collect()
    }

    /// The name of the oldest Cluster; None if this one is the oldest.
    fn older_cluster(&self, cluster: &Whole<Cluster>) -> Option<String> {
        let clusters = self.cache().clusters.store().all();
        let oldest = clusters.iter().min_by_key(|it| seniority(&it.object))?;
        (oldest.uid() != cluster.uid()).then(|| oldest.name().to_owned())
    }
}

fn target(cluster: &Whole<Cluster>, read_at: Instant) -> Target {
    let meta = &cluster.object.metadata;
    Target {
        owner: Owner {
            kind: Kind::Cluster,
            namespace: String::new(),
            name: cluster.name().to_owned(),
            uid: cluster.uid().to_owned(),
            resource_version: meta.resource_version.clone().unwrap_or_default(),
            revision_namespace: String::new(),
            revision_labels: BTreeMap::new(),
            selector_keys: Vec::new(),
        },
        generation: meta.generation.unwrap_or_default(),
        deleting: meta.deletion_timestamp.is_some(),
        hooked: false,
        read_at,
    }
}
