//! Nodes whose status changes as often as a kubelet may write it.

use std::time::Duration;

use anyhow::Result;
use e2e::cluster::control_plane::ControlPlane;
use e2e::wait::eventually;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::interval;

/// The number of nodes, besides those that every cluster of the tests has.
const NODES: u32 = 200;
/// How often each node writes its status: as often as kubelets look whether it has changed. Without a change, they write it
/// only every five minutes.
const HEARTBEAT: Duration = Duration::from_secs(10);
/// The number of images in the status of a node, which is the kubelet's default limit.
const IMAGES: u32 = 50;

/// Creates the nodes. Their heartbeats end when the result is dropped.
pub(super) async fn create(plane: &'static ControlPlane) -> Result<JoinSet<()>> {
    plane.apply(&(0..NODES).map(node).collect::<Vec<_>>()).await?;
    eventually("the nodes are ready", Duration::from_secs(60), async || {
        let last = plane.get(&path(NODES - 1)).await?;
        let conditions = last["status"]["conditions"].as_array().map_or(&[][..], Vec::as_slice);
        let is_ready = conditions.iter().any(|it| it["type"] == "Ready" && it["status"] == "True");
        anyhow::ensure!(is_ready, "{last}");
        Ok(())
    })
    .await?;
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut beat = interval(HEARTBEAT / NODES);
        for number in (0..NODES).cycle() {
            beat.tick().await;
            if let Err(error) = heartbeat(plane, number).await {
                eprintln!("heartbeat of node {number}: {error:#}");
            }
        }
    });
    Ok(tasks)
}

async fn heartbeat(plane: &ControlPlane, number: u32) -> Result<()> {
    let images = (0..IMAGES).map(|image| {
        let name = format!("registry.example.com/games/arena-{number:03}-{image:02}:v1.27.3");
        json!({"names": [name], "sizeBytes": 73_521_904 + image})
    });
    let images: Vec<Value> = images.collect();
    let now = Timestamp::now();
    let change = json!([
        {"op": "add", "path": "/status/images", "value": images},
        {"op": "add", "path": "/status/conditions/0/lastHeartbeatTime", "value": now.strftime("%FT%TZ").to_string()},
    ]);
    plane.patch(&format!("{}/status", path(number)), &change).await?;
    Ok(())
}

fn path(number: u32) -> String {
    format!("/api/v1/nodes/fleet-{number:03}")
}

/// A node whose pods have addresses that no other node uses.
fn node(number: u32) -> Value {
    let name = format!("fleet-{number:03}");
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "spec": {"podCIDR": format!("127.{}.0.0/16", number + 20)},
    })
}
