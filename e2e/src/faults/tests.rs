//! Tests each fault against a small HTTP server.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body as ServerBody;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use futures::stream::unfold;
use http::{HeaderMap, Method, Request, Uri};
use http_body_util::BodyExt;
use kube::client::Body;
use kube::{Client, Config};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::request::Verb;
use super::{Fault, FaultProxy, Frequency, Requests, Script, WatchFault};

const PODS: &str = "/api/v1/namespaces/x/pods";
const POD: &str = "/api/v1/namespaces/x/pods/p";
/// How long to wait for what must arrive.
const SOON: Duration = Duration::from_secs(10);
/// How long to wait for what must not arrive.
const QUIET_TIME: Duration = Duration::from_millis(300);

/// The requests that the server has received, and its watches.
#[derive(Clone, Default)]
struct Server {
    writes: Arc<AtomicUsize>,
    reads: Arc<AtomicUsize>,
    user: Arc<Mutex<String>>,
    watches: Arc<Mutex<Vec<mpsc::UnboundedSender<String>>>>,
}

async fn answer(
    State(server): State<Server>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let user = headers.get("authorization").and_then(|value| value.to_str().ok());
    *server.user.lock().expect("a lock") = user.unwrap_or_default().to_owned();
    if uri.query().is_some_and(|query| query.contains("watch=1")) {
        let (sender, receiver) = mpsc::unbounded_channel::<String>();
        server.watches.lock().expect("a lock").push(sender);
        let lines = unfold(receiver, async |mut receiver: mpsc::UnboundedReceiver<_>| {
            let line: String = receiver.recv().await?;
            Some((Ok::<_, std::io::Error>(line), receiver))
        });
        return ServerBody::from_stream(lines).into_response();
    }
    let counted = if method == Method::GET { &server.reads } else { &server.writes };
    let number = counted.fetch_add(1, Ordering::SeqCst) + 1;
    axum::Json(json!({"kind": "Pod", "number": number})).into_response()
}

/// A client, the proxy, and the server behind it.
struct Fixture {
    server: Server,
    proxy: FaultProxy,
    client: Client,
    _serving: JoinHandle<()>,
}

impl Fixture {
    async fn start(script: Script) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let server = Server::default();
        let router = Router::new().fallback(answer).with_state(server.clone());
        let serving = tokio::spawn(async move {
            axum::serve(listener, router).await.expect("serves");
        });
        let uri = format!("http://{address}").parse().expect("an address");
        let mut config = Config::new(uri);
        let proxy = FaultProxy::in_front_of(&config).await.expect("a proxy");
        config.cluster_url = proxy.url().parse().expect("an address");
        config.root_cert = Some(vec![certificate(proxy.ca())]);
        config.auth_info.token = Some("ours".to_owned().into());
        config.default_retry = false;
        let client = Client::try_from(config).expect("a client");
        proxy.play(script);
        Fixture { server, proxy, client, _serving: serving }
    }

    /// Sends a request. Returns the status, and the body if it is complete.
    async fn send(&self, method: Method, path: &str) -> (u16, Option<Value>) {
        let request = Request::builder().method(method).uri(path);
        let request = request.body(Body::from(b"{}".to_vec())).expect("a request");
        let response = self.client.send(request).await.expect("a response");
        let (head, body) = response.into_parts();
        let body = body.collect().await.ok().map(|body| body.to_bytes());
        let body = body.map(|body| serde_json::from_slice(&body).unwrap_or_default());
        (head.status.as_u16(), body)
    }

    fn writes(&self) -> usize {
        self.server.writes.load(Ordering::SeqCst)
    }

    /// Starts a watch of pods.
    async fn watch(&self, query: &str) -> Watch {
        let index = self.server.watches.lock().expect("a lock").len();
        let path = format!("{PODS}?watch=1{query}");
        let request = Request::get(path).body(Body::empty()).expect("a request");
        let pending = self.client.send(request);
        let response = timeout(SOON, pending).await.expect("in time").expect("a response");
        let server = self.server.watches.lock().expect("a lock")[index].clone();
        Watch { server, body: response.into_body(), unread: String::new() }
    }
}

