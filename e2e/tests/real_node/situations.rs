//! What a real kubelet reports about pods that do not start or run, and what `kubectl game status` makes of it: the cause,
//! the pod, and commands that work as they are printed.

use anyhow::{Context, Result, ensure};
use e2e::case::Case;
use e2e::process::command::run_unchecked;
use e2e::wait::{LIMIT, eventually};
use e2e::workload::GAME;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::fixture::{Images, game};

#[e2e::test]
async fn a_pod_that_does_not_run_is_explained_with_commands_that_work(
    case: &mut Case,
) -> Result<()> {
    let mut images = Images::new(case).await?;
    let v1 = images.publish("v1", "v1");
    let crashing = images.publish_crashing("crash");
    let silent = images.publish_silent("silent");
    let typo = images.unpublished("typo");
    case.apply(game(&v1)).await?;
    case.until_settled(2).await?;
    for (image, reason, words) in [
        (&typo, "ImageNotPulled", "cannot get its image"),
        (&crashing, "ContainerCrashing", "keeps ending, last with exit code 1"),
        (&silent, "ProbeNotSuccessful", "its readiness probe has not succeeded"),
    ] {
        case.set_image(image).await?;
        let status = until_explained(case, reason, words).await?;
        type_commands(case, &status).await.with_context(|| format!("{status:#}"))?;
        undo(case).await.with_context(|| format!("{status:#}"))?;
        let view = case.until_settled(2).await?;
        view.ensure(view.ready_with(&v1) == 2)?;
        let stable = view.game["status"]["canary"]["revision"].clone();
        let earlier = &view.game["status"]["earlierStableRevisions"];
        ensure!(earlier.is_null(), "{image} was stable before {stable}: {earlier}");
    }
    let missing = json!([{"configMapRef": {"name": "missing"}}]);
    let broken = game(&v1).named("broken").set("/spec/template/spec/containers/0/envFrom", missing);
    case.apply(broken).await?;
    let status = until_explained_of(case, "broken", "ContainerNotCreated", "missing").await?;
    type_commands(case, &status).await.with_context(|| format!("{status:#}"))
}

async fn until_explained(case: &Case, reason: &str, words: &str) -> Result<Value> {
    until_explained_of(case, GAME, reason, words).await
}

/// Waits until `status` names this cause and a pod, and returns it.
async fn until_explained_of(case: &Case, name: &str, reason: &str, words: &str) -> Result<Value> {
    eventually(&format!("{reason} is shown"), LIMIT, async || {
        let output = case.game(&["status", name, "-o", "json"]).await?;
        let status: Value = serde_json::from_str(&output.stdout).context(output.stderr)?;
        ensure!(output.code == 3, "exit code {}: {status:#}", output.code);
        let causes = status["causes"].as_array().context("no causes")?;
        let cause = causes.iter().find(|it| it["reason"] == reason);
        let cause = cause.with_context(|| format!("{status:#}"))?;
        let pod = cause["pods"][0].as_str().context("no pod")?;
        let message = status["message"].as_str().unwrap_or_default();
        ensure!(message.contains(words) && message.contains(pod), "{status:#}");
        Ok(status)
    })
    .await
}

/// Types the commands that change nothing, exactly as they are printed.
async fn type_commands(case: &Case, status: &Value) -> Result<()> {
    let commands = status["commands"].as_array().context("no commands")?;
    let lines = commands.iter().filter_map(|it| it["command"].as_str());
    let lines: Vec<&str> = lines.filter(|it| !it.starts_with("kubectl game undo")).collect();
    ensure!(!lines.is_empty(), "no command");
    for line in lines {
        let (code, output) = typed(case, line).await?;
        ensure!(code == 0, "{line}: {code}: {output}");
    }
    Ok(())
}

/// Types the rollback as `status` prints it. A probe may yet succeed, so no rollback is suggested for it.
async fn undo(case: &Case) -> Result<()> {
    let line = format!("kubectl game undo gd/{GAME} -n {}", case.namespace);
    let (code, output) = typed(case, &line).await?;
    ensure!(code == 0, "{line}: {code}: {output}");
    Ok(())
}

async fn typed(case: &Case, line: &str) -> Result<(i32, String)> {
    let kubectl = case.kubectl_command(&[]).await?;
    let mut shell = Command::new("sh");
    shell.args(["-c", line]);
    for (key, value) in kubectl.as_std().get_envs() {
        if let Some(value) = value {
            shell.env(key, value);
        }
    }
    let output = run_unchecked(&mut shell).await?;
    Ok((output.code, output.stdout + &output.stderr))
}
