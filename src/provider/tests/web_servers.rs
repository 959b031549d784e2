//! Calls to servers that fail, misbehave or attack: connections, bounds, redirects and refused addresses.

use super::*;
use gamekeeper_core::api::HookPhase::{Error, Successful};

#[tokio::test]
async fn a_refused_connection_is_reported_as_such() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://user:pass@{}/x?token=1", listener.local_addr().expect("an address"));
    drop(listener);
    let outcome = measure(metric(json!({"url": url}), json!({}))).await;
    let message = outcome.message.unwrap_or_default();
    assert!(message.starts_with("no response from http://127.0.0.1:"), "{message}");
    assert!(message.contains("Connection refused"), "{message}");
    assert!(!message.contains("pass") && !message.contains("token"), "{message}");
}

#[tokio::test]
async fn calls_to_servers_that_send_too_slowly_or_too_much_are_cut_off() {
    let slow = json!({"timeoutSeconds": 1});
    for (answer, expected) in [
        (Reply::Trickle, "no response from SERVER/ within 1 s"),
        (Reply::Silence, "no response from SERVER/ within 1 s"),
        (Reply::Endless, "HTTP 200 from SERVER/ in N ms: the response is longer than 1 MiB"),
    ] {
        let server = Server::start(&[answer]).await;
        let mut web = slow.clone();
        web["url"] = json!(server.url);
        let started = std::time::Instant::now();
        let outcome = measure(metric(web, json!({}))).await;
        assert_eq!((outcome.phase, message(&outcome, &server)), (Error, expected.into()));
        assert!(started.elapsed() < Duration::from_secs(3));
    }
}

