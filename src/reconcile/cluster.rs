//! The controller of Clusters: reads the cache, plans, and writes. Only one Cluster is active and its writes are few,
//! so they are made one after another.

mod drained;
mod proof;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::Instant;
use tracing::{debug, info, warn};

use super::UnreadableReporter;
use super::planners::Planners;
use super::refused::retry;
use crate::kinds::{Cache, Whole};
use crate::reconcile::apply::events::{EventRecorder, PendingEvent, Regarding};
use crate::reconcile::apply::{AdaptiveTimeout, PROOF_LIFETIME};
use crate::runtime::objects::{Deleted, Kind, ObjectKey, Written};
use crate::runtime::queue::Requeue;
use crate::runtime::request::{Content, Refusal, RequestResult, Requests, to_bytes};
use crate::runtime::store::Cached;
use gamekeeper_core::api::names::{
    HOOKS_NAMESPACE, LIFECYCLE_FINALIZER, MOVE_ANNOTATION, NODE_RECORD, NOT_INSTALLED_TAINT,
};
use gamekeeper_core::api::{Cluster, ClusterPhase, ClusterStatus, HookRun};
use gamekeeper_core::lifecycle::{
    ClusterAction, ClusterNode, ClusterWorld, GamePod, plan, seniority,
};

/// How long to wait before the creation of a refused run is retried.
const REFUSED_INTERVAL: Duration = Duration::from_secs(10);

/// Reconciles Clusters.
pub(crate) struct Clusters {
    cache: Arc<Cache>,
    requests: Requests,
    events: EventRecorder,
    unreadable: UnreadableReporter,
    planners: Arc<Planners>,
    /// The image that runs scripts: the operator's own.
    image: String,
    /// Why the API server refused to create runs, by Cluster and then by the name of the run.
    refused: Mutex<HashMap<ObjectKey, BTreeMap<String, String>>>,
    proof_timeout: Mutex<AdaptiveTimeout>,
}

/// Why the rest of a plan is not carried out.
enum Stop {
    /// An object that the decision was based on has changed, or may have changed while a write waited.
    Conflict(String),
    Failed(Refusal),
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Conflict(message) | Refusal::NotFound(message) => Stop::Conflict(message),
            Refusal::Late(late) => Stop::Conflict(late.to_string()),
            refusal => Stop::Failed(refusal),
        }
    }
}

impl Clusters {
    pub(crate) fn new(
        cache: Arc<Cache>,
        requests: Requests,
        events: EventRecorder,
        unreadable: UnreadableReporter,
        planners: Arc<Planners>,
        image: String,
    ) -> Self {
        Self {
            cache,
            requests,
            events,
            unreadable,
            planners,
            image,
            refused: Mutex::default(),
            proof_timeout: Mutex::new(AdaptiveTimeout::new(PROOF_LIFETIME)),
        }
    }

    /// Reconciles one Cluster: waits until the cache shows our own last writes, plans, and writes.
    pub(crate) async fn reconcile(self: Arc<Self>, key: ObjectKey) -> Requeue {
        let reflector = &self.cache.clusters;
        if let Some(unreadable) = reflector.unreadable(&key) {
            let reporter = &self.unreadable;
            return reporter.report(Kind::Cluster, &key, &unreadable).await;
        }
        if let Some(known) = reflector.get(&key) {
            self.cache.until_caught_up(known.uid()).await;
        }
        let Some(cluster) = reflector.get(&key) else {
            self.refused().remove(&key);
            return Requeue::Settled(None);
        };
        let read_at = Instant::now();
        let (this, subject) = (Arc::clone(&self), Arc::clone(&cluster));
        let planned = self.planners.run(move || {
            let world = this.world(&subject);
            (world.now, plan(&subject.object, &world))
        });
        let (now, plan) = planned.await;
        debug!(actions = ?plan.actions, wake = ?plan.wake, "planned");
        for event in plan.events {
            let regarding = regarding(&cluster);
            self.events.publish(regarding, PendingEvent::Plain(event));
        }
        let written = self.write(&cluster, plan.status, plan.actions).await;
        match written {
            Ok(()) => {
                let wake = plan.wake.map(|at| at.duration_since(now));
                let wake = wake.map(|delay| Duration::try_from(delay).unwrap_or_default());
                let refused = self.refused().contains_key(&key);
                let wake = wake.map(|delay| read_at + delay.max(Duration::from_millis(10)));
                let retry_at = refused.then(|| Instant::now() + REFUSED_INTERVAL);
                Requeue::Settled(wake.into_iter().chain(retry_at).min())
            }
            Err(Stop::Conflict(message)) => {
                debug!(message, "the object has changed; planning again");
                Requeue::Conflict
            }
            Err(Stop::Failed(refusal)) => {
                warn!(%refusal, "request failed; retrying");
                retry(&refusal)
            }
        }
    }

