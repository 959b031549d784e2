//! When a queue hands out what, and that it loses nothing.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

fn key(name: &str) -> ObjectKey {
    ObjectKey::new("games", name)
}

fn ready(queue: &Queue) -> Option<ObjectKey> {
    queue.next().now_or_never()
}

#[tokio::test]
async fn an_object_waits_once_however_often_it_is_added() {
    let queue = Queue::default();
    queue.add(key("a"));
    queue.add(key("a"));
    assert_eq!(ready(&queue), Some(key("a")));
    assert_eq!(ready(&queue), None);
}

#[tokio::test(start_paused = true)]
async fn what_happens_during_a_look_is_looked_at_after_it() {
    let queue = Queue::default();
    queue.add(key("a"));
    ready(&queue);
    queue.add(key("a"));
    assert_eq!(ready(&queue), None, "one worker at a time");
    queue.done(key("a"), Next::Settled(None));
    assert_eq!(queue.next().await, key("a"));
    queue.done(key("a"), Next::Settled(None));
    assert_eq!(ready(&queue), None);
}

#[tokio::test(start_paused = true)]
async fn an_alarm_rings_and_an_event_before_it_takes_its_place() {
    let queue = Queue::default();
    queue.add(key("a"));
    ready(&queue);
    let wake = Instant::now() + Duration::from_secs(10);
    queue.done(key("a"), Next::Settled(Some(wake)));
    assert_eq!(ready(&queue), None);
    assert_eq!(queue.next().await, key("a"));
    assert!(Instant::now() >= wake);
    queue.done(
        key("a"),
        Next::Settled(Some(wake + Duration::from_secs(10))),
    );
    queue.add(key("a"));
    assert_eq!(queue.next().await, key("a"));
    assert!(Instant::now() < wake + Duration::from_secs(1));
    queue.done(key("a"), Next::Settled(None));
    tokio::time::advance(Duration::from_secs(60)).await;
    assert_eq!(ready(&queue), None, "the old alarm is off");
}

/// How long after a look nothing happens to its object although something happened to it.
async fn rest(next: Next, planning_ms: u64, touched_meanwhile: bool) -> u128 {
    let queue = Queue::default();
    queue.add(key("a"));
    queue.next().await;
    if touched_meanwhile {
        queue.add(key("a"));
    }
    let planning = Duration::from_millis(planning_ms);
    queue.done(key("a"), Looked { next, planning });
    let begun = Instant::now();
    queue.add(key("a"));
    queue.next().await;
    begun.elapsed().as_millis()
}

