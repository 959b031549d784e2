//! Reserved ordinals of GameStatefulSets: they get no pod, and other ordinals take their place.

use anyhow::{Result, ensure};
use e2e::case::Case;
use e2e::servers::hook_server::{Answer, example_answer};
use e2e::workload::SET;
use e2e::workload::manifest::{Game, hook_template, retrying_hook_template};
use e2e::workload::view::View;
use serde_json::json;

use crate::stateful_ordinals::{names_in_order, writes_in_order};
use crate::stateful_volumes::{retention, until_claims, with_volumes};

async fn reserve(case: &Case, ordinals: &[i64]) -> Result<()> {
    let change = json!([{"op": "add", "path": "/spec/reserveOrders", "value": ordinals}]);
    case.patch(&case.workload(), change).await?;
    Ok(())
}

/// Creates the template of a hook that does not succeed until the test sets another response.
async fn apply_pending_hook(case: &Case) -> Result<()> {
    case.hooks.answer("/", Answer::Json(json!({"age": 10})));
    let template = retrying_hook_template("test", &case.hooks.url("/"));
    case.apply(template).await?;
    Ok(())
}

fn waiting_pods(view: &View) -> Vec<&str> {
    let waiting = view.pods.iter().filter(|pod| pod.waits_for_hook());
    waiting.map(|pod| pod.name()).collect()
}

fn name(ordinal: i64) -> String {
    format!("{SET}-{ordinal}")
}

/// Waits until the set is settled with these pods, and Ready. Panics if it has fewer pods in the meantime.
async fn until_settled_as(case: &Case, shape: &str) -> Result<View> {
    let pods = shape.split(' ').count();
    case.until(shape, |view| {
        assert!(view.pods.len() >= pods, "{}", view.summary());
        view.shape() == shape && view.is_settled(pods as i64) && view.is_true("Ready")
    })
    .await
}

async fn reserve_and_release(case: &mut Case, game: Game) -> Result<()> {
    case.use_stateful_set();
    case.apply(game).await?;
    let before = case.until_settled(3).await?;
    reserve(case, &[1]).await?;
    let view = until_settled_as(case, "0:v1 2:v1 3:v1").await?;
    let revision = "/status/updateRevision";
    view.ensure(view.text(revision) == before.text(revision))?;
    view.ensure(view.pod(&name(2))?.uid() == before.pod(&name(2))?.uid())?;
    reserve(case, &[]).await?;
    let view = until_settled_as(case, "0:v1 1:v1 2:v1").await?;
    view.ensure(view.pod(&name(1))?.uid() != before.pod(&name(1))?.uid())?;
    let revisions = case.list("controllerrevisions").await?;
    ensure!(revisions.len() == 1, "{} revisions", revisions.len());
    Ok(())
}

#[e2e::test]
async fn an_ordered_set_replaces_a_reserved_ordinal_until_it_is_released(
    case: &mut Case,
) -> Result<()> {
    reserve_and_release(case, Game::ordered(3)).await
}

#[e2e::test]
async fn a_parallel_set_replaces_a_reserved_ordinal_until_it_is_released(
    case: &mut Case,
) -> Result<()> {
    reserve_and_release(case, Game::parallel(3)).await
}

#[e2e::test]
async fn a_reserved_pod_is_kept_until_its_hook_passes(case: &mut Case) -> Result<()> {
    case.use_stateful_set();
    apply_pending_hook(case).await?;
    case.apply(Game::parallel(3).pre_delete("test")).await?;
    case.until_settled(3).await?;
    reserve(case, &[1]).await?;
    let waits = |view: &View| {
        let ready = view.condition("Ready");
        view.shape() == "0:v1 1:v1 2:v1 3:v1"
            && waiting_pods(view) == [name(1)]
            && view.phases("PreDelete") == ["Running"]
            && view.ready_with("game:v1") == 4
            && ready.is_some_and(|it| it.message.contains("their ordinal is reserved: 1"))
    };
    case.until("the substitute is ready, and the reserved pod waits", waits).await?;
    case.consistently("the hook does not pass", 2, waits).await?;
    let tree = case.game(&["tree", SET]).await?.stdout;
    for words in ["Reserved:   ordinals 1\n", "to be deleted, ordinal reserved"] {
        ensure!(tree.contains(words), "no {words:?} in:\n{tree}");
    }
    let status = case.game(&["status", SET]).await?;
    let words = format!("waits for PreDelete hook of pod {} (ordinal reserved)", name(1));
    ensure!(status.code == 3 && status.stdout.contains(&words), "{status:?}");
    ensure!(status.stdout.contains("reserved ordinals: 1\n"), "{status:?}");
    case.hooks.answer("/", example_answer());
    until_settled_as(case, "0:v1 2:v1 3:v1").await?;
    Ok(())
}

