//! Updates the pods of SidecarSets as far as the sets allow, and writes the status of the sets.
//!
//! Containers are injected elsewhere: by the plans of workloads, and by the webhook.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::warn;

use super::UnreadableReporter;
use super::queue::{Reconciled, Requeue};
use super::set_revisions::SetRevisions;
use crate::apply::events::{EventRecorder, PendingEvent, Regarding};
use crate::apply::{Content, Refusal, Requests, ResponseMetadata, to_bytes};
use crate::cache::{Cache, Cached, Whole};
use crate::objects::{Kind, ObjectKey, Write};
use gamekeeper_core::api::{ConditionType, SidecarSet, SidecarSetStatus};
use gamekeeper_core::plan::sidecars::{
    MarkWrite, MatchedPod, OtherPods, Sidecars, WebhookState, allot, sidecar_set_status,
};
use gamekeeper_core::plan::{Event, Pod, mark_key};

/// The shortest time between two counts of a set's pods: a thousand starting pods must not cause a thousand writes.
const MIN_INTERVAL: Duration = Duration::from_secs(1);
/// The time before a write that the API server has refused is repeated.
const REFUSED_INTERVAL: Duration = Duration::from_secs(300);
/// The maximum number of pods that are written at a time.
const MAX_WRITES: usize = 16;

/// Reconciles SidecarSets.
pub(crate) struct SidecarSets {
    cache: Arc<Cache>,
    requests: Requests,
    events: EventRecorder,
    unreadable: UnreadableReporter,
    webhook: watch::Receiver<WebhookState>,
    revisions: SetRevisions,
    /// When the pods of a set were last counted.
    counted: Mutex<HashMap<ObjectKey, Instant>>,
}

impl SidecarSets {
    pub(crate) fn new(
        cache: Arc<Cache>,
        requests: Requests,
        events: EventRecorder,
        unreadable: UnreadableReporter,
        webhook: watch::Receiver<WebhookState>,
    ) -> Self {
        Self {
            revisions: SetRevisions::new(Arc::clone(&cache), requests.clone()),
            cache,
            requests,
            events,
            unreadable,
            webhook,
            counted: Mutex::default(),
        }
    }

    /// Reconciles one set: records its revision, updates its pods, and writes its status if it has changed.
    pub(crate) async fn reconcile(self: Arc<Self>, key: ObjectKey) -> Reconciled {
        let sets = &self.cache.sidecar_sets;
        // A plan that does not see the tokens that the last one allotted would allot too many.
        if let Some(known) = sets.get(&key) {
            self.cache.caught_up(known.uid()).await;
        }
        let Some(set) = sets.get(&key) else {
            self.counted().remove(&key);
            return match sets.unreadable(&key) {
                // An operator for one namespace does not know whether the set belongs to it.
                Some(unreadable) if !self.cache.sidecars.is_scoped() => {
                    let reporter = &self.unreadable;
                    reporter
                        .report(Kind::SidecarSet, &key, &unreadable)
                        .await
                        .into()
                }
                _ => Requeue::Settled(None).into(),
            };
        };
        if !self.cache.sidecars.is_ours(&set.object) || set.terminating() {
            return Requeue::Settled(None).into();
        }
        if let Some(due) = self.next_count(&key) {
            return Requeue::Settled(Some(due)).into();
        }
        // The status and the marks of pods name revisions, so revisions are recorded first.
        let newest = match self.revisions.record(&set).await {
            Ok(newest) => newest,
            Err(requeue) => return requeue.into(),
        };
        let started = Instant::now();
        let now = Timestamp::now();
        let sidecars = self.cache.sidecars.get(set.name());
        if sidecars.as_ref().is_some_and(|it| it.revision != newest) {
            return Requeue::Conflict.into();
        }
        let pods = sidecars.iter().flat_map(|sidecars| self.pods(sidecars));
        let pods: Vec<_> = pods.collect();
        let allotment = sidecars
            .as_deref()
            .map(|sidecars| allot(sidecars, &pods, now));
        let allotment = allotment.unwrap_or_default();
        let old = set.object.status.as_ref();
        let generation = set.object.metadata.generation.unwrap_or_default();
        let progress = &allotment.progress;
        let webhook = self.webhook.borrow().clone();
        let others = OtherPods {
            namespaces: &sidecars
                .as_deref()
                .map(|it| self.labeled(it))
                .unwrap_or_default(),
            webhook: &webhook,
        };
        let mut status = sidecar_set_status(
            sidecars.as_deref(),
            &pods,
            progress,
            &others,
            generation,
            old,
            now,
        );
        status.revision_namespace = self.cache.settings.own_namespace.to_string();
        let planning = started.elapsed();
        let wake = allotment.wake.map(|at| instant_of(at, now));
        let mut requeue = Requeue::Settled(wake);
        let writes = sidecars.iter().flat_map(|sidecars| {
            let writes = allotment.writes.iter();
            writes.map(|write| PodPatch::of(sidecars, write))
        });
        let writes: Vec<_> = writes.collect();
        if !writes.is_empty() {
            requeue = self.update(&set, writes, requeue).await;
        }
        if old != Some(&status) {
            requeue = self.write(&set, &status, requeue).await;
        } else {
            requeue = self.revisions.prune(&set, &newest, requeue).await;
        }
        Reconciled { requeue, planning }
    }

