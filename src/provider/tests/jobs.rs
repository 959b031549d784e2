//! Job metrics, with an API server that stores Jobs, also those of other clients.

use std::collections::BTreeMap;
use std::convert::Infallible;

use http::{Method, Request, Response};
use kube::client::Body;
use serde_json::Value;

use super::*;
use gamekeeper_core::api::HookPhase::{Error, Running, Successful};
use gamekeeper_core::api::JobReference;
use gamekeeper_core::api::names::job_name;

const RUN_UID: &str = "run-uid";

/// An API server that stores Jobs by name.
#[derive(Default)]
struct Jobs {
    stored: Mutex<BTreeMap<String, Value>>,
    created: Mutex<usize>,
}

impl Jobs {
    fn handle(&self, method: &Method, name: &str, body: &Value) -> (u16, Value) {
        let mut stored = self.stored.lock().expect("jobs");
        let is_other = |job: &Value, uid: &Value| job["metadata"]["uid"] != *uid;
        match (method, stored.get_mut(name)) {
            (&Method::POST, _) => {
                let name = body["metadata"]["name"].as_str().expect("a name");
                if stored.contains_key(name) {
                    return (409, json!({"reason": "AlreadyExists"}));
                }
                let mut created = self.created.lock().expect("a number");
                *created += 1;
                let mut job = body.clone();
                job["metadata"]["uid"] = json!(format!("created-{created}"));
                stored.insert(name.to_owned(), job.clone());
                (201, job)
            }
            (_, None) => (404, json!({"reason": "NotFound"})),
            (&Method::PATCH, Some(job)) if is_other(job, &body["metadata"]["uid"]) => {
                (409, json!({"reason": "Conflict"}))
            }
            (&Method::PATCH, Some(job)) => {
                json_patch::merge(job, body);
                (200, job.clone())
            }
            (&Method::DELETE, Some(job)) if is_other(job, &body["preconditions"]["uid"]) => {
                (409, json!({"reason": "Conflict"}))
            }
            (&Method::DELETE, Some(_)) => (200, stored.remove(name).unwrap_or_default()),
            (_, Some(job)) => (200, job.clone()),
        }
    }

    fn client(self: &Arc<Self>) -> Client {
        let jobs = Arc::clone(self);
        let service = tower::service_fn(move |request: Request<Body>| {
            let jobs = Arc::clone(&jobs);
            async move {
                let (head, body) = request.into_parts();
                let body = body.collect_bytes().await.expect("a body");
                let body = serde_json::from_slice(&body).unwrap_or_default();
                let path = head.uri.path();
                let (code, answer) = match path.split("/jobs").nth(1) {
                    Some(name) => jobs.handle(&head.method, name.trim_start_matches('/'), &body),
                    None => (200, json!({"items": []})),
                };
                let answer = match code {
                    400.. => json!({
                        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
                        "reason": answer["reason"], "message": "refused",
                    }),
                    _ => answer,
                };
                let body = Body::from(answer.to_string().into_bytes());
                let response = Response::builder().status(code).body(body);
                Ok::<_, Infallible>(response.expect("a response"))
            }
        });
        Client::new(service, "games")
    }

    /// Stores a Job, complete from the start, as another client would.
    fn forge(&self, owner_uid: &str) {
        let job = json!({
            "metadata": {"name": name(), "uid": "forged", "ownerReferences": [{"uid": owner_uid}]},
            "status": {"conditions": [{"type": "Complete", "status": "True"}]},
        });
        self.stored.lock().expect("jobs").insert(name(), job);
    }

    fn job(&self) -> Value {
        self.stored.lock().expect("jobs")[&name()].clone()
    }

    /// Makes the first measurement of a run, or polls it if it has a Job.
    async fn measure(self: &Arc<Self>, job: Option<JobReference>) -> Outcome {
        self.probe().measure(&call(job)).await
    }

    fn probe(self: &Arc<Self>) -> Probe {
        Probe::new(HERE, Some(self.client())).expect("a probe")
    }
}

fn name() -> String {
    job_name("run", RUN_UID, "save", 1)
}