#[e2e::test]
async fn reserved_pods_are_deleted_one_at_a_time_with_ordered_ready(case: &mut Case) -> Result<()> {
    case.use_stateful_set();
    apply_pending_hook(case).await?;
    let game = Game::ordered(3).annotated("stage.gamekeeper/ready-seconds", "1");
    case.apply(game.pre_delete("test")).await?;
    case.until_settled(3).await?;
    reserve(case, &[0, 1]).await?;
    let waits = |view: &View| view.pods.len() == 5 && waiting_pods(view) == [name(1)];
    case.until("both substitutes exist, and the higher reserved pod waits", waits).await?;
    case.consistently("no other pod waits", 2, waits).await?;
    case.hooks.answer("/", example_answer());
    until_settled_as(case, "2:v1 3:v1 4:v1").await?;
    ensure!(names_in_order(case, "create")? == [0, 1, 2, 3, 4].map(name));
    ensure!(names_in_order(case, "delete")? == [1, 0].map(name));
    Ok(())
}

#[e2e::test]
async fn a_failed_hook_keeps_a_reserved_pod_until_it_is_retried(case: &mut Case) -> Result<()> {
    case.use_stateful_set();
    case.hooks.answer("/", Answer::Json(json!({"age": 10})));
    let template = hook_template("test", &case.hooks.url("/"));
    case.apply(template).await?;
    case.apply(Game::ordered(2).pre_delete("test")).await?;
    case.until_settled(2).await?;
    reserve(case, &[0]).await?;
    let blocked = |view: &View| view.hook_conditions("preDelete") == [(name(0).as_str(), "Failed")];
    case.until("the failure is shown", blocked).await?;
    let status = case.game(&["status", SET]).await?;
    let words = format!("pod {} (ordinal reserved) is blocked", name(0));
    ensure!(status.code == 2 && status.stdout.contains(&words), "{status:?}");
    case.hooks.answer("/", example_answer());
    case.replace("/spec/preDeleteUpdateStrategy/retry", true).await?;
    until_settled_as(case, "1:v1 2:v1").await?;
    Ok(())
}

#[e2e::test]
async fn ending_a_reservation_cancels_the_deletion_of_the_pod(case: &mut Case) -> Result<()> {
    case.use_stateful_set();
    apply_pending_hook(case).await?;
    case.apply(Game::parallel(3).pre_delete("test")).await?;
    let before = case.until_settled(3).await?;
    reserve(case, &[0, 1]).await?;
    case.until("two pods wait", |view| waiting_pods(view).len() == 2).await?;
    reserve(case, &[0]).await?;
    case.until("one reserved pod and one substitute wait", |view| {
        waiting_pods(view) == [name(0), name(4)] && view.runs.len() == 2
    })
    .await?;
    case.hooks.answer("/", example_answer());
    let view = until_settled_as(case, "1:v1 2:v1 3:v1").await?;
    view.ensure(view.pod(&name(1))?.uid() == before.pod(&name(1))?.uid())
}

#[e2e::test]
async fn claims_of_a_reserved_ordinal_are_kept_and_reused(case: &mut Case) -> Result<()> {
    let game = with_volumes(case, 2).await?;
    case.apply(retention(game, "Delete", "Delete")).await?;
    case.until_settled(2).await?;
    let path = format!("persistentvolumeclaims/data-{}", name(0));
    let before = case.get(&path).await?;
    reserve(case, &[0]).await?;
    until_settled_as(case, "1:v1 2:v1").await?;
    let owner = "GameStatefulSet";
    until_claims(case, &[("0", owner), ("1", owner), ("2", owner)]).await?;
    reserve(case, &[]).await?;
    until_settled_as(case, "0:v1 1:v1").await?;
    until_claims(case, &[("0", owner), ("1", owner)]).await?;
    let after = case.get(&path).await?;
    ensure!(before["metadata"]["uid"] == after["metadata"]["uid"]);
    Ok(())
}

