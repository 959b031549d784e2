//! Measurements with a Job.

use super::*;
use crate::provider::Call;
use gamekeeper_core::api::JobReference;

fn run(version: &str, status: Value) -> CachedHookRun {
    let spec = json!({"metrics": [{"name": "save", "provider": {"job": {"spec": {}}}}]});
    let run = json!({
        "apiVersion": "tkex.tencent.com/v1alpha1", "kind": "HookRun",
        "metadata": {"name": "run", "namespace": "games", "uid": "uid-1", "resourceVersion": version},
        "spec": spec, "status": status,
    });
    CachedHookRun::new(serde_json::from_value(run).expect("a run"), true)
}

fn job() -> JobReference {
    JobReference { name: "job".into(), uid: "job-uid".into() }
}

fn in_progress() -> Outcome {
    Outcome {
        phase: HookPhase::Running,
        resume_after: Some(jiff::SignedDuration::ZERO),
        job: Some(job()),
        ..Outcome::default()
    }
}

/// The calls that are started.
fn advance(live: &mut Live, run: &CachedHookRun) -> Vec<Call> {
    let mut calls = Vec::new();
    live.advance(run, |call, _| {
        calls.push(call);
        tokio::spawn(std::future::pending::<()>()).abort_handle()
    });
    calls
}

/// A poll starts the Job. If the operator then crashed, the next one would not know that the Job is its own.
#[tokio::test]
async fn a_job_is_polled_only_once_the_stored_status_records_it() {
    let unrecorded = run("10", Value::Null);
    let rules = Arc::new(Rules::of(&unrecorded.object.spec));
    let mut live = Live::resume(&unrecorded, Arc::clone(&rules), Timestamp::now());
    let first = advance(&mut live, &unrecorded);
    assert_eq!(first.len(), 1);
    assert_eq!(first[0].job, None);
    live.record_measurement(Some("uid-1"), |finished| Measured {
        metric: 0,
        started: finished,
        finished,
        outcome: in_progress(),
    });
    assert!(advance(&mut live, &unrecorded).is_empty());
    let patch = live.status_patch();
    live.record_write(11, patch.hash);
    assert!(advance(&mut live, &unrecorded).is_empty(), "the cache does not show the record");
    let status = serde_json::to_value(&patch.status).expect("a status");
    let recorded = run("11", status);
    live.observe(&recorded, rules);
    let polls = advance(&mut live, &recorded);
    assert_eq!(polls.len(), 1);
    assert_eq!(polls[0].job, Some(job()));
}
