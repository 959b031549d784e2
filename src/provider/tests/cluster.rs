//! Measurements of a run's own pod, with a fake API server that also has Secrets.

use std::convert::Infallible;

use http::{Method, Request, Response};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::client::Body;
use serde_json::Value;
use tokio::time::timeout;

use super::*;
use crate::provider::call_permit::CallLimits;
use gamekeeper_core::api::HookPhase::{Error, Failed, Running, Successful};
use gamekeeper_core::api::JobReference;
use gamekeeper_core::api::names::RUN_POD_UID;

/// The requests that an API server received.
#[derive(Default)]
pub(super) struct RecordedRequests {
    patches: Mutex<Vec<Value>>,
    paths: Mutex<Vec<String>>,
}

/// An API server with two pods and three Secrets.
pub(super) fn cluster(recorded: &Arc<RecordedRequests>) -> Client {
    let recorded = Arc::clone(recorded);
    let service = tower::service_fn(move |request: Request<Body>| {
        let recorded = Arc::clone(&recorded);
        async move {
            let (head, body) = request.into_parts();
            let path = head.uri.path().to_owned();
            recorded.paths.lock().expect("paths").push(path);
            let secret = |labels: Value| {
                json!({"metadata": {"labels": labels}, "data": {
                    // The values are s3cret, ann, a byte that is not text, and a+b%41.
                    "token": "czNjcmV0", "user": "YW5u", "binary": "/w==", "reserved": "YStiJTQx",
                }})
            };
            let object = match head.uri.path() {
                "/api/v1/namespaces/games/pods/game-1" => json!({
                    "metadata": {"name": "game-1", "uid": "pod-uid", "annotations": {
                        "example.com/players": "0", "example.com/secret": "s3cret",
                    }},
                    "status": {"phase": "Running"},
                }),
                "/api/v1/namespaces/games/secrets/hooks" => {
                    secret(json!({"tkex.tencent.com/hook-access": "true"}))
                }
                "/api/v1/namespaces/games/secrets/other" => secret(json!({})),
                "/api/v1/namespaces/games/secrets/long" => {
                    let mut long = secret(json!({"tkex.tencent.com/hook-access": "true"}));
                    long["data"]["short"] = json!("YW5u");
                    long["data"]["long"] = json!("YWFh".repeat(40_000));
                    long["data"]["longest"] = json!("YWFh".repeat(100_000));
                    long
                }
                "/api/v1/namespaces/games/pods/large" => json!({
                    "metadata": {"name": "large", "uid": "pod-uid"},
                    "status": {"phase": "Running", "more": vec![json!({"": 0}); 100_000]},
                }),
                _ => Value::Null,
            };
            if head.method == Method::PATCH {
                let body = body.collect_bytes().await.expect("a body");
                let patch = serde_json::from_slice(&body).expect("JSON");
                recorded.patches.lock().expect("patches").push(patch);
            }
            let (code, body) = match object {
                Value::Null => (
                    404,
                    json!({
                        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404,
                        "reason": "NotFound", "message": "no such object",
                    }),
                ),
                object => (200, object),
            };
            let body = Body::from(body.to_string().into_bytes());
            Ok::<_, Infallible>(Response::builder().status(code).body(body).expect("a response"))
        }
    });
    Client::new(service, "games")
}

pub(super) struct MeasuredRun {
    pub(super) outcome: Outcome,
    patches: Vec<Value>,
    /// The paths of the requests to the API server.
    pub(super) paths: Vec<String>,
}

/// Measures the first metric of a run in the cluster.
pub(super) async fn measure_run(spec: Value, annotations: &[(&str, &str)]) -> MeasuredRun {
    measure_controlled_run(spec, annotations, None).await
}

/// Measures the first metric of a run whose controller is of this kind.
async fn measure_controlled_run(
    spec: Value,
    annotations: &[(&str, &str)],
    kind: Option<&str>,
) -> MeasuredRun {
    let recorded = Arc::default();
    let mut run = HookRun::new("run", serde_json::from_value(spec).expect("a spec"));
    run.metadata.namespace = Some("games".into());
    let annotations = annotations.iter().map(|(key, value)| ((*key).into(), (*value).into()));
    run.metadata.annotations = Some(annotations.collect());
    run.metadata.owner_references = kind.map(|kind| {
        vec![OwnerReference {
            api_version: "tkex.tencent.com/v1alpha1".to_owned(),
            kind: kind.to_owned(),
            controller: Some(true),
            ..OwnerReference::default()
        }]
    });
    let call = Call { run: Arc::new(run), metric: 0, number: 1, job: None };
    let probe = Probe::new(HERE, Some(cluster(&recorded))).expect("a probe");
    let outcome = probe.measure(&call).await;
    MeasuredRun {
        outcome,
        patches: recorded.patches.lock().expect("patches").clone(),
        paths: recorded.paths.lock().expect("paths").clone(),
    }
}

