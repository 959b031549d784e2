//! Manifests with every field of bk-bcs' newest CRDs: each field is stored, and takes effect. `tests/fields.rs`
//! checks that no field is missing from the manifests.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use e2e::addons::prometheus::Prometheus;
use e2e::case::Case;
use e2e::checkout::repository;
use e2e::servers::hook_server::{Answer, example_answer};
use e2e::workload::view::{Run, View};
use e2e::workload::{GAME, SET};
use judge::object::text;
use serde_json::{Value, json};

mod written;

use crate::run::until_phase;
use crate::stateful_volumes::create_volumes;
use written::{
    ensure_run_with, ensure_status_is_complete, images_by_pod, most_in_progress, shortest_grace,
};

/// The parts of a workload's status that are not set in this history.
const NEVER_SET: [&str; 5] = [
    "status.protection",
    "status.causes[].container",
    "status.causes[].node",
    "status.causes[].pods",
    "status.earlierStableRevisions",
];

/// A manifest of `e2e/manifests/bk-bcs` that refers to the test's servers and storage class. Its short times are
/// extended: under load, a response may take longer than a second, and a test may notice a pause only after seconds.
fn manifest(case: &Case, name: &str, prometheus: &str) -> Result<Value> {
    let path = repository().join(format!("e2e/manifests/bk-bcs/{name}.yaml"));
    let text = std::fs::read_to_string(path)?;
    let text = text
        .replace("http://hooks", &case.hooks.url(""))
        .replace("http://prometheus", prometheus)
        .replace("test-class", &case.namespace)
        .replace("timeoutSeconds: 1\n", "timeoutSeconds: 10\n")
        .replace("pause: {duration: 4}", "pause: {duration: 20}");
    Ok(serde_yaml_ng::from_str(&text)?)
}

/// The template `room`, whose argument is a path.
fn room_template(case: &Case) -> Value {
    json!({
        "apiVersion": "tkex.tencent.com/v1alpha1",
        "kind": "HookTemplate",
        "metadata": {"name": "room"},
        "spec": {
            "args": [{"name": "room"}],
            "metrics": [{
                "name": "open",
                "successCondition": "asInt(result) > 30",
                "provider": {"web": {"url": case.hooks.url("/{{ args.room }}"), "jsonPath": "{$.age}"}},
            }],
        },
    })
}

/// Whether a stored value contains everything that was written.
fn contains_all(stored: &Value, written: &Value) -> bool {
    match (stored, written) {
        (Value::Object(stored), Value::Object(written)) => written
            .iter()
            .all(|(key, value)| stored.get(key).is_some_and(|it| contains_all(it, value))),
        (Value::Array(stored), Value::Array(written)) => {
            let mut pairs = stored.iter().zip(written);
            stored.len() == written.len()
                && pairs.all(|(stored, written)| contains_all(stored, written))
        }
        _ => stored == written,
    }
}

#[e2e::test]
async fn every_field_is_stored_as_written(case: &mut Case) -> Result<()> {
    case.operator.terminate().await?;
    for (name, resource) in [
        ("hook-template", "hooktemplates/every-field".to_owned()),
        ("hook-run", "hookruns/every-field".to_owned()),
        ("game-deployment", format!("gamedeployments/{GAME}")),
        ("game-stateful-set", format!("gamestatefulsets/{SET}")),
    ] {
        let written = manifest(case, name, "http://prometheus")?;
        let apply = ["apply", "--validate=strict", "-f", "-"];
        case.kubectl_with(&apply, &written.to_string()).await?;
        let stored = case.get(&resource).await?;
        ensure!(contains_all(&stored["spec"], &written["spec"]), "{stored:#}");
    }
    Ok(())
}

/// Applies a workload with its hooks while no operator runs, then starts the operator.
async fn apply_with_hooks(case: &mut Case, name: &str) -> Result<Prometheus> {
    let prometheus = Prometheus::scrape(case, &[]).await?;
    case.hooks.answer("/players", Answer::Json(json!({"players": 0})));
    case.operator.terminate().await?;
    case.operator.allow_commands();
    case.apply(room_template(case)).await?;
    for name in ["hook-template", name] {
        let manifest = manifest(case, name, &prometheus.url)?;
        case.apply(&manifest).await?;
    }
    case.operator.start().await?;
    Ok(prometheus)
}

