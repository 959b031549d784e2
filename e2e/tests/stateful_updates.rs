//! GameStatefulSets: updates to a new revision.

use anyhow::{Result, ensure};
use e2e::case::Case;
use e2e::servers::hook_server::{Answer, example_answer};
use e2e::workload::SET;
use e2e::workload::manifest::{Game, retrying_hook_template};
use e2e::workload::view::View;
use serde_json::json;

use crate::stateful_ordinals::writes_in_order;

/// Waits until the pods have this shape and are ready.
async fn until_shape(case: &Case, shape: &str) -> Result<View> {
    case.until(shape, |view| {
        view.shape() == shape
            && view.pods.iter().all(|pod| pod.is_ready() && !pod.is_terminating())
            && view.is_observed()
    })
    .await
}

fn uids(view: &View) -> Vec<String> {
    view.pods.iter().map(|pod| pod.uid().to_owned()).collect()
}

#[e2e::test]
async fn a_rolling_update_goes_downward_one_at_a_time(case: &mut Case) -> Result<()> {
    case.use_stateful_set();
    let game = Game::ordered(3).annotated("stage.gamekeeper/stop-seconds", "1");
    case.apply(game).await?;
    case.until_settled(3).await?;
    case.set_image("game:v2").await?;
    case.until("all pods are updated, the highest ordinal first", |view| {
        let updated = |ordinal: usize| {
            let name = format!("{SET}-{ordinal}");
            view.pod(&name).is_ok_and(|pod| pod.image() == "game:v2")
        };
        assert!(!updated(1) || updated(2), "{}", view.summary());
        assert!(!updated(0) || updated(1), "{}", view.summary());
        let ready = view.ready_with("game:v1") + view.ready_with("game:v2");
        assert!(ready >= 2, "{}", view.summary());
        view.ready_with("game:v2") == 3
    })
    .await?;
    let view = case.until_settled(3).await?;
    view.ensure(view.number("/status/currentReplicas") == 3)?;
    case.set_image("game:v1").await?;
    case.until_settled(3).await?;
    Ok(())
}

#[e2e::test]
async fn a_full_quota_does_not_hold_up_an_ordered_update(case: &mut Case) -> Result<()> {
    case.use_stateful_set();
    let quota = |pods: u32| {
        json!({
            "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "quota"},
            "spec": {"hard": {"pods": pods.to_string()}},
        })
    };
    case.apply(quota(3)).await?;
    case.eventually("the quota is in force", async || {
        let found = case.get("resourcequotas/quota").await?;
        let status = &found["status"];
        let is_in_force = status["hard"]["pods"] == "3" && status["used"]["pods"] == "0";
        ensure!(is_in_force, "{found:#}");
        Ok(())
    })
    .await?;
    case.apply(Game::ordered(3).max_unavailable(2)).await?;
    case.until_settled(3).await?;
    case.scale(4).await?;
    let view = case.until("the scale-out is refused", |view| view.is_true("FailedScale")).await?;
    let condition = view.condition("FailedScale");
    ensure!(condition.is_some_and(|it| it.reason == "FailedCreate"));
    case.set_image("game:v2").await?;
    // Which three pods there are depends on the controller of quotas, which counts late: for a moment, there may be room
    // for a fourth one.
    case.until("all pods are updated", |view| {
        view.pods.len() == 3
            && view.pods.iter().all(|pod| pod.is_ready() && pod.image() == "game:v2")
    })
    .await?;
    case.apply(quota(5)).await?;
    let view = case.until_settled(4).await?;
    view.ensure(view.condition("FailedScale").is_none())
}

#[e2e::test]
async fn an_in_place_update_keeps_every_pod(case: &mut Case) -> Result<()> {
    case.use_stateful_set();
    case.apply(Game::parallel(4).updated_by("InplaceUpdate")).await?;
    let before = case.until_settled(4).await?;
    case.set_image("game:v2").await?;
    let view = case.until_settled(4).await?;
    view.ensure(uids(&view) == uids(&before))?;
    view.ensure(view.shape() == "0:v2 1:v2 2:v2 3:v2")?;
    view.ensure(view.pods.iter().all(|pod| pod.restarts() == 1))
}

#[e2e::test]
async fn a_hot_patch_restarts_no_pod(case: &mut Case) -> Result<()> {
    case.use_stateful_set();
    case.apply(Game::parallel(4).updated_by("HotPatchUpdate").partition(1)).await?;
    let before = case.until_settled(4).await?;
    case.set_image("game:v2").await?;
    let view = until_shape(case, "0:v1 1:v2 2:v2 3:v2").await?;
    view.ensure(uids(&view) == uids(&before))?;
    view.ensure(view.pods.iter().all(|pod| pod.restarts() == 0))?;
    case.replace("/spec/updateStrategy/partition", 0).await?;
    case.until_settled(4).await?;
    Ok(())
}

