//! In-place updates, including on kubelets that are slow, fail, or refuse a change.

use anyhow::{Context, Result, ensure};
use e2e::case::Case;
use e2e::workload::GAME;
use e2e::workload::manifest::Game;
use jiff::Timestamp;
use judge::object::text;
use serde_json::{Value, json};

async fn apply_and_settle(case: &Case, game: Game, replicas: i64) -> Result<()> {
    case.apply(game).await?;
    case.until_settled(replicas).await?;
    Ok(())
}

fn add_env() -> Value {
    json!([{"op": "add", "path": "/spec/template/spec/containers/0/env",
        "value": [{"name": "MODE", "value": "ranked"}]}])
}

#[e2e::test]
async fn a_change_that_is_not_possible_in_place_is_refused(case: &mut Case) -> Result<()> {
    apply_and_settle(case, Game::in_place(3), 3).await?;
    let before = case.view().await?;
    case.patch(&format!("gamedeployment/{GAME}"), add_env()).await?;
    let view = case.until("the change is refused", |view| view.is_true("FailedUpdate")).await?;
    let condition = view.condition("FailedUpdate").context("no condition FailedUpdate")?;
    ensure!(condition.reason == "NotInPlace", "{condition:?}");
    ensure!(condition.message.contains("env"), "{condition:?}");
    case.consistently("the pods are unchanged", 2, |view| {
        view.pod_names() == before.pod_names()
            && view.pods.iter().all(|pod| pod.restarts() == 0 && pod.is_ready())
    })
    .await?;
    case.scale(4).await?;
    let view = case
        .until("a pod of the stable revision is added", |view| view.counts() == [4, 0, 0, 4, 4])
        .await?;
    view.ensure(view.pods.iter().all(|pod| pod.0.pointer("/spec/containers/0/env").is_none()))?;
    let remove_env = json!([{"op": "remove", "path": "/spec/template/spec/containers/0/env"}]);
    case.patch(&format!("gamedeployment/{GAME}"), remove_env).await?;
    let view = case.until_settled(4).await?;
    view.ensure(view.condition("FailedUpdate").is_none())
}

#[e2e::test]
async fn a_change_that_is_not_possible_in_place_recreates_pods_if_allowed(
    case: &mut Case,
) -> Result<()> {
    let when_impossible = "/spec/updateStrategy/inPlaceUpdateStrategy/whenImpossible";
    let game = Game::in_place(3).max_unavailable(1).set(when_impossible, "Recreate");
    apply_and_settle(case, game, 3).await?;
    let before = case.view().await?;
    case.set_image("game:v2").await?;
    let updated = case.until_settled(3).await?;
    updated.ensure(updated.pod_names() == before.pod_names())?;
    case.patch(&format!("gamedeployment/{GAME}"), add_env()).await?;
    let after = case.until_settled(3).await?;
    let has_env =
        |pod: &e2e::workload::view::Pod| pod.0.pointer("/spec/containers/0/env/0").is_some();
    after.ensure(after.pods.iter().all(has_env))?;
    after.ensure(!after.pod_names().contains(&before.pods[0].name()))
}

#[e2e::test]
async fn labels_and_annotations_change_without_a_restart(case: &mut Case) -> Result<()> {
    apply_and_settle(case, Game::in_place(2).annotated("season", "7"), 2).await?;
    let changes = json!([
        {"op": "add", "path": "/spec/template/metadata/labels/tier", "value": "gold"},
        {"op": "replace", "path": "/spec/template/metadata/annotations/season", "value": "8 ☃"},
    ]);
    case.patch(&format!("gamedeployment/{GAME}"), changes).await?;
    let view = case.until_settled(2).await?;
    let is_changed = |pod: &e2e::workload::view::Pod| {
        pod.label("tier") == Some("gold")
            && pod.annotation("season") == Some("8 ☃")
            && pod.restarts() == 0
    };
    view.ensure(view.pods.iter().all(is_changed))?;
    let remove = json!([{"op": "remove", "path": "/spec/template/metadata/labels/tier"}]);
    case.patch(&format!("gamedeployment/{GAME}"), remove).await?;
    let view = case.until_settled(2).await?;
    view.ensure(view.pods.iter().all(|pod| pod.label("tier").is_none()))
}

