//! Secrets and tokens that calls need: what is read, what is sent, and what is shown.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::cluster::{MeasuredRun, cluster, measure_run};
use super::*;
use gamekeeper_core::api::HookPhase::{Error, Successful};

/// The spec of a run with a web metric whose body contains the values of these keys of a Secret.
fn spec_with_keys(url: &str, secret: &str, keys: &[&str]) -> Value {
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
    let spec = spec_with_keys(&server.url, "hooks", &["user", "token", "user"]);
    let MeasuredRun { outcome, paths, .. } = measure_run(spec, &[]).await;
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
        (&many, Some("argument a0: the metric needs more than 32 keys of Secrets")),
    ] {
        let server = Server::answering("200 OK", "ok").await;
        let spec = spec_with_keys(&server.url, "long", keys);
        let outcome = measure_run(spec, &[]).await.outcome;
        assert_eq!(outcome.message.as_deref(), expected, "{keys:?}");
        assert_eq!(server.requests().is_empty(), expected.is_some());
    }
}

/// The spec of a run with a web metric whose URL and header contain the value of this key of a Secret.
fn spec_with_secret(url: &str, secret: &str, key: &str) -> Value {
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
        ("500 Internal Server Error", format!("{}s3cret", "x".repeat(97))),
        ("200 OK", format!("{}s3cret", "x".repeat(997))),
    ] {
        let server = Server::answering(status, &body).await;
        let mut spec = spec_with_secret(&server.url, "hooks", "token");
        spec["metrics"][0]["failureCondition"] = json!("true");
        let outcome = measure_run(spec, &[]).await.outcome;
        let request = &server.requests()[0];
        assert!(request.starts_with("GET /s3cret?t=s3cret "), "{request}");
        assert!(request.contains("x-token: s3cret\r\n"), "{request}");
        let shown = format!("{outcome:?}");
        assert!(!shown.contains("s3"), "{shown}");
        assert!(shown.contains("***") || body.len() > 100, "{shown}");
    }
}

#[tokio::test]
async fn only_secrets_labeled_for_hooks_are_read() {
    for (secret, key, expected) in [
        ("other", "token", "argument token: secret other is not readable by hooks: label it"),
        ("none", "token", "argument token: no such object"),
        ("hooks", "none", "argument token: secret hooks has no key none"),
        ("hooks", "binary", "argument token: secret hooks: key binary is not text"),
    ] {
        let server = Server::answering("200 OK", "ok").await;
        let outcome = measure_run(spec_with_secret(&server.url, secret, key), &[]).await.outcome;
        let message = outcome.message.unwrap_or_default();
        assert!(message.starts_with(expected), "{message}");
        assert_eq!((outcome.phase, server.requests().len()), (Error, 0));
    }
}

fn spec_with_authentication(url: &str, authentication: Value) -> Value {
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
        let outcome =
            measure_run(spec_with_authentication(&server.url, authentication), &[]).await.outcome;
        let request = &server.requests()[0];
        assert!(request.contains(&format!("authorization: {header}\r\n")), "{request}");
        let message = outcome.message.unwrap_or_default();
        assert!(message.ends_with("no: ***"), "{message}");
    }
}

/// The token server reports the lifetime of a token, and may report any value.
#[tokio::test]
async fn a_token_that_never_expires_is_accepted() {
    let lifetime = u64::MAX;
    let tokens = format!("{{\"access_token\":\"t0ken\",\"expires_in\":{lifetime}}}");
    let tokens = Server::answering("200 OK", &tokens).await;
    let server = Server::answering("200 OK", "ok").await;
    let authentication = json!({"oauth2": {
        "tokenUrl": tokens.url, "clientId": key("user"), "clientSecret": key("token"),
    }});
    let MeasuredRun { outcome, .. } =
        measure_run(spec_with_authentication(&server.url, authentication), &[]).await;
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
    let outcome =
        measure_run(spec_with_authentication(&server.url, authentication), &[]).await.outcome;
    let expected = "authentication: the access_token is longer than 16 KiB";
    assert_eq!((outcome.phase, outcome.message.as_deref()), (Error, Some(expected)));
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn an_oauth2_token_is_reused_until_it_is_refused() {
    let tokens =
        Server::answering("200 OK", "{\"access_token\":\"t0ken\",\"expires_in\":3600}").await;
    let refused = response("401 Unauthorized", "", "no");
    let fine = response("200 OK", "", "ok");
    let server = Server::start(&[fine.clone(), fine, refused]).await;
    let authentication = json!({"oauth2": {
        "tokenUrl": tokens.url, "clientId": key("user"), "clientSecret": key("token"),
        "scopes": ["a", "b"],
    }});
    let spec = serde_json::from_value(spec_with_authentication(&server.url, authentication))
        .expect("a spec");
    let mut run = HookRun::new("run", spec);
    run.metadata.namespace = Some("games".into());
    let call = Call { run: Arc::new(run), metric: 0, number: 1, job: None };
    let probe = Probe::new(HERE, Some(cluster(&Arc::default()))).expect("a probe");
    let mut token_requests = Vec::new();
    for phase in [Successful, Successful, Error, Error] {
        assert_eq!(probe.measure(&call).await.phase, phase);
        token_requests.push(tokens.requests().len());
    }
    assert_eq!(token_requests, [1, 1, 1, 2]);
    let request = &tokens.requests()[0];
    assert!(request.contains("authorization: Basic YW5uOnMzY3JldA==\r\n"), "{request}");
    assert!(request.ends_with("grant_type=client_credentials&scope=a+b"), "{request}");
    assert!(server.requests()[0].contains("authorization: Bearer t0ken\r\n"));
}

/// RFC 6749, section 2.3.1: the server decodes the client's id and secret as a form.
#[tokio::test]
async fn client_credentials_are_form_encoded() {
    let tokens = Server::answering("200 OK", "{\"access_token\":\"t0ken\"}").await;
    let server = Server::answering("200 OK", "ok").await;
    let authentication = json!({"oauth2": {
        "tokenUrl": tokens.url, "clientId": key("reserved"), "clientSecret": key("reserved"),
    }});
    let MeasuredRun { outcome, .. } =
        measure_run(spec_with_authentication(&server.url, authentication), &[]).await;
    assert_eq!(outcome.phase, Successful, "{outcome:?}");
    let credentials = STANDARD.encode("a%2Bb%2541:a%2Bb%2541");
    let request = &tokens.requests()[0];
    assert!(request.contains(&format!("authorization: Basic {credentials}\r\n")), "{request}");
}

#[tokio::test]
async fn the_error_of_a_failed_token_request_contains_no_secrets() {
    for (status, body) in [("400 Bad Request", "s3cret"), ("200 OK", "{\"token\":\"t0ken\"}")] {
        let tokens = Server::answering(status, body).await;
        let authentication = json!({"oauth2": {
            "tokenUrl": tokens.url, "clientId": key("user"), "clientSecret": key("token"),
        }});
        let outcome =
            measure_run(spec_with_authentication("http://127.0.0.1:1", authentication), &[])
                .await
                .outcome;
        let message = outcome.message.unwrap_or_default();
        assert_eq!(outcome.phase, Error);
        assert!(message.starts_with("authentication: "), "{message}");
        assert!(!message.contains("s3cret") && !message.contains("t0ken"), "{message}");
    }
}
