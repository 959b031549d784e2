//! A pod without a running container is deleted or updated without its hook. A pod with a running container is not,
//! whatever its phase and however recently the container started.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use e2e::case::Case;
use e2e::servers::hook_server::{Answer, example_answer};
use e2e::workload::GAME;
use e2e::workload::manifest::{Game, hook_template, retrying_hook_template};
use e2e::workload::view::View;
use judge::object::{is_running, text};
use serde_json::json;

/// The number of pods in the burst: enough for some to start while others are deleted.
const BURST: u32 = 160;

/// Names of all pods that have ever been stored with a running container.
fn ever_ran(case: &Case) -> Result<BTreeSet<String>> {
    let mut events = case.plane().audit.writes(&case.namespace)?;
    events.retain(|event| event.succeeded());
    let responses = events.into_iter().filter_map(|event| event.response_object);
    let pods = responses.filter(|object| object["kind"] == "Pod" && is_running(object));
    Ok(pods.map(|pod| text(&pod, "/metadata/name").to_owned()).collect())
}

#[e2e::test]
async fn canceling_a_burst_deletes_no_running_pod(case: &mut Case) -> Result<()> {
    case.hooks.answer("/", Answer::Json(json!({"age": 10})));
    case.apply(hook_template("test", &case.hooks.url("/"))).await?;
    case.apply(Game::in_place(2).pre_delete("test")).await?;
    case.until_settled(2).await?;
    case.scale(BURST).await?;
    let running_count = |view: &View| view.pods.iter().filter(|pod| pod.is_running()).count();
    case.until("half of the pods exist, and some run", |view| {
        view.pods.len() > BURST as usize / 2 && running_count(view) > 20
    })
    .await?;
    case.scale(2).await?;
    case.until("only running pods are left, and their hooks have failed", |view| {
        let phases = view.phases("PreDelete");
        view.is_observed()
            && view.pods.iter().all(|pod| pod.is_running() && !pod.is_terminating())
            && phases.len() == view.pods.len() - 2
            && phases.iter().all(|phase| *phase == "Failed")
    })
    .await?;
    let (view, ran) = (case.view().await?, ever_ran(case)?);
    let left: BTreeSet<String> = view.pod_names().into_iter().map(str::to_owned).collect();
    ensure!(ran == left, "{} pods ran, {} are left", ran.len(), left.len());
    let remove = json!([{"op": "remove", "path": "/spec/preDeleteUpdateStrategy/hook"}]);
    case.patch(&format!("gamedeployment/{GAME}"), remove).await?;
    case.until_settled(2).await?;
    Ok(())
}

/// Creates the template of a hook that never gets a response.
async fn apply_hanging_hook(case: &Case) -> Result<()> {
    case.hooks.answer("/", Answer::Never);
    case.apply(retrying_hook_template("test", &case.hooks.url("/"))).await?;
    Ok(())
}

#[e2e::test]
async fn crashed_pods_are_scaled_in_and_recreated_without_their_hook(
    case: &mut Case,
) -> Result<()> {
    apply_hanging_hook(case).await?;
    let crashing = Game::rolling(3).max_unavailable(2).image("game:crash");
    case.apply(crashing.pre_delete("test")).await?;
    case.until("all pods crash", |view| {
        view.pods.len() == 3 && view.pods.iter().all(|pod| pod.restarts() > 0)
    })
    .await?;
    case.scale(2).await?;
    let has_pods_and_no_hook_runs =
        |count: usize| move |view: &View| view.pods.len() == count && view.runs.is_empty();
    case.until("one pod is deleted", has_pods_and_no_hook_runs(2)).await?;
    case.set_image("game:nope").await?;
    let recreated =
        |view: &View| has_pods_and_no_hook_runs(2)(view) && view.count_with("game:nope") == 2;
    case.until("both pods are recreated", recreated).await?;
    case.scale(1).await?;
    case.until("another pod is deleted", has_pods_and_no_hook_runs(1)).await?;
    case.set_image("game:v2").await?;
    case.until_settled(1).await?;
    case.scale(0).await?;
    case.until("the running pod waits for its hook", |view| {
        view.pods.len() == 1 && view.phases("PreDelete") == ["Running"]
    })
    .await?;
    Ok(())
}

#[e2e::test]
async fn a_pod_that_never_started_is_updated_in_place_without_its_hook(
    case: &mut Case,
) -> Result<()> {
    apply_hanging_hook(case).await?;
    let broken = Game::in_place(2).max_unavailable(2).image("game:nope");
    case.apply(broken.pre_inplace("test")).await?;
    let before = case
        .until("the image cannot be pulled", |view| {
            // The kubelet reports these reasons in turn.
            let reasons = ["ErrImagePull", "ImagePullBackOff"];
            let pods = view.pods.iter().map(|pod| pod.0.to_string());
            let waiting = pods.filter(|pod| reasons.iter().any(|reason| pod.contains(reason)));
            waiting.count() == 2
        })
        .await?;
    case.set_image("game:v2").await?;
    let view = case.until_settled(2).await?;
    view.ensure(view.pod_names() == before.pod_names())?;
    ensure!(case.hooks.calls("/").is_empty(), "the hook was called");
    Ok(())
}

#[e2e::test]
async fn a_pod_with_one_running_container_waits_for_its_hook(case: &mut Case) -> Result<()> {
    case.hooks.answer("/", Answer::Json(json!({"age": 10})));
    case.apply(retrying_hook_template("test", &case.hooks.url("/"))).await?;
    let container = |name: &str, image: &str| json!({"name": name, "image": image});
    let containers = [container("game", "game:v1"), container("sidecar", "sidecar:nope")];
    let game = Game::rolling(2)
        .pre_delete("test")
        .set("/spec/template/spec/containers", containers.to_vec());
    case.apply(game).await?;
    case.until("the game containers run", |view| {
        let mut pods = view.pods.iter();
        view.pods.len() == 2
            && pods.all(|pod| pod.is_running() && text(&pod.0, "/status/phase") == "Pending")
    })
    .await?;
    case.scale(1).await?;
    case.until("a hook runs", |view| view.phases("PreDelete") == ["Running"]).await?;
    case.consistently("the pod is kept", 2, |view| view.pods.len() == 2).await?;
    case.hooks.answer("/", example_answer());
    case.until("the pod is deleted", |view| view.pods.len() == 1).await?;
    Ok(())
}