/// Whether kubelets of the control plane's version are older than 1.MINOR, the first version that can make the change
/// that was just requested. If they are, it is refused, and no pod leaves service.
async fn is_refused_before(case: &Case, minor: u32) -> Result<bool> {
    let version = case.plane().minor;
    if version >= minor {
        return Ok(false);
    }
    let refused = |view: &e2e::workload::view::View| view.is_true("FailedUpdate");
    let view = case.until("the change is refused", refused).await?;
    let condition = view.condition("FailedUpdate");
    let condition = condition.context("no condition FailedUpdate")?;
    ensure!(condition.reason == "NotInPlace", "{condition:?}");
    let kubelets = format!("a node has v1.{version}.");
    ensure!(condition.message.contains(&kubelets), "{condition:?}");
    case.consistently("the pods stay ready", 2, |view| {
        view.pods.iter().all(|pod| pod.restarts() == 0 && pod.is_ready())
    })
    .await?;
    Ok(true)
}

const RESOURCES: &str = "/spec/template/spec/containers/0/resources";

fn cpu(amount: &str) -> Value {
    json!({"requests": {"cpu": amount}, "limits": {"cpu": "2"}})
}

/// For a new pod, the API server takes missing requests from the limits. For a resize it does not, and it refuses a
/// change of the QoS class.
#[e2e::test]
async fn limits_without_requests_change_without_a_restart(case: &mut Case) -> Result<()> {
    let limits = |cpu: &str| json!({"limits": {"cpu": cpu, "memory": "64Mi"}});
    let game = Game::in_place(2).max_unavailable(1);
    apply_and_settle(case, game.set(RESOURCES, limits("200m")), 2).await?;
    for amount in ["300m", "100m"] {
        case.replace(RESOURCES, limits(amount)).await?;
        if is_refused_before(case, 33).await? {
            return Ok(());
        }
        let view = case.until_settled(2).await?;
        let is_resized = |pod: &e2e::workload::view::Pod| {
            let resources = &pod.0["spec"]["containers"][0]["resources"];
            let is_set = |kind: &str| resources[kind]["cpu"] == amount;
            is_set("requests") && is_set("limits") && pod.restarts() == 0
        };
        view.ensure(view.pods.iter().all(is_resized))?;
    }
    Ok(())
}

