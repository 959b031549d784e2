//! The first pods of a workload, created in batches.

use anyhow::{Result, ensure};
use e2e::case::Case;
use e2e::workload::manifest::Game;
use e2e::workload::view::View;

e2e::tests![
    the_first_pods_are_created_in_batches_and_added_ones_all_at_once,
    a_build_that_never_becomes_ready_reaches_only_one_batch,
    pods_of_a_parallel_set_are_created_in_batches,
];

const BATCH: &str = "/spec/scaleStrategy/createBatch";

fn count_unready(view: &View) -> usize {
    view.pods.iter().filter(|pod| !pod.is_ready()).count()
}

async fn the_first_pods_are_created_in_batches_and_added_ones_all_at_once(
    case: &mut Case,
) -> Result<()> {
    let game = Game::rolling(6).set(BATCH, "30%");
    case.apply(game.annotated("stage.gamekeeper/ready-seconds", "2"))
        .await?;
    let mut most_unready = 0;
    case.eventually("all pods are available", async || {
        let view = case.view().await?;
        most_unready = most_unready.max(count_unready(&view));
        view.ensure(view.is_settled(6))
    })
    .await?;
    ensure!(
        most_unready == 2,
        "up to {most_unready} pods were unready at a time"
    );
    case.scale(14).await?;
    case.until("all added pods are created at the same time", |view| {
        count_unready(view) == 8
    })
    .await?;
    case.until_settled(14).await?;
    Ok(())
}

async fn a_build_that_never_becomes_ready_reaches_only_one_batch(case: &mut Case) -> Result<()> {
    let game = Game::rolling(5).set(BATCH, 2).image("game:nope");
    case.apply(game).await?;
    let names_a_pod = |view: &View| {
        let condition = view.condition("Progressing");
        condition.is_some_and(|it| {
            let mut pods = view.pod_names().into_iter();
            it.reason == "CreatingInBatches" && pods.any(|pod| it.message.contains(pod))
        })
    };
    case.until(
        "the status shows which pod the next batch waits for",
        names_a_pod,
    )
    .await?;
    case.consistently("there is one batch", 3, |view| view.pods.len() == 2)
        .await?;
    case.replace(BATCH, 3).await?;
    case.until("a larger batch is filled", |view| view.pods.len() == 3)
        .await?;
    case.kill_operator().await?;
    case.operator.start().await?;
    case.consistently("a new leader keeps to the batch", 3, |view| {
        view.pods.len() == 3
    })
    .await?;
    case.set_image("game:v1").await?;
    case.until_settled(5).await?;
    Ok(())
}

async fn pods_of_a_parallel_set_are_created_in_batches(case: &mut Case) -> Result<()> {
    case.use_stateful_set();
    let game = Game::parallel(5).set(BATCH, 2).image("game:nope");
    case.apply(game).await?;
    case.until("the first batch is created", |view| {
        view.shape() == "0:nope 1:nope"
    })
    .await?;
    case.consistently("no further pod is created", 2, |view| view.pods.len() == 2)
        .await?;
    case.set_image("game:v1").await?;
    let view = case.until_settled(5).await?;
    view.ensure(view.shape() == "0:v1 1:v1 2:v1 3:v1 4:v1")
}
