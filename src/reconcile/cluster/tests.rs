//! What is written to the API server, and until when.

use std::convert::Infallible;

use http::{Method, Request, Response};
use kube::Client;
use kube::client::Body;
use tower::service_fn;

use super::*;
use crate::runtime::fair::SendBefore;
use gamekeeper_core::api::HookRunSpec;

/// How long the API server takes for a dry run.
const DRY_RUN: Duration = Duration::from_secs(5);

/// The requests after which a write is not repeated ("METHOD path"), and how long after its arrival each may still be
/// sent.
type Sent = Arc<Mutex<Vec<(String, Option<Duration>)>>>;

/// A controller whose API server takes its time for dry runs, and shows this generation of the Cluster after them.
fn controller(generation_after_dry_run: i64) -> (Clusters, Sent) {
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
            let body = json!({"metadata": metadata, "items": []}).to_string();
            Ok::<_, Infallible>(Response::new(Body::from(body.into_bytes())))
        }
    });
    let requests = Requests::new(Client::new(server, "games"));
    let (events, _) = EventRecorder::new();
    let clusters = Clusters::new(
        Arc::default(),
        requests.clone(),
        events.clone(),
        UnreadableReporter::new(requests, events),
        Arc::new(Planners::start().expect("threads")),
        "image".to_owned(),
    );
    (clusters, sent)
}

fn cluster() -> Whole<Cluster> {
    let cluster = json!({
        "apiVersion": "tkex.tencent.com/v1alpha1", "kind": "Cluster",
        "metadata": {"name": "xa", "uid": "u", "resourceVersion": "7", "generation": 1},
        "spec": {},
    });
    Whole::new(serde_json::from_value(cluster).expect("a Cluster"), false)
}

fn start(drained_node: Option<&str>) -> ClusterAction {
    ClusterAction::CreateHookRun {
        run: Box::new(HookRun::new("run", HookRunSpec::default())),
        drained_node: drained_node.map(str::to_owned),
    }
}

#[tokio::test(start_paused = true)]
async fn no_script_is_started_once_the_cluster_has_changed() {
    for node in [None, Some("node-1")] {
        let (clusters, sent) = controller(2);
        let written = clusters.write(&cluster(), None, vec![start(node)]).await;
        assert!(matches!(written, Err(Stop::Conflict(_))));
        assert_eq!(*sent.lock().unwrap(), []);
    }
}

#[tokio::test(start_paused = true)]
async fn each_write_is_sent_within_half_a_second_of_a_proof() {
    let (clusters, sent) = controller(1);
    let pod = GamePod {
        namespace: "games".to_owned(),
        name: "a".to_owned(),
        node: "node-1".to_owned(),
        uid: "p".to_owned(),
        move_requested: false,
    };
    let actions = vec![
        ClusterAction::SetFinalizer(true),
        start(None),
        ClusterAction::MovePod(pod),
        ClusterAction::DeleteHookRun { name: "old".to_owned(), uid: "o".to_owned() },
        start(Some("node-1")),
    ];
    let written = clusters.write(&cluster(), None, actions).await;
    assert!(written.is_ok());
    let sent = sent.lock().unwrap();
    let lines: Vec<&str> = sent.iter().map(|(line, _)| line.as_str()).collect();
    let runs = "/apis/tkex.tencent.com/v1alpha1/namespaces/gamekeeper-hooks/hookruns";
    assert_eq!(
        lines,
        [
            "PATCH /apis/tkex.tencent.com/v1alpha1/clusters/xa".to_owned(),
            format!("POST {runs}"),
            "PATCH /api/v1/namespaces/games/pods/a".to_owned(),
            format!("DELETE {runs}/old"),
            format!("POST {runs}"),
        ]
    );
    assert!(sent.iter().all(|(_, left)| left.is_some_and(|left| left <= PROOF_LIFETIME)));
}

#[test]
fn other_finalizers_are_kept() {
    let cluster = |finalizers: Value| -> Cluster {
        let cluster = json!({
            "apiVersion": "tkex.tencent.com/v1alpha1", "kind": "Cluster",
            "metadata": {"name": "xa", "uid": "u", "resourceVersion": "7", "finalizers": finalizers},
            "spec": {},
        });
        serde_json::from_value(cluster).unwrap()
    };
    let body = finalizer_patch(&cluster(json!(["a/b"])), true);
    let expected = json!(["a/b", LIFECYCLE_FINALIZER]);
    assert_eq!(body["metadata"]["finalizers"], expected);
    assert_eq!(body["metadata"]["resourceVersion"], "7");
    let body = finalizer_patch(&cluster(expected), false);
    assert_eq!(body["metadata"]["finalizers"], json!(["a/b"]));
}

#[test]
fn only_the_operators_own_taint_is_removed() {
    let node = ClusterNode {
        uid: "u".to_owned(),
        not_installed_taint_index: Some(2),
        ..ClusterNode::default()
    };
    let patch = without_taint(&node);
    assert_eq!(patch[1]["path"], "/spec/taints/2/key");
    assert_eq!(patch[1]["value"], NOT_INSTALLED_TAINT);
    assert_eq!(patch[2]["path"], "/spec/taints/2");
}
