//! The controller against a scripted API server and hook endpoint.

use std::convert::Infallible;
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

use super::*;
use crate::apply::events::EventRecorder;
use crate::cache::CachedHookRun;
use crate::controller::queue::work;
use crate::provider::HttpOptions;
use gamekeeper_core::api::{HookPhase, HookRun};

/// An API server that holds one run.
#[derive(Default)]
struct Server {
    run: Mutex<Value>,
    writes: AtomicUsize,
    refused: AtomicUsize,
    deletions: AtomicUsize,
    /// Status codes of the next failures, the last one first. A write that fails with 504 is made nevertheless.
    failures: Mutex<Vec<u16>>,
}

impl Server {
    fn version(&self) -> u64 {
        let run = self.run.lock().expect("the run");
        let version = run["metadata"]["resourceVersion"]
            .as_str()
            .expect("a version");
        version.parse().expect("a number")
    }

    /// Changes the run as another client would.
    fn change(&self, change: impl FnOnce(&mut Value)) {
        let mut run = self.run.lock().expect("the run");
        change(&mut run);
        let version: u64 = run["metadata"]["resourceVersion"]
            .as_str()
            .expect("a version")
            .parse()
            .expect("a number");
        run["metadata"]["resourceVersion"] = json!((version + 1).to_string());
    }

