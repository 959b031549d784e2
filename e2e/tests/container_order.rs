//! Pods whose containers are updated in place one after the other.

use anyhow::{Context, Result, ensure};
use e2e::case::Case;
use e2e::workload::GAME;
use e2e::workload::manifest::{Game, hook_template};
use e2e::workload::view::{Pod, View};
use serde_json::{Value, json};

const POLICY: &str = "/spec/updateStrategy/inPlaceUpdateStrategy/policy";

/// A patch that sets the images of a native sidecar and two containers.
fn image_patch(log: &str, game: &str, proxy: &str) -> Value {
    json!([
        {"op": "replace", "path": "/spec/template/spec/initContainers/0/image", "value": log},
        {"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": game},
        {"op": "replace", "path": "/spec/template/spec/containers/1/image", "value": proxy},
    ])
}

/// Creates pods with a native sidecar and two containers, which are updated in place with this policy.
async fn create_settled(case: &Case, policy: &str, replicas: i64) -> Result<View> {
    let sidecar = json!([{"name": "log", "image": "log:v1", "restartPolicy": "Always"}]);
    let containers = json!([
        {"name": "game", "image": "game:v1"},
        {"name": "proxy", "image": "proxy:v1"},
    ]);
    let game = Game::in_place(replicas)
        .max_unavailable(1)
        .set(POLICY, policy)
        .set("/spec/template/spec/initContainers", sidecar)
        .set("/spec/template/spec/containers", containers)
        .pre_inplace("test")
        .post_inplace("test");
    let mut template = hook_template("test", &case.hooks.url("/"));
    let args = [0, 1, 2]
        .map(|index| json!({"name": format!("ModifiedContainer[{index}]"), "value": "none"}));
    template["spec"]["args"] = json!(args);
    case.apply(template).await?;
    case.apply(game).await?;
    case.until_settled(replicas).await
}

async fn update(case: &Case, log: &str, game: &str, proxy: &str) -> Result<()> {
    case.patch(&format!("gamedeployment/{GAME}"), image_patch(log, game, proxy)).await?;
    Ok(())
}

/// The images in a pod's spec, the sidecar's first.
fn images(pod: &Pod) -> [&str; 3] {
    let places = ["/initContainers/0", "/containers/0", "/containers/1"];
    places.map(|place| {
        let image = pod.0.pointer(&format!("/spec{place}/image"));
        image.and_then(Value::as_str).unwrap_or_default()
    })
}

/// The images that the operator has set in a pod: one list per write, in the order of the writes.
fn patched_images(case: &Case, pod: &str) -> Result<Vec<Vec<String>>> {
    let mut found = Vec::new();
    for event in case.events()? {
        let succeeded = event.succeeded();
        let object = event.object_ref.unwrap_or_default();
        let is_patch = event.verb == "patch" && object.resource == "pods" && succeeded;
        if !is_patch || object.name != pod || !object.subresource.is_empty() {
            continue;
        }
        let sent = event.request_object.unwrap_or_default();
        let replaced = sent.as_array().into_iter().flatten();
        let replaced = replaced.filter(|op| op["op"] == "replace");
        let images = replaced.filter_map(|op| Some(op["value"].as_str()?.to_owned()));
        found.push(images.collect());
    }
    found.retain(|images: &Vec<String>| !images.is_empty());
    Ok(found)
}

#[e2e::test]
async fn containers_are_updated_one_after_the_other(case: &mut Case) -> Result<()> {
    let before = create_settled(case, "OrderedReady", 2).await?;
    update(case, "log:v2", "game:v2", "proxy:v2").await?;
    let view = case.until_settled(2).await?;
    view.ensure(view.pod_names() == before.pod_names())?;
    for pod in &view.pods {
        view.ensure(images(pod) == ["log:v2", "game:v2", "proxy:v2"])?;
        let patched = patched_images(case, pod.name())?;
        ensure!(patched == [["log:v2"], ["game:v2"], ["proxy:v2"]], "{patched:?}");
    }
    let created_runs = |point: &str| {
        let events = case.events()?;
        let runs = events.into_iter().filter(|event| {
            let object = event.object_ref.clone().unwrap_or_default();
            event.verb == "create" && object.resource == "hookruns" && event.succeeded()
        });
        let runs = runs.filter_map(|event| event.request_object);
        let has_point = |run: &Value| run["metadata"]["labels"]["gamedeployment-type"] == point;
        Ok::<_, anyhow::Error>(runs.filter(has_point).collect::<Vec<_>>())
    };
    let pre_inplace = created_runs("PreInplace")?;
    ensure!(pre_inplace.len() == 2 && created_runs("PostInplace")?.len() == 2, "{pre_inplace:?}");
    let args = pre_inplace[0]["spec"]["args"].as_array().context("no arguments")?;
    let mut modified: Vec<&str> = args.iter().filter_map(|arg| arg["value"].as_str()).collect();
    modified.sort_unstable();
    ensure!(modified == ["game", "log", "proxy"], "{args:?}");
    Ok(())
}

#[e2e::test]
async fn a_container_that_never_runs_blocks_the_next_one_until_a_revert(
    case: &mut Case,
) -> Result<()> {
    create_settled(case, "OrderedUpdated", 1).await?;
    update(case, "log:v2", "game:nope", "proxy:v2").await?;
    let partly_updated = ["log:v2", "game:nope", "proxy:v1"];
    case.until("the game's image is set", |view| images(&view.pods[0]) == partly_updated).await?;
    case.consistently("the proxy waits", 3, |view| {
        images(&view.pods[0]) == partly_updated
            && view.phases("PostInplace").is_empty()
            && !view.pods[0].is_ready()
    })
    .await?;
    update(case, "log:v1", "game:v1", "proxy:v1").await?;
    let view = case.until_settled(1).await?;
    view.ensure(images(&view.pods[0]) == ["log:v1", "game:v1", "proxy:v1"])?;
    let proxy = view.pods[0].0.pointer("/status/containerStatuses/1/restartCount");
    view.ensure(proxy == Some(&json!(0)))
}

#[e2e::test]
async fn ordered_ready_waits_until_each_container_is_ready(case: &mut Case) -> Result<()> {
    create_settled(case, "OrderedReady", 1).await?;
    update(case, "log:v2", "game:v2-neverready", "proxy:v2").await?;
    let partly_updated = ["log:v2", "game:v2-neverready", "proxy:v1"];
    case.until("the game's image is set", |view| images(&view.pods[0]) == partly_updated).await?;
    case.consistently("the proxy waits", 3, |view| images(&view.pods[0]) == partly_updated).await?;
    case.replace(POLICY, "OrderedUpdated").await?;
    case.until("the proxy's image is set", |view| {
        images(&view.pods[0]) == ["log:v2", "game:v2-neverready", "proxy:v2"]
    })
    .await?;
    update(case, "log:v2", "game:v3", "proxy:v2").await?;
    case.until_settled(1).await?;
    Ok(())
}

#[e2e::test]
async fn the_next_container_is_updated_after_the_operator_is_killed(case: &mut Case) -> Result<()> {
    create_settled(case, "OrderedReady", 1).await?;
    update(case, "log:v2-slow20", "game:v2", "proxy:v2").await?;
    case.until("the first image is set", |view| {
        images(&view.pods[0]) == ["log:v2-slow20", "game:v1", "proxy:v1"]
    })
    .await?;
    case.kill_operator().await?;
    case.operator.start().await?;
    let view = case.until_settled(1).await?;
    view.ensure(images(&view.pods[0]) == ["log:v2-slow20", "game:v2", "proxy:v2"])
}
