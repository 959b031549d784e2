//! Writes that have to wait for their turn are not sent once what they rest on may have changed.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::case::Case;
use e2e::faults::request::Verb;
use e2e::faults::{Fault, Frequency, Requests, Script};
use e2e::servers::hook_server::Answer;
use e2e::workload::GAME;
use e2e::workload::manifest::{Game, retrying_hook_template};
use serde_json::{Value, json};

/// The pods of each workload. All pods together are more than one connection has streams.
const PODS: i64 = 60;
const OTHER: &str = "other";
const DELETIONS: Requests = Requests::To(Verb::Delete, "pods");

#[e2e::test]
async fn a_scale_out_stops_deletions_that_wait_for_their_turn(case: &mut Case) -> Result<()> {
    let replicas = |replicas: i64| json!({"spec": {"replicas": replicas}});
    check(case, replicas(0), replicas(PODS)).await
}

#[e2e::test]
async fn a_pause_stops_deletions_that_wait_for_their_turn(case: &mut Case) -> Result<()> {
    let container = json!({"name": "game", "image": "game:v2"});
    let update = json!({"spec": {"template": {"spec": {"containers": [container]}}}});
    let pause = json!({"spec": {"updateStrategy": {"paused": true}}});
    check(case, update, pause).await
}

/// A change lets the operator delete all pods once their hooks allow it. The API server is slow to respond to deletions,
/// so only some of them can be sent, and others wait. Then a user takes the change back.
async fn check(case: &mut Case, change: Value, undo: Value) -> Result<()> {
    let proxy = case.restart_behind_proxy().await?;
    case.hooks.answer("/", Answer::Json(json!({"age": 1})));
    case.apply(retrying_hook_template("test", &case.hooks.url("/"))).await?;
    for name in [GAME, OTHER] {
        let game = Game::rolling(PODS).named(name).pre_delete("test");
        case.apply(game.max_unavailable("100%")).await?;
    }
    for name in [GAME, OTHER] {
        case.until_of(name, "settled", |view| view.is_settled(PODS)).await?;
    }
    merge(case, &change).await?;
    case.eventually("all hooks run", async || {
        ensure!(case.list("hookruns").await?.len() as i64 == 2 * PODS);
        Ok(())
    })
    .await?;
    // No deletion is proven to be wanted while all hooks pass: a read of the workload proves it, and a write of its
    // status.
    let proofs = [Verb::Get, Verb::Update].map(|verb| Requests::To(verb, "gamedeployments"));
    let refuse = |script: Script, proof| script.with(proof, Fault::Conflict, Frequency::Always);
    proxy.play(proofs.into_iter().fold(Script::default(), refuse));
    case.hooks.answer("/", Answer::Json(json!({"age": 45})));
    case.eventually("all hooks have passed", async || {
        let runs = case.list("hookruns").await?;
        let passed = runs.iter().filter(|run| run["status"]["phase"] == "Successful");
        ensure!(passed.count() as i64 == 2 * PODS);
        Ok(())
    })
    .await?;
    let before = proxy.tally();
    let slow = Fault::Delay(Duration::from_secs(120));
    proxy.play(Script::default().with(DELETIONS, slow, Frequency::Always));
    let sent = || {
        let delayed = |tally: &e2e::faults::Tally| tally.0.get(slow.name()).copied();
        let sent = delayed(&proxy.tally()).unwrap_or(0) - delayed(&before).unwrap_or(0);
        i64::try_from(sent).unwrap_or(i64::MAX)
    };
    // As many are sent as one namespace may have in progress.
    case.eventually("the first deletions are sent", async || {
        ensure!(sent() >= PODS, "{} were sent", sent());
        Ok(())
    })
    .await?;
    merge(case, &undo).await?;
    let first = sent();
    // A deletion that has waited for less than half a second may follow a moment after the undo, if its turn comes.
    case.consistently("no other deletion gets its turn", 2, |_| sent() == first).await?;
    // From now on, each deletion is refused and counted.
    proxy.play(Script::default().with(DELETIONS, Fault::Conflict, Frequency::Always));
    let refused = proxy.tally();
    for name in [GAME, OTHER] {
        case.until_of(name, "observed", |view| view.is_observed()).await?;
    }
    case.consistently("no deletion follows", 5, |_| proxy.tally() == refused).await?;
    ensure!(first < 2 * PODS, "no deletion had to wait: {first} were sent");
    Ok(())
}

async fn merge(case: &Case, change: &Value) -> Result<()> {
    let change = change.to_string();
    for name in [GAME, OTHER] {
        let workload = format!("gamedeployment/{name}");
        case.kubectl(&["patch", &workload, "--type=merge", "-p", &change]).await?;
    }
    Ok(())
}
