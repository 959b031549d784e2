//! Job metrics, with the real Job controller and simulated kubelets.

use anyhow::{Context, Result, ensure};
use e2e::addons::policy::{install, release, uninstall};
use e2e::case::Case;
use e2e::faults::request::Verb;
use e2e::faults::{Fault, Frequency, Requests, Script};
use e2e::servers::hook_server::Answer;
use judge::object::text;
use serde_json::{Value, json};

use crate::run::{hook_run, status, until_phase};

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
    case.eventually("the run's Job exists", async || jobs(case, run).await?.pop().context("no job"))
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

#[e2e::test]
async fn the_result_of_a_job_is_the_measurement(case: &mut Case) -> Result<()> {
    let exit_annotation = |code: &str| json!({"stage.gamekeeper/exit": code});
    case.apply(run_with_metrics("good", json!([job("backup", "backup:1", json!({}))]))).await?;
    case.apply(run_with_metrics("bad", json!([job("backup", "backup:1", exit_annotation("3"))])))
        .await?;
    let mut twice = job("backup", "backup:1", json!({}));
    twice["count"] = json!(2);
    twice["interval"] = json!("1s");
    case.apply(run_with_metrics("twice", json!([twice]))).await?;

    let good = until_phase(case, "good", "Successful").await?;
    let measurement = &good["metricResults"][0]["measurements"][0];
    let job = until_job(case, "good").await?;
    ensure!(measurement["value"] == job["metadata"]["name"], "{good:#}");
    ensure!(measurement["finishedAt"] != measurement["startedAt"], "{good:#}");
    ensure!(job["metadata"]["labels"]["made-by"] == "a-hook", "{job:#}");
    ensure!(job["spec"]["activeDeadlineSeconds"] == 3600, "{job:#}");
    let container = &job["spec"]["template"]["spec"]["containers"][0];
    ensure!(container["args"] == json!(["--pod", "game-1"]), "{container:#}");
    ensure!(container["env"][0]["value"] == "pod game-1", "{container:#}");

    let bad = until_phase(case, "bad", "Failed").await?;
    let message = text(&bad, "/message");
    ensure!(message.contains("failed: exit 3"), "{message}");

    let twice = until_phase(case, "twice", "Successful").await?;
    ensure!(twice["metricResults"][0]["successful"] == 2, "{twice:#}");
    ensure!(jobs(case, "twice").await?.len() == 2, "expected one Job per measurement");
    Ok(())
}

#[e2e::test]
async fn a_job_continues_after_the_operator_is_killed(case: &mut Case) -> Result<()> {
    // Long enough for a slow machine to show the measurement in progress.
    let slow = json!({"stage.gamekeeper/run-seconds": "30"});
    case.apply(run_with_metrics("slow", json!([job("backup", "backup:1", slow)]))).await?;
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
    ensure!(result["measurements"][0]["startedAt"] == started_at, "{status:#}");
    ensure!(result["count"] == 1 && result["measurements"][1].is_null(), "{status:#}");
    ensure!(jobs(case, "slow").await?.len() == 1, "the Job was created twice");
    Ok(())
}

#[e2e::test]
async fn an_image_that_cannot_be_pulled_is_an_error(case: &mut Case) -> Result<()> {
    case.apply(run_with_metrics("nope", json!([job("backup", "backup:nope", json!({}))]))).await?;
    let status = until_phase(case, "nope", "Error").await?;
    let message = text(&status, "/message");
    ensure!(message.contains("could not start within 30 s"), "{message}");
    ensure!(message.contains("image backup:nope: "), "{message}");
    until_no_job(case, "nope").await
}

/// Until the Job is deleted, its measurement continues: the next one would start a second Job alongside.
#[e2e::test]
async fn a_job_that_cannot_start_is_deleted_even_if_the_first_attempt_fails(
    case: &mut Case,
) -> Result<()> {
    let proxy = case.restart_behind_proxy().await?;
    let deletions = Requests::To(Verb::Delete, "jobs");
    proxy.play(Script::default().with(deletions, Fault::Unavailable, Frequency::Times(1)));
    let metric = job("backup", "backup:nope", json!({}));
    case.apply(run_with_metrics("nope", json!([metric]))).await?;
    let status = until_phase(case, "nope", "Error").await?;
    let message = text(&status, "/message");
    ensure!(message.contains("could not start within 30 s"), "{message}");
    ensure!(proxy.tally().sum() == 1, "no deletion failed");
    until_no_job(case, "nope").await
}

