//! Job metrics, with the real Job controller and simulated kubelets.

use anyhow::{Context, Result, ensure};
use e2e::case::Case;
use e2e::faults::request::Verb;
use e2e::faults::{Fault, Frequency, Requests, Script};
use e2e::servers::hook_server::Answer;
use judge::object::text;
use serde_json::{Value, json};

use crate::run::{hook_run, status, until_phase};

e2e::tests![
    the_result_of_a_job_is_the_measurement,
    a_job_continues_after_the_operator_is_killed,
    an_image_that_cannot_be_pulled_is_an_error,
    a_job_that_cannot_start_is_deleted_even_if_the_first_attempt_fails,
    a_job_is_deleted_when_its_run_ends,
    a_job_is_deleted_with_its_run,
    a_job_that_cannot_be_created_is_an_error_with_a_reason,
];

/// A metric that runs a Job whose pod has these annotations.
fn job(name: &str, image: &str, annotations: Value) -> Value {
    json!({
        "name": name,
        "consecutiveErrorLimit": 0,
        "provider": {"job": {
            "metadata": {"labels": {"made-by": "a-hook"}},
            "spec": {"backoffLimit": 0, "template": {
                "metadata": {"annotations": annotations},
                "spec": {"restartPolicy": "Never", "containers": [{
                    "name": "backup", "image": image,
                    "args": ["--pod", "{{ args.PodName }}"],
                    "env": [{"name": "POD", "value": "pod {{args.PodName}}"}],
                }]},
            }},
        }},
    })
}

fn run_with_metrics(name: &str, metrics: Value) -> Value {
    let args = json!([{"name": "PodName", "value": "game-1"}]);
    hook_run(name, json!({"args": args, "metrics": metrics}))
}

/// The Jobs of a run.
async fn jobs(case: &Case, run: &str) -> Result<Vec<Value>> {
    let mut jobs = case.list("jobs").await?;
    jobs.retain(|job| job["metadata"]["ownerReferences"][0]["name"] == run);
    Ok(jobs)
}

async fn until_job(case: &Case, run: &str) -> Result<Value> {
    case.eventually("the run's Job exists", async || {
        jobs(case, run).await?.pop().context("no job")
    })
    .await
}

async fn until_no_job(case: &Case, run: &str) -> Result<()> {
    case.eventually("the run's Job is deleted", async || {
        let left = jobs(case, run).await?;
        ensure!(left.is_empty(), "{left:?}");
        Ok(())
    })
    .await
}

async fn the_result_of_a_job_is_the_measurement(case: &mut Case) -> Result<()> {
    let exit_annotation = |code: &str| json!({"stage.gamekeeper/exit": code});
    case.apply(run_with_metrics(
        "good",
        json!([job("backup", "backup:1", json!({}))]),
    ))
    .await?;
    case.apply(run_with_metrics(
        "bad",
        json!([job("backup", "backup:1", exit_annotation("3"))]),
    ))
    .await?;
    let mut twice = job("backup", "backup:1", json!({}));
    twice["count"] = json!(2);
    twice["interval"] = json!("1s");
    case.apply(run_with_metrics("twice", json!([twice])))
        .await?;

    let good = until_phase(case, "good", "Successful").await?;
    let measurement = &good["metricResults"][0]["measurements"][0];
    let job = until_job(case, "good").await?;
    ensure!(measurement["value"] == job["metadata"]["name"], "{good:#}");
    ensure!(
        measurement["finishedAt"] != measurement["startedAt"],
        "{good:#}"
    );
    ensure!(job["metadata"]["labels"]["made-by"] == "a-hook", "{job:#}");
    ensure!(job["spec"]["activeDeadlineSeconds"] == 3600, "{job:#}");
    let container = &job["spec"]["template"]["spec"]["containers"][0];
    ensure!(
        container["args"] == json!(["--pod", "game-1"]),
        "{container:#}"
    );
    ensure!(
        container["env"][0]["value"] == "pod game-1",
        "{container:#}"
    );

    let bad = until_phase(case, "bad", "Failed").await?;
    let message = text(&bad, "/message");
    ensure!(message.contains("failed: exit 3"), "{message}");

    let twice = until_phase(case, "twice", "Successful").await?;
    ensure!(twice["metricResults"][0]["successful"] == 2, "{twice:#}");
    ensure!(
        jobs(case, "twice").await?.len() == 2,
        "expected one Job per measurement"
    );
    Ok(())
}

async fn a_job_continues_after_the_operator_is_killed(case: &mut Case) -> Result<()> {
    // Long enough for a slow machine to show the measurement in progress.
    let slow = json!({"stage.gamekeeper/run-seconds": "30"});
    case.apply(run_with_metrics(
        "slow",
        json!([job("backup", "backup:1", slow)]),
    ))
    .await?;
    let started_at = case
        .eventually("the measurement is Running", async || {
            let status = status(case, "slow").await?;
            let measurement = status["metricResults"][0]["measurements"][0].clone();
            ensure!(measurement["phase"] == "Running", "{status:#}");
            ensure!(measurement["resumeAt"].is_string(), "{status:#}");
            ensure!(status["metricResults"][0]["count"].is_null(), "{status:#}");
            Ok(measurement["startedAt"].clone())
        })
        .await?;
    case.kill_operator().await?;
    case.operator.start().await?;
    let status = until_phase(case, "slow", "Successful").await?;
    let result = &status["metricResults"][0];
    ensure!(
        result["measurements"][0]["startedAt"] == started_at,
        "{status:#}"
    );
    ensure!(
        result["count"] == 1 && result["measurements"][1].is_null(),
        "{status:#}"
    );
    ensure!(
        jobs(case, "slow").await?.len() == 1,
        "the Job was created twice"
    );
    Ok(())
}