    /// Patches pods, unless the set has changed since it was cached: a user may have paused or reverted it.
    async fn update(
        &self,
        set: &Whole<SidecarSet>,
        patches: Vec<PodPatch>,
        requeue: Requeue,
    ) -> Requeue {
        let path = Kind::SidecarSet.path("", set.name());
        match self.requests.get(&path).await {
            Ok(found) if is_same(set, &found) => {}
            Ok(_) | Err(Refusal::NotFound(_)) => return Requeue::Conflict,
            Err(refusal) => return requeue_after(&refusal),
        }
        let written = patches.into_iter().map(
            |PodPatch {
                 path,
                 content,
                 body,
             }| {
                let requests = self.requests.clone();
                async move { requests.patch(&path, content, body).await }
            },
        );
        let mut written = futures::stream::iter(written).buffer_unordered(MAX_WRITES);
        let mut last = requeue;
        let expect = |write| self.cache.expectations.record(set.uid(), write);
        while let Some(result) = written.next().await {
            match result {
                Ok(pod) => expect(Write::Version(Kind::Pod, pod.version())),
                // A deleted pod needs no update. A changed one causes another reconcile through the watch.
                Err(Refusal::NotFound(_) | Refusal::Conflict(_)) => {}
                Err(refusal) => {
                    if let Refusal::Unavailable { .. } = refusal {
                        expect(Write::Unknown(Kind::Pod));
                    }
                    warn!(set = set.name(), %refusal, "cannot update a pod of a SidecarSet");
                    last = requeue_after(&refusal);
                }
            }
        }
        last
    }

    /// When the pods of the set may be counted again; None if they may be counted now, which is then recorded.
    fn next_count(&self, key: &ObjectKey) -> Option<Instant> {
        let now = Instant::now();
        let mut counted = self.counted();
        let due = counted.get(key).map(|last| *last + MIN_INTERVAL);
        let due = due.filter(|due| *due > now);
        if due.is_none() {
            counted.insert(key.clone(), now);
        }
        due
    }

    fn counted(&self) -> MutexGuard<'_, HashMap<ObjectKey, Instant>> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The namespaces that the set reaches and that are labeled for pods of other controllers.
    fn labeled(&self, sidecars: &Sidecars) -> Vec<String> {
        let reached = self.cache.sidecars.reached_by(sidecars).into_iter();
        let labeled = reached.filter_map(|(namespace, all)| all.then_some(namespace));
        labeled.collect()
    }

    fn pods(&self, sidecars: &Sidecars) -> Vec<MatchedPod> {
        let store = self.cache.pods.store();
        let nodes = self.cache.nodes.store();
        let has_native = sidecars.images().any(|it| it.native);
        // Where a pod of another controller runs is not known; its kubelet may be the oldest one in the cluster.
        let is_any_old = has_native && nodes.all().iter().any(|it| it.old_kubelet.is_some());
        let mut pods = Vec::new();
        for (namespace, all) in self.cache.sidecars.reached_by(sidecars) {
            for pod in store.in_namespace(&namespace) {
                if let Some(mut matched) = pod.matched(sidecars, all) {
                    matched.kubelet_ignores = is_any_old
                        && pod
                            .own()
                            .is_none_or(|own| self.kubelet_ignores(sidecars, own));
                    pods.push(matched);
                }
            }
        }
        pods
    }

    /// Whether a pod of a workload would get a new image for a native sidecar that its kubelet ignores.
    fn kubelet_ignores(&self, sidecars: &Sidecars, pod: &Pod) -> bool {
        let nodes = self.cache.nodes.store();
        let node = pod.node.as_ref().and_then(|node| nodes.get("", node));
        let is_old = node.is_some_and(|node| node.old_kubelet.is_some());
        let mut native = sidecars.images().filter(|it| it.native);
        is_old
            && native.any(|it| {
                let mut containers = pod.containers.iter();
                containers.any(|own| own.name == it.container && own.image != it.image)
            })
    }

