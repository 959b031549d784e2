//! The walkthrough of a canary, step by step.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use e2e::case::Case;
use e2e::workload::GAME;
use e2e::workload::view::{Run, View};
use serde_json::{Value, json};

use super::{
    check_contains, check_counts, check_runs, check_status, counts_of_status, create, example,
    keys, update_to_python_3_5,
};

const PAUSED_STATUS: [&str; 12] = [
    "availableReplicas",
    "canary",
    "collisionCount",
    "currentStepHash",
    "currentStepIndex",
    "labelSelector",
    "observedGeneration",
    "pauseConditions",
    "readyReplicas",
    "replicas",
    "updateRevision",
    "updatedReadyReplicas",
];

fn check_pause(view: &View, reason: &str, step: i64, updated: i64, stable: &str) -> Result<()> {
    let mut fields = PAUSED_STATUS.to_vec();
    fields.push("updatedReplicas");
    check_status(view, &fields, counts_of_status(4, updated))?;
    ensure!(view.is_paused() && view.step() == step, "{}", view.summary());
    ensure!(view.text("/status/labelSelector") == format!("app={GAME}"));
    ensure!(view.text("/status/canary/revision") == stable);
    ensure!(view.text("/status/updateRevision") != stable);
    ensure!(view.is_observed(), "{}", view.summary());
    let pauses = view.game["status"]["pauseConditions"].as_array().context("no pauseConditions")?;
    ensure!(pauses.len() == 1 && pauses[0]["reason"] == reason, "{pauses:?}");
    ensure!(keys(&pauses[0]) == BTreeSet::from(["reason", "startTime"]), "{pauses:?}");
    Ok(())
}

/// The documented workload. Its pause of 20 s is long enough to be observed, even under load.
fn canary_example(case: &Case) -> Result<String> {
    example(case, "canary/gamedeployment.yaml", &[("duration: 60", "duration: 20")])
}

/// The documented template: two measurements, with a condition on the age. Their interval of 20 s is long enough to
/// observe that the hook runs.
fn canary_template(case: &Case, changes: &[(&str, &str)]) -> Result<String> {
    let template =
        example(case, "canary/hooktemplate.yaml", &[("interval: 60s", "interval: 20s")])?;
    Ok(changes.iter().fold(template, |text, (from, to)| text.replace(from, to)))
}

async fn until_paused(case: &Case, reason: &str, step: i64) -> Result<View> {
    case.until(&format!("{reason} at step {step}"), |view| {
        view.step() == step
            && view.pause_reasons() == [reason]
            && view.is_paused()
            && view.is_observed()
    })
    .await
}

#[e2e::test]
pub(super) async fn the_steps_pause_as_documented(case: &mut Case) -> Result<()> {
    let view = create(case, canary_template(case, &[])?, canary_example(case)?, 4).await?;
    let stable = view.text("/status/canary/revision").to_owned();

    update_to_python_3_5(case).await?;
    let view = until_paused(case, "PausedByCanaryPauseStep", 1).await?;
    check_pause(&view, "PausedByCanaryPauseStep", 1, 1, &stable)?;
    check_counts(case, [4, 1, 1, 4, 4]).await?;
    case.consistently("one pod is updated", 2, |view| view.count_with("python:3.5") == 1).await?;

    case.resume().await?;
    let view = until_paused(case, "PausedByCanaryPauseStep", 3).await?;
    check_pause(&view, "PausedByCanaryPauseStep", 3, 2, &stable)?;
    check_counts(case, [4, 2, 2, 4, 4]).await?;

    // The pause ends after its duration, and the hook fails.
    let view = until_paused(case, "PausedByStepBasedHook", 4).await?;
    check_pause(&view, "PausedByStepBasedHook", 4, 2, &stable)?;
    let run = format!("canary-step-hook-{}-4-test", view.text("/status/updateRevision"));
    ensure!(view.text("/status/canary/currentStepHookRun") == run, "{}", view.summary());
    check_runs(case, &[(&run, "Failed")]).await?;
    check_failed_run(case, view.runs.first().context("no HookRun")?).await?;

    case.resume().await?;
    let view = case.until_settled(4).await?;
    check_counts(case, [4, 4, 4, 4, 4]).await?;
    view.ensure(view.step() == 5 && view.ready_with("python:3.5") == 4)?;
    view.ensure(view.pods.iter().all(|pod| pod.restarts() == 1))
}

async fn check_failed_run(case: &Case, run: &Run) -> Result<()> {
    let spec = json!({
        "count": 2, "interval": "20s", "name": "webtest",
        "provider": {"web": {"jsonPath": "{$.age}", "url": case.hooks.url("")}},
        "successCondition": "asInt(result) < 30",
    });
    check_contains(&run.0["spec"]["metrics"][0], &spec)?;
    let measurement = json!({"phase": "Failed", "value": "45"});
    let result = json!({"count": 1, "failed": 1, "name": "webtest", "phase": "Failed",
        "measurements": [measurement]});
    check_contains(&run.0["status"], &json!({"phase": "Failed", "metricResults": [result]}))?;
    for time in [
        "/status/startedAt",
        "/status/metricResults/0/measurements/0/startedAt",
        "/status/metricResults/0/measurements/0/finishedAt",
    ] {
        ensure!(run.0.pointer(time).is_some_and(Value::is_string), "no {time} in {}", run.0);
    }
    Ok(())
}

#[e2e::test]
pub(super) async fn a_successful_hook_completes_the_canary(case: &mut Case) -> Result<()> {
    let template = canary_template(case, &[("< 30", "> 30")])?;
    create(case, template, canary_example(case)?, 4).await?;
    update_to_python_3_5(case).await?;
    until_paused(case, "PausedByCanaryPauseStep", 1).await?;
    case.resume().await?;
    until_paused(case, "PausedByCanaryPauseStep", 3).await?;
    case.until("the hook runs", |view| {
        view.phases("Step") == ["Running"] && view.counts() == [4, 2, 2, 4, 4] && view.step() == 4
    })
    .await?;
    let view = case.until_settled(4).await?;
    view.ensure(!view.is_paused() && view.ready_with("python:3.5") == 4)?;
    ensure!(case.hooks.calls("/").len() == 2, "expected two measurements");
    Ok(())
}
