//! Tests of the simulated kubelet: it must report what was recorded from a real one, so that the results of
//! the other tests apply to real nodes.

use anyhow::{Result, ensure};
use e2e::case::Case;
use judge::object::{is_true, text};
use serde_json::{Value, json};

/// A pod with one container and these additional fields in its spec.
fn pod(fields: Value) -> Value {
    let mut spec = json!({"containers": [{"name": "game", "image": "game:v1"}]});
    for (field, value) in fields.as_object().into_iter().flatten() {
        spec[field] = value.clone();
    }
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "game"}, "spec": spec})
}

async fn set_image(case: &Case, image: &str) -> Result<()> {
    let image = format!("game={image}");
    case.kubectl(&["set", "image", "pod/game", &image]).await?;
    Ok(())
}

/// Every status of the pod that the kubelet has written, oldest first. The kubelet's patches have a resourceVersion;
/// those of kubectl have none.
fn statuses(case: &Case) -> Result<Vec<Value>> {
    let mut writes = case.plane().audit.writes(&case.namespace)?;
    writes.retain(|event| {
        let request = event.request_object.as_ref();
        let object = event.object_ref.as_ref();
        event.succeeded()
            && object.is_some_and(|o| o.name == "game" && o.subresource == "status")
            && request.is_some_and(|r| !text(r, "/metadata/resourceVersion").is_empty())
    });
    let responses = writes.into_iter().filter_map(|event| event.response_object);
    let mut responses: Vec<Value> = responses.collect();
    // The audit log is in the order of responses, which may differ from that of the writes.
    responses.sort_by_key(|pod| text(pod, "/metadata/resourceVersion").parse().unwrap_or(0_u64));
    Ok(responses)
}

/// A status as a line: generation, observed generation, image, restarts, state, readiness.
fn line(pod: &Value) -> String {
    let container = &pod["status"]["containerStatuses"][0];
    let state = match text(container, "/state/waiting/reason") {
        "" if container["ready"] == true => "ready",
        "" => "running",
        reason => reason,
    };
    let end = if is_true(pod, "Ready") { ", Ready" } else { "" };
    format!(
        "{}/{} {} {} {state}{end}",
        pod["metadata"]["generation"],
        pod["status"]["observedGeneration"],
        text(container, "/image"),
        container["restartCount"],
    )
}

/// Waits until the kubelet has reported these statuses, in this order.
async fn until_reported(case: &Case, expected: &[&str]) -> Result<Vec<Value>> {
    case.eventually("the kubelet reports these statuses", async || {
        let seen = statuses(case)?;
        let lines: Vec<String> = seen.iter().map(line).collect();
        let first = lines.get(..expected.len());
        ensure!(first.is_some_and(|first| first == expected), "the kubelet reported {lines:#?}");
        Ok(seen)
    })
    .await
}

/// The ID of the container's image, and the ID of the container.
fn identity(pod: &Value) -> (&str, &str) {
    let part = |pointer| text(&pod["status"]["containerStatuses"][0], pointer);
    (part("/imageID"), part("/containerID"))
}

#[e2e::test]
async fn a_change_is_observed_before_it_is_applied(case: &mut Case) -> Result<()> {
    case.apply(pod(json!({}))).await?;
    until_reported(case, &["1/1 game:v1 0 ready, Ready"]).await?;
    set_image(case, "game:v2").await?;
    let seen = until_reported(
        case,
        &["1/1 game:v1 0 ready, Ready", "2/2 game:v1 0 ready, Ready", "2/2 game:v2 1 ready, Ready"],
    )
    .await?;
    let (image, container) = identity(&seen[1]);
    let (new_image, new_container) = identity(&seen[2]);
    ensure!(image != new_image && container != new_container, "{seen:#?}");
    Ok(())
}

#[e2e::test]
async fn a_probe_passes_only_after_the_change(case: &mut Case) -> Result<()> {
    let probe = json!({"httpGet": {"port": 80}});
    let container = json!({"name": "game", "image": "game:v1", "readinessProbe": probe});
    case.apply(pod(json!({"containers": [container]}))).await?;
    until_reported(case, &["1/1 game:v1 0 running", "1/1 game:v1 0 ready, Ready"]).await?;
    set_image(case, "game:v2").await?;
    until_reported(
        case,
        &[
            "1/1 game:v1 0 running",
            "1/1 game:v1 0 ready, Ready",
            "2/2 game:v1 0 ready, Ready",
            "2/2 game:v2 1 running",
            "2/2 game:v2 1 ready, Ready",
        ],
    )
    .await?;
    Ok(())
}

