//! The walkthroughs of the documentation: every table and status that they show.
//!
//! Generations, hashes, names of pods, times and ages may differ. Where a document waits for a minute, these
//! tests wait for seconds.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use e2e::case::Case;
use e2e::checkout::repository;
use e2e::servers::hook_server::Answer;
use e2e::workload::GAME;
use e2e::workload::table::WORKLOAD;
use e2e::workload::view::{Run, View};
use serde_json::{Value, json};

e2e::tests![
    canary_steps,
    canary_with_a_hook_that_succeeds,
    scale_in_and_update_behind_a_hook,
    a_failed_hook_keeps_its_pod_and_a_retry_releases_it,
    hooks_get_arguments,
];

/// Checks the counts that kubectl get gamedeployment prints.
async fn shows(case: &Case, counts: [i64; 5]) -> Result<()> {
    let table = case.table(&["get", "gamedeployment"]).await?;
    ensure!(table.headings == WORKLOAD, "{table:?}");
    let numbers = counts.iter().map(ToString::to_string);
    let expected: Vec<String> = std::iter::once(GAME.to_owned()).chain(numbers).collect();
    let shown = table.without("AGE");
    ensure!(shown.lines == [expected], "{shown:?}");
    Ok(())
}

/// Checks that kubectl get pod prints exactly these pods as Running, with these RESTARTS.
async fn shows_pods(case: &Case, restarts: &[(&str, i64)]) -> Result<()> {
    let table = case.table(&["get", "pod"]).await?;
    let expected: Vec<Vec<String>> = restarts
        .iter()
        .map(|(name, restarts)| {
            let cells = [name, "1/1", "Running", &restarts.to_string()];
            cells.map(str::to_owned).to_vec()
        })
        .collect();
    let mut shown = table.without("AGE");
    for line in &mut shown.lines {
        // "1 (5s ago)"
        line[3] = line[3].split(' ').next().unwrap_or_default().to_owned();
    }
    ensure!(shown.lines == expected, "{shown:?}");
    Ok(())
}

/// Checks the names and phases that kubectl get hookrun prints.
async fn shows_runs(case: &Case, expected: &[(&str, &str)]) -> Result<()> {
    let printed = case.kubectl(&["get", "hookrun"]).await?;
    if expected.is_empty() {
        // "No resources found in NAMESPACE namespace." goes to stderr.
        ensure!(printed.is_empty(), "{printed}");
        return Ok(());
    }
    let table = e2e::workload::table::Table::parse(&printed);
    ensure!(table.headings == ["NAME", "PHASE", "AGE"], "{table:?}");
    let names = table.column("NAME")?;
    let shown: Vec<(&str, &str)> = names.into_iter().zip(table.column("PHASE")?).collect();
    ensure!(shown == expected, "{shown:?} instead of {expected:?}");
    Ok(())
}

fn keys(value: &Value) -> BTreeSet<&str> {
    let object = value.as_object();
    object.map_or_else(BTreeSet::new, |object| {
        object.keys().map(String::as_str).collect()
    })
}

/// Checks that the status has exactly these fields, and these numbers. It also has conditions and
/// currentRevision, which are newer than the documents.
fn check_status(view: &View, fields: &[&str], numbers: [(&str, i64); 6]) -> Result<()> {
    let mut found = keys(&view.game["status"]);
    ensure!(
        found.remove("conditions") && found.remove("currentRevision"),
        "{found:?}"
    );
    let expected: BTreeSet<&str> = fields.iter().copied().collect();
    ensure!(
        found == expected,
        "fields {found:?} instead of {expected:?}"
    );
    for (name, number) in numbers {
        let found = view.number(&format!("/status/{name}"));
        ensure!(found == number, "{name} is {found} instead of {number}");
    }
    Ok(())
}

