//! The operator as a process: start, stop, freeze, idle load, and several replicas.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::case::Case;
use e2e::cluster::operator::Operator;
use e2e::wait::{LIMIT, consistently, eventually};
use e2e::workload::manifest::{Game, hook_template};
use jiff::Timestamp;
use judge::{Counts, Event};
use serde_json::json;

#[e2e::test]
async fn a_settled_workload_causes_no_writes(case: &mut Case) -> Result<()> {
    case.apply(Game::in_place(10).max_unavailable(5)).await?;
    case.until_settled(10).await?;
    case.set_image("game:v2").await?;
    case.until_settled(10).await?;
    let count =
        |case: &Case| Ok::<_, anyhow::Error>(case.writes()?.sum(|kind| kind.resource != "leases"));
    let check_quiet = async |case: &Case| -> Result<()> {
        let before = count(case)?;
        consistently("nothing is written", Duration::from_secs(5), async || {
            ensure!(count(case)? == before);
            Ok(())
        })
        .await
    };
    // The last status write may come up to a second later, and events up to two seconds later.
    case.eventually("nothing is written for five seconds", async || check_quiet(case).await)
        .await?;
    // A write is logged when it is complete, so one that has already been received does not count.
    let (start, time) = (Timestamp::now(), case.operator.processor_time()?);
    consistently("nothing is written", Duration::from_secs(20), async || {
        let is_new = |event: &Event| event.received > start && event.resource() != "leases";
        let writes = Counts::of(&case.events()?, is_new);
        ensure!(writes == Counts::default(), "writes:\n{writes}");
        Ok(())
    })
    .await?;
    let used = case.operator.processor_time()? - time;
    // In the meantime, the lease is renewed ten times.
    ensure!(used <= Duration::from_millis(200), "{used:?} of CPU time");
    Ok(())
}

#[e2e::test]
async fn a_restart_changes_nothing(case: &mut Case) -> Result<()> {
    case.apply(Game::in_place(3)).await?;
    let before = case.until_settled(3).await?;
    case.operator.terminate().await?;
    case.operator.start().await?;
    case.consistently("nothing has changed", 4, |view| {
        view.game["metadata"]["resourceVersion"] == before.game["metadata"]["resourceVersion"]
            && view.pod_names() == before.pod_names()
    })
    .await?;
    case.scale(4).await?;
    case.until_settled(4).await?;
    Ok(())
}

#[e2e::test]
async fn a_frozen_operator_catches_up(case: &mut Case) -> Result<()> {
    case.apply(Game::in_place(4).max_unavailable(2)).await?;
    case.until_settled(4).await?;
    case.set_image("game:v2").await?;
    case.until("the update has started", |view| view.count_with("game:v2") > 0).await?;
    case.operator.freeze().await?;
    case.scale(2).await?;
    case.set_image("game:v3").await?;
    case.operator.thaw().await?;
    let view = case.until_settled(2).await?;
    view.ensure(view.ready_with("game:v3") == 2)
}

/// Waits until an operator holds the lease. Its log contains the identity with which it waits for the lease.
async fn until_leading(case: &Case, operator: &Operator) -> Result<()> {
    case.eventually("the operator leads", async || {
        let lease = case.get("leases/gamekeeper").await?;
        let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default();
        let log = std::fs::read_to_string(operator.log())?;
        let leads = !holder.is_empty() && log.contains(holder);
        ensure!(leads, "{holder:?} leads");
        Ok(())
    })
    .await
}

#[e2e::test]
async fn a_thawed_leader_without_a_lease_writes_nothing(case: &mut Case) -> Result<()> {
    // An operator is ready before it leads.
    until_leading(case, &case.operator).await?;
    let mut standby = case.prepare_operator("standby").await?;
    standby.start().await?;
    case.apply(Game::in_place(6).max_unavailable(1)).await?;
    case.until_settled(6).await?;
    case.set_image("game:v2").await?;
    case.until("the update has started", |view| view.count_with("game:v2") > 0).await?;
    case.operator.disable_restart();
    case.operator.freeze().await?;
    // The update may already have been complete.
    until_leading(case, &standby).await?;
    case.until_settled(6).await?;
    let writes = |case: &Case| -> Result<Vec<String>> {
        // A request that the freeze cut in half fails when the connection is closed, and is logged only then.
        let events = case.events()?.into_iter().filter(Event::succeeded);
        let uris = events.map(|event| event.uri);
        Ok(uris.filter(|uri| !uri.contains("/leases")).collect())
    };
    let before = writes(case)?.len();
    case.set_image("game:v3").await?;
    case.operator.thaw().await?;
    eventually("the operator exits", LIMIT, async || {
        ensure!(case.operator.has_lost_its_lease()?, "the operator is still running");
        Ok(())
    })
    .await?;
    case.until_settled(6).await?;
    let after = writes(case)?;
    ensure!(after.len() == before, "written without the lease: {:?}", &after[before..]);
    standby.terminate().await
}

#[e2e::test]
async fn invariants_hold_across_repeated_kills(case: &mut Case) -> Result<()> {
    let mut template = hook_template("test", &case.hooks.url("/"));
    template["spec"]["metrics"][0]["initialDelay"] = json!("500ms");
    case.apply(template).await?;
    let steps = json!([{"partition": 4}, {"pause": {"duration": 1}}, {"partition": 2},
        {"hook": {"templateName": "test"}}]);
    let game = Game::in_place(6).max_unavailable(2).pre_delete("test").steps(steps);
    case.apply(game).await?;
    case.until_settled(6).await?;
    case.operator.disable_leader_election();
    case.set_image("game:v2").await?;
    for kill in 0..12 {
        case.kill_operator().await?;
        match kill {
            4 => case.scale(8).await?,
            8 => case.scale(5).await?,
            _ => {}
        }
        case.operator.start().await?;
        // The number of writes before the next kill varies.
        let writes = case.events()?.len() + kill % 4;
        let _ = eventually("the operator writes", Duration::from_secs(2), async || {
            ensure!(case.events()?.len() > writes);
            Ok(())
        })
        .await;
    }
    let view = case.until_settled(5).await?;
    view.ensure(view.ready_with("game:v2") == 5)
}

#[e2e::test]
async fn health_and_metrics_are_served(case: &mut Case) -> Result<()> {
    case.apply(Game::in_place(1)).await?;
    case.until_settled(1).await?;
    for (path, words) in [("/healthz", ""), ("/readyz", ""), ("/metrics", "gamekeeper_")] {
        let (code, body) = case.operator.get(path).await?;
        ensure!(code == 200 && body.contains(words), "{path}: {code} {body}");
    }
    Ok(())
}
