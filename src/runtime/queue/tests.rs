//! A queue returns each key at the right time, and loses none.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

/// The limits on concurrent reconciles in tests.
const DEFAULT_CAPACITY: Capacity = Capacity { shared: 64, per_namespace: 48, reserved: 4 };

impl Default for Queue {
    fn default() -> Self {
        let queue = Self::new(DEFAULT_CAPACITY);
        queue.open();
        queue
    }
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new("games", name)
}

fn ready_key(queue: &Queue) -> Option<ObjectKey> {
    queue.next().now_or_never()
}

#[tokio::test]
async fn an_object_waits_once_however_often_it_is_added() {
    let queue = Queue::default();
    queue.add(key("a"));
    queue.add(key("a"));
    assert_eq!(ready_key(&queue), Some(key("a")));
    assert_eq!(ready_key(&queue), None);
}

#[tokio::test]
async fn a_queue_keeps_no_key_until_it_is_opened() {
    let queue = Queue::new(DEFAULT_CAPACITY);
    queue.add(key("a"));
    assert_eq!(queue.lock().waiting.len(), 0);
    queue.open();
    assert_eq!(ready_key(&queue), None);
    queue.add(key("b"));
    assert_eq!(ready_key(&queue), Some(key("b")));
}

#[tokio::test(start_paused = true)]
async fn an_event_during_a_reconcile_causes_one_more_reconcile() {
    let queue = Queue::default();
    queue.add(key("a"));
    ready_key(&queue);
    queue.add(key("a"));
    assert_eq!(ready_key(&queue), None, "one worker at a time");
    queue.done(key("a"), Requeue::Settled(None));
    assert_eq!(queue.next().await, key("a"));
    queue.done(key("a"), Requeue::Settled(None));
    assert_eq!(ready_key(&queue), None);
}

#[tokio::test(start_paused = true)]
async fn a_timer_fires_unless_an_event_comes_first() {
    let queue = Queue::default();
    queue.add(key("a"));
    ready_key(&queue);
    let wake = Instant::now() + Duration::from_secs(10);
    queue.done(key("a"), Requeue::Settled(Some(wake)));
    assert_eq!(ready_key(&queue), None);
    assert_eq!(queue.next().await, key("a"));
    assert!(Instant::now() >= wake);
    queue.done(key("a"), Requeue::Settled(Some(wake + Duration::from_secs(10))));
    queue.add(key("a"));
    assert_eq!(queue.next().await, key("a"));
    assert!(Instant::now() < wake + Duration::from_secs(1));
    queue.done(key("a"), Requeue::Settled(None));
    tokio::time::advance(Duration::from_secs(60)).await;
    assert_eq!(ready_key(&queue), None, "the old timer was removed");
}

/// How many milliseconds an object rests if an event for it arrives after its reconcile. With `event_meanwhile`,
/// another event arrives during the reconcile.
async fn rest_millis(requeue: Requeue, planning_ms: u64, event_meanwhile: bool) -> u128 {
    let queue = Queue::default();
    queue.add(key("a"));
    queue.next().await;
    if event_meanwhile {
        queue.add(key("a"));
    }
    let planning = Duration::from_millis(planning_ms);
    queue.done(key("a"), Reconciled { requeue, planning });
    let started = Instant::now();
    queue.add(key("a"));
    queue.next().await;
    started.elapsed().as_millis()
}