    fn patch(&self, patch: &Value) -> (u16, Value) {
        let failure = self.failures.lock().expect("failures").pop();
        if let Some(code) = failure.filter(|code| *code != 504) {
            return (code, json!({"message": "a planned failure"}));
        }
        let run = self.run.lock().expect("the run").clone();
        for field in ["resourceVersion", "uid"] {
            if run["metadata"][field] != patch["metadata"][field] {
                self.refused.fetch_add(1, Ordering::SeqCst);
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

    fn client(self: &Arc<Self>) -> Client {
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
                assert!(path.ends_with("/namespaces/games/hookruns/run/status"));
                let body = request.into_body().collect_bytes().await.expect("a body");
                let (code, response) =
                    server.patch(&serde_json::from_slice(&body).expect("a patch"));
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

/// A hook endpoint: counts calls, and responds with the next body; the last one is repeated.
struct Endpoint {
    url: String,
    calls: Arc<AtomicUsize>,
}

impl Endpoint {
    async fn start(bodies: &'static [&'static str], delay: Duration) -> Self {
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

    fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }
}

/// A controller that reconciles the run of a server.
struct World {
    server: Arc<Server>,
    cache: Arc<Cache>,
    queue: Arc<Queue>,
    controller: Arc<HookRuns>,
    metrics: HookMetrics,
    stop: watch::Sender<bool>,
}

fn key() -> ObjectKey {
    ObjectKey::new("games", "run")
}

impl World {
    fn new(metric: Value) -> Self {
        let server = Arc::new(Server::default());
        *server.run.lock().expect("the run") = json!({
            "apiVersion": "tkex.tencent.com/v1alpha1",
            "kind": "HookRun",
            "metadata": {
                "name": "run", "namespace": "games", "uid": "uid-1", "resourceVersion": "10",
            },
            "spec": {"metrics": [metric]},
        });
        Self::on(server)
    }

    /// Another operator with the same server, as after a restart.
    fn on(server: Arc<Server>) -> Self {
        let cache = Arc::new(Cache::default());
        let queue = Arc::new(Queue::default());
        let here = HttpOptions {
            allow_loopback: true,
            ..HttpOptions::default()
        };
        let probe = Probe::new(here, None).expect("a probe");
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
        let world = World {
            server,
            cache,
            queue,
            controller,
            metrics,
            stop,
        };
        world.show();
        world
    }

    /// Updates the cache with the run of the server.
    fn show(&self) {
        let run = self.server.run.lock().expect("the run").clone();
        let run: HookRun = serde_json::from_value(run).expect("a run");
        let version = self.server.version();
        self.cache
            .hook_runs
            .show(version, vec![CachedHookRun::new(run, true)]);
        self.queue.add(key());
    }

    fn show_nothing(&self) {
        self.cache
            .hook_runs
            .show(self.server.version() + 1, Vec::new());
        self.queue.add(key());
    }

    fn status(&self) -> Value {
        self.server.run.lock().expect("the run")["status"].clone()
    }

    fn phase(&self) -> HookPhase {
        serde_json::from_value(self.status()["phase"].clone()).unwrap_or_default()
    }

    fn writes(&self) -> usize {
        self.server.writes.load(Ordering::SeqCst)
    }

    fn metrics_page(&self) -> String {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self.metrics.clone()));
        let mut page = String::new();
        prometheus_client::encoding::text::encode(&mut page, &registry).expect("a page");
        page
    }

    async fn until(&self, event: &str, test: impl Fn(&Self) -> bool) {
        let wait = async {
            while !test(self) {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(Duration::from_secs(20), wait)
            .await
            .unwrap_or_else(|_| panic!("timed out waiting for: {event}; status {}", self.status()));
    }

    async fn until_phase(&self, phase: HookPhase) {
        self.until(&format!("phase {phase}"), |world| world.phase() == phase)
            .await;
    }

    fn stop(&self) {
        self.stop.send_replace(true);
        self.controller.abandon();
    }
}

const QUICK: Duration = Duration::ZERO;

fn metric(endpoint: &Endpoint, more: Value) -> Value {
    let mut metric = json!({
        "name": "webtest",
        "successCondition": "asInt(result) < 30",
        "provider": {"web": {"url": endpoint.url, "jsonPath": "{$.age}"}},
    });
    metric
        .as_object_mut()
        .expect("fields")
        .extend(more.as_object().expect("fields").clone());
    metric
}

#[tokio::test]
async fn a_run_of_one_quick_measurement_costs_one_write() {
    let endpoint = Endpoint::start(&["{\"age\":45}"], QUICK).await;
    let world = World::new(metric(&endpoint, json!({})));
    world.until_phase(HookPhase::Failed).await;
    let status = world.status();
    assert_eq!(status["metricResults"][0]["count"], 1);
    assert_eq!(status["metricResults"][0]["failed"], 1);
    assert_eq!(status["metricResults"][0]["measurements"][0]["value"], "45");
    assert_eq!((world.writes(), endpoint.calls()), (1, 1));
}

#[tokio::test]
async fn a_run_with_a_slow_measurement_is_shown_as_running() {
    let endpoint = Endpoint::start(&["{\"age\":20}"], Duration::from_secs(1)).await;
    let world = World::new(metric(&endpoint, json!({})));
    world.until_phase(HookPhase::Running).await;
    world.until_phase(HookPhase::Successful).await;
    assert_eq!((world.writes(), endpoint.calls()), (2, 1));
}

#[tokio::test]
async fn a_stale_cache_does_not_repeat_a_measurement() {
    let endpoint = Endpoint::start(&["{\"age\":20}"], QUICK).await;
    let world = World::new(metric(&endpoint, json!({"count": 2, "interval": "1s"})));
    // The cache keeps showing the first state.
    world.until_phase(HookPhase::Successful).await;
    for _ in 0..5 {
        world.queue.add(key());
        sleep(Duration::from_millis(50)).await;
    }
    assert_eq!((world.writes(), endpoint.calls()), (2, 2));
    assert!(
        !world.controller.runs().is_empty(),
        "it is kept until the cache has observed its end"
    );
    world.show();
    world
        .until("the run is forgotten", |world| {
            world.controller.runs().is_empty()
        })
        .await;
    assert_eq!((world.writes(), endpoint.calls()), (2, 2));
}

#[tokio::test]
async fn a_restarted_operator_resumes_the_run() {
    let endpoint = Endpoint::start(&["{\"age\":20}"], QUICK).await;
    let first = World::new(metric(&endpoint, json!({"count": 3, "interval": "1s"})));
    first
        .until("one measurement", |world| {
            world.status()["metricResults"][0]["count"] == 1
        })
        .await;
    first.stop();
    let second = World::on(Arc::clone(&first.server));
    second.until_phase(HookPhase::Successful).await;
    assert_eq!(second.status()["metricResults"][0]["count"], 3);
    assert_eq!(endpoint.calls(), 3);
}

#[tokio::test]
async fn a_completed_run_that_can_be_decoded_again_loses_its_condition_and_ends_once() {
    let endpoint = Endpoint::start(&["{\"age\":20}"], QUICK).await;
    let first = World::new(metric(&endpoint, json!({})));
    first.until_phase(HookPhase::Successful).await;
    first.stop();
    let condition = json!({
        "type": "Ready", "status": "False", "reason": "Unreadable", "message": "",
        "lastTransitionTime": "2026-01-02T03:04:05Z",
    });
    let server = Arc::clone(&first.server);
    server.change(|run| run["status"]["conditions"] = json!([condition]));
    let second = World::on(server);
    second
        .until("the condition is removed", |world| {
            world.status()["conditions"].is_null()
        })
        .await;
    assert_eq!(second.phase(), HookPhase::Successful);
    second.show();
    second
        .until("the run is forgotten", |world| {
            world.controller.runs().is_empty()
        })
        .await;
    assert_eq!((second.writes(), endpoint.calls()), (2, 1));
    let ends = |world: &World| world.metrics_page().contains("hook_runs_ended_total{");
    assert!(ends(&first) && !ends(&second), "it counts when it ends");
}

#[tokio::test]
async fn a_completed_run_causes_no_work() {
    let endpoint = Endpoint::start(&["{\"age\":20}"], QUICK).await;
    let world = World::new(metric(&endpoint, json!({})));
    world
        .server
        .change(|run| run["status"] = json!({"phase": "Failed"}));
    world.until_phase(HookPhase::Failed).await;
    world.stop();
    let world = World::on(Arc::clone(&world.server));
    sleep(Duration::from_millis(200)).await;
    assert!(world.queue.next().now_or_never().is_none());
    assert!(world.controller.runs().is_empty());
    assert_eq!(world.writes(), 0);
}

#[tokio::test]
async fn a_run_deleted_during_a_measurement_is_forgotten() {
    let endpoint = Endpoint::start(&["{\"age\":20}"], Duration::from_secs(1)).await;
    let world = World::new(metric(&endpoint, json!({})));
    world.until("the call", |_| endpoint.calls() == 1).await;
    world.show_nothing();
    world
        .until("the run is forgotten", |world| {
            world.controller.runs().is_empty()
        })
        .await;
    let writes = world.writes();
    sleep(Duration::from_millis(1_500)).await;
    assert_eq!((world.writes(), endpoint.calls()), (writes, 1));
}

#[tokio::test]
async fn a_terminating_run_is_not_measured() {
    let endpoint = Endpoint::start(&["{\"age\":20}"], QUICK).await;
    let world = World::new(metric(&endpoint, json!({"initialDelay": "1s"})));
    world.server.change(|run| {
        run["metadata"]["deletionTimestamp"] = json!("2020-11-10T09:02:05Z");
    });
    world.show();
    sleep(Duration::from_millis(1_500)).await;
    assert_eq!(endpoint.calls(), 0);
    assert!(world.controller.runs().is_empty());
}

#[tokio::test]
async fn another_run_with_the_same_name_starts_from_scratch() {
    let endpoint = Endpoint::start(&["{\"age\":20}"], Duration::from_millis(500)).await;
    let world = World::new(metric(&endpoint, json!({})));
    world.until("the call", |_| endpoint.calls() == 1).await;
    world.server.change(|run| {
        run["metadata"]["uid"] = json!("uid-2");
        run["status"] = Value::Null;
    });
    world.show();
    world.until_phase(HookPhase::Successful).await;
    assert_eq!(
        endpoint.calls(),
        2,
        "measurements of the old run do not count"
    );
}

#[tokio::test]
async fn terminate_stops_a_run_despite_concurrent_status_writes() {
    let endpoint = Endpoint::start(&["{\"age\":20}"], QUICK).await;
    let world = World::new(metric(&endpoint, json!({"interval": "1s"})));
    world
        .until("one measurement", |world| world.writes() == 1)
        .await;
    // The cache does not show the user's write yet when the next result is written.
    world
        .server
        .change(|run| run["spec"]["terminate"] = json!(true));
    world
        .until("a conflict", |world| {
            world.server.refused.load(Ordering::SeqCst) > 0
        })
        .await;
    world.show();
    world.until_phase(HookPhase::Successful).await;
    assert_eq!(world.status()["metricResults"][0]["count"], 2);
}

#[tokio::test]
async fn no_measurement_starts_while_status_writes_fail() {
    let endpoint = Endpoint::start(&["{\"age\":20}"], QUICK).await;
    let world = World::new(metric(&endpoint, json!({"count": 3, "interval": "1s"})));
    *world.server.failures.lock().expect("failures") = vec![500; 10];
    world
        .until("all failures", |world| {
            world.server.failures.lock().expect("failures").is_empty()
        })
        .await;
    assert_eq!(
        endpoint.calls(),
        1,
        "no more calls while the API server fails"
    );
    world.until_phase(HookPhase::Successful).await;
    assert_eq!((endpoint.calls(), world.writes()), (3, 3));
}

#[tokio::test]
async fn a_write_whose_response_was_lost_is_not_repeated() {
    let endpoint = Endpoint::start(&["{\"age\":20}"], QUICK).await;
    let world = World::new(metric(&endpoint, json!({"count": 2, "interval": "1s"})));
    *world.server.failures.lock().expect("failures") = vec![504];
    world.until("one write", |world| world.writes() == 1).await;
    world.show();
    world.until_phase(HookPhase::Successful).await;
    assert_eq!((endpoint.calls(), world.writes()), (2, 2));
}

#[tokio::test]
async fn a_status_written_by_another_client_takes_precedence() {
    let endpoint = Endpoint::start(&["{\"age\":20}"], QUICK).await;
    let world = World::new(metric(&endpoint, json!({"count": 2, "interval": "2s"})));
    world
        .until("one measurement", |world| world.writes() == 1)
        .await;
    world
        .server
        .change(|run| run["status"] = json!({"phase": "Failed", "message": "by hand"}));
    world.show();
    world
        .until("the run is forgotten", |world| {
            world.controller.runs().is_empty()
        })
        .await;
    assert_eq!(
        (world.status()["message"].clone(), endpoint.calls()),
        (json!("by hand"), 1)
    );
}

#[tokio::test]
async fn a_run_is_deleted_after_its_time_to_live() {
    let endpoint = Endpoint::start(&["{\"age\":45}"], QUICK).await;
    let world = World::new(metric(&endpoint, json!({})));
    world.server.change(|run| {
        run["spec"]["ttlStrategy"] = json!({"secondsAfterFailure": 2, "secondsAfterSuccess": 3600});
    });
    world.show();
    let started = std::time::Instant::now();
    world.until_phase(HookPhase::Failed).await;
    world.show();
    let deletions = |world: &World| world.server.deletions.load(Ordering::SeqCst);
    world
        .until("the deletion", |world| deletions(world) == 1)
        .await;
    // Times in a status are whole seconds, so the two seconds may be little more than one.
    assert!(started.elapsed() > Duration::from_millis(900));
}

/// Parsing expressions takes a while, so the rules are kept until the spec changes.
#[test]
fn the_rules_of_a_spec_are_parsed_once() {
    let run = |generation: i64| {
        let mut run = HookRun::new("run", gamekeeper_core::api::HookRunSpec::default());
        run.metadata.uid = Some("uid-1".into());
        run.metadata.generation = Some(generation);
        CachedHookRun::new(run, true)
    };
    let rules = Arc::default();
    let mut live = Live::resume(&run(1), Arc::clone(&rules), Timestamp::now());
    let known = |live: &Live, generation| live.rules(&run(generation));
    assert!(known(&live, 1).is_some_and(|known| Arc::ptr_eq(&known, &rules)));
    assert!(known(&live, 2).is_none(), "the spec was changed");
    live.observe(&run(2), rules);
    assert!(known(&live, 2).is_some());
}

#[tokio::test]
async fn a_run_that_is_not_stored_is_measured_without_a_write() {
    let endpoint = Endpoint::start(&["{\"age\":45}", "{\"age\":20}"], QUICK).await;
    // The fake server accepts writes to its own run only.
    let world = World::new(metric(&endpoint, json!({"initialDelay": "1h"})));
    let run: HookRun = serde_json::from_value(json!({
        "metadata": {"name": "unstored", "namespace": "games"},
        "spec": {"metrics": [metric(&endpoint, json!({}))]},
    }))
    .expect("a run");
    let key = ObjectKey::new("games", "unstored");
    let runs = &world.cache.unstored_runs;
    let phase = || runs.get(&key).map(|run| run.object.phase());
    for expected in [HookPhase::Failed, HookPhase::Successful] {
        runs.add(run.clone());
        world.queue.add(key.clone());
        world
            .until("the run has ended", |_| phase() == Some(expected))
            .await;
        let uid = runs.get(&key).expect("the run").uid().to_owned();
        runs.remove(&key, &uid);
        world.queue.add(key.clone());
        world
            .until("the run is forgotten", |world| {
                !world.controller.runs().contains_key(&key)
            })
            .await;
    }
    assert_eq!(endpoint.calls(), 2);
}