#[tokio::test(start_paused = true)]
async fn an_object_that_takes_long_to_plan_rests_in_proportion() {
    for touched in [false, true] {
        for (planning, expected) in [(0, 20), (1, 20), (50, 200), (10_000, 1_000)] {
            let rested = rest(Next::Settled(None), planning, touched).await;
            assert_eq!(rested, expected);
        }
        for (planning, expected) in [(0, 5), (1, 5), (50, 200), (10_000, 1_000)] {
            assert_eq!(rest(Next::Again, planning, touched).await, expected);
        }
        assert_eq!(rest(Next::Now, 10_000, touched).await, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn each_failure_doubles_the_pause_and_success_ends_it() {
    let queue = Queue::default();
    let mut pauses = Vec::new();
    queue.add(key("a"));
    for _ in 0..15 {
        let begun = Instant::now();
        queue.next().await;
        pauses.push(begun.elapsed().as_millis());
        queue.done(key("a"), Next::Retry(None));
    }
    assert_eq!(pauses[..4], [0, 5, 10, 20]);
    assert_eq!(pauses.last(), Some(&30_000));
    queue.next().await;
    queue.done(key("a"), Next::Settled(None));
    let begun = Instant::now();
    queue.add(key("a"));
    queue.next().await;
    assert_eq!(begun.elapsed(), REST);
}

#[tokio::test(start_paused = true)]
async fn a_burst_is_looked_at_together() {
    let queue = Queue::default();
    let mut looks = 0;
    for _ in 0..1_000 {
        queue.add(key("a"));
        if let Some(key) = ready(&queue) {
            looks += 1;
            queue.done(key, Next::Settled(None));
        }
        tokio::time::advance(Duration::from_millis(1)).await;
    }
    assert!((40..=51).contains(&looks), "{looks}");
}

#[tokio::test(start_paused = true)]
async fn a_change_brings_a_retry_forward_but_never_before_the_server_allows() {
    let queue = Queue::default();
    queue.add(key("a"));
    for _ in 0..14 {
        queue.next().await;
        queue.done(key("a"), Next::Retry(None));
    }
    let begun = Instant::now();
    queue.add(key("a"));
    queue.next().await;
    assert_eq!(begun.elapsed(), PATIENCE);
    queue.done(key("a"), Next::Retry(Some(Duration::from_secs(40))));
    let begun = Instant::now();
    queue.add(key("a"));
    queue.next().await;
    assert_eq!(begun.elapsed(), Duration::from_secs(40));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_wants_to_be_asked_in_a_thousand_years_is_asked_before() {
    let queue = Queue::default();
    queue.add(key("a"));
    ready(&queue);
    let begun = Instant::now();
    queue.done(key("a"), Next::Retry(Some(Duration::from_secs(u64::MAX))));
    assert_eq!(queue.next().await, key("a"));
    assert_eq!(begun.elapsed(), LATEST);
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_the_failure_of_one_object() {
    let queue = Arc::new(Queue::default());
    let (stop, stopped) = watch::channel(false);
    let looked = Arc::new(AtomicUsize::new(0));
    let worker = tokio::spawn(work(Arc::clone(&queue), stopped, {
        let looked = Arc::clone(&looked);
        move |found: ObjectKey| {
            let looked = Arc::clone(&looked);
            async move {
                let before = looked.fetch_add(1, Ordering::SeqCst);
                assert!(found.name != "bad" || before > 0, "as it is to be");
                Next::Settled(None)
            }
        }
    }));
    queue.add(key("bad"));
    tokio::time::sleep(Duration::from_millis(1)).await;
    queue.add(key("good"));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(looked.load(Ordering::SeqCst), 3, "bad, good, and bad again");
    stop.send(true).unwrap();
    worker.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_look_that_is_given_up_is_not_under_way_any_more() {
    let queue = Arc::new(Queue::default());
    let (_go_on, stop) = watch::channel(false);
    let worker = work(Arc::clone(&queue), stop, |_| async {
        std::future::pending::<Next>().await
    });
    queue.add(key("a"));
    let limit = Duration::from_secs(1);
    assert!(tokio::time::timeout(limit, worker).await.is_err());
    let limit = Duration::from_secs(60);
    let again = tokio::time::timeout(limit, queue.next()).await;
    assert_eq!(again.ok(), Some(key("a")));
}

#[tokio::test]
async fn nothing_is_lost_when_everything_is_added_at_once() {
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
        queue.done(found.clone(), Next::Settled(None));
        seen.insert(found);
    }
    for adder in adders {
        adder.await.unwrap();
    }
    assert!(ready(&queue).is_none());
}

#[tokio::test]
async fn a_namespace_with_more_objects_than_there_are_looks_keeps_no_other_one_waiting() {
    let queue = Queue::default();
    for number in 0..1_000 {
        queue.add(ObjectKey::new("greedy", number.to_string()));
    }
    let lobby = ObjectKey::new("other", "lobby");
    let mut under_way = Vec::new();
    while let Some(key) = ready(&queue) {
        under_way.push(key);
    }
    assert!(
        under_way.len() < DEFAULT_CAPACITY.shared + DEFAULT_CAPACITY.reserved,
        "{}",
        under_way.len()
    );
    // None of these looks ends, and still:
    queue.add(lobby.clone());
    assert_eq!(ready(&queue), Some(lobby.clone()));
    queue.done(lobby.clone(), Next::Now);
    assert_eq!(ready(&queue), Some(lobby));
    let next = under_way.len().to_string();
    queue.done(under_way.remove(0), Next::Settled(None));
    assert_eq!(ready(&queue), Some(ObjectKey::new("greedy", next)));
}

#[tokio::test]
async fn namespaces_take_turns() {
    let queue = Queue::new(Capacity {
        shared: 1,
        per_namespace: 1,
        reserved: 0,
    });
    for (namespace, name) in [
        ("a", "1"),
        ("a", "2"),
        ("a", "3"),
        ("b", "4"),
        ("a", "5"),
        ("b", "6"),
    ] {
        queue.add(ObjectKey::new(namespace, name));
    }
    let mut order = String::new();
    while let Some(key) = ready(&queue) {
        order.push_str(&key.name);
        queue.done(key, Next::Settled(None));
    }
    assert_eq!(order, "142635");
}
