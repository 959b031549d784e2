//! The namespaces and pods that SidecarSets need, and the requests that are made if there is no set.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Mutex;
use std::time::Duration;

use futures::{StreamExt, stream};
use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::time::sleep;
use tower::service_fn;

use super::*;
use crate::kinds::{Cache, OptionalKinds, Router, Settings};

fn set(name: &str, namespace: Option<&str>) -> Whole<SidecarSet> {
    let set = json!({
        "metadata": {"name": name, "uid": name},
        "spec": {
            "selector": {"matchLabels": {"app": "arena"}}, "namespace": namespace,
            "containers": [{"name": "log"}],
        },
    });
    Whole::new(serde_json::from_value(set).expect("a set"), true)
}

fn namespace(name: &str, labels: Value) -> CachedNamespace {
    let head = json!({"metadata": {"name": name, "labels": labels}});
    let head: NamespaceHead = serde_json::from_value(head).expect("a namespace");
    head.into()
}

fn names(index: &SidecarIndex, namespace: &str) -> Vec<String> {
    let sets = index.reaching(namespace).into_iter().flat_map(|it| it.sets);
    sets.map(|set| set.name.clone()).collect()
}

#[test]
fn pods_of_other_controllers_are_kept_where_a_set_reaches_an_open_namespace() {
    let index = SidecarIndex::new(None, NamespacePolicy::default());
    let open = json!({"gamekeeper.tkex.tencent.com/sidecars": "enabled"});
    for (name, labels) in [("games", open.clone()), ("tools", json!({})), ("kube-a", open)] {
        index.put_namespace(name, Some(&namespace(name, labels)));
    }
    assert!(!index.is_used() && !index.keeps_pods_of("games"));
    index.put_set("log", Some(&set("log", None)));
    index.put_set("b", Some(&set("b", Some("games"))));
    assert!(index.is_used() && index.keeps_pods_of("games"));
    assert!(!index.keeps_pods_of("tools") && !index.keeps_pods_of("kube-a"));
    assert_eq!(Vec::from_iter(index.take_opened()), ["games"]);
    assert!(index.take_opened().is_empty());
    assert_eq!(names(&index, "games"), ["b", "log"]);
    assert_eq!(names(&index, "tools"), ["log"]);
    let log = index.get("log").expect("a set");
    let reached = [("games".to_owned(), true), ("tools".to_owned(), false)];
    assert_eq!(index.reached_by(&log), reached);
    index.put_set("log", None);
    index.put_set("b", None);
    assert!(!index.keeps_pods_of("games"));
}

#[test]
fn pods_of_all_controllers_are_kept_everywhere_except_in_excluded_namespaces() {
    let policy = NamespacePolicy { own: Some("own".to_owned()), all: true };
    let index = SidecarIndex::new(None, policy);
    let closed = json!({"gamekeeper.tkex.tencent.com/sidecars": "disabled"});
    for (name, labels) in
        [("games", json!({})), ("closed", closed), ("own", json!({})), ("kube-a", json!({}))]
    {
        index.put_namespace(name, Some(&namespace(name, labels)));
    }
    index.put_set("log", Some(&set("log", None)));
    let log = index.get("log").expect("a set");
    assert_eq!(index.reached_by(&log), [("games".to_owned(), true)]);
    for excluded in ["closed", "own", "kube-a"] {
        assert!(!index.keeps_pods_of(excluded), "{excluded}");
        assert!(names(&index, excluded).is_empty(), "{excluded}");
    }
    assert!(index.keeps_pods_of("games"));
}

#[test]
fn which_sets_reach_a_namespace_is_unknown_until_the_namespace_is_cached() {
    let index = SidecarIndex::new(None, NamespacePolicy::default());
    assert_eq!(index.reaching("new").map(|it| it.sets.len()), Some(0));
    index.put_set("log", Some(&set("log", None)));
    assert!(index.reaching("new").is_none());
    index.put_namespace("new", Some(&namespace("new", json!({}))));
    assert_eq!(names(&index, "new"), ["log"]);
    index.put_set("log", None);
    index.put_namespace("new", None);
    assert_eq!(index.reaching("new").map(|it| it.sets.len()), Some(0));
}

