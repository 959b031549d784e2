//! GameDeployments: which pods are deleted first, and how pods are replaced.

use anyhow::{Context, Result, ensure};
use e2e::case::Case;
use e2e::workload::GAME;
use e2e::workload::manifest::Game;
use e2e::workload::view::{Pod, View};
use jiff::Timestamp;
use judge::object::text;
use serde_json::{Value, json};

async fn create_settled(case: &Case, replicas: i64) -> Result<View> {
    case.apply(Game::in_place(replicas).max_unavailable(1)).await?;
    case.until_settled(replicas).await
}

async fn set_pods_to_delete(case: &Case, names: &[&str], replicas: i64) -> Result<()> {
    let patch = json!({"spec": {"replicas": replicas, "scaleStrategy": {"podsToDelete": names}}});
    let patch = format!("-p={patch}");
    case.kubectl(&["patch", "gamedeployment", GAME, "--type=merge", &patch]).await?;
    Ok(())
}

fn pods_to_delete(view: &View) -> Value {
    let list = view.game.pointer("/spec/scaleStrategy/podsToDelete");
    list.cloned().unwrap_or_else(|| json!([]))
}

#[e2e::test]
async fn pods_to_delete_are_deleted_first(case: &mut Case) -> Result<()> {
    let before = create_settled(case, 5).await?;
    let names = before.pod_names();
    set_pods_to_delete(case, &names[1..3], 3).await?;
    let after = case.until_settled(3).await?;
    after.ensure(after.pod_names() == [names[0], names[3], names[4]])?;
    case.until("the names are pruned", |view| pods_to_delete(view) == json!([])).await?;
    Ok(())
}

#[e2e::test]
async fn pods_to_delete_are_replaced_when_not_scaling_in(case: &mut Case) -> Result<()> {
    case.apply(Game::in_place(4).max_unavailable(1).partition(2)).await?;
    case.until_settled(4).await?;
    case.set_image("game:v2").await?;
    let before = case.until_counts([4, 2, 2, 4, 4]).await?;
    let names = before.pod_names();
    set_pods_to_delete(case, &names, 4).await?;
    let after = case
        .until("all four pods are replaced", |view| {
            let has_both = view.ready_with("game:v1") == 2 && view.ready_with("game:v2") == 2;
            has_both && !view.pod_names().iter().any(|name| names.contains(name))
        })
        .await?;
    after.ensure(after.pod_names().len() == 4)?;
    case.until("the names are pruned", |view| pods_to_delete(view) == json!([])).await?;
    Ok(())
}

#[e2e::test]
async fn unknown_pods_to_delete_are_pruned_and_reported(case: &mut Case) -> Result<()> {
    create_settled(case, 2).await?;
    set_pods_to_delete(case, &["test-gamedeployment-other"], 2).await?;
    case.until("the name is pruned", |view| pods_to_delete(view) == json!([])).await?;
    case.eventually("an event with reason PodNotFound", async || {
        let events = case.list("events").await?;
        ensure!(events.iter().any(|event| event["reason"] == "PodNotFound"));
        Ok(())
    })
    .await?;
    case.until_settled(2).await?;
    Ok(())
}

#[e2e::test]
async fn pods_with_a_lower_cost_are_deleted_first(case: &mut Case) -> Result<()> {
    let before = create_settled(case, 4).await?;
    let names = before.pod_names();
    for (name, cost) in names.iter().zip(["10", "-5", "7", "-7"]) {
        let cost = format!("controller.kubernetes.io/pod-deletion-cost={cost}");
        case.kubectl(&["annotate", "pod", name, &cost]).await?;
    }
    case.scale(2).await?;
    let after = case.until_settled(2).await?;
    after.ensure(after.pod_names() == [names[0], names[2]])
}

/// Creates two nodes for this test, the second one with a higher cost.
async fn create_nodes(case: &Case) -> Result<()> {
    let node = |number: usize, cost: &str| {
        json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": format!("{}-{number}", case.namespace),
                "labels": {
                    "only": case.namespace,
                    "kubernetes.io/hostname": format!("{}-{number}", case.namespace),
                },
                "annotations": {"io.tencent.bcs.dev/node-deletion-cost": cost},
            },
            "spec": {
                "podCIDR": "127.100.0.0/16",
                "taints": [{"key": "only", "value": case.namespace, "effect": "NoSchedule"}],
            },
        })
    };
    // Truncated to whole numbers, the costs would be equal.
    let nodes = [node(1, "1.25"), node(2, "1.5")];
    case.apply(json!({"apiVersion": "v1", "kind": "List", "items": nodes})).await?;
    Ok(())
}

#[e2e::test]
async fn pods_on_nodes_with_a_lower_cost_are_deleted_first(case: &mut Case) -> Result<()> {
    create_nodes(case).await?;
    let spread = json!([{
        "maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": GAME}},
    }]);
    let game = Game::in_place(4)
        .set("/spec/template/spec/nodeSelector/only", case.namespace.as_str())
        .set("/spec/template/spec/tolerations", json!([{"key": "only", "operator": "Exists"}]));
    let hosts = [1, 2].map(|number| format!("{}-{number}", case.namespace));
    case.apply(game.set("/spec/template/spec/topologySpreadConstraints", spread)).await?;
    case.until_settled(4).await?;
    let nodes = |view: &View| -> Vec<String> {
        let node = |pod: &e2e::workload::view::Pod| {
            pod.0["spec"]["nodeName"].as_str().unwrap_or("").to_owned()
        };
        view.pods.iter().map(node).collect()
    };
    case.scale(2).await?;
    let view = case.until_settled(2).await?;
    view.ensure(nodes(&view) == [hosts[1].as_str(), hosts[1].as_str()])
}

