//! GameStatefulSets: hooks before a pod is deleted or updated, and after it is updated.

use anyhow::{Result, ensure};
use e2e::case::Case;
use e2e::servers::hook_server::{Answer, example_answer};
use e2e::workload::SET;
use e2e::workload::manifest::{Game, hook_template, retrying_hook_template};
use e2e::workload::view::View;
use serde_json::json;

/// Creates the template of a hook that does not succeed until the test sets another response.
async fn apply_pending_hook(case: &Case) -> Result<()> {
    case.hooks.answer("/", Answer::Json(json!({"age": 10})));
    case.apply(retrying_hook_template("test", &case.hooks.url("/"))).await?;
    Ok(())
}

fn waiting_pods(view: &View) -> Vec<&str> {
    let waiting = view.pods.iter().filter(|pod| pod.waits_for_hook());
    waiting.map(|pod| pod.name()).collect()
}

fn name(ordinal: i64) -> String {
    format!("{SET}-{ordinal}")
}

#[e2e::test]
async fn an_ordered_scale_in_runs_one_hook_at_a_time(case: &mut Case) -> Result<()> {
    case.use_stateful_set();
    apply_pending_hook(case).await?;
    case.apply(Game::ordered(3).pre_delete("test")).await?;
    let view = case.until_settled(3).await?;
    let revision = view.text("/status/updateRevision").to_owned();
    case.scale(1).await?;
    let only_the_highest_waits =
        |view: &View| waiting_pods(view) == [name(2)] && view.runs.len() == 1;
    let view = case.until("the highest ordinal waits", only_the_highest_waits).await?;
    let run = &view.runs[0];
    view.ensure(run.name() == format!("pre-delete-hook-{revision}-2-test"))?;
    view.ensure(run.instance() == "2" && run.point() == "PreDelete")?;
    let labels = &run.0["metadata"]["labels"];
    ensure!(labels["gamestatefulset-type"] == "PreDelete", "{labels}");
    let is_labeled = labels["PodControllerRevision"] == revision.as_str()
        && labels["workload-revision"] == revision.as_str()
        && labels["instance-id"] == "2"
        && labels["hookrun-type"] == "pre-delete-step";
    ensure!(is_labeled, "{labels}");
    case.consistently("no other pod waits", 2, only_the_highest_waits).await?;
    case.hooks.answer("/", example_answer());
    case.until_settled(1).await?;
    Ok(())
}

#[e2e::test]
async fn a_parallel_scale_in_runs_all_hooks_concurrently(case: &mut Case) -> Result<()> {
    case.use_stateful_set();
    apply_pending_hook(case).await?;
    case.apply(Game::parallel(4).pre_delete("test")).await?;
    case.until_settled(4).await?;
    case.scale(1).await?;
    case.until("three pods wait", |view| {
        waiting_pods(view).len() == 3 && view.phases("PreDelete") == ["Running"; 3]
    })
    .await?;
    case.hooks.answer("/", example_answer());
    case.until_settled(1).await?;
    Ok(())
}

#[e2e::test]
async fn a_failed_hook_keeps_its_pod_until_it_is_retried(case: &mut Case) -> Result<()> {
    case.use_stateful_set();
    case.hooks.answer("/", Answer::Json(json!({"age": 10})));
    case.apply(hook_template("test", &case.hooks.url("/"))).await?;
    case.apply(Game::ordered(2).pre_delete("test")).await?;
    case.until_settled(2).await?;
    case.scale(1).await?;
    let blocked = |view: &View| view.hook_conditions("preDelete") == [(name(1).as_str(), "Failed")];
    case.until("the failure is shown", blocked).await?;
    case.consistently("the pod is kept", 2, |view| view.pods.len() == 2).await?;
    case.hooks.answer("/", example_answer());
    case.replace("/spec/preDeleteUpdateStrategy/retry", true).await?;
    let view = case.until_settled(1).await?;
    view.ensure(view.hook_conditions("preDelete").is_empty())
}

#[e2e::test]
async fn a_revert_cancels_a_running_hook(case: &mut Case) -> Result<()> {
    case.use_stateful_set();
    apply_pending_hook(case).await?;
    case.apply(Game::ordered(2).pre_delete("test")).await?;
    let before = case.until_settled(2).await?;
    case.set_image("game:v2").await?;
    case.until("a hook runs", |view| view.phases("PreDelete") == ["Running"]).await?;
    case.set_image("game:v1").await?;
    let view = case.until_settled(2).await?;
    let uids =
        |view: &View| -> Vec<String> { view.pods.iter().map(|pod| pod.uid().to_owned()).collect() };
    view.ensure(waiting_pods(&view).is_empty() && uids(&view) == uids(&before))
}

