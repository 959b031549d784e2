//! Writes to pods that have changed or were deleted in the meantime.

use super::*;
use gamekeeper_core::observed::PodPhase;

#[tokio::test(start_paused = true)]
async fn writes_that_depend_on_an_unchanged_pod_have_its_version_as_a_precondition() {
    let pod = running("a");
    let reason = DeletionReason::Update;
    let any = Write::delete_pod(permit(&pod, Allowed(None)), reason);
    let unchanged = Write::delete_unchanged_pod(permit(&pod, Allowed(None)), reason);
    for (deletion, version) in [(unchanged, json!("7")), (any, Value::Null)] {
        let mut harness = Harness::new(accepting);
        harness.carry_out(plan(vec![deletion])).await;
        let bodies = harness.bodies.lock().unwrap();
        let preconditions = json!({"uid": "uid-a", "resourceVersion": version});
        assert_eq!(bodies[1]["preconditions"], preconditions);
    }
    // Its hook is not asked, because nothing runs in the pod.
    let idle = Pod { phase: PodPhase::Pending, ..pod };
    let needs_hook = Allowed(Some(jiff::Timestamp::MAX));
    let mut harness = Harness::new(accepting);
    harness.carry_out(plan(vec![change(permit(&idle, needs_hook))])).await;
    let bodies = harness.bodies.lock().unwrap();
    assert_eq!(bodies[1]["metadata"]["resourceVersion"], "7");
    // The version after the gate was closed.
    let test = json!({"op": "test", "path": "/metadata/resourceVersion", "value": "12"});
    assert!(bodies[2].as_array().unwrap().contains(&test), "{bodies:#?}");
}

#[tokio::test(start_paused = true)]
async fn a_conflict_on_a_pod_delays_no_other_pod() {
    let mut harness = Harness::new(|request, count| match request {
        "DELETE /api/v1/pods/a" => (409, json!({"reason": "Conflict", "message": "m"})),
        _ => accepting(request, count),
    });
    let report = harness.carry_out(plan(vec![delete("a"), delete("b")])).await;
    assert_eq!(report.outcome, Outcome::Conflict("m".into()));
    assert_eq!(*harness.writes.lock().unwrap(), [deleted("b")]);
}

#[tokio::test(start_paused = true)]
async fn the_deletion_of_a_deleted_pod_succeeds() {
    let mut harness = Harness::new(|request, _| match request {
        "DELETE /api/v1/pods/a" => (404, json!({"reason": "NotFound"})),
        _ => accepting(request, 0),
    });
    let report = harness.carry_out(plan(vec![delete("a")])).await;
    assert_eq!(report.outcome, Outcome::Done);
    let writes = harness.writes.lock().unwrap();
    assert_eq!(*writes, [deleted("a")]);
}
