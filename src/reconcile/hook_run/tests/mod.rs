//! Tests the controller against a scripted API server and a scripted hook endpoint.

mod jobs;
mod unstored;
mod world;

use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use self::world::{Endpoint, QUICK, World, key, metric};
use super::*;
use crate::kinds::CachedHookRun;
use gamekeeper_core::api::{HookPhase, HookRun};

#[tokio::test]
async fn a_run_of_one_quick_measurement_costs_one_write() {
    let endpoint = Endpoint::start(&["{\"age\":45}"], QUICK).await;
    let world = World::new(metric(&endpoint, json!({})));
    world.until_phase(HookPhase::Failed).await;
    let status = world.status();
    assert_eq!(status["metricResults"][0]["count"], 1);
    assert_eq!(status["metricResults"][0]["failed"], 1);
    assert_eq!(status["metricResults"][0]["measurements"][0]["value"], "45");
    assert_eq!((world.writes(), endpoint.calls()), (1, 1));
}

#[tokio::test]
async fn a_run_with_a_slow_measurement_is_shown_as_running() {
    let endpoint = Endpoint::start(&["{\"age\":20}"], Duration::from_secs(1)).await;
    let world = World::new(metric(&endpoint, json!({})));
    world.until_phase(HookPhase::Running).await;
    world.until_phase(HookPhase::Successful).await;
    assert_eq!((world.writes(), endpoint.calls()), (2, 1));
}

#[tokio::test]
async fn a_stale_cache_does_not_repeat_a_measurement() {
    let endpoint = Endpoint::start(&["{\"age\":20}"], QUICK).await;
    let world = World::new(metric(&endpoint, json!({"count": 2, "interval": "1s"})));
    // The cache keeps showing the first state.
    world.until_phase(HookPhase::Successful).await;
    for _ in 0..5 {
        world.queue.add(key());
        sleep(Duration::from_millis(50)).await;
    }
    assert_eq!((world.writes(), endpoint.calls()), (2, 2));
    assert!(
        !world.controller.runs.is_empty(),
        "the run is kept until the cache has observed its end"
    );
    world.show();
    world.until("the run is forgotten", |world| world.controller.runs.is_empty()).await;
    assert_eq!((world.writes(), endpoint.calls()), (2, 2));
}

#[tokio::test]
async fn a_restarted_operator_resumes_the_run() {
    let endpoint = Endpoint::start(&["{\"age\":20}"], QUICK).await;
    let first = World::new(metric(&endpoint, json!({"count": 3, "interval": "1s"})));
    first.until("one measurement", |world| world.status()["metricResults"][0]["count"] == 1).await;
    first.stop();
    let second = World::with_server(Arc::clone(&first.server));
    second.until_phase(HookPhase::Successful).await;
    assert_eq!(second.status()["metricResults"][0]["count"], 3);
    assert_eq!(endpoint.calls(), 3);
}

#[tokio::test]
async fn a_completed_run_that_can_be_decoded_again_loses_its_condition_and_ends_once() {
    let endpoint = Endpoint::start(&["{\"age\":20}"], QUICK).await;
    let first = World::new(metric(&endpoint, json!({})));
    first.until_phase(HookPhase::Successful).await;
    first.stop();
    let condition = json!({
        "type": "Ready", "status": "False", "reason": "Unreadable", "message": "",
        "lastTransitionTime": "2026-01-02T03:04:05Z",
    });
    let server = Arc::clone(&first.server);
    server.change(|run| run["status"]["conditions"] = json!([condition]));
    let second = World::with_server(server);
    second.until("the condition is removed", |world| world.status()["conditions"].is_null()).await;
    assert_eq!(second.phase(), HookPhase::Successful);
    second.show();
    second.until("the run is forgotten", |world| world.controller.runs.is_empty()).await;
    assert_eq!((second.writes(), endpoint.calls()), (2, 1));
    let counts_end = |world: &World| world.metrics_page().contains("hook_runs_ended_total{");
    assert!(counts_end(&first) && !counts_end(&second), "the end of a run is counted once");
}

/// etcd keeps each version of the run for minutes.
#[tokio::test]
async fn a_run_is_written_at_most_once_a_second() {
    let endpoint = Endpoint::start(&["{\"age\":20}"], QUICK).await;
    let metrics = (0..8).map(|number| {
        let delay = format!("{}ms", number * 100);
        let name = format!("m-{number}");
        let more = json!({"name": name, "initialDelay": delay, "count": 3, "interval": "1s"});
        metric(&endpoint, more)
    });
    let started = Instant::now();
    let world = World::new(metrics.collect());
    world.until_phase(HookPhase::Successful).await;
    assert_eq!(endpoint.calls(), 24);
    // One at the start, one a second, and one at the end.
    let most = started.elapsed().as_secs() as usize + 2;
    assert!(world.writes() <= most, "{} writes", world.writes());
    let results = world.status()["metricResults"].clone();
    let counts = results.as_array().expect("results").iter();
    assert!(counts.map(|it| &it["count"]).all(|count| *count == 3), "{results}");
}

