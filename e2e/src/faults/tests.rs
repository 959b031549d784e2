//! Each fault does what it says, against a small server that is no API server.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body as Answered;
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

use super::asked::Verb;
use super::{Fault, FaultProxy, Often, Script, WatchFault, Which};

const PODS: &str = "/api/v1/namespaces/x/pods";
const POD: &str = "/api/v1/namespaces/x/pods/p";
/// Longest wait for what is to come, and time enough to see that something does not.
const SOON: Duration = Duration::from_secs(10);
const WHILE: Duration = Duration::from_millis(300);

/// What the server is asked, and the lines of its watches.
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
    let user = headers.get("authorization").and_then(|it| it.to_str().ok());
    *server.user.lock().expect("a lock") = user.unwrap_or_default().to_owned();
    if uri.query().is_some_and(|query| query.contains("watch=1")) {
        let (tell, told) = mpsc::unbounded_channel::<String>();
        server.watches.lock().expect("a lock").push(tell);
        let lines = unfold(told, async |mut told: mpsc::UnboundedReceiver<_>| {
            let line: String = told.recv().await?;
            Some((Ok::<_, std::io::Error>(line), told))
        });
        return Answered::from_stream(lines).into_response();
    }
    let counted = if method == Method::GET {
        &server.reads
    } else {
        &server.writes
    };
    let number = counted.fetch_add(1, Ordering::SeqCst) + 1;
    axum::Json(json!({"kind": "Pod", "number": number})).into_response()
}

/// A client, the proxy, and the server behind it.
struct Stage {
    server: Server,
    proxy: FaultProxy,
    client: Client,
    _serving: JoinHandle<()>,
}

impl Stage {
    async fn set(script: Script) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let server = Server::default();
        let router = Router::new().fallback(answer).with_state(server.clone());
        let serving = tokio::spawn(async move {
            axum::serve(listener, router).await.expect("serves");
        });
        let uri = format!("http://{address}").parse().expect("an address");
        let mut config = Config::new(uri);
        let proxy = FaultProxy::before(&config).await.expect("a proxy");
        config.cluster_url = proxy.url().parse().expect("an address");
        config.root_cert = Some(vec![certificate(proxy.ca())]);
        config.auth_info.token = Some("ours".to_owned().into());
        config.default_retry = false;
        let client = Client::try_from(config).expect("a client");
        proxy.play(script);
        Stage {
            server,
            proxy,
            client,
            _serving: serving,
        }
    }

    /// Sends a request; status and body, if the body comes whole.
    async fn send(&self, method: Method, path: &str) -> (u16, Option<Value>) {
        let request = Request::builder().method(method).uri(path);
        let request = request.body(Body::from(b"{}".to_vec())).expect("a request");
        let answer = self.client.send(request).await.expect("an answer");
        let (head, body) = answer.into_parts();
        let body = body.collect().await.ok().map(|body| body.to_bytes());
        let body = body.map(|body| serde_json::from_slice(&body).unwrap_or_default());
        (head.status.as_u16(), body)
    }

    fn writes(&self) -> usize {
        self.server.writes.load(Ordering::SeqCst)
    }

    /// Begins to watch pods.
    async fn watch(&self, query: &str) -> Watch {
        let before = self.server.watches.lock().expect("a lock").len();
        let path = format!("{PODS}?watch=1{query}");
        let request = Request::get(path).body(Body::empty()).expect("a request");
        let asking = self.client.send(request);
        let answer = timeout(SOON, asking)
            .await
            .expect("in time")
            .expect("an answer");
        let server = self.server.watches.lock().expect("a lock")[before].clone();
        Watch {
            server,
            body: answer.into_body(),
            unread: String::new(),
        }
    }
}

fn certificate(pem: &str) -> Vec<u8> {
    use tokio_rustls::rustls::pki_types::CertificateDer;
    use tokio_rustls::rustls::pki_types::pem::PemObject;
    CertificateDer::from_pem_slice(pem.as_bytes())
        .expect("a certificate")
        .to_vec()
}

