//! Canary steps beyond the walkthrough: changes by users during a rollout.

use anyhow::Result;
use e2e::case::Case;
use e2e::servers::hook_server::Answer;
use e2e::workload::manifest::{Game, hook_template};
use serde_json::json;

/// Starts a rollout of four pods from v1 to v2, and waits for the pause after the first pod.
async fn roll_out_to_first_pause(case: &Case, game: Game) -> Result<()> {
    case.apply(&game).await?;
    case.until_settled(4).await?;
    case.set_image("game:v2").await?;
    case.until("paused at step 1", |view| {
        view.step() == 1
            && view.is_paused()
            && view.pause_reasons() == ["PausedByCanaryPauseStep"]
            && view.counts() == [4, 1, 1, 4, 4]
    })
    .await?;
    Ok(())
}

fn game_with_pause() -> Game {
    Game::in_place(4).max_unavailable(2).steps(json!([{"partition": 3}, {"pause": {}}]))
}

#[e2e::test]
async fn a_workload_recreated_during_a_canary_repeats_its_steps(case: &mut Case) -> Result<()> {
    roll_out_to_first_pause(case, game_with_pause()).await?;
    let before = case.view().await?;
    case.kubectl(&["delete", &case.workload(), "--cascade=orphan"]).await?;
    case.apply(game_with_pause().image("game:v2")).await?;
    let after = case
        .until("paused at step 1 again", |view| {
            view.step() == 1 && view.is_paused() && view.counts() == [4, 1, 1, 4, 4]
        })
        .await?;
    after.ensure(after.pod_names() == before.pod_names())?;
    case.consistently("three pods keep the old build", 2, |view| view.ready_with("game:v1") == 3)
        .await?;
    case.resume().await?;
    case.until_settled(4).await?;
    Ok(())
}

#[e2e::test]
async fn a_rollback_at_a_failed_hook_takes_one_patch(case: &mut Case) -> Result<()> {
    case.hooks.answer("/", Answer::Json(json!({"age": 10})));
    case.apply(hook_template("test", &case.hooks.url("/"))).await?;
    let steps = json!([{"partition": 2}, {"hook": {"templateName": "test"}}, {"partition": 0}]);
    case.apply(Game::in_place(4).max_unavailable(2).steps(steps)).await?;
    let stable = case.until_settled(4).await?;
    case.set_image("game:v2").await?;
    let view = case
        .until("paused by the hook", |view| {
            view.pause_reasons() == ["PausedByStepBasedHook"] && view.is_paused()
        })
        .await?;
    view.ensure(view.step() == 1 && view.counts() == [4, 2, 2, 4, 4])?;

    case.set_image("game:v1").await?;
    let view = case.until_settled(4).await?;
    view.ensure(view.ready_with("game:v1") == 4 && !view.is_paused())?;
    view.ensure(view.pause_reasons().is_empty() && view.step() == 3)?;
    let revision = "/status/canary/revision";
    view.ensure(view.text(revision) == stable.text(revision))
}

#[e2e::test]
async fn changed_steps_start_over(case: &mut Case) -> Result<()> {
    roll_out_to_first_pause(case, game_with_pause()).await?;
    let hash = case.view().await?.text("/status/currentStepHash").to_owned();
    case.replace(
        "/spec/updateStrategy/canary/steps",
        json!([{"partition": 3}, {"partition": 2}, {"pause": {}}]),
    )
    .await?;
    let view = case
        .until("paused at step 2 of the new list", |view| {
            view.step() == 2 && view.is_paused() && view.counts() == [4, 2, 2, 4, 4]
        })
        .await?;
    view.ensure(view.text("/status/currentStepHash") != hash)?;
    case.resume().await?;
    case.until_settled(4).await?;
    Ok(())
}

#[e2e::test]
async fn a_users_pause_holds_the_step_but_not_scaling(case: &mut Case) -> Result<()> {
    case.apply(game_with_pause().steps(json!([{"partition": 3}, {"pause": {"duration": 1}}])))
        .await?;
    case.until_settled(4).await?;
    case.replace("/spec/updateStrategy/paused", true).await?;
    case.set_image("game:v2").await?;
    case.scale(6).await?;
    case.until_counts([6, 0, 0, 6, 6]).await?;
    case.consistently("no pod is updated", 3, |view| {
        view.step() == 0 && view.count_with("game:v2") == 0 && view.is_paused()
    })
    .await?;
    case.scale(5).await?;
    case.until_counts([5, 0, 0, 5, 5]).await?;
    case.resume().await?;
    let view = case.until_settled(5).await?;
    view.ensure(view.ready_with("game:v2") == 5)
}

