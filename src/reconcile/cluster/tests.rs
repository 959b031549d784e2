//! What is written to the API server, and until when.

use std::convert::Infallible;
use std::sync::Mutex;

use http::{Method, Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tower::service_fn;

use super::*;
use crate::reconcile::apply::events::EventRecorder;
use crate::reconcile::apply::{Applier, Metrics, PROOF_LIFETIME, Pace};
use crate::reconcile::{Planners, UnreadableReporter};
use crate::runtime::fair::SendBefore;
use crate::runtime::request::Requests;
use gamekeeper_core::api::{ClusterStatus, HookRunSpec};
use gamekeeper_core::lifecycle::ClusterPlan;
use gamekeeper_core::observed::PodRef;
use gamekeeper_core::write::{Outcome, Plan, Trial, Write};

/// How long the API server takes for a dry run.
const DRY_RUN: Duration = Duration::from_secs(5);

/// The requests after which a write is not repeated ("METHOD path"), and how long after its arrival each may still be
/// sent.
type Sent = Arc<Mutex<Vec<(String, Option<Duration>)>>>;

/// Carries out plans with an API server that takes its time for dry runs, and shows this generation of the Cluster after
/// them.
fn applier(generation_after_dry_run: i64) -> (Applier, Sent) {
    let sent = Sent::default();
    let recorded = Arc::clone(&sent);
    let generation = Arc::new(Mutex::new(1));
    let server = service_fn(move |request: Request<Body>| {
        let is_dry_run = request.uri().query().is_some_and(|it| it.contains("dryRun"));
        if !is_dry_run && *request.method() != Method::GET {
            let line = format!("{} {}", request.method(), request.uri().path());
            let before = request.extensions().get::<SendBefore>();
            let left = before.map(|SendBefore(until)| *until - Instant::now());
            recorded.lock().unwrap().push((line, left));
        }
        let generation = Arc::clone(&generation);
        async move {
            if is_dry_run {
                tokio::time::sleep(DRY_RUN).await;
                *generation.lock().unwrap() = generation_after_dry_run;
            }
            let metadata = json!({
                "uid": "u", "resourceVersion": "8", "generation": *generation.lock().unwrap(),
            });
            // An object is stored as it is asked for.
            let creates = *request.method() == Method::POST;
            let asked = request.into_body().collect_bytes().await.unwrap();
            let mut body = json!({"metadata": metadata, "items": []});
            if creates {
                body["spec"] = serde_json::from_slice::<Value>(&asked).unwrap()["spec"].take();
            }
            let body = body.to_string();
            Ok::<_, Infallible>(Response::new(Body::from(body.into_bytes())))
        }
    });
    let requests = Requests::new(Client::new(server, "games"));
    let (events, _) = EventRecorder::new();
    (Applier::new(requests, events, Metrics::default(), Arc::new(|_| true)), sent)
}

fn cluster() -> Whole<Cluster> {
    let cluster = json!({
        "apiVersion": "tkex.tencent.com/v1alpha1", "kind": "Cluster",
        "metadata": {"name": "xa", "uid": "u", "resourceVersion": "7", "generation": 1},
        "spec": {},
    });
    Whole::new(serde_json::from_value(cluster).expect("a Cluster"), false)
}

fn start(drained_node: Option<&str>) -> Write {
    let mut run = HookRun::new("run", HookRunSpec::default());
    run.metadata.namespace = Some(HOOKS_NAMESPACE.to_owned());
    let trial = Trial { pod: json!({}), drained_node: drained_node.map(str::to_owned) };
    Write::start_script(run, trial)
}

async fn carry_out(applier: &Applier, writes: Vec<Write>) -> Outcome {
    let mut target = target(&cluster(), Instant::now());
    let plan: ClusterPlan = Plan { writes, ..Plan::nothing() };
    let old = None::<&ClusterStatus>;
    let (mut memory, mut pace) = (Memory::default(), Pace::default());
    applier.carry_out(&mut target, plan, old, &mut memory, &mut pace, &|_| {}).await.outcome
}

#[tokio::test(start_paused = true)]
async fn no_script_is_started_once_the_cluster_has_changed() {
    for node in [None, Some("node-1")] {
        let (applier, sent) = applier(2);
        let outcome = carry_out(&applier, vec![start(node)]).await;
        assert!(matches!(outcome, Outcome::Conflict(_)), "{outcome:?}");
        assert_eq!(*sent.lock().unwrap(), []);
    }
}

#[tokio::test(start_paused = true)]
async fn each_write_is_sent_within_half_a_second_of_a_proof() {
    let (applier, sent) = applier(1);
    let pod = PodRef {
        namespace: "games".to_owned(),
        name: "a".to_owned(),
        uid: "p".to_owned(),
        version: None,
        allowed_until: None,
    };
    let mut old = HookRun::new("old", HookRunSpec::default());
    old.metadata.uid = Some("o".to_owned());
    let writes = vec![
        Write::move_for_upgrade(pod, "cluster/xa".to_owned()),
        Write::cancel_script(&old),
        start(Some("node-1")),
        // The proof of the first writes is no longer valid, so this one is left to the next plan.
        Write::cancel_script(&old),
    ];
    assert_eq!(carry_out(&applier, writes).await, Outcome::Unfinished);
    let sent = sent.lock().unwrap();
    let lines: Vec<&str> = sent.iter().map(|(line, _)| line.as_str()).collect();
    let runs = "/apis/tkex.tencent.com/v1alpha1/namespaces/gamekeeper-hooks/hookruns";
    assert_eq!(
        lines,
        [
            "PATCH /api/v1/namespaces/games/pods/a".to_owned(),
            format!("DELETE {runs}/old"),
            format!("POST {runs}"),
        ]
    );
    assert!(sent.iter().all(|(_, left)| left.is_some_and(|left| left <= PROOF_LIFETIME)));
}

/// A Cluster may have thousands of nodes and runs.
#[tokio::test(start_paused = true)]
async fn a_cluster_is_planned_by_the_planners() {
    let (applier, _) = applier(1);
    let (events, _) = EventRecorder::new();
    let refuse = service_fn(|_: Request<Body>| async {
        Ok::<_, Infallible>(
            Response::builder().status(403).body(Body::empty()).expect("a response"),
        )
    });
    let requests = Requests::new(Client::new(refuse, "games"));
    let shared = Shared {
        applier,
        unreadable: UnreadableReporter::new(requests, events),
        metrics: Metrics::default(),
        planners: Arc::new(Planners::inline()),
        cache: Arc::default(),
    };
    shared.cache.clusters.show(7, vec![cluster()]);
    let clusters = Arc::new(Clusters::new(shared, "gamekeeper:1".to_owned()));
    Arc::clone(&clusters).reconcile(ObjectKey::new("", "xa")).await;
    assert_eq!(clusters.shared.planners.made(), 1);
}
