//! Carries out plans against a fake API server.

mod existing_names;
mod order;
mod preconditions;
mod refusals;
mod rehearsals;
mod validity;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use http::{Method, Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tower::service_fn;

use super::*;
use crate::kinds::test_feed;
use crate::runtime::fair::SendBefore;
use crate::runtime::objects::{Deleted, Kind, ObjectKey, Written};
use gamekeeper_core::api::names;
use gamekeeper_core::guard::{Case, HookAnswer, Permit, may_touch};
use gamekeeper_core::observed::{Pod, PodRef};
use gamekeeper_core::workload::{GuardState, Memory, Verdict};
use gamekeeper_core::write::{
    Attempt, Budget, DeletionReason, InPlacePatch, NewClaim, NewPod, NewRevision, Plan,
    RevisionData, WorkloadPatch, Write,
};

/// The response (code and body) to a request ("METHOD path"), given the number of requests before it.
type Script = fn(&str, usize) -> (u16, Value);

/// Carries out plans, and records the requests and what `on_write` was called with.
struct Harness {
    applier: Applier,
    sent: Arc<Mutex<Vec<String>>>,
    bodies: Arc<Mutex<Vec<Value>>>,
    writes: Mutex<Vec<Written>>,
    memory: Memory,
    pace: Pace,
    target: Target,
    /// HookRuns that were not stored.
    unstored: Arc<Mutex<Vec<HookRun>>>,
    _events: events::EventWriter,
}

impl Harness {
    fn new(script: Script) -> Self {
        Self::with_slow_gets(Duration::from_millis(100), script)
    }

    /// Uses an API server that delays responses to GET requests.
    fn with_slow_gets(delay: Duration, script: Script) -> Self {
        Self::with_slow_method(Method::GET, delay, script)
    }

    /// Uses an API server that delays responses to requests of one method.
    fn with_slow_method(slow: Method, delay: Duration, script: Script) -> Self {
        let sent = Arc::new(Mutex::new(Vec::new()));
        let bodies = Arc::new(Mutex::new(Vec::new()));
        let server = service_fn({
            let sent = Arc::clone(&sent);
            let bodies = Arc::clone(&bodies);
            move |request: Request<Body>| {
                let deadline = request.extensions().get::<SendBefore>();
                let in_time = deadline.map_or(Ok(()), |it| it.check());
                let path = request.uri().path().replace("/namespaces/games", "");
                let line = format!("{} {path}", request.method());
                let mut sent = sent.lock().unwrap();
                let (code, body) = script(&line, sent.len());
                if in_time.is_ok() {
                    sent.push(line);
                }
                let pause = match *request.method() == slow {
                    true => delay,
                    false => Duration::from_millis(100),
                };
                let bodies = Arc::clone(&bodies);
                async move {
                    in_time?;
                    let creates = *request.method() == Method::POST && code < 300;
                    let asked = request.into_body().collect_bytes().await.unwrap();
                    let asked: Value = serde_json::from_slice(&asked).unwrap_or_default();
                    let stored = if creates { stored(asked.clone(), body) } else { body };
                    bodies.lock().unwrap().push(asked);
                    tokio::time::sleep(pause).await;
                    let response = Response::builder().status(code).header("Retry-After", "7");
                    let response = response.body(Body::from(stored.to_string().into_bytes()));
                    Ok::<_, tower::BoxError>(response.unwrap())
                }
            }
        });
        let requests = Requests::new(Client::new(server, "games"));
        let (events, writer) = events::EventRecorder::new();
        let unstored = Arc::new(Mutex::new(Vec::new()));
        let keep_unstored: KeepUnstored = {
            let unstored = Arc::clone(&unstored);
            Arc::new(move |run| {
                unstored.lock().unwrap().push(run);
                true
            })
        };
        let accepted = ["lobby-1", "lobby-2"].map(|it| (it.to_owned(), Verdict::Accepted));
        let mut memory = Memory::default();
        memory.verdicts.extend(accepted);
        Self {
            applier: Applier::new(requests, events, Metrics::default(), keep_unstored),
            unstored,
            sent,
            bodies,
            writes: Mutex::default(),
            memory,
            pace: Pace::default(),
            target: target(),
            _events: writer,
        }
    }

    async fn carry_out(&mut self, plan: Plan<Value>) -> Report {
        let on_write = |write| self.writes.lock().unwrap().push(write);
        let old_status = json!({"replicas": 0});
        let Self { target, memory, pace, .. } = self;
        self.applier.carry_out(target, plan, Some(&old_status), memory, pace, &on_write).await
    }

