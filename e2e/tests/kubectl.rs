//! kubectl with the operator's kinds, beyond the walkthroughs.

use anyhow::{Result, ensure};
use e2e::case::Case;
use e2e::workload::GAME;
use e2e::workload::manifest::{Game, hook_template, retrying_hook_template};
use e2e::workload::table::WORKLOAD_COLUMNS;

#[e2e::test]
async fn get_shows_the_documented_columns(case: &mut Case) -> Result<()> {
    case.apply(retrying_hook_template("test", &case.hooks.url("/failing"))).await?;
    case.hooks.answer("/failing", e2e::servers::hook_server::Answer::Status(500));
    case.apply(Game::in_place(2).pre_delete("test")).await?;
    case.until_settled(2).await?;
    case.scale(1).await?;
    case.until("a hook runs", |view| view.phases("PreDelete") == ["Running"]).await?;
    // The headings, and those that `-o wide` adds.
    let expected: [(&str, &[&str], &[&str]); 3] = [
        (
            "gamedeployment",
            &WORKLOAD_COLUMNS,
            &["STATUS", "WHY", "ACTIVE", "AVAILABLE", "STRATEGY", "PAUSED", "STEP", "REVISION"],
        ),
        ("hookrun", &["NAME", "PHASE", "AGE"], &["MESSAGE"]),
        ("hooktemplate", &["NAME", "AGE"], &[]),
    ];
    for (kind, headings, more) in expected {
        let table = case.table(&["get", kind]).await?;
        ensure!(table.headings == headings, "{kind}: {table:?}");
        ensure!(table.lines.len() == 1, "{kind}: {table:?}");
        let wide = case.table(&["get", kind, "-o", "wide"]).await?;
        ensure!(wide.headings == [headings, more].concat(), "{kind}: {wide:?}");
        ensure!(wide.lines.len() == 1, "{kind}: {wide:?}");
    }
    Ok(())
}

#[e2e::test]
async fn short_names_and_the_category_work(case: &mut Case) -> Result<()> {
    case.apply(hook_template("test", &case.hooks.url("/"))).await?;
    case.apply(Game::in_place(1)).await?;
    case.until_settled(1).await?;
    for kind in ["gd", "ht", "game"] {
        let printed = case.kubectl(&["get", kind, "-o", "name"]).await?;
        ensure!(!printed.trim().is_empty(), "get {kind}: {printed:?}");
    }
    for kind in ["hr", "gsts"] {
        case.kubectl(&["get", kind]).await?;
    }
    Ok(())
}

#[e2e::test]
async fn wait_for_ready_works(case: &mut Case) -> Result<()> {
    let game = Game::in_place(3).max_unavailable(1).set("/spec/minReadySeconds", 1);
    case.apply(game).await?;
    let ready = ["wait", "--for=condition=Ready", "--timeout=300s", "gamedeployment", GAME];
    case.kubectl(&ready).await?;
    let view = case.view().await?;
    view.ensure(view.counts() == [3; 5])?;
    // The rollout must not be complete before kubectl begins to wait.
    case.set_image("game:v2-slow10").await?;
    let not_ready =
        ["wait", "--for=condition=Ready=False", "--timeout=300s", "gamedeployment", GAME];
    case.kubectl(&not_ready).await?;
    case.kubectl(&ready).await?;
    let view = case.view().await?;
    view.ensure(view.ready_with("game:v2-slow10") == 3)
}

#[e2e::test]
async fn scale_goes_through_the_scale_subresource(case: &mut Case) -> Result<()> {
    case.apply(Game::in_place(2)).await?;
    case.until_settled(2).await?;
    case.scale(3).await?;
    case.until_settled(3).await?;
    let scale = case.get(&format!("gamedeployments/{GAME}/scale")).await?;
    ensure!(scale["spec"]["replicas"] == 3 && scale["status"]["replicas"] == 3, "{scale}");
    ensure!(scale["status"]["selector"] == format!("app={GAME}"), "{scale}");
    Ok(())
}

#[e2e::test]
async fn describe_shows_the_events_of_a_rollout(case: &mut Case) -> Result<()> {
    case.apply(Game::in_place(1)).await?;
    case.until_settled(1).await?;
    case.set_image("game:v2").await?;
    case.until_settled(1).await?;
    case.eventually("the start and end of the rollout are shown", async || {
        let printed = case.kubectl(&["describe", "gamedeployment", GAME]).await?;
        for reason in ["RolloutStarted", "RolloutComplete"] {
            ensure!(printed.contains(reason), "no {reason} in {printed}");
        }
        Ok(())
    })
    .await
}

#[e2e::test]
async fn explain_describes_every_field_of_a_spec(case: &mut Case) -> Result<()> {
    for kind in ["gamedeployment", "gamestatefulset", "hooktemplate", "hookrun", "sidecarset"] {
        let field = format!("{kind}.spec");
        // The API server publishes the schemas some time after the CRDs are Established.
        let explain = async || case.kubectl(&["explain", &field]).await;
        let printed = case.eventually("the kind is explained", explain).await?;
        ensure!(!printed.contains("<no description>"), "{printed}");
    }
    Ok(())
}
