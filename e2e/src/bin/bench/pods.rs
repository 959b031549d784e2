//! Follows the pods of a namespace, to detect when a phase is over.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use futures::TryStreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// How long a phase may take.
const LIMIT: Duration = Duration::from_secs(1800);

/// A watch on the pods of a namespace.
pub struct Pods {
    states: Arc<Mutex<PodStates>>,
    changed: watch::Receiver<()>,
    task: JoinHandle<()>,
}

/// The existing pods.
#[derive(Default)]
pub struct PodStates {
    /// The image of each pod; None while the pod is not ready.
    pods: HashMap<String, Option<String>>,
    /// The number of ready pods by image.
    ready: HashMap<String, usize>,
}

impl PodStates {
    /// The number of pods.
    pub fn len(&self) -> usize {
        self.pods.len()
    }

    /// The number of ready pods with this image.
    pub fn ready(&self, image: &str) -> usize {
        self.ready.get(image).copied().unwrap_or(0)
    }

    /// Whether a pod is ready and has this image.
    pub fn is_ready(&self, name: &str, image: &str) -> bool {
        let found = self.pods.get(name);
        found.is_some_and(|found| found.as_deref() == Some(image))
    }

    fn put(&mut self, name: String, image: Option<String>) {
        self.remove(&name);
        if let Some(image) = &image {
            *self.ready.entry(image.clone()).or_default() += 1;
        }
        self.pods.insert(name, image);
    }

    fn remove(&mut self, name: &str) {
        let before = self.pods.remove(name).flatten();
        if let Some(count) = before.and_then(|image| self.ready.get_mut(&image)) {
            *count -= 1;
        }
    }
}

impl Pods {
    /// Starts the watch.
    pub fn watch(client: Client, namespace: &str) -> Self {
        Self::watch_selected(client, namespace, "")
    }

    /// Starts the watch of those with these labels.
    pub fn watch_selected(client: Client, namespace: &str, labels: &str) -> Self {
        let states = Arc::new(Mutex::new(PodStates::default()));
        let (sender, changed) = watch::channel(());
        let api: Api<Pod> = Api::namespaced(client, namespace);
        let config = watcher::Config::default().labels(labels);
        let shared = states.clone();
        let task = tokio::spawn(async move {
            let events = watcher(api, config);
            let followed = events.try_for_each(|event| {
                follow(&shared, event);
                sender.send_replace(());
                std::future::ready(Ok(()))
            });
            if let Err(error) = followed.await {
                eprintln!("watching pods: {error}");
            }
        });
        Pods { states, changed, task }
    }

    /// Waits until a condition holds for the pods.
    pub async fn until(&self, description: &str, holds: impl Fn(&PodStates) -> bool) -> Result<()> {
        let mut changed = self.changed.clone();
        let wait = async {
            loop {
                changed.borrow_and_update();
                if holds(&self.states.lock().unwrap_or_else(PoisonError::into_inner)) {
                    return anyhow::Ok(());
                }
                changed.changed().await?;
            }
        };
        timeout(LIMIT, wait)
            .await
            .with_context(|| format!("not within {LIMIT:?}: {description}"))?
    }

    /// Waits until exactly this many pods with this image are ready.
    pub async fn until_ready(&self, count: usize, image: &str) -> Result<()> {
        self.until("ready", |pods| pods.ready(image) == count).await
    }
}

impl Drop for Pods {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn follow(states: &Mutex<PodStates>, event: Event<Pod>) {
    let mut states = states.lock().unwrap_or_else(PoisonError::into_inner);
    match event {
        Event::Init => *states = PodStates::default(),
        Event::Apply(pod) | Event::InitApply(pod) => states.put(pod.name_any(), ready_image(&pod)),
        Event::Delete(pod) => states.remove(&pod.name_any()),
        Event::InitDone => {}
    }
}

fn ready_image(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?;
    let conditions = status.conditions.as_ref()?;
    let is_ready = conditions.iter().any(|c| c.type_ == "Ready" && c.status == "True");
    let container = status.container_statuses.as_ref()?.first()?;
    is_ready.then(|| container.image.clone())
}
