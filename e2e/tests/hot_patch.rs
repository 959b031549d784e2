//! Hot patches, on kubelets that support them and on kubelets that do not.

use anyhow::{Context, Result, ensure};
use e2e::case::Case;
use e2e::workload::manifest::Game;

#[e2e::test]
async fn a_hot_patch_restarts_nothing(case: &mut Case) -> Result<()> {
    case.apply(Game::hot_patch(4).partition(1).max_unavailable(2)).await?;
    case.until_settled(4).await?;
    case.set_image("game:v2").await?;
    let view = case.until_counts([4, 3, 3, 4, 4]).await?;
    let is_patched = |pod: &&e2e::workload::view::Pod| {
        pod.annotation("io.kubernetes.hotpatch.container") == Some("true")
    };
    view.ensure(view.pods.iter().filter(is_patched).count() == 3)?;
    view.ensure(view.pods.iter().all(|pod| pod.restarts() == 0 && pod.is_ready()))?;
    case.replace("/spec/updateStrategy/partition", 0).await?;
    case.until_settled(4).await?;
    case.replace("/spec/updateStrategy/type", "InplaceUpdate").await?;
    case.set_image("game:v3").await?;
    let view = case.until_settled(4).await?;
    view.ensure(!view.pods.iter().any(|pod| is_patched(&pod)))?;
    view.ensure(view.pods.iter().all(|pod| pod.restarts() == 1))
}

#[e2e::test]
async fn a_hot_patch_that_restarts_a_container_stops_at_one_pod(case: &mut Case) -> Result<()> {
    let game = Game::hot_patch(4).max_unavailable(4);
    case.apply(game.annotated("stage.gamekeeper/hot-patch", "restart")).await?;
    case.until_settled(4).await?;
    case.set_image("game:v2").await?;
    let view = case.until("the restart is reported", |view| view.is_true("FailedUpdate")).await?;
    let condition = view.condition("FailedUpdate").context("no condition FailedUpdate")?;
    ensure!(condition.reason == "HotPatchNotSupported", "{condition:?}");
    case.consistently("one pod was patched", 3, |view| {
        view.count_with("game:v2") == 1
            && view.pods.iter().map(|pod| pod.restarts()).sum::<i64>() == 1
    })
    .await?;
    case.set_image("game:v1").await?;
    let view = case.until_settled(4).await?;
    view.ensure(view.condition("FailedUpdate").is_none())
}
