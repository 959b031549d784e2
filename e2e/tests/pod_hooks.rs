//! GameDeployments: hooks before a pod is deleted or updated, and after it is updated.

use anyhow::{Context, Result, ensure};
use e2e::case::Case;
use e2e::servers::hook_server::{Answer, example_answer};
use e2e::workload::GAME;
use e2e::workload::manifest::{Game, hook_template, retrying_hook_template};
use e2e::workload::view::View;
use serde_json::json;

/// Creates the template of a hook that does not succeed until the test sets another response.
async fn apply_pending_hook(case: &Case) -> Result<()> {
    case.hooks.answer("/", Answer::Json(json!({"age": 10})));
    case.apply(retrying_hook_template("test", &case.hooks.url("/"))).await?;
    Ok(())
}

fn pods_waiting_for_hooks(view: &View) -> Vec<String> {
    let waiting = view.pods.iter().filter(|pod| pod.waits_for_hook());
    waiting.map(|pod| pod.name().to_owned()).collect()
}

#[e2e::test]
async fn scaling_back_up_cancels_deletions(case: &mut Case) -> Result<()> {
    apply_pending_hook(case).await?;
    case.apply(Game::in_place(4).pre_delete("test")).await?;
    case.until_settled(4).await?;
    case.scale(1).await?;
    case.until("three pods wait", |view| {
        pods_waiting_for_hooks(view).len() == 3 && view.phases("PreDelete") == ["Running"; 3]
    })
    .await?;
    case.scale(3).await?;
    let view = case
        .until("one pod waits", |view| {
            pods_waiting_for_hooks(view).len() == 1 && view.runs.len() == 1
        })
        .await?;
    let victim = pods_waiting_for_hooks(&view).concat();
    case.hooks.answer("/", example_answer());
    let view = case.until_settled(3).await?;
    view.ensure(!view.pod_names().contains(&victim.as_str()))
}

#[e2e::test]
async fn a_restarted_operator_keeps_its_choice_of_pods(case: &mut Case) -> Result<()> {
    apply_pending_hook(case).await?;
    case.apply(Game::in_place(6).pre_delete("test")).await?;
    case.until_settled(6).await?;
    case.scale(4).await?;
    let chosen = |view: &View| pods_waiting_for_hooks(view).len() == 2 && view.runs.len() == 2;
    let before = case.until("two pods wait", chosen).await?;
    case.kill_operator().await?;
    let others: Vec<&str> = before
        .pod_names()
        .into_iter()
        .filter(|name| !pods_waiting_for_hooks(&before).iter().any(|victim| victim == name))
        .collect();
    // A pod that would now be chosen first must not be deleted in addition to the two.
    let cheap = "controller.kubernetes.io/pod-deletion-cost=-100";
    case.kubectl(&["annotate", "pod", others[0], cheap]).await?;
    case.operator.start().await?;
    case.until_planned(&case.workload()).await?;
    case.consistently("the same two pods wait", 3, |view| {
        pods_waiting_for_hooks(view) == pods_waiting_for_hooks(&before)
    })
    .await?;
    case.hooks.answer("/", example_answer());
    let view = case.until_settled(4).await?;
    view.ensure(view.pod_names() == others)
}

#[e2e::test]
async fn a_missing_hook_template_is_reported_until_it_exists(case: &mut Case) -> Result<()> {
    case.apply(Game::in_place(2).pre_delete("later")).await?;
    case.until_settled(2).await?;
    case.scale(1).await?;
    let view =
        case.until("the missing template is reported", |view| view.is_true("FailedScale")).await?;
    let condition = view.condition("FailedScale").context("no condition FailedScale")?;
    ensure!(condition.reason == "HookTemplateNotFound", "{condition:?}");
    ensure!(condition.message.contains("\"later\""), "{condition:?}");
    expect_event(case, "HookTemplateNotFound", "later").await?;
    view.ensure(view.pods.len() == 2)?;
    case.apply(hook_template("later", &case.hooks.url("/"))).await?;
    let view = case.until_settled(1).await?;
    view.ensure(view.condition("FailedScale").is_none())
}