fn certificate(pem: &str) -> Vec<u8> {
    use tokio_rustls::rustls::pki_types::CertificateDer;
    use tokio_rustls::rustls::pki_types::pem::PemObject;
    CertificateDer::from_pem_slice(pem.as_bytes()).expect("a certificate").to_vec()
}

/// Both ends of a watch.
struct Watch {
    server: mpsc::UnboundedSender<String>,
    body: Body,
    unread: String,
}

/// What a client receives from a watch.
#[derive(Debug, PartialEq)]
enum Received {
    /// An event: its type, and its version or code.
    Event(String, String),
    /// The regular end.
    End,
    /// The connection broke, after this many bytes of an incomplete line.
    Broken(usize),
}

impl Watch {
    fn send_event(&self, version: u32) {
        let object = json!({"kind": "Pod", "apiVersion": "v1",
            "metadata": {"resourceVersion": version.to_string()}});
        let line = json!({"type": "MODIFIED", "object": object});
        self.server.send(format!("{line}\n")).expect("the proxy reads");
    }

    fn end_initial_events(&self) {
        let annotations = json!({"k8s.io/initial-events-end": "true"});
        let object = json!({"kind": "Pod", "metadata": {"resourceVersion": "1", "annotations": annotations}});
        let line = json!({"type": "BOOKMARK", "object": object});
        self.server.send(format!("{line}\n")).expect("the proxy reads");
    }

    /// What the client receives next.
    async fn receive(&mut self) -> Received {
        timeout(SOON, self.next()).await.expect("received in time")
    }

    async fn receives_nothing(&mut self) -> bool {
        timeout(QUIET_TIME, self.next()).await.is_err()
    }

    async fn next(&mut self) -> Received {
        loop {
            if let Some((line, rest)) = self.unread.split_once('\n') {
                let event: Value = serde_json::from_str(line).expect("a line of JSON");
                self.unread = rest.to_owned();
                let object = &event["object"];
                let version = object["metadata"]["resourceVersion"].as_str();
                let version = version.map_or(object["code"].to_string(), ToOwned::to_owned);
                return Received::Event(
                    event["type"].as_str().unwrap_or_default().to_owned(),
                    version,
                );
            }
            match self.body.frame().await {
                None => return Received::End,
                Some(Err(_)) => return Received::Broken(self.unread.len()),
                Some(Ok(frame)) => {
                    let data = frame.into_data().unwrap_or_default();
                    self.unread.push_str(&String::from_utf8_lossy(&data));
                }
            }
        }
    }
}

fn event(version: u32) -> Received {
    Received::Event("MODIFIED".to_owned(), version.to_string())
}

fn bookmark(version: u32) -> Received {
    Received::Event("BOOKMARK".to_owned(), version.to_string())
}

fn gone() -> Received {
    Received::Event("ERROR".to_owned(), "410".to_owned())
}

fn always(requests: Requests, fault: Fault) -> Script {
    Script::default().with(requests, fault, Frequency::Always)
}

#[tokio::test]
async fn requests_pass_unchanged_without_a_script() {
    let fixture = Fixture::start(Script::default()).await;
    let (status, body) = fixture.send(Method::PATCH, POD).await;
    assert_eq!((status, body), (200, Some(json!({"kind": "Pod", "number": 1}))));
    assert_eq!(*fixture.server.user.lock().expect("a lock"), "Bearer ours");
    let mut watch = fixture.watch("&resourceVersion=1").await;
    watch.send_event(2);
    watch.send_event(3);
    assert_eq!([watch.receive().await, watch.receive().await], [event(2), event(3)]);
    let Watch { server, mut body, .. } = watch;
    drop(server);
    fixture.server.watches.lock().expect("a lock").clear();
    assert!(timeout(SOON, body.frame()).await.expect("in time").is_none());
    assert_eq!(fixture.proxy.tally().sum(), 0);
}

