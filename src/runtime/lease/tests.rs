//! Elections with a Lease on a fake API server.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::{Stream, stream};
use http::{Method, Request, Response};
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::watch;
use tower::service_fn;

use super::*;

/// The server ends watches after this time.
const WATCH_TIMEOUT: Duration = Duration::from_secs(5);

/// A server with one lease. Requests from a client that is cut off from it fail.
#[derive(Clone)]
struct Server(Arc<watch::Sender<Option<Value>>>);

impl Default for Server {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(None)))
    }
}

fn version(lease: &Value) -> u64 {
    let version = lease["metadata"]["resourceVersion"].as_str().unwrap_or("0");
    version.parse().unwrap()
}

impl Server {
    fn client(&self, cut_off: Arc<AtomicBool>) -> Client {
        let server = self.clone();
        let service = service_fn(move |request: Request<Body>| {
            let (server, cut_off) = (server.clone(), Arc::clone(&cut_off));
            async move {
                let (head, body) = request.into_parts();
                let body = body.collect_bytes().await.unwrap_or_default();
                let query = head.uri.query().unwrap_or_default();
                let (code, body) = match cut_off.load(Ordering::SeqCst) {
                    true => (503, json!({"code": 503}).to_string().into()),
                    false if query.contains("watch=true") => {
                        (200, reqwest::Body::wrap_stream(server.changes(query)))
                    }
                    false => {
                        let lease = serde_json::from_slice(&body).ok();
                        let (code, body) = server.respond(&head.method, lease);
                        (code, body.to_string().into())
                    }
                };
                let response = Response::builder().status(code).body(body);
                Ok::<_, Infallible>(response.unwrap())
            }
        });
        Client::new(service, "default")
    }

    /// The events of a watch: the current lease, unless the client has that version, and all changes from then on.
    fn changes(&self, query: &str) -> impl Stream<Item = Result<String, Infallible>> + use<> {
        let mut parameters = query.split('&');
        let known = parameters.find_map(|it| it.strip_prefix("resourceVersion="));
        let mut changes = self.0.subscribe();
        let current = changes.borrow().as_ref().map_or(0, version);
        if known != Some(&current.to_string()) {
            changes.mark_changed();
        }
        let events = stream::unfold(changes, async |mut changes| {
            changes.changed().await.ok()?;
            let event = match &*changes.borrow() {
                Some(lease) => json!({"type": "MODIFIED", "object": lease}),
                None => json!({"type": "DELETED", "object": {"metadata": {"name": "gamekeeper"}}}),
            };
            Some((Ok(format!("{event}\n")), changes))
        });
        events.take_until(sleep(WATCH_TIMEOUT))
    }

    fn respond(&self, method: &Method, lease: Option<Value>) -> (u16, Value) {
        let current = self.0.borrow().clone();
        let not_found = (404, json!({"code": 404, "reason": "NotFound"}));
        let mut next = match (method.as_str(), current.as_ref(), lease) {
            ("GET", Some(current), _) => return (200, current.clone()),
            ("GET" | "PUT", None, _) => return not_found,
            ("POST", None, Some(lease)) => lease,
            ("PUT", Some(current), Some(lease)) if version(current) == version(&lease) => lease,
            _ => return (409, json!({"code": 409, "reason": "Conflict"})),
        };
        let number = current.as_ref().map_or(0, version) + 1;
        next["metadata"]["resourceVersion"] = json!(number.to_string());
        self.0.send_replace(Some(next.clone()));
        (200, next)
    }

    /// Changes a field of the spec, as another client would.
    fn set(&self, field: &str, value: Value) {
        self.0.send_modify(|lease| {
            let lease = lease.as_mut().unwrap();
            lease["spec"][field] = value;
            lease["metadata"]["resourceVersion"] = json!((version(lease) + 1).to_string());
        });
    }

    fn delete(&self) {
        self.0.send_replace(None);
    }
}

struct Candidate {
    elector: Elector,
    fence: Arc<Fence>,
    cut_off: Arc<AtomicBool>,
}