/// Sets the image of each container to a version.
async fn set_version(case: &Case, containers: &[&str], version: &str) -> Result<()> {
    let containers = containers.iter().enumerate();
    let patch: Vec<Value> = containers
        .map(|(index, name)| {
            let path = format!("/spec/template/spec/containers/{index}/image");
            json!({"op": "replace", "path": path, "value": format!("{name}:{version}")})
        })
        .collect();
    case.patch(&case.workload(), json!(patch)).await?;
    Ok(())
}

fn retries_are_off(view: &View) -> bool {
    ["preDelete", "preInplace", "postInplace"].iter().all(|point| {
        let retry = &view.game["spec"][format!("{point}UpdateStrategy")]["retry"];
        retry.is_null() || *retry == false
    })
}

/// Waits until all hooks of a point have failed while their pods still exist, and retries them with another answer.
async fn retry_failed(case: &Case, point: &str, path: &str, good: Answer) -> Result<()> {
    let view = case
        .until("the status names the pods whose hooks failed", |view| {
            let is_at_point = |run: &&Run| run.point().eq_ignore_ascii_case(point);
            let runs = view.runs.iter().filter(is_at_point).count();
            // A hook that fails after the retry would not be retried.
            runs > 0 && view.hook_conditions(point).len() == runs
        })
        .await?;
    for (pod, phase) in view.hook_conditions(point) {
        view.ensure(phase == "Failed" && view.pod(pod).is_ok())?;
    }
    case.hooks.answer(path, good);
    case.eventually("the hook is retried", async || {
        let view = case.view().await?;
        let has_failed = !view.hook_conditions(point).is_empty();
        if has_failed && retries_are_off(&view) {
            let retry = format!("/spec/{point}UpdateStrategy/retry");
            case.replace(&retry, true).await?;
        }
        view.ensure(!has_failed && retries_are_off(&view))
    })
    .await
}

/// Starts an update to v2. The hooks before and after the first pod's update fail, and are retried.
async fn update_with_retries(case: &Case, containers: &[&str]) -> Result<()> {
    let hooks = [("preInplace", "/before"), ("postInplace", "/after")];
    for (_, path) in hooks {
        case.hooks.answer(path, Answer::Json(json!({"age": 10})));
    }
    set_version(case, containers, "v2").await?;
    for (point, path) in hooks {
        retry_failed(case, point, path, example_answer()).await?;
    }
    Ok(())
}

/// Waits until all steps of an update are completed (a partition, a pause with a duration, and a hook), and all pods
/// are updated.
async fn finish_steps(case: &Case, replicas: i64) -> Result<()> {
    let view = case
        .until("the pause step pauses", |view| view.pause_reasons() == ["PausedByCanaryPauseStep"])
        .await?;
    view.ensure(view.count_with("game:v2") == 1 && view.step() == 1)?;
    let most = most_in_progress(&case.events()?);
    ensure!(
        most == 1,
        "{most} pods were updated at the same time, although the partition lets only one be updated"
    );
    let view = case.until_settled(replicas).await?;
    view.ensure(view.ready_with("game:v2") == usize::try_from(replicas)? && view.step() == 3)?;
    for room in ["step", "before", "after"] {
        ensure_run_with(case, "room", "room", room)?;
        ensure!(!case.hooks.calls(&format!("/{room}")).is_empty(), "{room}");
    }
    let most = most_in_progress(&case.events()?);
    ensure!(most == 2, "{most} pods were updated at the same time, not 2 (maxUnavailable)");
    Ok(())
}

