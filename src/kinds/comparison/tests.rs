//! Requests to the API server while reconciles wait for the cache.

use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use futures::{StreamExt, stream};
use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::json;
use tokio::time::sleep;
use tower::service_fn;

use super::*;
use crate::kinds::{OptionalKinds, Router, Settings, Whole};
use crate::runtime::objects::Written;

/// How many requests for pods the server got: for the newest version, and for lists and watches.
#[derive(Default)]
struct RequestCounts {
    newest: AtomicUsize,
    lists: AtomicUsize,
}

/// A cache of a server whose version grows with each request, and whose watches have no events after their list.
fn cache_of_quiet_server() -> (Cache, Arc<RequestCounts>) {
    let counts = Arc::new(RequestCounts::default());
    let server = service_fn({
        let (counts, version) = (Arc::clone(&counts), Arc::new(AtomicU64::new(1)));
        move |request: Request<Body>| {
            let is_for_version = request.uri().query() == Some("limit=1");
            if request.uri().path() == "/api/v1/pods" {
                let count = match is_for_version {
                    true => &counts.newest,
                    false => &counts.lists,
                };
                count.fetch_add(1, Ordering::Relaxed);
            }
            let version = version.fetch_add(1, Ordering::Relaxed);
            let metadata = format!(r#""metadata":{{"resourceVersion":"{version}""#);
            let body = match is_for_version {
                true => axum::body::Body::from(format!("{{{metadata}}},\"items\":[]}}")),
                false => {
                    let mark = r#""annotations":{"k8s.io/initial-events-end":"true"}"#;
                    let end = format!(r#"{{"type":"BOOKMARK","object":{{{metadata},{mark}}}}}}}"#);
                    let line = stream::iter([Ok::<_, Infallible>(end + "\n")]);
                    axum::body::Body::from_stream(line.chain(stream::pending()))
                }
            };
            async move { Ok::<_, Infallible>(Response::new(body)) }
        }
    });
    let settings = Settings {
        kinds: OptionalKinds { sidecar_sets: true, clusters: false },
        ..Settings::default()
    };
    let cache = Cache::new(&Client::new(server, "default"), None, true, settings);
    (cache, counts)
}

#[tokio::test(start_paused = true)]
async fn a_thousand_writes_without_a_response_cost_a_request_per_second_and_two_lists_a_minute() {
    let (cache, counts) = cache_of_quiet_server();
    let cache = Arc::new(cache);
    let router = Router::to_nowhere(&cache.sidecars);
    let _watches = cache.start(&Arc::new(router));
    cache.until_filled().await;
    let started = Instant::now();
    let reconciles: Vec<_> = (0..1_000)
        .map(|n| {
            let cache = Arc::clone(&cache);
            tokio::spawn(async move {
                sleep(Duration::from_millis(n * 50)).await;
                let owner = n.to_string();
                cache.expectations.record(&owner, Written::Unknown(Kind::Pod));
                cache.until_caught_up(&owner).await;
            })
        })
        .collect();
    for reconcile in reconciles {
        reconcile.await.unwrap();
    }
    let seconds = started.elapsed().as_secs() as usize;
    assert!(seconds < 50 + 40, "{seconds} s");
    let requests = counts.newest.load(Ordering::Relaxed);
    assert!(requests <= seconds + 1, "{requests} requests in {seconds} s");
    let lists = counts.lists.load(Ordering::Relaxed);
    assert!(lists <= 1 + seconds / 30, "{lists} lists in {seconds} s");
}

#[tokio::test(start_paused = true)]
async fn a_response_serves_the_callers_that_waited_when_it_was_requested() {
    let newest = Arc::new(Newest::default());
    let requests = Arc::new(AtomicU64::new(0));
    let caller = || {
        let (newest, requests) = (Arc::clone(&newest), Arc::clone(&requests));
        tokio::spawn(async move {
            let request = async {
                let version = requests.fetch_add(1, Ordering::Relaxed);
                sleep(Duration::from_millis(300)).await;
                Ok::<_, Infallible>(version)
            };
            newest.get(request).await.unwrap()
        })
    };
    let first = caller();
    sleep(Duration::from_millis(100)).await;
    let (second, third) = (caller(), caller());
    assert_eq!(first.await.unwrap(), 0);
    assert_eq!(second.await.unwrap(), 1, "not the response that was requested before the call");
    assert_eq!(third.await.unwrap(), 1, "shared with the second");
}

/// A cache of a server whose newest SidecarSet has this version. Also returns the queries for sets.
fn cache_of_server_with_set(version: u64) -> (Cache, Arc<Mutex<Vec<String>>>) {
    let queries = Arc::new(Mutex::new(Vec::new()));
    let server = service_fn({
        let queries = Arc::clone(&queries);
        move |request: Request<Body>| {
            let query = request.uri().query().unwrap_or_default().to_owned();
            queries.lock().expect("no panic").push(query);
            let items = [version - 2, version]
                .map(|it| json!({"metadata": {"name": "log", "resourceVersion": it.to_string()}}));
            let list = json!({"metadata": {"resourceVersion": "1000"}, "items": items});
            let response = Response::new(axum::body::Body::from(list.to_string()));
            async move { Ok::<_, Infallible>(response) }
        }
    });
    let settings = Settings {
        kinds: OptionalKinds { sidecar_sets: true, clusters: false },
        ..Settings::default()
    };
    let cache = Cache::new(&Client::new(server, "default"), None, true, settings);
    (cache, queries)
}

#[tokio::test(start_paused = true)]
async fn a_new_workload_waits_until_the_cache_shows_the_newest_set() {
    let (cache, queries) = cache_of_server_with_set(7);
    let cache = Arc::new(cache);
    let set = json!({
        "metadata": {"name": "log"},
        "spec": {"selector": {"matchLabels": {"app": "arena"}}, "containers": [{"name": "log"}]},
    });
    let set = Whole::new(serde_json::from_value(set).expect("a set"), true);
    cache.sidecar_sets.show(5, Vec::new());
    cache.see_current_sets().await.expect("no request");
    assert!(queries.lock().expect("no panic").is_empty(), "nothing to request");
    cache.sidecars.put_set("log", Some(&set));
    let waiting = tokio::spawn({
        let cache = Arc::clone(&cache);
        async move { cache.see_current_sets().await }
    });
    sleep(Duration::from_secs(1)).await;
    assert!(!waiting.is_finished());
    cache.sidecar_sets.show(7, vec![set]);
    waiting.await.expect("no panic").expect("a response");
    assert_eq!(*queries.lock().expect("no panic"), [""]);
}
