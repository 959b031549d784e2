//! Creations of objects whose names are already taken.

use super::*;

#[tokio::test(start_paused = true)]
async fn an_ordinal_whose_pod_name_is_taken_does_not_delay_the_others() {
    let mut harness = Harness::new(|request, _| match request {
        "POST /api/v1/pods" => (409, json!({"reason": "AlreadyExists", "message": "exists"})),
        _ => accepting(request, 0),
    });
    harness.target.owner.kind = Kind::GameStatefulSet;
    let report = harness.carry_out(plan(vec![create(0)])).await;
    assert!(matches!(report.outcome, Outcome::Failed { .. }));
    let mut harness = accepting_from_now_on(harness);
    harness.carry_out(plan((0..100).map(create).collect())).await;
    assert_eq!(created(&harness), 100);
}

#[tokio::test(start_paused = true)]
async fn the_cache_must_show_an_existing_pod_of_the_workload_before_the_next_plan() {
    let mut harness = Harness::new(|request, _| match request {
        "POST /api/v1/pods" => (409, json!({"reason": "AlreadyExists"})),
        "GET /api/v1/pods/lobby-1" => {
            let mut pod = object("pod", 1, 99);
            pod["metadata"]["ownerReferences"] = json!([{"uid": "u", "controller": true}]);
            (200, pod)
        }
        _ => accepting(request, 0),
    });
    let report = harness.carry_out(plan(vec![create(1)])).await;
    assert!(matches!(report.outcome, Outcome::Conflict(_)));
    let writes = harness.writes.lock().unwrap();
    assert_eq!(*writes, [Written::Version(Kind::Pod, 99)]);
}

#[tokio::test(start_paused = true)]
async fn a_name_that_another_owner_has_taken_is_remembered() {
    let mut harness = Harness::new(|request, _| match request {
        "POST /api/v1/pods" => (409, json!({"reason": "AlreadyExists", "message": "exists"})),
        _ => accepting(request, 0),
    });
    let report = harness.carry_out(plan(vec![create(1)])).await;
    assert!(matches!(report.outcome, Outcome::Conflict(_)));
    assert_eq!(harness.memory.taken.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_run_of_a_deleted_workload_is_deleted_and_a_users_run_is_kept() {
    const RUN: &str = "/apis/tkex.tencent.com/v1alpha1/hookruns/run";
    fn already_exists() -> (u16, Value) {
        (409, json!({"reason": "AlreadyExists", "message": "exists"}))
    }
    let create = || {
        let run = json!({
            "apiVersion": "tkex.tencent.com/v1alpha1", "kind": "HookRun",
            "metadata": {"name": "run"}, "spec": {"metrics": []},
        });
        let run = serde_json::from_value(run).unwrap();
        plan(vec![Write::create_run(run, None)])
    };
    let mut harness = Harness::new(|request, _| match request.split_once(' ') {
        Some(("POST", _)) => already_exists(),
        Some(("GET", RUN)) => {
            let mut run = object("old", 1, 99);
            run["metadata"]["annotations"] = json!({names::RUN_WORKLOAD_UID: "before"});
            (200, run)
        }
        _ => accepting(request, 0),
    });
    let report = harness.carry_out(create()).await;
    assert!(matches!(report.outcome, Outcome::Conflict(_)), "{report:?}");
    assert!(harness.sent().contains(&format!("DELETE {RUN}")));

    let mut harness = Harness::new(|request, _| match request.split_once(' ') {
        Some(("POST", _)) => already_exists(),
        Some(("GET", RUN)) => (200, object("of a user", 1, 99)),
        _ => accepting(request, 0),
    });
    let report = harness.carry_out(create()).await;
    assert!(matches!(report.outcome, Outcome::Failed { .. }), "{report:?}");
    assert!(!harness.sent().contains(&format!("DELETE {RUN}")));
}