/// A watch, seen from both ends.
struct Watch {
    server: mpsc::UnboundedSender<String>,
    body: Body,
    unread: String,
}

/// What a client hears.
#[derive(Debug, PartialEq)]
enum Heard {
    /// An event: its type, and its version or code.
    Event(String, String),
    /// The regular end.
    End,
    /// The connection broke, with so many bytes of a line before.
    Broken(usize),
}

impl Watch {
    fn say(&self, version: u32) {
        let object = json!({"kind": "Pod", "apiVersion": "v1",
            "metadata": {"resourceVersion": version.to_string()}});
        let line = json!({"type": "MODIFIED", "object": object});
        self.server
            .send(format!("{line}\n"))
            .expect("the proxy reads");
    }

    fn say_that_this_is_all(&self) {
        let notes = json!({"k8s.io/initial-events-end": "true"});
        let object =
            json!({"kind": "Pod", "metadata": {"resourceVersion": "1", "annotations": notes}});
        let line = json!({"type": "BOOKMARK", "object": object});
        self.server
            .send(format!("{line}\n"))
            .expect("the proxy reads");
    }

    /// The next thing that comes.
    async fn hear(&mut self) -> Heard {
        timeout(SOON, self.next())
            .await
            .expect("something is heard")
    }

    async fn hears_nothing(&mut self) -> bool {
        timeout(WHILE, self.next()).await.is_err()
    }

    async fn next(&mut self) -> Heard {
        loop {
            if let Some((line, rest)) = self.unread.split_once('\n') {
                let event: Value = serde_json::from_str(line).expect("a line of JSON");
                self.unread = rest.to_owned();
                let object = &event["object"];
                let version = object["metadata"]["resourceVersion"].as_str();
                let version = version.map_or(object["code"].to_string(), ToOwned::to_owned);
                return Heard::Event(
                    event["type"].as_str().unwrap_or_default().to_owned(),
                    version,
                );
            }
            match self.body.frame().await {
                None => return Heard::End,
                Some(Err(_)) => return Heard::Broken(self.unread.len()),
                Some(Ok(frame)) => {
                    let data = frame.into_data().unwrap_or_default();
                    self.unread.push_str(&String::from_utf8_lossy(&data));
                }
            }
        }
    }
}

fn event(version: u32) -> Heard {
    Heard::Event("MODIFIED".to_owned(), version.to_string())
}

fn bookmark(version: u32) -> Heard {
    Heard::Event("BOOKMARK".to_owned(), version.to_string())
}

fn gone() -> Heard {
    Heard::Event("ERROR".to_owned(), "410".to_owned())
}

fn always(which: Which, fault: Fault) -> Script {
    Script::default().with(which, fault, Often::Always)
}

#[tokio::test]
async fn without_a_script_all_comes_through_under_the_clients_name() {
    let stage = Stage::set(Script::default()).await;
    let (status, body) = stage.send(Method::PATCH, POD).await;
    assert_eq!(
        (status, body),
        (200, Some(json!({"kind": "Pod", "number": 1})))
    );
    assert_eq!(*stage.server.user.lock().expect("a lock"), "Bearer ours");
    let mut watch = stage.watch("&resourceVersion=1").await;
    watch.say(2);
    watch.say(3);
    assert_eq!(
        [watch.hear().await, watch.hear().await],
        [event(2), event(3)]
    );
    let Watch {
        server, mut body, ..
    } = watch;
    drop(server);
    stage.server.watches.lock().expect("a lock").clear();
    assert!(
        timeout(SOON, body.frame())
            .await
            .expect("in time")
            .is_none()
    );
    assert_eq!(stage.proxy.tally().sum(), 0);
}

