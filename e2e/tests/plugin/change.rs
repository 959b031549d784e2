//! Commands of `kubectl game` that change workloads, and their output.

use anyhow::{Context, Result, ensure};
use e2e::case::Case;
use e2e::process::command::CommandOutput;
use e2e::servers::hook_server::Answer;
use e2e::workload::manifest::{Game, hook_template};
use e2e::workload::view::View;
use e2e::workload::{GAME, SET};
use serde_json::{Value, json};

use super::{check_contains, exits_with, fails_with, line, status};

#[e2e::test]
async fn a_canary_is_shown_and_controlled(case: &mut Case) -> Result<()> {
    control_canary(case, Game::in_place(4).max_unavailable(2)).await
}

#[e2e::test]
async fn a_canary_of_a_set_is_shown_and_controlled(case: &mut Case) -> Result<()> {
    case.use_stateful_set();
    control_canary(case, Game::parallel(4).updated_by("InplaceUpdate").max_unavailable(2)).await
}

async fn control_canary(case: &mut Case, game: Game) -> Result<()> {
    case.hooks.answer("/", Answer::Json(json!({"age": 10})));
    case.apply(hook_template("test", &case.hooks.url("/"))).await?;
    let steps = json!([{"partition": 3}, {"pause": {}}, {"hook": {"templateName": "test"}}]);
    case.apply(game.steps(steps)).await?;
    case.until_settled(4).await?;
    let workload = case.workload();
    let (kind, name) = workload.split_once('/').context("not KIND/NAME")?;
    let full_name = format!("{kind}.tkex.tencent.com/{name}");
    check_contains(&status(case, 0, name).await?, &["Complete: rollout complete: 4 of 4 pods"])?;

    let printed = exits_with(case, 0, &["set", "image", &full_name, "game=game:v2"]).await?;
    ensure!(printed == format!("{full_name} image updated\n"), "{printed}");
    let printed = status(case, 2, name).await?;
    check_contains(
        &printed,
        &["Paused: canary step 1 is paused until resumed", "kubectl game resume"],
    )?;
    check_contains(
        &exits_with(case, 0, &["tree", name]).await?,
        &["1 of 3 completed: partition 3, [pause], hook test"],
    )?;
    let listed = exits_with(case, 0, &["get", kind]).await?;
    let short = if kind == "gamedeployment" { "gd" } else { "gsts" };
    let shown = line(&listed, &format!("{short}/{name}"))?;
    ensure!(shown[1..8] == ["Paused", "1/3", "4", "1", "1", "4", "4"], "{listed}");

    let printed = exits_with(case, 0, &["promote", name]).await?;
    ensure!(printed == format!("{full_name} promoted past canary step 1 (pause)\n"), "{printed}");
    let view = case.until("the hook has failed", |view| view.phases("Step") == ["Failed"]).await?;
    let run = view.run_names()[0].to_owned();
    let printed = status(case, 2, name).await?;
    check_contains(
        &printed,
        &["canary step 2 has been paused for", &run, "ended Failed: webtest measured 10"],
    )?;
    let tree = exits_with(case, 0, &["tree", kind, name]).await?;
    ensure!(line(&tree, &run)?[1..3] == ["HookRun", "Failed"], "{tree}");
    ensure!(line(&tree, &format!("{name}-"))?[1] == "Revision", "{tree}");
    check_contains(&tree, &["update", "stable", "#2, game:v2", "Step: webtest measured 10"])?;
    let hooks = exits_with(case, 0, &["hooks", name]).await?;
    ensure!(
        line(&hooks, &run)?[1..8] == ["Step", "step", "2", "Failed", "webtest", "1", "10"],
        "{hooks}"
    );
    let failed = case.view().await?.runs[0].uid().to_owned();
    let retried = exits_with(case, 0, &["retry", name]).await?;
    check_contains(&retried, &["retried: the hook of canary step 2"])?;
    case.until("the hook has failed again", |view| {
        let is_new = view.runs.iter().all(|run| run.uid() != failed);
        is_new && view.phases("Step") == ["Failed"] && view.is_paused()
    })
    .await?;

    let printed = exits_with(case, 0, &["resume", &workload]).await?;
    ensure!(printed == format!("{full_name} resumed\n"), "{printed}");
    status(case, 0, name).await?;
    case.until_settled(4).await?;
    fails_with(case, &["resume", name], "is not paused").await?;
    fails_with(case, &["promote", name], "nothing to promote").await?;

    exits_with(case, 0, &["set", "image", name, "game=game:v3"]).await?;
    status(case, 2, name).await?;
    let history = exits_with(case, 0, &["history", name]).await?;
    ensure!(line(&history, "2 ")?[1..4] == ["stable", "3", "game:v2"], "{history}");
    ensure!(line(&history, "3 ")?[1..4] == ["update", "1", "game:v3"], "{history}");
    let printed = exits_with(case, 0, &["undo", name]).await?;
    ensure!(printed == format!("{full_name} rolled back to revision 2 (game:v2)\n"), "{printed}");
    status(case, 0, name).await?;
    let view = case.until_settled(4).await?;
    view.ensure(view.ready_with("game:v2") == 4 && !view.is_paused())
}