#[e2e::test]
async fn a_job_is_deleted_when_its_run_ends(case: &mut Case) -> Result<()> {
    let slow = || job("backup", "backup:1", json!({"stage.gamekeeper/run-seconds": "600"}));
    // One run is terminated; in the other, another metric fails once both Jobs exist.
    case.apply(run_with_metrics("stopped", json!([slow()]))).await?;
    let web = json!({
        "name": "web", "count": 1000, "interval": "1s",
        "provider": {"web": {"url": case.hooks.url("/web")}},
    });
    case.apply(run_with_metrics("failed", json!([slow(), web]))).await?;
    until_job(case, "failed").await?;
    until_job(case, "stopped").await?;
    case.hooks.answer("/web", Answer::Status(500));
    let terminate = json!([{"op": "add", "path": "/spec/terminate", "value": true}]);
    case.patch("hookrun/stopped", terminate).await?;
    let stopped = until_phase(case, "stopped", "Inconclusive").await?;
    ensure!(stopped["metricResults"][0]["measurements"].is_null(), "{stopped:#}");
    until_phase(case, "failed", "Error").await?;
    until_no_job(case, "stopped").await?;
    until_no_job(case, "failed").await
}

#[e2e::test]
async fn a_job_is_deleted_with_its_run(case: &mut Case) -> Result<()> {
    let slow = json!({"stage.gamekeeper/run-seconds": "600"});
    case.apply(run_with_metrics("deleted", json!([job("backup", "backup:1", slow)]))).await?;
    until_job(case, "deleted").await?;
    case.kubectl(&["delete", "hookrun", "deleted"]).await?;
    until_no_job(case, "deleted").await
}

/// Replaces a Job by one of the same name and owner that succeeds at once, as any client that may create and delete Jobs
/// can.
async fn forge(case: &Case, job: &Value) -> Result<()> {
    let name = text(job, "/metadata/name").to_owned();
    case.kubectl(&["delete", "job", &name]).await?;
    let container = json!({"name": "yes", "image": "backup:1", "command": ["true"]});
    let forged = json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": name, "ownerReferences": job["metadata"]["ownerReferences"]},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}},
    });
    case.apply(forged).await?;
    case.kubectl(&["wait", "--for=condition=Complete", &format!("job/{name}"), "--timeout=300s"])
        .await?;
    Ok(())
}

#[e2e::test]
async fn a_job_that_another_client_made_passes_no_hook(case: &mut Case) -> Result<()> {
    let slow = json!({"stage.gamekeeper/run-seconds": "600"});
    let metric = job("backup", "backup:1", slow);
    case.apply(run_with_metrics("forged", json!([metric]))).await?;
    until_recorded(case, "forged").await?;
    let made = until_job(case, "forged").await?;
    case.operator.terminate().await?;
    forge(case, &made).await?;
    case.operator.start().await?;
    let status = until_phase(case, "forged", "Error").await?;
    let message = text(&status, "/message");
    ensure!(message.contains("was deleted before it had finished"), "{message}");
    Ok(())
}

/// Waits until the status records the Job of the first measurement.
async fn until_recorded(case: &Case, run: &str) -> Result<Value> {
    case.eventually("the Job is recorded", async || {
        let status = status(case, run).await?;
        let recorded = status["metricResults"][0]["measurements"][0]["job"]["uid"].clone();
        ensure!(recorded.is_string(), "{status:#}");
        Ok(recorded)
    })
    .await
}

/// The operator is killed after it has created the Job, but before it has recorded it.
#[e2e::test]
async fn a_job_that_is_not_recorded_is_replaced_after_a_crash(case: &mut Case) -> Result<()> {
    let proxy = case.restart_behind_proxy().await?;
    let records = Requests::To(Verb::Patch, "hookruns");
    proxy.play(Script::default().with(records, Fault::Unavailable, Frequency::Always));
    let metric = job("backup", "backup:1", json!({}));
    case.apply(run_with_metrics("crashed", json!([metric]))).await?;
    let unrecorded = until_job(case, "crashed").await?;
    ensure!(unrecorded["spec"]["suspend"] == true, "{unrecorded:#}");
    case.kill_operator().await?;
    forge(case, &unrecorded).await?;
    proxy.heal();
    case.operator.start().await?;
    let status = until_phase(case, "crashed", "Successful").await?;
    let recorded = &status["metricResults"][0]["measurements"][0]["job"]["uid"];
    let own = until_job(case, "crashed").await?;
    ensure!(own["metadata"]["uid"] == *recorded, "{status:#} {own:#}");
    let container = &own["spec"]["template"]["spec"]["containers"][0]["name"];
    ensure!(container == "backup", "{own:#}");
    Ok(())
}

