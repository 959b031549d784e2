//! Indexes of a GameDeployment's pods.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use e2e::case::Case;
use e2e::workload::GAME;
use e2e::workload::manifest::Game;
use e2e::workload::view::{Pod, View};
use judge::names::INDEX;
use serde_json::json;

const INDEX_ON: &str = "/metadata/annotations/tkex.bkbcs.tencent.com~1gamedeployment-index-on";
const RANGE: &str = "/metadata/annotations/tkex.bkbcs.tencent.com~1gamedeployment-index-range";

fn range(start: u32, end: u32) -> String {
    json!({"podStartIndex": start, "podEndIndex": end}).to_string()
}

fn indexed(game: Game, start: u32, end: u32) -> Game {
    game.set(INDEX_ON, "true").set(RANGE, range(start, end))
}

fn index(pod: &Pod) -> &str {
    pod.annotation(INDEX).unwrap_or("none")
}

/// Indexes of all pods, sorted.
fn indexes(view: &View) -> String {
    let mut all: Vec<&str> = view.pods.iter().map(index).collect();
    all.sort_unstable();
    all.join(" ")
}

/// Whether the pod's first container has the pod's index in its environment.
fn has_index_in_environment(pod: &Pod) -> bool {
    let env = pod.0.pointer("/spec/containers/0/env");
    let variable = json!({"name": "POD_INDEX", "value": index(pod)});
    let env = env.and_then(|env| env.as_array());
    env.is_some_and(|env| env.contains(&variable))
}

#[e2e::test]
async fn pods_get_the_lowest_free_index_and_keep_it_when_updated_in_place(
    case: &mut Case,
) -> Result<()> {
    case.apply(indexed(Game::in_place(3), 100, 110)).await?;
    let before = case.until_settled(3).await?;
    before.ensure(indexes(&before) == "100 101 102")?;
    before.ensure(before.pods.iter().all(has_index_in_environment))?;
    let tree = case.game(&["tree", GAME]).await?;
    ensure!(tree.stdout.contains("1/1 ready, index 100"), "{tree:?}");
    case.set_image("game:v2").await?;
    let view = case.until_settled(3).await?;
    let names_and_indexes = |view: &View| -> BTreeSet<String> {
        let pods = view.pods.iter();
        pods.map(|pod| format!("{} {}", pod.name(), index(pod))).collect()
    };
    view.ensure(names_and_indexes(&view) == names_and_indexes(&before))?;

    let first = view.pods.iter().find(|pod| index(pod) == "100");
    let first = first.context("no pod has index 100")?.name();
    let delete = ["delete", "pod", first, "--grace-period=0", "--force"];
    case.kubectl(&delete).await?;
    let view = case
        .until("another pod replaces the deleted one", |view| {
            view.is_settled(3) && !view.pod_names().contains(&first)
        })
        .await?;
    view.ensure(view.pods.iter().all(has_index_in_environment))?;
    case.scale(5).await?;
    let view = case.until_settled(5).await?;
    let distinct: BTreeSet<&str> = view.pods.iter().map(index).collect();
    view.ensure(distinct.len() == 5 && distinct.contains("100"))
}

#[e2e::test]
async fn creations_wait_for_an_index_that_a_terminating_pod_holds(case: &mut Case) -> Result<()> {
    let game = indexed(Game::rolling(2), 0, 2).max_unavailable(2);
    // Long enough for a slow machine to show the state in between.
    case.apply(game.annotated("stage.gamekeeper/stop-seconds", "25")).await?;
    case.until_settled(2).await?;
    case.set_image("game:v2").await?;
    let view = case
        .until("the creation waits for an index", |view| {
            view.condition("Progressing").is_some_and(|it| it.reason == "PodIndexExhausted")
        })
        .await?;
    view.ensure(view.condition("FailedScale").is_none())?;
    let view = case.until_settled(2).await?;
    view.ensure(indexes(&view) == "0 1")?;

    case.scale(3).await?;
    let view = case
        .until("the missing third index is reported", |view| view.is_true("FailedScale"))
        .await?;
    let condition = view.condition("FailedScale").context("no condition FailedScale")?;
    ensure!(condition.reason == "PodIndexExhausted", "{condition:?}");
    case.consistently("no third pod is created", 2, |view| view.pods.len() == 2).await?;
    case.replace(RANGE, range(0, 3)).await?;
    let view = case.until_settled(3).await?;
    view.ensure(indexes(&view) == "0 1 2")
}

/// The judge checks the pods that are created before and after each kill.
#[e2e::test]
async fn no_index_is_assigned_twice_after_the_operator_is_killed(case: &mut Case) -> Result<()> {
    case.apply(indexed(Game::rolling(2), 0, 30)).await?;
    case.until_settled(2).await?;
    for replicas in [12, 24] {
        case.scale(replicas).await?;
        case.until("some pods exist", |view| view.pods.len() > 3).await?;
        case.kill_operator().await?;
        case.operator.start().await?;
        let view = case.until_settled(i64::from(replicas)).await?;
        let distinct: BTreeSet<&str> = view.pods.iter().map(index).collect();
        view.ensure(distinct.len() == view.pods.len())?;
    }
    Ok(())
}

#[e2e::test]
async fn an_invalid_range_blocks_only_creations(case: &mut Case) -> Result<()> {
    case.apply(indexed(Game::rolling(3), 0, 9)).await?;
    case.until_settled(3).await?;
    case.replace(RANGE, "0-9").await?;
    case.set_image("game:v2").await?;
    let view = case.until("the update is blocked", |view| view.is_true("FailedUpdate")).await?;
    for type_ in ["FailedUpdate", "FailedScale"] {
        let condition = view.condition(type_).context("no condition")?;
        ensure!(condition.reason == "PodIndexInvalid", "{condition:?}");
    }
    case.consistently("no pod is recreated", 2, |view| view.ready_with("game:v1") == 3).await?;
    case.scale(2).await?;
    case.until("the scale-in completes", |view| view.pods.len() == 2).await?;
    case.replace(RANGE, range(0, 9)).await?;
    case.until_settled(2).await?;
    let gamedeployment = format!("gamedeployment/{GAME}");
    let switch_off =
        ["annotate", &gamedeployment, "tkex.bkbcs.tencent.com/gamedeployment-index-on-"];
    case.kubectl(&switch_off).await?;
    case.scale(3).await?;
    let view = case.until_settled(3).await?;
    let with_index = view.pods.iter();
    let with_index = with_index.filter(|pod| pod.annotation(INDEX).is_some());
    view.ensure(with_index.count() == 2)
}
