//! What the tests run against: an API server that holds one run, a hook endpoint, and a controller between them.

use std::convert::Infallible;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::{Method, Request, Response, StatusCode};
use kube::Client;
use kube::client::Body;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::super::*;
use crate::kinds::CachedHookRun;
use crate::provider::HttpOptions;
use crate::reconcile::apply::events::EventRecorder;
use crate::runtime::queue::work;
use gamekeeper_core::api::{HookPhase, HookRun};

/// An API server that holds one run.
#[derive(Default)]
pub(super) struct Server {
    pub(super) run: Mutex<Value>,
    pub(super) writes: AtomicUsize,
    pub(super) conflicts: AtomicUsize,
    pub(super) deletions: AtomicUsize,
    /// The status codes with which the next writes fail; the last code is used first. A write that fails with 504 takes
    /// effect nevertheless.
    pub(super) failures: Mutex<Vec<u16>>,
    /// Path and body of each patch of a pod.
    pub(super) pod_patches: Mutex<Vec<(String, Value)>>,
}

impl Server {
    pub(super) fn version(&self) -> u64 {
        let run = self.run.lock().expect("the run");
        let version = run["metadata"]["resourceVersion"].as_str().expect("a version");
        version.parse().expect("a number")
    }

    /// Changes the run as another client would.
    pub(super) fn change(&self, change: impl FnOnce(&mut Value)) {
        let mut run = self.run.lock().expect("the run");
        change(&mut run);
        let version: u64 = run["metadata"]["resourceVersion"]
            .as_str()
            .expect("a version")
            .parse()
            .expect("a number");
        run["metadata"]["resourceVersion"] = json!((version + 1).to_string());
    }

    pub(super) fn patch(&self, patch: &Value) -> (u16, Value) {
        let failure = self.failures.lock().expect("failures").pop();
        if let Some(code) = failure.filter(|code| *code != 504) {
            return (code, json!({"message": "a planned failure"}));
        }
        let run = self.run.lock().expect("the run").clone();
        for field in ["resourceVersion", "uid"] {
            if run["metadata"][field] != patch["metadata"][field] {
                self.conflicts.fetch_add(1, Ordering::SeqCst);
                return (
                    409,
                    json!({"reason": "Conflict", "message": "the object has been modified"}),
                );
            }
        }
        self.writes.fetch_add(1, Ordering::SeqCst);
        self.change(|run| json_patch::merge(&mut run["status"], &patch["status"]));
        match failure {
            Some(code) => (code, json!({"message": "no response"})),
            None => (200, self.run.lock().expect("the run").clone()),
        }
    }

    pub(super) fn patch_pod(&self, path: String, patch: Value) -> (u16, Value) {
        let mut patches = self.pod_patches.lock().expect("patches");
        patches.push((path, patch));
        let failure = self.failures.lock().expect("failures").pop();
        (failure.unwrap_or(200), json!({"message": "a response"}))
    }

    pub(super) fn client(self: &Arc<Self>) -> Client {
        let server = Arc::clone(self);
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = Arc::clone(&server);
            async move {
                let path = request.uri().path().to_owned();
                if request.method() == Method::DELETE {
                    assert!(path.ends_with("/namespaces/games/hookruns/run"));
                    server.deletions.fetch_add(1, Ordering::SeqCst);
                    return Ok(Response::new(Body::from(b"{}".to_vec())));
                }
                assert_eq!(request.method(), Method::PATCH);
                let body = request.into_body().collect_bytes().await.expect("a body");
                let patch: Value = serde_json::from_slice(&body).expect("a patch");
                let (code, response) = match path.split('/').nth_back(1) {
                    Some("pods") => server.patch_pod(path, patch),
                    _ if path.ends_with("/namespaces/games/hookruns/run/status") => {
                        server.patch(&patch)
                    }
                    _ => (404, json!({"message": "there is no other run"})),
                };
                let response = Response::builder()
                    .status(StatusCode::from_u16(code).expect("a status"))
                    .body(Body::from(response.to_string().into_bytes()))
                    .expect("a response");
                Ok::<_, Infallible>(response)
            }
        });
        Client::new(service, "games")
    }
}

/// A hook endpoint. It counts calls, and responds to each call with the next body; the last body is repeated.
pub(super) struct Endpoint {
    pub(super) url: String,
    pub(super) calls: Arc<AtomicUsize>,
}