#[e2e::test]
async fn descend_deletes_pods_with_a_higher_cost_first(case: &mut Case) -> Result<()> {
    let before = create_settled(case, 3).await?;
    let names = before.pod_names();
    for (name, cost) in names.iter().zip(["1", "2", "-1"]) {
        let cost = format!("controller.kubernetes.io/pod-deletion-cost={cost}");
        case.kubectl(&["annotate", "pod", name, &cost]).await?;
    }
    let sort = "io.tencent.bcs.dev/pod-deletion-cost-sort-method=descend";
    case.kubectl(&["annotate", "gamedeployment", GAME, sort]).await?;
    case.scale(2).await?;
    let view = case.until_settled(2).await?;
    view.ensure(view.pod_names() == [names[0], names[2]])?;
    case.scale(1).await?;
    let view = case.until_settled(1).await?;
    view.ensure(view.pod_names() == [names[2]])
}

#[e2e::test]
async fn unready_pods_are_deleted_before_ready_ones(case: &mut Case) -> Result<()> {
    let gates = json!([{"conditionType": "InPlaceUpdateReady"}, {"conditionType": "warmed-up"}]);
    case.apply(Game::in_place(3).set("/spec/template/spec/readinessGates", gates)).await?;
    let before = case.until_counts([3, 3, 0, 0, 3]).await?;
    let names = before.pod_names();
    let warm = json!({"status": {"conditions": [{"type": "warmed-up", "status": "True"}]}});
    let warm = format!("-p={warm}");
    for name in [names[0], names[2]] {
        let patch = ["patch", "pod", name, "--subresource=status", "--type=strategic", &warm];
        case.kubectl(&patch).await?;
    }
    case.until_counts([3, 3, 2, 2, 3]).await?;
    case.scale(2).await?;
    let after = case.until_settled(2).await?;
    after.ensure(after.pod_names() == [names[0], names[2]])
}

#[e2e::test]
async fn a_game_deployment_scales_to_zero_and_back(case: &mut Case) -> Result<()> {
    let before = create_settled(case, 3).await?;
    case.scale(0).await?;
    // The status does not count Terminating pods.
    let view = case
        .until("all pods are deleted", |view| {
            view.counts() == [0; 5] && view.is_observed() && view.pods.is_empty()
        })
        .await?;
    let revision = "/status/canary/revision";
    view.ensure(view.text(revision) == before.text(revision))?;
    case.scale(2).await?;
    case.until_settled(2).await?;
    Ok(())
}

#[e2e::test]
async fn a_deleted_pod_is_replaced(case: &mut Case) -> Result<()> {
    let before = create_settled(case, 3).await?;
    let name = before.pod_names()[0];
    case.kubectl(&["delete", "pod", name]).await?;
    let view = case.until_settled(3).await?;
    view.ensure(!view.pod_names().contains(&name))
}

#[e2e::test]
async fn rejected_pods_are_replaced_with_backoff(case: &mut Case) -> Result<()> {
    // The simulated kubelet ignores these pods, so that the test can reject them.
    let game = Game::in_place(1).annotated("stage.gamekeeper/lost", "true");
    case.apply(game).await?;
    let rejected = json!({"status": {
        "phase": "Failed", "reason": "OutOfcpu", "message": "Pod was rejected: no cpu",
    }});
    let rejected = format!("-p={rejected}");
    let is_new = |view: &View| matches!(&view.pods[..], [pod] if phase(pod) == "Pending");
    let is_reported = |view: &View| {
        let condition = view.condition("FailedScale");
        condition.is_some_and(|it| it.status == "True" && it.reason == "PodsEndAtOnce")
    };
    let mut uids = Vec::new();
    // The first rejected pod is replaced immediately. If this test is so slow that the next replacement is already due
    // when it rejects the second pod, that one is replaced immediately, too, but the pauses grow.
    let view = loop {
        let view = case
            .until("a new pod is created, or a rejection is reported", |view| {
                is_new(view) || is_reported(view)
            })
            .await?;
        if is_reported(&view) {
            break view;
        }
        let pod = &view.pods[0];
        uids.push(pod.uid().to_owned());
        let args = ["patch", "pod", pod.name(), "--subresource=status", "--type=merge", &rejected];
        case.kubectl(&args).await?;
    };
    ensure!(uids.len() >= 2, "the first rejected pod was not replaced");
    let condition = view.condition("FailedScale").context("no condition FailedScale")?;
    ensure!(condition.message.contains("OutOfcpu"), "{condition:?}");
    let message = condition.message.split_once("the next is created at ");
    let due = message.and_then(|(_, rest)| rest.split_once(": "));
    let due: Timestamp = due.context("no time in the message")?.0.parse()?;
    case.consistently("the rejected pod is kept until then", 3, |view| {
        let is_kept =
            matches!(&view.pods[..], [pod] if uids.last().is_some_and(|it| it == pod.uid()));
        is_kept || Timestamp::now() >= due
    })
    .await?;
    let view = case.until("another new pod is created", is_new).await?;
    let created: Timestamp = text(&view.pods[0].0, "/metadata/creationTimestamp").parse()?;
    ensure!(created >= due, "{created} is before {due}");
    let accept = ["annotate", "pod", view.pods[0].name(), "stage.gamekeeper/lost-"];
    case.kubectl(&accept).await?;
    let view = case.until_settled(1).await?;
    view.ensure(view.condition("FailedScale").is_none())
}

fn phase(pod: &Pod) -> &str {
    pod.0["status"]["phase"].as_str().unwrap_or_default()
}
