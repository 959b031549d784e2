//! The store, the progress and the routed changes of a reflector.

use std::cell::RefCell;
use std::collections::HashSet;
use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use tokio::time::sleep;
use tower::service_fn;

use super::wanted::NAMESPACE_INTERVAL;
use super::*;
use crate::runtime::memory::MemoryLimits;
use crate::runtime::store::Head;

#[derive(Debug, Clone)]
struct Thing {
    name: String,
    version: u64,
    size: u64,
}

impl Cached for Thing {
    fn head(&self) -> Head<'_> {
        Head {
            namespace: "games",
            name: &self.name,
            uid: &self.name,
            version: self.version,
            terminating: false,
            controller: Some("owner"),
        }
    }

    fn memory(&self) -> usize {
        usize::try_from(self.size).unwrap_or(0)
    }
}

fn identity(name: &str, version: u64) -> Identity {
    Identity {
        namespace: "games".into(),
        name: name.into(),
        uid: name.into(),
        resource_version: version.to_string(),
        ..Identity::default()
    }
}

/// The size of a thing that cannot be decoded.
const UNREADABLE: u64 = u64::MAX;

/// Feeds changes to a reflector, and returns the old and the new size of each change that was routed. Both are
/// None for a `Routed::Unreadable`. Things of size 0 are not kept.
fn feed(
    reflector: &Reflector<Thing>,
    changes: Vec<Change<Thing>>,
) -> Vec<(Option<u64>, Option<u64>)> {
    let sizes = RefCell::new(Vec::new());
    let convert = |_: Option<&Thing>, _, _: &Identity, thing: Thing| match thing.size {
        UNREADABLE => Err(serde::de::Error::custom("unreadable")),
        size => Ok((size > 0).then_some(thing)),
    };
    let route = |routed: &Routed<Thing>| match routed {
        Routed::Changed((old, new)) => {
            let size = |side: &Option<Arc<Thing>>| side.as_ref().map(|thing| thing.size);
            sizes.borrow_mut().push((size(old), size(new)));
        }
        Routed::Unreadable(..) => sizes.borrow_mut().push((None, None)),
    };
    let mut feed = Feed::new(reflector, convert, route);
    for change in changes {
        feed.apply(change);
    }
    sizes.into_inner()
}

fn applied(name: &str, version: u64, size: u64) -> Change<Thing> {
    let (identity, name) = (identity(name, version), name.to_owned());
    let thing = Thing { name, version, size };
    Change::Applied(identity, thing)
}

fn listed(name: &str, version: u64, size: u64) -> Change<Thing> {
    match applied(name, version, size) {
        Change::Applied(identity, thing) => Change::Listed(identity, thing),
        other => other,
    }
}

#[test]
fn a_deletion_that_the_watch_missed_is_detected_by_the_next_list() {
    let reflector = Reflector::default();
    let routed = feed(
        &reflector,
        vec![
            Change::ListBegin,
            listed("kept", 1, 1),
            listed("lost", 2, 2),
            Change::ListEnd(2),
            Change::ListBegin,
            listed("kept", 1, 1),
            Change::ListEnd(9),
        ],
    );
    assert_eq!(routed.len(), 3);
    assert_eq!(routed[2], (Some(2), None));
    assert_eq!(reflector.store().len(), 1);
    let progress = *reflector.progress().borrow();
    assert_eq!((progress.version, progress.started, progress.listed), (9, 2, 2));
}

#[test]
fn readers_see_the_old_store_until_a_list_is_complete() {
    let reflector = Reflector::default();
    let begin = vec![Change::ListBegin, listed("a", 1, 1), Change::ListEnd(1), Change::ListBegin];
    feed(&reflector, begin);
    assert_eq!(reflector.store().len(), 1);
    assert_eq!(reflector.progress().borrow().listed, 1);
}

#[test]
fn an_object_that_is_not_kept_advances_the_progress() {
    let reflector = Reflector::default();
    feed(&reflector, vec![Change::ListBegin, Change::ListEnd(1), applied("foreign", 7, 0)]);
    assert!(reflector.store().is_empty());
    assert_eq!(reflector.progress().borrow().version, 7);
}

#[test]
fn an_object_that_becomes_foreign_is_routed_as_deleted() {
    let reflector = Reflector::default();
    let routed = feed(
        &reflector,
        vec![Change::ListBegin, Change::ListEnd(1), applied("a", 2, 5), applied("a", 3, 0)],
    );
    assert_eq!(routed, [(None, Some(5)), (Some(5), None)]);
}