/// What can be decoded of a set that a newer version wrote.
fn head(namespace: Option<&str>) -> SetHead {
    let spec = json!({
        "selector": {"matchLabels": {"app": "arena"}}, "namespace": namespace,
        "injectionStrategy": "Someday",
    });
    serde_json::from_value(json!({"metadata": {}, "spec": spec})).expect("a head")
}

#[test]
fn a_set_that_cannot_be_decoded_is_known_until_it_is_fixed_or_deleted() {
    let index = SidecarIndex::new(None, NamespacePolicy::default());
    let unreadable = || index.reaching("games").map(|it| it.unreadable.len());
    index.put_unreadable("log", Some(&head(Some("games"))));
    assert!(index.is_used(), "namespaces have to be watched");
    assert_eq!(unreadable(), None, "the namespace is not cached yet");
    for name in ["games", "tools", "kube-a"] {
        index.put_namespace(name, Some(&namespace(name, json!({}))));
    }
    index.put_set("log", None);
    assert_eq!(unreadable(), Some(1), "it is not decoded, but exists");
    assert_eq!(index.reaching("tools").map(|it| it.unreadable.len()), Some(0));
    assert!(index.put_set("log", Some(&set("log", None))), "the workloads have waited");
    assert_eq!((unreadable(), names(&index, "games").len()), (Some(0), 1));
    assert!(!index.put_set("log", Some(&set("log", None))));
    // Not even its selectors can be decoded.
    index.put_unreadable("log", None);
    let counts =
        ["games", "tools", "kube-a"].map(|it| index.reaching(it).map(|it| it.unreadable.len()));
    assert_eq!(counts, [Some(1), Some(1), Some(0)]);
    index.put_set("log", None);
    index.forget_unreadable("log");
    assert!(index.is_empty());
}

#[test]
fn an_operator_for_one_namespace_uses_only_sets_for_that_namespace() {
    let index = SidecarIndex::new(Some("games"), NamespacePolicy::default());
    index.put_namespace("games", Some(&namespace("games", json!({}))));
    for (name, namespace) in [("all", None), ("other", Some("tools")), ("own", Some("games"))] {
        index.put_set(name, Some(&set(name, namespace)));
    }
    assert_eq!(names(&index, "games"), ["own"]);
    assert_eq!(index.all(), ["own"]);
    for (name, head) in [("a", head(None)), ("b", head(Some("tools"))), ("c", head(Some("games")))]
    {
        index.put_unreadable(name, Some(&head));
    }
    index.put_unreadable("d", None);
    assert_eq!(index.reaching("games").map(|it| it.unreadable.len()), Some(1));
}

/// The paths that a cache requests within an hour from a server that has this SidecarSet, or no SidecarSet if None.
async fn requested_paths(set: Option<Value>) -> BTreeSet<String> {
    let paths = Arc::new(Mutex::new(BTreeSet::new()));
    let server = service_fn({
        let paths = Arc::clone(&paths);
        move |request: Request<Body>| {
            let path = request.uri().path().to_owned();
            let added = set.as_ref().filter(|_| path.ends_with("/sidecarsets"));
            let added = added.map(|set| json!({"type": "ADDED", "object": set}));
            let metadata = json!({
                "resourceVersion": "2", "annotations": {"k8s.io/initial-events-end": "true"},
            });
            let end = json!({"type": "BOOKMARK", "object": {"metadata": metadata}});
            let lines: Vec<_> = added.into_iter().chain([end]).collect();
            let lines = lines.into_iter().map(|it| Ok::<_, Infallible>(format!("{it}\n")));
            let body = stream::iter(lines).chain(stream::pending());
            paths.lock().expect("no panic").insert(path);
            let response = Response::new(axum::body::Body::from_stream(body));
            async move { Ok::<_, Infallible>(response) }
        }
    });
    let settings = Settings {
        kinds: OptionalKinds { sidecar_sets: true, clusters: false },
        own_namespace: "own".into(),
        ..Settings::default()
    };
    let cache = Cache::new(&Client::new(server, "default"), None, true, settings);
    let router = Router::to_nowhere(&cache.sidecars);
    let _watches = cache.start(&Arc::new(router));
    cache.until_filled().await;
    sleep(Duration::from_hours(1)).await;
    let paths = paths.lock().expect("no panic");
    paths.clone()
}

