//! Watches that record each version of the objects of some kinds, whether or not the client that wrote it got a
//! response.
//!
//! If a client is killed or disconnected before it gets the response, the API server logs 504, whether the write
//! took effect or not. It took effect if a watch observed a version that is in no response.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use futures::StreamExt;
use jiff::Timestamp;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, watcher};
use kube::{Api, Client};
use serde_json::Value;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::event::Event;
use super::unanswered::unanswered;

/// A kind: group, version, name, and plural name.
type Gvk = (&'static str, &'static str, &'static str, &'static str);

/// The kinds whose writes are checked.
const KINDS: [Gvk; 4] = [
    ("", "v1", "Pod", "pods"),
    ("tkex.tencent.com", "v1alpha1", "HookRun", "hookruns"),
    ("tkex.tencent.com", "v1alpha1", "GameDeployment", "gamedeployments"),
    ("tkex.tencent.com", "v1alpha1", "GameStatefulSet", "gamestatefulsets"),
];

/// The namespace of Clusters' scripts.
const SCRIPT_NAMESPACE: &str = "gamekeeper-hooks";
/// The kinds in the scripts' namespace whose writes are checked.
const SCRIPT_KINDS: [Gvk; 3] = [KINDS[0], KINDS[1], ("batch", "v1", "Job", "jobs")];
/// The cluster-scoped kinds whose writes are checked.
const CLUSTER_KINDS: [Gvk; 2] =
    [("", "v1", "Node", "nodes"), ("tkex.tencent.com", "v1alpha1", "Cluster", "clusters")];

/// A version of an object.
#[derive(Clone, Debug)]
pub(crate) struct Observation {
    /// When it was observed.
    pub(crate) at: Timestamp,
    /// Plural name of the resource.
    pub(crate) resource: String,
    /// The object; the last version if it is deleted.
    pub(crate) object: Value,
    /// Whether the object is deleted.
    pub(crate) is_deleted: bool,
}

#[derive(Clone, Debug)]
struct Kind {
    name: &'static str,
    plural: &'static str,
    api: Api<DynamicObject>,
}

impl Kind {
    fn new(client: &Client, (group, version, name, plural): Gvk, namespace: Option<&str>) -> Self {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, name));
        let api = match namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
            None => Api::all_with(client.clone(), &resource),
        };
        Self { name, plural, api }
    }
}

/// Watches. They end when this is dropped.
#[derive(Debug)]
pub struct Witness {
    kinds: Vec<Kind>,
    seen: Arc<Mutex<Vec<Observation>>>,
    watches: Vec<JoinHandle<()>>,
}

impl Witness {
    /// Starts the watches for workloads in a namespace. Writes that begin after this returns are observed.
    pub async fn start(client: &Client, namespace: &str) -> Result<Self> {
        let kinds = KINDS.map(|kind| Kind::new(client, kind, Some(namespace)));
        Self::watch(kinds.into()).await
    }

    /// Starts the watches for Clusters, nodes and scripts.
    pub async fn start_for_lifecycle(client: &Client) -> Result<Self> {
        let script_kinds = SCRIPT_KINDS.map(|kind| Kind::new(client, kind, Some(SCRIPT_NAMESPACE)));
        let cluster_kinds = CLUSTER_KINDS.map(|kind| Kind::new(client, kind, None));
        let kinds = script_kinds.into_iter().chain(cluster_kinds);
        Self::watch(kinds.collect()).await
    }

    async fn watch(kinds: Vec<Kind>) -> Result<Self> {
        let mut witness =
            Witness { kinds: kinds.clone(), seen: Arc::default(), watches: Vec::new() };
        for kind in kinds {
            let plural = kind.plural;
            let (tx, started) = oneshot::channel();
            let watch = follow(kind, witness.seen.clone(), tx);
            witness.watches.push(tokio::spawn(watch));
            started.await.with_context(|| format!("watch {plural}"))?;
        }
        Ok(witness)
    }

    /// The writes that took effect although they have no response, each with the response that it should have had.
    pub async fn unanswered(&self, events: &[Event]) -> Result<Vec<Event>> {
        Ok(unanswered(events, &self.observations().await?))
    }

    /// All observations so far. The current objects are listed too, because a watch may lag.
    async fn observations(&self) -> Result<Vec<Observation>> {
        for kind in &self.kinds {
            for object in kind.api.list(&ListParams::default()).await? {
                record(&self.seen, kind, object, false)?;
            }
        }
        Ok(self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        self.watches.iter().for_each(JoinHandle::abort);
    }
}

/// Records the events of a watch. A watch that breaks off is resumed.
async fn follow(kind: Kind, seen: Arc<Mutex<Vec<Observation>>>, started: oneshot::Sender<()>) {
    let mut started = Some(started);
    let events = watcher(kind.api.clone(), watcher::Config::default()).default_backoff();
    let followed = events.for_each(|event| {
        let recorded = match event {
            Ok(watcher::Event::InitApply(object) | watcher::Event::Apply(object)) => {
                record(&seen, &kind, object, false)
            }
            Ok(watcher::Event::Delete(object)) => record(&seen, &kind, object, true),
            Ok(watcher::Event::Init) => Ok(()),
            Ok(watcher::Event::InitDone) => {
                // Only the first list is awaited; a watch may list again.
                let _ = started.take().map(|started| started.send(()));
                Ok(())
            }
            Err(error) => Err(error.into()),
        };
        if let Err(error) = recorded {
            eprintln!("the witness watches {}: {error:#}", kind.plural);
        }
        std::future::ready(())
    });
    followed.await;
}

fn record(
    seen: &Mutex<Vec<Observation>>,
    kind: &Kind,
    object: DynamicObject,
    is_deleted: bool,
) -> Result<()> {
    let mut object = serde_json::to_value(object)?;
    object["kind"] = kind.name.into(); // Items of a list have no kind.
    let observation =
        Observation { at: Timestamp::now(), resource: kind.plural.to_owned(), object, is_deleted };
    seen.lock().unwrap_or_else(PoisonError::into_inner).push(observation);
    Ok(())
}