fn recorded(uid: &str) -> Option<JobReference> {
    Some(JobReference { name: name(), uid: uid.to_owned() })
}

fn call(job: Option<JobReference>) -> Call {
    let container = json!({"name": "save", "image": "save:v1"});
    let spec = json!({"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}});
    call_with(spec, job)
}

/// A call of a metric whose Job has this spec.
fn call_with(spec: Value, job: Option<JobReference>) -> Call {
    let metadata = json!({"annotations": {"team": "a"}});
    let provider = json!({"job": {"metadata": metadata, "spec": spec}});
    let spec = json!({"metrics": [{"name": "save", "provider": provider}]});
    let mut run = HookRun::new("run", serde_json::from_value(spec).expect("a spec"));
    run.metadata.namespace = Some("games".into());
    run.metadata.uid = Some(RUN_UID.into());
    Call { run: Arc::new(run), metric: 0, number: 1, job }
}

/// If it started at once, its result would have to be believed after a crash, although its origin is unknown then.
#[tokio::test]
async fn a_job_starts_only_once_it_is_recorded() {
    let jobs = Arc::new(Jobs::default());
    let outcome = jobs.measure(None).await;
    assert_eq!((outcome.phase, outcome.job.clone()), (Running, recorded("created-1")));
    let mark = "gamekeeper.tkex.tencent.com/awaits-record";
    let job = jobs.job();
    assert_eq!(job["spec"]["suspend"], true);
    assert_eq!(job["metadata"]["annotations"], json!({"team": "a", mark: "true"}));
    let polled = jobs.measure(outcome.job.clone()).await;
    assert_eq!(polled.phase, Running, "{polled:?}");
    let job = jobs.job();
    assert_eq!(job["spec"]["suspend"], false);
    assert_eq!(job["metadata"]["annotations"], json!({"team": "a"}));
    let completed = json!({"status": {"conditions": [{"type": "Complete", "status": "True"}]}});
    json_patch::merge(
        jobs.stored.lock().expect("jobs").get_mut(&name()).expect("the job"),
        &completed,
    );
    let ended = jobs.measure(outcome.job).await;
    assert_eq!((ended.phase, ended.value), (Successful, Some(name())));
}

#[tokio::test]
async fn a_job_that_is_not_recorded_is_replaced_and_never_believed() {
    let jobs = Arc::new(Jobs::default());
    jobs.forge(RUN_UID);
    let outcome = jobs.measure(None).await;
    assert_eq!((outcome.phase, outcome.job), (Running, recorded("created-1")));
    assert_eq!(jobs.job()["spec"]["suspend"], true);
    // Nor is one that took the place of the recorded Job.
    jobs.forge(RUN_UID);
    let outcome = jobs.measure(recorded("created-1")).await;
    let expected = format!("job {} was deleted before it had finished", name());
    assert_eq!((outcome.phase, outcome.message), (Error, Some(expected)));
}

#[tokio::test]
async fn a_job_of_another_owner_is_neither_believed_nor_deleted() {
    let jobs = Arc::new(Jobs::default());
    jobs.forge("other");
    let outcome = jobs.measure(None).await;
    let expected = format!("job {} has another owner: delete it, or rename the run", name());
    assert_eq!((outcome.phase, outcome.message), (Error, Some(expected)));
    jobs.probe().stop(&call(None)).await.expect("stopped");
    assert_eq!(jobs.job()["metadata"]["uid"], "forged");
    jobs.forge(RUN_UID);
    jobs.probe().stop(&call(None)).await.expect("stopped");
    assert!(jobs.stored.lock().expect("jobs").is_empty());
}

/// Pods that other clients create would decide what such a Job measures.
#[tokio::test]
async fn a_job_that_selects_pods_by_itself_is_not_created() {
    let jobs = Arc::new(Jobs::default());
    let spec = json!({"manualSelector": true, "selector": {"matchLabels": {"app": "save"}}});
    let outcome = jobs.probe().measure(&call_with(spec, None)).await;
    let message = outcome.message.unwrap_or_default();
    assert!(message.contains("manualSelector"), "{message}");
    assert_eq!((outcome.phase, *jobs.created.lock().expect("a number")), (Error, 0));
}
