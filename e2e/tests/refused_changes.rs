//! Changes of single pods that a policy or a quota refuses. No player is asked to leave for such a change, and a pod whose
//! change is refused later serves again as it was.

use anyhow::{Result, ensure};
use e2e::addons::interference::{Interference, REFUSED, Requests};
use e2e::case::Case;
use e2e::workload::GAME;
use e2e::workload::manifest::{Game, hook_template};
use e2e::workload::view::{Pod, View};
use serde_json::{Value, json};

const PODS: Requests = ("", "pods", &["UPDATE"]);
const RESIZES: Requests = ("", "pods/resize", &["UPDATE"]);
const RESOURCES: &str = "/spec/template/spec/containers/0/resources";

fn cpu(amount: &str) -> Value {
    json!({"requests": {"cpu": amount}, "limits": {"cpu": "2"}})
}

/// A change of the image and the resources.
async fn update(case: &Case) -> Result<()> {
    change(case, "game:v2", "1").await
}

async fn change(case: &Case, image: &str, amount: &str) -> Result<()> {
    let change = json!([
        {"op": "replace", "path": RESOURCES, "value": cpu(amount)},
        {"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": image},
    ]);
    case.patch(&format!("gamedeployment/{GAME}"), change).await?;
    Ok(())
}

async fn until_told(case: &Case, type_: &str, reason: &str, words: &str) -> Result<()> {
    let is_told = |view: &View| {
        let condition = view.condition(type_).filter(|_| view.is_true(type_));
        condition.is_some_and(|it| it.reason == reason && it.message.contains(words))
    };
    case.until("the refusal is told", is_told).await?;
    let status = case.game(&["status", &format!("gd/{GAME}")]).await?;
    ensure!(status.stdout.contains(words), "{}", status.stdout);
    Ok(())
}

/// Whether a pod serves with its first image and resources.
fn is_as_it_was(pod: &Pod) -> bool {
    let container = &pod.0["spec"]["containers"][0];
    let is_first = container["image"] == "game:v1" && container["resources"] == cpu("500m");
    pod.is_ready() && is_first
}

#[e2e::test]
async fn no_pod_leaves_service_for_a_change_that_is_refused(case: &mut Case) -> Result<()> {
    case.apply(hook_template("test", &case.hooks.url("/"))).await?;
    let game = Game::in_place(3).pre_inplace("test").set(RESOURCES, cpu("500m"));
    case.apply(game).await?;
    case.until_settled(3).await?;
    let to_v2 = "object.spec.containers[0].image == 'game:v2'";
    let more = "object.spec.containers[0].resources.requests['cpu'] == '1'";
    for (requests, condition) in [(PODS, to_v2), (RESIZES, more)] {
        let policy = Interference::refuse_where(case, requests, condition).await?;
        update(case).await?;
        until_told(case, "FailedUpdate", "FailedUpdate", REFUSED).await?;
        case.consistently("all pods serve, and no hook runs", 3, |view| {
            view.runs.is_empty() && view.pods.iter().all(is_as_it_was)
        })
        .await?;
        ensure!(case.hooks.calls("/").is_empty(), "a hook was asked");
        change(case, "game:v1", "500m").await?;
        policy.end(case).await?;
        case.until("nothing is left to say", |view| view.condition("FailedUpdate").is_none())
            .await?;
    }
    update(case).await?;
    let view = case.until_settled(3).await?;
    view.ensure(view.ready_with("game:v2") == 3)
}

/// The dry run is accepted.
#[e2e::test]
async fn a_pod_whose_resize_is_refused_serves_again_as_it_was(case: &mut Case) -> Result<()> {
    let game = Game::in_place(2).max_unavailable(1).set(RESOURCES, cpu("500m"));
    case.apply(game).await?;
    case.until_settled(2).await?;
    let is_real = "!has(request.dryRun) || !request.dryRun";
    let policy = Interference::refuse_where(case, RESIZES, is_real).await?;
    update(case).await?;
    until_told(case, "FailedUpdate", "FailedUpdate", REFUSED).await?;
    let served = |view: &View| view.pods.len() == 2 && view.pods.iter().all(is_as_it_was);
    case.until("all pods serve as they were", served).await?;
    policy.end(case).await?;
    let view = case.until_settled(2).await?;
    view.ensure(view.ready_with("game:v2") == 2)?;
    view.ensure(view.condition("FailedUpdate").is_none())
}

#[e2e::test]
async fn a_quota_with_room_for_some_resizes_keeps_the_other_pods_in_service(
    case: &mut Case,
) -> Result<()> {
    let quota = |cpu: &str| {
        json!({
            "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "cpu"},
            "spec": {"hard": {"requests.cpu": cpu}},
        })
    };
    let game = Game::in_place(3).max_unavailable(1).set(RESOURCES, cpu("500m"));
    case.apply(game).await?;
    case.until_settled(3).await?;
    case.apply(quota("2")).await?;
    case.eventually("the quota counts the pods", async || {
        let quota = case.get("resourcequotas/cpu").await?;
        ensure!(quota["status"]["used"]["requests.cpu"] == "1500m", "{}", quota["status"]);
        Ok(())
    })
    .await?;
    update(case).await?;
    until_told(case, "FailedUpdate", "FailedUpdate", "exceeded quota").await?;
    // A resize that conflicts with a status of the kubelet is tried again by the API server, which then counts it twice. So
    // the quota may have room for none.
    case.until("all pods serve, and at most one is updated", |view| {
        let updated = view.ready_with("game:v2");
        let others = view.pods.iter().filter(|pod| is_as_it_was(pod)).count();
        updated <= 1 && updated + others == 3
    })
    .await?;
    case.apply(quota("4")).await?;
    let view = case.until_settled(3).await?;
    view.ensure(view.ready_with("game:v2") == 3)
}

#[e2e::test]
async fn no_player_is_asked_to_leave_for_a_deletion_that_is_refused(case: &mut Case) -> Result<()> {
    case.apply(hook_template("test", &case.hooks.url("/"))).await?;
    case.apply(Game::rolling(2).pre_delete("test")).await?;
    case.until_settled(2).await?;
    let policy = Interference::refuse(case, ("", "pods", &["DELETE"])).await?;
    case.scale(1).await?;
    until_told(case, "FailedScale", "FailedDelete", REFUSED).await?;
    case.consistently("no hook runs", 3, |view| view.runs.is_empty() && view.pods.len() == 2)
        .await?;
    ensure!(case.hooks.calls("/").is_empty(), "a hook was asked");
    policy.end(case).await?;
    case.until_settled(1).await?;
    Ok(())
}
