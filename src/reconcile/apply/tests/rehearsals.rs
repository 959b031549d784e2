//! Dry runs on a pod before it leaves service, and what is remembered about them.

use jiff::Timestamp;

use super::*;
use gamekeeper_core::workload::RefusedChange;
use gamekeeper_core::write::{Change, Rehearsal};

/// A write that closes the gate of pod lobby-1, changes its image and then its resources.
fn change_and_resize() -> Write {
    let pod = running("lobby-1");
    let Change::SetGate { then: Some(patch), .. } =
        change(permit(&pod, Allowed(None))).change().clone()
    else {
        panic!("no change follows the gate");
    };
    let resources = [("game".to_owned(), json!({"requests": {"cpu": "2"}}))];
    let rehearsal = Rehearsal::of_change("lobby-2", &patch, &resources);
    let revision = "lobby-2".to_owned();
    Write::close_gate(permit(&pod, Allowed(None)), revision, Some(*patch), Some(rehearsal))
}

/// The writes that were sent since the last call.
fn patches(harness: &Harness) -> Vec<String> {
    harness.sent().into_iter().filter(|it| it.starts_with("PATCH")).collect()
}

/// What is remembered about the refused change of the pod.
fn refusal(harness: &Harness) -> RefusedChange {
    let refused = harness.memory.rehearsals.refused("uid-lobby-1", Timestamp::now());
    refused.expect("a refusal")
}

const CHANGE: &str = "PATCH /api/v1/pods/lobby-1";
const RESIZE: &str = "PATCH /api/v1/pods/lobby-1/resize";
const GATE: &str = "PATCH /api/v1/pods/lobby-1/status";

#[tokio::test(start_paused = true)]
async fn a_gate_is_closed_after_dry_runs_of_all_that_follows() {
    let mut harness = Harness::new(accepting);
    let report = harness.carry_out(plan(vec![change_and_resize()])).await;
    assert_eq!(report.outcome, Outcome::Done);
    assert_eq!(patches(&harness), [CHANGE, RESIZE, GATE, CHANGE]);
    harness.carry_out(plan(vec![change_and_resize()])).await;
    assert_eq!(patches(&harness), [GATE, CHANGE], "the dry runs have succeeded a moment ago");
}

#[tokio::test(start_paused = true)]
async fn a_gate_stays_open_if_a_dry_run_is_refused_and_the_pod_is_not_tried_at_once() {
    for refused in [CHANGE, RESIZE] {
        let mut harness = Harness::new(match refused {
            CHANGE => |line, count| match line == CHANGE {
                true => (403, json!({"message": "not on this pod"})),
                false => accepting(line, count),
            },
            _ => |line, count| match line == RESIZE {
                true => (403, json!({"message": "not on this pod"})),
                false => accepting(line, count),
            },
        });
        let report = harness.carry_out(plan(vec![change_and_resize()])).await;
        assert!(matches!(report.outcome, Outcome::Failed { .. }), "{report:?}");
        assert!(!patches(&harness).contains(&GATE.to_owned()));
        let refusal = refusal(&harness);
        assert_eq!((&*refusal.goal, &*refusal.message), ("lobby-2", "not on this pod"));
        assert_eq!(harness.memory.failures.of(Attempt::ChangePod), Some("not on this pod"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_that_is_refused_after_the_gate_was_closed_is_remembered() {
    let mut harness = Harness::new(|line, count| match (line, count) {
        // The status is the fourth request, after a proof and two dry runs.
        (CHANGE, 4..) => (403, json!({"message": "not on this pod"})),
        _ => accepting(line, count),
    });
    harness.carry_out(plan(vec![change_and_resize()])).await;
    assert_eq!(patches(&harness), [CHANGE, RESIZE, GATE, CHANGE]);
    assert_eq!(refusal(&harness).goal, "lobby-2");
}

/// The proof, which is valid for half a second, expires meanwhile.
#[tokio::test(start_paused = true)]
async fn a_gate_is_closed_although_dry_runs_are_slow() {
    let slow = Duration::from_millis(600);
    let mut harness = Harness::with_slow_method(Method::PATCH, slow, accepting);
    for expected in [Outcome::Unfinished, Outcome::Done] {
        harness.target.read_at = Instant::now();
        let report = harness.carry_out(plan(vec![change_and_resize()])).await;
        assert_eq!(report.outcome, expected);
    }
    assert_eq!(patches(&harness), [CHANGE, RESIZE, GATE, CHANGE]);
}

#[tokio::test(start_paused = true)]
async fn no_hook_starts_if_the_deletion_is_refused_in_a_dry_run() {
    let mut harness = Harness::new(|line, count| match line.starts_with("DELETE") {
        true => (403, json!({"message": "deletions of this pod are refused"})),
        false => accepting(line, count),
    });
    let rehearsal = Rehearsal::of_deletion(Attempt::RemovePod, &pod("lobby-1"));
    let run = HookRun::new("run", <_>::default());
    let start = Write::create_run(run, Some(rehearsal));
    harness.carry_out(plan(vec![start])).await;
    let writes: Vec<String> =
        harness.sent().into_iter().filter(|it| !it.starts_with("GET")).collect();
    assert_eq!(writes, ["DELETE /api/v1/pods/lobby-1"]);
    let failures = &harness.memory.failures;
    assert_eq!(failures.of(Attempt::RemovePod), Some("deletions of this pod are refused"));
    assert_eq!(failures.of(Attempt::StartUpdateHook), None);
}

/// Only the change itself shows whether such a webhook takes it. The policy of earlier charts refused dry runs, too.
#[tokio::test(start_paused = true)]
async fn a_refusal_of_dry_runs_as_such_refuses_nothing() {
    let mut harness = Harness::new(|line, count| match (line, count) {
        (CHANGE, 0..4) => (400, json!({"message": "webhook \"a\" does not support dry run"})),
        (RESIZE, 0..4) => (403, json!({"message": "denied: players may be on lobby-1: ..."})),
        _ => accepting(line, count),
    });
    let report = harness.carry_out(plan(vec![change_and_resize()])).await;
    assert_eq!(report.outcome, Outcome::Done);
}
