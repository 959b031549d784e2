//! Workloads that are migrated from bk-bcs' operators in the middle of an update.

use anyhow::{Context, Result, ensure};
use e2e::case::Case;
use e2e::workload::GAME;
use e2e::workload::manifest::{Game, hook_template};
use e2e::workload::view::View;
use serde_json::{Value, json};

/// Stops the operator, sets another image, and creates the revision of the new template, with a name that bk-bcs could
/// have given it. Returns the workload before the change, and the name of the new revision.
async fn update_without_operator(case: &mut Case, image: &str) -> Result<(View, String)> {
    let before = case.until_settled(2).await?;
    case.operator.terminate().await?;
    case.set_image(image).await?;
    let revision = format!("{GAME}-6f9c7d8b5");
    let stable = before.text("/status/canary/revision").to_owned();
    let mut new = case.get(&format!("controllerrevisions/{stable}")).await?;
    new["metadata"] = json!({
        "name": revision,
        "labels": new["metadata"]["labels"],
        "ownerReferences": new["metadata"]["ownerReferences"],
    });
    new["metadata"]["labels"]["controller-revision-hash"] = json!(revision);
    new["data"]["spec"]["template"]["spec"]["containers"][0]["image"] = json!(image);
    new["revision"] = json!(2);
    case.apply(new).await?;
    Ok((before, revision))
}

/// Starts the update of a pod as bk-bcs' operator does: closes the gate, then sets the label, the annotations and the
/// image.
async fn begin_update(
    case: &Case,
    pod: &str,
    revision: &str,
    mut annotations: Value,
    image: Option<&str>,
) -> Result<()> {
    let now = jiff::Timestamp::from_second(jiff::Timestamp::now().as_second())?;
    let gate = json!({"type": "InPlaceUpdateReady", "status": "False",
        "reason": "StartInPlaceUpdate", "lastTransitionTime": now});
    let status = format!("-p={}", json!({"status": {"conditions": [gate]}}));
    case.kubectl(&["patch", "pod", pod, "--subresource=status", "--type=strategic", &status])
        .await?;
    let found = case.get(&format!("pods/{pod}")).await?;
    let image_id = &found["status"]["containerStatuses"][0]["imageID"];
    let state = json!({"revision": revision, "updateTimestamp": now,
        "lastContainerStatuses": {"game": {"imageID": image_id}}});
    annotations["inplace-update-state"] = json!(state.to_string());
    let mut patch = json!({"metadata": {
        "labels": {"controller-revision-hash": revision},
        "annotations": annotations,
    }});
    if let Some(image) = image {
        patch["spec"] = json!({"containers": [{"name": "game", "image": image}]});
    }
    let patch = format!("-p={patch}");
    case.kubectl(&["patch", "pod", pod, "--type=strategic", &patch]).await?;
    Ok(())
}

#[e2e::test]
async fn a_pod_in_its_grace_period_counts_as_old(case: &mut Case) -> Result<()> {
    case.apply(hook_template("test", &case.hooks.url("/"))).await?;
    let paused = "/spec/updateStrategy/paused";
    let game = Game::in_place(2).max_unavailable(1).pre_inplace("test");
    case.apply(game.set(paused, false)).await?;
    let (before, revision) = update_without_operator(case, "game:v2").await?;
    case.replace(paused, true).await?;
    let first = before.pods[0].name();
    let grace = json!({"revision": revision, "containerImages": {"game": "game:v2"},
        "graceSeconds": 30});
    let annotation = json!({"inplace-update-grace": grace.to_string()});
    begin_update(case, first, &revision, annotation, None).await?;
    case.operator.start().await?;
    let view = case
        .until("both pods are at the old revision and ready", |view| {
            view.is_observed() && view.counts() == [2, 0, 0, 2, 2]
        })
        .await?;
    view.ensure(view.text("/status/updateRevision") == revision)?;
    case.replace(paused, false).await?;
    let view = case.until_settled(2).await?;
    view.ensure(view.pod_names() == before.pod_names())?;
    view.ensure(view.ready_with("game:v2") == 2)?;
    let is_clean = view.pods.iter().all(|pod| pod.annotation("inplace-update-grace").is_none());
    view.ensure(is_clean)?;
    // Gamekeeper has run the hook for both pods.
    let runs = case.events()?.into_iter().filter(|event| {
        let object = event.object_ref.clone().unwrap_or_default();
        event.verb == "create" && object.resource == "hookruns" && event.succeeded()
    });
    let runs = runs.count();
    ensure!(runs == 2, "{runs} HookRuns");
    Ok(())
}

#[e2e::test]
async fn an_update_that_has_set_the_image_is_completed(case: &mut Case) -> Result<()> {
    case.apply(Game::in_place(2).max_unavailable(1)).await?;
    let (before, revision) = update_without_operator(case, "game:v2-slow6").await?;
    let first = before.pods[0].name();
    begin_update(case, first, &revision, json!({}), Some("game:v2-slow6")).await?;
    case.operator.start().await?;
    let view = case.until_settled(2).await?;
    view.ensure(view.pod_names() == before.pod_names())?;
    view.ensure(view.ready_with("game:v2-slow6") == 2)?;
    // The judge checks that the gate stayed closed until the image ran.
    let opened = case.events()?.into_iter().find(|event| {
        let object = event.object_ref.clone().unwrap_or_default();
        object.name == first && object.subresource == "status" && event.verb == "patch"
    });
    opened.context("the gate of the first pod was not opened")?;
    Ok(())
}