/// If connections were kept, abandoned ones could exhaust the process's file descriptors.
#[tokio::test]
async fn a_connection_ends_with_its_call() {
    let kept = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok".to_vec();
    let server = Server::start(&[Reply::Kept(kept)]).await;
    let probe = Probe::new(HERE, None).expect("a probe");
    let spec = HookRunSpec {
        metrics: vec![metric(json!({"url": server.url}), json!({}))],
        ..HookRunSpec::default()
    };
    let call = Call { run: Arc::new(HookRun::new("run", spec)), metric: 0, number: 1, job: None };
    assert_eq!(probe.measure(&call).await.phase, Successful);
    let ended = async {
        while server.requests().len() < 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let ended = tokio::time::timeout(Duration::from_secs(5), ended).await;
    ended.expect("the connection has ended");
    assert_eq!(server.requests()[1], "Ok(0)");
}

#[tokio::test]
async fn the_head_of_a_response_is_bounded() {
    let head = |lines: usize| format!("x-long: {}\r\n", "x".repeat(1_000)).repeat(lines);
    for (lines, expected) in [(20, ""), (90, "message head is too large")] {
        let server = Server::start(&[response("200 OK", &head(lines), "ok")]).await;
        let outcome = measure(metric(json!({"url": server.url}), json!({}))).await;
        let message = outcome.message.clone().unwrap_or_default();
        assert!(message.ends_with(expected), "{lines} kB: {outcome:?}");
        let phase = if expected.is_empty() { Successful } else { Error };
        assert_eq!(outcome.phase, phase, "{lines} kB");
    }
}

#[tokio::test]
async fn a_truncated_or_malformed_response_is_an_error() {
    let short_body = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{\"age\":45}".to_vec();
    let none = "no response from SERVER/ in N ms: ";
    for (bytes, expected) in [
        (short_body, "HTTP 200 from SERVER/ in N ms: the response is incomplete: "),
        (Vec::new(), none),
        (b"HTTP/1.1 200".to_vec(), none),
        (b"nonsense\r\n\r\n".to_vec(), none),
    ] {
        let server = Server::start(&[Reply::Bytes(bytes)]).await;
        let outcome = measure(metric(json!({"url": server.url}), json!({}))).await;
        assert_eq!(outcome.phase, Error, "{outcome:?}");
        assert!(message(&outcome, &server).starts_with(expected), "{outcome:?}");
    }
}

/// A body may contain secrets that are meant only for the first server.
#[tokio::test]
async fn a_redirect_sends_no_body_to_another_server() {
    for (status, url) in [
        ("307 Temporary Redirect", "/other"),
        ("308 Permanent Redirect", "/other"),
        ("302 Found", "OTHER/"),
        ("303 See Other", "OTHER/"),
    ] {
        let other = Server::answering("200 OK", "fine").await;
        let location = format!("location: {}\r\n", url.replace("OTHER", &other.url));
        let final_response = response("200 OK", "", "fine");
        let server = Server::start(&[response(status, &location, ""), final_response]).await;
        let web = json!({"url": server.url, "method": "POST", "body": "secret"});
        let outcome = measure(metric(web, json!({}))).await;
        assert_eq!(outcome.phase, Successful, "{status} to {url}: {outcome:?}");
        assert!(!other.requests().concat().contains("secret"), "{status}");
    }
    for (status, method) in [
        ("307 Temporary Redirect", "POST"),
        ("308 Permanent Redirect", "PUT"),
        ("302 Found", "GET"),
    ] {
        let other = Server::answering("200 OK", "fine").await;
        let location = format!("location: {}/\r\n", other.url);
        let server = Server::start(&[response(status, &location, "")]).await;
        let web = json!({"url": server.url, "method": method, "body": "secret"});
        let outcome = measure(metric(web, json!({}))).await;
        assert_eq!(outcome.phase, Error, "{status}");
        let message = outcome.message.expect("a message").replace(&other.url, "OTHER");
        let code = &status[..3];
        let expected = format!(
            "HTTP {code} redirects the body to another server, OTHER: set url to that server if it should \
             receive the body"
        );
        assert!(message.ends_with(&expected), "{message}");
        assert!(other.requests().is_empty(), "{status}: the other server was called");
    }
}

/// A terminal would act on control characters.
#[tokio::test]
async fn a_response_cannot_control_a_terminal() {
    let odd = "a\u{1b}[2J\u{1b}]0;title\u{7}b\u{9b}31m\r\nc";
    let escaped = r"a\u{1b}[2J\u{1b}]0;title\u{7}b\u{9b}31m\r\nc";
    let json = json!({"text": odd, "list": [odd]}).to_string();
    let server = Server::answering("200 OK", &json).await;
    for path in ["{$.text}", "{$.list}", ""] {
        let web = json!({"url": server.url, "jsonPath": path});
        let conditions = json!({"successCondition": "len(value) == 99"});
        let outcome = measure(metric(web, conditions)).await;
        let (value, message) = (outcome.value.expect("a value"), outcome.message);
        if path == "{$.text}" {
            assert_eq!(value, escaped);
        }
        for text in [value, message.expect("a message")] {
            assert!(!text.contains(char::is_control), "{path}: {text:?}");
        }
    }
    let text = Server::answering("200 OK", odd).await;
    let outcome = measure(metric(json!({"url": text.url}), json!({}))).await;
    assert_eq!(outcome.value.as_deref(), Some(escaped));
}

#[tokio::test]
async fn redirects_are_followed_but_not_to_refused_addresses() {
    let target = Server::answering("200 OK", "there").await;
    let redirect_to =
        |location: &str| response("302 Found", &format!("location: {location}\r\n"), "");
    let server = Server::start(&[redirect_to("/again"), redirect_to(&target.url)]).await;
    let web = json!({
        "url": server.url, "method": "POST", "body": "b",
        "headers": [{"key": "private-token", "value": "s3cret"}],
    });
    let outcome = measure(metric(web, json!({"successCondition": "result == 'there'"}))).await;
    assert_eq!(outcome.phase, Successful, "{outcome:?}");
    assert!(server.requests()[1].starts_with("GET /again "), "{}", server.requests()[1]);
    assert!(
        server.requests()[1].contains("s3cret"),
        "a redirect to the same host keeps the headers"
    );
    assert!(!target.requests()[0].contains("s3cret"), "{}", target.requests()[0]);

    let server = Server::start(&[redirect_to("http://169.254.169.254/latest/meta-data")]).await;
    let outcome = measure(metric(json!({"url": server.url}), json!({}))).await;
    assert_eq!(
        (outcome.phase, message(&outcome, &server)),
        (
            Error,
            "no response from SERVER/ in N ms: 169.254.169.254 is refused: it is a link-local or \
             metadata address, which an administrator can allow with the chart's value \
             hooks.allowLinkLocal"
                .into()
        )
    );

    let server = Server::start(&[redirect_to("/again")]).await;
    let outcome = measure(metric(json!({"url": server.url}), json!({}))).await;
    assert!(message(&outcome, &server).ends_with("more than 5 redirects"), "{outcome:?}");
    assert_eq!(server.requests().len(), 6);
}

#[tokio::test]
async fn refused_addresses_are_not_called_unless_allowed() {
    let web = json!({"url": "http://169.254.169.254:1/", "timeoutSeconds": 1});
    let outcome = measure(metric(web.clone(), json!({}))).await;
    assert!(outcome.message.unwrap_or_default().contains("is refused"));
    let allowed = HttpOptions { allow_link_local: true, ..HttpOptions::default() };
    let outcome = measure_with(metric(web, json!({})), &[], allowed).await;
    assert!(!outcome.message.unwrap_or_default().contains("is refused"));
}

/// The operator serves its own metrics on loopback addresses, and other containers of its pod may serve what is meant
/// only for the operator.
#[tokio::test]
async fn the_operator_itself_is_not_called_unless_allowed() {
    let server = Server::answering("200 OK", "metrics").await;
    let redirects = response("302 Found", &format!("location: {}\r\n", server.url), "");
    let redirects = Server::start(&[redirects]).await;
    for url in [
        server.url.clone(),
        server.url.replace("127.0.0.1", "localhost"),
        server.url.replace("127.0.0.1", "0.0.0.0"),
        redirects.url.clone(),
    ] {
        let metric = metric(json!({"url": url}), json!({}));
        let outcome = measure_with(metric.clone(), &[], HttpOptions::default()).await;
        let message = outcome.message.unwrap_or_default();
        let refused = "is refused: it is a loopback address, which an administrator can allow with the \
                       chart's value hooks.allowLoopback";
        assert!(message.ends_with(refused), "{url}: {message}");
        assert!(server.requests().is_empty(), "{url} was called");
    }
    let outcome = measure(metric(json!({"url": redirects.url}), json!({}))).await;
    assert_eq!(outcome.phase, Successful, "{outcome:?}");
}

#[tokio::test]
async fn json_that_would_fill_the_memory_is_not_parsed() {
    let body = format!("[{}]", vec!["{\"\":1}"; 100_000].join(","));
    let server = Server::answering("200 OK", &body).await;
    let outcome = measure(metric(json!({"url": server.url}), json!({}))).await;
    assert_eq!(
        message(&outcome, &server),
        "HTTP 200 from SERVER/ in N ms: the response's JSON is too complex: return less"
    );
}