#[e2e::test]
async fn a_missing_argument_is_reported_until_it_is_given(case: &mut Case) -> Result<()> {
    let mut template = hook_template("test", &case.hooks.url("/{{ args.room }}"));
    template["spec"]["args"] = json!([{"name": "room"}]);
    case.apply(template).await?;
    case.apply(Game::in_place(2).pre_delete("test")).await?;
    case.until_settled(2).await?;
    case.scale(1).await?;
    let view =
        case.until("the missing argument is reported", |view| view.is_true("FailedScale")).await?;
    let condition = view.condition("FailedScale").context("no condition FailedScale")?;
    ensure!(condition.reason == "HookArgumentMissing", "{condition:?}");
    ensure!(condition.message.contains("room"), "{condition:?}");
    expect_event(case, "HookArgumentMissing", "room").await?;
    let args = json!([{"name": "room", "value": "42"}]);
    let add =
        json!([{"op": "add", "path": "/spec/preDeleteUpdateStrategy/hook/args", "value": args}]);
    case.patch(&format!("gamedeployment/{GAME}"), add).await?;
    let view = case.until_settled(1).await?;
    view.ensure(view.condition("FailedScale").is_none())?;
    ensure!(case.hooks.calls("/42").len() == 1, "expected one call with the argument in the URL");
    Ok(())
}

/// Waits for a warning event with this reason and a message that contains these words.
async fn expect_event(case: &Case, reason: &str, words: &str) -> Result<()> {
    case.eventually(&format!("an event {reason}"), async || {
        let events = case.list("events").await?;
        let found = events.iter().any(|event| {
            let text = event["message"].as_str().unwrap_or_default();
            let text =
                if text.is_empty() { event["note"].as_str().unwrap_or_default() } else { text };
            event["reason"] == reason && event["type"] == "Warning" && text.contains(words)
        });
        ensure!(found, "{} events", events.len());
        Ok(())
    })
    .await
}

#[e2e::test]
async fn a_success_is_void_after_a_revert(case: &mut Case) -> Result<()> {
    apply_pending_hook(case).await?;
    case.apply(Game::in_place(1).max_unavailable(1).pre_inplace("test")).await?;
    case.until_settled(1).await?;
    case.set_image("game:v2").await?;
    let hook_is_running = |view: &View| view.phases("PreInplace") == ["Running"];
    let first = case.until("the hook runs", hook_is_running).await?;
    case.kill_operator().await?;
    // While no operator is running, the hook succeeds and the user reverts the update.
    let run = first.runs[0].name();
    let now = jiff::Timestamp::now().to_string();
    let status = json!({"status": {"phase": "Successful", "finishedAt": now}});
    let status = format!("-p={status}");
    case.kubectl(&["patch", "hookrun", run, "--subresource=status", "--type=merge", &status])
        .await?;
    case.set_image("game:v1").await?;
    case.operator.start().await?;
    case.until("the run is canceled", |view| view.runs.is_empty()).await?;
    case.set_image("game:v2").await?;
    let second = case.until("the hook runs again", hook_is_running).await?;
    second.ensure(second.runs[0].uid() != first.runs[0].uid())?;
    case.consistently("the pod is not touched", 2, |view| view.ready_with("game:v1") == 1).await?;
    case.hooks.answer("/", example_answer());
    case.until_settled(1).await?;
    Ok(())
}

#[e2e::test]
async fn a_removed_hook_no_longer_holds_back_deletions(case: &mut Case) -> Result<()> {
    apply_pending_hook(case).await?;
    case.apply(Game::in_place(3).pre_delete("test")).await?;
    case.until_settled(3).await?;
    case.scale(1).await?;
    case.until("two pods wait", |view| view.runs.len() == 2).await?;
    let remove = json!([{"op": "remove", "path": "/spec/preDeleteUpdateStrategy/hook"}]);
    case.patch(&format!("gamedeployment/{GAME}"), remove).await?;
    case.until_settled(1).await?;
    Ok(())
}