    /// The requests since the last call.
    fn sent(&self) -> Vec<String> {
        std::mem::take(&mut self.sent.lock().unwrap())
    }
}

/// What is stored of an object that is created: what was asked for, with the metadata that the script adds or changes.
fn stored(mut asked: Value, script: Value) -> Value {
    for (field, value) in script["metadata"].as_object().into_iter().flatten() {
        asked["metadata"][field] = value.clone();
    }
    asked
}

pub(super) fn target() -> Target {
    Target {
        owner: Owner {
            kind: Kind::GameDeployment,
            namespace: "games".into(),
            name: "lobby".into(),
            uid: "u".into(),
            resource_version: "10".into(),
            revision_namespace: "games".into(),
            revision_labels: BTreeMap::new(),
            selector_keys: Vec::new(),
        },
        generation: 3,
        deleting: false,
        hooked: false,
        read_at: Instant::now(),
    }
}

const WORKLOAD: &str = "/apis/tkex.tencent.com/v1alpha1/gamedeployments/lobby";

fn object(uid: &str, generation: i64, version: usize) -> Value {
    json!({"metadata": {
        "uid": uid, "generation": generation, "resourceVersion": version.to_string(),
    }})
}

/// Accepts every request.
fn accepting(_: &str, count: usize) -> (u16, Value) {
    (200, object("u", 3, 11 + count))
}

fn deleted(pod: &str) -> Written {
    Written::Deleted(Deleted {
        kind: Kind::Pod,
        key: ObjectKey::new("games", pod),
        uid: format!("uid-{pod}"),
    })
}

fn create(n: usize) -> Write {
    create_at(n, "lobby-1")
}

fn create_at(n: usize, revision: &str) -> Write {
    Write::create_pod(NewPod {
        name: format!("lobby-{n}"),
        revision: revision.into(),
        pod: json!({"metadata": {"name": format!("lobby-{n}")}}).into(),
        has_gate: false,
    })
}

/// What the guard allows: an action that no hook guards or, with a time, one whose hook allows it until then.
#[derive(Clone, Copy)]
pub(super) struct Allowed(pub Option<jiff::Timestamp>);

impl Case for Allowed {
    fn is_possible(&self) -> bool {
        true
    }

    fn deletes(&self) -> bool {
        true
    }

    fn needs_hook(&self) -> bool {
        self.0.is_some()
    }

    fn is_released(&self) -> bool {
        false
    }

    fn is_on_lost_node(&self) -> bool {
        false
    }

    fn hook(&self) -> HookAnswer {
        HookAnswer::Allowed
    }

    fn valid_until(&self) -> Option<jiff::Timestamp> {
        self.0
    }
}

/// A pod at resourceVersion 7 whose game runs.
pub(super) fn running(name: &str) -> Pod {
    let pod = json!({
        "metadata": {
            "namespace": "games", "name": name, "uid": format!("uid-{name}"),
            "resourceVersion": "7",
            "ownerReferences": [{
                "apiVersion": "tkex.tencent.com/v1alpha1", "kind": "GameDeployment",
                "name": "lobby", "uid": "u", "controller": true,
            }],
        },
        "spec": {"containers": [{"name": "game", "image": "game:v1"}]},
        "status": {"phase": "Running"},
    });
    test_feed::kept_pod(None, &pod).own().expect("an own pod").as_ref().clone()
}

pub(super) fn permit(pod: &Pod, allowed: Allowed) -> Permit<'_> {
    may_touch(pod, &allowed).expect("a permit")
}

fn delete(name: &str) -> Write {
    Write::delete_pod(permit(&running(name), Allowed(None)), DeletionReason::ScaleIn)
}

/// A write that deletes a pod so that it is replaced.
fn replace(n: usize) -> Write {
    let pod = running(&format!("lobby-{n}"));
    Write::delete_pod(permit(&pod, Allowed(None)), DeletionReason::Update)
}

fn pod(name: &str) -> PodRef {
    PodRef {
        namespace: "games".into(),
        name: name.into(),
        uid: format!("uid-{name}"),
        version: None,
        allowed_until: None,
    }
}

/// The number of pods that were created since the last call.
fn created(harness: &Harness) -> usize {
    let is_creation = |line: &&String| *line == "POST /api/v1/pods";
    harness.sent().iter().filter(is_creation).count()
}

fn plan(writes: Vec<Write>) -> Plan<Value> {
    Plan { writes, ..Plan::nothing() }
}

/// A write that closes a pod's gate and then changes the pod.
fn change(permit: Permit) -> Write {
    let record = json!({"revision": "lobby-2", "patchedAt": "2026-01-01T00:00:00Z"});
    let patch = InPlacePatch {
        pod: permit.for_action(),
        from_revision: "lobby-1".into(),
        images: Vec::new(),
        labels: Vec::new(),
        annotated: false,
        annotations: Vec::new(),
        tokens: Vec::new(),
        record: serde_json::from_value(record).unwrap(),
    };
    Write::close_gate(permit, "lobby-2".into(), Some(patch), None)
}

/// The same state, with an API server that accepts everything.
fn accepting_from_now_on(previous: Harness) -> Harness {
    Harness {
        memory: previous.memory,
        pace: previous.pace,
        target: previous.target,
        ..Harness::new(accepting)
    }
}