#[tokio::test(start_paused = true)]
async fn an_object_rests_in_proportion_to_its_planning() {
    for event in [false, true] {
        for (planning, expected) in [(0, 20), (1, 20), (50, 200), (10_000, 1_000)] {
            let rested = rest_millis(Requeue::Settled(None), planning, event).await;
            assert_eq!(rested, expected);
        }
        for (planning, expected) in [(0, 5), (1, 5), (50, 200), (10_000, 1_000)] {
            let rested = rest_millis(Requeue::Conflict, planning, event).await;
            assert!((expected..=expected + 2).contains(&rested), "{rested}");
        }
        assert_eq!(rest_millis(Requeue::Now, 10_000, event).await, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn each_failure_doubles_the_backoff_and_success_resets_it() {
    let queue = Queue::default();
    let mut pauses = Vec::new();
    queue.add(key("a"));
    for _ in 0..15 {
        let started = Instant::now();
        queue.next().await;
        pauses.push(started.elapsed().as_millis());
        queue.done(key("a"), Requeue::Retry(None));
    }
    for (pause, least) in pauses.iter().zip([0, 5, 10, 20]) {
        // Jitter, and timers that are precise to a millisecond.
        assert!((least..=least + least / 4 + 1).contains(pause), "{pauses:?}");
    }
    assert!(pauses.last().is_some_and(|it| (30_000..=37_501).contains(it)), "{pauses:?}");
    queue.next().await;
    queue.done(key("a"), Requeue::Settled(None));
    let started = Instant::now();
    queue.add(key("a"));
    queue.next().await;
    assert_eq!(started.elapsed(), MIN_REST);
}

#[tokio::test(start_paused = true)]
async fn the_events_of_a_burst_share_reconciles() {
    let queue = Queue::default();
    let mut reconciles = 0;
    for _ in 0..1_000 {
        queue.add(key("a"));
        if let Some(key) = ready_key(&queue) {
            reconciles += 1;
            queue.done(key, Requeue::Settled(None));
        }
        tokio::time::advance(Duration::from_millis(1)).await;
    }
    assert!((40..=51).contains(&reconciles), "{reconciles}");
}

#[tokio::test(start_paused = true)]
async fn an_event_brings_a_retry_forward_but_respects_retry_after() {
    let queue = Queue::default();
    queue.add(key("a"));
    for _ in 0..14 {
        queue.next().await;
        queue.done(key("a"), Requeue::Retry(None));
    }
    let started = Instant::now();
    queue.add(key("a"));
    queue.next().await;
    assert_eq!(started.elapsed(), MAX_BACKOFF_ON_EVENT);
    queue.done(key("a"), Requeue::Retry(Some(Duration::from_secs(40))));
    let started = Instant::now();
    queue.add(key("a"));
    queue.next().await;
    assert_eq!(started.elapsed(), Duration::from_secs(40));
}

#[tokio::test(start_paused = true)]
async fn a_long_retry_after_is_limited() {
    let queue = Queue::default();
    queue.add(key("a"));
    ready_key(&queue);
    let started = Instant::now();
    queue.done(key("a"), Requeue::Retry(Some(Duration::from_secs(u64::MAX))));
    assert_eq!(queue.next().await, key("a"));
    assert_eq!(started.elapsed(), MAX_RETRY_AFTER);
}

#[tokio::test(start_paused = true)]
async fn a_panic_fails_the_reconcile_of_one_object_only() {
    let queue = Arc::new(Queue::default());
    let (stop, stopped) = watch::channel(false);
    let reconciled = Arc::new(AtomicUsize::new(0));
    let worker = tokio::spawn(work(Arc::clone(&queue), stopped, {
        let reconciled = Arc::clone(&reconciled);
        move |key: ObjectKey| {
            let reconciled = Arc::clone(&reconciled);
            async move {
                let earlier_calls = reconciled.fetch_add(1, Ordering::SeqCst);
                assert!(key.name != "bad" || earlier_calls > 0, "on purpose");
                Requeue::Settled(None)
            }
        }
    }));
    queue.add(key("bad"));
    tokio::time::sleep(Duration::from_millis(1)).await;
    queue.add(key("good"));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(reconciled.load(Ordering::SeqCst), 3, "bad, good, and bad again");
    stop.send(true).unwrap();
    worker.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_aborted_reconcile_is_no_longer_in_progress() {
    let queue = Arc::new(Queue::default());
    let (_sender, stop) = watch::channel(false);
    let worker =
        work(Arc::clone(&queue), stop, |_| async { std::future::pending::<Requeue>().await });
    queue.add(key("a"));
    let limit = Duration::from_secs(1);
    assert!(tokio::time::timeout(limit, worker).await.is_err());
    let limit = Duration::from_secs(60);
    let next = tokio::time::timeout(limit, queue.next()).await;
    assert_eq!(next.ok(), Some(key("a")));
}

#[tokio::test]
async fn no_key_is_lost_when_many_are_added_concurrently() {
    let queue = Arc::new(Queue::default());
    let adders: Vec<_> = (0..4)
        .map(|part| {
            let queue = Arc::clone(&queue);
            tokio::spawn(async move {
                for n in 0..1_250 {
                    queue.add(key(&format!("{part}-{n}")));
                }
            })
        })
        .collect();
    let mut seen = HashSet::new();
    while seen.len() < 5_000 {
        let found = queue.next().await;
        queue.done(found.clone(), Requeue::Settled(None));
        seen.insert(found);
    }
    for adder in adders {
        adder.await.unwrap();
    }
    assert!(ready_key(&queue).is_none());
}

#[tokio::test]
async fn a_namespace_with_a_thousand_objects_delays_no_other_namespace() {
    let queue = Queue::default();
    for number in 0..1_000 {
        queue.add(ObjectKey::new("greedy", number.to_string()));
    }
    let lobby = ObjectKey::new("other", "lobby");
    let mut in_progress = Vec::new();
    while let Some(key) = ready_key(&queue) {
        in_progress.push(key);
    }
    assert!(
        in_progress.len() < DEFAULT_CAPACITY.shared + DEFAULT_CAPACITY.reserved,
        "{}",
        in_progress.len()
    );
    // None of these reconciles ends.
    queue.add(lobby.clone());
    assert_eq!(ready_key(&queue), Some(lobby.clone()));
    queue.done(lobby.clone(), Requeue::Now);
    assert_eq!(ready_key(&queue), Some(lobby));
    let next = in_progress.len().to_string();
    queue.done(in_progress.remove(0), Requeue::Settled(None));
    assert_eq!(ready_key(&queue), Some(ObjectKey::new("greedy", next)));
}

#[tokio::test]
async fn namespaces_are_served_in_rotation() {
    let queue = Queue::new(Capacity { shared: 1, per_namespace: 1, reserved: 0 });
    queue.open();
    for (namespace, name) in
        [("a", "1"), ("a", "2"), ("a", "3"), ("b", "4"), ("a", "5"), ("b", "6")]
    {
        queue.add(ObjectKey::new(namespace, name));
    }
    let mut order = String::new();
    while let Some(key) = ready_key(&queue) {
        order.push_str(&key.name);
        queue.done(key, Requeue::Settled(None));
    }
    assert_eq!(order, "142635");
}

/// Objects that failed together, for example because the API server was unavailable, must not be retried together.
#[test]
fn the_backoffs_of_objects_that_failed_together_differ() {
    let backoffs: HashSet<Duration> = (0..20).map(|_| backoff(10)).collect();
    assert!(backoffs.len() > 10, "{backoffs:?}");
}