#[e2e::test]
async fn a_hook_that_never_ends_is_reported(case: &mut Case) -> Result<()> {
    let mut template = hook_template("endless", &case.hooks.url("/"));
    template["spec"]["metrics"][0]["interval"] = json!("1s");
    case.apply(template).await?;
    case.apply(Game::in_place(2).pre_delete("endless")).await?;
    case.until_settled(2).await?;
    case.scale(1).await?;
    let view =
        case.until("the endless hook is reported", |view| view.is_true("FailedScale")).await?;
    let condition = view.condition("FailedScale").context("no condition FailedScale")?;
    ensure!(condition.reason == "HookCannotSucceed", "{condition:?}");
    ensure!(condition.message.contains("webtest"), "{condition:?}");
    view.ensure(view.runs.is_empty() && view.pods.len() == 2)?;
    case.apply(hook_template("endless", &case.hooks.url("/"))).await?;
    case.until_settled(1).await?;
    Ok(())
}

#[e2e::test]
async fn a_broken_endpoint_stops_an_update_at_max_unavailable(case: &mut Case) -> Result<()> {
    case.hooks.answer("/", Answer::Status(500));
    let mut template = hook_template("test", &case.hooks.url("/"));
    let metric = &mut template["spec"]["metrics"][0];
    metric["count"] = json!(1);
    metric["interval"] = json!("1s");
    metric["consecutiveErrorLimit"] = json!(1);
    case.apply(template).await?;
    case.apply(Game::in_place(6).max_unavailable(2).pre_inplace("test")).await?;
    case.until_settled(6).await?;
    case.set_image("game:v2").await?;
    let ended = |view: &View| view.phases("PreInplace") == ["Error"; 2];
    let view = case.until("two hooks end in an error", ended).await?;
    let view = match view.hook_conditions("preInplace").len() {
        2 => view,
        _ => {
            case.until("both failed hooks are shown", |v| {
                v.hook_conditions("preInplace").len() == 2
            })
            .await?
        }
    };
    let blocked = view.hook_conditions("preInplace");
    view.ensure(blocked.iter().all(|(_, phase)| *phase == "Error"))?;
    case.consistently("no third hook runs, and no pod is updated", 3, |view| {
        view.runs.len() == 2 && view.ready_with("game:v1") == 6
    })
    .await?;
    case.hooks.answer("/", example_answer());
    case.replace("/spec/preInplaceUpdateStrategy/retry", true).await?;
    let view = case.until_settled(6).await?;
    view.ensure(view.game.pointer("/spec/preInplaceUpdateStrategy/retry") == Some(&json!(false)))
}

#[e2e::test]
async fn a_pod_that_ended_is_replaced_without_a_hook(case: &mut Case) -> Result<()> {
    apply_pending_hook(case).await?;
    case.apply(Game::in_place(3).pre_delete("test")).await?;
    let before = case.until_settled(3).await?;
    for (pod, phase) in before.pods.iter().zip(["Failed", "Succeeded"]) {
        case.end_pod(pod.name(), phase).await?;
    }
    let view = case
        .until("both pods are replaced", |view| {
            view.counts() == [3; 5]
                && !view.pod_names().contains(&before.pods[0].name())
                && !view.pod_names().contains(&before.pods[1].name())
        })
        .await?;
    view.ensure(view.runs.is_empty() && case.hooks.calls("/").is_empty())
}