#[e2e::test]
async fn a_missing_image_keeps_the_old_identity(case: &mut Case) -> Result<()> {
    case.apply(pod(json!({}))).await?;
    until_reported(case, &["1/1 game:v1 0 ready, Ready"]).await?;
    set_image(case, "game:nope").await?;
    let broken =
        ["1/1 game:v1 0 ready, Ready", "2/2 game:v1 0 ready, Ready", "2/2 game:v1 0 ErrImagePull"];
    let seen = until_reported(case, &broken).await?;
    ensure!(identity(&seen[0]) == identity(&seen[2]), "{seen:#?}");
    set_image(case, "game:v1").await?;
    let fixed = ["3/3 game:v1 0 ErrImagePull", "3/3 game:v1 1 ready, Ready"];
    let expected = [broken.as_slice(), &fixed].concat();
    // Until the image is changed again, the kubelet retries the pull every 5 s.
    let short = |pod: &Value| line(pod).replace("ImagePullBackOff", "ErrImagePull");
    let repaired = async || {
        let mut seen = statuses(case)?;
        seen.dedup_by_key(|pod| short(pod));
        let lines: Vec<String> = seen.iter().map(short).collect();
        ensure!(lines == expected, "the kubelet reported {lines:#?}");
        Ok(seen)
    };
    let seen = case.eventually("the image is pulled", repaired).await?;
    ensure!(identity(&seen[0]).1 != identity(&seen[4]).1, "{seen:#?}");
    Ok(())
}

#[e2e::test]
async fn a_change_in_progress_completes_before_the_next(case: &mut Case) -> Result<()> {
    case.apply(pod(json!({}))).await?;
    until_reported(case, &["1/1 game:v1 0 ready, Ready"]).await?;
    // Long enough for the next change to come in time on a slow machine.
    set_image(case, "game:v2-slow30").await?;
    let before = ["1/1 game:v1 0 ready, Ready", "2/2 game:v1 0 ready, Ready"];
    until_reported(case, &before).await?;
    set_image(case, "game:v3").await?;
    let after = ["3/3 game:v2-slow30 1 ready, Ready", "3/3 game:v3 2 ready, Ready"];
    until_reported(case, &[before, after].concat()).await?;
    Ok(())
}

#[e2e::test]
async fn a_retag_restarts_the_container_with_the_same_image_id(case: &mut Case) -> Result<()> {
    case.apply(pod(json!({}))).await?;
    until_reported(case, &["1/1 game:v1 0 ready, Ready"]).await?;
    set_image(case, "game:v1-retag").await?;
    let seen = until_reported(
        case,
        &["1/1 game:v1 0 ready, Ready", "2/2 game:v1 0 ready, Ready", "2/2 game:v1 1 ready, Ready"],
    )
    .await?;
    let (image, container) = identity(&seen[1]);
    let (new_image, new_container) = identity(&seen[2]);
    ensure!(image == new_image && container != new_container, "{seen:#?}");
    Ok(())
}

#[e2e::test]
async fn a_crashing_container_is_briefly_ready(case: &mut Case) -> Result<()> {
    let container = json!({"name": "game", "image": "game:crash"});
    case.apply(pod(json!({"containers": [container]}))).await?;
    until_reported(
        case,
        &[
            "1/1 game:crash 0 ready, Ready",
            "1/1 game:crash 0 CrashLoopBackOff",
            "1/1 game:crash 1 ready, Ready",
            "1/1 game:crash 1 CrashLoopBackOff",
        ],
    )
    .await?;
    Ok(())
}

#[e2e::test]
async fn ready_follows_the_readiness_gates(case: &mut Case) -> Result<()> {
    let gates = json!([{"conditionType": "game/open"}]);
    case.apply(pod(json!({"readinessGates": gates}))).await?;
    let mut expected = vec!["1/1 game:v1 0 ready"];
    until_reported(case, &expected).await?;
    for (status, next) in [
        ("True", "1/1 game:v1 0 ready, Ready"),
        ("False", "1/1 game:v1 0 ready"),
        ("True", "1/1 game:v1 0 ready, Ready"),
    ] {
        let condition = json!({"type": "game/open", "status": status});
        let patch = format!("-p={}", json!({"status": {"conditions": [condition]}}));
        case.kubectl(&["patch", "pod", "game", "--subresource=status", &patch]).await?;
        expected.push(next);
        until_reported(case, &expected).await?;
    }
    Ok(())
}