fn pod_spec(kubernetes: Value) -> Value {
    json!({
        "args": [{"name": "PodName", "value": "game-1"}, {"name": "PodNamespace", "value": "games"}],
        "metrics": [{"name": "pod", "provider": {"kubernetes": kubernetes}}],
    })
}

fn get(path: &str, value: Option<&str>) -> Value {
    pod_spec(json!({"function": "get", "fields": [{"path": path, "value": value}]}))
}

#[tokio::test]
async fn fields_of_the_pod_are_compared() {
    let rows = [
        (get("metadata.annotations.example.com/players", Some("0")), Successful, ""),
        (get("metadata.annotations.example.com/players", None), Successful, ""),
        (get("{.status.phase}", Some("Running")), Successful, ""),
        (
            get("metadata.annotations.example.com/players", Some("1")),
            Failed,
            "metadata.annotations.example.com/players of pod game-1 is 0, not 1",
        ),
        (
            get("metadata.annotations.example.com/none", Some("1")),
            Failed,
            "metadata.annotations.example.com/none of pod game-1 is not set",
        ),
        (
            get("{.status.none}", Some("1")),
            Error,
            "jsonPath {.status.none}: key none is not found; the keys are phase",
        ),
    ];
    for (spec, phase, expected) in rows {
        let outcome = measure_run(spec, &[]).await.outcome;
        let message = outcome.message.unwrap_or_default();
        assert_eq!((outcome.phase, message.as_str()), (phase, expected));
    }
}

#[tokio::test]
async fn conditions_can_judge_a_field() {
    let mut spec = get("metadata.annotations.example.com/players", None);
    spec["metrics"][0]["successCondition"] = json!("asInt(result) == 0");
    assert_eq!(measure_run(spec.clone(), &[]).await.outcome.phase, Successful);
    spec["metrics"][0]["successCondition"] = json!("asInt(result) > 0");
    assert_eq!(measure_run(spec, &[]).await.outcome.phase, Failed);
}

#[tokio::test]
async fn only_the_runs_own_pod_can_be_reached() {
    let with_argument = |name: &str, value: &str| {
        let mut spec = get("{.status.phase}", None);
        let args = spec["args"].as_array_mut().expect("args");
        args.retain(|argument| argument["name"] != name);
        args.push(json!({"name": name, "value": value}));
        spec
    };
    let rows = [
        (
            with_argument("PodNamespace", "kube-system"),
            "pods of namespace kube-system are not accessible",
        ),
        (
            with_argument("PodName", "../secrets/hooks"),
            "\"../secrets/hooks\" is not an object name",
        ),
        (
            with_argument("PodName", ""),
            "the pod is not known: set a value for the argument PodName",
        ),
        (with_argument("PodName", "game-2"), "no such object"),
        (
            with_argument("Kind", "Deployment"),
            "argument Kind would select another object in bk-bcs; here a kubernetes metric always reads the pod",
        ),
    ];
    for (spec, expected) in rows {
        let outcome = measure_run(spec, &[]).await.outcome;
        let message = outcome.message.unwrap_or_default();
        assert_eq!(outcome.phase, Error, "{message}");
        assert!(message.contains(expected), "{message}");
    }
    let other =
        measure_run(get("{.status.phase}", None), &[(RUN_POD_UID, "older-uid")]).await.outcome;
    assert_eq!(other.phase, Error, "a new pod with the same name was measured");
    let same = measure_run(get("{.status.phase}", None), &[(RUN_POD_UID, "pod-uid")]).await.outcome;
    assert_eq!(same.phase, Successful);
}

