//! Updates the pods of SidecarSets within the limits of the sets, and writes the status of the sets.
//!
//! Containers are injected elsewhere: by the plans of workloads, and by the webhook.

mod memory;
mod pod_patch;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use jiff::Timestamp;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::warn;

use self::memory::Memory;
use self::pod_patch::PodPatch;
use super::UnreadableReporter;
use super::planners::Planners;
use super::refused::{no_later, requeue_after};
use super::set_revisions::SetRevisions;
use super::set_workloads::{SetWorkloads, deselected_pods};
use crate::kinds::{Cache, Whole};
use crate::reconcile::apply::events::{EventRecorder, PendingEvent, Regarding};
use crate::reconcile::apply::valid_until;
use crate::runtime::objects::{Kind, ObjectKey, Written};
use crate::runtime::queue::{Reconciled, Requeue};
use crate::runtime::request::{Content, Refusal, Requests, to_bytes};
use crate::runtime::store::Cached;
use gamekeeper_core::api::{SidecarSet, SidecarSetStatus};
use gamekeeper_core::observed::Pod;
use gamekeeper_core::sidecar_set::{
    MatchedPod, OtherPods, Sidecars, WebhookState, allot, new_problem, sidecar_set_status,
};
use gamekeeper_core::write::Event;

/// The maximum number of pods that are written at a time.
const MAX_WRITES: usize = 16;

/// What a reconcile of a set does.
struct SetPlan {
    status: SidecarSetStatus,
    writes: Vec<PodPatch>,
    wake: Option<Instant>,
    took: Duration,
}

/// Reconciles SidecarSets.
pub(crate) struct SidecarSets {
    cache: Arc<Cache>,
    requests: Requests,
    events: EventRecorder,
    unreadable: UnreadableReporter,
    webhook: watch::Receiver<WebhookState>,
    planners: Arc<Planners>,
    revisions: SetRevisions,
    memories: Mutex<HashMap<ObjectKey, Memory>>,
}

impl SidecarSets {
    pub(crate) fn new(
        cache: Arc<Cache>,
        requests: Requests,
        events: EventRecorder,
        unreadable: UnreadableReporter,
        webhook: watch::Receiver<WebhookState>,
        planners: Arc<Planners>,
    ) -> Self {
        Self {
            revisions: SetRevisions::new(Arc::clone(&cache), requests.clone()),
            cache,
            requests,
            events,
            unreadable,
            webhook,
            planners,
            memories: Mutex::default(),
        }
    }

    /// Reconciles one set: records its revision, updates its pods, and writes its status if it has changed.
    pub(crate) async fn reconcile(self: Arc<Self>, key: ObjectKey) -> Reconciled {
        let sets = &self.cache.sidecar_sets;
        // A plan that does not see the tokens that the previous plan allotted would allot too many.
        if let Some(known) = sets.get(&key) {
            self.cache.until_caught_up(known.uid()).await;
        }
        let Some(set) = sets.get(&key) else {
            self.forget(&key);
            return match sets.unreadable(&key) {
                // An operator for one namespace cannot tell whether the set is for that namespace.
                Some(unreadable) if !self.cache.sidecars.is_scoped() => {
                    let reporter = &self.unreadable;
                    reporter.report(Kind::SidecarSet, &key, &unreadable).await.into()
                }
                _ => Requeue::Settled(None).into(),
            };
        };
        if !self.cache.sidecars.is_ours(&set.object) || set.terminating() {
            return Requeue::Settled(None).into();
        }
        if let Some(due) = self.with_memory(&set, Memory::next_count) {
            return Requeue::Settled(Some(due)).into();
        }
        // The status and the marks of pods name revisions, so revisions are recorded first.
        let newest = match self.revisions.record(&set).await {
            Ok(newest) => newest,
            Err(requeue) => return requeue.into(),
        };
        let (this, subject, revision) = (Arc::clone(&self), Arc::clone(&set), newest.clone());
        let planned = self.planners.run(move || this.plan(&subject, &revision));
        let Some(SetPlan { status, writes, wake, took }) = planned.await else {
            return Requeue::Conflict.into();
        };
        let mut requeue = Requeue::Settled(wake);
        if !writes.is_empty() {
            requeue = self.update(&set, writes, requeue).await;
        }
        if set.object.status.as_ref() != Some(&status) {
            requeue = self.write(&set, &status, requeue).await;
        } else {
            requeue = self.revisions.prune(&set, &newest, requeue).await;
        }
        Reconciled { requeue, planning: took }
    }