/// Recreates all pods except one that the partition keeps: without steps, with a surge pod, after the PreDelete hook.
async fn recreate_all_but_one(
    case: &Case,
    partition: &str,
    containers: &[&str],
    pods: usize,
) -> Result<View> {
    let patch = json!([
        {"op": "remove", "path": "/spec/updateStrategy/canary"},
        {"op": "replace", "path": "/spec/updateStrategy/type", "value": "RollingUpdate"},
    ]);
    case.patch(&case.workload(), patch).await?;
    case.replace(partition, 1).await?;
    let players = |number: i64| Answer::Json(json!({"players": number}));
    case.hooks.answer("/players", players(5));
    set_version(case, containers, "v3").await?;
    // It stays until the hooks allow the other pods to be deleted.
    case.until("a surge pod is created", |view| view.pods.len() > pods).await?;
    retry_failed(case, "preDelete", "/players", players(0)).await?;
    let view = case
        .until("one pod keeps its revision", |view| {
            view.pods.len() == pods && view.ready_with("game:v3") == pods - 1
        })
        .await?;
    ensure_run_with(case, "every-field", "limit", "0")?;
    Ok(view)
}

#[e2e::test]
async fn every_field_of_a_game_deployment_takes_effect(case: &mut Case) -> Result<()> {
    let prometheus = apply_with_hooks(case, "game-deployment").await?;
    let containers = ["game", "voice"];
    // The judge checks that the first pods are created in batches.
    let view = case.until_settled(4).await?;
    let gate = "/spec/readinessGates/0/conditionType";
    view.ensure(view.pods.iter().all(|pod| text(&pod.0, gate) == "InPlaceUpdateReady"))?;
    let listed = view.game.pointer("/spec/scaleStrategy/podsToDelete");
    ensure!(listed.is_none_or(|it| *it == json!([])), "podsToDelete: {listed:?}");
    case.until("retry is reset", retries_are_off).await?;

    ensure!(view.text("/status/labelSelector") == "app=arena");

    update_with_retries(case, &containers).await?;
    finish_steps(case, 4).await?;
    let grace = shortest_grace(&case.events()?).context("no gate was closed")?;
    ensure!(
        grace.as_secs() >= 2,
        "traffic was kept away for only {grace:#} before the image changed"
    );
    let images = images_by_pod(&case.events()?);
    let is_one_patch = |changes: &Vec<Vec<String>>| *changes == [["game:v2", "voice:v2"]];
    ensure!(images.len() == 4 && images.values().all(is_one_patch), "{images:?}");

    let view = recreate_all_but_one(case, "/spec/updateStrategy/partition", &containers, 4).await?;
    let status = &view.game["status"];
    view.ensure(status["currentRevision"] != status["updateRevision"])?;
    case.replace("/spec/updateStrategy/partition", 0).await?;
    case.until_settled(4).await?;
    case.eventually("old revisions are deleted", async || {
        let revisions = case.list("controllerrevisions").await?.len();
        ensure!(revisions <= 2, "{revisions} revisions");
        Ok(())
    })
    .await?;
    let view = case.view().await?;
    let named = view.pods.first().context("no pod")?.name().to_owned();
    let path = "/spec/scaleStrategy/podsToDelete";
    let patch = json!([{"op": "add", "path": path, "value": [named]}]);
    case.patch(&case.workload(), patch).await?;
    case.until("the named pod is replaced", |view| {
        !view.pod_names().contains(&named.as_str()) && view.is_settled(4)
    })
    .await?;
    ensure_status_is_complete(case, "gamedeployments", &NEVER_SET)?;
    prometheus.stop().await
}

#[e2e::test]
async fn every_field_of_a_game_stateful_set_takes_effect(case: &mut Case) -> Result<()> {
    case.use_stateful_set();
    create_volumes(case, 8).await?;
    let prometheus = apply_with_hooks(case, "game-stateful-set").await?;
    let containers = ["game", "voice"];
    let view = case.until_settled(3).await?;
    let ordinals = [0, 2, 3].map(|ordinal| format!("{SET}-{ordinal}"));
    let names: BTreeSet<&str> = view.pod_names().into_iter().collect();
    view.ensure(names == ordinals.iter().map(String::as_str).collect())?;
    for pod in &view.pods {
        view.ensure(text(&pod.0, "/spec/subdomain") == "worlds")?;
        view.ensure(pod.0["spec"]["readinessGates"].is_null())?;
        case.get(&format!("persistentvolumeclaims/data-{}", pod.name())).await?;
    }
    case.until("retry is reset", retries_are_off).await?;
    ensure!(view.text("/status/labelSelector") == "app=world");
    update_with_retries(case, &containers).await?;
    finish_steps(case, 3).await?;
    let images = images_by_pod(&case.events()?);
    let is_in_order = |changes: &Vec<Vec<String>>| *changes == [["game:v2"], ["voice:v2"]];
    ensure!(images.len() == 3 && images.values().all(is_in_order), "{images:?}");
    let partition = "/spec/updateStrategy/rollingUpdate/partition";
    let view = recreate_all_but_one(case, partition, &containers, 3).await?;
    view.ensure(view.pod(&ordinals[0])?.image() == "game:v2")?;
    case.until("the status shows the pod at the stable revision", |view| {
        let status = &view.game["status"];
        status["currentReplicas"] == 1 && status["currentRevision"] != status["updateRevision"]
    })
    .await?;
    ensure_status_is_complete(case, "gamestatefulsets", &NEVER_SET)?;
    prometheus.stop().await
}