#[tokio::test]
async fn a_rejected_status_is_written_again_after_a_second_and_then_more_slowly() {
    let endpoint = Endpoint::start(&["{\"age\":20}"], QUICK).await;
    let world = World::new(metric(&endpoint, json!({})));
    *world.server.failures.lock().expect("failures") = vec![403; 2];
    let started = Instant::now();
    world.until_phase(HookPhase::Successful).await;
    assert!(started.elapsed() >= Duration::from_secs(1 + 2), "{:?}", started.elapsed());
    assert_eq!((world.writes(), endpoint.calls()), (1, 1));
}

#[tokio::test]
async fn a_completed_run_causes_no_work() {
    let endpoint = Endpoint::start(&["{\"age\":20}"], QUICK).await;
    let world = World::new(metric(&endpoint, json!({})));
    world.server.change(|run| run["status"] = json!({"phase": "Failed"}));
    world.until_phase(HookPhase::Failed).await;
    world.stop();
    let world = World::with_server(Arc::clone(&world.server));
    sleep(Duration::from_millis(200)).await;
    assert!(world.queue.next().now_or_never().is_none());
    assert!(world.controller.runs.is_empty());
    assert_eq!(world.writes(), 0);
}

#[tokio::test]
async fn a_run_deleted_during_a_measurement_is_forgotten() {
    let endpoint = Endpoint::start(&["{\"age\":20}"], Duration::from_secs(1)).await;
    let world = World::new(metric(&endpoint, json!({})));
    world.until("the call", |_| endpoint.calls() == 1).await;
    world.show_nothing();
    world.until("the run is forgotten", |world| world.controller.runs.is_empty()).await;
    let writes = world.writes();
    sleep(Duration::from_millis(1_500)).await;
    assert_eq!((world.writes(), endpoint.calls()), (writes, 1));
}

#[tokio::test]
async fn a_terminating_run_is_not_measured() {
    let endpoint = Endpoint::start(&["{\"age\":20}"], QUICK).await;
    let world = World::new(metric(&endpoint, json!({"initialDelay": "1s"})));
    world.server.change(|run| {
        run["metadata"]["deletionTimestamp"] = json!("2020-11-10T09:02:05Z");
    });
    world.show();
    sleep(Duration::from_millis(1_500)).await;
    assert_eq!(endpoint.calls(), 0);
    assert!(world.controller.runs.is_empty());
}

#[tokio::test]
async fn another_run_with_the_same_name_starts_from_scratch() {
    let endpoint = Endpoint::start(&["{\"age\":20}"], Duration::from_millis(500)).await;
    let world = World::new(metric(&endpoint, json!({})));
    world.until("the call", |_| endpoint.calls() == 1).await;
    world.server.change(|run| {
        run["metadata"]["uid"] = json!("uid-2");
        run["status"] = Value::Null;
    });
    world.show();
    world.until_phase(HookPhase::Successful).await;
    assert_eq!(endpoint.calls(), 2, "measurements of the old run do not count");
}

#[tokio::test]
async fn terminate_stops_a_run_despite_concurrent_status_writes() {
    let endpoint = Endpoint::start(&["{\"age\":20}"], QUICK).await;
    let world = World::new(metric(&endpoint, json!({"interval": "1s"})));
    world.until("one measurement", |world| world.writes() == 1).await;
    // The cache does not show the user's write yet when the next result is written.
    world.server.change(|run| run["spec"]["terminate"] = json!(true));
    world.until("a conflict", |world| world.server.conflicts.load(Ordering::SeqCst) > 0).await;
    world.show();
    world.until_phase(HookPhase::Successful).await;
    // The measurement whose write met the conflict counts, and no other one follows.
    assert_eq!(world.status()["metricResults"][0]["count"], endpoint.calls());
}

#[tokio::test]
async fn no_measurement_starts_while_status_writes_fail() {
    let endpoint = Endpoint::start(&["{\"age\":20}"], QUICK).await;
    let world = World::new(metric(&endpoint, json!({"count": 3, "interval": "1s"})));
    *world.server.failures.lock().expect("failures") = vec![500; 10];
    world
        .until("all failures", |world| world.server.failures.lock().expect("failures").is_empty())
        .await;
    assert_eq!(endpoint.calls(), 1, "no more calls while the API server fails");
    world.until_phase(HookPhase::Successful).await;
    assert_eq!((endpoint.calls(), world.writes()), (3, 3));
}

#[tokio::test]
async fn a_write_whose_response_was_lost_is_not_repeated() {
    let endpoint = Endpoint::start(&["{\"age\":20}"], QUICK).await;
    let world = World::new(metric(&endpoint, json!({"count": 2, "interval": "1s"})));
    *world.server.failures.lock().expect("failures") = vec![504];
    world.until("one write", |world| world.writes() == 1).await;
    world.show();
    world.until_phase(HookPhase::Successful).await;
    assert_eq!((endpoint.calls(), world.writes()), (2, 2));
}