#[e2e::test]
async fn resources_change_without_a_restart(case: &mut Case) -> Result<()> {
    apply_and_settle(case, Game::in_place(3).max_unavailable(1).set(RESOURCES, cpu("500m")), 3)
        .await?;
    case.replace(RESOURCES, cpu("750m")).await?;
    if is_refused_before(case, 33).await? {
        return Ok(());
    }
    let view = case.until_settled(3).await?;
    let is_resized = |pod: &e2e::workload::view::Pod| {
        let running = pod.0.pointer("/status/containerStatuses/0/resources/requests/cpu");
        running == Some(&json!("750m")) && pod.restarts() == 0
    };
    view.ensure(view.pods.iter().all(is_resized))?;
    case.patch(
        &format!("gamedeployment/{GAME}"),
        json!([
            {"op": "replace", "path": RESOURCES, "value": cpu("1")},
            {"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "game:v2"},
        ]),
    )
    .await?;
    let view = case.until_settled(3).await?;
    let is_resized_and_restarted = |pod: &e2e::workload::view::Pod| {
        let running = pod.0.pointer("/status/containerStatuses/0/resources/requests/cpu");
        running == Some(&json!("1")) && pod.restarts() == 1
    };
    view.ensure(view.pods.iter().all(is_resized_and_restarted))
}

#[e2e::test]
async fn an_infeasible_resize_is_reported_until_it_is_reverted(case: &mut Case) -> Result<()> {
    let game = Game::in_place(3)
        .max_unavailable(1)
        .annotated("stage.gamekeeper/resize", "Infeasible")
        .set(RESOURCES, cpu("500m"));
    apply_and_settle(case, game, 3).await?;
    case.replace(RESOURCES, cpu("750m")).await?;
    if is_refused_before(case, 33).await? {
        return Ok(());
    }
    let view = case.until("the refusal is reported", |view| view.is_true("FailedUpdate")).await?;
    let condition = view.condition("FailedUpdate").context("no condition FailedUpdate")?;
    ensure!(condition.reason == "ResizeNotPossible", "{condition:?}");
    case.consistently("one pod is unavailable", 2, |view| view.counts()[3] == 2).await?;
    case.replace(RESOURCES, cpu("500m")).await?;
    let view = case.until_settled(3).await?;
    view.ensure(view.condition("FailedUpdate").is_none())
}

#[e2e::test]
async fn an_update_during_another_one_ends_with_the_last_version(case: &mut Case) -> Result<()> {
    apply_and_settle(case, Game::in_place(3).max_unavailable(3), 3).await?;
    // Long enough for a slow machine to show the state in between.
    case.set_image("game:v2-slow30").await?;
    case.until("the update to v2 is in progress", |view| {
        view.count_with("game:v2-slow30") == 3 && view.counts()[3] == 0
    })
    .await?;
    case.set_image("game:v3-slow5").await?;
    // The judge checks that no gate opens while v2 runs.
    let view = case.until_settled(3).await?;
    view.ensure(view.ready_with("game:v3-slow5") == 3)
}

#[e2e::test]
async fn a_missing_image_blocks_the_rollout_until_the_change_is_reverted(
    case: &mut Case,
) -> Result<()> {
    apply_and_settle(case, Game::in_place(3).max_unavailable(1), 3).await?;
    case.set_image("game:nope").await?;
    case.until("one pod cannot pull its image", |view| view.counts() == [3, 1, 0, 2, 3]).await?;
    case.consistently("two pods remain ready", 3, |view| view.ready_with("game:v1") == 2).await?;
    case.set_image("game:v1").await?;
    let view = case.until_settled(3).await?;
    view.ensure(view.ready_with("game:v1") == 3)
}

#[e2e::test]
async fn an_update_to_a_retagged_image_completes(case: &mut Case) -> Result<()> {
    apply_and_settle(case, Game::in_place(2).max_unavailable(1), 2).await?;
    case.set_image("game:v1-retag").await?;
    let view = case.until_settled(2).await?;
    view.ensure(view.pods.iter().all(|pod| pod.restarts() == 1))?;
    // The node has reported the image under this name all along.
    case.set_image("game:v1").await?;
    let view = case.until_settled(2).await?;
    view.ensure(view.pods.iter().all(|pod| pod.restarts() == 2))
}

#[e2e::test]
async fn an_update_in_progress_can_be_reverted(case: &mut Case) -> Result<()> {
    apply_and_settle(case, Game::in_place(3).max_unavailable(2), 3).await?;
    // Long enough for a slow machine to show the state in between.
    case.set_image("game:v2-slow30").await?;
    case.until("two pods are unavailable", |view| {
        view.count_with("game:v2-slow30") == 2 && view.counts()[3] == 1
    })
    .await?;
    case.set_image("game:v1").await?;
    let view = case.until_settled(3).await?;
    view.ensure(view.ready_with("game:v1") == 3)
}

#[e2e::test]
async fn a_crashing_version_blocks_the_rollout_until_the_change_is_reverted(
    case: &mut Case,
) -> Result<()> {
    // The container crashes after 2 s, but a busy machine may report that late.
    let game = Game::in_place(4).max_unavailable(1).set("/spec/minReadySeconds", 20);
    apply_and_settle(case, game, 4).await?;
    case.set_image("game:v2-crash").await?;
    case.until("one pod crashes", |view| view.pods.iter().any(|pod| pod.restarts() >= 2)).await?;
    case.consistently("three old pods remain ready", 4, |view| view.ready_with("game:v1") == 3)
        .await?;
    case.set_image("game:v1").await?;
    let view = case.until_settled(4).await?;
    view.ensure(view.ready_with("game:v1") == 4)
}

#[e2e::test]
async fn the_grace_period_passes_between_closing_the_gate_and_changing_the_pod(
    case: &mut Case,
) -> Result<()> {
    let grace = "/spec/updateStrategy/inPlaceUpdateStrategy/gracePeriodSeconds";
    apply_and_settle(case, Game::in_place(1).max_unavailable(1).set(grace, 3), 1).await?;
    case.set_image("game:v2").await?;
    case.until_settled(1).await?;
    let patch_with = |subresource: &str, words: &str| {
        let events = case.events()?;
        let found = events.into_iter().find(|event| {
            let object = event.object_ref.clone().unwrap_or_default();
            let sent = event.request_object.as_ref().map(Value::to_string);
            (object.resource.as_str(), object.subresource.as_str()) == ("pods", subresource)
                && event.verb == "patch"
                && sent.is_some_and(|sent| sent.contains(words))
        });
        found.with_context(|| format!("no patch with {words}"))
    };
    // The grace period begins when the operator sends the request, which a busy API server receives later. The time in
    // the request is rounded down, so the operator waits for another second.
    let closed = patch_with("status", r#""status":"False""#)?.request_object;
    let closed = closed.unwrap_or_default();
    let closed: Timestamp = text(&closed, "/status/conditions/0/lastTransitionTime").parse()?;
    let changed = patch_with("", "game:v2")?.received;
    let elapsed = changed.duration_since(closed).as_secs_f64();
    ensure!(
        (4.0..30.0).contains(&elapsed),
        "{elapsed} s between closing the gate and changing the pod"
    );
    Ok(())
}

#[e2e::test]
async fn the_gate_is_added_to_pods_whose_template_lacks_it(case: &mut Case) -> Result<()> {
    let game = Game::in_place(3).max_unavailable(1);
    apply_and_settle(case, game.set("/spec/template/spec/readinessGates", json!([])), 3).await?;
    for pod in case.list("pods").await? {
        let gates = &pod["spec"]["readinessGates"];
        ensure!(*gates == json!([{"conditionType": "InPlaceUpdateReady"}]), "{gates}");
    }
    let before = case.view().await?;
    case.set_image("game:v2").await?;
    case.until_settled(3).await?;
    case.set_image("game:v3").await?;
    let view = case.until_settled(3).await?;
    view.ensure(view.pod_names() == before.pod_names())?;
    view.ensure(view.pods.iter().all(|pod| pod.restarts() == 2))
}

#[e2e::test]
async fn only_the_changed_container_restarts(case: &mut Case) -> Result<()> {
    let containers = json!([
        {"name": "game", "image": "game:v1"},
        {"name": "proxy", "image": "proxy:v1"},
    ]);
    apply_and_settle(case, Game::in_place(2).set("/spec/template/spec/containers", containers), 2)
        .await?;
    case.replace("/spec/template/spec/containers/1/image", "proxy:v2").await?;
    let view = case.until_settled(2).await?;
    let restarts = |pod: &e2e::workload::view::Pod| {
        [0, 1].map(|i| pod.0["status"]["containerStatuses"][i]["restartCount"].as_i64())
    };
    view.ensure(view.pods.iter().all(|pod| restarts(pod) == [Some(0), Some(1)]))
}

#[e2e::test]
async fn a_sidecar_update_waits_for_kubelet_support(case: &mut Case) -> Result<()> {
    let node = format!("old-kubelet-{}", std::process::id());
    case.apply(json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": node, "labels": {"kubernetes.io/hostname": node}},
        "spec": {
            "podCIDR": "127.102.0.0/16",
            "taints": [{"key": "only", "value": case.namespace, "effect": "NoSchedule"}],
        },
    }))
    .await?;
    let set_version = async |version: &str| {
        let status = json!({"status": {"nodeInfo": {"kubeletVersion": version}}});
        let (node, status) = (format!("node/{node}"), format!("-p={status}"));
        let args = ["patch", &node, "--subresource=status", "--type=merge", &status];
        case.kubectl(&args).await
    };
    case.eventually("the node reports the version of its kubelet", async || {
        let found = case.plane().get(&format!("/api/v1/nodes/{node}")).await?;
        ensure!(!found["status"]["nodeInfo"]["kubeletVersion"].is_null(), "{found}");
        Ok(())
    })
    .await?;
    set_version("v1.31.4").await?;
    let sidecar = json!([{"name": "log", "image": "log:v1", "restartPolicy": "Always"}]);
    let game = Game::in_place(1)
        .set("/spec/template/spec/nodeName", node.as_str())
        .set("/spec/template/spec/initContainers", sidecar);
    let tolerations = json!([{"operator": "Exists"}]);
    case.apply(game.set("/spec/template/spec/tolerations", tolerations)).await?;
    case.until_settled(1).await?;
    // On a busy machine, the simulated kubelet may have reported the node's status a second time.
    set_version("v1.31.4").await?;
    case.replace("/spec/template/spec/initContainers/0/image", "log:v2").await?;
    let view = case.until("the refusal is reported", |view| view.is_true("FailedUpdate")).await?;
    let condition = view.condition("FailedUpdate").context("no condition FailedUpdate")?;
    ensure!(condition.reason == "NotInPlace", "{condition:?}");
    ensure!(condition.message.contains("v1.31.4"), "{condition:?}");
    case.consistently("the pod stays ready", 2, |view| view.ready_with("game:v1") == 1).await?;
    set_version("v1.32.0").await?;
    let view = case.until_settled(1).await?;
    view.ensure(view.condition("FailedUpdate").is_none())?;
    case.kubectl(&["delete", "node", &node]).await?;
    Ok(())
}

#[e2e::test]
async fn a_sidecar_is_changed_in_place(case: &mut Case) -> Result<()> {
    let sidecar = json!([{"name": "log", "image": "log:v1", "restartPolicy": "Always"}]);
    apply_and_settle(case, Game::in_place(2).set("/spec/template/spec/initContainers", sidecar), 2)
        .await?;
    let before = case.view().await?;
    case.replace("/spec/template/spec/initContainers/0/image", "log:v2").await?;
    if is_refused_before(case, 32).await? {
        return Ok(());
    }
    let view = case.until_settled(2).await?;
    view.ensure(view.pod_names() == before.pod_names())?;
    let image = |pod: &e2e::workload::view::Pod| {
        pod.0["status"]["initContainerStatuses"][0]["image"].clone()
    };
    view.ensure(view.pods.iter().all(|pod| image(pod) == "log:v2"))
}
