//! GameDeployments with OnDelete.

use anyhow::Result;
use e2e::case::Case;
use e2e::servers::hook_server::{Answer, example_answer};
use e2e::workload::GAME;
use e2e::workload::manifest::{Game, retrying_hook_template};
use serde_json::json;

#[e2e::test]
async fn a_pod_is_updated_when_a_user_deletes_it(case: &mut Case) -> Result<()> {
    case.apply(Game::rolling(3).updated_by("OnDelete")).await?;
    case.until_settled(3).await?;
    case.set_image("game:v2").await?;
    case.consistently("no pod is updated", 2, |view| view.ready_with("game:v1") == 3).await?;
    let view = case.view().await?;
    case.kubectl(&["delete", "pod", view.pods[0].name()]).await?;
    case.until("the replacement of the deleted pod has the new revision", |view| {
        view.counts() == [3, 1, 1, 3, 3] && view.ready_with("game:v2") == 1
    })
    .await?;
    case.scale(2).await?;
    case.until("an old pod is deleted first", |view| {
        view.counts() == [2, 1, 1, 2, 2] && view.pods.len() == 2
    })
    .await?;
    case.scale(3).await?;
    let view = case
        .until("the added pod has the new revision", |view| {
            view.counts() == [3, 2, 2, 3, 3] && view.is_true("Ready")
        })
        .await?;
    let condition = view.condition("Ready").map(|it| it.message);
    let message = condition.unwrap_or_default();
    view.ensure(message.ends_with("the others are updated when they are deleted"))?;
    case.set_image("game:v1").await?;
    case.consistently("a revert updates no pod", 2, |view| view.ready_with("game:v2") == 2).await
}

#[e2e::test]
async fn a_pod_in_pods_to_delete_is_updated_after_its_hook(case: &mut Case) -> Result<()> {
    case.hooks.answer("/", Answer::Json(json!({"age": 10})));
    case.apply(retrying_hook_template("empty", &case.hooks.url("/"))).await?;
    let game = Game::rolling(2).updated_by("OnDelete").pre_delete("empty");
    case.apply(game).await?;
    case.until_settled(2).await?;
    case.set_image("game:v2").await?;
    let view = case.view().await?;
    let named = view.pods[0].name().to_owned();
    let operation =
        json!([{"op": "add", "path": "/spec/scaleStrategy/podsToDelete", "value": [named]}]);
    case.patch(&format!("gamedeployment/{GAME}"), operation).await?;
    case.until("the hook runs first", |view| {
        view.phases("PreDelete").len() == 1 && view.ready_with("game:v1") == 2
    })
    .await?;
    case.hooks.answer("/", example_answer());
    case.until("the named pod is replaced by one of the new revision", |view| {
        view.counts() == [2, 1, 1, 2, 2] && !view.pod_names().contains(&named.as_str())
    })
    .await?;
    Ok(())
}
