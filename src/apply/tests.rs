//! Plans carried out against a scripted API server.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use http::{Method, Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tower::service_fn;

use super::*;
use crate::objects::{Deleted, ObjectKey, Write};
use gamekeeper_core::api::names;
use gamekeeper_core::plan::{
    Action, Deletion, DeletionReason, InPlacePatch, NewClaim, NewPod, Plan, PodRef, WorkloadPatch,
};

/// Answers a request ("METHOD path") with a code and a body.
type Script = fn(&str, usize) -> (u16, Value);

/// Carries plans out, and keeps what was sent and noted.
struct Play {
    applier: Applier,
    sent: Arc<Mutex<Vec<String>>>,
    bodies: Arc<Mutex<Vec<Value>>>,
    noted: Mutex<Vec<Write>>,
    memory: Memory,
    target: Target,
    _events: events::EventWriter,
}

impl Play {
    fn new(script: Script) -> Self {
        Self::with_proofs_after(Duration::from_millis(100), script)
    }

    /// On an API server that answers a GET after so long.
    fn with_proofs_after(proof: Duration, script: Script) -> Self {
        Self::slow_to(Method::GET, proof, script)
    }

    /// On an API server that answers requests of one sort after so long.
    fn slow_to(slow: Method, answers_after: Duration, script: Script) -> Self {
        let sent = Arc::new(Mutex::new(Vec::new()));
        let bodies = Arc::new(Mutex::new(Vec::new()));
        let server = service_fn({
            let sent = Arc::clone(&sent);
            let bodies = Arc::clone(&bodies);
            move |request: Request<Body>| {
                let path = request.uri().path().replace("/namespaces/games", "");
                let line = format!("{} {path}", request.method());
                let mut sent = sent.lock().unwrap();
                let (code, body) = script(&line, sent.len());
                sent.push(line);
                let response = Response::builder()
                    .status(code)
                    .header("Retry-After", "7")
                    .body(Body::from(body.to_string().into_bytes()))
                    .unwrap();
                let pause = match *request.method() == slow {
                    true => answers_after,
                    false => Duration::from_millis(100),
                };
                let bodies = Arc::clone(&bodies);
                async move {
                    let body = request.into_body().collect_bytes().await.unwrap();
                    let body = serde_json::from_slice(&body).unwrap_or_default();
                    bodies.lock().unwrap().push(body);
                    tokio::time::sleep(pause).await;
                    Ok::<_, Infallible>(response)
                }
            }
        });
        let requests = Requests::new(Client::new(server, "games"));
        let (events, writer) = events::EventRecorder::new();
        Self {
            applier: Applier::new(requests, events, Metrics::default()),
            sent,
            bodies,
            noted: Mutex::default(),
            memory: Memory::default(),
            target: target(),
            _events: writer,
        }
    }

    async fn carry_out(&mut self, plan: Plan<Value>) -> Report {
        let note = |written| self.noted.lock().unwrap().push(written);
        let shown = json!({"replicas": 0});
        self.applier
            .carry_out(
                &mut self.target,
                plan,
                Some(&shown),
                &mut self.memory,
                &note,
            )
            .await
    }

    fn sent(&self) -> Vec<String> {
        std::mem::take(&mut self.sent.lock().unwrap())
    }
}

fn target() -> Target {
    Target {
        kind: WorkloadKind::GameDeployment,
        namespace: "games".into(),
        name: "lobby".into(),
        uid: "u".into(),
        generation: 3,
        resource_version: "10".into(),
        selector_labels: BTreeMap::new(),
        hooked: false,
        seen: Instant::now(),
    }
}

const WORKLOAD: &str = "/apis/tkex.tencent.com/v1alpha1/gamedeployments/lobby";

fn object(uid: &str, generation: i64, version: usize) -> Value {
    json!({"metadata": {
        "uid": uid, "generation": generation, "resourceVersion": version.to_string(),
    }})
}

/// Everything is taken.
fn willing(_: &str, count: usize) -> (u16, Value) {
    (200, object("u", 3, 11 + count))
}