/// The times that the tests expect.
const LEASE_DURATION: Duration = Duration::from_secs(15);
const RENEW_DEADLINE: Duration = Duration::from_secs(10);
const RETRY_PERIOD: Duration = Duration::from_secs(2);

fn candidate(server: &Server, name: &str) -> Candidate {
    with_duration(server, name, LEASE_DURATION)
}

fn with_duration(server: &Server, name: &str, lease_duration: Duration) -> Candidate {
    let cut_off = Arc::new(AtomicBool::new(false));
    let fence = Fence::closed();
    let client = server.client(Arc::clone(&cut_off));
    Candidate {
        elector: Elector::new(
            client,
            "default",
            "gamekeeper".to_owned(),
            name.to_owned(),
            Arc::clone(&fence),
            LeaseTimes::of(lease_duration),
        ),
        fence,
        cut_off,
    }
}

#[tokio::test(start_paused = true)]
async fn a_candidate_acquires_a_lease_that_has_expired() {
    let server = Server::default();
    let (mut a, mut b) = (candidate(&server, "a"), candidate(&server, "b"));
    a.elector.acquire().await;
    assert!(a.fence.is_open());
    let began = Instant::now();
    b.elector.acquire().await;
    assert_eq!(began.elapsed().as_secs(), LEASE_DURATION.as_secs());
    assert!(b.fence.is_open());
    assert!(!a.fence.is_open(), "the old leader stopped before that");
}

#[tokio::test(start_paused = true)]
async fn a_candidate_does_not_acquire_a_lease_that_is_renewed() {
    let server = Server::default();
    let (mut a, mut b) = (candidate(&server, "a"), candidate(&server, "b"));
    a.elector.acquire().await;
    let election =
        timeout(LEASE_DURATION * 20, async { tokio::join!(a.elector.hold(), b.elector.acquire()) });
    assert!(election.await.is_err());
    assert!(a.fence.is_open());
    assert!(!b.fence.is_open());
}

