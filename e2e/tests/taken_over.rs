//! Workloads in the middle of an update by bk-bcs' operators, which ours take over.

use anyhow::{Context, Result, ensure};
use e2e::case::Case;
use e2e::workload::GAME;
use e2e::workload::manifest::{Game, hook_template};
use e2e::workload::view::View;
use serde_json::{Value, json};

e2e::tests![
    a_pod_in_its_grace_period_is_an_old_one,
    a_pod_whose_image_was_set_is_followed_until_it_runs,
];

/// Stops the operator, sets another image, and makes the revision that stands for it, under a name that
/// bk-bcs might give it.
async fn update_without_operator(case: &mut Case, image: &str) -> Result<(View, String)> {
    let before = case.until_settled(2).await?;
    case.operator.terminate().await?;
    case.set_image(image).await?;
    let revision = format!("{GAME}-6f9c7d8b5");
    let stable = before.text("/status/canary/revision").to_owned();
    let mut made = case.get(&format!("controllerrevisions/{stable}")).await?;
    made["metadata"] = json!({
        "name": revision,
        "labels": made["metadata"]["labels"],
        "ownerReferences": made["metadata"]["ownerReferences"],
    });
    made["metadata"]["labels"]["controller-revision-hash"] = json!(revision);
    made["data"]["spec"]["template"]["spec"]["containers"][0]["image"] = json!(image);
    made["revision"] = json!(2);
    case.apply(made).await?;
    Ok((before, revision))
}

/// What bk-bcs' operator writes when it begins to update a pod: the gate, then label and notes.
async fn begin(
    case: &Case,
    pod: &str,
    revision: &str,
    notes: Value,
    image: Option<&str>,
) -> Result<()> {
    let now = jiff::Timestamp::from_second(jiff::Timestamp::now().as_second())?;
    let gate = json!({"type": "InPlaceUpdateReady", "status": "False",
        "reason": "StartInPlaceUpdate", "lastTransitionTime": now});
    let status = format!("-p={}", json!({"status": {"conditions": [gate]}}));
    case.kubectl(&[
        "patch",
        "pod",
        pod,
        "--subresource=status",
        "--type=strategic",
        &status,
    ])
    .await?;
    let seen = case.get(&format!("pods/{pod}")).await?;
    let image_id = &seen["status"]["containerStatuses"][0]["imageID"];
    let state = json!({"revision": revision, "updateTimestamp": now,
        "lastContainerStatuses": {"game": {"imageID": image_id}}});
    let mut annotations = notes;
    annotations["inplace-update-state"] = json!(state.to_string());
    let mut patch = json!({"metadata": {
        "labels": {"controller-revision-hash": revision},
        "annotations": annotations,
    }});
    if let Some(image) = image {
        patch["spec"] = json!({"containers": [{"name": "game", "image": image}]});
    }
    let patch = format!("-p={patch}");
    case.kubectl(&["patch", "pod", pod, "--type=strategic", &patch])
        .await?;
    Ok(())
}

async fn a_pod_in_its_grace_period_is_an_old_one(case: &mut Case) -> Result<()> {
    case.apply(hook_template("test", &case.hooks.url("/")))
        .await?;
    let paused = "/spec/updateStrategy/paused";
    let game = Game::in_place(2).max_unavailable(1).pre_inplace("test");
    case.apply(game.set(paused, false)).await?;
    let (before, revision) = update_without_operator(case, "game:v2").await?;
    case.replace(paused, true).await?;
    let first = before.pods[0].name();
    let grace = json!({"revision": revision, "containerImages": {"game": "game:v2"},
        "graceSeconds": 30});
    let notes = json!({"inplace-update-grace": grace.to_string()});
    begin(case, first, &revision, notes, None).await?;
    case.operator.start().await?;
    let view = case
        .until("both pods are old ones and ready", |view| {
            view.is_observed() && view.counts() == [2, 0, 0, 2, 2]
        })
        .await?;
    view.ensure(view.text("/status/updateRevision") == revision)?;
    case.replace(paused, false).await?;
    let view = case.until_settled(2).await?;
    view.ensure(view.pod_names() == before.pod_names())?;
    view.ensure(view.ready_with("game:v2") == 2)?;
    let is_clean = view
        .pods
        .iter()
        .all(|pod| pod.annotation("inplace-update-grace").is_none());
    view.ensure(is_clean)?;
    // Our own hook was asked about both.
    let asked = case.events()?.into_iter().filter(|event| {
        let object = event.object_ref.clone().unwrap_or_default();
        event.verb == "create" && object.resource == "hookruns"
    });
    let asked = asked.count();
    ensure!(asked == 2, "{asked} hooks");
    Ok(())
}

async fn a_pod_whose_image_was_set_is_followed_until_it_runs(case: &mut Case) -> Result<()> {
    case.apply(Game::in_place(2).max_unavailable(1)).await?;
    let (before, revision) = update_without_operator(case, "game:v2-slow6").await?;
    let first = before.pods[0].name();
    begin(case, first, &revision, json!({}), Some("game:v2-slow6")).await?;
    case.operator.start().await?;
    let view = case.until_settled(2).await?;
    view.ensure(view.pod_names() == before.pod_names())?;
    view.ensure(view.ready_with("game:v2-slow6") == 2)?;
    // That the gate stayed closed until the image ran is for the judge to say.
    let opened = case.events()?.into_iter().find(|event| {
        let object = event.object_ref.clone().unwrap_or_default();
        object.name == first && object.subresource == "status" && event.verb == "patch"
    });
    opened.context("the gate of the first pod is opened")?;
    Ok(())
}
