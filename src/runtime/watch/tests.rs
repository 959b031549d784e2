//! Tests watches against scripted servers.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use futures::{StreamExt, stream};
use http::Response;
use kube::client::Body;
use tower::service_fn;

use super::*;
use crate::runtime::control::Control;
use crate::runtime::objects::ObjectKey;

#[derive(Deserialize)]
struct Thing {
    #[serde(default)]
    size: u32,
}

/// A change as text.
fn text(change: &Change<Object<'_>>) -> String {
    match change {
        Change::ListBegin => "begin".to_owned(),
        Change::Listed(identity, object) => match object.read::<Thing>() {
            Ok(thing) => format!("listed {} {}", identity.name, thing.size),
            Err(_) => format!("listed {} broken", identity.name),
        },
        Change::ListEnd(version) => format!("end {version}"),
        Change::Applied(identity, object) => match object.read::<Thing>() {
            Ok(thing) => format!("applied {} {}", identity.name, thing.size),
            Err(_) => format!("applied {} broken", identity.name),
        },
        Change::Deleted(identity) => format!("deleted {}", identity.name),
        Change::Bookmark(version) => format!("bookmark {version}"),
    }
}

fn decoded(lines: &[&str], position: &mut Option<String>) -> Result<Vec<String>, WatchError> {
    let mut changes = Vec::new();
    for line in lines {
        decode(line.as_bytes(), position, &mut |change| changes.push(text(&change)))?;
    }
    Ok(changes)
}

#[test]
fn a_streamed_list_ends_only_at_its_own_bookmark() {
    let mut position = None;
    let lines = [
        r#"{"type":"ADDED","object":{"metadata":{"name":"a","resourceVersion":"9"},"size":1}}"#,
        r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"10"}}}"#,
        r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"12","annotations":{"k8s.io/initial-events-end":"true"}}}}"#,
        r#"{"type":"MODIFIED","object":{"metadata":{"name":"a","resourceVersion":"13"},"size":2}}"#,
        r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"15"}}}"#,
    ];
    let expected = ["listed a 1", "end 12", "applied a 2", "bookmark 15"];
    assert_eq!(decoded(&lines, &mut position).unwrap(), expected);
    assert_eq!(position.as_deref(), Some("15"));
}

#[test]
fn an_object_that_cannot_be_decoded_does_not_stop_the_others() {
    let mut position = Some("1".to_owned());
    let lines = [
        r#"{"type":"ADDED","object":{"metadata":{"name":"bad","resourceVersion":"2"},"size":"big"}}"#,
        r#"{"type":"ADDED","object":{"metadata":{"name":"good","resourceVersion":"3"},"size":3}}"#,
        r#"{"type":"DELETED","object":{"metadata":{"name":"bad","resourceVersion":"4"},"size":"big"}}"#,
    ];
    let expected = ["applied bad broken", "applied good 3", "deleted bad"];
    assert_eq!(decoded(&lines, &mut position).unwrap(), expected);
}