#[e2e::test]
async fn a_partition_is_an_ordinal(case: &mut Case) -> Result<()> {
    case.use_stateful_set();
    case.apply(Game::ordered(3).partition(3)).await?;
    let before = case.until_settled(3).await?;
    case.set_image("game:v2").await?;
    case.consistently("no pod is updated", 2, |view| uids(view) == uids(&before)).await?;
    case.replace("/spec/updateStrategy/partition", 2).await?;
    until_shape(case, "0:v1 1:v1 2:v2").await?;
    case.until("two pods are at the stable revision", |view| {
        view.number("/status/currentReplicas") == 2 && view.number("/status/updatedReplicas") == 1
    })
    .await?;
    // A deleted pod is recreated at the revision of its side of the partition.
    for ordinal in [0, 2] {
        let name = format!("{SET}-{ordinal}");
        case.delete_pod(&name).await?;
    }
    case.until("both pods are recreated", |view| {
        view.shape() == "0:v1 1:v1 2:v2"
            && view.pods.iter().all(|pod| pod.is_ready())
            && view.pods.iter().filter(|pod| uids(&before).iter().any(|it| it == pod.uid())).count()
                == 1
    })
    .await?;
    case.replace("/spec/updateStrategy/partition", 1).await?;
    until_shape(case, "0:v1 1:v2 2:v2").await?;
    case.replace("/spec/updateStrategy/partition", 3).await?;
    case.consistently("no pod is reverted", 2, |view| view.shape() == "0:v1 1:v2 2:v2").await?;
    case.replace("/spec/updateStrategy/partition", "0%").await?;
    case.until_settled(3).await?;
    Ok(())
}

#[e2e::test]
async fn a_rollback_of_a_partitioned_update_reaches_every_pod(case: &mut Case) -> Result<()> {
    case.use_stateful_set();
    case.apply(Game::parallel(4).partition("50%")).await?;
    let before = case.until_settled(4).await?;
    case.set_image("game:v2").await?;
    until_shape(case, "0:v1 1:v1 2:v2 3:v2").await?;
    case.set_image("game:v1").await?;
    let view = case.until_settled(4).await?;
    view.ensure(uids(&view)[..2] == uids(&before)[..2])
}

#[e2e::test]
async fn canary_steps_pause_wait_and_run_a_hook(case: &mut Case) -> Result<()> {
    case.use_stateful_set();
    case.hooks.answer("/", Answer::Json(json!({"age": 10})));
    case.apply(retrying_hook_template("test", &case.hooks.url("/"))).await?;
    let steps = json!([
        {"partition": 3}, {"pause": {}}, {"partition": 2}, {"pause": {"duration": 2}},
        {"hook": {"templateName": "test"}},
    ]);
    let game = Game::parallel(4).updated_by("InplaceUpdate").max_unavailable(2);
    case.apply(game.steps(steps)).await?;
    case.until_settled(4).await?;
    case.set_image("game:v2").await?;
    let view = case.until_counts([4, 1, 1, 4, 4]).await?;
    view.ensure(view.shape() == "0:v1 1:v1 2:v1 3:v2")?;
    case.until("the step pauses", |view| {
        view.is_paused() && view.pause_reasons() == ["PausedByCanaryPauseStep"] && view.step() == 1
    })
    .await?;
    // A scale-out adds no pods of the new revision.
    case.scale(5).await?;
    until_shape(case, "0:v1 1:v1 2:v1 3:v2 4:v1").await?;
    case.scale(4).await?;
    case.until("four pods are left", |view| view.pods.len() == 4).await?;
    case.resume().await?;
    let view = case
        .until("the hook runs after the timed pause", |view| {
            view.phases("Step") == ["Running"] && view.step() == 4
        })
        .await?;
    view.ensure(view.shape() == "0:v1 1:v1 2:v2 3:v2")?;
    let run = &view.runs[0];
    view.ensure(run.name().starts_with("canary-step-hook-"))?;
    ensure!(run.0["metadata"]["labels"]["gamestatefulset-type"] == "Step");
    let labels = &run.0["metadata"]["labels"];
    ensure!(labels["step-index"] == "4" && labels["canary-step-index"] == "4");
    ensure!(labels["hookrun-type"] == "canary-step", "{labels}");
    case.hooks.answer("/", example_answer());
    case.until_settled(4).await?;
    Ok(())
}

