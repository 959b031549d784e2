//! A client that makes only the unavoidable writes: one to create a pod, another to open its readiness
//! gate if it has one, one to change its image, one to delete it. It makes no decisions, keeps no status
//! and does not survive a crash.

use anyhow::Result;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::pods::Pods;
use crate::{MAX_UNAVAILABLE, PODS};

/// The readiness gate of pods that are updated in place.
pub const GATE: &str = "InPlaceUpdateReady";
/// The number of concurrent requests.
const CONCURRENCY: usize = 32;

/// The bare client.
pub struct Bare<'a> {
    api: Api<Pod>,
    pods: &'a Pods,
}

impl<'a> Bare<'a> {
    /// A client for the pods of a namespace.
    pub fn new(client: Client, namespace: &str, pods: &'a Pods) -> Self {
        Bare { api: Api::namespaced(client, namespace), pods }
    }

    /// Creates all pods from a template.
    pub async fn create(&self, template: &Value) -> Result<()> {
        for_each(CONCURRENCY, async |name| {
            let mut pod = template.clone();
            pod["metadata"]["name"] = json!(name);
            let pod = serde_json::from_value(pod)?;
            let pod = self.api.create(&PostParams::default(), &pod).await?;
            if pod.spec.is_some_and(|spec| spec.readiness_gates.is_some()) {
                let open = json!({"type": GATE, "status": "True"});
                let open = Patch::Strategic(json!({"status": {"conditions": [open]}}));
                let params = PatchParams::default();
                self.api.patch_status(&name, &params, &open).await?;
            }
            Ok(())
        })
        .await
    }

    /// Changes the image of all pods, at most [`MAX_UNAVAILABLE`] at a time.
    pub async fn update(&self, image: &str) -> Result<()> {
        for_each(MAX_UNAVAILABLE, async |name| {
            let patch = json!({"spec": {"containers": [{"name": "game", "image": image}]}});
            let patch = Patch::Strategic(&patch);
            self.api.patch(&name, &PatchParams::default(), &patch).await?;
            self.pods.until("updated", |pods| pods.is_ready(&name, image)).await
        })
        .await
    }

    /// Deletes all pods.
    pub async fn delete(&self) -> Result<()> {
        for_each(CONCURRENCY, async |name| {
            self.api.delete(&name, &DeleteParams::default()).await?;
            Ok(())
        })
        .await
    }
}

async fn for_each(concurrency: usize, act: impl AsyncFn(String) -> Result<()>) -> Result<()> {
    let act = &act;
    stream::iter(0..PODS)
        .map(|number| act(format!("bare-{number}")))
        .buffer_unordered(concurrency)
        .try_collect()
        .await
}