    fn world(&self, cluster: &Whole<Cluster>) -> ClusterWorld {
        let nodes = self.cache.nodes.store().all();
        let runs = self.cache.hook_runs.store().all();
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
            refused: self.refused().get(&cluster.key()).cloned().unwrap_or_default(),
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
        let pods = self.cache.pods.store().all();
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
        let clusters = self.cache.clusters.store().all();
        let oldest = clusters.iter().min_by_key(|it| seniority(&it.object))?;
        (oldest.uid() != cluster.uid()).then(|| oldest.name().to_owned())
    }

    fn refused(&self) -> MutexGuard<'_, HashMap<ObjectKey, BTreeMap<String, String>>> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the status, then the rest, so that a step that has passed is recorded before anything that depends on
    /// it.
    async fn write(
        &self,
        cluster: &Whole<Cluster>,
        status: Option<ClusterStatus>,
        actions: Vec<ClusterAction>,
    ) -> Result<(), Stop> {
        for action in &actions {
            // The status would say that the script is running.
            if let ClusterAction::CreateHookRun { drained_node: Some(node), .. } = action {
                self.check_drained(node).await?;
            }
        }
        if let Some(status) = status {
            let object = Cluster { status: Some(status), ..Cluster::clone(&cluster.object) };
            let path = format!("{}/status", path_of(cluster));
            let written = self.requests.put(&path, to_bytes(&object)).await;
            self.record(cluster, Kind::Cluster, written)?;
        }
        self.refused().remove(&cluster.key());
        let mut proven_until = None;
        for action in actions {
            self.act(cluster, action, &mut proven_until).await?;
        }
        Ok(())
    }

    async fn act(
        &self,
        cluster: &Whole<Cluster>,
        action: ClusterAction,
        proven_until: &mut Option<Instant>,
    ) -> Result<(), Stop> {
        let requests = self.proven(cluster, None, proven_until).await?;
        match action {
            ClusterAction::CreateHookRun { run, drained_node } => {
                let node = drained_node.as_deref();
                self.create(cluster, &run, node, proven_until).await
            }
            ClusterAction::SetFinalizer(add) => {
                let body = finalizer_patch(&cluster.object, add);
                let path = path_of(cluster);
                let content = Content::MergePatch;
                let written = requests.patch(&path, content, to_bytes(&body)).await;
                self.record(cluster, Kind::Cluster, written)
            }
            ClusterAction::DeleteHookRun { name, uid } => {
                let path = Kind::HookRun.path(HOOKS_NAMESPACE, &name);
                // The run must exist until its script has ended, because its node is busy until then.
                match requests.delete_after_dependents(&path, &uid).await {
                    Ok(_) | Err(Refusal::NotFound(_) | Refusal::Conflict(_)) => {}
                    Err(refusal) => return Err(refusal.into()),
                }
                let deleted = Deleted {
                    kind: Kind::HookRun,
                    key: ObjectKey::new(HOOKS_NAMESPACE, name),
                    uid,
                };
                self.expect(cluster, Written::Deleted(deleted));
                Ok(())
            }
            ClusterAction::MovePod(pod) => self.move_pod(cluster, &requests, &pod).await,
            ClusterAction::RecordNode { node, record, cordon } => {
                let mut body = json!({"metadata": {
                    "uid": node.uid, "resourceVersion": node.resource_version,
                    "annotations": {NODE_RECORD: record},
                }});
                if let Some(cordon) = cordon {
                    body["spec"] = json!({"unschedulable": cordon});
                }
                self.patch_node(cluster, &requests, &node, Content::MergePatch, &body).await
            }
            ClusterAction::AdmitNode(node) => {
                let body = without_taint(&node);
                self.patch_node(cluster, &requests, &node, Content::JsonPatch, &body).await
            }
        }
    }

    /// Sets the annotation that `kubectl game move` sets. If the pod was deleted or replaced, no annotation is needed.
    async fn move_pod(
        &self,
        cluster: &Whole<Cluster>,
        requests: &Requests,
        pod: &GamePod,
    ) -> Result<(), Stop> {
        let value = format!("cluster/{}", cluster.name());
        let body = json!({"metadata": {
            "uid": pod.uid, "annotations": {MOVE_ANNOTATION: value},
        }});
        let path = Kind::Pod.path(&pod.namespace, &pod.name);
        let content = Content::MergePatch;
        let written = requests.patch(&path, content, to_bytes(&body)).await;
        match written {
            Err(Refusal::NotFound(_) | Refusal::Conflict(_)) => Ok(()),
            written => self.record(cluster, Kind::Pod, written),
        }
    }

    async fn patch_node(
        &self,
        cluster: &Whole<Cluster>,
        requests: &Requests,
        node: &ClusterNode,
        content: Content,
        body: &Value,
    ) -> Result<(), Stop> {
        let path = Kind::Node.path("", &node.name);
        let written = requests.patch(&path, content, to_bytes(body)).await;
        self.record(cluster, Kind::Node, written)
    }

