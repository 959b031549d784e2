//! Prometheus metrics.

use super::*;
use gamekeeper_core::api::HookPhase;
use gamekeeper_core::api::HookPhase::{Error, Failed, Successful};

async fn query(reply: Reply, success_condition: &str) -> (Outcome, Server) {
    query_with(reply, success_condition, false).await
}

async fn query_with(
    reply: Reply,
    success_condition: &str,
    accept_partial: bool,
) -> (Outcome, Server) {
    let server = Server::start(&[reply]).await;
    let metric = json!({
        "name": "lag",
        "successCondition": success_condition,
        "provider": {"prometheus": {
            "address": format!("{}/prom/", server.url),
            "query": "sum(rate(lag{pod=\"{{ args.PodName }}\"}[1m])) + 1",
            "headers": [{"key": "x-scope", "value": "games"}],
            "acceptPartial": accept_partial,
        }},
    });
    let metric = serde_json::from_value(metric).expect("a metric");
    let args = [("PodName", "game-1")];
    (measure_with(metric, &args, HERE).await, server)
}

fn success(data: serde_json::Value) -> Reply {
    response("200 OK", "", &json!({"status": "success", "data": data}).to_string())
}

fn vector(values: &[&str]) -> Reply {
    let series = values.iter().map(|value| json!({"metric": {}, "value": [1.5, value]}));
    success(json!({"resultType": "vector", "result": series.collect::<Vec<_>>()}))
}

#[tokio::test]
async fn the_query_is_sent_in_the_form_that_prometheus_expects() {
    let (_, server) = query(vector(&["1"]), "result[0] == 1").await;
    let request = &server.requests()[0];
    let expected = "GET /prom/api/v1/query?query=sum%28rate%28lag%7Bpod%3D%22game-1%22%7D%5B1m%5D\
                    %29%29+%2B+1 HTTP/1.1";
    assert!(request.starts_with(expected), "{request}");
    assert!(request.contains("x-scope: games\r\n"), "{request}");
}

#[tokio::test]
async fn a_scalar_is_a_number_and_a_vector_or_matrix_is_a_list() {
    let scalar = success(json!({"resultType": "scalar", "result": [1.5, "0.25"]}));
    let matrix = success(json!({"resultType": "matrix", "result": [
        {"metric": {}, "values": [[1, "1"], [2, "2"]]},
        {"metric": {}, "values": [[1, "3"]]},
    ]}));
    let rows: [(Reply, &str, HookPhase, &str); 8] = [
        (scalar.clone(), "result == 0.25 && asFloat(result) < 1", Successful, "0.25"),
        (scalar, "result > 0.5", Failed, "0.25"),
        (vector(&["0.25"]), "result[0] < 0.5 && len(result) == 1", Successful, "[0.25]"),
        (vector(&["1", "2"]), "result.all(x, x < 3)", Successful, "[1,2]"),
        (vector(&["1", "2"]), "result.all(x, x < 2)", Failed, "[1,2]"),
        (vector(&["1"]), "result < 2", Error, "[1]"),
        (vector(&["+Inf"]), "isInf(result[0])", Successful, "[inf]"),
        (matrix, "result == [1, 2, 3]", Successful, "[1,2,3]"),
    ];
    for (reply, condition, phase, value) in rows {
        let (outcome, _) = query(reply, condition).await;
        assert_eq!(outcome.phase, phase, "{condition}: {outcome:?}");
        assert_eq!(outcome.value.as_deref(), Some(value), "{condition}");
    }
}

#[tokio::test]
async fn messages_mention_nan_and_an_empty_result() {
    let rows = [
        (
            vector(&["NaN"]),
            "result[0] < 0.05",
            Failed,
            "successCondition result[0] < 0.05 does not hold: result is [NaN] (the query returned NaN)",
        ),
        (
            success(json!({"resultType": "scalar", "result": [1, "NaN"]})),
            "result != 1",
            Failed,
            "successCondition result != 1 does not hold: result is NaN (the query returned NaN)",
        ),
        (
            vector(&[]),
            "result[0] < 0.05",
            Error,
            "successCondition result[0] < 0.05: there is no element 0 in a list of 0 (the query \
             returned nothing)",
        ),
        (
            vector(&[]),
            "len(result) > 0",
            Failed,
            "successCondition len(result) > 0 does not hold: result is [] (the query returned nothing)",
        ),
        (
            vector(&["1"]),
            "result < 0.05",
            Error,
            "successCondition result < 0.05: a list is compared with a number: pick an element, \
             as in result[0]",
        ),
    ];
    for (reply, condition, phase, expected) in rows {
        let (outcome, server) = query(reply, condition).await;
        assert_eq!((outcome.phase, message(&outcome, &server).as_str()), (phase, expected));
    }
    let (outcome, _) = query(vector(&["NaN"]), "isNaN(result[0]) || result[0] < 0.05").await;
    assert_eq!(outcome.phase, Successful);
    let (outcome, _) = query(vector(&[]), "len(result) == 0").await;
    assert_eq!(outcome.phase, Successful);
}

