//! A watch that sees each version of a namespace's objects, whether or not the writer got an answer.
//!
//! The API server logs 504 for a request whose writer was killed or cut off before the answer,
//! whether the write was made or not. So that the judge need not guess, a watch notes what etcd
//! held: a write without an answer took effect if the watch saw a version that no answer
//! gave.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use futures::TryStreamExt;
use jiff::Timestamp;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams};
use kube::runtime::watcher::{self, watcher};
use kube::{Api, Client};
use serde_json::Value;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::event::Event;
use super::unanswered::unanswered;

/// The kinds whose writes are judged.
const KINDS: [(&str, &str, &str, &str); 4] = [
    ("", "v1", "Pod", "pods"),
    ("tkex.tencent.com", "v1alpha1", "HookRun", "hookruns"),
    (
        "tkex.tencent.com",
        "v1alpha1",
        "GameDeployment",
        "gamedeployments",
    ),
    (
        "tkex.tencent.com",
        "v1alpha1",
        "GameStatefulSet",
        "gamestatefulsets",
    ),
];

/// A version of an object.
#[derive(Clone, Debug)]
pub(crate) struct Observation {
    /// When it was seen.
    pub(crate) at: Timestamp,
    /// Plural name of the resource.
    pub(crate) resource: String,
    /// The object; the last version when it is gone.
    pub(crate) object: Value,
    /// Whether this is its end.
    pub(crate) is_gone: bool,
}

#[derive(Clone, Debug)]
struct Kind {
    name: &'static str,
    plural: &'static str,
    api: Api<DynamicObject>,
}

/// Watches a namespace from its start to when it is dropped.
#[derive(Debug)]
pub struct Witness {
    kinds: Vec<Kind>,
    seen: Arc<Mutex<Vec<Observation>>>,
    watches: Vec<JoinHandle<()>>,
}

impl Witness {
    /// Begins to watch; what is written after this returned is seen.
    pub async fn call(client: &Client, namespace: &str) -> Result<Self> {
        let mut witness = Witness {
            kinds: Vec::new(),
            seen: Arc::default(),
            watches: Vec::new(),
        };
        for (group, version, name, plural) in KINDS {
            let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, name));
            let api = Api::namespaced_with(client.clone(), namespace, &resource);
            let kind = Kind { name, plural, api };
            witness.kinds.push(kind.clone());
            let (tell, began) = oneshot::channel();
            let watch = follow(kind, witness.seen.clone(), tell);
            witness.watches.push(tokio::spawn(watch));
            began.await.with_context(|| format!("watch {plural}"))?;
        }
        Ok(witness)
    }

    /// The writes without an answer that took effect all the same, each with the answer that it should
    /// have got.
    pub async fn unanswered(&self, events: &[Event]) -> Result<Vec<Event>> {
        Ok(unanswered(events, &self.observations().await?))
    }

    /// Everything seen so far. What is there now is listed once more, because a watch may lag.
    async fn observations(&self) -> Result<Vec<Observation>> {
        for kind in &self.kinds {
            for object in kind.api.list(&ListParams::default()).await? {
                record(&self.seen, kind, object, false)?;
            }
        }
        Ok(self
            .seen
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone())
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        self.watches.iter().for_each(JoinHandle::abort);
    }
}

/// Records what a watch brings.
async fn follow(kind: Kind, seen: Arc<Mutex<Vec<Observation>>>, began: oneshot::Sender<()>) {
    let mut began = Some(began);
    let events = watcher(kind.api.clone(), watcher::Config::default()).map_err(anyhow::Error::from);
    let followed = events.try_for_each(|event| {
        let recorded = match event {
            watcher::Event::InitApply(object) | watcher::Event::Apply(object) => {
                record(&seen, &kind, object, false)
            }
            watcher::Event::Delete(object) => record(&seen, &kind, object, true),
            watcher::Event::Init => Ok(()),
            watcher::Event::InitDone => {
                // The receiver may be gone: a watch can begin again.
                let _ = began.take().map(|began| began.send(()));
                Ok(())
            }
        };
        std::future::ready(recorded)
    });
    if let Err(error) = followed.await {
        eprintln!("the witness no longer sees {}: {error:#}", kind.plural);
    }
}

fn record(
    seen: &Mutex<Vec<Observation>>,
    kind: &Kind,
    object: DynamicObject,
    is_gone: bool,
) -> Result<()> {
    let mut object = serde_json::to_value(object)?;
    object["kind"] = kind.name.into(); // The items of a list do not say it.
    let observation = Observation {
        at: Timestamp::now(),
        resource: kind.plural.to_owned(),
        object,
        is_gone,
    };
    seen.lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(observation);
    Ok(())
}