#[e2e::test]
async fn only_the_operator_creates_what_its_objects_own(case: &mut Case) -> Result<()> {
    let value = "admission.hookRunProtection=true";
    for policy in ["owned", "job-pods"] {
        install(case, value, policy, &[&case.namespace]).await?;
    }
    let slow = json!({"stage.gamekeeper/run-seconds": "600"});
    let mut metric = job("backup", "backup:1", slow);
    let spec = &mut metric["provider"]["job"]["spec"];
    // Only of an Indexed Job can completions be changed.
    for (field, value) in
        [("completionMode", json!("Indexed")), ("completions", json!(1)), ("parallelism", json!(1))]
    {
        spec[field] = value;
    }
    case.apply(run_with_metrics("owner", json!([metric]))).await?;
    until_recorded(case, "owner").await?;
    let own = until_job(case, "owner").await?;
    let owners = own["metadata"]["ownerReferences"].clone();
    let template = json!({"spec": {
        "restartPolicy": "Never", "containers": [{"name": "yes", "image": "backup:1"}],
    }});
    let free = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "free"},
        "spec": {"template": template, "completions": 1, "parallelism": 1, "completionMode": "Indexed"},
    });
    let revision = json!({
        "apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": {"name": "free"},
        "revision": 1, "data": {},
    });
    let create = ["create", "--dry-run=server", "-f", "-"];
    for object in [&free, &revision] {
        let mut owned = object.clone();
        owned["metadata"]["ownerReferences"] = owners.clone();
        case.eventually("the policy is enforced", async || {
            let error = case.refused(&create, &owned.to_string()).await?;
            ensure!(error.contains("remove the owner"), "{error}");
            Ok(())
        })
        .await?;
        // Objects without such an owner are allowed, until one is added.
        case.apply(object.clone()).await?;
        let kind = text(object, "/kind").to_lowercase();
        let patch = format!("-p={}", json!({"metadata": {"ownerReferences": owners}}));
        let error = case.refused(&["patch", &kind, "free", "--type=merge", &patch], "").await?;
        ensure!(error.contains("remove the owner"), "{error}");
    }
    let name = text(&own, "/metadata/name").to_owned();
    let completions = r#"-p={"spec":{"completions":0,"parallelism":0}}"#;
    let error = case.refused(&["patch", "job", &name, "--type=merge", completions], "").await?;
    ensure!(error.contains("spec.completions: it cannot be changed"), "{error}");

    // A pod with the label would be adopted by the Job. This client may create pods, but not write the status of Jobs.
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "forged", "labels": {
            "batch.kubernetes.io/controller-uid": own["metadata"]["uid"],
        }},
        "spec": template["spec"],
    });
    let bound = ["create", "rolebinding", "tenants", "--clusterrole=edit", "--group=tenants"];
    case.kubectl(&bound).await?;
    let as_tenant = |args: &[&str]| {
        let mut args: Vec<String> = args.iter().map(|it| (*it).to_owned()).collect();
        args.extend(["--as=tenant".to_owned(), "--as-group=tenants".to_owned()]);
        args
    };
    let create = as_tenant(&create);
    let create: Vec<&str> = create.iter().map(String::as_str).collect();
    case.eventually("the policy is enforced", async || {
        let error = case.refused(&create, &pod.to_string()).await?;
        ensure!(error.contains("counts for a Job"), "{error}");
        Ok(())
    })
    .await?;
    let mut free = pod.clone();
    free["metadata"]["labels"] = json!({"app": "x"});
    case.kubectl_with(&create, &free.to_string()).await?;
    // The Job controller may create pods: the Job of the run has one.
    case.kubectl(&[
        "wait",
        "--for=jsonpath={.status.active}=1",
        &format!("job/{name}"),
        "--timeout=300s",
    ])
    .await?;
    for policy in ["owned", "job-pods"] {
        let named = format!("{}-{policy}", release(case));
        let path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
        let policy_object = case.plane().get(&format!("{path}/{named}")).await?;
        let warnings = &policy_object["status"]["typeChecking"]["expressionWarnings"];
        ensure!(warnings.is_null(), "{warnings:#}");
        uninstall(case, policy).await?;
    }
    Ok(())
}

#[e2e::test]
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
        ("typo", "unknown field \"spec.template.spec.containers[0].imagePolicy\""),
        ("secret", "a secret argument would be readable in the Job"),
    ] {
        let status = until_phase(case, run, "Error").await?;
        let message = text(&status, "/message");
        ensure!(message.contains(expected), "{message}");
        ensure!(jobs(case, run).await?.is_empty(), "a Job was created");
    }
    Ok(())
}