#[e2e::test]
async fn every_field_of_a_hook_run_takes_effect(case: &mut Case) -> Result<()> {
    let prometheus = apply_with_hooks(case, "game-deployment").await?;
    let view = case.until_settled(4).await?;
    let pod = view.pods.first().context("no pod")?.name().to_owned();
    // The judge allows no writes while all workloads are settled, so this workload must not settle.
    case.replace("/spec/updateStrategy/paused", true).await?;
    set_version(case, &["game"], "v2").await?;
    let players = |number: i64| Answer::Json(json!({"players": number}));
    // An error after timeoutSeconds, a failure, an inconclusive measurement, and two successes.
    let answers = [Answer::Never, players(5), players(-1), players(0), players(0)];
    case.hooks.answer_in_sequence("/players", answers);
    let mut run = manifest(case, "hook-run", &prometheus.url)?;
    run["spec"]["args"][0]["value"] = json!(pod);
    case.apply(&run).await?;
    let status = until_phase(case, "every-field", "Successful").await?;
    let results = status["metricResults"].as_array().context("no results")?;
    let names: Vec<&str> = results.iter().map(|it| text(it, "/name")).collect();
    ensure!(names == ["players", "up", "marked", "command"], "{status:#}");
    let expected = json!({
        "phase": "Successful", "count": 4, "successful": 2, "failed": 1, "inconclusive": 1, "error": 1,
        "consecutiveSuccessful": 2,
    });
    ensure!(contains_all(&results[0], &expected), "{status:#}");
    let measurements = results[0]["measurements"].as_array().context("no measurements")?;
    let time = |value: &Value| -> Result<jiff::Timestamp> {
        Ok(value.as_str().context("not a time")?.parse()?)
    };
    let delay = time(&measurements[0]["startedAt"])?.duration_since(time(&status["startedAt"])?);
    ensure!(delay.as_secs() >= 1, "initialDelay: {status:#}");
    let pause =
        time(&measurements[2]["startedAt"])?.duration_since(time(&measurements[1]["finishedAt"])?);
    ensure!(pause.as_secs() >= 1, "interval: {status:#}");
    ensure!(measurements.len() == 5 && measurements[4]["value"] == "0", "{status:#}");
    let last = &measurements[4]["finishedAt"];
    let next = &results[1]["measurements"][0]["startedAt"];
    ensure!(time(last)? <= time(next)?, "policy Ordered: {status:#}");
    let calls = case.hooks.calls("/players");
    let has_header = |header: Option<&String>| header.is_some_and(|it| it == "0");
    ensure!(calls.iter().all(|call| has_header(call.headers.get("x-limit"))), "{calls:?}");

    run["metadata"]["name"] = json!("ended");
    run["spec"]["terminate"] = json!(true);
    case.apply(&run).await?;
    until_phase(case, "ended", "Inconclusive").await?;
    // A run gets conditions only if it cannot be decoded. The manifest lists no metric as a dry run, and only
    // measurements by Jobs have a Job, and are resumed.
    let never_set = [
        "status.conditions",
        "status.metricResults[].dryRun",
        "status.metricResults[].measurements[].job",
        "status.metricResults[].measurements[].resumeAt",
    ];
    ensure_status_is_complete(case, "hookruns", &never_set)?;
    prometheus.stop().await
}
