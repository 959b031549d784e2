//! Measurements that use the cluster: the pod that the run is about, and Secrets.

use std::convert::Infallible;

use http::{Method, Request, Response};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::client::Body;
use serde_json::Value;
use tokio::time::timeout;

use super::*;
use crate::provider::call_permit::CallLimits;
use gamekeeper_core::api::HookPhase::{Error, Failed, Successful};
use gamekeeper_core::api::names::RUN_POD_UID;

/// The requests that an API server received.
#[derive(Default)]
struct RecordedRequests {
    patches: Mutex<Vec<Value>>,
    paths: Mutex<Vec<String>>,
}

/// An API server with two pods and three Secrets.
fn cluster(recorded: &Arc<RecordedRequests>) -> Client {
    let recorded = Arc::clone(recorded);
    let service = tower::service_fn(move |request: Request<Body>| {
        let recorded = Arc::clone(&recorded);
        async move {
            let (head, body) = request.into_parts();
            let path = head.uri.path().to_owned();
            recorded.paths.lock().expect("paths").push(path);
            let secret = |labels: Value| {
                json!({"metadata": {"labels": labels}, "data": {
                    // The values are s3cret, ann, and a byte that is not text.
                    "token": "czNjcmV0", "user": "YW5u", "binary": "/w==",
                }})
            };
            let object = match head.uri.path() {
                "/api/v1/namespaces/games/pods/game-1" => json!({
                    "metadata": {"name": "game-1", "uid": "pod-uid", "annotations": {
                        "example.com/players": "0", "example.com/secret": "s3cret",
                    }},
                    "status": {"phase": "Running"},
                }),
                "/api/v1/namespaces/games/secrets/hooks" => {
                    secret(json!({"tkex.tencent.com/hook-access": "true"}))
                }
                "/api/v1/namespaces/games/secrets/other" => secret(json!({})),
                "/api/v1/namespaces/games/secrets/long" => {
                    let mut long = secret(json!({"tkex.tencent.com/hook-access": "true"}));
                    long["data"]["short"] = json!("YW5u");
                    long["data"]["long"] = json!("YWFh".repeat(40_000));
                    long["data"]["longest"] = json!("YWFh".repeat(100_000));
                    long
                }
                "/api/v1/namespaces/games/pods/large" => json!({
                    "metadata": {"name": "large", "uid": "pod-uid"},
                    "status": {"phase": "Running", "more": vec![json!({"": 0}); 100_000]},
                }),
                _ => Value::Null,
            };
            if head.method == Method::PATCH {
                let body = body.collect_bytes().await.expect("a body");
                let patch = serde_json::from_slice(&body).expect("JSON");
                recorded.patches.lock().expect("patches").push(patch);
            }
            let (code, body) = match object {
                Value::Null => (
                    404,
                    json!({
                        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404,
                        "reason": "NotFound", "message": "no such object",
                    }),
                ),
                object => (200, object),
            };
            let body = Body::from(body.to_string().into_bytes());
            Ok::<_, Infallible>(
                Response::builder()
                    .status(code)
                    .body(body)
                    .expect("a response"),
            )
        }
    });
    Client::new(service, "games")
}

struct Played {
    outcome: Outcome,
    patches: Vec<Value>,
    /// The paths of the requests to the API server.
    paths: Vec<String>,
}

/// Measures the first metric of a run in the cluster.
async fn play(spec: Value, annotations: &[(&str, &str)]) -> Played {
    play_of(spec, annotations, None).await
}

/// Measures the first metric of a run whose controller is of this kind.
async fn play_of(spec: Value, annotations: &[(&str, &str)], kind: Option<&str>) -> Played {
    let recorded = Arc::default();
    let mut run = HookRun::new("run", serde_json::from_value(spec).expect("a spec"));
    run.metadata.namespace = Some("games".into());
    let annotations = annotations
        .iter()
        .map(|(key, value)| ((*key).into(), (*value).into()));
    run.metadata.annotations = Some(annotations.collect());
    run.metadata.owner_references = kind.map(|kind| {
        vec![OwnerReference {
            api_version: "tkex.tencent.com/v1alpha1".to_owned(),
            kind: kind.to_owned(),
            controller: Some(true),
            ..OwnerReference::default()
        }]
    });
    let call = Call {
        run: Arc::new(run),
        metric: 0,
        number: 1,
        resumed: false,
    };
    let probe = Probe::new(HERE, Some(cluster(&recorded))).expect("a probe");
    let outcome = probe.measure(&call).await;
    Played {
        outcome,
        patches: recorded.patches.lock().expect("patches").clone(),
        paths: recorded.paths.lock().expect("paths").clone(),
    }
}

