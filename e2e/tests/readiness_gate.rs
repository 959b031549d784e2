//! Pods without a readiness gate (`disableReadinessGate`) that are updated in place.

use anyhow::Result;
use e2e::case::Case;
use e2e::workload::GAME;
use e2e::workload::manifest::Game;
use e2e::workload::view::Pod;
use serde_json::json;

/// Disables the gate, and removes it from the template.
fn ungated(game: Game) -> Game {
    game.set("/spec/disableReadinessGate", true)
        .set("/spec/template/spec/readinessGates", json!([]))
}

fn has_gate(pod: &Pod) -> bool {
    pod.0.pointer("/spec/readinessGates/0").is_some()
}

#[e2e::test]
async fn new_pods_have_no_gate_if_it_is_disabled(case: &mut Case) -> Result<()> {
    case.apply(ungated(Game::in_place(2))).await?;
    let before = case.until_settled(2).await?;
    before.ensure(!before.pods.iter().any(has_gate))?;
    case.set_image("game:v2").await?;
    let view = case.until_settled(2).await?;
    view.ensure(view.pod_names() == before.pod_names())?;
    view.ensure(view.ready_with("game:v2") == 2)?;

    let gamedeployment = format!("gamedeployment/{GAME}");
    let patch = "-p={\"spec\": {\"disableReadinessGate\": false}}";
    let args = ["patch", &gamedeployment, "--type=merge", patch];
    case.kubectl(&args).await?;
    let after = case.until_settled(2).await?;
    after.ensure(after.pod_names() == before.pod_names())?;
    let revision = "/status/updateRevision";
    after.ensure(after.text(revision) == view.text(revision))?;
    case.scale(3).await?;
    let view = case.until_settled(3).await?;
    let gated = view.pods.iter().filter(|pod| has_gate(pod));
    view.ensure(gated.count() == 1)
}

#[e2e::test]
async fn pods_of_a_stateful_set_are_updated_without_a_gate(case: &mut Case) -> Result<()> {
    case.use_stateful_set();
    let game = ungated(Game::parallel(2)).updated_by("InplaceUpdate");
    case.apply(game).await?;
    let before = case.until_settled(2).await?;
    before.ensure(!before.pods.iter().any(has_gate))?;
    case.set_image("game:v2").await?;
    let view = case.until_settled(2).await?;
    let uids = |view: &e2e::workload::view::View| -> Vec<String> {
        view.pods.iter().map(|pod| pod.uid().to_owned()).collect()
    };
    view.ensure(uids(&view) == uids(&before))
}