#[tokio::test]
async fn a_patch_writes_labels_and_annotations_of_the_runs_own_pod() {
    let spec = pod_spec(json!({"function": "patch", "fields": [
        {"path": "metadata.annotations.example.com/drain", "value": "{{ args.PodName }}"},
        {"path": "metadata.labels.drain", "value": "yes"},
    ]}));
    let workload = Some("GameDeployment");
    let uid_of_pod: &[_] = &[(RUN_POD_UID, "pod-uid")];
    let measured = measure_controlled_run(spec.clone(), uid_of_pod, workload).await;
    assert_eq!(measured.outcome.phase, Successful);
    let expected = json!({"metadata": {
        "uid": "pod-uid",
        "annotations": {"example.com/drain": "game-1"},
        "labels": {"drain": "yes"},
    }});
    assert_eq!(measured.patches, [expected]);

    // A user who may create HookRuns can name any pod in one. So a patch is refused unless a workload controls the run
    // and the run has the uid of the pod.
    for (annotations, kind) in
        [(&[][..], None), (&[], workload), (uid_of_pod, None), (uid_of_pod, Some("Pod"))]
    {
        let measured = measure_controlled_run(spec.clone(), annotations, kind).await;
        let message = measured.outcome.message.unwrap_or_default();
        assert!(message.starts_with("function patch works only in"), "{message}");
        assert_eq!((measured.outcome.phase, measured.patches.len()), (Error, 0));
    }

    let mut reserved = spec;
    reserved["metrics"][0]["provider"]["kubernetes"]["fields"][0]["path"] =
        json!("metadata.annotations.io.tencent.bcs.dev/game-pod-deleting");
    let measured = measure_controlled_run(reserved, uid_of_pod, workload).await;
    let message = measured.outcome.message.unwrap_or_default();
    assert!(message.contains("cannot be written by hooks"), "{message}");
    assert_eq!((measured.outcome.phase, measured.patches.len()), (Error, 0));
}

/// The API server never responds to requests for one of the namespaces.
#[tokio::test]
async fn unanswered_requests_of_one_namespace_do_not_delay_another() {
    let service = tower::service_fn(|request: Request<Body>| async move {
        if request.uri().path().contains("/namespaces/greedy/") {
            std::future::pending::<()>().await;
        }
        let pod = json!({"metadata": {"name": "game-1", "uid": "pod-uid"}});
        let body = Body::from(pod.to_string().into_bytes());
        Ok::<_, Infallible>(Response::new(body))
    });
    let cluster = crate::provider::cluster::Cluster::new(Client::new(service, "games"));
    let limits: Arc<CallLimits> = Arc::default();
    let pod = |namespace: &'static str| {
        let (cluster, limits) = (cluster.clone(), Arc::clone(&limits));
        async move {
            let mut permit = limits.enter(namespace).await;
            cluster.pod(namespace, "game-1", &mut permit).await
        }
    };
    let greedy: Vec<_> = (0..200).map(|_| tokio::spawn(pod("greedy"))).collect();
    tokio::task::yield_now().await;
    let other = timeout(Duration::from_secs(5), pod("other")).await;
    assert!(other.expect("a response in time").is_ok());
    assert!(greedy.iter().all(|it| !it.is_finished()));
}

/// A pod of 1 MB may take 100 MB of memory once it is parsed.
#[tokio::test]
async fn a_pod_that_would_fill_the_memory_is_not_parsed() {
    let mut spec = get("{.status.phase}", Some("Running"));
    spec["args"][0]["value"] = json!("large");
    let outcome = measure_run(spec, &[]).await.outcome;
    let expected = "pod large is too large to be read".to_owned();
    assert_eq!((outcome.phase, outcome.message), (Error, Some(expected)));
}

/// If the measurement ended, its Job would continue while the next measurement starts a Job of its own.
#[tokio::test]
async fn a_job_measurement_continues_after_a_temporary_error() {
    for (code, resumed, phase) in [
        (500, true, Running),
        (429, true, Running),
        (504, false, Running),
        (403, true, Error),
        (422, false, Error),
    ] {
        let job = resumed.then(JobReference::default);
        let service = tower::service_fn(move |_: Request<Body>| async move {
            let status = json!({
                "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
                "reason": "Other", "message": "refused",
            });
            let body = Body::from(status.to_string().into_bytes());
            let response = Response::builder().status(code).body(body);
            Ok::<_, Infallible>(response.expect("a response"))
        });
        let container = json!({"name": "save", "image": "save:v1"});
        let spec =
            json!({"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}});
        let spec = json!({"metrics": [{"name": "save", "provider": {"job": {"spec": spec}}}]});
        let mut run = HookRun::new("run", serde_json::from_value(spec).expect("a spec"));
        run.metadata.namespace = Some("games".into());
        let call = Call { run: Arc::new(run), metric: 0, number: 1, job };
        let probe = Probe::new(HERE, Some(Client::new(service, "games"))).expect("a probe");
        let outcome = probe.measure(&call).await;
        assert_eq!(outcome.phase, phase, "{code}: {:?}", outcome.message);
        assert_eq!(outcome.resume_after.is_some(), phase == Running);
    }
}
