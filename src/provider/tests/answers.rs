//! Odd but right answers of servers, and wrong ones: what each must end as. A server sends them over a socket, byte by
//! byte.

use super::*;
use gamekeeper_core::api::HookPhase;
use gamekeeper_core::api::HookPhase::{Error, Failed, Successful};

/// What the metric asks for.
enum Ask {
    /// A web call; the path and the condition, each empty if there is none.
    Web(&'static str, &'static str),
    /// A query, and the condition.
    Query(&'static str),
}

/// An answer, and what it must end as.
struct Row {
    name: &'static str,
    answer: Vec<u8>,
    ask: Ask,
    phase: HookPhase,
    /// The message; see [`reason`].
    message: &'static str,
}

const fn row(
    name: &'static str,
    answer: Vec<u8>,
    ask: Ask,
    phase: HookPhase,
    message: &'static str,
) -> Row {
    Row { name, answer, ask, phase, message }
}

/// An answer with status 200, these header lines, and a content length.
fn answer(headers: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    let length = body.len();
    let head = format!("HTTP/1.1 200 OK\r\n{headers}content-length: {length}\r\n\r\n");
    [head.as_bytes(), body].concat()
}

fn raw(bytes: impl AsRef<[u8]>) -> Vec<u8> {
    bytes.as_ref().to_vec()
}

const EMPTY: &str = r#"{"players":0}"#;
/// Asks for the players, of whom there are none.
const PLAYERS: Ask = Ask::Web("{$.players}", "value == 0");
/// Asks for the whole text.
const TEXT: Ask = Ask::Web("", "result == 'idle'");
/// Asks only for the status.
const STATUS: Ask = Ask::Web("", "");

/// Headers that say nothing, or nothing true, about a body that is plain.
fn headers() -> Vec<Row> {
    let harmless = [
        "",
        "content-encoding: identity\r\n",
        "Content-Encoding: IDENTITY\r\n",
        "content-encoding: identity, identity\r\n",
        "content-encoding:\r\n",
        "content-encoding: none\r\n",
        "content-encoding: UTF-8\r\n",
        "content-encoding: \"utf-8\"\r\n",
        "content-encoding: charset=utf-8\r\n",
        "content-encoding: ISO-8859-1\r\n",
        "content-encoding: aws-chunked\r\n",
        "content-encoding: application/json\r\n",
        "content-type: application/json; charset=UTF-8\r\n",
        "content-type: application/json;charset=\"utf-8\"\r\n",
        "Content-Type: APPLICATION/JSON; CHARSET=Utf-8\r\n",
        "content-type: text/html\r\n",
        "content-type: image/png\r\n",
        "content-type: application/json; charset=iso-8859-1\r\n",
        "content-type: ;;;\r\n",
        "content-type: \u{e4}\r\n",
        "x-server : built by hand\r\n",
        "x-folded: a\r\n b\r\n",
        "x-empty:\r\n",
        "CONNECTION: close\r\n",
        "server: d\u{e9}j\u{e0}\r\n",
    ];
    let rows =
        harmless.map(|headers| row(headers, answer(headers, EMPTY), PLAYERS, Successful, ""));
    let mut rows = Vec::from(rows);
    for (headers, message) in [
        (
            "content-encoding: gzip\r\n",
            "the response is compressed (gzip), although the request accepts only identity; disable compression in \
             the server",
        ),
        (
            "content-encoding: identity, Br\r\n",
            "the response is compressed (Br), although the request accepts only identity; disable compression in the \
             server",
        ),
        (
            "content-encoding: rot13\r\n",
            "the response has an unknown coding (content-encoding: rot13); send it without",
        ),
    ] {
        rows.push(row(headers, answer(headers, EMPTY), PLAYERS, Error, message));
    }
    rows
}

/// Bodies that are JSON, nearly JSON, or something else.
fn bodies() -> Vec<Row> {
    let json =
        |name, body: &[u8], phase, message| row(name, answer("", body), PLAYERS, phase, message);
    vec![
        json("a byte order mark", b"\xEF\xBB\xBF{\"players\":0}", Successful, ""),
        json(
            "a byte order mark and a line break",
            b"\xEF\xBB\xBF\r\n{\"players\":0}",
            Successful,
            "",
        ),
        json("line breaks around it", b"\r\n {\"players\":0}\r\n\n", Successful, ""),
        json("a field twice: the last counts", b"{\"players\":9,\"players\":0}", Successful, ""),
        json("a decimal", b"{\"players\":0.0}", Successful, ""),
        json("minus zero", b"{\"players\":-0}", Successful, ""),
        json("an exponent", b"{\"players\":0E+5}", Successful, ""),
        json("escaped names", b"{\"pl\\u0061yers\":0}", Successful, ""),
        json("another charset elsewhere", b"{\"map\":\"Z\xFCrich\",\"players\":0}", Successful, ""),
        json("half a character elsewhere", b"{\"map\":\"\xE2\x82\",\"players\":0}", Successful, ""),
        row(
            "another charset where it is read",
            answer("", b"{\"map\":\"Z\xFCrich\"}"),
            Ask::Web("{$.map}", "result != 'x'"),
            Error,
            "byte 0xFC at offset 9 of the response is not UTF-8: send UTF-8, or JSON of which jsonPath selects a single \
             value without such bytes",
        ),
        row(
            "another charset where it is read, after a byte order mark",
            answer("", b"\xEF\xBB\xBF{\"map\":\"Z\xFCrich\"}"),
            Ask::Web("{$.map}", "result != 'x'"),
            Error,
            "byte 0xFC at offset 12 of the response is not UTF-8: send UTF-8, or JSON of which jsonPath selects a single \
             value without such bytes",
        ),
        row(
            "another charset that is shown",
            answer("", b"{\"map\":\"Z\xFC\"}"),
            Ask::Web("{$.map}", ""),
            Successful,
            "",
        ),
        json("UTF-16 with a mark", b"\xFF\xFE{\0}\0", Error, "the response is UTF-16: send UTF-8"),
        json("UTF-16 without a mark", b"{\0\"\0p\0", Error, "the response is UTF-16: send UTF-8"),
        json(
            "UTF-32 without a mark",
            b"\0\0\0{\0\0\0}",
            Error,
            "the response is UTF-32: send UTF-8",
        ),
        json(
            "gzip that does not say so",
            b"\x1F\x8B\x08\0\0\0\0\0",
            Error,
            "the response is compressed with gzip, although it does not say so: send it uncompressed",
        ),
        json(
            "a NUL after it",
            b"{\"players\":0}\0",
            Error,
            "the response is not JSON: trailing characters: byte 0x00 at offset 13: {\"players\":0} ",
        ),
        json(
            "several lines",
            b"{\"players\":0}\n{\"players\":1}\n",
            Error,
            "the response is not JSON: trailing characters: byte 0x7B at offset 14: {\"players\":0} {\"players\":1}",
        ),
        json(
            "NaN",
            b"{\"players\":NaN}",
            Error,
            "the response is not JSON: expected value: byte 0x4E at offset 11: {\"players\":NaN}",
        ),
        json(
            "Infinity",
            b"{\"players\":-Infinity}",
            Error,
            "the response is not JSON: invalid number: byte 0x49 at offset 12: {\"players\":-Infinity}",
        ),
        json(
            "a number that is too large",
            b"{\"players\":1e999}",
            Error,
            "the response is not JSON: number out of range: byte 0x39 at offset 15: {\"players\":1e999}",
        ),
        json(
            "single quotes",
            b"{'players':0}",
            Error,
            "the response is not JSON: key must be a string: byte 0x27 at offset 1: {'players':0}",
        ),
        json(
            "a comma too many",
            b"{\n  \"players\": 0,\n}",
            Error,
            "the response is not JSON: trailing comma: byte 0x7D at offset 18: {   \"players\": 0, }",
        ),
        json(
            "a tab in a text",
            b"{\"a\":\"\t\",\"players\":0}",
            Error,
            "the response is not JSON: control character (\\u0000-\\u001F) found while parsing a string: byte 0x09 at \
             offset 6: {\"a\":\" \",\"players\":0}",
        ),
        json(
            "half of it",
            b"{\"players\":",
            Error,
            "the response is not JSON: EOF while parsing a value: {\"players\":",
        ),
        json("nothing", b"", Error, "the response is not JSON: it is empty"),
        json(
            "a web page",
            b"<html>login</html>",
            Error,
            "the response is not JSON: <html>login</html>",
        ),
        json(
            "null",
            b"{\"players\":null}",
            Failed,
            "successCondition value == 0 does not hold: result is null",
        ),
        row(
            "a number beyond 64 bits",
            answer("", "{\"id\":123456789012345678901234567890}"),
            Ask::Web("{$.id}", "value > 1.0e29 && asFloat(result) > 1.0e29"),
            Successful,
            "",
        ),
        row(
            "true",
            answer("", "{\"ok\":true}"),
            Ask::Web("{$.ok}", "result == true"),
            Successful,
            "",
        ),
        row("a text with a line break", answer("", "idle\r\n"), TEXT, Successful, ""),
        row("a text with a byte order mark", answer("", "\u{feff}idle"), TEXT, Successful, ""),
        row(
            "a text in another charset",
            answer("", b"idle \xFC"),
            Ask::Web("", "result.contains('idle')"),
            Error,
            "byte 0xFC at offset 5 of the response is not UTF-8: send UTF-8, or JSON of which jsonPath selects a single \
             value without such bytes",
        ),
        row(
            "a text in another charset that nothing reads",
            answer("", b"\xFC\0"),
            STATUS,
            Successful,
            "",
        ),
        row(
            "compressed bytes that nothing reads",
            answer("", b"\x1F\x8B\x08\0"),
            STATUS,
            Successful,
            "",
        ),
    ]
}

/// Framing: lengths, chunks, versions, interim answers and redirects.
fn framing() -> Vec<Row> {
    let players =
        |name, bytes: &str, phase, message| row(name, raw(bytes), PLAYERS, phase, message);
    let status = |name, bytes: &str, phase, message| row(name, raw(bytes), STATUS, phase, message);
    vec![
        players(
            "until the connection ends",
            "HTTP/1.1 200 OK\r\n\r\n{\"players\":0}",
            Successful,
            "",
        ),
        players("HTTP/1.0", "HTTP/1.0 200 OK\r\n\r\n{\"players\":0}", Successful, ""),
        players("no reason", "HTTP/1.1 200\r\n\r\n{\"players\":0}", Successful, ""),
        players(
            "lines that end with LF alone",
            "HTTP/1.1 200 OK\ncontent-length: 13\n\n{\"players\":0}",
            Successful,
            "",
        ),
        players(
            "more than its length",
            "HTTP/1.1 200 OK\r\ncontent-length: 13\r\n\r\n{\"players\":0}}}",
            Successful,
            "",
        ),
        players(
            "a length twice",
            "HTTP/1.1 200 OK\r\ncontent-length: 13\r\ncontent-length: 13\r\n\r\n{\"players\":0}",
            Successful,
            "",
        ),
        players(
            "less than its length",
            "HTTP/1.1 200 OK\r\ncontent-length: 14\r\n\r\n{\"players\":0}",
            Error,
            "the response is incomplete: end of file before message length reached",
        ),
        players(
            "two lengths",
            "HTTP/1.1 200 OK\r\ncontent-length: 13\r\ncontent-length: 14\r\n\r\n{\"players\":0}",
            Error,
            "invalid content-length parsed",
        ),
        players(
            "chunks, an extension and trailers",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n6;a=b\r\n{\"play\r\n7\r\ners\":0}\r\n0\r\nx-sum: 1\r\n\r\n",
            Successful,
            "",
        ),
        players(
            "chunks without an end",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nd\r\n{\"players\":0}\r\n",
            Error,
            "the response is incomplete: unexpected EOF during chunk size line",
        ),
        players(
            "a chunk without a length",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{\"players\":0}",
            Error,
            "the response is incomplete: Invalid chunk size line: missing size digit",
        ),
        players(
            "compressed chunks",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
            Error,
            "the response is compressed (gzip), although the request accepts only identity; disable compression in the \
             server",
        ),
        players(
            "interim answers",
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\nHTTP/1.1 200 OK\r\n\r\n{\"players\":0}",
            Successful,
            "",
        ),
        status(
            "another protocol",
            "HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n",
            Error,
            "HTTP 101 from SERVER/ in N ms",
        ),
        status("no content", "HTTP/1.1 204 No Content\r\n\r\n", Successful, ""),
        players(
            "no content where there must be some",
            "HTTP/1.1 204 No Content\r\n\r\n",
            Error,
            "HTTP 204 from SERVER/ in N ms: the response is not JSON: it is empty",
        ),
        status("created", "HTTP/1.1 201 Created\r\ncontent-length: 0\r\n\r\n", Successful, ""),
        status(
            "an unusual success",
            "HTTP/1.1 299 Fine\r\ncontent-length: 0\r\n\r\n",
            Successful,
            "",
        ),
        status(
            "no status that exists",
            "HTTP/1.1 999 No\r\ncontent-length: 0\r\n\r\n",
            Error,
            "HTTP 999 from SERVER/ in N ms",
        ),
        status(
            "a redirect to nowhere",
            "HTTP/1.1 302 Found\r\ncontent-length: 0\r\n\r\n",
            Error,
            "HTTP 302 from SERVER/ in N ms",
        ),
        status(
            "not modified",
            "HTTP/1.1 304 Not Modified\r\n\r\n",
            Error,
            "HTTP 304 from SERVER/ in N ms",
        ),
        status(
            "a page about an error",
            "HTTP/1.1 502 Bad Gateway\r\n\r\n<html>\n",
            Error,
            "HTTP 502 from SERVER/ in N ms: <html>",
        ),
        status("no HTTP", "SSH-2.0-OpenSSH_9.7\r\n", Error, "invalid HTTP version parsed"),
        status("nothing at all", "", Error, "connection closed before message completed"),
    ]
}

/// Answers to queries.
fn queries() -> Vec<Row> {
    let success = |data: &str| answer("", format!("{{\"status\":\"success\",\"data\":{data}}}"));
    let vector =
        |series: &str| success(&format!("{{\"resultType\":\"vector\",\"result\":[{series}]}}"));
    let value = |value: &str| vector(&format!("{{\"metric\":{{}},\"value\":[1.5,{value}]}}"));
    let zero = || Ask::Query("result[0] == 0");
    let data = "{\"resultType\":\"vector\",\"result\":[{\"metric\":{},\"value\":[1,\"0\"]}]}";
    let with =
        |fields: &str| answer("", format!("{{\"status\":\"success\",{fields},\"data\":{data}}}"));
    vec![
        row("a vector", value("\"0\""), zero(), Successful, ""),
        row("a number that is no text", value("0"), zero(), Successful, ""),
        row("a number with a fraction that is no text", value("0.5"), Ask::Query("result[0] == 0.5"), Successful, ""),
        row("an exponent", value("\"1e-3\""), Ask::Query("result[0] == 0.001"), Successful, ""),
        row("infinity", value("\"+Inf\""), Ask::Query("isInf(result[0])"), Successful, ""),
        row("minus infinity", value("\"-Inf\""), Ask::Query("result[0] < 0"), Successful, ""),
        row(
            "NaN",
            value("\"NaN\""),
            zero(),
            Failed,
            "successCondition result[0] == 0 does not hold: result is [NaN] (the query returned NaN)",
        ),
        row("an empty vector", vector(""), Ask::Query("len(result) == 0"), Successful, ""),
        row(
            "an empty vector that is read",
            vector(""),
            zero(),
            Error,
            "successCondition result[0] == 0: there is no element 0 in a list of 0 (the query returned nothing)",
        ),
        row(
            "a scalar, its type last",
            success("{\"result\":[1,\"0\"],\"resultType\":\"scalar\"}"),
            Ask::Query("result == 0"),
            Successful,
            "",
        ),
        row(
            "a range",
            success("{\"resultType\":\"matrix\",\"result\":[{\"metric\":{},\"values\":[[1,\"0\"],[2,\"0\"]]}]}"),
            Ask::Query("result.all(x, x == 0) && len(result) == 2"),
            Successful,
            "",
        ),
        row(
            "a text",
            success("{\"resultType\":\"string\",\"result\":[1,\"idle\"]}"),
            zero(),
            Error,
            "the query returned idle: use one that returns numbers",
        ),
        row("a text that is no number", value("\"0x0\""), zero(), Error, "the query returned 0x0: use one that returns numbers"),
        row(
            "a native histogram",
            vector("{\"metric\":{},\"histogram\":[1,{\"count\":\"0\",\"sum\":\"0\"}]}"),
            zero(),
            Error,
            "the query returned a native histogram: use one that returns numbers",
        ),
        row(
            "a range of native histograms",
            success("{\"resultType\":\"matrix\",\"result\":[{\"metric\":{},\"histograms\":[[1,{\"count\":\"0\"}]]}]}"),
            Ask::Query("len(result) == 0"),
            Error,
            "the query returned a native histogram: use one that returns numbers",
        ),
        row(
            "a series without a value",
            vector("{\"metric\":{}}"),
            Ask::Query("len(result) == 0"),
            Error,
            "the query returned a series without a value: use one that returns numbers",
        ),
        row(
            "a byte order mark in the body",
            answer("content-encoding: utf-8\r\n", format!("\u{feff}{{\"status\":\"success\",\"data\":{data}}}\n")),
            zero(),
            Successful,
            "",
        ),
        row(
            "a label in another charset",
            answer("", [
                b"{\"status\":\"success\",\"data\":{\"resultType\":\"vector\",\"result\":[{\"metric\":{\"map\":\"Z\xFC\"},\
                  \"value\":[1,\"0\"]}]}}".as_slice(),
            ].concat()),
            zero(),
            Successful,
            "",
        ),
        row("no error", with("\"error\":\"\",\"errorType\":\"\""), zero(), Successful, ""),
        row("information", with("\"infos\":[\"PromQL info: x\"],\"warnings\":[]"), zero(), Successful, ""),
        row("unknown fields", with("\"stats\":{\"seriesFetched\":\"1\"},\"isPartial\":false"), zero(), Successful, ""),
        row(
            "a warning",
            with("\"warnings\":[\"a store is missing\"]"),
            zero(),
            Error,
            "the result may be incomplete, because it has a warning: a store is missing; to use it nevertheless, set \
             acceptPartial",
        ),
        row("an error beside data", with("\"error\":\"too old\""), zero(), Error, "too old"),
        row(
            "a result of another server",
            success("{\"resultType\":\"streams\",\"result\":[]}"),
            zero(),
            Error,
            "unexpected response from Prometheus: unknown variant `streams`, expected one of `scalar`, `vector`, \
             `matrix`, `string`: {\"status\":\"success\",\"data\":{\"resultType\":\"streams\",\"result\":[]}}",
        ),
        row(
            "no list",
            success("{\"resultType\":\"vector\",\"result\":null}"),
            Ask::Query("len(result) == 0"),
            Error,
            "unexpected response from Prometheus: invalid type: null, expected a sequence: {\"status\":\"success\",\"data\":{\"resultType\":\"vector\",\"result\":null}}",
        ),
        row(
            "no result",
            success("{\"resultType\":\"vector\"}"),
            Ask::Query("len(result) == 0"),
            Error,
            "unexpected response from Prometheus: missing field `result`: {\"status\":\"success\",\"data\":{\"resultType\":\"vector\"}}",
        ),
        row("a page", answer("", "<html>login</html>"), zero(), Error, "unexpected response from Prometheus: <html>login</html>"),
        row("nothing", answer("", ""), zero(), Error, "unexpected response from Prometheus: it is empty"),
        row(
            "a NUL after it",
            answer("", "{\"status\":\"success\"}\0"),
            zero(),
            Error,
            "unexpected response from Prometheus: trailing characters: byte 0x00 at offset 20: {\"status\":\"success\"} ",
        ),
        row(
            "an error with its status",
            raw("HTTP/1.1 422 Unprocessable Entity\r\n\r\n{\"status\":\"error\",\"errorType\":\"execution\",\"error\":\"too many samples\"}"),
            zero(),
            Error,
            "too many samples",
        ),
    ]
}

fn metric_of(url: &str, ask: &Ask) -> Metric {
    match ask {
        Ask::Web(path, condition) => {
            let conditions = match *condition {
                "" => json!({}),
                condition => json!({"successCondition": condition}),
            };
            metric(json!({"url": url, "jsonPath": path}), conditions)
        }
        Ask::Query(condition) => {
            let provider = json!({"prometheus": {"address": url, "query": "players"}});
            let metric = json!({"name": "m", "successCondition": condition, "provider": provider});
            serde_json::from_value(metric).expect("a metric")
        }
    }
}

/// The message without its beginning, if that says only which server answered, or that it gave no response.
fn reason(message: &str) -> &str {
    match message.split_once(" in N ms: ") {
        Some((head, reason))
            if ["HTTP 200 ", "HTTP 422 ", "no response "].iter().any(|it| head.starts_with(it)) =>
        {
            reason
        }
        _ => message,
    }
}

#[tokio::test]
async fn each_answer_ends_as_the_table_says() {
    let tables = [headers(), bodies(), framing(), queries()];
    let rows: Vec<Row> = tables.into_iter().flatten().collect();
    assert!(rows.len() >= 60, "{} rows", rows.len());
    let mut wrong = Vec::new();
    for Row { name, answer, ask, phase, message: expected } in rows {
        let server = Server::start(&[Reply::Bytes(answer)]).await;
        let outcome = measure(metric_of(&server.url, &ask)).await;
        let message = message(&outcome, &server);
        let found = reason(&message);
        if outcome.phase != phase || found != expected {
            wrong.push(format!(
                "{name}: expected {phase:?} {expected:?}\n    found {:?} {found:?}",
                outcome.phase
            ));
        }
    }
    assert!(wrong.is_empty(), "{} rows\n{}", wrong.len(), wrong.join("\n"));
}
