//! GameDeployments: updates that recreate pods.

use anyhow::{Context, Result, ensure};
use e2e::case::Case;
use e2e::workload::GAME;
use e2e::workload::manifest::Game;
use e2e::workload::view::Pod;
use serde_json::json;

#[e2e::test]
async fn a_partition_keeps_old_pods(case: &mut Case) -> Result<()> {
    case.apply(Game::rolling(5).partition(2).max_unavailable(2)).await?;
    case.until_settled(5).await?;
    case.set_image("game:v2").await?;
    case.until_counts([5, 3, 3, 5, 5]).await?;
    case.consistently("two old pods are kept", 2, |view| view.ready_with("game:v1") == 2).await?;
    case.replace("/spec/updateStrategy/partition", 4).await?;
    case.consistently("a higher partition reverts no pod", 2, |view| {
        view.ready_with("game:v2") == 3
    })
    .await?;
    case.replace("/spec/updateStrategy/partition", 0).await?;
    case.until_settled(5).await?;
    Ok(())
}

#[e2e::test]
async fn percentages_are_rounded_as_documented(case: &mut Case) -> Result<()> {
    // With five pods, the partition is 3 and maxUnavailable is 2. The judge checks maxUnavailable.
    case.apply(Game::rolling(5).partition("50%").max_unavailable("30%")).await?;
    case.until_settled(5).await?;
    case.set_image("game:v2").await?;
    case.until_counts([5, 2, 2, 5, 5]).await?;
    case.replace("/spec/updateStrategy/partition", "0%").await?;
    case.until_settled(5).await?;
    Ok(())
}

#[e2e::test]
async fn surge_pods_are_created_before_old_ones_are_deleted(case: &mut Case) -> Result<()> {
    let game = Game::rolling(3).max_unavailable(0).max_surge("50%");
    case.apply(game).await?;
    case.until_settled(3).await?;
    // Surge pods that never become ready replace no old pod.
    case.set_image("game:v2-neverready").await?;
    let view = case.until_counts([3, 2, 0, 3, 5]).await?;
    view.ensure(view.ready_with("game:v1") == 3)?;
    case.set_image("game:v2").await?;
    let view = case.until_settled(3).await?;
    view.ensure(view.ready_with("game:v2") == 3)
}

#[e2e::test]
async fn a_typo_in_the_template_deletes_no_pod(case: &mut Case) -> Result<()> {
    case.apply(Game::rolling(3).max_unavailable(3)).await?;
    case.until_settled(3).await?;
    let typo = json!([{"op": "add", "path": "/spec/template/spec/containers/0/imagePullPolice",
        "value": "Always"}]);
    case.patch(&format!("gamedeployment/{GAME}"), typo).await?;
    check_refused_without_harm(case, "imagePullPolice").await?;
    let fix = json!([
        {"op": "remove", "path": "/spec/template/spec/containers/0/imagePullPolice"},
        {"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "game:v2"},
    ]);
    case.patch(&format!("gamedeployment/{GAME}"), fix).await?;
    let view = case.until_settled(3).await?;
    view.ensure(view.condition("FailedUpdate").is_none())
}

async fn check_refused_without_harm(case: &Case, words: &str) -> Result<()> {
    let view = case.until("the template is refused", |view| view.is_true("FailedUpdate")).await?;
    let condition = view.condition("FailedUpdate").context("no condition FailedUpdate")?;
    ensure!(condition.reason == "TemplateRefused", "{condition:?}");
    ensure!(condition.message.contains(words), "{condition:?}");
    case.consistently("all pods are kept", 3, |view| view.ready_with("game:v1") == 3).await
}

#[e2e::test]
async fn an_exhausted_quota_deletes_no_pod(case: &mut Case) -> Result<()> {
    let cpu = |amount: &str| json!({"requests": {"cpu": amount}});
    let resources = "/spec/template/spec/containers/0/resources";
    case.apply(json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "quota"},
        "spec": {"hard": {"requests.cpu": "4"}},
    }))
    .await?;
    case.apply(Game::rolling(3).max_unavailable(3).set(resources, cpu("1"))).await?;
    case.until_settled(3).await?;
    case.replace(resources, cpu("3")).await?;
    check_refused_without_harm(case, "quota").await?;
    case.replace(resources, cpu("500m")).await?;
    case.until_settled(3).await?;
    Ok(())
}