#[tokio::test(start_paused = true)]
async fn without_a_set_neither_namespaces_nor_revisions_of_sets_are_watched() {
    let without_set = requested_paths(None).await;
    let sets = "/apis/tkex.tencent.com/v1alpha1/sidecarsets";
    assert!(without_set.contains(sets), "{without_set:?}");
    let set = json!({
        "apiVersion": "tkex.tencent.com/v1alpha1",
        "kind": "SidecarSet",
        "metadata": {"name": "log", "uid": "1", "resourceVersion": "1"},
        "spec": {
            "selector": {"matchLabels": {"app": "arena"}},
            "containers": [{"name": "log", "image": "log:1"}],
        },
    });
    let with_set = requested_paths(Some(set)).await;
    let added: Vec<_> = with_set.difference(&without_set).collect();
    let revisions = "/apis/apps/v1/namespaces/own/controllerrevisions";
    assert_eq!(added, ["/api/v1/namespaces", revisions]);
}

/// API servers refuse pods while no replica answers, and a replica that is not ready is not asked.
#[tokio::test]
async fn the_first_set_makes_no_replica_unready_and_its_containers_are_injected_at_once() {
    let unused = service_fn(|_: Request<Body>| async {
        Err::<Response<axum::body::Body>, _>(std::io::Error::other("not reachable"))
    });
    let settings = Settings {
        kinds: OptionalKinds { sidecar_sets: true, clusters: false },
        ..Settings::default()
    };
    let cache = Cache::new(&Client::new(unused, "default"), None, true, settings);
    cache.game_deployments.show(1, Vec::new());
    cache.game_stateful_sets.show(1, Vec::new());
    cache.hook_runs.show(1, Vec::new());
    cache.hook_templates.show(1, Vec::new());
    cache.pods.show(1, Vec::new());
    cache.revisions.show(1, Vec::new());
    cache.nodes.show(1, Vec::new());
    cache.claims.show(1, Vec::new());
    assert!(!cache.is_ready() && !cache.knows_sidecar_sets());
    cache.sidecar_sets.show(1, Vec::new());
    assert!(cache.is_ready() && cache.knows_sidecar_sets());
    let set = json!({
        "metadata": {"name": "log"},
        "spec": {"selector": {"matchLabels": {"app": "arena"}}, "containers": [{"name": "log"}]},
    });
    let set = Whole::new(serde_json::from_value(set).expect("a set"), true);
    cache.sidecars.put_set("log", Some(&set));
    assert!(cache.is_ready());
    assert!(!cache.knows_sidecar_sets(), "its revision decides what is injected");
    cache.set_revisions.show(1, Vec::new());
    assert!(cache.knows_sidecar_sets(), "namespaces are read one by one");
}

/// A list of all pods of a large cluster takes a minute, and all reconciles would wait for it.
#[tokio::test(start_paused = true)]
async fn only_the_pods_of_a_namespace_that_opens_are_listed() {
    let cache = Cache::default();
    let listing = crate::kinds::list_pods(Arc::clone(&cache.pods), Arc::clone(&cache.sidecars));
    let opening = async {
        let open = json!({"gamekeeper.tkex.tencent.com/sidecars": "enabled"});
        cache.sidecars.put_namespace("games", Some(&namespace("games", open)));
        cache.sidecars.put_set("log", Some(&set("log", None)));
        sleep(Duration::from_secs(1)).await;
    };
    tokio::select! {
        () = listing => {}
        () = opening => {}
    }
    assert_eq!(cache.pods.wanted(), (0, ["games".to_owned()].into()));
}
