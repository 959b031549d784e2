//! Refused writes, and what is remembered about them for the next plan.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_refused_pod_stops_creations_at_its_revision_and_the_next_plan_tries_one_pod() {
    let mut harness = Harness::new(|request, _| match request {
        "POST /api/v1/pods" => (403, json!({"message": "exceeded quota"})),
        _ => accepting(request, 0),
    });
    let creations = || plan((0..1_000).map(create).collect());
    let report = harness.carry_out(creations()).await;
    let refused = Outcome::Failed { message: "exceeded quota".into(), after: None };
    assert_eq!(report.outcome, refused);
    assert!(harness.sent().len() <= 65);
    let failures = &harness.memory.failures;
    assert_eq!(failures.of(Attempt::CreatePod), Some("exceeded quota"));
    let verdict = &harness.memory.verdicts["lobby-1"];
    assert!(matches!(verdict, Verdict::Refused { message, .. } if message == "exceeded quota"));
    harness.carry_out(creations()).await;
    assert_eq!(harness.sent().len(), 2, "one GET, one POST");
}

#[tokio::test(start_paused = true)]
async fn a_refused_pod_delays_only_its_own_revision() {
    let mut harness = Harness::new(|request, _| match request {
        "POST /api/v1/pods" => (403, json!({"message": "exceeded quota"})),
        _ => accepting(request, 0),
    });
    harness.carry_out(plan(vec![create(0)])).await;
    let other = |n| create_at(n, "lobby-2");
    let creations = || plan((0..100).map(create).chain((100..200).map(other)).collect());
    let mut harness = accepting_from_now_on(harness);
    let report = harness.carry_out(creations()).await;
    assert_eq!(report.outcome, Outcome::Unfinished);
    let expected = "a dry run of one pod, that pod, and all pods of the other revision";
    assert_eq!(created(&harness), 102, "{expected}");
    harness.carry_out(creations()).await;
    assert_eq!(created(&harness), 200, "all pods, because the pod that was tried was accepted");
}

#[tokio::test(start_paused = true)]
async fn a_refused_deletion_or_claim_does_not_delay_creations() {
    let mut harness = Harness::new(|request, _| match request {
        "DELETE /api/v1/pods/a" | "POST /api/v1/persistentvolumeclaims" => {
            (403, json!({"message": "not allowed"}))
        }
        _ => accepting(request, 0),
    });
    let claim = Write::create_claim(NewClaim { name: "data-lobby-0".into(), claim: json!({}) });
    harness.carry_out(plan(vec![delete("a"), claim])).await;
    for attempt in [Attempt::RemovePod, Attempt::PrepareClaim] {
        assert_eq!(harness.memory.failures.of(attempt), Some("not allowed"));
    }
    let mut harness = accepting_from_now_on(harness);
    harness.carry_out(plan((0..100).map(create).collect())).await;
    assert_eq!(created(&harness), 100);
}

