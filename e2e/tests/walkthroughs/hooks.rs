//! The walkthrough of deletions and updates that wait for a hook.

use anyhow::{Context, Result, ensure};
use e2e::case::Case;
use e2e::servers::hook_server::Answer;
use e2e::workload::GAME;
use e2e::workload::view::{Pod, Run, View};
use serde_json::json;

use super::{
    check_contains, check_counts, check_pods, check_runs, check_status, counts_of_status, create,
    example, scale, update_to_python_3_5,
};

/// A documented template for pod hooks. It measures three times at intervals of 20 s, which is long enough to check the
/// tables in between, even under load.
fn pod_hook_template(case: &Case, name: &str) -> Result<String> {
    let name = format!("hooks/hook-template-{name}.yaml");
    example(case, &name, &[("interval: 60s", "interval: 20s")])
}

fn workload_example(case: &Case, name: &str) -> Result<String> {
    example(case, &format!("hooks/{name}.yaml"), &[])
}

fn run_name(pod: &Pod) -> String {
    let instance = pod.name().rsplit('-').next().unwrap_or_default();
    format!("pre-delete-hook-{}-{instance}-test", pod.revision())
}

#[e2e::test]
pub(super) async fn a_scale_in_and_an_update_wait_for_a_hook(case: &mut Case) -> Result<()> {
    let template = pod_hook_template(case, "success")?;
    let before = create(case, template, workload_example(case, "gamedeployment")?, 6).await?;
    scale(case, 5).await?;
    let waiting = case
        .until("a hook runs", |view| {
            view.phases("PreDelete") == ["Running"] && waiting_runs(view).len() == 1
        })
        .await?;
    let victim = waiting.pods.iter().find(|pod| pod.waits_for_hook()).context("no victim")?;
    check_runs(case, &[(&run_name(victim), "Running")]).await?;
    case.until("the spec is observed", View::is_observed).await?;
    check_counts(case, [5, 6, 6, 6, 6]).await?;
    let all: Vec<(&str, i64)> = before.pods.iter().map(|pod| (pod.name(), 0)).collect();
    check_pods(case, &all).await?;
    let view = case.until_settled(5).await?;
    view.ensure(!view.pod_names().contains(&victim.name()))?;
    check_counts(case, [5; 5]).await?;
    check_runs(case, &[]).await?;

    update_to_python_3_5(case).await?;
    let view = case
        .until("two hooks run", |view| {
            view.phases("PreDelete") == ["Running"; 2] && waiting_runs(view).len() == 2
        })
        .await?;
    let waiting = waiting_runs(&view);
    let names: Vec<(&str, &str)> = waiting.iter().map(|name| (name.as_str(), "Running")).collect();
    check_runs(case, &names).await?;
    check_counts(case, [5, 0, 0, 5, 5]).await?;
    let batch = |updated: i64| move |view: &View| view.counts() == [5, updated, updated, 5, 5];
    case.until("the first batch, of two pods, is updated", batch(2)).await?;
    let view = case.until("one hook runs", |view| view.phases("PreDelete") == ["Running"]).await?;
    view.ensure(view.runs.len() == 1 && view.counts() == [5, 2, 2, 5, 5])?;
    let view = case
        .until("the second batch, of one pod, is updated", |view| {
            batch(3)(view) && view.runs.is_empty()
        })
        .await?;
    check_counts(case, [5, 3, 3, 5, 5]).await?;
    let restarts: Vec<(&str, i64)> =
        view.pods.iter().map(|pod| (pod.name(), i64::from(pod.image() == "python:3.5"))).collect();
    check_pods(case, &restarts).await?;
    check_runs(case, &[]).await?;
    case.consistently("the partition holds", 2, |view| view.count_with("python:3.5") == 3).await
}

/// Names of the HookRuns of pods that wait for a hook, in kubectl's order.
fn waiting_runs(view: &View) -> Vec<String> {
    let waiting = view.pods.iter().filter(|pod| pod.waits_for_hook());
    let mut names: Vec<String> = waiting.map(run_name).collect();
    names.sort();
    names
}

