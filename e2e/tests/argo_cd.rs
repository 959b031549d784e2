//! What docs/gitops.md says about syncs, with Argo CD itself.

use anyhow::{Context, Result, ensure};
use e2e::addons::argo_cd::controller::ArgoCd;
use e2e::case::Case;
use e2e::checkout::repository;
use e2e::workload::manifest::Game;
use e2e::workload::view::View;
use serde_json::{Value, json};

/// The spec of the application in docs/gitops.md that ignores what others write, with self-heal and these options of syncs.
fn documented(options: &[&str]) -> Result<Value> {
    let page = std::fs::read_to_string(repository().join("docs/gitops.md"))?;
    let begin = page.find("apiVersion: argoproj.io").context("no application")?;
    let (text, _) = page[begin..].split_once("```").context("no end")?;
    let mut spec = serde_yaml_ng::from_str::<Value>(text)?["spec"].take();
    spec["syncPolicy"]["automated"] = json!({"selfHeal": true});
    let all = spec["syncPolicy"]["syncOptions"].as_array_mut().context("no options")?;
    all.extend(options.iter().map(|it| json!(it)));
    Ok(spec)
}

/// A canary whose manifest has the fields that others write.
fn canary(image: &str) -> Game {
    let game = Game::in_place(3).max_unavailable(2).image(image);
    let game = game.steps(json!([{"partition": 2}, {"pause": {}}]));
    game.set("/spec/updateStrategy/paused", false)
}

#[e2e::test]
async fn ignored_differences_survive_syncs_on_the_client(case: &mut Case) -> Result<()> {
    ignored_differences_survive(case, &[]).await
}

#[e2e::test]
async fn ignored_differences_survive_syncs_on_the_server(case: &mut Case) -> Result<()> {
    ignored_differences_survive(case, &["ServerSideApply=true"]).await
}

async fn ignored_differences_survive(case: &Case, options: &[&str]) -> Result<()> {
    let Some(argo_cd) = ArgoCd::start(case).await? else { return Ok(()) };
    argo_cd.commit(&canary("game:v1")).await?;
    argo_cd.configure(case, documented(options)?).await?;
    case.until_settled(3).await?;
    argo_cd.until(case, "Synced", "Healthy").await?;

    // Another client scales. A sync of a new image changes neither that nor the pause of the canary, which is no difference.
    case.scale(4).await?;
    case.until_settled(4).await?;
    argo_cd.until(case, "Synced", "Healthy").await?;
    argo_cd.commit(&canary("game:v2")).await?;
    argo_cd.until(case, "Synced", "Suspended").await?;
    let is_at_pause =
        |view: &View| view.step() == 1 && view.is_paused() && view.counts() == [4, 2, 2, 4, 4];
    case.until("the canary is at its pause", is_at_pause).await?;
    for _ in 0..3 {
        argo_cd.until(case, "Synced", "Suspended").await?;
    }
    case.consistently("the canary stays at its pause", 2, is_at_pause).await?;

    let promoted = case.game(&["promote", &case.workload()]).await?;
    ensure!(promoted.code == 0, "{promoted:?}");
    let view = case.until_settled(4).await?;
    view.ensure(view.ready_with("game:v2") == 4)?;
    argo_cd.until(case, "Synced", "Healthy").await
}

/// Without `ignoreDifferences`, self-heal scales back, and a canary's pause and Git's `paused: false` alternate until a user
/// resumes.
#[e2e::test]
async fn fields_in_git_are_set_by_each_sync(case: &mut Case) -> Result<()> {
    let Some(argo_cd) = ArgoCd::start(case).await? else { return Ok(()) };
    argo_cd.commit(&canary("game:v1")).await?;
    argo_cd.configure(case, json!({"syncPolicy": {"automated": {"selfHeal": true}}})).await?;
    case.until_settled(3).await?;
    argo_cd.until(case, "Synced", "Healthy").await?;

    case.scale(4).await?;
    case.eventually("the sync has scaled back", async || {
        argo_cd.refresh(case).await?;
        let view = case.view().await?;
        view.ensure(view.game["spec"]["replicas"] == 3)
    })
    .await?;
    case.until_settled(3).await?;

    argo_cd.commit(&canary("game:v2")).await?;
    case.eventually("the workload tells that syncs do not resume it", async || {
        argo_cd.refresh(case).await?;
        let view = case.view().await?;
        let condition = view.condition("Progressing");
        view.ensure(condition.is_some_and(|it| it.reason == "ResumeByApplyIgnored"))
    })
    .await?;
    case.eventually("the application is suspended", async || {
        let application = argo_cd.refresh(case).await?;
        ensure!(application["status"]["health"]["status"] == "Suspended", "{application:#}");
        Ok(())
    })
    .await?;
    let view = case.view().await?;
    view.ensure(view.step() == 1)?;
    let resumed = case.game(&["resume", &case.workload()]).await?;
    ensure!(resumed.code == 0, "{resumed:?}");
    let view = case.until_settled(3).await?;
    view.ensure(view.ready_with("game:v2") == 3)
}