#[test]
fn an_object_that_cannot_be_decoded_is_routed_and_removed() {
    let reflector = Reflector::default();
    let routed = feed(
        &reflector,
        vec![
            Change::ListBegin,
            listed("a", 1, 1),
            listed("b", 2, 1),
            listed("b", 3, UNREADABLE),
            Change::ListEnd(3),
            applied("a", 4, UNREADABLE),
            applied("c", 5, 5),
        ],
    );
    let expected = [(None, None), (None, Some(1)), (Some(1), None), (None, None), (None, Some(5))];
    assert_eq!(routed, expected);
    assert_eq!(reflector.store().len(), 1);
    assert_eq!(reflector.progress().borrow().version, 5);
    let unreadable = reflector.unreadable(&ObjectKey::new("games", "a"));
    let expected = Unreadable {
        uid: "a".into(),
        resource_version: "4".into(),
        reason: "unreadable".into(),
        control: Control::None,
        over_budget: false,
    };
    assert_eq!(unreadable, Some(expected));
}

#[test]
fn an_object_is_unreadable_until_it_is_fixed_or_deleted_or_no_longer_listed() {
    let reflector = Reflector::default();
    let unreadable = || -> Vec<String> {
        let all = reflector.all_unreadable();
        all.keys().map(|key| key.name.clone()).collect()
    };
    let bad = |name: &str| listed(name, 1, UNREADABLE);
    let list = vec![
        Change::ListBegin,
        bad("fixed"),
        bad("deleted"),
        bad("missed"),
        bad("foreign"),
        Change::ListEnd(1),
    ];
    feed(&reflector, list);
    assert_eq!(unreadable(), ["deleted", "fixed", "foreign", "missed"]);
    let changes = vec![
        applied("fixed", 2, 5),
        Change::Deleted(identity("deleted", 3)),
        applied("foreign", 4, 0),
    ];
    let expected = [(None, Some(5)), (None, None), (None, None)];
    assert_eq!(feed(&reflector, changes), expected);
    assert_eq!(unreadable(), ["missed"]);
    let list = vec![Change::ListBegin, listed("fixed", 2, 5), Change::ListEnd(9)];
    assert_eq!(feed(&reflector, list), [(None, None)]);
    assert!(unreadable().is_empty());
}

/// If the change came first, the router would take the object for unreadable.
#[test]
fn an_object_that_was_fixed_before_a_list_is_routed_last_as_a_change() {
    let reflector = Reflector::default();
    let list = |version, size| {
        vec![Change::ListBegin, listed("fixed", version, size), Change::ListEnd(version)]
    };
    assert_eq!(feed(&reflector, list(1, UNREADABLE)), [(None, None)]);
    let expected = [(None, None), (None, Some(5))];
    assert_eq!(feed(&reflector, list(2, 5)), expected);
}

#[test]
fn no_change_is_lost_in_a_burst_of_5000_creations_and_deletions() {
    let reflector = Reflector::default();
    let mut changes = vec![Change::ListBegin, Change::ListEnd(0)];
    let names: Vec<String> = (0..5_000).map(|n| format!("pod-{n}")).collect();
    for (n, name) in (1..).zip(&names) {
        changes.push(applied(name, n, n));
    }
    for (n, name) in (5_001..).zip(&names) {
        changes.push(Change::Deleted(identity(name, n)));
    }
    let routed = feed(&reflector, changes);
    let created = routed.iter().filter(|(old, new)| old.is_none() && new.is_some());
    let removed = routed.iter().filter(|(old, new)| old.is_some() && new.is_none());
    assert_eq!((created.count(), removed.count()), (5_000, 5_000));
    assert!(reflector.store().is_empty());
    assert_eq!(reflector.progress().borrow().version, 10_000);
}

#[tokio::test]
async fn reaching_a_version_waits_for_the_first_list_and_then_for_the_version() {
    let reflector = Arc::new(Reflector::<Thing>::default());
    let waiter = tokio::spawn({
        let reflector = Arc::clone(&reflector);
        async move { reflector.reach(5).await }
    });
    feed(&reflector, vec![Change::ListBegin, Change::ListEnd(4)]);
    tokio::task::yield_now().await;
    assert!(!waiter.is_finished());
    feed(&reflector, vec![Change::Bookmark(5)]);
    let limit = std::time::Duration::from_secs(5);
    tokio::time::timeout(limit, waiter).await.unwrap().unwrap();
}