fn hook() -> Write {
    Write::create_run(HookRun::new("run", <_>::default()), None)
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_forgotten_when_an_action_of_its_kind_succeeds_or_none_is_planned() {
    let mut harness = Harness::new(|request, _| match request {
        line if line.starts_with("GET") => accepting(line, 0),
        _ => (403, json!({"message": "not allowed"})),
    });
    harness.carry_out(plan(vec![delete("a"), hook()])).await;
    let has_failed = |harness: &Harness, attempt| harness.memory.failures.of(attempt).is_some();
    assert!(
        has_failed(&harness, Attempt::RemovePod) && has_failed(&harness, Attempt::StartUpdateHook)
    );
    let mut harness = accepting_from_now_on(harness);
    harness.carry_out(plan(vec![hook()])).await;
    assert!(!has_failed(&harness, Attempt::StartUpdateHook));
    assert!(has_failed(&harness, Attempt::RemovePod));
    harness.memory.retain_failures(&[hook()], Timestamp::now());
    assert!(!has_failed(&harness, Attempt::RemovePod));
}

/// Newer data would not help, so this 404 is no conflict: the failure is shown, and the pods wait.
#[tokio::test(start_paused = true)]
async fn a_hook_run_without_its_crd_is_refused() {
    let mut harness = Harness::new(|request, _| match request {
        "POST /apis/tkex.tencent.com/v1alpha1/hookruns" => {
            (404, json!({"message": "404 page not found\n"}))
        }
        _ => accepting(request, 0),
    });
    let run = HookRun::new("run", <_>::default());
    let report = harness.carry_out(plan(vec![Write::create_run(run, None)])).await;
    let message = "HookRuns cannot be created; install the CRD hookruns.tkex.tencent.com from the chart: \
                   404 page not found";
    let refused = Outcome::Failed { message: message.into(), after: None };
    assert_eq!(report.outcome, refused);
    let failures = &harness.memory.failures;
    assert_eq!(failures.of(Attempt::StartUpdateHook), Some(message));
}

#[tokio::test(start_paused = true)]
async fn all_pods_that_a_plan_replaces_count_as_one_round_of_backoff() {
    let mut harness = Harness::new(accepting);
    let ended = |n: usize| {
        let pod = running(&format!("lobby-{n}"));
        Write::delete_pod(permit(&pod, Allowed(None)), DeletionReason::EndedAtOnce)
    };
    let mut due = Vec::new();
    for _ in 0..2 {
        harness.carry_out(plan((0..10).map(ended).collect())).await;
        due.push(harness.memory.backoff.expect("a backoff").due());
    }
    let difference = due[1].duration_since(due[0]);
    assert!(difference.as_secs() >= 10, "10 s, then 20 s: {difference}");
}

#[tokio::test(start_paused = true)]
async fn the_servers_retry_after_is_returned() {
    let mut harness = Harness::new(|request, _| match request {
        "POST /api/v1/pods" => (429, json!("too many requests")),
        _ => accepting(request, 0),
    });
    let report = harness.carry_out(plan(vec![create(1)])).await;
    let Outcome::Failed { after, .. } = report.outcome else {
        panic!("{report:?}");
    };
    assert_eq!(after, Some(Duration::from_secs(7)));
    let failures = &harness.memory.failures;
    assert_eq!(failures.of(Attempt::CreatePod), None, "the pod was not refused");
    assert_eq!(*harness.writes.lock().unwrap(), [], "nothing was written");
}

#[tokio::test(start_paused = true)]
async fn the_cache_must_catch_up_after_a_write_without_a_response() {
    let mut harness = Harness::new(|request, _| match request {
        "POST /api/v1/pods" => (504, json!("a timeout")),
        _ => accepting(request, 0),
    });
    let report = harness.carry_out(plan(vec![create(1)])).await;
    assert!(matches!(report.outcome, Outcome::Failed { .. }), "{report:?}");
    let writes = harness.writes.lock().unwrap();
    assert_eq!(*writes, [Written::Unknown(Kind::Pod)]);
}

fn in_terminating_namespace(request: &str, count: usize) -> (u16, Value) {
    match request {
        "POST /apis/tkex.tencent.com/v1alpha1/hookruns" => {
            let cause = json!({"reason": "NamespaceTerminating", "field": "metadata.namespace"});
            let details = json!({"causes": [cause]});
            (403, json!({"message": "terminating", "details": details}))
        }
        _ => accepting(request, count),
    }
}

fn start_hook() -> Plan<Value> {
    let metadata = json!({"name": "run", "namespace": "games"});
    let run = json!({"metadata": metadata, "spec": {"metrics": []}});
    let run = serde_json::from_value(run).unwrap();
    plan(vec![Write::create_run(run, None)])
}

#[tokio::test(start_paused = true)]
async fn the_hook_of_a_deleted_workload_runs_in_a_terminating_namespace() {
    let mut harness = Harness::new(|request, count| {
        let (code, mut body) = in_terminating_namespace(request, count);
        if code == 200 {
            body["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        (code, body)
    });
    harness.target.deleting = true;
    let report = harness.carry_out(start_hook()).await;
    assert_eq!(report.outcome, Outcome::Done);
    let kept = std::mem::take(&mut *harness.unstored.lock().unwrap());
    assert_eq!(kept.len(), 1);
    assert_eq!(kept[0].metadata.name.as_deref(), Some("run"));
}

#[tokio::test(start_paused = true)]
async fn a_workload_that_is_not_being_deleted_starts_no_hook_in_a_terminating_namespace() {
    let mut harness = Harness::new(in_terminating_namespace);
    let report = harness.carry_out(start_hook()).await;
    assert!(matches!(report.outcome, Outcome::Failed { .. }));
    assert!(harness.unstored.lock().unwrap().is_empty());
}

/// The pauses grow even though a dry run in between shows that there is no PodDisruptionBudget. The rest of each plan
/// is carried out.
#[tokio::test(start_paused = true)]
async fn a_budget_that_cannot_be_created_is_tried_again_with_growing_pauses() {
    let mut harness = Harness::new(|request, count| match request {
        "PATCH /apis/policy/v1/poddisruptionbudgets/budget" => {
            (403, json!({"message": "exceeded quota"}))
        }
        "DELETE /apis/policy/v1/poddisruptionbudgets/budget" => (404, json!({})),
        _ => accepting(request, count),
    });
    let name = || "budget".to_owned();
    let apply = || {
        let (name, budget) = (name(), json!({}));
        plan(vec![Write::apply_budget(Budget { name, budget })])
    };
    let mut pauses = Vec::new();
    for _ in 0..3 {
        let report = harness.carry_out(apply()).await;
        assert_eq!(report.outcome, Outcome::Unfinished, "not a failure");
        let Some(GuardState::NotInForce { message, at, .. }) = &harness.memory.guard else {
            panic!("{:?}", harness.memory.guard);
        };
        let expected = "the PodDisruptionBudget cannot be created: exceeded quota";
        assert_eq!(message, expected);
        let due = harness.memory.guard.as_ref().map(GuardState::due);
        pauses.push(due.expect("a time").duration_since(*at).as_secs());
        let probe = Write::probe_guard(name());
        harness.carry_out(plan(vec![probe])).await;
    }
    assert_eq!(pauses, [1, 2, 4]);
}

#[tokio::test(start_paused = true)]
async fn the_state_of_the_guard_is_unknown_if_the_deletion_of_its_budget_got_no_response() {
    let mut harness = Harness::new(|request, count| match request {
        "DELETE /apis/policy/v1/poddisruptionbudgets/budget" => (504, json!({})),
        _ => accepting(request, count),
    });
    let (at, others) = (jiff::Timestamp::UNIX_EPOCH, Vec::new());
    harness.memory.guard = Some(GuardState::InForce { at, others });
    harness.carry_out(plan(vec![Write::delete_budget("budget".to_owned())])).await;
    assert_eq!(harness.memory.guard, None);
}

/// A policy that gives new pods another label, as in a mesh: no workload would select the pod.
fn relabeling(request: &str, count: usize) -> (u16, Value) {
    let (code, mut body) = accepting(request, count);
    body["metadata"]["labels"] = json!({"app": "mesh", "controller-revision-hash": "lobby-1"});
    (code, body)
}

fn create_labeled() -> Write {
    let pod = json!({"metadata": {
        "name": "lobby-1", "labels": {"app": "lobby", "controller-revision-hash": "lobby-1"},
        "ownerReferences": [{"apiVersion": "v1", "kind": "A", "name": "a", "uid": "u", "controller": true}],
    }});
    let (name, revision) = ("lobby-1".into(), "lobby-1".into());
    Write::create_pod(NewPod { name, revision, pod: pod.into(), has_gate: false })
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_not_stored_as_asked_is_deleted_and_the_next_one_is_only_tried() {
    let mut harness = Harness::new(relabeling);
    harness.target.owner.selector_keys = vec!["app".to_owned()];
    let report = harness.carry_out(plan(vec![create_labeled()])).await;
    let Outcome::Failed { message, .. } = report.outcome else {
        panic!("{report:?}");
    };
    assert!(message.contains("it was stored with metadata.labels[app] \"mesh\""), "{message}");
    let writes = |harness: &Harness| {
        let sent = harness.sent().into_iter();
        sent.filter(|it| !it.starts_with("GET")).collect::<Vec<_>>()
    };
    let undone = ["POST /api/v1/pods", "DELETE /api/v1/pods/lobby-1"];
    assert_eq!(writes(&harness), undone);
    harness.carry_out(plan(vec![create_labeled()])).await;
    assert_eq!(writes(&harness), ["POST /api/v1/pods"], "a dry run");
    assert!(harness.memory.failures.of(Attempt::CreatePod).is_some());
    let mut harness = accepting_from_now_on(harness);
    harness.carry_out(plan(vec![create_labeled()])).await;
    assert_eq!(writes(&harness), ["POST /api/v1/pods"; 2], "a dry run, and the pod");
    assert_eq!(harness.memory.failures.of(Attempt::CreatePod), None);
}

/// Players could already be in a pod that is created only to be deleted.
#[tokio::test(start_paused = true)]
async fn the_first_pod_of_a_revision_is_tried_before_any_is_created() {
    let creations = || plan((0..50).map(|n| create_at(n, "lobby-3")).collect());
    let mut harness = Harness::new(accepting);
    harness.carry_out(creations()).await;
    assert_eq!(created(&harness), 51, "one dry run");
    let mut harness = Harness::new(relabeling);
    harness.target.owner.selector_keys = vec!["app".to_owned()];
    harness.memory.verdicts.clear();
    for _ in 0..2 {
        harness.carry_out(plan((0..50).map(|_| create_labeled()).collect())).await;
        assert_eq!(created(&harness), 1, "a dry run");
    }
}

/// A proof is valid for half a second, and a dry run may take longer.
#[tokio::test(start_paused = true)]
async fn pods_are_created_although_dry_runs_are_slow() {
    let slow = Duration::from_millis(600);
    let mut harness = Harness::with_slow_method(Method::POST, slow, accepting);
    let creations = (0..3).map(|n| create_at(n, "lobby-3")).collect();
    let report = harness.carry_out(plan(creations)).await;
    assert_eq!(report.outcome, Outcome::Done);
    assert_eq!(created(&harness), 4, "one dry run");
}

/// The plan of the dry run is too old for the creation, and the next plan needs no other dry run.
#[tokio::test(start_paused = true)]
async fn a_hook_that_was_refused_starts_although_dry_runs_are_slow() {
    let slow = Duration::from_millis(600);
    let mut harness = Harness::with_slow_method(Method::POST, slow, |request, count| match count {
        0 | 1 if request.starts_with("POST") => {
            (403, json!({"message": "no", "reason": "Forbidden"}))
        }
        _ => accepting(request, count),
    });
    let mut outcomes = Vec::new();
    for _ in 0..3 {
        harness.target.read_at = Instant::now();
        outcomes.push(harness.carry_out(plan(vec![hook()])).await.outcome);
    }
    assert!(matches!(outcomes[0], Outcome::Failed { .. }), "{outcomes:?}");
    assert_eq!(outcomes[1..], [Outcome::Unfinished, Outcome::Done]);
    let posts = harness.sent().iter().filter(|it| it.starts_with("POST")).count();
    assert_eq!(posts, 3, "the refused one, the dry run, and the hook");
}

/// The scheduler, or anybody else, has changed it.
#[tokio::test(start_paused = true)]
async fn a_pod_that_is_not_stored_as_asked_is_left_if_something_has_happened_to_it() {
    let mut harness = Harness::new(|request, count| match request.starts_with("DELETE") {
        true => (409, json!({"reason": "Conflict", "message": "the precondition failed"})),
        false => relabeling(request, count),
    });
    harness.target.owner.selector_keys = vec!["app".to_owned()];
    harness.carry_out(plan(vec![create_labeled()])).await;
    let failure = harness.memory.failures.of(Attempt::CreatePod).expect("a failure");
    assert!(failure.contains("and delete lobby-1, which is left"), "{failure:?}");
    let bodies = harness.bodies.lock().unwrap();
    let preconditions = &bodies.last().expect("a body")["preconditions"];
    assert!(preconditions["resourceVersion"].is_string(), "{preconditions}");
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_that_is_changed_is_a_refusal() {
    let mut harness = Harness::new(relabeling);
    harness.target.owner.selector_keys = vec!["app".to_owned()];
    let pod = json!({"metadata": {"labels": {"app": "lobby"}}});
    harness.carry_out(plan(vec![Write::dry_run("lobby-1".to_owned(), pod)])).await;
    assert!(matches!(harness.memory.verdicts["lobby-1"], Verdict::Refused { .. }));
}

/// A policy that keeps the operator's label away, or another client that removes it each time.
#[tokio::test(start_paused = true)]
async fn a_write_that_is_undone_each_time_is_not_made_without_end() {
    let mut harness = Harness::new(accepting);
    let label = || {
        let labels = vec![("a".to_owned(), "b".to_owned())];
        plan(vec![Write::label_pod(&running("lobby-1"), labels)])
    };
    for _ in 0..4 {
        assert_eq!(harness.carry_out(label()).await.outcome, Outcome::Done);
    }
    for _ in 0..20 {
        let report = harness.carry_out(label()).await;
        assert!(matches!(report.outcome, Outcome::Failed { .. }), "{report:?}");
    }
    assert_eq!(harness.sent().len(), 4);
    let message = harness.memory.failures.of(Attempt::MarkPod).expect("a failure");
    assert!(message.contains("undoes what the operator writes"), "{message}");
    tokio::time::advance(Duration::from_secs(10)).await;
    assert_eq!(harness.carry_out(label()).await.outcome, Outcome::Done);
    assert_eq!(harness.memory.failures.of(Attempt::MarkPod), None);
}

#[tokio::test(start_paused = true)]
async fn a_status_that_is_stored_differently_each_time_is_not_written_without_end() {
    let mut harness = Harness::new(accepting);
    let mut written = 0;
    for _ in 0..30 {
        let status = Some(json!({"replicas": 1}));
        let report = harness.carry_out(Plan { status, ..plan(vec![]) }).await;
        written += harness.sent().len();
        let due = report.status_due.unwrap_or_else(Instant::now);
        assert!(due < Instant::now() + Duration::from_secs(400));
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    assert_eq!(written, 5, "four at once, and one after ten seconds");
}