    /// Reads the cache and plans. None if the cache does not show the set's newest revision yet.
    fn plan(&self, set: &Whole<SidecarSet>, newest: &str) -> Option<SetPlan> {
        let started = Instant::now();
        let now = Timestamp::now();
        let sidecars = self.cache.sidecars.get(set.name());
        if sidecars.as_ref().is_some_and(|it| it.revision != newest) {
            return None;
        }
        let pods = sidecars.iter().flat_map(|it| self.pods(set, it, now));
        let pods: Vec<_> = pods.collect();
        let allotment = sidecars.as_deref().map(|sidecars| allot(sidecars, &pods, now));
        let allotment = allotment.unwrap_or_default();
        let webhook = self.webhook.borrow().clone();
        let others = OtherPods {
            namespaces: &sidecars.as_deref().map(|it| self.open_to_all(it)).unwrap_or_default(),
            all: self.cache.sidecars.policy().all,
            webhook: &webhook,
        };
        let (mut status, status_wake) = sidecar_set_status(
            sidecars.as_deref(),
            &pods,
            &allotment.progress,
            &others,
            set.object.metadata.generation.unwrap_or_default(),
            set.object.status.as_ref(),
            now,
        );
        status.revision_namespace = self.cache.settings.own_namespace.to_string();
        let writes = sidecars.iter().flat_map(|sidecars| {
            let writes = allotment.writes.iter();
            writes.map(|write| PodPatch::of(sidecars, write, now))
        });
        Some(SetPlan {
            writes: writes.collect(),
            status,
            wake: [allotment.wake, status_wake]
                .into_iter()
                .flatten()
                .min()
                .map(|at| instant_of(at, now)),
            took: started.elapsed(),
        })
    }

    /// Patches pods, unless the set has changed since it was cached: a user may have paused or reverted it. The
    /// proof that it is unchanged is valid for half a second. Patches that have not started by then are left to the
    /// next plan.
    async fn update(
        &self,
        set: &Whole<SidecarSet>,
        patches: Vec<PodPatch>,
        requeue: Requeue,
    ) -> Requeue {
        let deadline = match self.prove(set).await {
            Ok(deadline) => deadline,
            Err(requeue) => return requeue,
        };
        let mut remaining = patches.into_iter().peekable();
        let timely = std::iter::from_fn(|| remaining.next_if(|_| Instant::now() <= deadline));
        let writes = timely.map(|patch| {
            let requests = self.requests.sent_before(deadline);
            async move {
                let PodPatch { uid, path, content, body } = patch;
                (uid, requests.patch(&path, content, body).await)
            }
        });
        let mut results = futures::stream::iter(writes).buffer_unordered(MAX_WRITES);
        let mut requeue = requeue;
        while let Some((uid, result)) = results.next().await {
            let refusal = result.as_ref().err();
            self.with_memory(set, |it| it.record_write(&uid, refusal, Timestamp::now()));
            match result {
                Ok(pod) => self.expect(set, Written::Version(Kind::Pod, pod.version())),
                Err(refusal) => requeue = self.refused(set, &refusal, requeue),
            }
        }
        drop(results);
        if remaining.next().is_some() { now_unless_failed(requeue) } else { requeue }
    }

    /// Reads the set to prove that it is unchanged. Returns the time until which the proof is valid.
    ///
    /// # Errors
    /// Fails if the set has changed, or the proof took too long. The error states when to reconcile the set again.
    async fn prove(&self, set: &Whole<SidecarSet>) -> Result<Instant, Requeue> {
        let requested = Instant::now();
        let path = Kind::SidecarSet.path("", set.name());
        let generation = set.object.metadata.generation.unwrap_or_default();
        match self.requests.get(&path).await {
            Ok(found) if found.is_still(set.uid(), generation, false) => {}
            Ok(_) | Err(Refusal::NotFound(_)) => return Err(Requeue::Conflict),
            Err(refusal) => return Err(requeue_after(&refusal)),
        }
        let deadline = self.with_memory(set, |it| valid_until(requested, &mut it.proof_timeout));
        deadline.ok_or(Requeue::Now)
    }

    /// When the set is reconciled again after a refused write of a pod.
    fn refused(&self, set: &Whole<SidecarSet>, refusal: &Refusal, requeue: Requeue) -> Requeue {
        match refusal {
            // A deleted pod needs no update.
            Refusal::NotFound(_) => return requeue,
            // The pod has changed. If the change does not concern the set, it does not queue the set.
            Refusal::Conflict(_) | Refusal::Late(_) => return now_unless_failed(requeue),
            Refusal::Unavailable { .. } => self.expect(set, Written::Unknown(Kind::Pod)),
            _ => {}
        }
        warn!(set = set.name(), %refusal, "cannot update a pod of a SidecarSet");
        match requeue_after(refusal) {
            retry @ Requeue::Retry(_) => retry,
            // The next plan skips the pod.
            _ => now_unless_failed(requeue),
        }
    }

    fn expect(&self, set: &Whole<SidecarSet>, written: Written) {
        self.cache.expectations.record(set.uid(), written);
    }