#[tokio::test]
async fn a_refused_write_never_reaches_the_server() {
    let refusals = [
        (Fault::Conflict, 409, "Conflict"),
        (Fault::Invalid, 422, "Invalid"),
        (Fault::TooManyRequests(1), 429, "TooManyRequests"),
        (Fault::InternalError, 500, "InternalError"),
        (Fault::Unavailable, 503, "ServiceUnavailable"),
    ];
    for (fault, code, reason) in refusals {
        let fixture = Fixture::start(always(Requests::Writes, fault)).await;
        let (status, body) = fixture.send(Method::PATCH, POD).await;
        let body = body.expect("a body");
        assert_eq!((status, &body["reason"]), (code, &json!(reason)));
        assert_eq!(body["code"], code);
        assert_eq!(fixture.writes(), 0, "{code}");
        assert_eq!(fixture.send(Method::GET, POD).await.0, 200, "a read is not refused");
        let dry_run = format!("{PODS}?dryRun=All");
        assert_eq!(fixture.send(Method::POST, &dry_run).await.0, 200, "a dry run is not refused");
        assert_eq!(fixture.proxy.tally().0[fault.name()], 1);
    }
}

#[tokio::test]
async fn too_many_requests_has_a_retry_after_header() {
    let fixture = Fixture::start(always(Requests::Every, Fault::TooManyRequests(3))).await;
    let request = Request::get(POD).body(Body::empty()).expect("a request");
    let response = fixture.client.send(request).await.expect("a response");
    assert_eq!(response.headers()["retry-after"], "3");
}

#[tokio::test]
async fn a_write_whose_response_is_lost_is_still_made() {
    let fixture = Fixture::start(always(Requests::Writes, Fault::Lost)).await;
    assert_eq!(fixture.send(Method::DELETE, POD).await.0, 504);
    assert_eq!(fixture.writes(), 1);
}

#[tokio::test]
async fn a_duplicated_request_gets_the_second_response() {
    let fixture = Fixture::start(always(Requests::Writes, Fault::Duplicate)).await;
    let (_, body) = fixture.send(Method::POST, PODS).await;
    assert_eq!(body.expect("a body")["number"], 2);
    assert_eq!(fixture.writes(), 2);
}

#[tokio::test]
async fn a_truncated_response_breaks_off_in_its_body() {
    let fixture = Fixture::start(always(Requests::Every, Fault::Truncate)).await;
    assert_eq!(fixture.send(Method::PATCH, POD).await, (200, None));
    assert_eq!(fixture.writes(), 1);
}

#[tokio::test]
async fn a_delayed_response_arrives_after_its_delay_or_when_faults_stop() {
    let fixture = Fixture::start(always(Requests::Writes, Fault::Delay(QUIET_TIME))).await;
    let started = Instant::now();
    assert_eq!(fixture.send(Method::PATCH, POD).await.0, 200);
    assert!(started.elapsed() >= QUIET_TIME);
    fixture.proxy.play(always(Requests::Writes, Fault::Delay(SOON * 100)));
    let heal = async {
        tokio::time::sleep(QUIET_TIME).await;
        fixture.proxy.heal();
    };
    let response = timeout(SOON, fixture.send(Method::PATCH, POD));
    let (response, ()) = tokio::join!(response, heal);
    assert_eq!(response.expect("in time").0, 200);
}

#[tokio::test]
async fn the_first_rule_that_applies_decides() {
    let script = Script::default()
        .with(Requests::To(Verb::Patch, "pods"), Fault::Lost, Frequency::Times(2))
        .with(Requests::Writes, Fault::InternalError, Frequency::Times(1));
    let fixture = Fixture::start(script).await;
    let mut codes = Vec::new();
    for _ in 0..4 {
        codes.push(fixture.send(Method::PATCH, POD).await.0);
    }
    assert_eq!(codes, [504, 504, 500, 200]);
}

fn watching(fault: WatchFault) -> Script {
    Script::default().watching("pods", fault, 0.0, 1_000.0)
}

