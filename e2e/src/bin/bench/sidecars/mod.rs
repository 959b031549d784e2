//! `bench sidecars`: what sidecars cost. `own` compares a workload whose sidecars come from two SidecarSets with one
//! whose template contains them. `inject` measures the webhook that injects sidecars into pods of other controllers.

mod inject;
mod own;

use anyhow::{Result, bail, ensure};
use e2e::case::Case;
use e2e::cluster::control_plane::ControlPlane;
use serde_json::{Value, json};

/// Measures one part, or both, with this number of pods, and returns the tables.
pub async fn measure(
    plane: &'static ControlPlane,
    part: Option<&str>,
    pods: Option<usize>,
) -> Result<String> {
    let own = async || own::measure(plane, pods.unwrap_or(own::PODS)).await;
    let inject = async || inject::measure(plane, pods.unwrap_or(inject::PODS)).await;
    Ok(match part {
        Some("own") => own().await?.to_string(),
        Some("inject") => inject().await?.to_string(),
        Some(_) => bail!("sidecars has the parts own and inject"),
        None => format!("{}\n{}", own().await?, inject().await?),
    })
}

/// A log agent, with its volume.
fn agent() -> (Value, Value) {
    let container = json!({
        "name": "log", "image": "registry.example.com/tools/log-agent:v2.4.1",
        "args": ["--follow", "/logs", "--labels", "app,team"],
        "env": [
            {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        ],
        "volumeMounts": [{"name": "logs", "mountPath": "/logs"}],
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}},
    });
    (container, json!({"name": "logs", "emptyDir": {}}))
}

/// A proxy that runs as a native sidecar.
fn proxy() -> Value {
    json!({
        "name": "mesh", "image": "registry.example.com/tools/mesh:v1.9.0", "restartPolicy": "Always",
        "args": ["--listen", "0.0.0.0:15001"],
        "ports": [{"name": "mesh", "containerPort": 15001}],
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}},
    })
}

/// Two SidecarSets with the agent and the proxy, for a namespace's pods with this value of the label `app`.
fn sets(namespace: &str, app: &str) -> [Value; 2] {
    let (mut container, volume) = agent();
    container["podInjectPolicy"] = json!("AfterAppContainer");
    let parts = [
        ("log", json!({"containers": [container], "volumes": [volume]})),
        ("mesh", json!({"initContainers": [proxy()]})),
    ];
    parts.map(|(name, mut spec)| {
        spec["selector"] = json!({"matchLabels": {"app": app}});
        spec["namespace"] = json!(namespace);
        json!({
            "apiVersion": "tkex.tencent.com/v1alpha1",
            "kind": "SidecarSet",
            "metadata": {"name": format!("{name}-{app}")},
            "spec": spec,
        })
    })
}

/// Creates the sets, and waits until the operator has observed them, so that new pods get the sidecars.
async fn create_sets(case: &Case, app: &str) -> Result<()> {
    for set in sets(&case.namespace, app) {
        case.apply(&set).await?;
        let name = set["metadata"]["name"].as_str().unwrap_or_default();
        let path = format!("/apis/tkex.tencent.com/v1alpha1/sidecarsets/{name}");
        case.eventually(&format!("{name} is observed"), async || {
            let set = case.plane().get(&path).await?;
            let observed = &set["status"]["observedGeneration"];
            ensure!(*observed == set["metadata"]["generation"], "{observed}");
            Ok(())
        })
        .await?;
    }
    Ok(())
}

/// The API server's metrics.
async fn server_page(plane: &ControlPlane) -> Result<String> {
    plane.kubectl(&["get", "--raw", "/metrics"], "").await
}
