//! Web metrics.

use super::*;
use gamekeeper_core::api::HookPhase::{Error, Failed, Inconclusive, Successful};

#[tokio::test]
async fn a_response_is_judged_by_the_conditions() {
    let server = Server::answering("200 OK", r#"{"name":"bryan","male":"yes","age":45}"#).await;
    let rows = [
        (json!({"successCondition": "asInt(result) < 30"}), Failed),
        (
            json!({"successCondition": "asInt(result) > 30"}),
            Successful,
        ),
        (json!({"failureCondition": "asInt(result) > 30"}), Failed),
        (
            json!({"failureCondition": "asInt(result) < 30"}),
            Successful,
        ),
        (
            json!({"successCondition": "value < 30", "failureCondition": "value > 50"}),
            Inconclusive,
        ),
        (
            json!({"successCondition": "value > 30", "failureCondition": "value > 40"}),
            Failed,
        ),
        (json!({}), Successful),
        (json!({"successCondition": "result < 30"}), Error),
        (json!({"successCondition": "nosuch(result) || true"}), Error),
        (
            json!({"successCondition": "true", "failureCondition": "result.all(x, x)"}),
            Error,
        ),
    ];
    for (conditions, phase) in rows {
        let web = json!({"url": server.url, "jsonPath": "{$.age}"});
        let outcome = measure(metric(web, conditions.clone())).await;
        assert_eq!(outcome.phase, phase, "{conditions}: {outcome:?}");
        assert_eq!(outcome.value.as_deref(), Some("45"), "{conditions}");
        assert_eq!(
            outcome.message.is_none(),
            phase == Successful,
            "{conditions}"
        );
    }
}

#[tokio::test]
async fn messages_show_the_measured_value_and_the_condition() {
    let server = Server::answering("200 OK", r#"{"age":45}"#).await;
    let rows = [
        (
            json!({"successCondition": "asInt(result) < 30"}),
            "successCondition asInt(result) < 30 does not hold: result is 45",
        ),
        (
            json!({"failureCondition": "value > 30"}),
            "failureCondition value > 30 holds: result is 45",
        ),
        (
            json!({"successCondition": "value < 30", "failureCondition": "value > 50"}),
            "neither successCondition value < 30 nor failureCondition value > 50 holds: result is 45",
        ),
        (
            json!({"successCondition": "result < 30"}),
            "successCondition result < 30: result is text, and is compared with a number: write \
             asInt(result) or asFloat(result)",
        ),
    ];
    for (conditions, expected) in rows {
        let web = json!({"url": server.url, "jsonPath": "{$.age}"});
        let outcome = measure(metric(web, conditions)).await;
        assert_eq!(message(&outcome, &server), expected);
    }
}

#[tokio::test]
async fn only_a_2xx_response_can_be_a_success() {
    for (status, body, expected) in [
        (
            "503 Service Unavailable",
            "draining",
            "HTTP 503 from SERVER/ in N ms: draining",
        ),
        (
            "500 Internal Server Error",
            "",
            "HTTP 500 from SERVER/ in N ms",
        ),
        (
            "404 Not Found",
            "{\"age\":45}\n",
            "HTTP 404 from SERVER/ in N ms: {\"age\":45}",
        ),
        ("304 Not Modified", "", "HTTP 304 from SERVER/ in N ms"),
    ] {
        let server = Server::answering(status, body).await;
        let outcome = measure(metric(json!({"url": server.url}), json!({}))).await;
        assert_eq!(outcome.phase, Error, "{status}");
        assert_eq!(message(&outcome, &server), expected);
    }
}

#[tokio::test]
async fn a_response_that_the_path_does_not_match_is_an_error() {
    for (body, expected) in [
        (
            "draining",
            "HTTP 200 from SERVER/ in N ms: the response is not JSON: draining",
        ),
        (
            "{}",
            "HTTP 200 from SERVER/ in N ms: jsonPath {$.age}: key age is not found",
        ),
    ] {
        let server = Server::answering("200 OK", body).await;
        let web = json!({"url": server.url, "jsonPath": "{$.age}"});
        let outcome = measure(metric(web, json!({}))).await;
        assert_eq!(
            (outcome.phase, message(&outcome, &server)),
            (Error, expected.into())
        );
    }
}

#[tokio::test]
async fn without_a_path_the_whole_response_is_the_result() {
    for (body, condition) in [
        ("ok\n", "result == 'ok' && value == 'ok'"),
        ("45", "result == '45' && value == 45"),
        ("{\"age\":45}", "result.age == 45"),
        ("[1,2]", "len(result) == 2"),
        ("", "result == ''"),
        ("\u{fc}ber", "len(result) == 4"),
    ] {
        for path in [json!(null), json!(""), json!("{$}")] {
            let server = Server::answering("200 OK", body).await;
            let web = json!({"url": server.url, "jsonPath": path});
            let outcome = measure(metric(web, json!({"successCondition": condition}))).await;
            assert_eq!(outcome.phase, Successful, "{body}: {outcome:?}");
        }
    }
}

#[tokio::test]
async fn the_result_of_a_filter_is_an_element_and_not_a_list() {
    let server = Server::answering("200 OK", r#"{"p":[{"s":"idle","n":"bob"}]}"#).await;
    for (condition, phase) in [
        ("result == 'bob'", Successful),
        ("len(value) == 1", Successful),
        ("len(result) >= 3", Error),
    ] {
        let web = json!({"url": server.url, "jsonPath": "{$.p[?(@.s=='idle')].n}"});
        let outcome = measure(metric(web, json!({"successCondition": condition}))).await;
        assert_eq!(outcome.phase, phase, "{condition}: {outcome:?}");
    }
}

#[tokio::test]
async fn requests_are_built_from_the_fields_of_the_metric() {
    let server = Server::answering("200 OK", "ok").await;
    let args = [("PodIP", "127.0.0.1"), ("team", "red")];
    let web = json!({
        "url": server.url.replace("127.0.0.1", "{{ args.PodIP }}") + "/drain?team={{args.team}}",
        "method": "POST",
        "headers": [{"key": "x-team", "value": "team {{ args.team }}"}],
        "jsonBody": {"team": ["{{ args.team }}", 1]},
    });
    let outcome = measure_with(metric(web, json!({})), &args, HERE).await;
    assert_eq!(outcome.phase, Successful, "{outcome:?}");
    let web = json!({"url": server.url, "method": "PUT", "body": "go {{ args.team }}"});
    measure_with(metric(web, json!({})), &args, HERE).await;

    let requests = server.requests();
    assert!(
        requests[0].starts_with("POST /drain?team=red HTTP/1.1\r\n"),
        "{}",
        requests[0]
    );
    for line in [
        "x-team: team red\r\n",
        "content-type: application/json\r\n",
        "idempotency-key: uid-1/ready/2\r\n",
        "user-agent: gamekeeper/",
        "\r\n\r\n{\"team\":[\"red\",1]}",
    ] {
        assert!(requests[0].contains(line), "{line} in {}", requests[0]);
    }
    assert!(
        requests[1].starts_with("PUT / HTTP/1.1\r\n"),
        "{}",
        requests[1]
    );
    assert!(requests[1].ends_with("\r\n\r\ngo red"), "{}", requests[1]);
}

/// A value of 1 MB that is filled in 6,000 times would be 6 GB.
#[tokio::test]
async fn a_text_that_contains_a_long_value_many_times_is_an_error() {
    let server = Server::answering("200 OK", "ok").await;
    let (value, body) = ("x".repeat(1_000_000), "{{ args.long }}".repeat(6_000));
    let web = |fields: serde_json::Value| {
        let mut web = json!({"url": server.url, "method": "POST"});
        let all = web.as_object_mut().expect("an object");
        all.extend(fields.as_object().expect("an object").clone());
        metric(web, json!({}))
    };
    for (fields, field) in [
        (json!({"body": body}), "body"),
        (json!({"jsonBody": {"a": body}}), "jsonBody"),
        (
            json!({"headers": [{"key": "a", "value": body}]}),
            "header a",
        ),
        (
            json!({"headers": [{"key": "a", "value": "{{ args.long }}"}], "body": "{{ args.long }}"}),
            "header a",
        ),
    ] {
        let outcome = measure_with(web(fields), &[("long", &value)], HERE).await;
        let expected = format!(
            "{field}: it is too long with its arguments filled in: the strings of a metric may have 1 MiB in total"
        );
        let message = outcome.message.unwrap_or_default();
        assert_eq!((outcome.phase, message), (Error, expected));
    }
    assert!(server.requests().is_empty());
    let once = web(json!({"body": "{{ args.long }}"}));
    let outcome = measure_with(once, &[("long", &value)], HERE).await;
    assert_eq!(outcome.phase, Successful, "{outcome:?}");
    assert!(server.requests()[0].ends_with(&value));
}

#[tokio::test]
async fn a_metric_whose_call_cannot_be_made_says_why() {
    let rows = [
        (
            json!({"url": "http://{{ args.PodIP }}:9091"}),
            "url: argument PodIP has no value",
        ),
        (
            json!({"url": "ftp://127.0.0.1/"}),
            "ftp is not supported: use http or https",
        ),
        (json!({"url": "no url"}), "url no url: "),
        (
            json!({"url": "http://127.0.0.1", "headers": [{"key": "a b", "value": "c"}]}),
            "header \"a b\" is not a header name",
        ),
        (
            json!({"url": "http://127.0.0.1", "headers": [{"key": "a", "value": "se\ncret"}]}),
            "header a: its value contains characters that are not allowed in a header",
        ),
        (
            json!({"url": "http://127.0.0.1", "body": "{{ x }}"}),
            "body: {{ x }} is not an argument",
        ),
    ];
    for (web, expected) in rows {
        let outcome = measure(metric(web, json!({}))).await;
        let message = outcome.message.unwrap_or_default();
        assert_eq!(outcome.phase, Error);
        assert!(message.contains(expected), "{message}");
        assert!(!message.contains("cret"), "{message}");
    }
    let nothing = measure(Metric {
        name: "ready".into(),
        ..Metric::default()
    })
    .await;
    assert_eq!(
        nothing.message.as_deref(),
        Some("metric ready has no provider: add one")
    );
}

#[tokio::test]
async fn a_refused_connection_is_an_error_that_says_so() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!(
        "http://user:pass@{}/x?token=1",
        listener.local_addr().expect("an address")
    );
    drop(listener);
    let outcome = measure(metric(json!({"url": url}), json!({}))).await;
    let message = outcome.message.unwrap_or_default();
    assert!(
        message.starts_with("no response from http://127.0.0.1:"),
        "{message}"
    );
    assert!(message.contains("Connection refused"), "{message}");
    assert!(
        !message.contains("pass") && !message.contains("token"),
        "{message}"
    );
}

#[tokio::test]
async fn calls_to_servers_that_send_too_slowly_or_too_much_are_cut_off() {
    let slow = json!({"timeoutSeconds": 1});
    for (answer, expected) in [
        (Reply::Trickle, "no response from SERVER/ within 1 s"),
        (Reply::Silence, "no response from SERVER/ within 1 s"),
        (
            Reply::Endless,
            "no response from SERVER/ in N ms: the response is longer than 1 MiB",
        ),
    ] {
        let server = Server::start(&[answer]).await;
        let mut web = slow.clone();
        web["url"] = json!(server.url);
        let started = std::time::Instant::now();
        let outcome = measure(metric(web, json!({}))).await;
        assert_eq!(
            (outcome.phase, message(&outcome, &server)),
            (Error, expected.into())
        );
        assert!(started.elapsed() < Duration::from_secs(3));
    }
}

/// If connections were kept, servers could exhaust the process's file descriptors with abandoned ones.
#[tokio::test]
async fn a_connection_ends_with_its_call() {
    let kept = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok".to_vec();
    let server = Server::start(&[Reply::Kept(kept)]).await;
    let probe = Probe::new(HERE, None).expect("a probe");
    let spec = HookRunSpec {
        metrics: vec![metric(json!({"url": server.url}), json!({}))],
        ..HookRunSpec::default()
    };
    let call = Call {
        run: Arc::new(HookRun::new("run", spec)),
        metric: 0,
        number: 1,
        resumed: false,
    };
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
        let phase = if expected.is_empty() {
            Successful
        } else {
            Error
        };
        assert_eq!(outcome.phase, phase, "{lines} kB");
    }
}

#[tokio::test]
async fn a_truncated_response_is_an_error() {
    let whole = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{\"age\":45}".to_vec();
    for bytes in [
        whole,
        Vec::new(),
        b"HTTP/1.1 200".to_vec(),
        b"nonsense\r\n\r\n".to_vec(),
    ] {
        let server = Server::start(&[Reply::Bytes(bytes)]).await;
        let outcome = measure(metric(json!({"url": server.url}), json!({}))).await;
        assert_eq!(outcome.phase, Error, "{outcome:?}");
        assert!(message(&outcome, &server).starts_with("no response from SERVER/ in N ms: "));
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
        let here = response("200 OK", "", "fine");
        let server = Server::start(&[response(status, &location, ""), here]).await;
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
        let message = outcome
            .message
            .expect("a message")
            .replace(&other.url, "OTHER");
        let code = &status[..3];
        let expected = format!(
            "HTTP {code} redirects the body to another server, OTHER: set url to that server if it should \
             receive the body"
        );
        assert!(message.ends_with(&expected), "{message}");
        assert!(other.requests().is_empty(), "{status}: it was called");
    }
}

/// A terminal would execute control characters.
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
    let to = |location: &str| response("302 Found", &format!("location: {location}\r\n"), "");
    let server = Server::start(&[to("/again"), to(&target.url)]).await;
    let web = json!({
        "url": server.url, "method": "POST", "body": "b",
        "headers": [{"key": "private-token", "value": "s3cret"}],
    });
    let outcome = measure(metric(
        web,
        json!({"successCondition": "result == 'there'"}),
    ))
    .await;
    assert_eq!(outcome.phase, Successful, "{outcome:?}");
    assert!(
        server.requests()[1].starts_with("GET /again "),
        "{}",
        server.requests()[1]
    );
    assert!(
        server.requests()[1].contains("s3cret"),
        "a redirect to the same host keeps the headers"
    );
    assert!(
        !target.requests()[0].contains("s3cret"),
        "{}",
        target.requests()[0]
    );

    let server = Server::start(&[to("http://169.254.169.254/latest/meta-data")]).await;
    let outcome = measure(metric(json!({"url": server.url}), json!({}))).await;
    assert_eq!(
        (outcome.phase, message(&outcome, &server)),
        (
            Error,
            "no response from SERVER/ in N ms: 169.254.169.254 is refused: it is a link-local or \
             metadata address"
                .into()
        )
    );

    let server = Server::start(&[to("/again")]).await;
    let outcome = measure(metric(json!({"url": server.url}), json!({}))).await;
    assert!(
        message(&outcome, &server).ends_with("more than 5 redirects"),
        "{outcome:?}"
    );
}

#[tokio::test]
async fn refused_addresses_are_not_called_unless_allowed() {
    let web = json!({"url": "http://169.254.169.254:1/", "timeoutSeconds": 1});
    let outcome = measure(metric(web.clone(), json!({}))).await;
    assert!(outcome.message.unwrap_or_default().contains("is refused"));
    let allowed = HttpOptions {
        allow_link_local: true,
        ..HttpOptions::default()
    };
    let outcome = measure_with(metric(web, json!({})), &[], allowed).await;
    assert!(!outcome.message.unwrap_or_default().contains("is refused"));
}

/// The operator serves its own metrics there, and other containers of its pod may serve what is meant only for the
/// operator.
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
        assert!(
            message.ends_with("is refused: it is a loopback address"),
            "{url}: {message}"
        );
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