#[tokio::test]
async fn a_response_that_is_not_a_query_result_is_reported_as_such() {
    let bad = json!({"status": "error", "errorType": "bad_data", "error": "parse error: x"});
    let text = success(json!({"resultType": "string", "result": [1, "idle"]}));
    let rows = [
        (
            response("400 Bad Request", "", &bad.to_string()),
            "HTTP 400 from AT in N ms: parse error: x",
        ),
        (
            response("200 OK", "", "hello"),
            "HTTP 200 from AT in N ms: unexpected response from Prometheus: hello",
        ),
        (response("503 Service Unavailable", "", "{}"), "HTTP 503 from AT in N ms: {}"),
        (text, "HTTP 200 from AT in N ms: the query returned idle: use one that returns numbers"),
    ];
    for (reply, expected) in rows {
        let (outcome, server) = query(reply, "true").await;
        let shown = message(&outcome, &server).replace("SERVER/prom/api/v1/query", "AT");
        assert_eq!((outcome.phase, shown.as_str()), (Error, expected));
    }
}

/// Players might be on the servers that are missing from the result.
#[tokio::test]
async fn an_incomplete_result_is_an_error_unless_it_is_accepted() {
    let data = json!({"resultType": "vector", "result": []});
    let reply = |fields: serde_json::Value| {
        let mut body = json!({"status": "success", "data": data});
        json_patch::merge(&mut body, &fields);
        response("200 OK", "", &body.to_string())
    };
    let partial = [
        (json!({"isPartial": true}), "isPartial is true"),
        (json!({"isPartial": "true"}), "isPartial is true"),
        (json!({"partial": true}), "partial is true"),
        (json!({"warnings": ["store-1: no response"]}), "it has a warning: store-1: no response"),
        (json!({"warnings": ["PromQL info: x", "store-1"]}), "it has a warning: store-1"),
        (json!({"warnings": "a shard is missing"}), "it has a warning: a shard is missing"),
        (json!({"warnings": {"store-1": ["lost"]}}), "it has a warning: store-1"),
    ];
    for (fields, why) in partial {
        let (outcome, server) = query(reply(fields.clone()), "len(result) == 0").await;
        let expected = format!(
            "HTTP 200 from SERVER/prom/api/v1/query in N ms: the result may be incomplete, because \
             {why}; to use it nevertheless, set acceptPartial"
        );
        assert_eq!((outcome.phase, message(&outcome, &server)), (Error, expected));
        let (outcome, _) = query_with(reply(fields), "len(result) == 0", true).await;
        assert_eq!(outcome.phase, Successful, "{outcome:?}");
    }
    let whole = response(
        "206 Partial Content",
        "",
        &json!({"status": "success", "data": data}).to_string(),
    );
    let (outcome, _) = query(whole, "len(result) == 0").await;
    assert_eq!(outcome.phase, Error, "{outcome:?}");
    for fields in [
        json!({"isPartial": false, "partial": null}),
        json!({"warnings": []}),
        json!({"warnings": null, "infos": ["PromQL info: metric might not be a counter"]}),
        json!({"warnings": ["PromQL info: metric might not be a counter"]}),
        json!({"error": "", "errorType": ""}),
        json!({"error": null}),
    ] {
        let (outcome, _) = query(reply(fields.clone()), "len(result) == 0").await;
        assert_eq!(outcome.phase, Successful, "{fields}: {outcome:?}");
    }
}

#[tokio::test]
async fn a_failed_query_is_an_error_even_if_it_has_data() {
    let data = json!({"resultType": "vector", "result": []});
    for (body, why) in [
        (json!({"status": "error", "data": data}), "its status is error, not success"),
        (json!({"status": "error", "error": "", "data": data}), "its status is error, not success"),
        (json!({"status": "error", "errorType": "timeout", "data": data}), "timeout"),
        (json!({"status": "success", "error": "too old", "data": data}), "too old"),
        (json!({"data": data}), "the response has no status"),
        (json!({"status": "success"}), "the response has no data"),
    ] {
        let reply = response("200 OK", "", &body.to_string());
        let (outcome, server) = query_with(reply, "len(result) == 0", true).await;
        let expected = format!("HTTP 200 from SERVER/prom/api/v1/query in N ms: {why}");
        assert_eq!((outcome.phase, message(&outcome, &server)), (Error, expected));
    }
}