#[e2e::test]
async fn a_scale_out_during_a_pause_creates_only_stable_pods(case: &mut Case) -> Result<()> {
    roll_out_to_first_pause(case, game_with_pause()).await?;
    case.scale(8).await?;
    case.until_counts([8, 1, 1, 8, 8]).await?;
    case.consistently("one pod has the new build", 2, |view| {
        view.count_with("game:v2") == 1 && view.step() == 1
    })
    .await?;
    case.resume().await?;
    case.until_settled(8).await?;
    Ok(())
}

#[e2e::test]
async fn a_scale_in_during_a_pause_keeps_the_partition(case: &mut Case) -> Result<()> {
    roll_out_to_first_pause(case, game_with_pause().max_unavailable(1)).await?;
    case.scale(3).await?;
    case.until_counts([3, 0, 0, 3, 3]).await?;
    case.scale(4).await?;
    case.until("at most one of four pods is updated", |view| {
        view.counts()[4] == 4 && view.count_with("game:v2") <= 1
    })
    .await?;
    Ok(())
}

#[e2e::test]
async fn an_apply_does_not_promote(case: &mut Case) -> Result<()> {
    let manifest = game_with_pause().set("/spec/updateStrategy/paused", false);
    roll_out_to_first_pause(case, manifest.clone()).await?;
    case.apply(manifest.image("game:v2")).await?;
    ensure_stays_at_step_one(case).await?;
    case.resume().await?;
    case.until_settled(4).await?;
    Ok(())
}

#[e2e::test]
async fn a_server_side_apply_does_not_promote(case: &mut Case) -> Result<()> {
    let manifest = game_with_pause().set("/spec/updateStrategy/paused", false);
    case.server_side_apply(&manifest).await?;
    case.until_settled(4).await?;
    let manifest = manifest.image("game:v2");
    case.server_side_apply(&manifest).await?;
    case.until("paused at step 1", |view| view.step() == 1 && view.is_paused()).await?;
    case.server_side_apply(&manifest).await?;
    ensure_stays_at_step_one(case).await?;
    case.resume().await?;
    case.until_settled(4).await?;
    Ok(())
}

async fn ensure_stays_at_step_one(case: &Case) -> Result<()> {
    case.until("the condition reports that the apply is ignored", |view| {
        let condition = view.condition("Progressing");
        condition.is_some_and(|c| c.reason == "ResumeByApplyIgnored")
    })
    .await?;
    case.consistently("the rollout stays at step 1", 2, |view| {
        view.step() == 1 && view.count_with("game:v2") == 1
    })
    .await
}

#[e2e::test]
async fn a_new_template_during_a_pause_starts_over(case: &mut Case) -> Result<()> {
    roll_out_to_first_pause(case, game_with_pause()).await?;
    case.set_image("game:v3").await?;
    let view = case
        .until("paused at step 1 with v3", |view| {
            view.step() == 1 && view.is_paused() && view.ready_with("game:v3") == 1
        })
        .await?;
    // Only the pod that was at v2 was updated.
    view.ensure(view.count_with("game:v1") == 3)
}

#[e2e::test]
async fn a_percentage_updates_at_least_one_pod(case: &mut Case) -> Result<()> {
    let game = game_with_pause().steps(json!([{"partition": "90%"}, {"pause": {}}]));
    roll_out_to_first_pause(case, game).await?;
    case.resume().await?;
    case.until_settled(4).await?;
    Ok(())
}

#[e2e::test]
async fn a_missing_hook_template_of_a_step_is_reported_until_it_exists(
    case: &mut Case,
) -> Result<()> {
    let steps = json!([{"partition": 3}, {"hook": {"templateName": "later"}}]);
    case.apply(game_with_pause().steps(steps)).await?;
    case.until_settled(4).await?;
    case.set_image("game:v2").await?;
    let view =
        case.until("the missing template is reported", |view| view.is_true("FailedUpdate")).await?;
    let condition = view.condition("FailedUpdate");
    view.ensure(
        condition
            .is_some_and(|c| c.reason == "HookTemplateNotFound" && c.message.contains("\"later\"")),
    )?;
    view.ensure(view.step() == 1 && view.count_with("game:v2") == 1)?;
    case.apply(hook_template("later", &case.hooks.url("/"))).await?;
    let view = case.until_settled(4).await?;
    view.ensure(view.condition("FailedUpdate").is_none())
}

#[e2e::test]
async fn after_the_last_step_all_pods_are_updated_regardless_of_the_partition(
    case: &mut Case,
) -> Result<()> {
    roll_out_to_first_pause(case, game_with_pause().partition(1)).await?;
    case.resume().await?;
    let view = case.until_settled(4).await?;
    view.ensure(view.ready_with("game:v2") == 4)
}