#[e2e::test]
pub(super) async fn a_failed_hook_keeps_its_pod_until_it_is_retried(case: &mut Case) -> Result<()> {
    let template = pod_hook_template(case, "fail")?;
    create(case, template, workload_example(case, "gamedeployment")?, 6).await?;
    scale(case, 5).await?;
    let view = case
        .until("the hook has failed", |view| view.hook_conditions("preDelete").len() == 1)
        .await?;
    let victim = view.pods.iter().find(|pod| pod.waits_for_hook()).context("no victim")?;
    check_counts(case, [5, 6, 6, 6, 6]).await?;
    check_runs(case, &[(&run_name(victim), "Failed")]).await?;
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
    case.act("/spec/preDeleteUpdateStrategy/retry", true).await?;
    case.until("the hook runs again", |view| view.phases("PreDelete") == ["Running"]).await?;
    check_runs(case, &[(&run_name(victim), "Running")]).await?;
    let after = case.until_settled(5).await?;
    after.ensure(!after.pod_names().contains(&victim.name()))?;
    after.ensure(after.game["spec"]["preDeleteUpdateStrategy"]["retry"] == false)
}

#[e2e::test]
pub(super) async fn hooks_get_arguments(case: &mut Case) -> Result<()> {
    let url = format!("http://{{{{ args.PodIP }}}}:{}", case.hooks.port());
    let service = "test-gamedeployment-svc.default.svc.cluster.local";
    let template = pod_hook_template(case, "args")?;
    let game = workload_example(case, "gamedeployment-args")?;
    create(case, template, game, 4).await?;
    scale(case, 2).await?;
    let view = case
        .until("two hooks have measured once", |view| {
            let measured = |run: &Run| run.0["status"]["metricResults"][0]["count"] == 1;
            view.runs.len() == 2 && view.runs.iter().all(measured) && waiting_runs(view).len() == 2
        })
        .await?;
    let expected = waiting_runs(&view);
    ensure!(view.run_names() == expected, "{:?} instead of {expected:?}", view.run_names());
    let mut called = Vec::new();
    for run in &view.runs {
        let pod = view.pod(&format!("{GAME}-{}", run.instance()))?;
        check_argument_run(case, &view, run, pod, service, &url)?;
        called.push(pod.ip()?);
    }
    let calls = case.hooks.calls("/");
    ensure!(calls.iter().all(|call| called.contains(&call.address)), "{calls:?}");
    let view = case.until_settled(2).await?;
    check_counts(case, [2; 5]).await?;
    let remaining: Vec<(&str, i64)> = view.pods.iter().map(|pod| (pod.name(), 0)).collect();
    check_pods(case, &remaining).await?;
    check_runs(case, &[]).await
}

fn check_argument_run(
    case: &Case,
    view: &View,
    run: &Run,
    pod: &Pod,
    service: &str,
    url: &str,
) -> Result<()> {
    let labels = json!({"InstanceID": run.instance(), "PodControllerRevision": pod.revision(),
        "gamedeployment-type": "PreDelete", "hookrun-type": "pre-delete-step",
        "workload-revision": pod.revision(), "instance-id": run.instance()});
    ensure!(run.0["metadata"]["labels"] == labels, "{}", run.0["metadata"]);
    let owner = json!([{"apiVersion": "tkex.tencent.com/v1alpha1", "blockOwnerDeletion": true,
        "controller": true, "kind": "GameDeployment", "name": GAME,
        "uid": view.game["metadata"]["uid"]}]);
    ensure!(run.0["metadata"]["ownerReferences"] == owner, "{}", run.0["metadata"]);
    let args = json!([
        {"name": "PodIP", "value": pod.ip()?.to_string()},
        {"name": "PodName", "value": pod.name()},
        {"name": "PodNamespace", "value": case.namespace},
        {"name": "service-name", "value": service},
    ]);
    ensure!(run.0["spec"]["args"] == args, "{} instead of {args}", run.0["spec"]["args"]);
    let metric = json!({"count": 3, "failureLimit": 2, "interval": "20s", "name": "webtest",
        "provider": {"web": {"jsonPath": "{$.age}", "url": url}},
        "successCondition": "asInt(result) > 30"});
    check_contains(&run.0["spec"]["metrics"][0], &metric)?;
    let measurement = json!({"phase": "Successful", "value": "45"});
    let result = json!({"count": 1, "measurements": [measurement], "name": "webtest",
        "phase": "Running", "successful": 1});
    check_contains(&run.0["status"], &json!({"phase": "Running", "metricResults": [result]}))
}
