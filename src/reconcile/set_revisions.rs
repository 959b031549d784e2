//! Writes and prunes the ControllerRevisions of SidecarSets, in the operator's own namespace.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, timeout};
use tracing::warn;

use super::refused::{no_later, requeue_after};
use crate::kinds::{Cache, Whole};
use crate::runtime::objects::Kind;
use crate::runtime::queue::Requeue;
use crate::runtime::request::{Content, Refusal, RequestResult, Requests, to_bytes};
use crate::runtime::store::Cached;
use gamekeeper_core::api::names::SIDECAR_SET_LABEL;
use gamekeeper_core::api::{API_VERSION, SidecarSet};
use gamekeeper_core::go_json;
use gamekeeper_core::sidecar_set::{
    History, RevisionWrite, SetRevision, expired, history, named_by_set,
};

/// How long a reconcile waits for the cache to show the revisions, or the revision that it has just written.
const CACHE_TIMEOUT: Duration = Duration::from_secs(5);
/// The time before a set is reconciled again if the revisions are not in the cache yet.
const CACHE_INTERVAL: Duration = Duration::from_secs(1);

/// Writes and prunes revisions.
pub(super) struct SetRevisions {
    cache: Arc<Cache>,
    requests: Requests,
}

impl SetRevisions {
    pub(super) fn new(cache: Arc<Cache>, requests: Requests) -> Self {
        Self { cache, requests }
    }

    /// Writes the newest revision of a set, if that is necessary. Returns the name of the revision.
    ///
    /// # Errors
    /// Fails if the revision could not be written. The error states when to reconcile the set again.
    pub(super) async fn record(&self, set: &Whole<SidecarSet>) -> Result<String, Requeue> {
        // The watch of revisions begins with the first set, so they may not be in the cache yet.
        let mut progress = self.cache.progress(Kind::SetRevision);
        let listed = timeout(CACHE_TIMEOUT, progress.wait_for(|progress| progress.listed > 0));
        if !matches!(listed.await, Ok(Ok(_))) {
            return Err(Requeue::Settled(Some(Instant::now() + CACHE_INTERVAL)));
        }
        let own = self.cache.sidecars.revisions(set.uid());
        let (orphans, taken) = self.others(set);
        let History { newest, collisions, write } = history(&set.object, &own, &orphans, &taken);
        let status = set.object.status.as_ref();
        if collisions != status.map_or(0, |status| status.collision_count) {
            return Err(self.count_collisions(set, collisions).await);
        }
        let Some(write) = write else {
            return Ok(newest);
        };
        match self.write(set, &newest, &write).await {
            Ok(written) => {
                // Without this wait, the next reconcile would create the revision again.
                let shown = self.cache.set_revisions.reach(written.version());
                match timeout(CACHE_TIMEOUT, shown).await {
                    Ok(()) => Ok(newest),
                    Err(_) => Err(Requeue::Settled(Some(Instant::now() + CACHE_INTERVAL))),
                }
            }
            // The cache does not show which object has this name.
            Err(Refusal::AlreadyExists(_) | Refusal::NotFound(_) | Refusal::Conflict(_)) => {
                self.cache.set_revisions.relist(CACHE_INTERVAL).await;
                Err(Requeue::Conflict)
            }
            Err(refusal) => {
                warn!(set = set.name(), %refusal, "cannot write the revision of a SidecarSet");
                Err(requeue_after(&refusal))
            }
        }
    }