#[tokio::test(start_paused = true)]
async fn a_wrong_wall_clock_makes_no_difference() {
    let server = Server::default();
    let (mut a, mut b) = (candidate(&server, "a"), candidate(&server, "b"));
    a.elector.acquire().await;
    server.set("renewTime", json!("2001-01-01T00:00:00.000000Z"));
    let began = Instant::now();
    b.elector.acquire().await;
    assert!(began.elapsed() >= LEASE_DURATION);
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_renew_stops_before_another_takes_over() {
    let server = Server::default();
    let (mut a, mut b) = (candidate(&server, "a"), candidate(&server, "b"));
    a.elector.acquire().await;
    a.cut_off.store(true, Ordering::SeqCst);
    let began = Instant::now();
    let lost = async {
        a.elector.hold().await;
        assert!(!a.fence.is_open());
        began.elapsed()
    };
    let acquired = async {
        b.elector.acquire().await;
        began.elapsed()
    };
    let (lost, acquired) = tokio::join!(lost, acquired);
    assert!(lost < acquired, "{lost:?} {acquired:?}");
}

#[tokio::test(start_paused = true)]
async fn a_leader_keeps_the_lease_during_a_short_outage() {
    let server = Server::default();
    let mut a = candidate(&server, "a");
    a.elector.acquire().await;
    let outage = async {
        a.cut_off.store(true, Ordering::SeqCst);
        sleep(RENEW_DEADLINE / 2).await;
        a.cut_off.store(false, Ordering::SeqCst);
        sleep(LEASE_DURATION * 3).await;
    };
    tokio::select! {
        () = a.elector.hold() => panic!("the leader lost the lease"),
        () = outage => {}
    }
    assert!(a.fence.is_open());
}

#[tokio::test(start_paused = true)]
async fn a_released_lease_is_acquired_immediately() {
    let server = Server::default();
    let (mut a, mut b) = (candidate(&server, "a"), candidate(&server, "b"));
    a.elector.acquire().await;
    a.elector.release().await;
    assert!(!a.fence.is_open());
    let began = Instant::now();
    b.elector.acquire().await;
    assert!(began.elapsed() < RETRY_PERIOD);
}

#[tokio::test(start_paused = true)]
async fn one_of_two_concurrent_attempts_succeeds() {
    let server = Server::default();
    let (mut a, mut b) = (candidate(&server, "a"), candidate(&server, "b"));
    let goal = Goal::Acquire;
    let (one, other) = tokio::join!(a.elector.attempt(goal), b.elector.attempt(goal));
    let won = |attempt| matches!(attempt, Ok(true));
    assert!(won(one) != won(other));
    assert!(a.fence.is_open() != b.fence.is_open());
}

#[tokio::test(start_paused = true)]
async fn a_candidate_acquires_the_lease_exactly_when_it_expires() {
    let server = Server::default();
    let (mut a, mut b) = (candidate(&server, "a"), candidate(&server, "b"));
    a.elector.acquire().await;
    // The leader stops half a period after its last renewal.
    let stopped = async {
        let _ = timeout(3 * RETRY_PERIOD + RETRY_PERIOD / 2, a.elector.hold()).await;
        Instant::now()
    };
    let acquired = async {
        b.elector.acquire().await;
        Instant::now()
    };
    let (stopped, acquired) = tokio::join!(stopped, acquired);
    let since_renewal = acquired - stopped + RETRY_PERIOD / 2;
    assert_eq!(since_renewal.as_millis(), LEASE_DURATION.as_millis());
}

#[tokio::test(start_paused = true)]
async fn a_waiting_candidate_acquires_a_released_lease_immediately() {
    let server = Server::default();
    let (mut a, mut b) = (candidate(&server, "a"), candidate(&server, "b"));
    a.elector.acquire().await;
    let released = async {
        sleep(RETRY_PERIOD / 2).await;
        a.elector.release().await;
        Instant::now()
    };
    let acquired = async {
        b.elector.acquire().await;
        Instant::now()
    };
    let (released, acquired) = tokio::join!(released, acquired);
    assert_eq!(acquired, released);
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_was_frozen_for_too_long_does_not_renew_a_released_lease() {
    let server = Server::default();
    let (mut a, mut b) = (candidate(&server, "a"), candidate(&server, "b"));
    a.elector.acquire().await;
    // In the meantime another process leads, and releases the lease.
    tokio::time::advance(LEASE_DURATION * 2).await;
    server.set("holderIdentity", json!(""));
    b.elector.acquire().await;
    b.elector.release().await;
    a.elector.hold().await;
    assert!(!a.fence.is_open());
}

#[tokio::test(start_paused = true)]
async fn a_leader_whose_lease_has_another_holder_stops_at_the_next_renewal() {
    let server = Server::default();
    let mut a = candidate(&server, "a");
    a.elector.acquire().await;
    server.set("holderIdentity", json!("b"));
    let began = Instant::now();
    a.elector.hold().await;
    assert!(began.elapsed() <= 2 * RETRY_PERIOD, "{:?}", began.elapsed());
    assert!(!a.fence.is_open());
}

#[tokio::test(start_paused = true)]
async fn a_deleted_lease_stays_with_its_holder() {
    let server = Server::default();
    let (mut a, mut b) = (candidate(&server, "a"), candidate(&server, "b"));
    a.elector.acquire().await;
    let deleted = async {
        sleep(LEASE_DURATION / 2).await;
        server.delete();
        sleep(LEASE_DURATION * 3).await;
    };
    tokio::select! {
        () = a.elector.hold() => panic!("the holder lost the lease"),
        () = b.elector.acquire() => panic!("the other candidate acquired the lease"),
        () = deleted => {}
    }
    assert!(a.fence.is_open());
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_released_after_an_aborted_renewal() {
    let server = Server::default();
    let mut a = candidate(&server, "a");
    a.elector.acquire().await;
    // The renewal was written, but its response was not read.
    server.set("renewTime", json!("2001-01-01T00:00:00.000000Z"));
    a.elector.release().await;
    let holder = server.0.borrow().as_ref().unwrap()["spec"]["holderIdentity"].clone();
    assert_eq!(holder, "");
}

#[tokio::test(start_paused = true)]
async fn the_pauses_between_attempts_have_jitter() {
    let server = Server::default();
    let mut pauses = Vec::new();
    for name in ["a", "b", "c", "d"] {
        let mut candidate = candidate(&server, name);
        candidate.cut_off.store(true, Ordering::SeqCst);
        let began = Instant::now();
        candidate.elector.wait_for_next_attempt().await;
        pauses.push(began.elapsed());
    }
    let longest = RETRY_PERIOD.mul_f64(1.0 + JITTER) + Duration::from_millis(1);
    assert!(pauses.iter().all(|it| (RETRY_PERIOD..=longest).contains(it)), "{pauses:?}");
    pauses.dedup();
    assert!(pauses.len() > 1, "all retry at the same time");
}

/// During an upgrade that shortens the lease, the old leader still writes for two thirds of its longer one.
#[tokio::test(start_paused = true)]
async fn a_candidate_waits_for_the_duration_of_the_holder_if_that_is_longer() {
    let server = Server::default();
    for (of_holder, of_candidate, expected) in [(60, 15, 60), (15, 60, 60), (5, 5, 5)] {
        server.delete();
        let mut a = with_duration(&server, "a", Duration::from_secs(of_holder));
        let mut b = with_duration(&server, "b", Duration::from_secs(of_candidate));
        a.elector.acquire().await;
        let began = Instant::now();
        b.elector.acquire().await;
        assert_eq!(began.elapsed().as_secs(), expected, "{of_holder} {of_candidate}");
        assert!(!a.fence.is_open(), "the old leader stopped before that");
    }
}

/// Another process in the place of one that has ended.
fn successor_of(server: &Server, predecessor: &str, name: &str) -> Candidate {
    let file = std::env::temp_dir().join(format!("instance-of-{name}-{}", std::process::id()));
    std::fs::write(&file, predecessor).unwrap();
    let predecessor = Predecessor::replace(&file, name).unwrap();
    std::fs::remove_file(&file).unwrap();
    let Candidate { elector, fence, cut_off } = candidate(server, name);
    Candidate { elector: elector.with_predecessor(Some(predecessor)), fence, cut_off }
}

#[tokio::test(start_paused = true)]
async fn the_successor_of_a_killed_leader_waits_only_for_its_last_writes() {
    let server = Server::default();
    let mut killed = candidate(&server, "killed");
    killed.elector.acquire().await;
    drop(killed);
    let mut next = successor_of(&server, "killed", "next");
    let began = Instant::now();
    next.elector.acquire().await;
    assert_eq!(began.elapsed(), LEASE_DURATION - RENEW_DEADLINE);
}

#[tokio::test(start_paused = true)]
async fn the_lease_of_a_process_that_is_not_known_to_have_ended_expires() {
    let server = Server::default();
    let mut leader = candidate(&server, "leader");
    leader.elector.acquire().await;
    let mut other = successor_of(&server, "killed", "other");
    let began = Instant::now();
    other.elector.acquire().await;
    assert_eq!(began.elapsed(), LEASE_DURATION);
}

#[tokio::test(start_paused = true)]
async fn a_lease_expires_while_the_caches_are_filled() {
    let server = Server::default();
    let (mut a, mut b) = (candidate(&server, "a"), candidate(&server, "b"));
    a.elector.acquire().await;
    let began = Instant::now();
    let fill = timeout(LEASE_DURATION + RETRY_PERIOD, b.elector.observe_only());
    assert!(fill.await.is_err());
    assert!(!b.fence.is_open(), "it only observes");
    b.elector.acquire().await;
    assert_eq!(began.elapsed(), LEASE_DURATION + RETRY_PERIOD);
}