    /// Creates a run. The creation of its pod is first tried in a dry run: otherwise, a refusal of the pod would only
    /// be visible in events of the Job.
    async fn create(
        &self,
        cluster: &Whole<Cluster>,
        run: &HookRun,
        drained_node: Option<&str>,
        proven_until: &mut Option<Instant>,
    ) -> Result<(), Stop> {
        let name = run.metadata.name.clone().unwrap_or_default();
        let pods = Kind::Pod.collection(Some(HOOKS_NAMESPACE));
        let dry_run = self.requests.dry_run_create(&pods, to_bytes(&pod(run))).await;
        if let Err(
            Refusal::Rejected(why) | Refusal::NamespaceTerminating(why) | Refusal::NotFound(why),
        ) = dry_run
        {
            return self.record_refusal(cluster, name, why);
        }
        let runs = Kind::HookRun.collection(Some(HOOKS_NAMESPACE));
        // A started script cannot be undone, and the dry run may have taken long.
        let requests = self.proven(cluster, drained_node, proven_until).await?;
        let created = requests.create(&runs, to_bytes(run)).await;
        match created {
            Err(Refusal::AlreadyExists(_)) => {
                let path = Kind::HookRun.path(HOOKS_NAMESPACE, &name);
                let found = self.requests.get(&path).await?;
                match found.is_owned_by(cluster.uid()) {
                    // Created by a request whose response was lost.
                    true => {
                        self.expect(cluster, Written::Version(Kind::HookRun, found.version()));
                        Ok(())
                    }
                    false => {
                        let why = format!("HookRun {name} belongs to another object; delete it");
                        self.record_refusal(cluster, name, why)
                    }
                }
            }
            Err(Refusal::Rejected(why) | Refusal::NamespaceTerminating(why)) => {
                self.record_refusal(cluster, name, why)
            }
            created => {
                self.record(cluster, Kind::HookRun, created)?;
                info!(run = name, "started a script");
                Ok(())
            }
        }
    }

    /// Remembers why a run cannot be created; the next plan shows it in a condition.
    fn record_refusal(
        &self,
        cluster: &Whole<Cluster>,
        run: String,
        why: String,
    ) -> Result<(), Stop> {
        warn!(run, why, "cannot create a HookRun");
        self.refused().entry(cluster.key()).or_default().insert(run, why);
        Ok(())
    }

    /// Records the result of a write, so that the next plan waits until the cache shows the write.
    fn record(
        &self,
        cluster: &Whole<Cluster>,
        kind: Kind,
        written: RequestResult,
    ) -> Result<(), Stop> {
        match written {
            Ok(meta) => self.expect(cluster, Written::Version(kind, meta.version())),
            Err(refusal) => {
                if matches!(refusal, Refusal::Unavailable { .. }) {
                    self.expect(cluster, Written::Unknown(kind));
                }
                return Err(refusal.into());
            }
        }
        Ok(())
    }

    fn expect(&self, cluster: &Whole<Cluster>, written: Written) {
        self.cache.expectations.record(cluster.uid(), written);
    }
}

fn path_of(cluster: &Whole<Cluster>) -> String {
    Kind::Cluster.path("", cluster.name())
}

fn regarding(cluster: &Whole<Cluster>) -> Regarding {
    Regarding {
        kind: Kind::Cluster.name(),
        namespace: String::new(),
        name: cluster.name().to_owned(),
        uid: cluster.uid().to_owned(),
    }
}

/// The merge patch that adds or removes the finalizer. It applies to this version of the Cluster only.
fn finalizer_patch(cluster: &Cluster, add: bool) -> Value {
    let meta = &cluster.metadata;
    let others = meta.finalizers.iter().flatten().map(String::as_str);
    let others = others.filter(|it| *it != LIFECYCLE_FINALIZER);
    let added = add.then_some(LIFECYCLE_FINALIZER);
    let finalizers: Vec<&str> = others.chain(added).collect();
    json!({"metadata": {
        "uid": meta.uid, "resourceVersion": meta.resource_version, "finalizers": finalizers,
    }})
}

/// The JSON patch that removes the taint. It fails if the node was replaced or the index of the taint has changed.
fn without_taint(node: &ClusterNode) -> Value {
    let taint = format!("/spec/taints/{}", node.not_installed_taint_index.unwrap_or_default());
    json!([
        {"op": "test", "path": "/metadata/uid", "value": node.uid},
        {"op": "test", "path": format!("{taint}/key"), "value": NOT_INSTALLED_TAINT},
        {"op": "remove", "path": taint},
    ])
}

/// The pod that a run's Job will create.
fn pod(run: &HookRun) -> Value {
    let mut metrics = run.spec.metrics.iter();
    let job = metrics.find_map(|metric| metric.provider.job.as_ref());
    let spec = job.and_then(|job| job.spec.read::<Value>().ok());
    let template = spec.map(|spec| spec["template"].clone()).unwrap_or_default();
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "namespace": HOOKS_NAMESPACE, "name": run.metadata.name,
            "labels": template["metadata"]["labels"],
        },
        "spec": template["spec"],
    })
}