#[e2e::test]
async fn scaling_back_up_cancels_deletions(case: &mut Case) -> Result<()> {
    case.use_stateful_set();
    apply_pending_hook(case).await?;
    case.apply(Game::parallel(4).pre_delete("test")).await?;
    case.until_settled(4).await?;
    case.scale(1).await?;
    case.until("three pods wait", |view| waiting_pods(view).len() == 3).await?;
    case.scale(3).await?;
    case.until("one pod waits", |view| waiting_pods(view) == [name(3)] && view.runs.len() == 1)
        .await?;
    case.hooks.answer("/", example_answer());
    case.until_settled(3).await?;
    Ok(())
}

#[e2e::test]
async fn an_update_does_not_wait_for_a_pod_to_be_deleted(case: &mut Case) -> Result<()> {
    case.use_stateful_set();
    case.hooks.answer("/", Answer::Json(json!({"age": 10})));
    let template = retrying_hook_template("test", &case.hooks.url("/"));
    case.apply(template).await?;
    case.apply(Game::ordered(3).updated_by("InplaceUpdate").pre_delete("test").pre_inplace("free"))
        .await?;
    case.apply(hook_template("free", &case.hooks.url("/free"))).await?;
    case.hooks.answer("/free", example_answer());
    case.until_settled(3).await?;
    case.scale(2).await?;
    case.until("the victim waits", |view| waiting_pods(view) == [name(2)]).await?;
    case.set_image("game:v2").await?;
    case.until("the other pods are updated", |view| {
        view.shape() == "0:v2 1:v2 2:v1" && view.ready_with("game:v2") == 2
    })
    .await?;
    case.hooks.answer("/", example_answer());
    case.until_settled(2).await?;
    Ok(())
}

#[e2e::test]
async fn a_new_pod_with_the_same_ordinal_runs_its_own_hook(case: &mut Case) -> Result<()> {
    case.use_stateful_set();
    apply_pending_hook(case).await?;
    case.apply(Game::ordered(2).pre_delete("test")).await?;
    case.until_settled(2).await?;
    case.scale(1).await?;
    let first = case.until("a hook runs", |view| view.runs.len() == 1).await?;
    case.delete_pod(&name(1)).await?;
    case.until("the pod is deleted", |view| view.pods.len() == 1).await?;
    case.scale(2).await?;
    case.until_settled(2).await?;
    case.scale(1).await?;
    let second = case
        .until("a hook runs for the new pod", |view| view.phases("PreDelete") == ["Running"])
        .await?;
    second.ensure(second.runs[0].name() == first.runs[0].name())?;
    second.ensure(second.runs[0].uid() != first.runs[0].uid())?;
    case.hooks.answer("/", example_answer());
    case.until_settled(1).await?;
    Ok(())
}

#[e2e::test]
async fn pre_and_post_inplace_guard_an_update(case: &mut Case) -> Result<()> {
    case.use_stateful_set();
    for (hook, path) in [("before", "/before"), ("after", "/after")] {
        case.hooks.answer(path, Answer::Json(json!({"age": 10})));
        case.apply(retrying_hook_template(hook, &case.hooks.url(path))).await?;
    }
    let game = Game::ordered(2).updated_by("InplaceUpdate");
    case.apply(game.pre_inplace("before").post_inplace("after")).await?;
    case.until_settled(2).await?;
    case.set_image("game:v2").await?;
    let only_run_is = |view: &View, point: &str| {
        view.phases(point) == ["Running"] && view.runs.len() == 1 && view.runs[0].instance() == "1"
    };
    let waits_for_change = |view: &View| only_run_is(view, "PreInplace");
    case.until("the first hook runs", waits_for_change).await?;
    case.consistently("no pod is changed", 2, |view| {
        waits_for_change(view) && view.shape() == "0:v1 1:v1"
    })
    .await?;
    case.hooks.answer("/before", example_answer());
    let waits_for_traffic =
        |view: &View| only_run_is(view, "PostInplace") && view.shape() == "0:v1 1:v2";
    case.until("the second hook runs", waits_for_traffic).await?;
    case.consistently("the changed pod is not ready", 2, |view| {
        waits_for_traffic(view) && !view.pods[1].is_ready()
    })
    .await?;
    case.hooks.answer("/after", example_answer());
    let view = case.until_settled(2).await?;
    view.ensure(view.shape() == "0:v2 1:v2")
}

#[e2e::test]
async fn a_restarted_operator_continues_a_deletion(case: &mut Case) -> Result<()> {
    case.use_stateful_set();
    apply_pending_hook(case).await?;
    case.apply(Game::ordered(4).pre_delete("test")).await?;
    case.until_settled(4).await?;
    case.scale(2).await?;
    let waits = |view: &View| waiting_pods(view) == [name(3)] && view.runs.len() == 1;
    let before = case.until("the highest ordinal waits", waits).await?;
    case.kill_operator().await?;
    case.operator.start().await?;
    case.until_planned(&case.workload()).await?;
    case.consistently("the pod still waits", 2, waits).await?;
    let after = case.view().await?;
    after.ensure(after.runs[0].uid() == before.runs[0].uid())?;
    case.hooks.answer("/", example_answer());
    case.until_settled(2).await?;
    Ok(())
}