#[tokio::test]
async fn a_status_written_by_another_client_takes_precedence() {
    let endpoint = Endpoint::start(&["{\"age\":20}"], QUICK).await;
    let world = World::new(metric(&endpoint, json!({"count": 2, "interval": "2s"})));
    world.until("one measurement", |world| world.writes() == 1).await;
    world.server.change(|run| run["status"] = json!({"phase": "Failed", "message": "by hand"}));
    world.show();
    world.until("the run is forgotten", |world| world.controller.runs.is_empty()).await;
    assert_eq!((world.status()["message"].clone(), endpoint.calls()), (json!("by hand"), 1));
}

#[tokio::test]
async fn a_run_is_deleted_after_its_time_to_live() {
    let endpoint = Endpoint::start(&["{\"age\":45}"], QUICK).await;
    let world = World::new(metric(&endpoint, json!({})));
    world.server.change(|run| {
        run["spec"]["ttlStrategy"] = json!({"secondsAfterFailure": 2, "secondsAfterSuccess": 3600});
    });
    world.show();
    let started = std::time::Instant::now();
    world.until_phase(HookPhase::Failed).await;
    world.show();
    let deletions = |world: &World| world.server.deletions.load(Ordering::SeqCst);
    world.until("the deletion", |world| deletions(world) == 1).await;
    // Times in a status are whole seconds, so the two seconds may last little more than one second.
    assert!(started.elapsed() > Duration::from_millis(900));
}

/// Parsing expressions takes a while, so the rules are kept until the spec changes.
#[test]
fn the_rules_of_a_spec_are_parsed_once() {
    let run = |generation: i64| {
        let mut run = HookRun::new("run", gamekeeper_core::api::HookRunSpec::default());
        run.metadata.uid = Some("uid-1".into());
        run.metadata.generation = Some(generation);
        CachedHookRun::new(run, true)
    };
    let rules = Arc::default();
    let mut live = Live::resume(&run(1), Arc::clone(&rules), Timestamp::now());
    let known = |live: &Live, generation| live.rules(&run(generation));
    assert!(known(&live, 1).is_some_and(|it| Arc::ptr_eq(&it, &rules)));
    assert!(known(&live, 2).is_none(), "the spec was changed");
    live.observe(&run(2), rules);
    assert!(known(&live, 2).is_some());
}

#[tokio::test]
async fn a_run_that_is_not_stored_is_measured_without_a_write() {
    let endpoint = Endpoint::start(&["{\"age\":45}", "{\"age\":20}"], QUICK).await;
    // The fake server accepts writes to its own run only.
    let world = World::new(metric(&endpoint, json!({"initialDelay": "1h"})));
    let run: HookRun = serde_json::from_value(json!({
        "metadata": {"name": "unstored", "namespace": "games"},
        "spec": {"metrics": [metric(&endpoint, json!({}))]},
    }))
    .expect("a run");
    let key = ObjectKey::new("games", "unstored");
    let runs = &world.cache.unstored_runs;
    let phase = || runs.get(&key).map(|run| run.object.phase());
    for expected in [HookPhase::Failed, HookPhase::Successful] {
        runs.add(run.clone());
        world.queue.add(key.clone());
        world.until("the run has ended", |_| phase() == Some(expected)).await;
        let uid = runs.get(&key).expect("the run").uid().to_owned();
        runs.remove(&key, &uid);
        world.queue.add(key.clone());
        world
            .until("the run is forgotten", |world| {
                world.controller.runs.visit(&key, |_| ()).is_none()
            })
            .await;
    }
    assert_eq!(endpoint.calls(), 2);
}

/// etcd keeps each version of a run for minutes.
#[tokio::test]
async fn status_writes_wait_for_the_bytes_of_their_namespace_but_the_end_of_a_run_does_not() {
    const SECONDS: u64 = 3;
    let bytes = usize::try_from(BURST_BYTES + SECONDS * BYTES_PER_SECOND).expect("a size");
    for (more, waits) in [(json!({}), false), (json!({"count": 2, "interval": "1s"}), true)] {
        let endpoint = Endpoint::start(&["{\"age\":20}"], QUICK).await;
        let world = World::new(metric(&endpoint, more));
        world.controller.written_bytes.count("games", bytes);
        let started = Instant::now();
        world.until("the first write", |world| world.writes() == 1).await;
        let waited = started.elapsed() > Duration::from_secs(SECONDS - 1);
        assert_eq!(waited, waits, "{:?}", started.elapsed());
        world.until_phase(HookPhase::Successful).await;
    }
}

#[tokio::test]
async fn status_writes_of_a_namespace_are_limited() {
    let endpoint = Endpoint::start(&["{\"age\":20}"], QUICK).await;
    let world = World::new(metric(&endpoint, json!({})));
    let others = std::iter::from_fn(|| world.controller.writes.try_take("games"));
    let others: Vec<_> = others.collect();
    assert_eq!(others.len(), 48 + 4);
    world.until("the call", |_| endpoint.calls() == 1).await;
    sleep(Duration::from_millis(500)).await;
    assert_eq!(world.writes(), 0);
    drop(others);
    world.until_phase(HookPhase::Successful).await;
}
