//! Web metrics.

use super::*;
use gamekeeper_core::api::HookPhase::{Error, Failed, Inconclusive, Successful};

#[tokio::test]
async fn a_response_is_judged_by_the_conditions() {
    let server = Server::answering("200 OK", r#"{"name":"bryan","male":"yes","age":45}"#).await;
    let rows = [
        (json!({"successCondition": "asInt(result) < 30"}), Failed),
        (json!({"successCondition": "asInt(result) > 30"}), Successful),
        (json!({"failureCondition": "asInt(result) > 30"}), Failed),
        (json!({"failureCondition": "asInt(result) < 30"}), Successful),
        (json!({"successCondition": "value < 30", "failureCondition": "value > 50"}), Inconclusive),
        (json!({"successCondition": "value > 30", "failureCondition": "value > 40"}), Failed),
        (json!({}), Successful),
        (json!({"successCondition": "result < 30"}), Error),
        (json!({"successCondition": "nosuch(result) || true"}), Error),
        (json!({"successCondition": "true", "failureCondition": "result.all(x, x)"}), Error),
    ];
    for (conditions, phase) in rows {
        let web = json!({"url": server.url, "jsonPath": "{$.age}"});
        let outcome = measure(metric(web, conditions.clone())).await;
        assert_eq!(outcome.phase, phase, "{conditions}: {outcome:?}");
        assert_eq!(outcome.value.as_deref(), Some("45"), "{conditions}");
        assert_eq!(outcome.message.is_none(), phase == Successful, "{conditions}");
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
            json!({"successCondition": "value < 30", "failureCondition": ""}),
            "successCondition value < 30 does not hold: result is 45",
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
        ("503 Service Unavailable", "draining", "HTTP 503 from SERVER/ in N ms: draining"),
        ("500 Internal Server Error", "", "HTTP 500 from SERVER/ in N ms"),
        ("404 Not Found", "{\"age\":45}\n", "HTTP 404 from SERVER/ in N ms: {\"age\":45}"),
        ("304 Not Modified", "", "HTTP 304 from SERVER/ in N ms"),
    ] {
        let server = Server::answering(status, body).await;
        let outcome = measure(metric(json!({"url": server.url}), json!({}))).await;
        assert_eq!(outcome.phase, Error, "{status}");
        assert_eq!(message(&outcome, &server), expected);
    }
}

#[tokio::test]
async fn a_response_that_does_not_match_the_path_is_an_error() {
    for (body, expected) in [
        ("draining", "HTTP 200 from SERVER/ in N ms: the response is not JSON: draining"),
        (
            "{}",
            "HTTP 200 from SERVER/ in N ms: jsonPath {$.age}: key age is not found in an empty object",
        ),
    ] {
        let server = Server::answering("200 OK", body).await;
        let web = json!({"url": server.url, "jsonPath": "{$.age}"});
        let outcome = measure(metric(web, json!({}))).await;
        assert_eq!((outcome.phase, message(&outcome, &server)), (Error, expected.into()));
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
    assert!(requests[0].starts_with("POST /drain?team=red HTTP/1.1\r\n"), "{}", requests[0]);
    for line in [
        "x-team: team red\r\n",
        "content-type: application/json\r\n",
        "idempotency-key: uid-1/ready/2\r\n",
        "user-agent: gamekeeper/",
        "\r\n\r\n{\"team\":[\"red\",1]}",
    ] {
        assert!(requests[0].contains(line), "{line} in {}", requests[0]);
    }
    assert!(requests[1].starts_with("PUT / HTTP/1.1\r\n"), "{}", requests[1]);
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
        (json!({"headers": [{"key": "a", "value": body}]}), "header a"),
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
    let short = web(json!({"body": "{{ args.long }}", "timeoutSeconds": 60}));
    let outcome = measure_with(short, &[("long", &value)], HERE).await;
    assert_eq!(outcome.phase, Successful, "{outcome:?}");
    assert!(server.requests()[0].ends_with(&value));
}

#[tokio::test]
async fn the_message_explains_why_a_call_cannot_be_made() {
    let rows = [
        (json!({"url": "http://{{ args.PodIP }}:9091"}), "url: argument PodIP has no value"),
        (json!({"url": "ftp://127.0.0.1/"}), "ftp is not supported: use http or https"),
        (json!({"url": "no url"}), "url no url: "),
        (
            json!({"url": "http://127.0.0.1", "headers": [{"key": "a b", "value": "c"}]}),
            "header \"a b\" is not a header name",
        ),
        (
            json!({"url": "http://127.0.0.1", "headers": [{"key": "a", "value": "se\ncret"}]}),
            "header a: its value contains characters that are not allowed in a header",
        ),
        (json!({"url": "http://127.0.0.1", "body": "{{ x }}"}), "body: {{ x }} is not an argument"),
    ];
    for (web, expected) in rows {
        let outcome = measure(metric(web, json!({}))).await;
        let message = outcome.message.unwrap_or_default();
        assert_eq!(outcome.phase, Error);
        assert!(message.contains(expected), "{message}");
        assert!(!message.contains("cret"), "{message}");
    }
    let outcome = measure(Metric { name: "ready".into(), ..Metric::default() }).await;
    assert_eq!(outcome.message.as_deref(), Some("metric ready has no provider: add one"));
}