#[e2e::test]
async fn a_failed_pod_hook_is_shown_and_retried(case: &mut Case) -> Result<()> {
    retry_pod_hook(case, Game::rolling(3)).await
}

#[e2e::test]
async fn a_failed_pod_hook_of_a_set_is_shown_and_retried(case: &mut Case) -> Result<()> {
    case.use_stateful_set();
    retry_pod_hook(case, Game::parallel(3)).await
}

async fn retry_pod_hook(case: &mut Case, game: Game) -> Result<()> {
    case.hooks.answer("/", Answer::Json(json!({"age": 10})));
    case.apply(hook_template("empty", &case.hooks.url("/"))).await?;
    case.apply(game.pre_delete("empty")).await?;
    case.until_settled(3).await?;
    let workload = case.workload();
    fails_with(case, &["retry", &workload], "nothing to retry").await?;
    case.scale(2).await?;
    let view = case.until("the hook has failed", |view| {
        view.hook_conditions("preDelete").iter().any(|(_, phase)| *phase == "Failed")
    });
    let view = view.await?;
    let (pod, _) = view.hook_conditions("preDelete")[0];
    let run = view.run_names()[0];
    let printed = exits_with(case, 2, &["status", &workload]).await?;
    check_contains(&printed, &["Blocked", pod, run, "ended Failed: webtest measured 10", "retry"])?;
    let tree = exits_with(case, 0, &["tree", &workload]).await?;
    ensure!(line(&tree, pod)?.ends_with(&["to", "be", "deleted"]), "{tree}");
    ensure!(line(&tree, run)?[1..3] == ["HookRun", "Failed"], "{tree}");
    let failed_hooks = exits_with(case, 0, &["hooks", "-A", "--failed"]).await?;
    let row = failed_hooks.lines().find(|line| line.contains(run));
    let row: Vec<&str> = row.context(failed_hooks.clone())?.split_whitespace().collect();
    let (_, name) = workload.split_once('/').context("not KIND/NAME")?;
    ensure!(row[0] == case.namespace && row[1].ends_with(name), "{row:?}");
    ensure!(row[2..6] == [run, "PreDelete", pod, "Failed"], "{row:?}");
    let yaml = exits_with(case, 0, &["hooks", &workload, "-o", "yaml"]).await?;
    let runs: Value = serde_yaml_ng::from_str(&yaml)?;
    ensure!(runs["items"][0]["status"]["phase"] == "Failed", "{yaml}");

    case.hooks.answer("/", Answer::Json(json!({"age": 40})));
    fails_with(case, &["retry", &workload, "--point", "PreInplace"], "no PreInplace hook").await?;
    let printed = exits_with(case, 0, &["retry", &workload, "--point", "predelete"]).await?;
    check_contains(&printed, &["retried: 1 PreDelete hook\n"])?;
    case.until_settled(2).await?;
    exits_with(case, 0, &["status", &workload]).await?;
    Ok(())
}

#[e2e::test]
async fn a_pause_with_a_duration_becomes_a_users_pause(case: &mut Case) -> Result<()> {
    let steps = json!([{"partition": 1}, {"pause": {"duration": "10m"}}]);
    case.apply(Game::in_place(2).max_unavailable(2).steps(steps)).await?;
    case.until_settled(2).await?;
    case.set_image("game:v2").await?;
    let at_step = |view: &View| view.pause_reasons() == ["PausedByCanaryPauseStep"];
    case.until("the step pauses", at_step).await?;
    check_contains(
        &exits_with(case, 3, &["status", GAME]).await?,
        &["Paused: canary step 1 is paused until 20"],
    )?;
    check_contains(
        &exits_with(case, 0, &["pause", GAME]).await?,
        &["took over the pause of canary step 1"],
    )?;
    let is_users_pause =
        |view: &View| view.is_paused() && view.step() == 1 && view.pause_reasons().is_empty();
    case.until("the pause is a user's", is_users_pause).await?;
    check_contains(&exits_with(case, 2, &["status", GAME]).await?, &["Paused: paused by a user"])?;
    fails_with(case, &["pause", GAME], "already paused").await?;
    fails_with(case, &["promote", GAME], "paused by a user, not by canary step 1").await?;
    exits_with(case, 0, &["resume", GAME]).await?;
    case.until("the step pauses again", at_step).await?;
    exits_with(case, 0, &["promote", GAME]).await?;
    case.until_settled(2).await?;
    Ok(())
}

#[e2e::test]
async fn a_full_promotion_skips_the_remaining_steps(case: &mut Case) -> Result<()> {
    promote_fully(case, Game::in_place(4).max_unavailable(2)).await
}

