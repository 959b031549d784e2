//! Reports on SidecarSets: counts their pods, and writes the status.
//!
//! Nothing else is done for a set here: its containers are injected when pods are created.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;
use tokio::time::Instant;
use tracing::warn;

use super::UnreadableReporter;
use super::queue::{Reconciled, Requeue};
use crate::apply::events::{EventRecorder, PendingEvent, Regarding};
use crate::apply::{Content, Refusal, Requests, to_bytes};
use crate::cache::{Cache, Cached, Whole};
use crate::objects::{Kind, ObjectKey};
use gamekeeper_core::api::{ConditionType, SidecarSet, SidecarSetStatus};
use gamekeeper_core::plan::Event;
use gamekeeper_core::plan::sidecars::{Sidecars, sidecar_set_status};

/// The shortest time between two counts of a set's pods: a thousand starting pods must not cause a thousand writes.
const MIN_INTERVAL: Duration = Duration::from_secs(1);
/// The time before a status that the API server has refused is written again.
const REFUSED_INTERVAL: Duration = Duration::from_secs(300);

/// Reconciles SidecarSets.
pub(crate) struct SidecarSets {
    cache: Arc<Cache>,
    requests: Requests,
    events: EventRecorder,
    unreadable: UnreadableReporter,
    /// When the pods of a set were last counted.
    counted: Mutex<HashMap<ObjectKey, Instant>>,
}

impl SidecarSets {
    pub(crate) fn new(
        cache: Arc<Cache>,
        requests: Requests,
        events: EventRecorder,
        unreadable: UnreadableReporter,
    ) -> Self {
        Self {
            cache,
            requests,
            events,
            unreadable,
            counted: Mutex::default(),
        }
    }

    /// Writes the status of a set, if it has changed.
    pub(crate) async fn reconcile(self: Arc<Self>, key: ObjectKey) -> Reconciled {
        let sets = &self.cache.sidecar_sets;
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
        if let Some(due) = self.wait(&key) {
            return Requeue::Settled(Some(due)).into();
        }
        let started = Instant::now();
        let status = self.status(&set);
        let planning = started.elapsed();
        let requeue = match status {
            Some(status) => self.write(&set, &status).await,
            None => Requeue::Settled(None),
        };
        Reconciled { requeue, planning }
    }

    /// When the pods of the set may be counted again; None if they may be counted now.
    fn wait(&self, key: &ObjectKey) -> Option<Instant> {
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

    /// The status of a set, if it has changed.
    fn status(&self, set: &Whole<SidecarSet>) -> Option<SidecarSetStatus> {
        let old = set.object.status.as_ref();
        let generation = set.object.metadata.generation.unwrap_or_default();
        let sidecars = self.cache.sidecars.get(set.name());
        let pods = sidecars.iter().flat_map(|sidecars| self.pods(sidecars));
        let pods = pods.collect::<Vec<_>>().into_iter();
        let now = Timestamp::now();
        let status = sidecar_set_status(sidecars.as_deref(), pods, generation, old, now);
        (old != Some(&status)).then_some(status)
    }

    fn pods(&self, sidecars: &Sidecars) -> Vec<gamekeeper_core::plan::sidecars::MatchedPod> {
        let store = self.cache.pods.store();
        let mut pods = Vec::new();
        for (namespace, all) in self.cache.sidecars.reached_by(sidecars) {
            let found = store.in_namespace(&namespace);
            pods.extend(found.filter_map(|pod| pod.matched(sidecars, all)));
        }
        pods
    }

    async fn write(&self, set: &Whole<SidecarSet>, status: &SidecarSetStatus) -> Requeue {
        let path = format!("{}/status", Kind::SidecarSet.path("", set.name()));
        let patch = json!({"metadata": {"uid": set.uid()}, "status": status});
        let written = self
            .requests
            .patch(&path, Content::MergePatch, to_bytes(&patch))
            .await;
        match written {
            Ok(_) => {
                self.publish(set, status);
                Requeue::Settled(None)
            }
            Err(Refusal::NotFound(_)) => Requeue::Settled(None),
            Err(Refusal::Conflict(_)) => Requeue::Conflict,
            Err(Refusal::Busy { after, .. } | Refusal::Unavailable { after, .. }) => {
                Requeue::Retry(after)
            }
            Err(refusal @ (Refusal::AlreadyExists(_) | Refusal::Rejected(_))) => {
                warn!(set = set.name(), %refusal, "cannot write the status of a SidecarSet");
                Requeue::Settled(Some(Instant::now() + REFUSED_INTERVAL))
            }
        }
    }

    /// Publishes an event when new pods stop getting the containers. Like all events of cluster-scoped objects, it
    /// belongs to the namespace default, so an operator for a single namespace may not create it.
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
        let Some(now) = injecting(status).filter(|it| it.status == "False") else {
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