fn deleted(pod: &str) -> Write {
    Write::Deleted(Deleted {
        kind: Kind::Pod,
        key: ObjectKey::new("games", pod),
        uid: format!("uid-{pod}"),
    })
}

fn create(n: usize) -> Action {
    Action::CreatePod(NewPod {
        name: format!("lobby-{n}"),
        revision: "lobby-1".into(),
        pod: json!({"metadata": {"name": format!("lobby-{n}")}}),
    })
}

fn delete(name: &str) -> Action {
    Action::DeletePod(Deletion {
        pod: pod(name),
        reason: DeletionReason::ScaleIn,
        guarded: false,
    })
}

fn replace(n: usize) -> Action {
    Action::DeletePod(Deletion {
        pod: pod(&format!("lobby-{n}")),
        reason: DeletionReason::Update,
        guarded: false,
    })
}

fn pod(name: &str) -> PodRef {
    PodRef {
        name: name.into(),
        uid: format!("uid-{name}"),
        version: None,
    }
}

/// How many creations of pods were sent since this was last asked.
fn created(play: &Play) -> usize {
    let is_creation = |line: &&String| *line == "POST /api/v1/pods";
    play.sent().iter().filter(is_creation).count()
}

fn plan(actions: Vec<Action>) -> Plan<Value> {
    Plan {
        actions,
        ..Plan::nothing()
    }
}

#[tokio::test(start_paused = true)]
async fn first_what_prepares_then_the_status_then_the_rest() {
    let mut play = Play::new(willing);
    let report = play
        .carry_out(Plan {
            status: Some(json!({"replicas": 1})),
            status_first: true,
            ..plan(vec![create(1), Action::OpenGate(pod("a"))])
        })
        .await;
    assert_eq!(report.outcome, ApplyOutcome::Done);
    let expected = [
        "PATCH /api/v1/pods/a/status".to_owned(),
        // That it is taken proves the workload unmoved: no GET.
        format!("PUT {WORKLOAD}/status"),
        "POST /api/v1/pods".to_owned(),
    ];
    assert_eq!(play.sent(), expected);
    assert_eq!(play.noted.lock().unwrap().len(), 3);
    assert_eq!(play.memory.verdicts["lobby-1"], Verdict::Accepted);
}

