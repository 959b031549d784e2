//! Hooks of one namespace cannot delay those of another.

use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::*;
use crate::provider::call_permit::CallLimits;
use crate::runtime::fair::{Capacity, NamespaceLimiter};
use gamekeeper_core::api::HookPhase::Successful;

/// The timeout of each call, which is longer than any of these tests may take.
const TIMEOUT_SECONDS: i32 = 3_600;
/// Longer than a call to a server on this machine takes, however busy the machine is.
const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// A probe with these limits for calls, and for long requests and responses.
fn probe(calls: Capacity, long: Capacity) -> Probe {
    let mut probe = Probe::new(HERE, None).expect("a probe");
    probe.limits = Arc::new(CallLimits {
        calls: NamespaceLimiter::new(calls),
        long: NamespaceLimiter::new(long),
    });
    probe
}

fn call(probe: &Probe, namespace: &str, server: &Server) -> JoinHandle<Outcome> {
    call_with(probe, namespace, server, "")
}

fn call_with(probe: &Probe, namespace: &str, server: &Server, body: &str) -> JoinHandle<Outcome> {
    let web = json!({
        "url": server.url, "timeoutSeconds": TIMEOUT_SECONDS, "method": "POST", "body": body,
    });
    let spec = HookRunSpec { metrics: vec![metric(web, json!({}))], ..HookRunSpec::default() };
    let mut run = HookRun::new("run", spec);
    run.metadata.namespace = Some(namespace.into());
    let call = Call { run: Arc::new(run), metric: 0, number: 1, job: None };
    let probe = probe.clone();
    tokio::spawn(async move { probe.measure(&call).await })
}

async fn until(event: &str, holds: impl Fn() -> bool) {
    let waiting = async {
        while !holds() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(TEST_TIMEOUT, waiting).await.expect(event);
}

async fn expect_success(name: &str, call: JoinHandle<Outcome>) {
    let outcome = timeout(TEST_TIMEOUT, call).await.expect(name).expect(name);
    assert_eq!(outcome.phase, Successful, "{name}: {outcome:?}");
}

const MANY: Capacity = capacity(100, 100, 1);

const fn capacity(shared: usize, per_namespace: usize, reserved: usize) -> Capacity {
    Capacity { shared, per_namespace, reserved }
}

#[tokio::test]
async fn servers_that_never_respond_delay_no_hook_of_another_namespace() {
    let probe = probe(capacity(3, 2, 1), MANY);
    let tarpit = Server::start(&[Reply::Silence]).await;
    let game = Server::answering("200 OK", "ready").await;
    let stuck: Vec<_> = (0..20).map(|_| call(&probe, "tarpit", &tarpit)).collect();
    until("calls to the tarpit", || tarpit.requests().len() == 3).await;
    for _ in 0..5 {
        expect_success("another namespace", call(&probe, "game", &game)).await;
    }
    // The same holds when five more namespaces call such servers. Each of them has a reserved permit, and one shared
    // permit is left.
    let more: Vec<_> =
        (0..10).map(|number| call(&probe, &format!("tarpit-{}", number / 2), &tarpit)).collect();
    until("more calls", || tarpit.requests().len() == 3 + 5 + 1).await;
    expect_success("another namespace", call(&probe, "game", &game)).await;
    assert_eq!(tarpit.requests().len(), 9, "more calls than there are permits");
    more.iter().for_each(JoinHandle::abort);
    stuck.iter().for_each(JoinHandle::abort);
}

#[tokio::test]
async fn the_number_of_long_responses_in_memory_is_limited() {
    let probe = probe(MANY, capacity(2, 1, 1));
    let stuck = Server::start(&[Reply::Stuck]).await;
    let long = Server::answering("200 OK", &"x".repeat(100_000)).await;
    let short = Server::answering("200 OK", "ready").await;
    let calls: Vec<_> = (0..10).map(|_| call(&probe, "stuck", &stuck)).collect();
    until("calls", || stuck.requests().len() == 10).await;
    until("long responses", || probe.limits.long.taken() == 2).await;
    let waiting = call(&probe, "stuck", &long);
    expect_success("a short response", call(&probe, "stuck", &short)).await;
    expect_success("another namespace", call(&probe, "game", &long)).await;
    until("the waiting call", || long.requests().len() == 2).await;
    assert_eq!(probe.limits.long.taken(), 2);
    assert!(!waiting.is_finished(), "the call did not wait for a permit");
    calls.iter().for_each(JoinHandle::abort);
    expect_success("the waiting call", waiting).await;
    until("the end of all calls", || probe.limits.long.taken() == 0).await;
}

/// A request is kept in memory until its response arrives, which may take an hour.
#[tokio::test]
async fn the_number_of_long_requests_in_memory_is_limited() {
    let probe = probe(MANY, capacity(2, 1, 1));
    let tarpit = Server::start(&[Reply::Silence]).await;
    let game = Server::answering("200 OK", "ready").await;
    let long = "x".repeat(100_000);
    let calls: Vec<_> = (0..10).map(|_| call_with(&probe, "tarpit", &tarpit, &long)).collect();
    until("calls to the tarpit", || tarpit.requests().len() == 2).await;
    expect_success("a short request", call(&probe, "tarpit", &game)).await;
    expect_success("another namespace", call_with(&probe, "game", &game, &long)).await;
    assert_eq!(probe.limits.calls.taken(), 10);
    assert_eq!(tarpit.requests().len(), 2, "more requests than there are permits");
    calls.iter().for_each(JoinHandle::abort);
    until("the end of the calls", || probe.limits.calls.taken() == 0).await;
}

/// A response that waits to be assessed uses as much memory as one that is being read.
#[tokio::test]
async fn a_response_holds_its_permit_until_it_is_assessed() {
    let one = capacity(1, 1, 0);
    let probe = probe(one, MANY);
    let late = Arc::new(Semaphore::new(0));
    let Reply::Bytes(ready) = response("200 OK", "", "ready") else {
        panic!("bytes");
    };
    let game = Server::start(&[Reply::Late(Arc::clone(&late), ready)]).await;
    let calls = [(); 2].map(|()| call(&probe, "game", &game));
    until("a call", || game.requests().len() == 1).await;
    let (go, gate) = std::sync::mpsc::channel::<()>();
    let gate = Arc::new(Mutex::new(gate));
    // Each of the two tasks has a namespace of its own, so together they occupy both threads of the pool.
    let busy: Vec<_> = ["one", "two"]
        .into_iter()
        .map(|namespace| {
            let (pool, gate) = (probe.evaluation.clone(), Arc::clone(&gate));
            tokio::spawn(async move {
                let work = move || gate.lock().expect("a gate").recv();
                pool.run(namespace, work).await
            })
        })
        .collect();
    late.add_permits(100);
    // In the meantime, a call of another probe is made and assessed.
    expect_success("another probe", call(&self::probe(one, MANY), "game", &game)).await;
    assert_eq!(probe.limits.calls.taken(), 1);
    assert_eq!(game.requests().len(), 2, "the second call did not wait");
    drop(go);
    for busy in busy {
        let _ = busy.await;
    }
    for call in calls {
        expect_success("assessed", call).await;
    }
}