    /// Reads or changes what is remembered about a set.
    fn with_memory<T>(&self, set: &Whole<SidecarSet>, change: impl FnOnce(&mut Memory) -> T) -> T {
        let mut memories = self.memories();
        let memory = memories.entry(set.key());
        let memory = memory.or_insert_with(|| Memory::new(set.uid()));
        if memory.uid != set.uid() {
            self.cache.expectations.forget(&memory.uid);
            *memory = Memory::new(set.uid());
        }
        change(memory)
    }

    fn forget(&self, key: &ObjectKey) {
        if let Some(memory) = self.memories().remove(key) {
            self.cache.expectations.forget(&memory.uid);
        }
    }

    fn memories(&self) -> MutexGuard<'_, HashMap<ObjectKey, Memory>> {
        self.memories.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The namespaces that the set reaches and in which pods of other controllers get sidecars.
    fn open_to_all(&self, sidecars: &Sidecars) -> Vec<String> {
        let reached = self.cache.sidecars.reached_by(sidecars).into_iter();
        let open = reached.filter_map(|(namespace, all)| all.then_some(namespace));
        open.collect()
    }

    fn pods(
        &self,
        set: &Whole<SidecarSet>,
        sidecars: &Sidecars,
        now: Timestamp,
    ) -> Vec<MatchedPod> {
        let generation = set.object.metadata.generation.unwrap_or_default();
        let refused = self.with_memory(set, |it| it.refused(generation).clone());
        let mut workloads = SetWorkloads::of(&self.cache, sidecars);
        let mut pods = deselected_pods(&self.cache, sidecars, now);
        for pod in &mut pods {
            pod.refused = refused.get(&pod.uid).cloned();
        }
        for (namespace, all) in self.cache.sidecars.reached_by(sidecars) {
            // Only the references are copied while the store is locked.
            let found: Vec<_> = {
                let store = self.cache.pods.store();
                store.in_namespace(&namespace).cloned().collect()
            };
            for pod in found {
                if let Some(mut matched) = pod.matched(sidecars, all, now) {
                    let with_containers = pod.with_containers();
                    matched.kubelet_ignores =
                        with_containers.is_some_and(|pod| self.kubelet_ignores(sidecars, pod));
                    matched.refused = refused.get(&matched.uid).cloned();
                    if let Some(own) = pod.own() {
                        workloads.describe(own, &mut matched);
                    }
                    pods.push(matched);
                }
            }
        }
        if !refused.is_empty() {
            let counted: HashSet<&str> = pods.iter().map(|pod| pod.uid.as_str()).collect();
            self.with_memory(set, |it| it.retain_pods(|pod| counted.contains(pod)));
        }
        pods
    }

    /// Whether the update would change the image of a native sidecar, and the pod's kubelet would ignore that.
    fn kubelet_ignores(&self, sidecars: &Sidecars, pod: &Pod) -> bool {
        let mut native = sidecars.images().filter(|it| it.native);
        let changes_native = native.any(|it| {
            let mut containers = pod.containers.iter();
            containers
                .any(|container| container.name == it.container && container.image != it.image)
        });
        changes_native
            && pod.node.as_ref().is_some_and(|node| {
                let node = self.cache.nodes.store().get("", node);
                let kubelet = node.and_then(|node| node.old_kubelet.clone());
                kubelet.is_some_and(|it| !it.restarts_sidecars())
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
        let result = self.requests.patch(&path, Content::MergePatch, to_bytes(&patch)).await;
        match result {
            Ok(_) => {
                self.publish(set, status);
                requeue
            }
            Err(Refusal::NotFound(_)) => Requeue::Settled(None),
            Err(refusal) => {
                if let Refusal::Rejected(_) = refusal {
                    warn!(set = set.name(), %refusal, "cannot write the status of a SidecarSet");
                }
                no_later(requeue, &refusal)
            }
        }
    }

    /// Publishes an event when the condition Injecting begins to show a problem. Like all events of cluster-scoped
    /// objects, the event belongs to the namespace `default`, so an operator for a single namespace may not create it.
    fn publish(&self, set: &Whole<SidecarSet>, status: &SidecarSetStatus) {
        if self.cache.sidecars.is_scoped() {
            return;
        }
        let Some(problem) = new_problem(set.object.status.as_ref(), status) else {
            return;
        };
        let regarding = Regarding {
            kind: Kind::SidecarSet.name(),
            namespace: String::new(),
            name: set.name().to_owned(),
            uid: set.uid().to_owned(),
        };
        let event = Event {
            warning: true,
            reason: problem.reason.clone(),
            message: problem.message.clone(),
        };
        self.events.publish(regarding, PendingEvent::Plain(event));
    }
}

/// Reconciles the set again immediately, unless something failed.
fn now_unless_failed(requeue: Requeue) -> Requeue {
    match requeue {
        retry @ Requeue::Retry(_) => retry,
        _ => Requeue::Now,
    }
}

fn instant_of(time: Timestamp, now: Timestamp) -> Instant {
    let wait = Duration::try_from(time.duration_since(now)).unwrap_or_default();
    Instant::now() + wait
}

#[cfg(test)]
mod tests;