#[e2e::test]
async fn a_full_promotion_of_a_set_skips_the_remaining_steps(case: &mut Case) -> Result<()> {
    case.use_stateful_set();
    promote_fully(case, Game::ordered(4)).await
}

async fn promote_fully(case: &mut Case, game: Game) -> Result<()> {
    case.hooks.answer("/", Answer::Never);
    let template = hook_template("test", &case.hooks.url("/"));
    case.apply(template).await?;
    let steps = json!([{"partition": 3}, {"hook": {"templateName": "test"}}, {"pause": {}}]);
    let cause = "/metadata/annotations/kubernetes.io~1change-cause";
    let game = game.steps(steps).set(cause, "the first one");
    case.apply(game.clone()).await?;
    case.until_settled(4).await?;
    case.apply(game.image("game:v2").set(cause, "winter event")).await?;
    case.until("the hook runs", |view| view.phases("Step") == ["Running"]).await?;
    let name = case.workload();
    fails_with(case, &["promote", &name], "continues by itself; --full skips").await?;
    let printed = exits_with(case, 0, &["promote", &name, "--full"]).await?;
    check_contains(&printed, &["fully promoted: skips canary steps 1 to 2"])?;
    let view = case.until_settled(4).await?;
    view.ensure(view.ready_with("game:v2") == 4 && view.step() == 3)?;
    let history = exits_with(case, 0, &["history", &name]).await?;
    check_contains(&history, &["the first one", "winter event"])?;
    // The next rollout goes through its steps again.
    case.set_image("game:v3").await?;
    let at_hook = |view: &View| {
        let is_running = view.phases("Step") == ["Running"];
        view.step() == 1 && view.count_with("game:v3") == 1 && is_running
    };
    case.until("one pod is updated, and the hook runs", at_hook).await?;
    case.consistently("the steps hold", 2, at_hook).await
}

#[e2e::test]
async fn an_image_is_set_and_rolled_back(case: &mut Case) -> Result<()> {
    case.apply(Game::in_place(2)).await?;
    case.until_settled(2).await?;
    let dry_run = exits_with(case, 0, &["set", "image", GAME, "*=game:v2", "--dry-run"]).await?;
    check_contains(&dry_run, &["image updated (server dry run)"])?;
    exits_with(case, 0, &["set", "image", GAME, "*=game:v2"]).await?;
    case.until_settled(2).await?;
    exits_with(case, 0, &["pause", GAME]).await?;
    let CommandOutput { code, stderr, .. } =
        case.game(&["undo", GAME, "--to-revision", "1"]).await?;
    ensure!(code == 0 && stderr.contains("no pod is updated until"), "{stderr}");
    case.consistently("no pod is updated", 2, |view| view.count_with("game:v2") == 2).await?;
    exits_with(case, 0, &["resume", GAME]).await?;
    let view = case.until_settled(2).await?;
    view.ensure(view.ready_with("game:v1") == 2)?;
    // The revision to which the workload was rolled back now has the highest number.
    let skipped = exits_with(case, 0, &["undo", GAME, "--to-revision=3"]).await?;
    check_contains(&skipped, &["skipped rollback (current template already matches revision 3)"])?;
    fails_with(case, &["undo", GAME, "--to-revision=1"], "no revision 1; its revisions are 2, 3")
        .await?;
    check_contains(
        &exits_with(case, 0, &["history", GAME, "--revision=2"]).await?,
        &["image: game:v2"],
    )?;
    fails_with(case, &["undo", GAME], "an undo is not undone").await?;
    exits_with(case, 0, &["set", "image", GAME, "*=game:v3"]).await?;
    case.until_settled(2).await?;
    exits_with(case, 0, &["undo", GAME]).await?;
    let view = case.until_settled(2).await?;
    view.ensure(view.ready_with("game:v1") == 2)
}

#[e2e::test]
async fn restart_recreates_pods_or_is_refused(case: &mut Case) -> Result<()> {
    case.apply(Game::in_place(1).named("in-place")).await?;
    fails_with(case, &["restart", "in-place"], "podsToDelete").await?;
    case.apply(Game::rolling(2)).await?;
    let before = case.until_settled(2).await?;
    check_contains(
        &exits_with(case, 0, &["restart", GAME]).await?,
        &["gamedeployment.tkex.tencent.com/test-gamedeployment restarted"],
    )?;
    let after = case.until("both pods are recreated", |view| {
        view.counts() == [2; 5]
            && view.is_observed()
            && before.pod_names().iter().all(|old| !view.pod_names().contains(old))
    });
    after.await?;
    case.use_stateful_set();
    case.apply(Game::ordered(1)).await?;
    let before = case.until_settled(1).await?;
    exits_with(case, 0, &["restart", SET]).await?;
    let is_new = |view: &View| {
        view.counts() == [1; 5] && view.is_observed() && view.pods[0].uid() != before.pods[0].uid()
    };
    case.until("another pod has the same name", is_new).await?;
    Ok(())
}