    /// Deletes the oldest revisions if there are more than the history limit. Those that the set or a pod names are
    /// kept and do not count.
    pub(super) async fn prune(
        &self,
        set: &Whole<SidecarSet>,
        newest: &str,
        requeue: Requeue,
    ) -> Requeue {
        let own = self.cache.sidecars.revisions(set.uid());
        let mut named: HashSet<String> = named_by_set(&set.object, newest).collect();
        if expired(&set.object, &own, &named).is_empty() {
            return requeue;
        }
        for pod in self.cache.pods.store().all() {
            let mark = pod.marks().and_then(|marks| marks.get(set.name()));
            if let Some(mark) = mark {
                named.insert(mark.revision.clone());
                named.extend(mark.token.clone());
            }
        }
        let mut requeue = requeue;
        for revision in expired(&set.object, &own, &named) {
            let path = self.path(&revision.name);
            match self.requests.delete(&path, &revision.uid, None).await {
                Ok(_) | Err(Refusal::NotFound(_) | Refusal::Conflict(_)) => {}
                Err(refusal) => {
                    warn!(set = set.name(), %refusal, "cannot delete a revision of a SidecarSet");
                    requeue = no_later(requeue, &refusal);
                }
            }
        }
        requeue
    }

    /// Splits the revisions that do not belong to the set: those that it may adopt, and the names of the others.
    fn others(&self, set: &Whole<SidecarSet>) -> (Vec<Arc<SetRevision>>, BTreeSet<String>) {
        let (mut orphans, mut taken) = (Vec::new(), BTreeSet::new());
        for other in self.cache.set_revisions.store().all() {
            match other.revision() {
                _ if other.set_uid() == Some(set.uid()) => {}
                Some(revision) if other.is_adoptable_by(set.name()) => {
                    orphans.push(Arc::clone(revision));
                }
                _ => {
                    taken.insert(other.name().to_owned());
                }
            }
        }
        (orphans, taken)
    }

    async fn write(
        &self,
        set: &Whole<SidecarSet>,
        name: &str,
        write: &RevisionWrite,
    ) -> RequestResult {
        let namespace = &self.cache.settings.own_namespace;
        let patch = async |body: Value| {
            let path = self.path(name);
            let body = to_bytes(&body);
            self.requests.patch(&path, Content::MergePatch, body).await
        };
        match write {
            RevisionWrite::Create { number, content } => {
                let body = json!({
                    "apiVersion": "apps/v1",
                    "kind": "ControllerRevision",
                    "metadata": {
                        "name": name,
                        "namespace": &**namespace,
                        "labels": {SIDECAR_SET_LABEL: set.name()},
                        "ownerReferences": [owner(set)],
                    },
                    "data": {"spec": content},
                    "revision": number,
                });
                let collection = Kind::SetRevision.collection(Some(namespace));
                self.requests.create(&collection, go_json::to_bytes(&body)).await
            }
            RevisionWrite::Adopt { uid, number } => {
                let owners = [owner(set)];
                let meta = json!({"uid": uid, "ownerReferences": owners});
                patch(json!({"metadata": meta, "revision": number})).await
            }
            RevisionWrite::Renumber { uid, number } => {
                patch(json!({"metadata": {"uid": uid}, "revision": number})).await
            }
        }
    }

    /// Writes how many revision names were taken. The names of new revisions depend on this number.
    async fn count_collisions(&self, set: &Whole<SidecarSet>, collisions: i32) -> Requeue {
        let path = format!("{}/status", Kind::SidecarSet.path("", set.name()));
        let status = json!({"collisionCount": collisions});
        let patch = json!({"metadata": {"uid": set.uid()}, "status": status});
        let patch = to_bytes(&patch);
        let written = self.requests.patch(&path, Content::MergePatch, patch).await;
        written.map_or_else(|refusal| requeue_after(&refusal), |_| Requeue::Conflict)
    }

    fn path(&self, name: &str) -> String {
        let namespace = &self.cache.settings.own_namespace;
        Kind::SetRevision.path(namespace, name)
    }
}

/// The owner reference to a set. It does not block the set's deletion: to write such a reference, the operator would
/// need permission to update the set's finalizers.
fn owner(set: &Whole<SidecarSet>) -> Value {
    json!({
        "apiVersion": API_VERSION, "kind": "SidecarSet", "name": set.name(), "uid": set.uid(),
        "controller": true,
    })
}