fn of_pod(kubernetes: Value) -> Value {
    json!({
        "args": [{"name": "PodName", "value": "game-1"}, {"name": "PodNamespace", "value": "games"}],
        "metrics": [{"name": "pod", "provider": {"kubernetes": kubernetes}}],
    })
}

fn get(path: &str, value: Option<&str>) -> Value {
    of_pod(json!({"function": "get", "fields": [{"path": path, "value": value}]}))
}

#[tokio::test]
async fn fields_of_the_pod_are_compared() {
    let rows = [
        (
            get("metadata.annotations.example.com/players", Some("0")),
            Successful,
            "",
        ),
        (
            get("metadata.annotations.example.com/players", None),
            Successful,
            "",
        ),
        (get("{.status.phase}", Some("Running")), Successful, ""),
        (
            get("metadata.annotations.example.com/players", Some("1")),
            Failed,
            "metadata.annotations.example.com/players of pod game-1 is 0, not 1",
        ),
        (
            get("metadata.annotations.example.com/none", Some("1")),
            Failed,
            "metadata.annotations.example.com/none of pod game-1 is not set",
        ),
        (
            get("{.status.none}", Some("1")),
            Error,
            "jsonPath {.status.none}: key none is not found",
        ),
    ];
    for (spec, phase, expected) in rows {
        let outcome = play(spec, &[]).await.outcome;
        let message = outcome.message.unwrap_or_default();
        assert_eq!((outcome.phase, message.as_str()), (phase, expected));
    }
}

#[tokio::test]
async fn conditions_can_judge_a_field() {
    let mut spec = get("metadata.annotations.example.com/players", None);
    spec["metrics"][0]["successCondition"] = json!("asInt(result) == 0");
    assert_eq!(play(spec.clone(), &[]).await.outcome.phase, Successful);
    spec["metrics"][0]["successCondition"] = json!("asInt(result) > 0");
    assert_eq!(play(spec, &[]).await.outcome.phase, Failed);
}

#[tokio::test]
async fn only_the_runs_own_pod_can_be_reached() {
    let with = |name: &str, value: &str| {
        let mut spec = get("{.status.phase}", None);
        let args = spec["args"].as_array_mut().expect("args");
        args.retain(|argument| argument["name"] != name);
        args.push(json!({"name": name, "value": value}));
        spec
    };
    let rows = [
        (
            with("PodNamespace", "kube-system"),
            "pods of namespace kube-system are not accessible",
        ),
        (
            with("PodName", "../secrets/hooks"),
            "\"../secrets/hooks\" is not an object name",
        ),
        (
            with("PodName", ""),
            "the pod is not known: set a value for the argument PodName",
        ),
        (with("PodName", "game-2"), "no such object"),
        (
            with("Kind", "Deployment"),
            "argument Kind would select another object in bk-bcs; here a kubernetes metric always reads the pod",
        ),
    ];
    for (spec, expected) in rows {
        let outcome = play(spec, &[]).await.outcome;
        let message = outcome.message.unwrap_or_default();
        assert_eq!(outcome.phase, Error, "{message}");
        assert!(message.contains(expected), "{message}");
    }
    let other = play(get("{.status.phase}", None), &[(RUN_POD_UID, "older-uid")])
        .await
        .outcome;
    assert_eq!(
        other.phase, Error,
        "a new pod of the same name is not the run's"
    );
    let same = play(get("{.status.phase}", None), &[(RUN_POD_UID, "pod-uid")])
        .await
        .outcome;
    assert_eq!(same.phase, Successful);
}

