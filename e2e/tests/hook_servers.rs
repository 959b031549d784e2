//! Servers that hooks call: a real Prometheus, servers with a private CA, and hostile servers.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::addons::prometheus::Prometheus;
use e2e::case::Case;
use e2e::servers::raw_server::{Raw, RawServer};
use judge::object::text;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use crate::run::{hook_run, status, until_phase};

fn metric(provider: Value, condition: &str) -> Value {
    let mut metric = json!({"name": "ready", "consecutiveErrorLimit": 0, "provider": provider});
    if !condition.is_empty() {
        metric["successCondition"] = json!(condition);
    }
    metric
}

/// Starts a run with one metric.
async fn measure(case: &Case, run: &str, metric: Value) -> Result<()> {
    case.apply(hook_run(run, json!({"metrics": [metric]}))).await?;
    Ok(())
}

/// Waits until a run has ended with this phase, checks its message, and returns its status.
async fn until_ended(case: &Case, run: &str, phase: &str, expected: &str) -> Result<Value> {
    let status = until_phase(case, run, phase).await?;
    let message = text(&status, "/message");
    ensure!(message.contains(expected), "{run}: {message}");
    Ok(status)
}

#[e2e::test]
async fn a_prometheus_metric_queries_a_real_server(case: &mut Case) -> Result<()> {
    let prometheus = Prometheus::scrape(case, &[case.operator.port()?]).await?;
    let provider = |query: &str| json!({"prometheus": {"address": prometheus.url, "query": query}});
    // This run waits until Prometheus is up and has scraped twice.
    let mut first =
        metric(provider("up{job='gamekeeper'}"), "len(result) == 1 && result[0] == 1.0");
    first["interval"] = json!("1s");
    first["consecutiveErrorLimit"] = json!(60);
    first["failureLimit"] = json!(60);
    first["consecutiveSuccessfulLimit"] = json!(3);
    measure(case, "up", first).await?;
    until_phase(case, "up", "Successful").await?;

    for (run, query, condition, phase, expected) in [
        ("scalar", "scalar(max_over_time(up[10s]))", "result == 1.0", "Successful", ""),
        ("range", "up[10s]", "len(result) > 1", "Successful", ""),
        ("nothing", "no_such_metric", "len(result) == 1", "Failed", "the query returned nothing"),
        (
            "nan",
            "0 / scalar(max_over_time(up[10s]) - 1)",
            "result > 0.5",
            "Failed",
            "the query returned NaN",
        ),
        ("is-nan", "0 / scalar(max_over_time(up[10s]) - 1)", "isNaN(result)", "Successful", ""),
        ("text", "'up'", "", "Error", "the query returned up: use one that returns numbers"),
        ("wrong", "sum(", "", "Error", "parse error"),
        (
            "own",
            "sum(process_resident_memory_bytes) or vector(1)",
            "result[0] > 0.0",
            "Successful",
            "",
        ),
    ] {
        measure(case, run, metric(provider(query), condition)).await?;
        until_ended(case, run, phase, expected).await.context(query)?;
    }
    prometheus.stop().await?;
    Ok(())
}

#[e2e::test]
async fn a_private_ca_is_trusted_from_a_secret(case: &mut Case) -> Result<()> {
    let body = br#"{"age":45}"#;
    let (server, ca) = RawServer::start_tls(Raw::answer("200 OK", "", body)).await?;
    let secret = |name: &str, ca: &str, access: &str| {
        json!({
            "apiVersion": "v1", "kind": "Secret", "stringData": {"ca.crt": ca},
            "metadata": {"name": name, "labels": {"tkex.tencent.com/hook-access": access}},
        })
    };
    case.apply(secret("ca", &ca, "true")).await?;
    case.apply(secret("shut", &ca, "false")).await?;
    case.apply(secret("odd", "no certificate", "true")).await?;
    let trusting = |name: &str| json!({"caSecret": {"name": name, "key": "ca.crt"}});
    for (run, trust, phase, expected) in [
        ("trusting", trusting("ca"), "Successful", ""),
        ("insecure", json!({"insecure": true}), "Successful", ""),
        ("doubting", json!({}), "Error", "the server's certificate"),
        ("shut", trusting("shut"), "Error", "caSecret: secret shut is not readable by hooks"),
        ("odd", trusting("odd"), "Error", "caSecret: "),
    ] {
        let mut web = trust;
        web["url"] = json!(server.url);
        web["jsonPath"] = json!("{$.age}");
        let metric = metric(json!({"web": web}), "asInt(result) == 45");
        measure(case, run, metric).await?;
        until_ended(case, run, phase, expected).await?;
    }
    Ok(())
}

