//! GameStatefulSets: hooks before a pod dies or changes, and after it changed.

use anyhow::{Result, ensure};
use e2e::case::Case;
use e2e::servers::hook_server::{Answer, bryan};
use e2e::workload::SET;
use e2e::workload::manifest::{Game, hook_template, patient_hook_template};
use e2e::workload::view::View;
use serde_json::json;

e2e::tests![
    an_ordered_removal_waits_for_one_hook_after_the_other,
    a_parallel_removal_asks_all_hooks_at_once,
    a_failed_hook_keeps_its_pod_until_it_is_retried,
    a_revert_while_a_hook_runs_calls_it_off,
    scaling_back_up_calls_deletions_off,
    an_urgent_fix_does_not_wait_for_a_victim,
    a_new_pod_of_an_ordinal_asks_anew,
    pre_and_post_inplace_guard_an_update,
    a_killed_operator_goes_on_where_it_was,
];

/// A hook that says no until it is told otherwise.
async fn undecided(case: &Case) -> Result<()> {
    case.hooks.answer("/", Answer::Json(json!({"age": 10})));
    case.apply(patient_hook_template("test", &case.hooks.url("/")))
        .await?;
    Ok(())
}

fn victims(view: &View) -> Vec<&str> {
    let deleting = view.pods.iter().filter(|pod| pod.is_deleting());
    deleting.map(|pod| pod.name()).collect()
}

fn name(ordinal: i64) -> String {
    format!("{SET}-{ordinal}")
}

async fn an_ordered_removal_waits_for_one_hook_after_the_other(case: &mut Case) -> Result<()> {
    case.is_about_a_set();
    undecided(case).await?;
    case.apply(Game::ordered(3).pre_delete("test")).await?;
    let view = case.until_settled(3).await?;
    let revision = view.text("/status/updateRevision").to_owned();
    case.scale(1).await?;
    let only_the_highest = |view: &View| victims(view) == [name(2)] && view.runs.len() == 1;
    let view = case.until("the highest waits", only_the_highest).await?;
    let run = &view.runs[0];
    view.ensure(run.name() == format!("pre-delete-hook-{revision}-2-test"))?;
    view.ensure(run.instance() == "2" && run.point() == "PreDelete")?;
    let labels = &run.0["metadata"]["labels"];
    ensure!(labels["gamestatefulset-type"] == "PreDelete", "{labels}");
    ensure!(
        labels["PodControllerRevision"] == revision.as_str(),
        "{labels}"
    );
    case.keeps("and nobody else", 2, only_the_highest).await?;
    case.hooks.answer("/", bryan());
    case.until_settled(1).await?;
    Ok(())
}

async fn a_parallel_removal_asks_all_hooks_at_once(case: &mut Case) -> Result<()> {
    case.is_about_a_set();
    undecided(case).await?;
    case.apply(Game::parallel(4).pre_delete("test")).await?;
    case.until_settled(4).await?;
    case.scale(1).await?;
    case.until("three wait", |view| {
        victims(view).len() == 3 && view.phases("PreDelete") == ["Running"; 3]
    })
    .await?;
    case.hooks.answer("/", bryan());
    case.until_settled(1).await?;
    Ok(())
}

async fn a_failed_hook_keeps_its_pod_until_it_is_retried(case: &mut Case) -> Result<()> {
    case.is_about_a_set();
    case.hooks.answer("/", Answer::Json(json!({"age": 10})));
    case.apply(hook_template("test", &case.hooks.url("/")))
        .await?;
    case.apply(Game::ordered(2).pre_delete("test")).await?;
    case.until_settled(2).await?;
    case.scale(1).await?;
    let blocked = |view: &View| view.hook_conditions("preDelete") == [(name(1).as_str(), "Failed")];
    case.until("the failure is shown", blocked).await?;
    case.keeps("the pod stays", 2, |view| view.pods.len() == 2)
        .await?;
    case.hooks.answer("/", bryan());
    case.replace("/spec/preDeleteUpdateStrategy/retry", true)
        .await?;
    let view = case.until_settled(1).await?;
    view.ensure(view.hook_conditions("preDelete").is_empty())
}

async fn a_revert_while_a_hook_runs_calls_it_off(case: &mut Case) -> Result<()> {
    case.is_about_a_set();
    undecided(case).await?;
    case.apply(Game::ordered(2).pre_delete("test")).await?;
    let before = case.until_settled(2).await?;
    case.set_image("game:v2").await?;
    case.until("a hook runs", |view| {
        view.phases("PreDelete") == ["Running"]
    })
    .await?;
    case.set_image("game:v1").await?;
    let view = case.until_settled(2).await?;
    let uids =
        |view: &View| -> Vec<String> { view.pods.iter().map(|pod| pod.uid().to_owned()).collect() };
    view.ensure(victims(&view).is_empty() && uids(&view) == uids(&before))
}