fn counts_of_status(all: i64, updated: i64) -> [(&'static str, i64); 6] {
    [
        ("availableReplicas", all),
        ("collisionCount", 0),
        ("readyReplicas", all),
        ("replicas", all),
        ("updatedReadyReplicas", updated),
        ("updatedReplicas", updated),
    ]
}

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
    ensure!(
        view.is_paused() && view.step() == step,
        "{}",
        view.summary()
    );
    ensure!(view.text("/status/labelSelector") == format!("app={GAME}"));
    ensure!(view.text("/status/canary/revision") == stable);
    ensure!(view.text("/status/updateRevision") != stable);
    ensure!(view.is_observed(), "{}", view.summary());
    let pauses = view.game["status"]["pauseConditions"]
        .as_array()
        .context("pauseConditions")?;
    ensure!(
        pauses.len() == 1 && pauses[0]["reason"] == reason,
        "{pauses:?}"
    );
    ensure!(
        keys(&pauses[0]) == BTreeSet::from(["reason", "startTime"]),
        "{pauses:?}"
    );
    Ok(())
}

/// An example, with shorter durations and the URL of the test's server.
fn example(case: &Case, name: &str, changes: &[(&str, &str)]) -> Result<String> {
    let path = repository().join("examples").join(name);
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let server = case.hooks.url("");
    let port = format!(":{}", case.hooks.port());
    let usual = [
        ("http://1.1.1.1:9091", server.as_str()),
        (":9091", &port),
        ("gracePeriodSeconds: 30", "gracePeriodSeconds: 1"),
    ];
    let changes = usual.iter().chain(changes);
    Ok(changes.fold(text, |text, (from, to)| text.replace(from, to)))
}

fn canary_example(case: &Case) -> Result<String> {
    example(
        case,
        "canary/gamedeployment.yaml",
        &[("duration: 60", "duration: 4")],
    )
}

/// The documented template: two measurements, with a condition on the age.
fn canary_template(case: &Case, changes: &[(&str, &str)]) -> Result<String> {
    let template = example(
        case,
        "canary/hooktemplate.yaml",
        &[("interval: 60s", "interval: 2s")],
    )?;
    Ok(changes
        .iter()
        .fold(template, |text, (from, to)| text.replace(from, to)))
}

async fn created(case: &Case, template: String, game: String, replicas: i64) -> Result<View> {
    let printed = case.apply(template).await?;
    ensure!(
        printed == "hooktemplate.tkex.tencent.com/test created\n",
        "{printed}"
    );
    let printed = case.apply(game).await?;
    ensure!(
        printed == format!("gamedeployment.tkex.tencent.com/{GAME} created\n"),
        "{printed}"
    );
    let view = case.until_settled(replicas).await?;
    shows(case, [replicas; 5]).await?;
    Ok(view)
}