impl Endpoint {
    pub(super) async fn start(bodies: &'static [&'static str], delay: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let calls = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&calls);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let call = counter.fetch_add(1, Ordering::SeqCst);
                let body = bodies[call.min(bodies.len() - 1)];
                tokio::spawn(async move {
                    let _ = stream.read(&mut [0; 4096]).await;
                    sleep(delay).await;
                    let length = body.len();
                    let response = format!(
                        "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
                    );
                    let _ = stream.write_all(response.as_bytes()).await;
                });
            }
        });
        Endpoint { url, calls }
    }

    pub(super) fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }
}

/// A controller that reconciles the run that a server holds.
pub(super) struct World {
    pub(super) server: Arc<Server>,
    pub(super) cache: Arc<Cache>,
    pub(super) queue: Arc<Queue>,
    pub(super) controller: Arc<HookRuns>,
    pub(super) metrics: HookMetrics,
    stop: watch::Sender<bool>,
}

pub(super) fn key() -> ObjectKey {
    ObjectKey::new("games", "run")
}

impl World {
    /// A world with a run that has this metric, or these metrics.
    pub(super) fn new(metric: Value) -> Self {
        let server = Arc::new(Server::default());
        *server.run.lock().expect("the run") = json!({
            "apiVersion": "tkex.tencent.com/v1alpha1",
            "kind": "HookRun",
            "metadata": {
                "name": "run", "namespace": "games", "uid": "uid-1", "resourceVersion": "10",
            },
            "spec": {"metrics": match metric {
                Value::Array(metrics) => metrics,
                metric => vec![metric],
            }},
        });
        Self::with_server(server)
    }

    /// A controller that uses this server. If an earlier controller used it, the new one resumes the run, as after a
    /// restart.
    pub(super) fn with_server(server: Arc<Server>) -> Self {
        let cache = Arc::new(Cache::default());
        let queue = Arc::new(Queue::default());
        let options = HttpOptions { allow_loopback: true, ..HttpOptions::default() };
        let probe = Probe::new(options, None).expect("a probe");
        let requests = Requests::new(server.client());
        let (events, _) = EventRecorder::new();
        let metrics = HookMetrics::default();
        let controller = Arc::new(HookRuns::new(
            Arc::clone(&cache),
            requests.clone(),
            UnreadableReporter::new(requests, events),
            probe,
            Arc::clone(&queue),
            metrics.clone(),
        ));
        let (stop, stopped) = watch::channel(false);
        let reconciler = Arc::clone(&controller);
        tokio::spawn(work(Arc::clone(&queue), stopped, move |key| {
            Arc::clone(&reconciler).reconcile(key)
        }));
        let world = World { server, cache, queue, controller, metrics, stop };
        world.show();
        world
    }

    /// Updates the cache with the server's current run, and queues the run.
    pub(super) fn show(&self) {
        let run = self.server.run.lock().expect("the run").clone();
        let run: HookRun = serde_json::from_value(run).expect("a run");
        let version = self.server.version();
        self.cache.hook_runs.show(version, vec![CachedHookRun::new(run, true)]);
        self.queue.add(key());
    }

    pub(super) fn show_nothing(&self) {
        self.cache.hook_runs.show(self.server.version() + 1, Vec::new());
        self.queue.add(key());
    }

    pub(super) fn status(&self) -> Value {
        self.server.run.lock().expect("the run")["status"].clone()
    }

    pub(super) fn phase(&self) -> HookPhase {
        serde_json::from_value(self.status()["phase"].clone()).unwrap_or_default()
    }

    pub(super) fn writes(&self) -> usize {
        self.server.writes.load(Ordering::SeqCst)
    }

    pub(super) fn metrics_page(&self) -> String {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self.metrics.clone()));
        let mut page = String::new();
        prometheus_client::encoding::text::encode(&mut page, &registry).expect("a page");
        page
    }

    pub(super) async fn until(&self, event: &str, test: impl Fn(&Self) -> bool) {
        let wait = async {
            while !test(self) {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(Duration::from_secs(20), wait)
            .await
            .unwrap_or_else(|_| panic!("timed out waiting for: {event}; status {}", self.status()));
    }

    pub(super) async fn until_phase(&self, phase: HookPhase) {
        self.until(&format!("phase {phase}"), |world| world.phase() == phase).await;
    }

    pub(super) fn stop(&self) {
        self.stop.send_replace(true);
        self.controller.abandon();
    }
}

pub(super) const QUICK: Duration = Duration::ZERO;

pub(super) fn metric(endpoint: &Endpoint, more: Value) -> Value {
    let mut metric = json!({
        "name": "webtest",
        "successCondition": "asInt(result) < 30",
        "provider": {"web": {"url": endpoint.url, "jsonPath": "{$.age}"}},
    });
    metric.as_object_mut().expect("fields").extend(more.as_object().expect("fields").clone());
    metric
}