#[tokio::test]
async fn a_refused_write_never_reaches_the_server() {
    let refusals = [
        (Fault::Conflict, 409, "Conflict"),
        (Fault::Invalid, 422, "Invalid"),
        (Fault::Busy(1), 429, "TooManyRequests"),
        (Fault::Failing, 500, "InternalError"),
        (Fault::Unavailable, 503, "ServiceUnavailable"),
    ];
    for (fault, code, reason) in refusals {
        let stage = Stage::set(always(Which::Writes, fault)).await;
        let (status, body) = stage.send(Method::PATCH, POD).await;
        let body = body.expect("a body");
        assert_eq!((status, &body["reason"]), (code, &json!(reason)));
        assert_eq!(body["code"], code);
        assert_eq!(stage.writes(), 0, "{code}");
        assert_eq!(stage.send(Method::GET, POD).await.0, 200, "a read is none");
        let dry = format!("{PODS}?dryRun=All");
        assert_eq!(
            stage.send(Method::POST, &dry).await.0,
            200,
            "nor is a dry run"
        );
        assert_eq!(stage.proxy.tally().0[fault.name()], 1);
    }
}

#[tokio::test]
async fn too_many_requests_says_when_to_ask_again() {
    let stage = Stage::set(always(Which::Every, Fault::Busy(3))).await;
    let request = Request::get(POD).body(Body::empty()).expect("a request");
    let answer = stage.client.send(request).await.expect("an answer");
    assert_eq!(answer.headers()["retry-after"], "3");
}

#[tokio::test]
async fn a_lost_answer_is_that_of_a_write_that_was_made() {
    let stage = Stage::set(always(Which::Writes, Fault::Lost)).await;
    assert_eq!(stage.send(Method::DELETE, POD).await.0, 504);
    assert_eq!(stage.writes(), 1);
}

#[tokio::test]
async fn a_request_that_is_sent_twice_gets_the_second_answer() {
    let stage = Stage::set(always(Which::Writes, Fault::Twice)).await;
    let (_, body) = stage.send(Method::POST, PODS).await;
    assert_eq!(body.expect("a body")["number"], 2);
    assert_eq!(stage.writes(), 2);
}

#[tokio::test]
async fn a_cut_answer_breaks_in_its_body() {
    let stage = Stage::set(always(Which::Every, Fault::Cut)).await;
    assert_eq!(stage.send(Method::PATCH, POD).await, (200, None));
    assert_eq!(stage.writes(), 1);
}

#[tokio::test]
async fn a_late_answer_waits_until_its_time_or_until_the_faults_stop() {
    let stage = Stage::set(always(Which::Writes, Fault::Late(WHILE))).await;
    let begun = Instant::now();
    assert_eq!(stage.send(Method::PATCH, POD).await.0, 200);
    assert!(begun.elapsed() >= WHILE);
    stage
        .proxy
        .play(always(Which::Writes, Fault::Late(SOON * 100)));
    let heal = async {
        tokio::time::sleep(WHILE).await;
        stage.proxy.heal();
    };
    let answered = timeout(SOON, stage.send(Method::PATCH, POD));
    let (answered, ()) = tokio::join!(answered, heal);
    assert_eq!(answered.expect("in time").0, 200);
}

#[tokio::test]
async fn the_first_rule_that_applies_decides_and_so_often() {
    let script = Script::default()
        .with(Which::To(Verb::Patch, "pods"), Fault::Lost, Often::Times(2))
        .with(Which::Writes, Fault::Failing, Often::Times(1));
    let stage = Stage::set(script).await;
    let mut codes = Vec::new();
    for _ in 0..4 {
        codes.push(stage.send(Method::PATCH, POD).await.0);
    }
    assert_eq!(codes, [504, 504, 500, 200]);
}

fn watching(fault: WatchFault) -> Script {
    Script::default().watching("pods", fault, 0.0, 1_000.0)
}

