//! What tools that wait for any kind of object see: Flux and kpt through their library, and Helm 4.

use std::path::Path;

use anyhow::{Result, ensure};
use e2e::addons::kstatus::{ensure_status, programs, status};
use e2e::case::Case;
use e2e::process::command::{CommandOutput, go_command, run_unchecked};
use e2e::servers::hook_server::Answer;
use e2e::workload::GAME;
use e2e::workload::manifest::{Game, hook_template};
use serde_json::{Value, json};

use crate::run::web;
use crate::sidecars;

/// An object, as KIND/NAME.
async fn get(case: &Case, name: &str) -> Result<Value> {
    let printed = case.kubectl(&["get", name, "-o=json"]).await?;
    Ok(serde_json::from_str(&printed)?)
}

/// Waits until an object has this status.
async fn until(case: &Case, name: &str, expected: &str) -> Result<()> {
    case.eventually(&format!("{name} is {expected}"), async || {
        ensure_status(&get(case, name).await?, expected).await
    })
    .await
}

/// The workload of most tests.
fn game() -> String {
    format!("gamedeployment/{GAME}")
}

/// A field that the API server refuses in pods.
fn typo() -> Value {
    json!([{"op": "add", "path": "/spec/template/spec/containers/0/imagePullPolice", "value": "Always"}])
}

#[e2e::test]
async fn a_workload_is_in_progress_until_it_is_done(case: &mut Case) -> Result<()> {
    // What the API server answers before the operator has seen the object.
    let create = ["create", "--dry-run=server", "-o=json", "-f", "-"];
    for game in [Game::rolling(1), Game::parallel(1)] {
        let created = case.kubectl_with(&create, &game.to_string()).await?;
        ensure_status(&serde_json::from_str(&created)?, "InProgress").await?;
    }
    case.apply(Game::rolling(2)).await?;
    until(case, &game(), "Current").await?;
    case.until_settled(2).await?;
    case.scale(3).await?;
    until(case, &game(), "Current").await?;
    let view = case.until_settled(3).await?;
    view.ensure(view.condition("Reconciling").is_none() && view.condition("Stalled").is_none())
}

#[e2e::test]
async fn a_refused_template_is_a_failure_until_it_is_fixed(case: &mut Case) -> Result<()> {
    case.apply(Game::rolling(2)).await?;
    case.until_settled(2).await?;
    case.patch(&game(), typo()).await?;
    until(case, &game(), "Failed").await?;
    let failure = status(&get(case, &game()).await?).await?;
    ensure!(failure.contains("imagePullPolice"), "{failure}");
    let fix = json!([{"op": "remove", "path": "/spec/template/spec/containers/0/imagePullPolice"}]);
    case.patch(&game(), fix).await?;
    until(case, &game(), "Current").await
}

/// A client applies a manifest's objects one after the other.
#[e2e::test]
async fn a_template_that_comes_a_moment_later_is_no_failure(case: &mut Case) -> Result<()> {
    case.hooks.answer("/drained", Answer::Json(json!({"age": 45})));
    case.apply(Game::in_place(2)).await?;
    case.until_settled(2).await?;
    case.apply(Game::in_place(2).pre_inplace("drained").image("game:v2")).await?;
    case.until("the template is missing", |view| view.is_true("FailedUpdate")).await?;
    ensure_status(&get(case, &game()).await?, "InProgress").await?;
    let url = case.hooks.url("/drained");
    case.apply(hook_template("drained", &url)).await?;
    until(case, &game(), "Current").await
}

#[e2e::test]
async fn a_pause_is_in_progress_and_a_failed_hook_is_a_failure(case: &mut Case) -> Result<()> {
    case.hooks.answer("/drained", Answer::Json(json!({"age": 45})));
    let url = case.hooks.url("/drained");
    case.apply(hook_template("drained", &url)).await?;
    let paused = json!([{"partition": 1}, {"pause": {}}]);
    case.apply(Game::in_place(2).pre_delete("drained").steps(paused.clone())).await?;
    case.until_settled(2).await?;
    let update = Game::in_place(2).pre_delete("drained").steps(paused);
    case.apply(update.image("game:v2")).await?;
    case.until("the step pauses the rollout", |view| view.is_paused()).await?;
    until(case, &game(), "InProgress").await?;
    case.resume().await?;
    until(case, &game(), "Current").await?;
    case.hooks.answer("/drained", Answer::Json(json!({"age": 5})));
    case.scale(1).await?;
    until(case, &game(), "Failed: the PreDelete hook of pod").await
}