#[tokio::test]
async fn a_lagging_watch_keeps_all_events_in_order() {
    let fixture = Fixture::start(watching(WatchFault::Lag(2 * QUIET_TIME))).await;
    let mut watch = fixture.watch("&resourceVersion=1").await;
    watch.send_event(2);
    watch.send_event(3);
    assert!(watch.receives_nothing().await);
    assert_eq!([watch.receive().await, watch.receive().await], [event(2), event(3)]);
    fixture.proxy.play(watching(WatchFault::Lag(SOON * 100)));
    watch.send_event(4);
    assert!(watch.receives_nothing().await);
    fixture.proxy.heal();
    watch.send_event(5);
    assert_eq!([watch.receive().await, watch.receive().await], [event(4), event(5)]);
    assert_eq!(fixture.proxy.tally().0["watch lags"], 2);
}

#[tokio::test]
async fn a_fault_does_not_hit_watches_of_other_resources() {
    let script = Script::default().watching("hookruns", WatchFault::Stall, 0.0, 1_000.0);
    let fixture = Fixture::start(script).await;
    let mut watch = fixture.watch("&resourceVersion=1").await;
    watch.send_event(2);
    assert_eq!(watch.receive().await, event(2));
}

#[tokio::test]
async fn a_stalled_watch_is_silent_and_ends_with_the_fault() {
    let fixture = Fixture::start(Script::default()).await;
    let mut watch = fixture.watch("&resourceVersion=1").await;
    watch.send_event(2);
    assert_eq!(watch.receive().await, event(2));
    fixture.proxy.play(watching(WatchFault::Stall));
    watch.send_event(3);
    assert!(watch.receives_nothing().await);
    fixture.proxy.heal();
    assert_eq!(watch.receive().await, Received::End);
}

#[tokio::test]
async fn after_the_initial_events_bookmarks_with_the_last_version_replace_events() {
    let fixture = Fixture::start(watching(WatchFault::BookmarksOnly)).await;
    let mut watch = fixture.watch("&sendInitialEvents=true").await;
    watch.send_event(1);
    watch.end_initial_events();
    watch.send_event(2);
    let received = [watch.receive().await, watch.receive().await, watch.receive().await];
    assert_eq!(received, [event(1), bookmark(1), bookmark(1)]);
    fixture.proxy.heal();
    assert_eq!(watch.receive().await, Received::End);
    fixture.proxy.play(watching(WatchFault::BookmarksOnly));
    let mut resumed = fixture.watch("&resourceVersion=7").await;
    resumed.send_event(8);
    assert_eq!(resumed.receive().await, bookmark(7));
}

#[tokio::test]
async fn a_watch_expires_once() {
    let fixture = Fixture::start(Script::default()).await;
    let mut watch = fixture.watch("&resourceVersion=1").await;
    fixture.proxy.play(watching(WatchFault::Expire));
    watch.send_event(2);
    assert_eq!([watch.receive().await, watch.receive().await], [gone(), Received::End]);
    let mut next = fixture.watch("&resourceVersion=1").await;
    next.send_event(2);
    assert_eq!(next.receive().await, event(2));
}

#[tokio::test]
async fn a_truncated_watch_breaks_off_in_the_middle_of_an_event() {
    let fixture = Fixture::start(Script::default()).await;
    let mut watch = fixture.watch("&resourceVersion=1").await;
    fixture.proxy.play(watching(WatchFault::Truncate));
    watch.send_event(2);
    let received = watch.receive().await;
    assert!(matches!(received, Received::Broken(bytes) if bytes > 0), "{received:?}");
}

#[tokio::test]
async fn a_watch_fault_ends_on_schedule() {
    let script = Script::default().watching("pods", WatchFault::Stall, 0.0, 0.5);
    let fixture = Fixture::start(script).await;
    let mut watch = fixture.watch("&resourceVersion=1").await;
    watch.send_event(2);
    assert_eq!(watch.receive().await, Received::End);
    let mut next = fixture.watch("&resourceVersion=1").await;
    next.send_event(2);
    assert_eq!(next.receive().await, event(2));
}
