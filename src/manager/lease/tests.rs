//! Elections on a Lease as an API server keeps it.

use std::convert::Infallible;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use http::{Method, Request, Response};
use kube::client::Body;
use serde_json::{Value, json};
use tower::service_fn;

use super::*;

/// A server that keeps one lease, and may be cut off from one of its clients.
#[derive(Clone, Default)]
struct Server(Arc<Mutex<Option<Value>>>);

impl Server {
    fn client(&self, cut_off: Arc<AtomicBool>) -> Client {
        let server = self.clone();
        let service = service_fn(move |request: Request<Body>| {
            let (server, cut_off) = (server.clone(), Arc::clone(&cut_off));
            async move {
                let (head, body) = request.into_parts();
                let body = body.collect_bytes().await.unwrap_or_default();
                let (code, answer) = match cut_off.load(Ordering::SeqCst) {
                    true => (503, json!({"code": 503})),
                    false => server.answer(&head.method, serde_json::from_slice(&body).ok()),
                };
                let answer = Body::from(answer.to_string().into_bytes());
                let response = Response::builder().status(code).body(answer);
                Ok::<_, Infallible>(response.unwrap())
            }
        });
        Client::new(service, "default")
    }

    fn answer(&self, method: &Method, wanted: Option<Value>) -> (u16, Value) {
        let mut lease = self.0.lock().unwrap();
        let conflict = (409, json!({"code": 409, "reason": "Conflict"}));
        let version = |lease: &Value| lease["metadata"]["resourceVersion"].clone();
        let next = match (method.as_str(), lease.as_ref(), wanted) {
            ("GET", Some(lease), _) => return (200, lease.clone()),
            ("GET", None, _) => return (404, json!({"code": 404, "reason": "NotFound"})),
            ("POST", None, Some(wanted)) => (wanted, 1),
            ("PUT", Some(now), Some(wanted)) if version(now) == version(&wanted) => {
                let number: u64 = version(now).as_str().unwrap().parse().unwrap();
                (wanted, number + 1)
            }
            _ => return conflict,
        };
        let (mut next, version) = next;
        next["metadata"]["resourceVersion"] = json!(version.to_string());
        *lease = Some(next.clone());
        (200, next)
    }

    fn set(&self, field: &str, value: Value) {
        let mut lease = self.0.lock().unwrap();
        let lease = lease.as_mut().unwrap();
        lease["spec"][field] = value;
        let version = lease["metadata"]["resourceVersion"].as_str().unwrap();
        let version: u64 = version.parse().unwrap();
        lease["metadata"]["resourceVersion"] = json!((version + 1).to_string());
    }
}

struct Candidate {
    elector: Elector,
    gate: Arc<Gate>,
    cut_off: Arc<AtomicBool>,
}

fn candidate(server: &Server, name: &str) -> Candidate {
    let cut_off = Arc::new(AtomicBool::new(false));
    let gate = Gate::closed();
    let client = server.client(Arc::clone(&cut_off));
    Candidate {
        elector: Elector::new(client, "default", name.to_owned(), Arc::clone(&gate)),
        gate,
        cut_off,
    }
}

#[tokio::test(start_paused = true)]
async fn one_leads_and_the_other_takes_over_when_it_is_silent_for_a_lease() {
    let server = Server::default();
    let (mut a, mut b) = (candidate(&server, "a"), candidate(&server, "b"));
    a.elector.acquire().await;
    assert!(a.gate.is_open());
    let began = Instant::now();
    b.elector.acquire().await;
    assert!(began.elapsed() > LEASE, "{:?}", began.elapsed());
    assert!(began.elapsed() <= LEASE + 2 * RETRY);
    assert!(b.gate.is_open());
    assert!(!a.gate.is_open(), "the old leader stopped before that");
}

#[tokio::test(start_paused = true)]
async fn nobody_takes_a_lease_that_is_renewed() {
    let server = Server::default();
    let (mut a, mut b) = (candidate(&server, "a"), candidate(&server, "b"));
    a.elector.acquire().await;
    let for_long = timeout(LEASE * 20, async {
        tokio::join!(a.elector.hold(), b.elector.acquire())
    });
    assert!(for_long.await.is_err());
    assert!(a.gate.is_open());
    assert!(!b.gate.is_open());
}

#[tokio::test(start_paused = true)]
async fn a_wall_clock_that_is_wrong_changes_nothing() {
    let server = Server::default();
    let (mut a, mut b) = (candidate(&server, "a"), candidate(&server, "b"));
    a.elector.acquire().await;
    server.set("renewTime", json!("2001-01-01T00:00:00.000000Z"));
    let began = Instant::now();
    b.elector.acquire().await;
    assert!(began.elapsed() > LEASE);
}

#[tokio::test(start_paused = true)]
async fn who_cannot_renew_stops_before_anybody_takes_over() {
    let server = Server::default();
    let (mut a, mut b) = (candidate(&server, "a"), candidate(&server, "b"));
    a.elector.acquire().await;
    a.cut_off.store(true, Ordering::SeqCst);
    let began = Instant::now();
    let a_ends = async {
        a.elector.hold().await;
        assert!(!a.gate.is_open());
        began.elapsed()
    };
    let b_begins = async {
        b.elector.acquire().await;
        began.elapsed()
    };
    let (end, begin) = tokio::join!(a_ends, b_begins);
    assert!(end < begin, "{end:?} {begin:?}");
}

#[tokio::test(start_paused = true)]
async fn a_short_outage_costs_no_leadership() {
    let server = Server::default();
    let mut a = candidate(&server, "a");
    a.elector.acquire().await;
    let outage = async {
        a.cut_off.store(true, Ordering::SeqCst);
        sleep(RENEW_DEADLINE / 2).await;
        a.cut_off.store(false, Ordering::SeqCst);
        sleep(LEASE * 3).await;
    };
    tokio::select! {
        () = a.elector.hold() => panic!("lost"),
        () = outage => {}
    }
    assert!(a.gate.is_open());
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_given_back_is_taken_at_once() {
    let server = Server::default();
    let (mut a, mut b) = (candidate(&server, "a"), candidate(&server, "b"));
    a.elector.acquire().await;
    a.elector.release().await;
    assert!(!a.gate.is_open());
    let began = Instant::now();
    b.elector.acquire().await;
    assert!(began.elapsed() < RETRY);
}

#[tokio::test(start_paused = true)]
async fn of_two_who_try_at_once_one_wins() {
    let server = Server::default();
    let (mut a, mut b) = (candidate(&server, "a"), candidate(&server, "b"));
    let (one, other) = tokio::join!(a.elector.attempt(), b.elector.attempt());
    assert_eq!(
        [one.unwrap(), other.unwrap()]
            .iter()
            .filter(|it| **it)
            .count(),
        1
    );
    assert!(a.gate.is_open() != b.gate.is_open());
}
