//! How long a plan may be carried out: changed workloads, slow servers and slow plans.

use super::*;
use crate::runtime::fair::TooLate;

#[tokio::test(start_paused = true)]
async fn no_pod_is_created_or_deleted_if_the_workload_has_changed() {
    let changed: [Script; 3] = [
        |_, _| (200, object("u", 4, 11)),
        |_, _| (200, object("another", 3, 11)),
        |_, _| {
            let mut terminating = object("u", 3, 11);
            terminating["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            (200, terminating)
        },
    ];
    for script in changed {
        let mut harness = Harness::new(script);
        let report = harness.carry_out(plan(vec![delete("a"), create(1)])).await;
        assert!(matches!(report.outcome, Outcome::Conflict(_)));
        assert_eq!(harness.sent(), [format!("GET {WORKLOAD}")]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_patch_that_changes_the_generation_ends_the_plan() {
    let mut harness = Harness::new(|_, _| (200, object("u", 4, 11)));
    let patch = WorkloadPatch { paused: Some(true), ..WorkloadPatch::default() };
    let report = harness.carry_out(plan(vec![create(1), Write::patch_workload(patch)])).await;
    assert!(matches!(report.outcome, Outcome::Conflict(_)));
    assert_eq!(harness.sent(), [format!("PATCH {WORKLOAD}")]);
}

#[tokio::test(start_paused = true)]
async fn actions_that_depend_on_pods_stop_after_half_a_second() {
    let mut harness = Harness::new(accepting);
    let report = harness.carry_out(plan((0..1_000).map(replace).collect())).await;
    assert_eq!(report.outcome, Outcome::Unfinished);
    let sent = harness.sent().len();
    assert!((200..500).contains(&sent), "{sent}");
}

#[tokio::test(start_paused = true)]
async fn creations_continue_while_the_proof_is_renewed() {
    let mut harness = Harness::new(accepting);
    let report = harness.carry_out(plan((0..1_000).map(create).collect())).await;
    assert_eq!(report.outcome, Outcome::Done);
    let sent = harness.sent();
    let proofs = sent.iter().filter(|it| it.starts_with("GET")).count();
    assert!((3..10).contains(&proofs), "{proofs}");
    assert_eq!(sent.len(), 1_000 + proofs);
}

#[tokio::test(start_paused = true)]
async fn a_proof_is_renewed_only_while_actions_wait_for_it() {
    let lobby = running("a");
    for (slow, write) in [
        (Method::POST, create(0)),
        (Method::PATCH, change(permit(&lobby, Allowed(None)))),
        (Method::DELETE, delete("a")),
    ] {
        let mut harness = Harness::with_slow_method(slow, Duration::from_secs(5), accepting);
        harness.carry_out(plan(vec![write])).await;
        let sent = harness.sent();
        let proofs = sent.iter().filter(|line| **line == format!("GET {WORKLOAD}"));
        assert_eq!(proofs.count(), 1, "{sent:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn creations_wait_for_a_slow_proof() {
    let mut harness = Harness::with_slow_gets(Duration::from_millis(450), accepting);
    let report = harness.carry_out(plan((0..500).map(create).collect())).await;
    assert_eq!(report.outcome, Outcome::Done);
    let sent = harness.sent();
    assert_eq!(sent.iter().filter(|it| it.starts_with("POST")).count(), 500, "{sent:#?}");
}

#[tokio::test(start_paused = true)]
async fn the_first_late_proof_is_not_accepted() {
    let mut harness = Harness::with_slow_gets(Duration::from_millis(700), accepting);
    let report = harness.carry_out(plan(vec![delete("a")])).await;
    assert_eq!(report.outcome, Outcome::Unfinished);
    assert_eq!(harness.sent(), [format!("GET {WORKLOAD}")]);
}

#[tokio::test(start_paused = true)]
async fn all_actions_are_done_eventually_with_a_slow_api_server() {
    for seconds in [0.7, 1.2, 3.0, 7.0] {
        let mut harness = Harness::with_slow_gets(Duration::from_secs_f64(seconds), accepting);
        let mut remaining: Vec<usize> = (0..200).collect();
        for _ in 0..12 {
            harness.target.read_at = Instant::now();
            let report =
                harness.carry_out(plan(remaining.iter().copied().map(replace).collect())).await;
            let sent = harness.sent();
            remaining.retain(|n| !sent.contains(&format!("DELETE /api/v1/pods/lobby-{n}")));
            if report.outcome == Outcome::Done {
                break;
            }
        }
        assert!(
            remaining.is_empty(),
            "not replaced, with proofs that take {seconds} s: {remaining:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn actions_that_depend_on_pods_are_dropped_after_a_slow_status_write() {
    let mut harness =
        Harness::with_slow_method(Method::PUT, Duration::from_millis(1_100), accepting);
    let report = harness
        .carry_out(Plan {
            status: Some(json!({"replicas": 1})),
            status_first: true,
            ..plan(vec![replace(1), create(1)])
        })
        .await;
    assert_eq!(report.outcome, Outcome::Unfinished);
    let sent = harness.sent();
    let expected = [
        format!("PUT {WORKLOAD}/status"),
        format!("GET {WORKLOAD}"),
        "POST /api/v1/pods".to_owned(),
    ];
    assert_eq!(sent, expected);
}

/// If a process was frozen while it planned, what it has read about pods is long outdated.
#[tokio::test(start_paused = true)]
async fn actions_that_depend_on_pods_are_dropped_after_the_first_slow_plan() {
    for seconds in [1.1, 60.0] {
        let mut harness = Harness::new(accepting);
        tokio::time::advance(Duration::from_secs_f64(seconds)).await;
        let report = harness.carry_out(plan(vec![replace(1), create(1)])).await;
        assert_eq!(report.outcome, Outcome::Unfinished);
        let expected = [format!("GET {WORKLOAD}"), "POST /api/v1/pods".to_owned()];
        assert_eq!(harness.sent(), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn all_actions_are_done_eventually_with_slow_plans() {
    for seconds in [1.1, 3.0, 7.0] {
        let mut harness = Harness::new(accepting);
        let mut plans = 0;
        let plan_slowly = async |harness: &mut Harness| {
            harness.target.read_at = Instant::now();
            tokio::time::advance(Duration::from_secs_f64(seconds)).await;
            harness.carry_out(plan(vec![replace(1)])).await.outcome
        };
        while plan_slowly(&mut harness).await != Outcome::Done {
            plans += 1;
            assert!(plans < 5, "plans of {seconds} s are never carried out");
        }
        assert_eq!(harness.sent().len(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn creations_stop_when_the_workload_has_changed() {
    let mut harness = Harness::new(|request, count| {
        let generation = if count > 300 { 4 } else { 3 };
        let version = 11 + count;
        match request.starts_with("GET") {
            true => (200, object("u", generation, version)),
            false => accepting(request, count),
        }
    });
    let report = harness.carry_out(plan((0..1_000).map(create).collect())).await;
    assert_eq!(report.outcome, Outcome::Unfinished);
    let sent = harness.sent().len();
    assert!((300..600).contains(&sent), "{sent}");
}

#[tokio::test(start_paused = true)]
async fn a_deleted_workload_adopts_no_orphan_and_gets_no_revision() {
    let create_revision = Write::create_revision(NewRevision {
        name: "lobby-1".into(),
        number: 1,
        data: RevisionData::Template(json!({}).into()),
        cause: None,
    });
    for write in [Write::adopt_pod(&running("a")), create_revision] {
        let mut harness = Harness::new(|request, _| match request {
            _ if request.starts_with("GET") => (404, json!({"reason": "NotFound"})),
            _ => accepting(request, 0),
        });
        let report = harness.carry_out(plan(vec![write])).await;
        assert!(matches!(report.outcome, Outcome::Conflict(_)));
        assert_eq!(harness.sent(), [format!("GET {WORKLOAD}")]);
    }
}

#[tokio::test(start_paused = true)]
async fn no_guard_is_removed_if_the_workload_has_changed() {
    let unguard = Write::guard_pod(pod("a"), None, Vec::new());
    let delete_budget = Write::delete_budget("budget".into());
    for write in [unguard, delete_budget] {
        let mut harness = Harness::new(|_, _| (200, object("u", 4, 11)));
        let report = harness.carry_out(plan(vec![write])).await;
        assert!(matches!(report.outcome, Outcome::Conflict(_)));
        assert_eq!(harness.sent(), [format!("GET {WORKLOAD}")]);
    }
}

/// Nothing else would cause another plan.
#[tokio::test(start_paused = true)]
async fn a_write_that_had_to_wait_for_too_long_is_left_to_the_next_plan() {
    let server = service_fn(|request: Request<Body>| async move {
        match *request.method() {
            Method::DELETE => Err(tower::BoxError::from(TooLate)),
            _ => {
                let body = object("u", 3, 11).to_string().into_bytes();
                Ok(Response::new(Body::from(body)))
            }
        }
    });
    let requests = Requests::new(Client::new(server, "games"));
    let mut harness = Harness::new(accepting);
    harness.applier = Applier { requests, ..harness.applier.clone() };
    let report = harness.carry_out(plan(vec![replace(1)])).await;
    assert_eq!(report.outcome, Outcome::Unfinished);
}