#[e2e::test]
async fn a_token_server_is_trusted_from_the_same_ca_secret(case: &mut Case) -> Result<()> {
    let token = br#"{"access_token":"t-1","expires_in":300}"#;
    let (token_server, token_ca) = RawServer::start_tls(Raw::answer("200 OK", "", token)).await?;
    let (server, server_ca) =
        RawServer::start_tls(Raw::answer("200 OK", "", br#"{"age":45}"#)).await?;
    let both_cas = format!("{server_ca}{token_ca}");
    let secret = |name: &str, ca: &str| {
        json!({
            "apiVersion": "v1", "kind": "Secret",
            "stringData": {"ca.crt": ca, "id": "arena", "password": name},
            "metadata": {"name": name, "labels": {"tkex.tencent.com/hook-access": "true"}},
        })
    };
    for (name, ca, phase, expected) in [
        ("both", &both_cas, "Successful", ""),
        ("one", &server_ca, "Error", "authentication: no response from https://127.0.0.1"),
    ] {
        case.apply(secret(name, ca)).await?;
        let key = |key: &str| json!({"name": name, "key": key});
        let oauth2 = json!({
            "tokenUrl": token_server.url, "clientId": key("id"), "clientSecret": key("password"),
        });
        let web = json!({
            "url": server.url, "jsonPath": "{$.age}", "caSecret": key("ca.crt"),
            "authentication": {"oauth2": oauth2},
        });
        let metric = metric(json!({"web": web}), "asInt(result) == 45");
        measure(case, name, metric).await?;
        until_ended(case, name, phase, expected).await?;
    }
    Ok(())
}

#[e2e::test]
async fn hostile_servers_cause_errors(case: &mut Case) -> Result<()> {
    let redirect_to =
        |location: &str| Raw::answer("302 Found", &format!("location: {location}\r\n"), b"");
    let cut = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{\"age\":45}".to_vec();
    let rows = [
        ("trickle", Raw::Trickle, "within 2 s"),
        ("endless", Raw::Endless, "the response is longer than 1 MiB"),
        ("cut", Raw::Bytes(cut), "the response is incomplete: "),
        ("silent", Raw::Bytes(Vec::new()), "no response from "),
        (
            "hints",
            Raw::Flood(b"HTTP/1.1 103 Early Hints\r\nlink: </style.css>\r\n\r\n".to_vec()),
            "the server sent more than 256 KiB before its response",
        ),
        (
            "metadata",
            redirect_to("http://169.254.169.254/latest/meta-data/"),
            "169.254.169.254 is refused: it is a link-local or metadata address",
        ),
        ("elsewhere", redirect_to("ftp://127.0.0.1/"), "ftp is not supported"),
    ];
    let mut servers = Vec::new();
    for (run, raw, expected) in rows {
        let server = RawServer::start(raw).await?;
        // Only this server must time out. The others may be slow on a busy machine.
        let timeout = if run == "trickle" { 2 } else { 60 };
        let web = json!({"web": {"url": server.url, "timeoutSeconds": timeout}});
        measure(case, run, metric(web, "")).await?;
        servers.push((run, server, expected));
    }
    for (run, _, expected) in &servers {
        let status = until_ended(case, run, "Error", expected).await?;
        let measurement = &status["metricResults"][0]["measurements"][0];
        ensure!(measurement["phase"] == "Error", "{run}: {status:#}");
    }
    Ok(())
}

/// The connections of calls that have timed out would fill the memory.
#[e2e::test]
async fn servers_that_never_read_use_no_memory(case: &mut Case) -> Result<()> {
    let server = RawServer::start(Raw::Unread).await?;
    let metrics: Vec<Value> = (0..32)
        .map(|number| {
            let body = "{{ args.Long }}".repeat(15);
            json!({
                "name": format!("post-{number}"), "interval": "1s", "count": 1000,
                "consecutiveErrorLimit": 1000, "failureLimit": 1000,
                "provider": {"web": {
                    "url": server.url, "method": "POST", "body": body, "timeoutSeconds": 1,
                }},
            })
        })
        .collect();
    let args = json!([{"name": "Long", "value": "x".repeat(64 << 10)}]);
    case.apply(hook_run("unread", json!({"args": args, "metrics": metrics}))).await?;
    case.eventually("each metric was measured several times", async || {
        let status = status(case, "unread").await?;
        let results = status["metricResults"].as_array().cloned().unwrap_or_default();
        let errors = results.iter().filter_map(|it| it["error"].as_u64());
        let least = errors.min().unwrap_or_default();
        ensure!(results.len() == 32 && least >= 12, "{least} errors");
        Ok(())
    })
    .await?;
    let megabytes = case.operator.peak_memory()? >> 20;
    ensure!(megabytes < 300, "the operator used {megabytes} MiB");
    Ok(())
}

/// Compresses bytes with gzip.
async fn gzip(text: &[u8]) -> Result<Vec<u8>> {
    let mut gzip = Command::new("gzip");
    let mut child = gzip.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut stdin = child.stdin.take().context("no standard input")?;
    let text = text.to_vec();
    let feeding = tokio::spawn(async move { stdin.write_all(&text).await });
    let output = child.wait_with_output().await?;
    feeding.await??;
    Ok(output.stdout)
}

#[e2e::test]
async fn a_compressed_response_is_an_error(case: &mut Case) -> Result<()> {
    let headers = "content-encoding: gzip\r\ncontent-type: application/json\r\n";
    let bomb = gzip(&vec![b' '; 64 << 20]).await?;
    let server = RawServer::start(Raw::answer("200 OK", headers, &bomb)).await?;
    let web = json!({"web": {"url": server.url, "jsonPath": "{$.age}"}});
    measure(case, "bomb", metric(web, "asInt(result) == 45")).await?;
    let expected = "the response is compressed (gzip)";
    until_ended(case, "bomb", "Error", expected).await?;
    Ok(())
}

/// Runs `gamekeeper try` in a mount namespace where a name resolves to the metadata address.
#[e2e::test]
async fn a_name_that_resolves_to_a_metadata_address_is_refused(case: &mut Case) -> Result<()> {
    let hosts = case.folder().join("hosts");
    std::fs::write(&hosts, "127.0.0.1 localhost\n169.254.169.254 harmless.example.com\n")?;
    let template = case.folder().join("template.yaml");
    let metric = metric(json!({"web": {"url": "http://harmless.example.com/"}}), "");
    let object = hook_run("try", json!({"metrics": [metric]}));
    std::fs::write(&template, object.to_string())?;
    let script = format!(
        "mount --bind '{}' /etc/hosts && exec '{}' try '{}'",
        hosts.display(),
        case.operator.binary().display(),
        template.display()
    );
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--mount", "sh", "-c", &script]).stdin(Stdio::null());
    let output = tokio::time::timeout(Duration::from_secs(30), command.output()).await??;
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    let expected = "169.254.169.254 is refused: it is a link-local or metadata address";
    ensure!(stdout.contains(expected), "{stdout}{stderr}");
    ensure!(output.status.code() == Some(2), "{:?}", output.status);
    Ok(())
}
