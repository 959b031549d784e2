//! The cost of pods that no GameDeployment or GameStatefulSet controls: memory, and processor time when they change.

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use e2e::case::Case;
use e2e::cluster::control_plane::ControlPlane;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::time::interval;

use super::figures::Times;
use super::{open, until_at_rest};

/// How many requests the benchmark makes concurrently.
const CONCURRENCY: usize = 32;
/// Changes per second.
const CHANGES: u32 = 100;
/// How long the changes continue.
const CHANGING: Duration = Duration::from_secs(30);

/// The results.
pub struct Measured {
    pods: usize,
    /// Memory in bytes that pods of another controller added.
    controlled: u64,
    /// Memory in bytes that pods without a controller added.
    orphans: u64,
    changes: usize,
    /// Processor time of the operator during the changes, including what it uses at rest.
    processor: Duration,
}

/// Measures pods: half of them have another controller, and the other half have none.
pub async fn measure(plane: &'static ControlPlane, pods: usize) -> Result<Measured> {
    let (mut case, folder) = open(plane, "foreign", &[]).await?;
    let owner = owner(&case).await?;
    let api: Api<Pod> = Api::namespaced(plane.client(), &case.namespace);
    until_at_rest(&case).await?;
    let memory_empty = case.operator.memory()?;
    eprintln!("{} pods of another controller", pods / 2);
    create(&api, 0..pods / 2, Some(&owner)).await?;
    until_at_rest(&case).await?;
    let memory_half = case.operator.memory()?;
    eprintln!("{} pods that nothing controls", pods - pods / 2);
    create(&api, pods / 2..pods, None).await?;
    until_at_rest(&case).await?;
    let memory_full = case.operator.memory()?;
    eprintln!("{CHANGES} changes per second");
    let before = Times::now(&case)?;
    let changes = change(&api, pods).await?;
    until_at_rest(&case).await?;
    let processor = Times::now(&case)?.since(before).operator;
    case.operator.terminate().await?;
    std::fs::remove_dir_all(&folder)?;
    Ok(Measured {
        pods,
        controlled: memory_half.saturating_sub(memory_empty),
        orphans: memory_full.saturating_sub(memory_half),
        changes,
        processor,
    })
}

/// Creates pods of another controller in the namespace of a case.
pub async fn create_controlled(case: &Case, pods: usize) -> Result<()> {
    let owner = owner(case).await?;
    create(&Api::namespaced(case.plane().client(), &case.namespace), 0..pods, Some(&owner)).await
}

/// The uid of an object that controls pods.
async fn owner(case: &Case) -> Result<Value> {
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "other"}});
    case.apply(owner).await?;
    Ok(case.get("configmaps/other").await?["metadata"]["uid"].take())
}

/// Creates pods that are never scheduled.
async fn create(
    api: &Api<Pod>,
    numbers: std::ops::Range<usize>,
    owner: Option<&Value>,
) -> Result<()> {
    stream::iter(numbers)
        .map(async |number| {
            let pod = serde_json::from_value(pod(number, owner))?;
            api.create(&PostParams::default(), &pod).await?;
            anyhow::Ok(())
        })
        .buffer_unordered(CONCURRENCY)
        .try_collect()
        .await
}

/// Changes pods at an even rate for [`CHANGING`]. Returns the number of changes.
async fn change(api: &Api<Pod>, pods: usize) -> Result<usize> {
    let started = Instant::now();
    let mut beat = interval(Duration::from_secs(1) / CHANGES);
    let mut changes = 0;
    let mut in_flight = tokio::task::JoinSet::new();
    while started.elapsed() < CHANGING {
        beat.tick().await;
        // A stride that is coprime to the number of pods reaches all of them.
        let name = name(changes * 7_919 % pods);
        let (api, change) = (api.clone(), changes);
        in_flight.spawn(async move {
            let note = json!({"metadata": {"annotations": {"change": change.to_string()}}});
            let params = PatchParams::default();
            api.patch(&name, &params, &Patch::Merge(&note)).await
        });
        changes += 1;
    }
    while let Some(changed) = in_flight.join_next().await {
        changed?.context("change a pod")?;
    }
    Ok(changes)
}

fn name(number: usize) -> String {
    format!("other-{number:05}-8dd69fd8")
}

/// A pod of realistic size, with environment variables, volumes and probes.
pub fn pod(number: usize, owner: Option<&Value>) -> Value {
    let variables = (0..20).map(|n| {
        let reference = json!({"fieldPath": "metadata.annotations['variable']"});
        json!({"name": format!("VARIABLE_{n}"), "valueFrom": {"fieldRef": reference}})
    });
    let variables: Vec<Value> = variables.collect();
    let volumes = (0..5).map(|n| json!({"name": format!("volume-{n}"), "emptyDir": {}}));
    let volumes: Vec<Value> = volumes.collect();
    let mounts = (0..5).map(
        |n| json!({"name": format!("volume-{n}"), "mountPath": format!("/var/lib/volume-{n}")}),
    );
    let mounts: Vec<Value> = mounts.collect();
    let owners = owner.map(|uid| {
        json!([{
            "apiVersion": "v1", "kind": "ConfigMap", "name": "other", "uid": uid, "controller": true,
        }])
    });
    json!({
        "metadata": {
            "name": name(number), "ownerReferences": owners,
            "labels": {"app": "other", "team": "web", "pod-template-hash": "6c947d899c"},
        },
        "spec": {
            "schedulerName": "none",
            "containers": [{
                "name": "web", "image": "registry.example.com/web/other:v1.27.3",
                "env": variables, "volumeMounts": mounts,
                "readinessProbe": {"httpGet": {"path": "/ready", "port": 8080}},
                "livenessProbe": {"httpGet": {"path": "/live", "port": 8080}},
            }],
            "volumes": volumes,
        },
    })
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let half = (self.pods / 2) as f64;
        let spent = self.processor.as_secs_f64();
        let rows = [
            (
                "memory per pod of another controller, garbage included",
                format!("{:.0} bytes", self.controlled as f64 / half),
            ),
            (
                "memory per pod without a controller, garbage included",
                format!("{:.0} bytes", self.orphans as f64 / half),
            ),
            (
                "operator's CPU time per change, its CPU time at rest included",
                format!("{:.0} µs", spent * 1e6 / self.changes as f64),
            ),
            (
                "share of a core at this rate",
                format!("{:.2} %", spent * 1e2 / CHANGING.as_secs_f64()),
            ),
        ];
        let changes = self.changes as f64 / CHANGING.as_secs_f64();
        writeln!(f, "| {} foreign pods, {changes:.0} changes per second | |", self.pods)?;
        writeln!(f, "|---|---|")?;
        for (name, value) in rows {
            writeln!(f, "| {name} | {value} |")?;
        }
        Ok(())
    }
}
