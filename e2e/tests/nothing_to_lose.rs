//! A pod none of whose containers runs has nothing to lose, and one that runs has, however short a
//! time ago it began to and whatever its phase is.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use e2e::case::Case;
use e2e::servers::hook_server::{Answer, bryan};
use e2e::workload::GAME;
use e2e::workload::manifest::{Game, hook_template, patient_hook_template};
use e2e::workload::view::View;
use judge::object::{runs, text};
use serde_json::json;

e2e::tests![
    a_burst_that_is_taken_back_ends_no_pod_that_runs,
    a_dead_server_is_scaled_in_and_recreated_although_its_hook_cannot_answer,
    a_server_that_never_started_is_mended_in_place_unasked,
    a_game_that_runs_beside_a_sidecar_that_does_not_is_asked,
];

/// Pods of the burst: enough for some to start while others go.
const BURST: u32 = 160;

/// Names of the pods that the API server has ever stored with a running container.
fn ever_ran(case: &Case) -> Result<BTreeSet<String>> {
    let mut events = case.plane().audit.writes(&case.namespace)?;
    events.retain(|event| event.succeeded());
    let answers = events.into_iter().filter_map(|event| event.response_object);
    let pods = answers.filter(|object| object["kind"] == "Pod" && runs(object));
    Ok(pods
        .map(|pod| text(&pod, "/metadata/name").to_owned())
        .collect())
}

async fn a_burst_that_is_taken_back_ends_no_pod_that_runs(case: &mut Case) -> Result<()> {
    case.hooks.answer("/", Answer::Json(json!({"age": 10})));
    case.apply(hook_template("test", &case.hooks.url("/")))
        .await?;
    case.apply(Game::in_place(2).pre_delete("test")).await?;
    case.until_settled(2).await?;
    case.scale(BURST).await?;
    let running = |view: &View| view.pods.iter().filter(|pod| pod.runs()).count();
    case.until("half of them run", |view| {
        view.pods.len() > BURST as usize / 2 && running(view) > 20
    })
    .await?;
    case.scale(2).await?;
    case.until(
        "who does not run is gone, who runs has been asked",
        |view| {
            let asked = view.phases("PreDelete");
            view.is_observed()
                && view
                    .pods
                    .iter()
                    .all(|pod| pod.runs() && !pod.is_terminating())
                && asked.len() == view.pods.len() - 2
                && asked.iter().all(|phase| *phase == "Failed")
        },
    )
    .await?;
    let (view, ran) = (case.view().await?, ever_ran(case)?);
    let there: BTreeSet<String> = view.pod_names().into_iter().map(str::to_owned).collect();
    ensure!(
        ran == there,
        "{} pods ran, {} are there",
        ran.len(),
        there.len()
    );
    let remove = json!([{"op": "remove", "path": "/spec/preDeleteUpdateStrategy/hook"}]);
    case.patch(&format!("gamedeployment/{GAME}"), remove)
        .await?;
    case.until_settled(2).await?;
    Ok(())
}

/// A hook that is asked, and never gets an answer.
async fn unanswering(case: &Case) -> Result<()> {
    case.hooks.answer("/", Answer::Never);
    case.apply(patient_hook_template("test", &case.hooks.url("/")))
        .await?;
    Ok(())
}

async fn a_dead_server_is_scaled_in_and_recreated_although_its_hook_cannot_answer(
    case: &mut Case,
) -> Result<()> {
    unanswering(case).await?;
    let crashing = Game::rolling(3).max_unavailable(2).image("game:crash");
    case.apply(crashing.pre_delete("test")).await?;
    case.until("all of them crash", |view| {
        view.pods.len() == 3 && view.pods.iter().all(|pod| pod.restarts() > 0)
    })
    .await?;
    case.scale(2).await?;
    let pods_are =
        |count: usize| move |view: &View| view.pods.len() == count && view.runs.is_empty();
    case.until("one is gone", pods_are(2)).await?;
    case.set_image("game:nope").await?;
    let recreated = |view: &View| pods_are(2)(view) && view.with_image("game:nope") == 2;
    case.until("they are recreated", recreated).await?;
    case.scale(1).await?;
    case.until("one more is gone", pods_are(1)).await?;
    case.set_image("game:v2").await?;
    case.until_settled(1).await?;
    case.scale(0).await?;
    case.until("a server that runs waits for its hook", |view| {
        view.pods.len() == 1 && view.phases("PreDelete") == ["Running"]
    })
    .await?;
    Ok(())
}

async fn a_server_that_never_started_is_mended_in_place_unasked(case: &mut Case) -> Result<()> {
    unanswering(case).await?;
    let broken = Game::in_place(2).max_unavailable(2).image("game:nope");
    case.apply(broken.pre_inplace("test")).await?;
    let before = case
        .until("no image arrives", |view| {
            let pods = view.pods.iter();
            let waits = pods.filter(|pod| pod.0.to_string().contains("ErrImagePull"));
            waits.count() == 2
        })
        .await?;
    case.set_image("game:v2").await?;
    let view = case.until_settled(2).await?;
    view.ensure(view.pod_names() == before.pod_names())?;
    ensure!(case.hooks.calls("/").is_empty(), "nobody is asked");
    Ok(())
}

async fn a_game_that_runs_beside_a_sidecar_that_does_not_is_asked(case: &mut Case) -> Result<()> {
    case.hooks.answer("/", Answer::Json(json!({"age": 10})));
    case.apply(patient_hook_template("test", &case.hooks.url("/")))
        .await?;
    let container = |name: &str, image: &str| json!({"name": name, "image": image});
    let containers = [
        container("game", "game:v1"),
        container("sidecar", "sidecar:nope"),
    ];
    let game = Game::rolling(2)
        .pre_delete("test")
        .set("/spec/template/spec/containers", containers.to_vec());
    case.apply(game).await?;
    case.until("their games run", |view| {
        let mut pods = view.pods.iter();
        view.pods.len() == 2
            && pods.all(|pod| pod.runs() && text(&pod.0, "/status/phase") == "Pending")
    })
    .await?;
    case.scale(1).await?;
    case.until("one is asked", |view| {
        view.phases("PreDelete") == ["Running"]
    })
    .await?;
    case.keeps("it stays", 2, |view| view.pods.len() == 2)
        .await?;
    case.hooks.answer("/", bryan());
    case.until("it is gone", |view| view.pods.len() == 1)
        .await?;
    Ok(())
}
