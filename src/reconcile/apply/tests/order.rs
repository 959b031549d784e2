//! The order of actions and status writes, and the gates of pods.

use super::*;

#[tokio::test(start_paused = true)]
async fn gates_are_opened_before_the_status_is_written_and_other_actions_follow() {
    let mut harness = Harness::new(accepting);
    let report = harness
        .carry_out(Plan {
            status: Some(json!({"replicas": 1})),
            status_first: true,
            ..plan(vec![create(1), Write::open_gate(pod("a"))])
        })
        .await;
    assert_eq!(report.outcome, Outcome::Done);
    let expected = [
        "PATCH /api/v1/pods/a/status".to_owned(),
        // The success of this write proves that the workload is unchanged, so no GET is needed.
        format!("PUT {WORKLOAD}/status"),
        "POST /api/v1/pods".to_owned(),
    ];
    assert_eq!(harness.sent(), expected);
    assert_eq!(harness.writes.lock().unwrap().len(), 3);
    assert_eq!(harness.memory.verdicts["lobby-1"], Verdict::Accepted);
}

#[tokio::test(start_paused = true)]
async fn a_status_without_actions_is_written_at_most_once_a_second() {
    let mut harness = Harness::new(accepting);
    let status =
        |replicas: i64| Plan { status: Some(json!({"replicas": replicas})), ..plan(Vec::new()) };
    assert_eq!(harness.carry_out(status(1)).await.status_due, None);
    let due = harness.carry_out(status(2)).await.status_due.unwrap();
    assert_eq!(harness.sent().len(), 1);
    tokio::time::sleep_until(due).await;
    assert_eq!(harness.carry_out(status(3)).await.status_due, None);
    assert_eq!(harness.carry_out(status(0)).await.status_due, None, "equal to the cached status");
    assert_eq!(harness.sent().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_gates_of_new_pods_are_opened_immediately() {
    let mut harness = Harness::new(accepting);
    let gates = json!([{"conditionType": "InPlaceUpdateReady"}]);
    let create_with_gate = |n: usize| {
        Write::create_pod(NewPod {
            name: format!("lobby-{n}"),
            revision: "lobby-1".into(),
            pod: json!({"spec": {"readinessGates": gates}}).into(),
            has_gate: true,
        })
    };
    let report = harness.carry_out(plan(vec![create_with_gate(1)])).await;
    assert_eq!(report.outcome, Outcome::Done);
    assert_eq!(harness.sent()[1..], ["POST /api/v1/pods", "PATCH /api/v1/pods/lobby-1/status"]);
    let report = harness.carry_out(plan((0..1_000).map(create_with_gate).collect())).await;
    assert_eq!(report.outcome, Outcome::Done);
    let sent = harness.sent();
    let opened = sent.iter().filter(|it| it.starts_with("PATCH")).count();
    assert_eq!(opened, 1_000);
}

#[tokio::test(start_paused = true)]
async fn an_update_does_not_wait_for_the_gates_of_other_pods() {
    let mut harness = Harness::new(accepting);
    let change = |n: usize| {
        let pod = running(&format!("lobby-{n}"));
        change(permit(&pod, Allowed(None)))
    };
    harness.carry_out(plan((0..100).map(change).collect())).await;
    let sent = harness.sent();
    let mut closed = 0_i64;
    for line in sent.iter().filter(|it| it.starts_with("PATCH")) {
        closed += if line.ends_with("/status") { 1 } else { -1 };
        assert!(closed <= 16, "{sent:#?}");
    }
    assert!(sent.len() > 64, "{sent:#?}");
    assert_eq!(closed, 0, "{sent:#?}");
}
