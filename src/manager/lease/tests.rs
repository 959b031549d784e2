//! Elections on a Lease as an API server keeps it.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::{Stream, stream};
use http::{Method, Request, Response};
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::watch;
use tower::service_fn;

use super::record::LEASE_DURATION;
use super::*;

/// A server ends watches after a while.
const WATCH: Duration = Duration::from_secs(5);

/// A server that keeps one lease. Requests of a client that is cut off from it fail.
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
                let (code, answer) = match cut_off.load(Ordering::SeqCst) {
                    true => (503, json!({"code": 503}).to_string().into()),
                    false if query.contains("watch=true") => {
                        (200, reqwest::Body::wrap_stream(server.changes(query)))
                    }
                    false => {
                        let wanted = serde_json::from_slice(&body).ok();
                        let (code, answer) = server.answer(&head.method, wanted);
                        (code, answer.to_string().into())
                    }
                };
                let response = Response::builder().status(code).body(answer);
                Ok::<_, Infallible>(response.unwrap())
            }
        });
        Client::new(service, "default")
    }

    /// What is not known yet to who asks so, and each change from then on.
    fn changes(&self, query: &str) -> impl Stream<Item = Result<String, Infallible>> + use<> {
        let mut parameters = query.split('&');
        let known = parameters.find_map(|it| it.strip_prefix("resourceVersion="));
        let mut changes = self.0.subscribe();
        let now = changes.borrow().as_ref().map_or(0, version);
        if known != Some(&now.to_string()) {
            changes.mark_changed();
        }
        let told = stream::unfold(changes, async |mut changes| {
            changes.changed().await.ok()?;
            let event = match &*changes.borrow() {
                Some(lease) => json!({"type": "MODIFIED", "object": lease}),
                None => json!({"type": "DELETED", "object": {"metadata": {"name": "gamekeeper"}}}),
            };
            Some((Ok(format!("{event}\n")), changes))
        });
        told.take_until(sleep(WATCH))
    }

    fn answer(&self, method: &Method, wanted: Option<Value>) -> (u16, Value) {
        let now = self.0.borrow().clone();
        let not_found = (404, json!({"code": 404, "reason": "NotFound"}));
        let mut next = match (method.as_str(), now.as_ref(), wanted) {
            ("GET", Some(lease), _) => return (200, lease.clone()),
            ("GET" | "PUT", None, _) => return not_found,
            ("POST", None, Some(wanted)) => wanted,
            ("PUT", Some(now), Some(wanted)) if version(now) == version(&wanted) => wanted,
            _ => return (409, json!({"code": 409, "reason": "Conflict"})),
        };
        let number = now.as_ref().map_or(0, version) + 1;
        next["metadata"]["resourceVersion"] = json!(number.to_string());
        self.0.send_replace(Some(next.clone()));
        (200, next)
    }

    /// Another client changes a field.
    fn set(&self, field: &str, value: Value) {
        self.0.send_modify(|lease| {
            let lease = lease.as_mut().unwrap();
            lease["spec"][field] = value;
            lease["metadata"]["resourceVersion"] = json!((version(lease) + 1).to_string());
        });
    }

    /// A user deletes it.
    fn delete(&self) {
        self.0.send_replace(None);
    }
}

struct Candidate {
    elector: Elector,
    fence: Arc<Fence>,
    cut_off: Arc<AtomicBool>,
}

fn candidate(server: &Server, name: &str) -> Candidate {
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
        ),
        fence,
        cut_off,
    }
}