#[tokio::test]
async fn a_patch_writes_labels_and_annotations_of_this_very_pod() {
    let spec = of_pod(json!({"function": "patch", "fields": [
        {"path": "metadata.annotations.example.com/drain", "value": "{{ args.PodName }}"},
        {"path": "metadata.labels.drain", "value": "yes"},
    ]}));
    let own = Some("GameDeployment");
    let of_pod: &[_] = &[(RUN_POD_UID, "pod-uid")];
    let played = play_of(spec.clone(), of_pod, own).await;
    assert_eq!(played.outcome.phase, Successful);
    let expected = json!({"metadata": {
        "uid": "pod-uid",
        "annotations": {"example.com/drain": "game-1"},
        "labels": {"drain": "yes"},
    }});
    assert_eq!(played.patches, [expected]);

    // A user who may create HookRuns can name any pod in them.
    for (annotations, kind) in [
        (&[][..], None),
        (&[], own),
        (of_pod, None),
        (of_pod, Some("Pod")),
    ] {
        let played = play_of(spec.clone(), annotations, kind).await;
        let message = played.outcome.message.unwrap_or_default();
        assert!(
            message.starts_with("function patch works only in"),
            "{message}"
        );
        assert_eq!((played.outcome.phase, played.patches.len()), (Error, 0));
    }

    let mut foreign = spec;
    foreign["metrics"][0]["provider"]["kubernetes"]["fields"][0]["path"] =
        json!("metadata.annotations.io.tencent.bcs.dev/game-pod-deleting");
    let played = play_of(foreign, of_pod, own).await;
    let message = played.outcome.message.unwrap_or_default();
    assert!(message.contains("cannot be written by hooks"), "{message}");
    assert_eq!((played.outcome.phase, played.patches.len()), (Error, 0));
}

/// The API server never responds to requests for one of the namespaces.
#[tokio::test]
async fn unanswered_requests_of_a_namespace_delay_no_other() {
    let service = tower::service_fn(|request: Request<Body>| async move {
        if request.uri().path().contains("/namespaces/greedy/") {
            std::future::pending::<()>().await;
        }
        let pod = json!({"metadata": {"name": "game-1", "uid": "pod-uid"}});
        let body = Body::from(pod.to_string().into_bytes());
        Ok::<_, Infallible>(Response::new(body))
    });
    let cluster = crate::provider::cluster::Cluster::new(Client::new(service, "games"));
    let limits: Arc<CallLimits> = Arc::default();
    let pod = |namespace: &'static str| {
        let (cluster, limits) = (cluster.clone(), Arc::clone(&limits));
        async move {
            let mut permit = limits.enter(namespace).await;
            cluster.pod(namespace, "game-1", &mut permit).await
        }
    };
    let greedy: Vec<_> = (0..200).map(|_| tokio::spawn(pod("greedy"))).collect();
    tokio::task::yield_now().await;
    let other = timeout(Duration::from_secs(5), pod("other")).await;
    assert!(other.expect("a response in time").is_ok());
    assert!(greedy.iter().all(|it| !it.is_finished()));
}

/// A pod of 1 MB may take 100 MB once it is parsed.
#[tokio::test]
async fn a_pod_that_would_fill_the_memory_is_not_parsed() {
    let mut spec = get("{.status.phase}", Some("Running"));
    spec["args"][0]["value"] = json!("large");
    let outcome = play(spec, &[]).await.outcome;
    let expected = "pod large is too large to be read".to_owned();
    assert_eq!((outcome.phase, outcome.message), (Error, Some(expected)));
}

/// A web metric whose body contains arguments from these keys of a Secret.
fn with_keys(url: &str, secret: &str, keys: &[&str]) -> Value {
    let key = |key: &&str| json!({"name": secret, "key": key});
    let args = keys.iter().enumerate().map(
        |(index, it)| json!({"name": format!("a{index}"), "valueFrom": {"secretKeyRef": key(it)}}),
    );
    let names = (0..keys.len()).map(|index| format!("{{{{ args.a{index} }}}}"));
    let body: String = names.collect();
    json!({
        "args": args.collect::<Vec<_>>(),
        "metrics": [{"name": "web", "provider": {"web": {
            "url": url, "method": "POST", "body": body,
            "authentication": {"bearer": {"token": {"name": "hooks", "key": "token"}}},
        }}}],
    })
}