#[tokio::test(start_paused = true)]
async fn nothing_irrevocable_is_done_for_a_workload_that_has_changed() {
    let moved: [Script; 3] = [
        |_, _| (200, object("u", 4, 11)),
        |_, _| (200, object("another", 3, 11)),
        |_, _| {
            let mut terminating = object("u", 3, 11);
            terminating["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            (200, terminating)
        },
    ];
    for script in moved {
        let mut play = Play::new(script);
        let report = play.carry_out(plan(vec![delete("a"), create(1)])).await;
        assert!(matches!(report.outcome, ApplyOutcome::Moved(_)));
        assert_eq!(play.sent(), [format!("GET {WORKLOAD}")]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_patch_of_our_own_that_moves_the_generation_ends_the_plan() {
    let mut play = Play::new(|_, _| (200, object("u", 4, 11)));
    let patch = WorkloadPatch {
        paused: Some(true),
        ..WorkloadPatch::default()
    };
    let report = play
        .carry_out(plan(vec![create(1), Action::PatchWorkload(patch)]))
        .await;
    assert!(matches!(report.outcome, ApplyOutcome::Moved(_)));
    assert_eq!(play.sent(), [format!("PATCH {WORKLOAD}")]);
}

#[tokio::test(start_paused = true)]
async fn a_status_that_only_shows_is_written_once_a_second() {
    let mut play = Play::new(willing);
    let show = |replicas: i64| Plan {
        status: Some(json!({"replicas": replicas})),
        ..plan(Vec::new())
    };
    assert_eq!(play.carry_out(show(1)).await.status_due, None);
    let due = play.carry_out(show(2)).await.status_due.unwrap();
    assert_eq!(play.sent().len(), 1);
    tokio::time::sleep_until(due).await;
    assert_eq!(play.carry_out(show(3)).await.status_due, None);
    assert_eq!(
        play.carry_out(show(0)).await.status_due,
        None,
        "shown already"
    );
    assert_eq!(play.sent().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_a_decision_half_a_second_old_asks_for_is_left_to_the_next_plan() {
    let mut play = Play::new(willing);
    let report = play
        .carry_out(plan((0..1_000).map(replace).collect()))
        .await;
    assert_eq!(report.outcome, ApplyOutcome::Unfinished);
    let sent = play.sent().len();
    assert!((200..500).contains(&sent), "{sent}");
}

#[tokio::test(start_paused = true)]
async fn creations_go_on_for_as_long_as_the_workload_is_proven_unmoved() {
    let mut play = Play::new(willing);
    let report = play.carry_out(plan((0..1_000).map(create).collect())).await;
    assert_eq!(report.outcome, ApplyOutcome::Done);
    let sent = play.sent();
    let proofs = sent.iter().filter(|it| it.starts_with("GET")).count();
    assert!((3..10).contains(&proofs), "{proofs}");
    assert_eq!(sent.len(), 1_000 + proofs);
}

#[tokio::test(start_paused = true)]
async fn a_proof_is_renewed_only_while_actions_wait_for_it() {
    for (slow, action) in [
        (Method::POST, create(0)),
        (Method::PATCH, change(pod("a"))),
        (Method::DELETE, delete("a")),
    ] {
        let mut play = Play::slow_to(slow, Duration::from_secs(5), willing);
        play.carry_out(plan(vec![action])).await;
        let sent = play.sent();
        let proofs = sent
            .iter()
            .filter(|line| **line == format!("GET {WORKLOAD}"));
        assert_eq!(proofs.count(), 1, "{sent:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn creations_wait_for_a_proof_that_is_slow_to_come() {
    let mut play = Play::with_proofs_after(Duration::from_millis(450), willing);
    let report = play.carry_out(plan((0..500).map(create).collect())).await;
    assert_eq!(report.outcome, ApplyOutcome::Done);
    let sent = play.sent();
    assert_eq!(
        sent.iter().filter(|it| it.starts_with("POST")).count(),
        500,
        "{sent:#?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_proof_that_came_late_is_not_believed_the_first_time() {
    let mut play = Play::with_proofs_after(Duration::from_millis(700), willing);
    let report = play.carry_out(plan(vec![delete("a")])).await;
    assert_eq!(report.outcome, ApplyOutcome::Unfinished);
    assert_eq!(play.sent(), [format!("GET {WORKLOAD}")]);
}

#[tokio::test(start_paused = true)]
async fn a_slow_api_server_sees_everything_done_in_the_end() {
    for seconds in [0.7, 1.2, 3.0, 7.0] {
        let mut play = Play::with_proofs_after(Duration::from_secs_f64(seconds), willing);
        let mut left: Vec<usize> = (0..200).collect();
        for _ in 0..12 {
            play.target.seen = Instant::now();
            let report = play
                .carry_out(plan(left.iter().copied().map(replace).collect()))
                .await;
            let deleted = play.sent();
            left.retain(|n| !deleted.contains(&format!("DELETE /api/v1/pods/lobby-{n}")));
            if report.outcome == ApplyOutcome::Done {
                break;
            }
        }
        assert!(left.is_empty(), "proofs after {seconds} s: {left:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_rests_on_pods_is_planned_anew_when_what_came_first_took_long() {
    let mut play = Play::slow_to(Method::PUT, Duration::from_millis(1_100), willing);
    let report = play
        .carry_out(Plan {
            status: Some(json!({"replicas": 1})),
            status_first: true,
            ..plan(vec![replace(1), create(1)])
        })
        .await;
    assert_eq!(report.outcome, ApplyOutcome::Unfinished);
    let sent = play.sent();
    let expected = [
        format!("PUT {WORKLOAD}/status"),
        format!("GET {WORKLOAD}"),
        "POST /api/v1/pods".to_owned(),
    ];
    assert_eq!(sent, expected);
}

/// A process that was frozen while it planned has seen pods as they were long ago.
#[tokio::test(start_paused = true)]
async fn of_a_plan_that_took_long_only_what_lasts_is_done_the_first_time() {
    for seconds in [1.1, 60.0] {
        let mut play = Play::new(willing);
        tokio::time::advance(Duration::from_secs_f64(seconds)).await;
        let report = play.carry_out(plan(vec![replace(1), create(1)])).await;
        assert_eq!(report.outcome, ApplyOutcome::Unfinished);
        let expected = [format!("GET {WORKLOAD}"), "POST /api/v1/pods".to_owned()];
        assert_eq!(play.sent(), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn where_all_plans_take_long_everything_is_done_in_the_end() {
    for seconds in [1.1, 3.0, 7.0] {
        let mut play = Play::new(willing);
        let mut plans = 0;
        let planned_slowly = async |play: &mut Play| {
            play.target.seen = Instant::now();
            tokio::time::advance(Duration::from_secs_f64(seconds)).await;
            play.carry_out(plan(vec![replace(1)])).await.outcome
        };
        while planned_slowly(&mut play).await != ApplyOutcome::Done {
            plans += 1;
            assert!(plans < 5, "plans of {seconds} s are never acted on");
        }
        assert_eq!(play.sent().len(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn creations_end_when_the_workload_has_moved() {
    let mut play = Play::new(|request, count| {
        let generation = if count > 300 { 4 } else { 3 };
        let version = 11 + count;
        match request.starts_with("GET") {
            true => (200, object("u", generation, version)),
            false => willing(request, count),
        }
    });
    let report = play.carry_out(plan((0..1_000).map(create).collect())).await;
    assert_eq!(report.outcome, ApplyOutcome::Unfinished);
    let sent = play.sent().len();
    assert!((300..600).contains(&sent), "{sent}");
}

#[tokio::test(start_paused = true)]
async fn a_new_pods_gate_is_opened_at_once_however_many_come() {
    let mut play = Play::new(willing);
    let gates = json!([{"conditionType": "InPlaceUpdateReady"}]);
    let gated = |n: usize| {
        Action::CreatePod(NewPod {
            name: format!("lobby-{n}"),
            revision: "lobby-1".into(),
            pod: json!({"spec": {"readinessGates": gates}}),
        })
    };
    let report = play.carry_out(plan(vec![gated(1)])).await;
    assert_eq!(report.outcome, ApplyOutcome::Done);
    assert_eq!(
        play.sent()[1..],
        ["POST /api/v1/pods", "PATCH /api/v1/pods/lobby-1/status"]
    );
    let report = play.carry_out(plan((0..1_000).map(gated).collect())).await;
    assert_eq!(report.outcome, ApplyOutcome::Done);
    let sent = play.sent();
    let opened = sent.iter().filter(|it| it.starts_with("PATCH")).count();
    assert_eq!(opened, 1_000);
}

/// Closes a pod's gate, and changes the pod.
fn change(pod: PodRef) -> Action {
    let record = json!({"revision": "lobby-2", "patchedAt": "2026-01-01T00:00:00Z"});
    Action::CloseGate {
        pod: pod.clone(),
        revision: "lobby-2".into(),
        then: Some(Box::new(InPlacePatch {
            pod,
            from_revision: "lobby-1".into(),
            images: Vec::new(),
            labels: Vec::new(),
            annotated: false,
            annotations: Vec::new(),
            record: serde_json::from_value(record).unwrap(),
        })),
    }
}

/// A pod as it was seen at version 7.
fn unchanged(name: &str) -> PodRef {
    PodRef {
        version: Some(7),
        ..pod(name)
    }
}

#[tokio::test(start_paused = true)]
async fn what_rests_on_an_unchanged_pod_says_so_in_each_write() {
    let deletion = |pod: PodRef| {
        Action::DeletePod(Deletion {
            pod,
            reason: DeletionReason::ScaleIn,
            guarded: true,
        })
    };
    for (pod, version) in [(unchanged("a"), json!("7")), (pod("a"), Value::Null)] {
        let mut play = Play::new(willing);
        play.carry_out(plan(vec![deletion(pod)])).await;
        let bodies = play.bodies.lock().unwrap();
        let preconditions = json!({"uid": "uid-a", "resourceVersion": version});
        assert_eq!(bodies[1]["preconditions"], preconditions);
    }
    let mut play = Play::new(willing);
    play.carry_out(plan(vec![change(unchanged("a"))])).await;
    let bodies = play.bodies.lock().unwrap();
    assert_eq!(bodies[1]["metadata"]["resourceVersion"], "7");
    // The gate's own write moved the pod on: nothing else may have.
    let test = json!({"op": "test", "path": "/metadata/resourceVersion", "value": "12"});
    assert!(bodies[2].as_array().unwrap().contains(&test), "{bodies:#?}");
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_changed_meanwhile_delays_no_other() {
    let mut play = Play::new(|request, count| match request {
        "DELETE /api/v1/pods/a" => (409, json!({"reason": "Conflict", "message": "m"})),
        _ => willing(request, count),
    });
    let report = play.carry_out(plan(vec![delete("a"), delete("b")])).await;
    assert_eq!(report.outcome, ApplyOutcome::Moved("m".into()));
    assert_eq!(*play.noted.lock().unwrap(), [deleted("b")]);
}

#[tokio::test(start_paused = true)]
async fn a_change_does_not_wait_behind_the_gates_of_many_other_pods() {
    let mut play = Play::new(willing);
    let change = |n: usize| change(pod(&format!("lobby-{n}")));
    play.carry_out(plan((0..100).map(change).collect())).await;
    let sent = play.sent();
    let mut closed = 0_i64;
    for line in sent.iter().filter(|it| it.starts_with("PATCH")) {
        closed += if line.ends_with("/status") { 1 } else { -1 };
        assert!(closed <= 16, "{sent:#?}");
    }
    assert!(sent.len() > 64, "{sent:#?}");
    assert_eq!(closed, 0, "{sent:#?}");
}

#[tokio::test(start_paused = true)]
async fn a_refused_pod_stops_its_revision_and_is_tried_alone_next_time() {
    let mut play = Play::new(|request, _| match request {
        "POST /api/v1/pods" => (403, json!({"message": "exceeded quota"})),
        _ => willing(request, 0),
    });
    let creations = || plan((0..1_000).map(create).collect());
    let report = play.carry_out(creations()).await;
    let refused = ApplyOutcome::Failed {
        message: "exceeded quota".into(),
        after: None,
    };
    assert_eq!(report.outcome, refused);
    assert!(play.sent().len() <= 65);
    let failures = &play.memory.failures;
    assert_eq!(failures.of(Attempt::CreatePod), Some("exceeded quota"));
    let verdict = &play.memory.verdicts["lobby-1"];
    assert!(matches!(verdict, Verdict::Refused { message, .. } if message == "exceeded quota"));
    play.carry_out(creations()).await;
    assert_eq!(play.sent().len(), 2, "one GET, one POST");
}

/// What the next plan meets on an API server that takes everything.
fn next(before: Play) -> Play {
    Play {
        memory: before.memory,
        target: before.target,
        ..Play::new(willing)
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_deletion_or_claim_does_not_delay_creations() {
    let mut play = Play::new(|request, _| match request {
        "DELETE /api/v1/pods/a" | "POST /api/v1/persistentvolumeclaims" => {
            (403, json!({"message": "not allowed"}))
        }
        _ => willing(request, 0),
    });
    let claim = Action::CreateClaim(NewClaim {
        name: "data-lobby-0".into(),
        claim: json!({}),
    });
    play.carry_out(plan(vec![delete("a"), claim])).await;
    for attempt in [Attempt::RemovePod, Attempt::PrepareClaim] {
        assert_eq!(play.memory.failures.of(attempt), Some("not allowed"));
    }
    let mut play = next(play);
    play.carry_out(plan((0..100).map(create).collect())).await;
    assert_eq!(created(&play), 100);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_over_when_such_an_action_is_taken_or_no_longer_asked_for() {
    let hook = || {
        Action::CreateHookRun(Box::new(gamekeeper_core::api::HookRun::new(
            "run",
            <_>::default(),
        )))
    };
    let mut play = Play::new(|request, _| match request {
        line if line.starts_with("GET") => willing(line, 0),
        _ => (403, json!({"message": "not allowed"})),
    });
    play.carry_out(plan(vec![delete("a"), hook()])).await;
    let told = |play: &Play, attempt| play.memory.failures.of(attempt).is_some();
    assert!(told(&play, Attempt::RemovePod) && told(&play, Attempt::StartUpdateHook));
    let mut play = next(play);
    play.carry_out(plan(vec![hook()])).await;
    assert!(!told(&play, Attempt::StartUpdateHook));
    assert!(told(&play, Attempt::RemovePod));
    play.memory.retain_failures(&[hook()]);
    assert!(!told(&play, Attempt::RemovePod));
}

#[tokio::test(start_paused = true)]
async fn replacing_pods_that_ended_at_once_is_one_round_however_many_they_are() {
    let mut play = Play::new(willing);
    let ended = |n: usize| {
        Action::DeletePod(Deletion {
            pod: pod(&format!("lobby-{n}")),
            reason: DeletionReason::EndedAtOnce,
            guarded: false,
        })
    };
    let mut due = Vec::new();
    for _ in 0..2 {
        play.carry_out(plan((0..10).map(ended).collect())).await;
        due.push(play.memory.backoff.expect("a round").due());
    }
    let longer = due[1].duration_since(due[0]);
    assert!(longer.as_secs() >= 10, "10 s, then 20 s: {longer}");
}

#[tokio::test(start_paused = true)]
async fn a_refused_pod_holds_back_its_own_revision_alone() {
    let mut play = Play::new(|request, _| match request {
        "POST /api/v1/pods" => (403, json!({"message": "exceeded quota"})),
        _ => willing(request, 0),
    });
    play.carry_out(plan(vec![create(0)])).await;
    let other = |n| match create(n) {
        Action::CreatePod(new) => Action::CreatePod(NewPod {
            revision: "lobby-2".into(),
            ..new
        }),
        action => action,
    };
    let creations = || plan((0..100).map(create).chain((100..200).map(other)).collect());
    let mut play = next(play);
    let report = play.carry_out(creations()).await;
    assert_eq!(report.outcome, ApplyOutcome::Unfinished);
    assert_eq!(created(&play), 101, "one on trial, and all of the other");
    play.carry_out(creations()).await;
    assert_eq!(created(&play), 200, "the one on trial was taken");
}

#[tokio::test(start_paused = true)]
async fn an_ordinal_whose_name_is_taken_does_not_delay_the_others() {
    let mut play = Play::new(|request, _| match request {
        "POST /api/v1/pods" => (409, json!({"reason": "AlreadyExists", "message": "exists"})),
        _ => willing(request, 0),
    });
    play.target.kind = WorkloadKind::GameStatefulSet;
    let report = play.carry_out(plan(vec![create(0)])).await;
    assert!(matches!(report.outcome, ApplyOutcome::Failed { .. }));
    let mut play = next(play);
    play.carry_out(plan((0..100).map(create).collect())).await;
    assert_eq!(created(&play), 100);
}

#[tokio::test(start_paused = true)]
async fn a_name_that_is_taken_is_read_before_the_next_plan() {
    let mut play = Play::new(|request, _| match request {
        "POST /api/v1/pods" => (409, json!({"reason": "AlreadyExists"})),
        "GET /api/v1/pods/lobby-1" => {
            let mut pod = object("pod", 1, 99);
            pod["metadata"]["ownerReferences"] = json!([{"uid": "u", "controller": true}]);
            (200, pod)
        }
        _ => willing(request, 0),
    });
    let report = play.carry_out(plan(vec![create(1)])).await;
    assert!(matches!(report.outcome, ApplyOutcome::Moved(_)));
    let noted = play.noted.lock().unwrap();
    assert_eq!(*noted, [Write::Version(Kind::Pod, 99)]);
}

#[tokio::test(start_paused = true)]
async fn a_name_that_another_owner_holds_is_remembered() {
    let mut play = Play::new(|request, _| match request {
        "POST /api/v1/pods" => (409, json!({"reason": "AlreadyExists", "message": "exists"})),
        _ => willing(request, 0),
    });
    let report = play.carry_out(plan(vec![create(1)])).await;
    assert!(matches!(report.outcome, ApplyOutcome::Moved(_)));
    assert_eq!(play.memory.taken.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_run_left_by_an_earlier_workload_is_deleted_and_one_that_a_user_made_is_not() {
    const RUN: &str = "/apis/tkex.tencent.com/v1alpha1/hookruns/run";
    fn exists() -> (u16, Value) {
        (409, json!({"reason": "AlreadyExists", "message": "exists"}))
    }
    let create = || {
        let run = json!({
            "apiVersion": "tkex.tencent.com/v1alpha1", "kind": "HookRun",
            "metadata": {"name": "run"}, "spec": {"metrics": []},
        });
        let run = serde_json::from_value(run).unwrap();
        plan(vec![Action::CreateHookRun(Box::new(run))])
    };
    let mut play = Play::new(|request, _| match request.split_once(' ') {
        Some(("POST", _)) => exists(),
        Some(("GET", RUN)) => {
            let mut run = object("old", 1, 99);
            run["metadata"]["annotations"] = json!({names::RUN_WORKLOAD_UID: "before"});
            (200, run)
        }
        _ => willing(request, 0),
    });
    let report = play.carry_out(create()).await;
    assert!(
        matches!(report.outcome, ApplyOutcome::Moved(_)),
        "{report:?}"
    );
    assert!(play.sent().contains(&format!("DELETE {RUN}")));

    let mut play = Play::new(|request, _| match request.split_once(' ') {
        Some(("POST", _)) => exists(),
        Some(("GET", RUN)) => (200, object("by hand", 1, 99)),
        _ => willing(request, 0),
    });
    let report = play.carry_out(create()).await;
    assert!(
        matches!(report.outcome, ApplyOutcome::Failed { .. }),
        "{report:?}"
    );
    assert!(!play.sent().contains(&format!("DELETE {RUN}")));
}

#[tokio::test(start_paused = true)]
async fn deleting_a_pod_that_is_gone_already_succeeds() {
    let mut play = Play::new(|request, _| match request {
        "DELETE /api/v1/pods/a" => (404, json!({"reason": "NotFound"})),
        _ => willing(request, 0),
    });
    let report = play.carry_out(plan(vec![delete("a")])).await;
    assert_eq!(report.outcome, ApplyOutcome::Done);
    let noted = play.noted.lock().unwrap();
    assert_eq!(*noted, [deleted("a")]);
}

#[tokio::test(start_paused = true)]
async fn the_retry_after_of_a_busy_server_is_passed_on() {
    let mut play = Play::new(|request, _| match request {
        "POST /api/v1/pods" => (429, json!("too many requests")),
        _ => willing(request, 0),
    });
    let report = play.carry_out(plan(vec![create(1)])).await;
    let ApplyOutcome::Failed { after, .. } = report.outcome else {
        panic!("{report:?}");
    };
    assert_eq!(after, Some(Duration::from_secs(7)));
    let failures = &play.memory.failures;
    assert_eq!(
        failures.of(Attempt::CreatePod),
        None,
        "nothing is wrong with it"
    );
    assert_eq!(*play.noted.lock().unwrap(), [], "nothing was done");
}

#[tokio::test(start_paused = true)]
async fn what_a_failing_server_may_have_done_must_be_seen() {
    let mut play = Play::new(|request, _| match request {
        "POST /api/v1/pods" => (504, json!("a timeout")),
        _ => willing(request, 0),
    });
    let report = play.carry_out(plan(vec![create(1)])).await;
    assert!(
        matches!(report.outcome, ApplyOutcome::Failed { .. }),
        "{report:?}"
    );
    let noted = play.noted.lock().unwrap();
    assert_eq!(*noted, [Write::Unknown(Kind::Pod)]);
}

#[tokio::test(start_paused = true)]
async fn an_orphan_is_adopted_only_by_a_workload_that_still_exists() {
    let mut play = Play::new(|request, _| match request {
        _ if request.starts_with("GET") => (404, json!({"reason": "NotFound"})),
        _ => willing(request, 0),
    });
    let report = play.carry_out(plan(vec![Action::AdoptPod(pod("a"))])).await;
    assert!(matches!(report.outcome, ApplyOutcome::Moved(_)));
    assert_eq!(play.sent(), [format!("GET {WORKLOAD}")]);
}
