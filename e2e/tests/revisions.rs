//! ControllerRevisions: history, rollbacks and name collisions.

use anyhow::{Context, Result, ensure};
use e2e::case::Case;
use e2e::workload::GAME;
use e2e::workload::manifest::Game;
use e2e::workload::view::View;
use serde_json::{Value, json};

async fn revision_names(case: &Case) -> Result<Vec<String>> {
    let name = |object: Value| object["metadata"]["name"].as_str().unwrap_or("").to_owned();
    let revisions = case.list("controllerrevisions").await?;
    Ok(revisions.into_iter().map(name).collect())
}

async fn update_revision(case: &Case) -> Result<String> {
    let view = case.view().await?;
    Ok(view.text("/status/updateRevision").to_owned())
}

#[e2e::test]
async fn a_rollback_reuses_the_old_revision(case: &mut Case) -> Result<()> {
    case.apply(Game::in_place(2).max_unavailable(2)).await?;
    case.until_settled(2).await?;
    let first = update_revision(case).await?;
    case.set_image("game:v2").await?;
    case.until_settled(2).await?;
    let second = update_revision(case).await?;
    ensure!(first != second, "{first}");
    case.set_image("game:v1").await?;
    let view = case.until_settled(2).await?;
    view.ensure(view.text("/status/updateRevision") == first)?;
    view.ensure(view.pods.iter().all(|pod| pod.revision() == first))?;
    ensure!(revision_names(case).await?.len() == 2);
    let first = case.get(&format!("controllerrevisions/{first}")).await?;
    let second = case.get(&format!("controllerrevisions/{second}")).await?;
    let number = |revision: &Value| revision["revision"].as_i64();
    ensure!(
        number(&first) > number(&second),
        "the newest revision does not have the highest number"
    );
    Ok(())
}

#[e2e::test]
async fn the_history_limit_is_respected(case: &mut Case) -> Result<()> {
    let game = Game::in_place(2).max_unavailable(2).set("/spec/revisionHistoryLimit", 2);
    case.apply(game).await?;
    case.until_settled(2).await?;
    for version in 2..=5 {
        case.set_image(&format!("game:v{version}")).await?;
        case.until_settled(2).await?;
    }
    case.eventually("two old revisions and the current one are kept", async || {
        let names = revision_names(case).await?;
        ensure!(names.len() == 3, "{names:?}");
        Ok(())
    })
    .await
}

#[e2e::test]
async fn a_name_collision_is_resolved(case: &mut Case) -> Result<()> {
    case.apply(Game::in_place(1)).await?;
    case.until_settled(1).await?;
    let taken = update_revision(case).await?;
    case.kubectl(&["delete", "gamedeployment", GAME]).await?;
    case.eventually("the revision is deleted", async || {
        ensure!(revision_names(case).await?.is_empty());
        Ok(())
    })
    .await?;
    case.apply(json!({
        "apiVersion": "apps/v1", "kind": "ControllerRevision",
        "metadata": {"name": taken}, "data": {"another": "owner"}, "revision": 1,
    }))
    .await?;
    case.apply(Game::in_place(1)).await?;
    let view = case.until_settled(1).await?;
    view.ensure(view.number("/status/collisionCount") == 1)?;
    view.ensure(view.text("/status/updateRevision") != taken)?;
    let foreign = case.get(&format!("controllerrevisions/{taken}")).await?;
    ensure!(foreign["data"]["another"] == "owner", "{foreign}");
    Ok(())
}

#[e2e::test]
async fn an_equivalent_template_creates_no_revision(case: &mut Case) -> Result<()> {
    case.apply(Game::in_place(2)).await?;
    let before = case.until_settled(2).await?;
    let revisions = revision_names(case).await?;
    // These values applied before: Always is the default, and so is 20% of two pods, rounded up.
    let operations = json!([
        {"op": "add", "path": "/spec/template/spec/restartPolicy", "value": "Always"},
        {"op": "replace", "path": "/spec/updateStrategy/maxUnavailable", "value": 1},
    ]);
    case.patch(&format!("gamedeployment/{GAME}"), operations).await?;
    let generation = |view: &View| view.number("/metadata/generation");
    let view = case
        .until("the change is observed", |view| {
            generation(view) > generation(&before) && view.is_observed()
        })
        .await
        .context("the status was not updated")?;
    let revision = "/status/updateRevision";
    view.ensure(view.text(revision) == before.text(revision))?;
    let kept = revision_names(case).await?;
    ensure!(kept == revisions, "{revisions:?} became {kept:?}");
    view.ensure(view.pod_names() == before.pod_names())?;
    view.ensure(view.pods.iter().all(|pod| pod.restarts() == 0))
}

#[e2e::test]
async fn the_status_names_the_stable_revision(case: &mut Case) -> Result<()> {
    case.apply(Game::rolling(2).partition(1)).await?;
    case.until_settled(2).await?;
    let first = update_revision(case).await?;
    let path = "-o=jsonpath={.status.currentRevision}";
    let get_current = ["get", "gamedeployment", GAME, path];
    ensure!(case.kubectl(&get_current).await? == first);
    case.set_image("game:v2").await?;
    case.until_counts([2, 1, 1, 2, 2]).await?;
    ensure!(case.kubectl(&get_current).await? == first);
    case.replace("/spec/updateStrategy/partition", 0).await?;
    case.until_settled(2).await?;
    ensure!(case.kubectl(&get_current).await? == update_revision(case).await?);
    Ok(())
}