#[tokio::test]
async fn each_secret_is_read_once_per_measurement() {
    let server = Server::answering("200 OK", "ok").await;
    let spec = with_keys(&server.url, "hooks", &["user", "token", "user"]);
    let Played { outcome, paths, .. } = play(spec, &[]).await;
    assert_eq!(outcome.phase, Successful, "{outcome:?}");
    assert_eq!(paths, ["/api/v1/namespaces/games/secrets/hooks"]);
    assert!(server.requests()[0].ends_with("anns3cretann"));
}

#[tokio::test]
async fn the_values_of_secrets_are_bounded() {
    let too_long =
        "the Secrets and fields of the run that the metric uses are longer than 256 KiB in total";
    let many: Vec<String> = (0..32).map(|number| format!("k{number}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    for (keys, expected) in [
        (&["short"][..], None),
        (&["short", "long"], None),
        (&["long", "longest"], Some(too_long)),
        (&["longest"], Some(too_long)),
        (
            &many,
            Some("argument a0: the metric needs more than 32 keys of Secrets"),
        ),
    ] {
        let server = Server::answering("200 OK", "ok").await;
        let spec = with_keys(&server.url, "long", keys);
        let outcome = play(spec, &[]).await.outcome;
        assert_eq!(outcome.message.as_deref(), expected, "{keys:?}");
        assert_eq!(server.requests().is_empty(), expected.is_some());
    }
}

/// A web metric whose URL and header contain an argument from a Secret.
fn with_secret(url: &str, secret: &str, key: &str) -> Value {
    json!({
        "args": [{"name": "token", "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}],
        "metrics": [{"name": "web", "provider": {"web": {
            "url": format!("{url}/{{{{ args.token }}}}?t={{{{ args.token }}}}"),
            "headers": [{"key": "x-token", "value": "{{ args.token }}"}],
        }}}],
    })
}

#[tokio::test]
async fn secrets_are_sent_and_never_shown() {
    for (status, body) in [
        ("200 OK", "{\"echo\": \"s3cret\"}".to_owned()),
        ("500 Internal Server Error", "you sent s3cret".to_owned()),
        // The text would be cut in the middle of the secret if the secret were not hidden first.
        (
            "500 Internal Server Error",
            format!("{}s3cret", "x".repeat(97)),
        ),
        ("200 OK", format!("{}s3cret", "x".repeat(997))),
    ] {
        let server = Server::answering(status, &body).await;
        let mut spec = with_secret(&server.url, "hooks", "token");
        spec["metrics"][0]["failureCondition"] = json!("true");
        let outcome = play(spec, &[]).await.outcome;
        let request = &server.requests()[0];
        assert!(request.starts_with("GET /s3cret?t=s3cret "), "{request}");
        assert!(request.contains("x-token: s3cret\r\n"), "{request}");
        let shown = format!("{outcome:?}");
        assert!(!shown.contains("s3"), "{shown}");
        assert!(shown.contains("***") || body.len() > 100, "{shown}");
    }
}

#[tokio::test]
async fn only_secrets_labelled_for_hooks_are_read() {
    for (secret, key, expected) in [
        (
            "other",
            "token",
            "argument token: secret other is not readable by hooks: label it",
        ),
        ("none", "token", "argument token: no such object"),
        (
            "hooks",
            "none",
            "argument token: secret hooks has no key none",
        ),
        (
            "hooks",
            "binary",
            "argument token: secret hooks: key binary is not text",
        ),
    ] {
        let server = Server::answering("200 OK", "ok").await;
        let outcome = play(with_secret(&server.url, secret, key), &[])
            .await
            .outcome;
        let message = outcome.message.unwrap_or_default();
        assert!(message.starts_with(expected), "{message}");
        assert_eq!((outcome.phase, server.requests().len()), (Error, 0));
    }
}

fn with_authentication(url: &str, authentication: Value) -> Value {
    json!({"metrics": [{"name": "web", "provider": {"web": {
        "url": url, "authentication": authentication,
    }}}]})
}

fn key(key: &str) -> Value {
    json!({"name": "hooks", "key": key})
}

#[tokio::test]
async fn calls_can_have_basic_or_bearer_credentials() {
    for (authentication, header) in [
        (
            json!({"basic": {"username": key("user"), "password": key("token")}}),
            "Basic YW5uOnMzY3JldA==",
        ),
        (json!({"bearer": {"token": key("token")}}), "Bearer s3cret"),
    ] {
        let server = Server::answering("403 Forbidden", &format!("no: {header}")).await;
        let outcome = play(with_authentication(&server.url, authentication), &[])
            .await
            .outcome;
        let request = &server.requests()[0];
        assert!(
            request.contains(&format!("authorization: {header}\r\n")),
            "{request}"
        );
        let message = outcome.message.unwrap_or_default();
        assert!(message.ends_with("no: ***"), "{message}");
    }
}

/// The token server reports the lifetime of a token, and may report any.
#[tokio::test]
async fn a_token_that_never_expires_is_accepted() {
    let life = u64::MAX;
    let tokens = format!("{{\"access_token\":\"t0ken\",\"expires_in\":{life}}}");
    let tokens = Server::answering("200 OK", &tokens).await;
    let server = Server::answering("200 OK", "ok").await;
    let authentication = json!({"oauth2": {
        "tokenUrl": tokens.url, "clientId": key("user"), "clientSecret": key("token"),
    }});
    let Played { outcome, .. } = play(with_authentication(&server.url, authentication), &[]).await;
    assert_eq!(outcome.phase, Successful, "{outcome:?}");
}

#[tokio::test]
async fn a_token_that_is_too_long_is_an_error() {
    let long = json!({"access_token": "t".repeat(20_000), "expires_in": 3600}).to_string();
    let tokens = Server::answering("200 OK", &long).await;
    let authentication = json!({"oauth2": {
        "tokenUrl": tokens.url, "clientId": key("user"), "clientSecret": key("token"),
    }});
    let server = Server::answering("200 OK", "ok").await;
    let outcome = play(with_authentication(&server.url, authentication), &[])
        .await
        .outcome;
    let expected = "authentication: the access_token is longer than 16 KiB";
    assert_eq!(
        (outcome.phase, outcome.message.as_deref()),
        (Error, Some(expected))
    );
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn oauth2_tokens_are_requested_once_and_again_when_refused() {
    let tokens =
        Server::answering("200 OK", "{\"access_token\":\"t0ken\",\"expires_in\":3600}").await;
    let refused = response("401 Unauthorized", "", "no");
    let fine = response("200 OK", "", "ok");
    let server = Server::start(&[fine.clone(), fine, refused]).await;
    let authentication = json!({"oauth2": {
        "tokenUrl": tokens.url, "clientId": key("user"), "clientSecret": key("token"),
        "scopes": ["a", "b"],
    }});
    let spec =
        serde_json::from_value(with_authentication(&server.url, authentication)).expect("a spec");
    let mut run = HookRun::new("run", spec);
    run.metadata.namespace = Some("games".into());
    let call = Call {
        run: Arc::new(run),
        metric: 0,
        number: 1,
        resumed: false,
    };
    let probe = Probe::new(HERE, Some(cluster(&Arc::default()))).expect("a probe");
    let mut token_requests = Vec::new();
    for phase in [Successful, Successful, Error, Error] {
        assert_eq!(probe.measure(&call).await.phase, phase);
        token_requests.push(tokens.requests().len());
    }
    assert_eq!(token_requests, [1, 1, 1, 2]);
    let request = &tokens.requests()[0];
    assert!(
        request.contains("authorization: Basic YW5uOnMzY3JldA==\r\n"),
        "{request}"
    );
    assert!(
        request.ends_with("grant_type=client_credentials&scope=a+b"),
        "{request}"
    );
    assert!(server.requests()[0].contains("authorization: Bearer t0ken\r\n"));
}

#[tokio::test]
async fn a_token_server_that_fails_is_an_error_without_secrets() {
    for (status, body) in [
        ("400 Bad Request", "s3cret"),
        ("200 OK", "{\"token\":\"t0ken\"}"),
    ] {
        let tokens = Server::answering(status, body).await;
        let authentication = json!({"oauth2": {
            "tokenUrl": tokens.url, "clientId": key("user"), "clientSecret": key("token"),
        }});
        let outcome = play(
            with_authentication("http://127.0.0.1:1", authentication),
            &[],
        )
        .await
        .outcome;
        let message = outcome.message.unwrap_or_default();
        assert_eq!(outcome.phase, Error);
        assert!(message.starts_with("authentication: "), "{message}");
        assert!(
            !message.contains("s3cret") && !message.contains("t0ken"),
            "{message}"
        );
    }
}
