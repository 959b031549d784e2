//! When the API server delivers the victim's new HookRuns to a watch other than the operator's.
//!
//! The operator cannot start a hook before its own watch delivers the HookRun, and kube-apiserver delivers
//! late under load. So the operator answers only for the time after the delivery.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use futures::TryStreamExt;
use jiff::Timestamp;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::watcher::{self, watcher};
use kube::{Api, Client};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::VICTIM;

/// The first delivery of each HookRun, by name.
type Seen = Arc<Mutex<BTreeMap<String, Timestamp>>>;

/// Watches the victim's HookRuns until dropped.
pub struct Deliveries {
    seen: Seen,
    watch: JoinHandle<()>,
}

impl Deliveries {
    /// Starts the watch. HookRuns that are created after this returns are recorded.
    pub async fn start(client: Client) -> Result<Self> {
        let kind = GroupVersionKind::gvk("tkex.tencent.com", "v1alpha1", "HookRun");
        let api = Api::namespaced_with(client, VICTIM, &ApiResource::from_gvk(&kind));
        let seen = Seen::default();
        let (tx, started) = oneshot::channel();
        let watch = tokio::spawn(follow(api, seen.clone(), tx));
        started.await.context("watch the victim's HookRuns")?;
        Ok(Deliveries { seen, watch })
    }

    /// When each HookRun was first delivered.
    pub fn by_name(&self) -> BTreeMap<String, Timestamp> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.clone()
    }
}

impl Drop for Deliveries {
    fn drop(&mut self) {
        self.watch.abort();
    }
}

async fn follow(api: Api<DynamicObject>, seen: Seen, started: oneshot::Sender<()>) {
    let mut started = Some(started);
    let events = watcher(api, watcher::Config::default());
    let watching = events.try_for_each(|event| {
        match event {
            watcher::Event::InitApply(run) | watcher::Event::Apply(run) => {
                let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
                let name = run.metadata.name.unwrap_or_default();
                seen.entry(name).or_insert_with(Timestamp::now);
            }
            watcher::Event::InitDone => {
                // Only the first list is awaited; a watch may list again.
                let _ = started.take().map(|started| started.send(()));
            }
            watcher::Event::Init | watcher::Event::Delete(_) => {}
        }
        std::future::ready(Ok(()))
    });
    if let Err(error) = watching.await {
        eprintln!("no longer watching the victim's HookRuns: {error:#}");
    }
}