#[tokio::test]
async fn a_watch_that_lags_loses_nothing_and_keeps_the_order() {
    let stage = Stage::set(watching(WatchFault::Lag(2 * WHILE))).await;
    let mut watch = stage.watch("&resourceVersion=1").await;
    watch.say(2);
    watch.say(3);
    assert!(watch.hears_nothing().await);
    assert_eq!(
        [watch.hear().await, watch.hear().await],
        [event(2), event(3)]
    );
    stage.proxy.play(watching(WatchFault::Lag(SOON * 100)));
    watch.say(4);
    assert!(watch.hears_nothing().await);
    stage.proxy.heal();
    watch.say(5);
    assert_eq!(
        [watch.hear().await, watch.hear().await],
        [event(4), event(5)]
    );
    assert_eq!(stage.proxy.tally().0["watch lags"], 2);
}

#[tokio::test]
async fn other_resources_do_not_lag() {
    let script = Script::default().watching("hookruns", WatchFault::Stop, 0.0, 1_000.0);
    let stage = Stage::set(script).await;
    let mut watch = stage.watch("&resourceVersion=1").await;
    watch.say(2);
    assert_eq!(watch.hear().await, event(2));
}

#[tokio::test]
async fn a_watch_that_has_stopped_says_nothing_and_breaks_when_the_faults_stop() {
    let stage = Stage::set(Script::default()).await;
    let mut watch = stage.watch("&resourceVersion=1").await;
    watch.say(2);
    assert_eq!(watch.hear().await, event(2));
    stage.proxy.play(watching(WatchFault::Stop));
    watch.say(3);
    assert!(watch.hears_nothing().await);
    stage.proxy.heal();
    assert_eq!(watch.hear().await, Heard::End);
}

#[tokio::test]
async fn a_hollow_watch_sends_bookmarks_after_its_list_that_promise_nothing_new() {
    let stage = Stage::set(watching(WatchFault::Hollow)).await;
    let mut watch = stage.watch("&sendInitialEvents=true").await;
    watch.say(1);
    watch.say_that_this_is_all();
    watch.say(2);
    let heard = [watch.hear().await, watch.hear().await, watch.hear().await];
    assert_eq!(heard, [event(1), bookmark(1), bookmark(1)]);
    stage.proxy.heal();
    assert_eq!(watch.hear().await, Heard::End);
    stage.proxy.play(watching(WatchFault::Hollow));
    let mut resumed = stage.watch("&resourceVersion=7").await;
    resumed.say(8);
    assert_eq!(resumed.hear().await, bookmark(7));
}

#[tokio::test]
async fn a_watch_is_ended_with_410_once() {
    let stage = Stage::set(Script::default()).await;
    let mut watch = stage.watch("&resourceVersion=1").await;
    stage.proxy.play(watching(WatchFault::Gone));
    watch.say(2);
    assert_eq!(
        [watch.hear().await, watch.hear().await],
        [gone(), Heard::End]
    );
    let mut next = stage.watch("&resourceVersion=1").await;
    next.say(2);
    assert_eq!(next.hear().await, event(2));
}

#[tokio::test]
async fn a_watch_is_cut_in_the_middle_of_an_event() {
    let stage = Stage::set(Script::default()).await;
    let mut watch = stage.watch("&resourceVersion=1").await;
    stage.proxy.play(watching(WatchFault::Cut));
    watch.say(2);
    let heard = watch.hear().await;
    assert!(
        matches!(heard, Heard::Broken(bytes) if bytes > 0),
        "{heard:?}"
    );
}

#[tokio::test]
async fn a_fault_of_a_watch_is_over_after_its_time() {
    let script = Script::default().watching("pods", WatchFault::Stop, 0.0, 0.5);
    let stage = Stage::set(script).await;
    let mut watch = stage.watch("&resourceVersion=1").await;
    watch.say(2);
    assert_eq!(watch.hear().await, Heard::End);
    let mut next = stage.watch("&resourceVersion=1").await;
    next.say(2);
    assert_eq!(next.hear().await, event(2));
}