/// A list is due when a caller waits for it and no other list is in progress.
#[tokio::test(start_paused = true)]
async fn callers_share_the_next_list_and_do_not_interrupt_the_current_one() {
    use futures::FutureExt;
    let reflector = Reflector::<Thing>::default();
    let begin = || feed(&reflector, vec![Change::ListBegin]);
    // Each call of `feed` has its own list in progress, so the end of the list is recorded here.
    let end = || {
        reflector.progress.send_modify(|progress| progress.listed = progress.started);
    };
    begin();
    let mut first = std::pin::pin!(reflector.relist(Duration::ZERO));
    let mut second = std::pin::pin!(reflector.relist(Duration::ZERO));
    assert!(first.as_mut().now_or_never().is_none());
    assert!(second.as_mut().now_or_never().is_none());
    assert!(
        reflector.until_list_is_due().now_or_never().is_none(),
        "no list is due while another is in progress"
    );
    end();
    assert!(
        first.as_mut().now_or_never().is_none(),
        "the completed list had started before the call"
    );
    assert!(reflector.until_list_is_due().now_or_never().is_some());
    begin();
    assert!(reflector.until_list_is_due().now_or_never().is_none());
    end();
    assert!(first.now_or_never().is_some() && second.now_or_never().is_some());
    assert!(reflector.until_list_is_due().now_or_never().is_none(), "one list served both callers");
}

#[tokio::test(start_paused = true)]
async fn a_bookmark_is_due_until_its_version_is_reached_but_not_during_a_list() {
    use futures::FutureExt;
    let reflector = Reflector::<Thing>::default();
    let is_due = || reflector.until_bookmark_is_due().now_or_never().is_some();
    let limit = Duration::from_secs(5);
    let mut waiting = std::pin::pin!(reflector.reach_by_bookmark(5, limit));
    assert!(waiting.as_mut().now_or_never().is_none());
    assert!(!is_due(), "nothing was listed yet");
    reflector.show(3, Vec::new());
    assert!(is_due());
    feed(&reflector, vec![Change::Bookmark(4)]);
    assert!(reflector.reach_by_bookmark(4, limit).await);
    assert!(is_due());
    feed(&reflector, vec![Change::ListBegin]);
    assert!(!is_due());
    reflector.show(4, Vec::new());
    assert!(is_due());
    feed(&reflector, vec![Change::Bookmark(5)]);
    assert!(waiting.await);
    assert!(!is_due());
}

/// Whether a list of everything is costly depends on all objects, also on pods of other controllers.
#[test]
fn the_size_of_a_list_includes_objects_that_are_not_kept() {
    let reflector = Reflector::<Thing>::default();
    let others = listed("a", 1, 0);
    feed(&reflector, vec![Change::ListBegin, others, listed("b", 2, 60), Change::ListEnd(9)]);
    assert_eq!((reflector.store().len(), reflector.progress().borrow().size), (1, 2));
}

/// As after etcd was restored from a backup. Otherwise, the watch would be resumed every three seconds from then on.
#[tokio::test(start_paused = true)]
async fn a_bookmark_that_does_not_come_is_not_asked_for_without_end() {
    use futures::FutureExt;
    let reflector = Reflector::<Thing>::default();
    reflector.show(3, Vec::new());
    assert!(!reflector.reach_by_bookmark(5, Duration::from_secs(5)).await);
    assert!(reflector.until_bookmark_is_due().now_or_never().is_none());
}

#[test]
fn an_object_that_exceeds_the_memory_of_its_namespace_is_unreadable_until_it_fits() {
    let limits = MemoryLimits { namespace: 100, total: usize::MAX };
    let reflector = Reflector::counting(&Arc::new(MemoryUse::new(limits)));
    let left_out = || -> Vec<String> {
        let all = reflector.all_unreadable();
        let left_out = all.iter().filter(|(_, it)| it.over_budget);
        left_out.map(|(key, _)| key.name.clone()).collect()
    };
    let list = |changes: Vec<Change<Thing>>| {
        let ends = [Change::ListBegin].into_iter().chain(changes);
        feed(&reflector, ends.chain([Change::ListEnd(9)]).collect())
    };
    list(vec![listed("a", 1, 60), listed("b", 2, 50), listed("c", 3, 40)]);
    assert_eq!(left_out(), ["b"]);
    // A list of the same objects needs no more memory than they have now.
    list(vec![listed("a", 1, 60), listed("b", 2, 50), listed("c", 3, 40)]);
    assert_eq!(left_out(), ["b"]);
    feed(&reflector, vec![applied("c", 10, 41)]);
    assert_eq!(left_out(), ["b", "c"], "it grew, and its old state is not kept either");
    assert!(reflector.get(&ObjectKey::new("games", "c")).is_none());
    feed(&reflector, vec![applied("c", 11, 30)]);
    assert_eq!(left_out(), ["b"]);
    feed(&reflector, vec![Change::Deleted(identity("a", 12))]);
    let wanted = reflector.namespaces.subscribe();
    assert!(wanted.borrow().contains("games"), "there is room for b");
    refresh(&reflector, &[("b", 2, 50), ("c", 3, 70)]);
    assert_eq!(left_out().len(), 0);
    let size = |name: &str| reflector.get(&ObjectKey::new("games", name)).map(|it| it.size);
    assert_eq!((size("b"), size("c")), (Some(50), Some(30)), "the older c is ignored");
}