#[e2e::test]
async fn an_update_skips_reserved_ordinals(case: &mut Case) -> Result<()> {
    case.use_stateful_set();
    apply_pending_hook(case).await?;
    let passing = hook_template("passing", &case.hooks.url("/passing"));
    case.apply(passing).await?;
    case.hooks.answer("/passing", example_answer());
    let game = Game::parallel(4).updated_by("InplaceUpdate").partition(2);
    case.apply(game.pre_delete("test").pre_inplace("passing")).await?;
    case.until_settled(4).await?;
    case.replace("/spec/updateStrategy/paused", true).await?;
    reserve(case, &[2]).await?;
    let has_shape = |shape: &'static str| {
        move |view: &View| view.shape() == shape && waiting_pods(view) == [name(2)]
    };
    let substituted = has_shape("0:v1 1:v1 2:v1 3:v1 4:v1");
    case.until("ordinal 2 has a substitute despite the pause", |view| {
        substituted(view) && view.ready_with("game:v1") == 5
    })
    .await?;
    case.replace("/spec/updateStrategy/paused", false).await?;
    case.set_image("game:v2").await?;
    let updated = has_shape("0:v1 1:v1 2:v1 3:v2 4:v2");
    case.until("the last two of the four pods are updated", &updated).await?;
    case.consistently("the reserved pod is not updated", 2, &updated).await?;
    case.replace("/spec/updateStrategy/partition", 0).await?;
    case.until("all other pods are updated", has_shape("0:v2 1:v2 2:v1 3:v2 4:v2")).await?;
    case.hooks.answer("/", example_answer());
    until_settled_as(case, "0:v2 1:v2 3:v2 4:v2").await?;
    Ok(())
}

#[e2e::test]
async fn surge_pods_and_scaling_skip_reserved_ordinals(case: &mut Case) -> Result<()> {
    case.use_stateful_set();
    let game = Game::parallel(2).max_surge(1).max_unavailable(0);
    let game = game.set("/spec/reserveOrders", json!([1, 3]));
    case.apply(game.annotated("stage.gamekeeper/ready-seconds", "2")).await?;
    until_new_set_settles_as(case, "0:v1 2:v1").await?;
    case.set_image("game:v2").await?;
    until_settled_as(case, "0:v2 2:v2").await?;
    let writes = writes_in_order(case)?;
    let is_surge_pod_first = writes[2] == ("create".to_owned(), name(4));
    ensure!(is_surge_pod_first, "{writes:?}");
    case.scale(4).await?;
    case.until_settled(4).await?;
    case.scale(3).await?;
    until_settled_as(case, "0:v2 2:v2 4:v2").await?;
    Ok(())
}

/// Waits until a new set is settled with these pods.
async fn until_new_set_settles_as(case: &Case, shape: &str) -> Result<View> {
    let pods = shape.split(' ').count() as i64;
    let view = case.until_settled(pods).await?;
    view.ensure(view.shape() == shape)?;
    Ok(view)
}

#[e2e::test]
async fn no_pod_with_a_reserved_ordinal_is_created_after_a_kill(case: &mut Case) -> Result<()> {
    case.use_stateful_set();
    apply_pending_hook(case).await?;
    case.apply(Game::parallel(3).pre_delete("test")).await?;
    case.until_settled(3).await?;
    reserve(case, &[1]).await?;
    case.kill_operator().await?;
    case.operator.start().await?;
    let waits = |view: &View| view.pods.len() == 4 && waiting_pods(view) == [name(1)];
    case.until("the operator continues", waits).await?;
    case.kill_operator().await?;
    // A reserved pod that a user deletes is not recreated. Neither is one whose ordinal is reserved after its deletion.
    case.kubectl(&["delete", "pod", &name(1)]).await?;
    case.kubectl(&["delete", "pod", &name(0)]).await?;
    reserve(case, &[0, 1]).await?;
    case.operator.start().await?;
    case.hooks.answer("/", example_answer());
    let view = case.until("three other pods are settled", |view| view.is_settled(3)).await?;
    view.ensure(view.shape() == "2:v1 3:v1 4:v1")?;
    let created = names_in_order(case, "create")?;
    ensure!(created.iter().filter(|it| **it == name(1)).count() == 1);
    ensure!(created.iter().filter(|it| **it == name(0)).count() == 1);
    Ok(())
}
