//! The first pods of a workload, created in batches.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use e2e::case::Case;
use e2e::workload::manifest::Game;
use e2e::workload::view::{Pod, View};
use judge::object::text;

const BATCH: &str = "/spec/scaleStrategy/createBatch";

/// All versions of the namespace's pods so far, oldest first. They come from the audit log, because polls can miss a
/// state that does not last.
pub fn versions_of_pods(case: &Case) -> Result<Vec<Pod>> {
    let writes = case.plane().audit.writes(&case.namespace)?.into_iter();
    let writes = writes.filter(|event| event.resource() == "pods" && event.succeeded());
    // The response to a binding or to the end of a deletion may be a Status.
    let pods = writes.filter_map(|event| event.response_object);
    let pods = pods.filter(|object| object["kind"] == "Pod");
    let mut versions: Vec<Pod> = pods.map(Pod).collect();
    let number = |pod: &Pod| text(&pod.0, "/metadata/resourceVersion").parse::<u64>();
    versions.sort_by_key(|pod| number(pod).ok());
    Ok(versions)
}

/// The largest number of pods so far that were unready at a time.
fn most_unready(case: &Case) -> Result<usize> {
    let versions = versions_of_pods(case)?;
    let (mut unready, mut most) = (BTreeSet::new(), 0);
    for pod in &versions {
        match pod.is_ready() {
            true => unready.remove(pod.name()),
            false => unready.insert(pod.name()),
        };
        most = most.max(unready.len());
    }
    Ok(most)
}

#[e2e::test]
async fn the_first_pods_are_created_in_batches_and_added_ones_all_at_once(
    case: &mut Case,
) -> Result<()> {
    let game = Game::rolling(6).set(BATCH, "30%");
    // A pod must not become ready before all others of its batch are created.
    case.apply(game.annotated("stage.gamekeeper/ready-seconds", "5")).await?;
    case.until_settled(6).await?;
    let most = most_unready(case)?;
    ensure!(most == 2, "up to {most} of the first pods were unready");
    case.scale(14).await?;
    case.until_settled(14).await?;
    let most = most_unready(case)?;
    ensure!(most == 8, "up to {most} of the added pods were unready");
    Ok(())
}

#[e2e::test]
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
    case.until("the status shows which pod the next batch waits for", names_a_pod).await?;
    case.consistently("there is one batch", 3, |view| view.pods.len() == 2).await?;
    case.replace(BATCH, 3).await?;
    case.until("a larger batch is filled", |view| view.pods.len() == 3).await?;
    case.kill_operator().await?;
    case.operator.start().await?;
    case.until_planned(&case.workload()).await?;
    case.consistently("a new leader keeps to the batch", 3, |view| view.pods.len() == 3).await?;
    case.set_image("game:v1").await?;
    case.until_settled(5).await?;
    Ok(())
}

#[e2e::test]
async fn pods_of_a_parallel_set_are_created_in_batches(case: &mut Case) -> Result<()> {
    case.use_stateful_set();
    let game = Game::parallel(5).set(BATCH, 2).image("game:nope");
    case.apply(game).await?;
    case.until("the first batch is created", |view| view.shape() == "0:nope 1:nope").await?;
    case.consistently("no further pod is created", 2, |view| view.pods.len() == 2).await?;
    case.set_image("game:v1").await?;
    let view = case.until_settled(5).await?;
    view.ensure(view.shape() == "0:v1 1:v1 2:v1 3:v1 4:v1")
}