async fn scaling_back_up_calls_deletions_off(case: &mut Case) -> Result<()> {
    case.is_about_a_set();
    undecided(case).await?;
    case.apply(Game::parallel(4).pre_delete("test")).await?;
    case.until_settled(4).await?;
    case.scale(1).await?;
    case.until("three wait", |view| victims(view).len() == 3)
        .await?;
    case.scale(3).await?;
    case.until("one waits", |view| {
        victims(view) == [name(3)] && view.runs.len() == 1
    })
    .await?;
    case.hooks.answer("/", bryan());
    case.until_settled(3).await?;
    Ok(())
}

async fn an_urgent_fix_does_not_wait_for_a_victim(case: &mut Case) -> Result<()> {
    case.is_about_a_set();
    case.hooks.answer("/", Answer::Json(json!({"age": 10})));
    let template = patient_hook_template("test", &case.hooks.url("/"));
    case.apply(template).await?;
    case.apply(
        Game::ordered(3)
            .updated_by("InplaceUpdate")
            .pre_delete("test")
            .pre_inplace("free"),
    )
    .await?;
    case.apply(hook_template("free", &case.hooks.url("/free")))
        .await?;
    case.hooks.answer("/free", bryan());
    case.until_settled(3).await?;
    case.scale(2).await?;
    case.until("the victim waits", |view| victims(view) == [name(2)])
        .await?;
    case.set_image("game:v2").await?;
    case.until("the others are updated", |view| {
        view.shape() == "0:v2 1:v2 2:v1" && view.ready_with("game:v2") == 2
    })
    .await?;
    case.hooks.answer("/", bryan());
    case.until_settled(2).await?;
    Ok(())
}

async fn a_new_pod_of_an_ordinal_asks_anew(case: &mut Case) -> Result<()> {
    case.is_about_a_set();
    undecided(case).await?;
    case.apply(Game::ordered(2).pre_delete("test")).await?;
    case.until_settled(2).await?;
    case.scale(1).await?;
    let first = case
        .until("a hook runs", |view| view.runs.len() == 1)
        .await?;
    case.kubectl(&["delete", "pod", &name(1)]).await?;
    case.until("the pod is gone", |view| view.pods.len() == 1)
        .await?;
    case.scale(2).await?;
    case.until_settled(2).await?;
    case.scale(1).await?;
    let second = case
        .until("a hook runs for the new pod", |view| {
            view.phases("PreDelete") == ["Running"]
        })
        .await?;
    second.ensure(second.runs[0].name() == first.runs[0].name())?;
    second.ensure(second.runs[0].uid() != first.runs[0].uid())?;
    case.hooks.answer("/", bryan());
    case.until_settled(1).await?;
    Ok(())
}

async fn pre_and_post_inplace_guard_an_update(case: &mut Case) -> Result<()> {
    case.is_about_a_set();
    undecided(case).await?;
    let game = Game::ordered(2).updated_by("InplaceUpdate");
    case.apply(game.pre_inplace("test").post_inplace("test"))
        .await?;
    case.until_settled(2).await?;
    case.set_image("game:v2").await?;
    let view = case
        .until("the first hook runs", |view| {
            view.phases("PreInplace") == ["Running"]
        })
        .await?;
    view.ensure(view.runs[0].instance() == "1" && view.runs.len() == 1)?;
    case.hooks.answer("/", bryan());
    let view = case.until_settled(2).await?;
    view.ensure(view.shape() == "0:v2 1:v2")
}

async fn a_killed_operator_goes_on_where_it_was(case: &mut Case) -> Result<()> {
    case.is_about_a_set();
    undecided(case).await?;
    case.apply(Game::ordered(4).pre_delete("test")).await?;
    case.until_settled(4).await?;
    case.scale(2).await?;
    let waits = |view: &View| victims(view) == [name(3)] && view.runs.len() == 1;
    let before = case.until("the highest waits", waits).await?;
    case.kill_operator().await?;
    case.operator.start().await?;
    case.keeps("it still does", 2, waits).await?;
    let after = case.view().await?;
    after.ensure(after.runs[0].uid() == before.runs[0].uid())?;
    case.hooks.answer("/", bryan());
    case.until_settled(2).await?;
    Ok(())
}