    async fn write(
        &self,
        set: &Whole<SidecarSet>,
        status: &SidecarSetStatus,
        requeue: Requeue,
    ) -> Requeue {
        let path = format!("{}/status", Kind::SidecarSet.path("", set.name()));
        let patch = json!({"metadata": {"uid": set.uid()}, "status": status});
        let written = self
            .requests
            .patch(&path, Content::MergePatch, to_bytes(&patch))
            .await;
        match written {
            Ok(_) => {
                self.publish(set, status);
                requeue
            }
            Err(Refusal::NotFound(_)) => Requeue::Settled(None),
            Err(refusal) => {
                if let Refusal::Rejected(_) = refusal {
                    warn!(set = set.name(), %refusal, "cannot write the status of a SidecarSet");
                }
                requeue_after(&refusal)
            }
        }
    }

    /// Publishes an event when new pods, or those of other controllers, stop getting the containers. Like all events
    /// of cluster-scoped objects, it belongs to the namespace default, so an operator for a single namespace may not
    /// create it.
    fn publish(&self, set: &Whole<SidecarSet>, status: &SidecarSetStatus) {
        if self.cache.sidecars.is_scoped() {
            return;
        }
        let injecting = |status: &SidecarSetStatus| {
            let mut conditions = status.conditions.iter();
            conditions
                .find(|it| it.type_ == ConditionType::Injecting.as_str())
                .cloned()
        };
        let before = set.object.status.as_ref().and_then(injecting);
        let Some(now) = injecting(status).filter(|it| it.reason != "Injecting") else {
            return;
        };
        if before.is_some_and(|it| it.reason == now.reason) {
            return;
        }
        let about = Regarding {
            kind: Kind::SidecarSet.name(),
            namespace: String::new(),
            name: set.name().to_owned(),
            uid: set.uid().to_owned(),
        };
        let event = Event {
            warning: true,
            reason: now.reason,
            message: now.message,
        };
        self.events.publish(about, PendingEvent::Plain(event));
    }
}

/// A patch of a pod.
struct PodPatch {
    path: String,
    content: Content,
    body: Vec<u8>,
}

impl PodPatch {
    fn of(set: &Sidecars, write: &MarkWrite) -> Self {
        let MatchedPod {
            namespace, name, ..
        } = write.pod;
        let (content, body) = match write.updates {
            true => (Content::StrategicPatch, updated(set, write)),
            false => (Content::JsonPatch, marked(set, write)),
        };
        Self {
            path: Kind::Pod.path(namespace, name),
            content,
            body: to_bytes(&body),
        }
    }
}

/// When a set is reconciled again after a failed write.
pub(super) fn requeue_after(refusal: &Refusal) -> Requeue {
    match refusal {
        Refusal::Conflict(_) => Requeue::Conflict,
        Refusal::Busy { after, .. } | Refusal::Unavailable { after, .. } => Requeue::Retry(*after),
        Refusal::NotFound(_)
        | Refusal::AlreadyExists(_)
        | Refusal::Rejected(_)
        | Refusal::NamespaceTerminating(_) => {
            Requeue::Settled(Some(Instant::now() + REFUSED_INTERVAL))
        }
    }
}

fn instant_of(time: Timestamp, now: Timestamp) -> Instant {
    let wait = Duration::try_from(time.duration_since(now)).unwrap_or_default();
    Instant::now() + wait
}

fn is_same(set: &Whole<SidecarSet>, found: &ResponseMetadata) -> bool {
    found.uid == set.uid()
        && Some(found.generation) == set.object.metadata.generation
        && found.deletion_timestamp.is_none()
}

/// The JSON patch of a mark. It tests the old mark, so it fails if a workload has begun to update the pod.
fn marked(set: &Sidecars, write: &MarkWrite) -> Value {
    let key = mark_key(&set.name).replace('/', "~1");
    let path = format!("/metadata/annotations/{key}");
    json!([
        {"op": "test", "path": "/metadata/uid", "value": write.pod.uid},
        {"op": "test", "path": path, "value": write.from.found()},
        {"op": "replace", "path": path, "value": write.to.text()},
    ])
}

/// The strategic merge patch that updates a pod of another controller, if it has not changed.
fn updated(set: &Sidecars, write: &MarkWrite) -> Value {
    let images = |native: bool| -> Vec<Value> {
        let images = set.images().filter(|it| it.native == native);
        let containers = images.map(|it| json!({"name": it.container, "image": it.image}));
        containers.collect()
    };
    let annotations = json!({mark_key(&set.name): write.to.text()});
    let mut body = json!({
        "metadata": {
            "uid": write.pod.uid,
            "resourceVersion": write.pod.version.to_string(),
            "annotations": annotations,
        },
        "spec": {},
    });
    for (list, native) in [("containers", false), ("initContainers", true)] {
        let images = images(native);
        if !images.is_empty() {
            body["spec"][list] = Value::Array(images);
        }
    }
    body
}