#[e2e::test]
async fn a_broken_update_is_reverted_without_waiting(case: &mut Case) -> Result<()> {
    case.use_stateful_set();
    case.apply(Game::ordered(3)).await?;
    let before = case.until_settled(3).await?;
    case.set_image("game:neverready").await?;
    case.until("the update stops at the first pod", |view| {
        view.shape() == "0:v1 1:v1 2:neverready"
    })
    .await?;
    case.consistently("no further pod is updated", 2, |view| view.ready_with("game:v1") == 2)
        .await?;
    case.set_image("game:v1").await?;
    let view = case.until_settled(3).await?;
    view.ensure(uids(&view)[..2] == uids(&before)[..2])
}

#[e2e::test]
async fn a_first_version_that_is_never_ready_can_be_fixed(case: &mut Case) -> Result<()> {
    case.use_stateful_set();
    case.apply(Game::ordered(3).image("game:nope")).await?;
    case.until("the first pod exists", |view| view.pods.len() == 1).await?;
    case.set_image("game:v2").await?;
    case.until_settled(3).await?;
    Ok(())
}

#[e2e::test]
async fn on_delete_updates_pods_that_a_user_deletes(case: &mut Case) -> Result<()> {
    case.use_stateful_set();
    case.apply(Game::ordered(3).updated_by("OnDelete")).await?;
    case.until_settled(3).await?;
    case.set_image("game:v2").await?;
    case.consistently("no pod is updated", 2, |view| view.ready_with("game:v1") == 3).await?;
    case.delete_pod(&format!("{SET}-1")).await?;
    until_shape(case, "0:v1 1:v2 2:v1").await?;
    case.kubectl(&["delete", "pod", "-l", &format!("app={SET}"), "--wait=false"]).await?;
    until_shape(case, "0:v2 1:v2 2:v2").await?;
    case.until_settled(3).await?;
    Ok(())
}

#[e2e::test]
async fn surge_pods_have_higher_ordinals_and_are_deleted_at_the_end(case: &mut Case) -> Result<()> {
    case.use_stateful_set();
    let game = Game::parallel(3).max_surge(1).max_unavailable(0);
    case.apply(game.annotated("stage.gamekeeper/ready-seconds", "3")).await?;
    case.until_settled(3).await?;
    case.set_image("game:v2").await?;
    let view = case.until_settled(3).await?;
    view.ensure(view.shape() == "0:v2 1:v2 2:v2")?;
    // The first three writes created the pods of the first version.
    let writes = writes_in_order(case)?;
    let [created, deleted] = ["create", "delete"].map(|verb| (verb.to_owned(), format!("{SET}-3")));
    ensure!(writes[3] == created, "{writes:?}");
    ensure!(writes.last() == Some(&deleted), "{writes:?}");
    Ok(())
}

#[e2e::test]
async fn limits_are_accepted_in_rolling_update(case: &mut Case) -> Result<()> {
    case.use_stateful_set();
    let rolling = json!({"partition": 1, "maxUnavailable": 2});
    let game = Game::parallel(3).set("/spec/updateStrategy/rollingUpdate", rolling);
    case.apply(game).await?;
    case.until_settled(3).await?;
    case.set_image("game:v2").await?;
    until_shape(case, "0:v1 1:v2 2:v2").await?;
    let second_partition =
        json!([{"op": "add", "path": "/spec/updateStrategy/partition", "value": 0}]);
    let patch = format!("-p={second_partition}");
    let args = ["patch", "gamestatefulset", SET, "--type=json", &patch];
    let error = case.refused(&args, "").await?;
    ensure!(error.contains("keep one of the two"), "{error}");
    Ok(())
}

#[e2e::test]
async fn pods_that_remain_after_a_scale_in_are_updated(case: &mut Case) -> Result<()> {
    case.use_stateful_set();
    let game = Game::ordered(4).annotated("stage.gamekeeper/ready-seconds", "1");
    case.apply(game).await?;
    case.until_settled(4).await?;
    case.set_image("game:v2").await?;
    case.until("the update has started", |view| view.count_with("game:v2") >= 1).await?;
    case.scale(2).await?;
    let view = case.until_settled(2).await?;
    view.ensure(view.shape() == "0:v2 1:v2")
}

#[e2e::test]
async fn max_unavailable_updates_several_pods_at_a_time(case: &mut Case) -> Result<()> {
    case.use_stateful_set();
    let game = Game::ordered(5).max_unavailable(3).annotated("stage.gamekeeper/stop-seconds", "15");
    case.apply(game).await?;
    case.until_settled(5).await?;
    case.set_image("game:v2").await?;
    case.until_settled(5).await?;
    // The first five writes created the pods of the first version. Then, three pods are deleted before the first one is
    // created again. Polls could miss that all three terminate at the same time.
    let writes = writes_in_order(case)?;
    let mut deleted: Vec<_> = writes[5..8].to_vec();
    deleted.sort();
    let expected = [2, 3, 4].map(|ordinal| ("delete".to_owned(), format!("{SET}-{ordinal}")));
    ensure!(deleted == expected, "{writes:?}");
    Ok(())
}