#[e2e::test]
async fn a_version_that_is_never_ready_stops_the_rollout(case: &mut Case) -> Result<()> {
    case.apply(Game::rolling(4).max_unavailable("25%")).await?;
    case.until_settled(4).await?;
    case.set_image("game:v2-neverready").await?;
    case.until_counts([4, 1, 0, 3, 4]).await?;
    case.consistently("three old pods are ready", 3, |view| view.ready_with("game:v1") == 3)
        .await?;
    case.set_image("game:v1").await?;
    let view = case.until_settled(4).await?;
    view.ensure(view.ready_with("game:v1") == 4)
}

#[e2e::test]
async fn a_rollback_during_an_update_keeps_the_old_pods(case: &mut Case) -> Result<()> {
    case.apply(Game::rolling(4).partition(2)).await?;
    let before = case.until_settled(4).await?;
    case.set_image("game:v2").await?;
    let middle = case.until_counts([4, 2, 2, 4, 4]).await?;
    // A pod that was updated may still be Terminating.
    let kept = middle.pods.iter().filter(|pod| !pod.is_terminating());
    let old: Vec<&str> =
        kept.map(Pod::name).filter(|name| before.pod_names().contains(name)).collect();
    middle.ensure(old.len() == 2)?;
    case.set_image("game:v1").await?;
    let after = case.until_settled(4).await?;
    after.ensure(old.iter().all(|name| after.pod_names().contains(name)))
}

#[e2e::test]
async fn a_template_applied_during_a_users_pause_gets_no_pod(case: &mut Case) -> Result<()> {
    case.apply(Game::rolling(4).partition(2).max_unavailable(2)).await?;
    case.until_settled(4).await?;
    case.set_image("game:v2").await?;
    case.until_counts([4, 2, 2, 4, 4]).await?;
    case.replace("/spec/updateStrategy/paused", true).await?;
    case.until("the pause is observed", |view| view.number("/status/canary/heldReplicas") == 2)
        .await?;
    case.set_image("game:v3").await?;
    case.scale(6).await?;
    case.until_counts([6, 0, 0, 6, 6]).await?;
    case.consistently("no pod has the third image", 2, |view| view.count_with("game:v3") == 0)
        .await?;
    case.resume().await?;
    case.until_counts([6, 4, 4, 6, 6]).await?;
    Ok(())
}

#[e2e::test]
async fn a_quick_second_update_respects_max_unavailable(case: &mut Case) -> Result<()> {
    let game = Game::rolling(4).set("/spec/minReadySeconds", 4);
    case.apply(game.max_unavailable(1)).await?;
    case.until_counts([4; 5]).await?;
    // No pod is available yet, so no pod may be deleted.
    case.set_image("game:v2").await?;
    case.until("one pod is updated", |view| {
        let updated = view.count_with("game:v2");
        assert!(view.ready_with("game:v1") + updated >= 3, "{}", view.summary());
        updated > 0
    })
    .await?;
    case.set_image("game:v3").await?;
    case.until_settled(4).await?;
    Ok(())
}

#[e2e::test]
async fn unicode_labels_are_refused_without_harm(case: &mut Case) -> Result<()> {
    case.apply(Game::rolling(3).max_unavailable(3).annotated("motd", "新赛季 ☃")).await?;
    case.until_settled(3).await?;
    let label =
        json!([{"op": "add", "path": "/spec/template/metadata/labels/motd", "value": "新赛季"}]);
    match case.patch(&format!("gamedeployment/{GAME}"), label).await {
        // The API server itself may refuse the label.
        Err(error) => {
            ensure!(format!("{error:#}").contains("labels"), "{error:#}");
            Ok(())
        }
        Ok(_) => check_refused_without_harm(case, "新赛季").await,
    }
}