async fn an_image_that_cannot_be_pulled_is_an_error(case: &mut Case) -> Result<()> {
    case.apply(run_with_metrics(
        "nope",
        json!([job("backup", "backup:nope", json!({}))]),
    ))
    .await?;
    let status = until_phase(case, "nope", "Error").await?;
    let message = text(&status, "/message");
    ensure!(message.contains("could not start within 30 s"), "{message}");
    ensure!(message.contains("image backup:nope: "), "{message}");
    until_no_job(case, "nope").await
}

/// Until the Job is deleted, its measurement continues: the next one would start a second Job alongside.
async fn a_job_that_cannot_start_is_deleted_even_if_the_first_attempt_fails(
    case: &mut Case,
) -> Result<()> {
    let proxy = case.restart_behind_proxy().await?;
    let deletions = Requests::To(Verb::Delete, "jobs");
    proxy.play(Script::default().with(deletions, Fault::Unavailable, Frequency::Times(1)));
    let metric = job("backup", "backup:nope", json!({}));
    case.apply(run_with_metrics("nope", json!([metric])))
        .await?;
    let status = until_phase(case, "nope", "Error").await?;
    let message = text(&status, "/message");
    ensure!(message.contains("could not start within 30 s"), "{message}");
    ensure!(proxy.tally().sum() == 1, "no deletion failed");
    until_no_job(case, "nope").await
}

async fn a_job_is_deleted_when_its_run_ends(case: &mut Case) -> Result<()> {
    let slow = || {
        job(
            "backup",
            "backup:1",
            json!({"stage.gamekeeper/run-seconds": "600"}),
        )
    };
    // One run is terminated; in the other, another metric fails once both Jobs exist.
    case.apply(run_with_metrics("stopped", json!([slow()])))
        .await?;
    let web = json!({
        "name": "web", "count": 1000, "interval": "1s",
        "provider": {"web": {"url": case.hooks.url("/web")}},
    });
    case.apply(run_with_metrics("failed", json!([slow(), web])))
        .await?;
    until_job(case, "failed").await?;
    until_job(case, "stopped").await?;
    case.hooks.answer("/web", Answer::Status(500));
    let terminate = json!([{"op": "add", "path": "/spec/terminate", "value": true}]);
    case.patch("hookrun/stopped", terminate).await?;
    let stopped = until_phase(case, "stopped", "Inconclusive").await?;
    ensure!(
        stopped["metricResults"][0]["measurements"].is_null(),
        "{stopped:#}"
    );
    until_phase(case, "failed", "Error").await?;
    until_no_job(case, "stopped").await?;
    until_no_job(case, "failed").await
}

async fn a_job_is_deleted_with_its_run(case: &mut Case) -> Result<()> {
    let slow = json!({"stage.gamekeeper/run-seconds": "600"});
    case.apply(run_with_metrics(
        "deleted",
        json!([job("backup", "backup:1", slow)]),
    ))
    .await?;
    until_job(case, "deleted").await?;
    case.kubectl(&["delete", "hookrun", "deleted"]).await?;
    until_no_job(case, "deleted").await
}

async fn a_job_that_cannot_be_created_is_an_error_with_a_reason(case: &mut Case) -> Result<()> {
    let mut typo = job("backup", "backup:1", json!({}));
    typo["provider"]["job"]["spec"]["template"]["spec"]["containers"][0]["imagePolicy"] =
        json!("Always");
    case.apply(run_with_metrics("typo", json!([typo]))).await?;
    let mut secret = run_with_metrics("secret", json!([job("backup", "backup:1", json!({}))]));
    secret["spec"]["args"][0] = json!({
        "name": "PodName", "valueFrom": {"secretKeyRef": {"name": "hook", "key": "token"}},
    });
    case.apply(json!({
        "apiVersion": "v1", "kind": "Secret", "stringData": {"token": "s3cret"},
        "metadata": {"name": "hook", "labels": {"tkex.tencent.com/hook-access": "true"}},
    }))
    .await?;
    case.apply(secret).await?;
    for (run, expected) in [
        (
            "typo",
            "unknown field \"spec.template.spec.containers[0].imagePolicy\"",
        ),
        ("secret", "a secret argument would be readable in the Job"),
    ] {
        let status = until_phase(case, run, "Error").await?;
        let message = text(&status, "/message");
        ensure!(message.contains(expected), "{message}");
        ensure!(jobs(case, run).await?.is_empty(), "a Job was created");
    }
    Ok(())
}