#[e2e::test]
async fn a_stateful_set_is_in_progress_until_it_is_done(case: &mut Case) -> Result<()> {
    case.use_stateful_set();
    case.apply(Game::ordered(2)).await?;
    let path = case.workload();
    until(case, &path, "Current").await?;
    case.patch(&path, typo()).await?;
    until(case, &path, "Failed").await
}

#[e2e::test]
async fn a_run_is_in_progress_until_it_ends(case: &mut Case) -> Result<()> {
    for (name, age, expected) in [("good", 45, "Current"), ("bad", 5, "Failed")] {
        let path = format!("/{name}");
        case.hooks.answer(&path, Answer::Json(json!({"age": age})));
        let run = web(case, name, json!({"count": 1, "successCondition": "asInt(result) > 30"}));
        let create = ["create", "--dry-run=server", "-o=json", "-f", "-"];
        let created = case.kubectl_with(&create, &run.to_string()).await?;
        ensure_status(&serde_json::from_str(&created)?, "InProgress").await?;
        case.apply(run).await?;
        until(case, &format!("hookruns/{name}"), expected).await?;
    }
    Ok(())
}

#[e2e::test]
async fn a_sidecar_set_that_clashes_is_a_failure(case: &mut Case) -> Result<()> {
    let path = format!("sidecarsets/{}", sidecars::name(case));
    case.apply(Game::in_place(1)).await?;
    case.until_settled(1).await?;
    // The pod is older than the set.
    case.apply(sidecars::set(case, sidecars::log())).await?;
    until(case, &path, "InProgress: the containers are missing from").await?;
    case.kubectl(&["delete", "pods", "--all"]).await?;
    until(case, &path, "Current").await?;
    let clash = json!([{"name": "game", "image": "log:1.0"}]);
    case.apply(sidecars::set(case, clash)).await?;
    case.kubectl(&["delete", "pods", "--all"]).await?;
    until(case, &path, "Failed: left out of").await?;
    sidecars::remove(case).await
}

/// A chart with one template.
fn write_chart(folder: &Path, template: &Game) -> Result<()> {
    std::fs::create_dir_all(folder.join("templates"))?;
    let chart = "apiVersion: v2\nname: game\nversion: 0.1.0\n";
    std::fs::write(folder.join("Chart.yaml"), chart)?;
    std::fs::write(folder.join("templates/game.yaml"), template.to_string())?;
    Ok(())
}

#[e2e::test]
async fn helm_4_waits_for_a_workload_and_reports_a_refused_template(case: &mut Case) -> Result<()> {
    let folder = case.folder().join("chart");
    let program = programs().await?.join("helm");
    let upgrade = async |game: Game| -> Result<CommandOutput> {
        write_chart(&folder, &game)?;
        let mut helm = go_command(&program);
        helm.args(["upgrade", "--install", "game"]).arg(&folder);
        helm.args(["--wait", "--timeout=10m", "--namespace", &case.namespace]);
        helm.env("KUBECONFIG", &case.plane().kubeconfig);
        run_unchecked(&mut helm).await
    };
    let installed = upgrade(Game::rolling(2)).await?;
    ensure!(installed.code == 0, "{installed:?}");
    let view = case.view().await?;
    view.ensure(view.is_settled(2))?;
    let typo = Game::rolling(2).set("/spec/template/spec/containers/0/imagePullPolice", "Always");
    // Far earlier than its timeout.
    let refused = upgrade(typo).await?;
    ensure!(refused.code != 0 && refused.stderr.contains("imagePullPolice"), "{refused:?}");
    ensure!(!refused.stderr.contains("deadline"), "{refused:?}");
    let fixed = upgrade(Game::rolling(2).image("game:v2")).await?;
    ensure!(fixed.code == 0, "{fixed:?}");
    Ok(())
}