#[tokio::test(start_paused = true)]
async fn one_leads_and_the_other_takes_over_when_it_is_silent_for_a_lease() {
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
async fn a_lease_that_is_renewed_is_not_taken() {
    let server = Server::default();
    let (mut a, mut b) = (candidate(&server, "a"), candidate(&server, "b"));
    a.elector.acquire().await;
    let for_long = timeout(LEASE_DURATION * 20, async {
        tokio::join!(a.elector.hold(), b.elector.acquire())
    });
    assert!(for_long.await.is_err());
    assert!(a.fence.is_open());
    assert!(!b.fence.is_open());
}

#[tokio::test(start_paused = true)]
async fn a_wall_clock_that_is_wrong_changes_nothing() {
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
    let a_ends = async {
        a.elector.hold().await;
        assert!(!a.fence.is_open());
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
        sleep(LEASE_DURATION * 3).await;
    };
    tokio::select! {
        () = a.elector.hold() => panic!("lost"),
        () = outage => {}
    }
    assert!(a.fence.is_open());
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_given_back_is_taken_at_once() {
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
async fn of_two_who_try_at_once_one_wins() {
    let server = Server::default();
    let (mut a, mut b) = (candidate(&server, "a"), candidate(&server, "b"));
    let (one, other) = tokio::join!(a.elector.attempt(Goal::Take), b.elector.attempt(Goal::Take));
    let won = |attempt| matches!(attempt, Ok(true));
    assert!(won(one) != won(other));
    assert!(a.fence.is_open() != b.fence.is_open());
}

#[tokio::test(start_paused = true)]
async fn a_candidate_counts_from_the_last_renewal_to_the_moment() {
    let server = Server::default();
    let (mut a, mut b) = (candidate(&server, "a"), candidate(&server, "b"));
    a.elector.acquire().await;
    let silent = async {
        let _ = timeout(3 * RETRY_PERIOD + RETRY_PERIOD / 2, a.elector.hold()).await;
        Instant::now()
    };
    let taken = async {
        b.elector.acquire().await;
        Instant::now()
    };
    let (silent, taken) = tokio::join!(silent, taken);
    let since_renewal = taken - silent + RETRY_PERIOD / 2;
    assert_eq!(since_renewal.as_millis(), LEASE_DURATION.as_millis());
}

#[tokio::test(start_paused = true)]
async fn a_candidate_hears_at_once_that_the_lease_is_given_back() {
    let server = Server::default();
    let (mut a, mut b) = (candidate(&server, "a"), candidate(&server, "b"));
    a.elector.acquire().await;
    let leaves = async {
        sleep(RETRY_PERIOD / 2).await;
        a.elector.release().await;
        Instant::now()
    };
    let taken = async {
        b.elector.acquire().await;
        Instant::now()
    };
    let (left, taken) = tokio::join!(leaves, taken);
    assert_eq!(taken, left);
}

#[tokio::test(start_paused = true)]
async fn who_was_away_for_long_does_not_go_on_although_nobody_leads() {
    let server = Server::default();
    let (mut a, mut b) = (candidate(&server, "a"), candidate(&server, "b"));
    a.elector.acquire().await;
    // Meanwhile another one leads, and gives the lease back.
    tokio::time::advance(LEASE_DURATION * 2).await;
    server.set("holderIdentity", json!(""));
    b.elector.acquire().await;
    b.elector.release().await;
    a.elector.hold().await;
    assert!(!a.fence.is_open());
}

#[tokio::test(start_paused = true)]
async fn whose_lease_is_somebody_elses_stops_at_the_next_renewal() {
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
async fn a_lease_that_somebody_deletes_stays_with_its_holder() {
    let server = Server::default();
    let (mut a, mut b) = (candidate(&server, "a"), candidate(&server, "b"));
    a.elector.acquire().await;
    let deleted = async {
        sleep(LEASE_DURATION / 2).await;
        server.delete();
        sleep(LEASE_DURATION * 3).await;
    };
    tokio::select! {
        () = a.elector.hold() => panic!("lost"),
        () = b.elector.acquire() => panic!("taken"),
        () = deleted => {}
    }
    assert!(a.fence.is_open());
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_was_broken_off_is_given_back_too() {
    let server = Server::default();
    let mut a = candidate(&server, "a");
    a.elector.acquire().await;
    // It was written, but its answer was never read.
    server.set("renewTime", json!("2001-01-01T00:00:00.000000Z"));
    a.elector.release().await;
    let holder = server.0.borrow().as_ref().unwrap()["spec"]["holderIdentity"].clone();
    assert_eq!(holder, "");
}

#[tokio::test(start_paused = true)]
async fn candidates_whose_attempts_fail_do_not_stay_in_step() {
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
    assert!(
        pauses
            .iter()
            .all(|it| (RETRY_PERIOD..=longest).contains(it)),
        "{pauses:?}"
    );
    pauses.dedup();
    assert!(pauses.len() > 1, "all tried at once");
}