#[test]
fn identity_and_controller_are_decoded_without_the_rest() {
    let owner =
        r#"{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"r","uid":"u","controller":true}"#;
    let metadata = format!(
        r#"{{"namespace":"n","name":"a","uid":"i","resourceVersion":"7","ownerReferences":[{owner}]}}"#
    );
    let line = format!(r#"{{"type":"ADDED","object":{{"metadata":{metadata},"size":"big"}}}}"#);
    let mut identities = Vec::new();
    let mut position = Some("1".to_owned());
    decode(line.as_bytes(), &mut position, &mut |change| {
        if let Change::Applied(identity, _) = change {
            identities.push(identity);
        }
    })
    .unwrap();
    let identity = &identities[0];
    assert_eq!(identity.key(), ObjectKey::new("n", "a"));
    assert_eq!((identity.uid.as_str(), identity.version()), ("i", 7));
    assert_eq!(identity.control, Control::Foreign);
}

#[test]
fn an_expired_version_has_an_error_of_its_own() {
    let expired = r#"{"type":"ERROR","object":{"code":410,"message":"too old"}}"#;
    let busy = r#"{"type":"ERROR","object":{"code":500,"message":"busy"}}"#;
    let mut position = Some("1".to_owned());
    let result = decoded(&[expired], &mut position);
    assert!(matches!(result, Err(WatchError::Expired)));
    let result = decoded(&[busy], &mut position);
    assert!(matches!(result, Err(WatchError::Refused { code: 500, .. })));
}

#[tokio::test]
async fn an_incomplete_line_is_not_an_event() {
    let mut stream = futures::io::Cursor::new(b"{\"type\":\"ADDED\"}\n{\"type\":\"DEL".to_vec());
    let mut line = Vec::new();
    assert!(next_line(&mut stream, &mut line, SILENCE_TIMEOUT).await.unwrap());
    assert!(!next_line(&mut stream, &mut line, SILENCE_TIMEOUT).await.unwrap());
}

/// A server that responds to each request with the next item of its script: a code, 0 for no response, and lines.
fn scripted(script: Vec<(u16, Vec<String>)>) -> (Source, Arc<Mutex<Vec<String>>>) {
    let requests = Arc::new(Mutex::new(Vec::new()));
    let service = service_fn({
        let (requests, script) = (Arc::clone(&requests), Arc::new(script));
        move |request: Request<Body>| {
            let mut requests = requests.lock().unwrap();
            let query = request.uri().query().unwrap_or_default().to_owned();
            let response = script.get(requests.len()).cloned().filter(|(code, _)| *code != 0);
            requests.push(query);
            async move {
                let Some((code, lines)) = response else {
                    // The script is over: nothing else happens.
                    return std::future::pending().await;
                };
                let body = Body::from(lines.concat().into_bytes());
                let response = Response::builder().status(code).body(body);
                Ok::<_, Infallible>(response.unwrap())
            }
        }
    });
    let source = Source {
        client: Client::new(service, "default"),
        path: "/things".to_owned(),
        metadata_only: false,
        streaming: true,
    };
    (source, requests)
}

fn line(type_: &str, name: &str, version: u64) -> String {
    let metadata = format!(r#"{{"name":"{name}","resourceVersion":"{version}"}}"#);
    format!("{{\"type\":\"{type_}\",\"object\":{{\"metadata\":{metadata}}}}}\n")
}

fn list_end(version: u64) -> String {
    let annotation = r#"{"k8s.io/initial-events-end":"true"}"#;
    let metadata = format!(r#"{{"resourceVersion":"{version}","annotations":{annotation}}}"#);
    format!("{{\"type\":\"BOOKMARK\",\"object\":{{\"metadata\":{metadata}}}}}\n")
}

/// Watches the source for a minute, and returns the changes as text.
async fn followed(source: Source) -> Vec<String> {
    let mut changes = Vec::new();
    let record = |change: Change<Object<'_>>| {
        let text = text(&change);
        changes.push(text.trim_end_matches(" 0").to_owned());
    };
    let limit = Duration::from_secs(60);
    let _ = timeout(limit, watch(source, std::future::pending, std::future::pending, record)).await;
    changes
}

#[tokio::test(start_paused = true)]
async fn an_interrupted_watch_is_resumed_and_an_expired_one_relists() {
    let half = r#"{"type":"MODIFIED","object":{"metad"#.to_owned();
    let expired = r#"{"type":"ERROR","object":{"code":410,"message":"too old"}}"#;
    let (source, requests) = scripted(vec![
        (200, vec![line("ADDED", "a", 1), list_end(2), line("ADDED", "b", 3), half]),
        (200, vec![line("MODIFIED", "a", 4), format!("{expired}\n")]),
        (200, vec![line("ADDED", "b", 3), list_end(9)]),
    ]);
    let changes = followed(source).await;
    let expected =
        ["begin", "listed a", "end 2", "applied b", "applied a", "begin", "listed b", "end 9"];
    assert_eq!(changes, expected);
    let requests = requests.lock().unwrap();
    let starts = ["sendInitialEvents=true", "resourceVersion=3", "sendInitialEvents=true"];
    for (query, start) in requests.iter().zip(starts) {
        assert!(query.contains(start), "{query}");
        assert!(!query.contains("resourceVersion=0"), "{query}");
    }
}

/// In a quiet cluster, the next bookmark of a long watch may be a minute away.
#[tokio::test(start_paused = true)]
async fn a_watch_that_needs_a_bookmark_is_resumed_for_three_seconds() {
    let bookmark = r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9"}}}"#;
    let (source, requests) = scripted(vec![
        (200, vec![list_end(2)]),
        (0, vec![]),
        (200, vec![line("ADDED", "a", 3), format!("{bookmark}\n")]),
    ]);
    let (wanted, reached) = (tokio::sync::Notify::new(), Mutex::new(Vec::new()));
    let follow = watch(
        source,
        std::future::pending,
        || wanted.notified(),
        |change| {
            reached.lock().unwrap().push(text(&change));
        },
    );
    let want = async {
        sleep(Duration::from_secs(1)).await;
        wanted.notify_one();
        sleep(Duration::from_secs(20)).await;
    };
    tokio::select! {
        () = follow => {}
        () = want => {}
    }
    assert_eq!(*reached.lock().unwrap(), ["begin", "end 2", "applied a 0", "bookmark 9"]);
    let expected = [
        (290, "sendInitialEvents=true"),
        (290, "resourceVersion=2"),
        (3, "resourceVersion=2"),
        (290, "resourceVersion=9"),
    ];
    let requests = requests.lock().unwrap();
    assert_eq!(requests.len(), expected.len());
    for (query, (seconds, start)) in requests.iter().zip(expected) {
        let is_expected = query.contains(&format!("timeoutSeconds={seconds}&{start}"));
        assert!(is_expected, "{query}");
    }
}

#[tokio::test]
async fn an_empty_list_of_metadata_may_have_null_items() {
    let empty = r#"{"metadata":{"resourceVersion":"7"},"items":null}"#.to_owned();
    let (source, _) = scripted(vec![(200, vec![empty])]);
    assert_eq!(source.newest().await.unwrap(), 7);
}

#[tokio::test(start_paused = true)]
async fn objects_are_listed_in_pages_if_the_server_cannot_stream_lists() {
    let page = |name: &str, next: &str| {
        let item = format!(r#"{{"metadata":{{"name":"{name}","resourceVersion":"1"}}}}"#);
        let meta = format!(r#"{{"resourceVersion":"5","continue":"{next}"}}"#);
        vec![format!(r#"{{"metadata":{meta},"items":[{item}]}}"#)]
    };
    let refusal = r#"{"kind":"Status","code":422,"reason":"Invalid"}"#.to_owned();
    let (source, requests) = scripted(vec![
        (422, vec![refusal]),
        (200, page("a", "more")),
        (200, page("b", "")),
        (200, vec![line("DELETED", "a", 6)]),
    ]);
    let changes = followed(source).await;
    assert_eq!(changes, ["begin", "begin", "listed a", "listed b", "end 5", "deleted a"]);
    let requests = requests.lock().unwrap();
    assert_eq!(requests[1], "limit=500");
    assert_eq!(requests[2], "limit=500&continue=more");
    assert!(requests[3].contains("resourceVersion=5"));
}

/// A server ends the watches of slow clients. A delay would make such a client even slower.
#[tokio::test(start_paused = true)]
async fn a_watch_that_ends_after_an_event_is_resumed_immediately() {
    let page = r#"{"metadata":{"resourceVersion":"1"},"items":[]}"#.to_owned();
    let watches = (2..52).map(|version| (200, vec![line("ADDED", "a", version)]));
    let script = [(200, vec![page])].into_iter().chain(watches).collect();
    let (mut source, requests) = scripted(script);
    source.streaming = false;
    let started = Instant::now();
    let requested = async {
        while requests.lock().unwrap().len() < 51 {
            sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::select! {
        _ = followed(source) => panic!("not resumed"),
        () = requested => {}
    }
    assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
}

#[tokio::test(start_paused = true)]
async fn requests_without_a_response_time_out_and_are_repeated() {
    for streaming in [true, false] {
        let requests = Arc::new(Mutex::new(0));
        let counted = Arc::clone(&requests);
        let silent = service_fn(move |_: Request<Body>| {
            *counted.lock().unwrap() += 1;
            std::future::pending::<Result<Response<Body>, Infallible>>()
        });
        let source = Source {
            client: Client::new(silent, "default"),
            path: "/things".to_owned(),
            metadata_only: false,
            streaming,
        };
        assert!(timeout(2 * RESPONSE_TIMEOUT, source.newest()).await.unwrap().is_err());
        let limit = Duration::from_secs(100);
        let followed = watch(source, std::future::pending, std::future::pending, |_| {});
        let _ = timeout(limit, followed).await;
        assert_eq!(*requests.lock().unwrap(), 1 + 4, "streaming: {streaming}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_streamed_list_without_progress_starts_again() {
    let stalled = service_fn(|_: Request<Body>| async {
        let first_event = stream::iter([Ok::<_, Infallible>(line("ADDED", "a", 1))]);
        let body = axum::body::Body::from_stream(first_event.chain(stream::pending()));
        Ok::<_, Infallible>(Response::new(body))
    });
    let (source, _) = scripted(Vec::new());
    let client = Client::new(stalled, "default");
    let changes = followed(Source { client, ..source }).await;
    assert_eq!(changes, ["begin", "listed a", "begin", "listed a"]);
}

/// Without this limit, every replica would keep a huge object in memory, even after a restart.
#[test]
fn an_object_that_would_take_too_much_memory_is_refused_before_it_is_parsed() {
    let object = |maps: usize| {
        let maps = vec![r#"{"":0}"#; maps].join(",");
        format!(r#"{{"metadata":{{"name":"a"}},"size":1,"more":[{maps}]}}"#)
    };
    let read = |text: &str, max| {
        let line = format!("{{\"type\":\"ADDED\",\"object\":{text}}}\n");
        let from_line = Object::Line(line.as_bytes()).read_within::<Thing>(max);
        let from_item = Object::Item(text).read_within::<Thing>(max);
        assert_eq!(from_line.is_ok(), from_item.is_ok());
        from_item.map(|thing| thing.size).map_err(|why| why.to_string())
    };
    assert_eq!(read(&object(1_000), 1 << 20), Ok(1));
    let large = object(2_000);
    let why = "it would take more than 1 MiB of memory".to_owned();
    assert_eq!(read(&large, 1 << 20), Err(why));
}

/// A tenant's objects may be 1.5 MB each, and a page of 500 of them would be kept in memory as a whole.
#[tokio::test(start_paused = true)]
async fn a_page_of_large_objects_is_read_in_parts() {
    let item = |name: &str, size: usize| {
        let metadata = format!(r#"{{"name":"{name}","resourceVersion":"1"}}"#);
        format!(r#"{{"metadata":{metadata},"padding":"{}"}}"#, "x".repeat(size))
    };
    let page = |items: &[String], next: &str| {
        let metadata = format!(r#"{{"resourceVersion":"7","continue":"{next}"}}"#);
        let items = items.join(",");
        (200, vec![format!(r#"{{"metadata":{metadata},"items":[{items}]}}"#)])
    };
    let large = 9 << 20;
    let (source, requests) = scripted(vec![
        page(&[item("a", large), item("b", large), item("c", 1)], ""),
        page(&[item("a", large)], "b"),
        page(&[item("b", large), item("c", 1)], ""),
    ]);
    let source = Source { streaming: false, ..source };
    let mut listed = Vec::new();
    let record = |identity: Identity, _: Object<'_>| listed.push(identity.name);
    source.list_namespace("games", record).await.unwrap();
    assert_eq!(listed, ["a", "b", "c"]);
    let expected = ["limit=500", "limit=62", "limit=124&continue=b"];
    assert_eq!(*requests.lock().unwrap(), expected);
}

#[test]
fn the_path_of_a_namespace_is_that_of_its_collection() {
    assert_eq!(in_namespace("/api/v1/pods", "games"), "/api/v1/namespaces/games/pods");
    let scoped = "/api/v1/namespaces/games/pods";
    assert_eq!(in_namespace(scoped, "games"), scoped);
}

#[tokio::test(start_paused = true)]
async fn the_pauses_between_attempts_to_watch_have_jitter() {
    let attempts: Arc<Mutex<Vec<Instant>>> = Arc::default();
    let recorded = Arc::clone(&attempts);
    let failing = service_fn(move |_: Request<Body>| {
        recorded.lock().unwrap().push(Instant::now());
        let response = Response::builder().status(500).body(Body::from(b"{}".to_vec()));
        std::future::ready(Ok::<_, Infallible>(response.unwrap()))
    });
    let source = Source {
        client: Client::new(failing, "default"),
        path: "/things".to_owned(),
        metadata_only: false,
        streaming: false,
    };
    let followed = watch(source, std::future::pending, std::future::pending, |_| {});
    let _ = timeout(Duration::from_secs(60), followed).await;
    let attempts = attempts.lock().unwrap();
    let pauses: Vec<Duration> = attempts.windows(2).map(|it| it[1] - it[0]).collect();
    let is_exact = |(index, pause): (usize, &Duration)| {
        *pause == (MIN_BACKOFF * 2_u32.pow(index.min(16) as u32)).min(MAX_BACKOFF)
    };
    assert!(pauses.len() > 3 && !pauses.iter().enumerate().any(is_exact), "{pauses:?}");
}