#[e2e::test]
async fn a_resize_restarts_nothing(case: &mut Case) -> Result<()> {
    let resources = json!({"requests": {"cpu": "100m"}});
    let container = json!({"name": "game", "image": "game:v1", "resources": resources});
    case.apply(pod(json!({"containers": [container]}))).await?;
    until_reported(case, &["1/1 game:v1 0 ready, Ready"]).await?;
    let new_resources = json!({"requests": {"cpu": "200m"}});
    let container = json!({"name": "game", "resources": new_resources});
    let patch = format!("-p={}", json!({"spec": {"containers": [container]}}));
    case.kubectl(&["patch", "pod", "game", "--subresource=resize", &patch]).await?;
    let seen = until_reported(
        case,
        &["1/1 game:v1 0 ready, Ready", "2/2 game:v1 0 ready, Ready", "2/2 game:v1 0 ready, Ready"],
    )
    .await?;
    let reported = |pod: &Value| pod["status"]["containerStatuses"][0]["resources"].clone();
    let progress: Vec<_> =
        seen.iter().map(|pod| (reported(pod), is_true(pod, "PodResizeInProgress"))).collect();
    let expected = [(resources.clone(), false), (resources, true), (new_resources, false)];
    ensure!(progress == expected, "{progress:?}");
    ensure!(identity(&seen[0]) == identity(&seen[2]), "{seen:#?}");
    Ok(())
}

#[e2e::test]
async fn a_hot_patch_restarts_the_container_only_without_kubelet_support(
    case: &mut Case,
) -> Result<()> {
    let mut hot = pod(json!({}));
    hot["metadata"]["annotations"] = json!({"io.kubernetes.hotpatch.container": "true"});
    case.apply(hot).await?;
    until_reported(case, &["1/1 game:v1 0 ready, Ready"]).await?;
    set_image(case, "game:v2").await?;
    let patched =
        ["1/1 game:v1 0 ready, Ready", "2/2 game:v1 0 ready, Ready", "2/2 game:v2 0 ready, Ready"];
    let seen = until_reported(case, &patched).await?;
    ensure!(identity(&seen[0]).1 == identity(&seen[2]).1, "{seen:#?}");
    let unsupported = "stage.gamekeeper/hot-patch=restart";
    case.kubectl(&["annotate", "pod", "game", unsupported]).await?;
    set_image(case, "game:v3").await?;
    let restarted = ["3/3 game:v2 0 ready, Ready", "3/3 game:v3 1 ready, Ready"];
    until_reported(case, &[patched.as_slice(), &restarted].concat()).await?;
    Ok(())
}

#[e2e::test]
async fn a_lost_node_keeps_its_terminating_pods(case: &mut Case) -> Result<()> {
    let name = format!("lost-{}", std::process::id());
    // The taint keeps other tests' pods away.
    let taint = json!({"key": "lost", "effect": "NoSchedule"});
    let spec = json!({"podCIDR": "127.99.0.0/16", "taints": [taint]});
    let metadata = json!({"name": name, "labels": {"kubernetes.io/hostname": name}});
    case.apply(json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec}))
        .await?;
    case.apply(pod(json!({"nodeName": name}))).await?;
    until_reported(case, &["1/1 game:v1 0 ready, Ready"]).await?;
    let node = format!("node/{name}");
    for lost in ["pod/game", &node] {
        let verb = if lost == node { "label" } else { "annotate" };
        case.kubectl(&[verb, lost, "stage.gamekeeper/lost=true"]).await?;
    }
    let timeout = "--timeout=300s";
    case.kubectl(&["wait", "--for=condition=Ready=Unknown", &node, timeout]).await?;
    case.kubectl(&["delete", "pod", "game", "--wait=false"]).await?;
    set_image(case, "game:v2").await?;
    case.kubectl(&["label", &node, "stage.gamekeeper/lost-"]).await?;
    case.kubectl(&["wait", "--for=condition=Ready", &node, timeout]).await?;
    let seen = statuses(case)?;
    ensure!(seen.len() == 1, "a lost node reported {seen:#?}");
    case.kubectl(&["annotate", "pod/game", "stage.gamekeeper/lost-"]).await?;
    case.kubectl(&["wait", "--for=delete", "pod/game", timeout]).await?;
    case.kubectl(&["delete", "node", &name]).await?;
    Ok(())
}