async fn update_to_python_3_5(case: &Case) -> Result<()> {
    let image = json!([{"op": "replace",
        "path": "/spec/template/spec/containers/0/image", "value": "python:3.5"}]);
    let printed = case.patch(&format!("gamedeployment/{GAME}"), image).await?;
    ensure!(
        printed == format!("gamedeployment.tkex.tencent.com/{GAME} patched\n"),
        "{printed}"
    );
    Ok(())
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

async fn canary_steps(case: &mut Case) -> Result<()> {
    let view = created(case, canary_template(case, &[])?, canary_example(case)?, 4).await?;
    let stable = view.text("/status/canary/revision").to_owned();

    update_to_python_3_5(case).await?;
    let view = until_paused(case, "PausedByCanaryPauseStep", 1).await?;
    check_pause(&view, "PausedByCanaryPauseStep", 1, 1, &stable)?;
    shows(case, [4, 1, 1, 4, 4]).await?;
    case.consistently("one pod is updated", 2, |view| {
        view.with_image("python:3.5") == 1
    })
    .await?;

    case.resume().await?;
    let view = until_paused(case, "PausedByCanaryPauseStep", 3).await?;
    check_pause(&view, "PausedByCanaryPauseStep", 3, 2, &stable)?;
    shows(case, [4, 2, 2, 4, 4]).await?;

    // The pause ends after its duration, and the hook fails.
    let view = until_paused(case, "PausedByStepBasedHook", 4).await?;
    check_pause(&view, "PausedByStepBasedHook", 4, 2, &stable)?;
    let run = format!(
        "canary-step-hook-{}-4-test",
        view.text("/status/updateRevision")
    );
    ensure!(
        view.text("/status/canary/currentStepHookRun") == run,
        "{}",
        view.summary()
    );
    shows_runs(case, &[(&run, "Failed")]).await?;
    check_failed_run(case, view.runs.first().context("a HookRun")?).await?;

    case.resume().await?;
    let view = case.until_settled(4).await?;
    shows(case, [4, 4, 4, 4, 4]).await?;
    view.ensure(view.step() == 5 && view.ready_with("python:3.5") == 4)?;
    view.ensure(view.pods.iter().all(|pod| pod.restarts() == 1))
}

async fn check_failed_run(case: &Case, run: &Run) -> Result<()> {
    let spec = json!({
        "count": 2, "interval": "2s", "name": "webtest",
        "provider": {"web": {"jsonPath": "{$.age}", "url": case.hooks.url("")}},
        "successCondition": "asInt(result) < 30",
    });
    contains(&run.0["spec"]["metrics"][0], &spec)?;
    let measurement = json!({"phase": "Failed", "value": "45"});
    let result = json!({"count": 1, "failed": 1, "name": "webtest", "phase": "Failed",
        "measurements": [measurement]});
    contains(
        &run.0["status"],
        &json!({"phase": "Failed", "metricResults": [result]}),
    )?;
    for time in [
        "/status/startedAt",
        "/status/metricResults/0/measurements/0/startedAt",
        "/status/metricResults/0/measurements/0/finishedAt",
    ] {
        ensure!(
            run.0.pointer(time).is_some_and(Value::is_string),
            "no {time} in {}",
            run.0
        );
    }
    Ok(())
}

/// Checks that an object contains the expected fields. It may have more.
fn contains(found: &Value, expected: &Value) -> Result<()> {
    match (found, expected) {
        (Value::Object(found), Value::Object(expected)) => {
            for (key, value) in expected {
                let inner = found
                    .get(key)
                    .with_context(|| format!("no {key} in {found:?}"))?;
                contains(inner, value).with_context(|| key.clone())?;
            }
        }
        (Value::Array(found), Value::Array(expected)) => {
            ensure!(
                found.len() == expected.len(),
                "{found:?} instead of {expected:?}"
            );
            for (found, expected) in found.iter().zip(expected) {
                contains(found, expected)?;
            }
        }
        _ => ensure!(found == expected, "{found} instead of {expected}"),
    }
    Ok(())
}

async fn canary_with_a_hook_that_succeeds(case: &mut Case) -> Result<()> {
    let template = canary_template(case, &[("< 30", "> 30")])?;
    created(case, template, canary_example(case)?, 4).await?;
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
    ensure!(case.hooks.calls("/").len() == 2, "two measurements");
    Ok(())
}

/// The documented template for pod hooks. It measures three times at intervals of 5 s, which is enough to
/// check the tables in between.
fn pod_template(case: &Case, name: &str) -> Result<String> {
    let name = format!("hooks/hook-template-{name}.yaml");
    example(case, &name, &[("interval: 60s", "interval: 5s")])
}

fn pod_example(case: &Case, name: &str) -> Result<String> {
    example(case, &format!("hooks/{name}.yaml"), &[])
}

fn run_name(pod: &e2e::workload::view::Pod) -> String {
    let instance = pod.name().rsplit('-').next().unwrap_or_default();
    format!("pre-delete-hook-{}-{instance}-test", pod.revision())
}

async fn scale_in_and_update_behind_a_hook(case: &mut Case) -> Result<()> {
    let template = pod_template(case, "success")?;
    let before = created(case, template, pod_example(case, "gamedeployment")?, 6).await?;
    let printed = case
        .kubectl(&["scale", "--replicas=5", &format!("gamedeployment/{GAME}")])
        .await?;
    ensure!(
        printed == format!("gamedeployment.tkex.tencent.com/{GAME} scaled\n"),
        "{printed}"
    );
    let waiting = case
        .until("a hook runs", |view| {
            view.phases("PreDelete") == ["Running"] && waiting_runs(view).len() == 1
        })
        .await?;
    let victim = waiting
        .pods
        .iter()
        .find(|pod| pod.is_deleting())
        .context("a victim")?;
    shows_runs(case, &[(&run_name(victim), "Running")]).await?;
    case.until("the spec is observed", View::is_observed)
        .await?;
    shows(case, [5, 6, 6, 6, 6]).await?;
    let all: Vec<(&str, i64)> = before.pods.iter().map(|pod| (pod.name(), 0)).collect();
    shows_pods(case, &all).await?;
    let view = case.until_settled(5).await?;
    view.ensure(!view.pod_names().contains(&victim.name()))?;
    shows(case, [5; 5]).await?;
    shows_runs(case, &[]).await?;

    update_to_python_3_5(case).await?;
    let view = case
        .until("two hooks run", |view| {
            view.phases("PreDelete") == ["Running"; 2] && waiting_runs(view).len() == 2
        })
        .await?;
    let waiting = waiting_runs(&view);
    let names: Vec<(&str, &str)> = waiting
        .iter()
        .map(|name| (name.as_str(), "Running"))
        .collect();
    shows_runs(case, &names).await?;
    shows(case, [5, 0, 0, 5, 5]).await?;
    let batch = |updated: i64| move |view: &View| view.counts() == [5, updated, updated, 5, 5];
    case.until("the first batch of two", batch(2)).await?;
    let view = case
        .until("one hook runs", |view| {
            view.phases("PreDelete") == ["Running"]
        })
        .await?;
    view.ensure(view.runs.len() == 1 && view.counts() == [5, 2, 2, 5, 5])?;
    let view = case
        .until("the second batch of one", |view| {
            batch(3)(view) && view.runs.is_empty()
        })
        .await?;
    shows(case, [5, 3, 3, 5, 5]).await?;
    let restarts: Vec<(&str, i64)> = view
        .pods
        .iter()
        .map(|pod| (pod.name(), i64::from(pod.image() == "python:3.5")))
        .collect();
    shows_pods(case, &restarts).await?;
    shows_runs(case, &[]).await?;
    case.consistently("the partition", 2, |view| {
        view.with_image("python:3.5") == 3
    })
    .await
}

/// Names of the HookRuns of pods that wait for deletion, in kubectl's order.
fn waiting_runs(view: &View) -> Vec<String> {
    let waiting = view.pods.iter().filter(|pod| pod.is_deleting());
    let mut names: Vec<String> = waiting.map(run_name).collect();
    names.sort();
    names
}

async fn a_failed_hook_keeps_its_pod_and_a_retry_releases_it(case: &mut Case) -> Result<()> {
    let template = pod_template(case, "fail")?;
    created(case, template, pod_example(case, "gamedeployment")?, 6).await?;
    case.scale(5).await?;
    let view = case
        .until("the hook has failed", |view| {
            view.hook_conditions("preDelete").len() == 1
        })
        .await?;
    let victim = view
        .pods
        .iter()
        .find(|pod| pod.is_deleting())
        .context("a victim")?;
    shows(case, [5, 6, 6, 6, 6]).await?;
    shows_runs(case, &[(&run_name(victim), "Failed")]).await?;
    let fields = [
        "availableReplicas",
        "canary",
        "collisionCount",
        "labelSelector",
        "observedGeneration",
        "preDeleteHookCondition",
        "readyReplicas",
        "replicas",
        "updateRevision",
        "updatedReadyReplicas",
        "updatedReplicas",
    ];
    check_status(&view, &fields, counts_of_status(6, 6))?;
    ensure!(view.hook_conditions("preDelete") == [(victim.name(), "Failed")]);
    let start = &view.game["status"]["preDeleteHookCondition"][0]["startTime"];
    ensure!(start.is_string(), "{start}");

    // The cause is fixed: the answer is below 30 now.
    let young = json!({"name": "bryan", "male": "yes", "age": 20});
    case.hooks.answer("/", Answer::Json(young));
    let retry =
        json!([{"op": "replace", "path": "/spec/preDeleteUpdateStrategy/retry", "value": true}]);
    let printed = case.patch(&format!("gamedeployment/{GAME}"), retry).await?;
    ensure!(
        printed == format!("gamedeployment.tkex.tencent.com/{GAME} patched\n"),
        "{printed}"
    );
    case.until("the hook runs again", |view| {
        view.phases("PreDelete") == ["Running"]
    })
    .await?;
    shows_runs(case, &[(&run_name(victim), "Running")]).await?;
    let after = case.until_settled(5).await?;
    after.ensure(!after.pod_names().contains(&victim.name()))?;
    after.ensure(after.game["spec"]["preDeleteUpdateStrategy"]["retry"] == false)
}

async fn hooks_get_arguments(case: &mut Case) -> Result<()> {
    let url = format!("http://{{{{ args.PodIP }}}}:{}", case.hooks.port());
    let service = "test-gamedeployment-svc.default.svc.cluster.local";
    let template = pod_template(case, "args")?;
    let game = pod_example(case, "gamedeployment-args")?;
    created(case, template, game, 4).await?;
    case.scale(2).await?;
    let view = case
        .until("two hooks have measured once", |view| {
            let measured = |run: &Run| run.0["status"]["metricResults"][0]["count"] == 1;
            view.runs.len() == 2 && view.runs.iter().all(measured) && waiting_runs(view).len() == 2
        })
        .await?;
    let expected = waiting_runs(&view);
    ensure!(
        view.run_names() == expected,
        "{:?} instead of {expected:?}",
        view.run_names()
    );
    let mut called = Vec::new();
    for run in &view.runs {
        let pod = view.pod(&format!("{GAME}-{}", run.instance()))?;
        check_argument_run(case, &view, run, pod, service, &url)?;
        called.push(pod.ip()?);
    }
    let calls = case.hooks.calls("/");
    ensure!(
        calls.iter().all(|call| called.contains(&call.to)),
        "{calls:?}"
    );
    let view = case.until_settled(2).await?;
    shows(case, [2; 5]).await?;
    let remaining: Vec<(&str, i64)> = view.pods.iter().map(|pod| (pod.name(), 0)).collect();
    shows_pods(case, &remaining).await?;
    shows_runs(case, &[]).await
}

fn check_argument_run(
    case: &Case,
    view: &View,
    run: &Run,
    pod: &e2e::workload::view::Pod,
    service: &str,
    url: &str,
) -> Result<()> {
    let labels = json!({"InstanceID": run.instance(), "PodControllerRevision": pod.revision(),
        "gamedeployment-type": "PreDelete", "hookrun-type": "pre-delete-step",
        "workload-revision": pod.revision(), "instance-id": run.instance()});
    ensure!(
        run.0["metadata"]["labels"] == labels,
        "{}",
        run.0["metadata"]
    );
    let owner = json!([{"apiVersion": "tkex.tencent.com/v1alpha1", "blockOwnerDeletion": true,
        "controller": true, "kind": "GameDeployment", "name": GAME,
        "uid": view.game["metadata"]["uid"]}]);
    ensure!(
        run.0["metadata"]["ownerReferences"] == owner,
        "{}",
        run.0["metadata"]
    );
    let args = json!([
        {"name": "PodIP", "value": pod.ip()?.to_string()},
        {"name": "PodName", "value": pod.name()},
        {"name": "PodNamespace", "value": case.namespace},
        {"name": "service-name", "value": service},
    ]);
    ensure!(
        run.0["spec"]["args"] == args,
        "{} instead of {args}",
        run.0["spec"]["args"]
    );
    let metric = json!({"count": 3, "failureLimit": 2, "interval": "5s", "name": "webtest",
        "provider": {"web": {"jsonPath": "{$.age}", "url": url}},
        "successCondition": "asInt(result) > 30"});
    contains(&run.0["spec"]["metrics"][0], &metric)?;
    let measurement = json!({"phase": "Successful", "value": "45"});
    let result = json!({"count": 1, "measurements": [measurement], "name": "webtest",
        "phase": "Running", "successful": 1});
    contains(
        &run.0["status"],
        &json!({"phase": "Running", "metricResults": [result]}),
    )
}