#[e2e::test]
async fn pre_inplace_guards_updates_but_not_scaling(case: &mut Case) -> Result<()> {
    case.hooks.answer("/", Answer::Json(json!({"age": 10})));
    let mut template = retrying_hook_template("test", &case.hooks.url("/"));
    let names = ["ModifiedContainer[0]", "PodContainer[0]"];
    template["spec"]["args"] = names.iter().map(|name| json!({"name": name})).collect();
    case.apply(template).await?;
    case.apply(Game::in_place(3).max_unavailable(1).pre_inplace("test")).await?;
    case.until_settled(3).await?;
    case.scale(2).await?;
    case.until_settled(2).await?;
    ensure!(case.hooks.calls("/").is_empty(), "the scale-in ran a PreInplace hook");
    case.set_image("game:v2").await?;
    let view = case
        .until("one hook runs, and its pod is marked", |view| {
            view.runs.len() == 1 && pods_waiting_for_hooks(view).len() == 1
        })
        .await?;
    let run = &view.runs[0];
    view.ensure(run.point() == "PreInplace" && run.name().starts_with("pre-inplace-hook-"))?;
    view.ensure(run.argument("ModifiedContainer[0]") == Some("game"))?;
    view.ensure(run.argument("PodContainer[0]") == Some("game"))?;
    let marked = pods_waiting_for_hooks(&view);
    view.ensure(view.pod(&marked[0])?.name().ends_with(run.instance()))?;
    case.hooks.answer("/", example_answer());
    let view = case.until_settled(2).await?;
    view.ensure(pods_waiting_for_hooks(&view).is_empty())
}

#[e2e::test]
async fn post_inplace_keeps_traffic_away_until_it_succeeds(case: &mut Case) -> Result<()> {
    apply_pending_hook(case).await?;
    case.apply(Game::in_place(2).max_unavailable(1).post_inplace("test")).await?;
    case.until_settled(2).await?;
    case.set_image("game:v2").await?;
    let view = case
        .until("the hook runs after the change", |view| view.phases("PostInplace") == ["Running"])
        .await?;
    view.ensure(view.run_names()[0].starts_with("post-inplace-hook-"))?;
    case.consistently("the updated pod is not ready, and the other is unchanged", 2, |view| {
        view.ready_with("game:v2") == 0 && view.ready_with("game:v1") == 1
    })
    .await?;
    case.hooks.answer("/", example_answer());
    case.until_settled(2).await?;
    Ok(())
}

#[e2e::test]
async fn a_failed_post_inplace_hook_blocks_the_rollout_until_the_change_is_reverted(
    case: &mut Case,
) -> Result<()> {
    case.hooks.answer("/", Answer::Json(json!({"age": 10})));
    case.apply(hook_template("test", &case.hooks.url("/"))).await?;
    case.apply(Game::in_place(3).max_unavailable(1).post_inplace("test")).await?;
    case.until_settled(3).await?;
    case.set_image("game:v2").await?;
    case.until("the hook has failed", |view| {
        let conditions = view.hook_conditions("postInplace");
        conditions.len() == 1 && conditions[0].1 == "Failed"
    })
    .await?;
    case.consistently("two old pods are ready", 2, |view| {
        view.ready_with("game:v1") == 2 && view.ready_with("game:v2") == 0
    })
    .await?;
    case.hooks.answer("/", example_answer());
    case.set_image("game:v1").await?;
    let view = case.until_settled(3).await?;
    view.ensure(view.ready_with("game:v1") == 3)?;
    view.ensure(view.hook_conditions("postInplace").is_empty())
}

#[e2e::test]
async fn a_rolling_update_waits_for_its_hook(case: &mut Case) -> Result<()> {
    apply_pending_hook(case).await?;
    case.apply(Game::rolling(4).max_unavailable(2).pre_delete("test")).await?;
    case.until_settled(4).await?;
    case.set_image("game:v2").await?;
    case.until("two hooks run", |view| view.phases("PreDelete") == ["Running"; 2]).await?;
    case.consistently("no pod is deleted", 2, |view| view.ready_with("game:v1") == 4).await?;
    case.hooks.answer("/", example_answer());
    let view = case.until_settled(4).await?;
    view.ensure(view.ready_with("game:v2") == 4)
}