/// Feeds a list of the namespace, during which the object `gone` is deleted.
fn refresh(reflector: &Reflector<Thing>, things: &[(&str, u64, u64)]) {
    let convert = |_: Option<&Thing>, _, _: &Identity, thing: Thing| Ok(Some(thing));
    let mut feed = Feed::new(reflector, convert, |_: &Routed<Thing>| {});
    feed.deleted = Some(HashSet::new());
    feed.apply(Change::<Thing>::Deleted(identity("gone", 99)));
    for (name, version, size) in things {
        let thing = Thing { name: (*name).to_owned(), version: *version, size: *size };
        feed.apply_older(&identity(name, *version), thing);
    }
}

#[test]
fn the_list_of_a_namespace_brings_no_deleted_object_back() {
    let reflector = Reflector::default();
    refresh(&reflector, &[("gone", 5, 1), ("kept", 6, 1)]);
    assert_eq!(reflector.store().len(), 1);
    assert!(reflector.get(&ObjectKey::new("games", "kept")).is_some());
}

/// An API server without objects. `list` is called for each list of the namespace, and returns the status code.
fn empty_server(mut list: impl FnMut() -> u16 + Send + 'static) -> Source {
    let server = service_fn(move |request: Request<Body>| {
        let is_of_namespace = request.uri().path() == "/apis/x/v1/namespaces/games/things";
        let code = if is_of_namespace { list() } else { 200 };
        let is_watch = request.uri().query().is_some_and(|it| it.starts_with("watch"));
        async move {
            if is_watch {
                pending::<()>().await;
            }
            let page = r#"{"metadata":{"resourceVersion":"5"},"items":[]}"#;
            let response = Response::builder().status(code);
            Ok::<_, Infallible>(response.body(Body::from(page.as_bytes().to_vec())).unwrap())
        }
    });
    Source {
        client: Client::new(server, "games"),
        path: "/apis/x/v1/things".to_owned(),
        metadata_only: false,
        streaming: false,
    }
}

/// A tenant can make and take away room as often as he likes.
#[tokio::test(start_paused = true)]
async fn a_namespace_is_listed_at_most_once_a_minute() {
    let lists: Arc<Mutex<Vec<Instant>>> = Arc::default();
    let recorded = Arc::clone(&lists);
    let source = empty_server(move || {
        recorded.lock().unwrap().push(Instant::now());
        200
    });
    let reflector: Arc<Reflector<Thing>> = Arc::default();
    let feeding = Arc::clone(&reflector).feed(source, |_, _, _, _| Ok(None), |_| {});
    let wanting = async {
        for _ in 0..150 {
            reflector.list_namespaces(["games".to_owned()]);
            sleep(Duration::from_secs(1)).await;
        }
    };
    tokio::select! {
        () = feeding => {}
        () = wanting => {}
    }
    let lists = lists.lock().unwrap();
    assert!(lists.len() == 3, "{lists:?}");
    for pair in lists.windows(2) {
        assert!(pair[1] - pair[0] >= NAMESPACE_INTERVAL);
    }
}

/// Objects that were left out would never be read.
#[tokio::test(start_paused = true)]
async fn a_list_of_a_namespace_that_fails_is_repeated() {
    let lists = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&lists);
    let source = empty_server(move || {
        let mut lists = counted.lock().unwrap();
        *lists += 1;
        if *lists < 3 { 500 } else { 200 }
    });
    let reflector: Arc<Reflector<Thing>> = Arc::default();
    let feeding = Arc::clone(&reflector).feed(source, |_, _, _, _| Ok(None), |_| {});
    reflector.list_namespaces(["games".to_owned()]);
    let _ = tokio::time::timeout(Duration::from_secs(30), feeding).await;
    assert_eq!(*lists.lock().unwrap(), 3);
}

/// A reason may quote a value of any length.
#[test]
fn the_reason_of_an_unreadable_object_is_cut() {
    let reason = format!("invalid type: string {}", "é".repeat(1 << 20));
    let unreadable = Unreadable::new(&Identity::default(), reason, false);
    assert!(unreadable.reason.starts_with("invalid type"));
    assert!((MAX_REASON_BYTES - 3..=MAX_REASON_BYTES).contains(&unreadable.reason.len()));
    assert!(unreadable.reason.capacity() <= MAX_REASON_BYTES);
}
