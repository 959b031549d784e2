//! Attacks by a tenant who may write workloads, pods, claims, HookRuns, HookTemplates and Secrets in a namespace, and
//! whose pods can reach the operator's ports. An attack that waits for its HookRuns passes if the API server
//! refuses them, or if those that it accepts end (most of them must end with an error).

mod objects;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use futures::future::LocalBoxFuture;
use futures::{StreamExt, TryStreamExt, stream};
use judge::object::text;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use self::objects::*;
use super::{ATTACKER, Stage};
use crate::addons::webhook::trusting;
use crate::servers::hook_server::Answer;
use crate::servers::raw_server::{Raw, RawServer};
use crate::wait::{LIMIT, eventually};

/// How many objects are created concurrently.
const CONCURRENCY: usize = 16;

/// An attack, with the checks of its own outcome.
pub struct Attack {
    /// Its name.
    pub name: &'static str,
    /// Runs the attack and its checks.
    pub play: for<'a> fn(&'a Stage) -> LocalBoxFuture<'a, Result<()>>,
}

macro_rules! attacks {
    ($($name:ident),* $(,)?) => {
        /// All attacks.
        pub const ATTACKS: &[Attack] = &[$(Attack {
            name: stringify!($name),
            play: |stage| Box::pin($name(stage)),
        }),*];
    };
}

attacks![
    servers_that_never_respond,
    frequent_measurements_with_costly_conditions,
    an_argument_that_fills_the_memory,
    references_that_take_too_long,
    maps_that_fill_the_caches,
    connections_that_stay_open,
    owners_that_do_not_exist,
    names_that_do_not_resolve,
    very_long_response_headers,
    servers_that_never_read,
    floods_before_a_response,
    tokens_that_fill_the_memory,
    a_patch_of_a_foreign_pod,
    cloud_metadata_addresses,
    names_that_fill_the_log,
    templates_of_small_maps,
    records_of_many_maps,
    claims_with_many_owners,
    runs_that_fill_the_caches,
    budgets_with_long_selectors,
    reviews_from_many_addresses,
];

fn hook_run(name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": "tkex.tencent.com/v1alpha1", "kind": "HookRun",
        "metadata": {"name": name}, "spec": spec,
    })
}

/// A HookRun with one web metric that has these additional fields.
fn web(name: &str, web: Value, fields: &Value) -> Value {
    let mut metric = json!({"name": "m", "consecutiveErrorLimit": 0, "provider": {"web": web}});
    for (field, value) in fields.as_object().into_iter().flatten() {
        metric[field] = value.clone();
    }
    hook_run(name, json!({"metrics": [metric]}))
}

/// Creates HookRuns. Returns the names of those that the API server accepted.
async fn store(stage: &Stage, runs: impl IntoIterator<Item = Value>) -> Result<Vec<String>> {
    let stored = stream::iter(runs).map(async |run| {
        let stored = stage.store("hookruns", &run).await?;
        let name = run["metadata"]["name"].as_str().context("a HookRun has a name")?;
        anyhow::Ok(stored.map(|_| name.to_owned()))
    });
    let stored: Vec<_> = stored.buffer_unordered(CONCURRENCY).try_collect().await?;
    Ok(stored.into_iter().flatten().collect())
}

/// Waits until each of these runs has ended with an error, or is not kept because other attacks use up the memory of the
/// namespace.
async fn until_error(stage: &Stage, runs: &[String]) -> Result<()> {
    for name in runs {
        eventually(&format!("{name} ends"), LIMIT, async || {
            let run = stage.run(name).await?;
            let status = &run["status"];
            ensure!(status["phase"] == "Error" || is_left_out(&run), "{status:#}");
            Ok(())
        })
        .await?;
    }
    Ok(())
}

/// More calls than the operator makes concurrently, each open for an hour.
async fn servers_that_never_respond(stage: &Stage) -> Result<()> {
    stage.hooks.answer("/never", Answer::Never);
    let never = json!({"url": stage.hooks.url("/never"), "timeoutSeconds": 3600});
    let runs = (0..1_100).map(|number| web(&format!("never-{number}"), never.clone(), &json!({})));
    store(stage, runs).await?;
    Ok(())
}

/// A measurement every second, each with a condition that exceeds the evaluation limit.
async fn frequent_measurements_with_costly_conditions(stage: &Stage) -> Result<()> {
    let numbers: Vec<u32> = (0..2_000).collect();
    stage.hooks.answer("/numbers", Answer::Json(json!(numbers)));
    let numbers = json!({"url": stage.hooks.url("/numbers")});
    let costly = json!({
        "interval": "1s", "count": 1_000, "consecutiveErrorLimit": 1_000, "failureLimit": 1_000,
        "successCondition": "value.all(a, value.all(b, a + b >= 0))",
    });
    let runs = (0..300).map(|number| web(&format!("busy-{number}"), numbers.clone(), &costly));
    store(stage, runs).await?;
    Ok(())
}

/// An argument of nearly a megabyte in a body that repeats it thousands of times.
async fn an_argument_that_fills_the_memory(stage: &Stage) -> Result<()> {
    let body = "{{ args.big }}".repeat(6_000);
    let mut big = web(
        "big",
        json!({"url": stage.hooks.url("/"), "method": "POST", "body": body}),
        &json!({}),
    );
    big["spec"]["args"] = json!([{"name": "big", "value": "x".repeat(900_000)}]);
    let stored = store(stage, [big]).await?;
    until_error(stage, &stored).await
}

/// As many arguments as fit, each with a field reference, in a body that uses them all.
async fn references_that_take_too_long(stage: &Stage) -> Result<()> {
    let names: Vec<String> = (0..3_000).map(|number| format!("a{number}")).collect();
    let body: String = names.iter().map(|name| format!("{{{{ args.{name} }}}}")).collect();
    let field = json!({"fieldRef": {"fieldPath": "metadata.name"}});
    let args: Vec<_> = names.iter().map(|name| json!({"name": name, "valueFrom": field})).collect();
    let mut many = web(
        "many",
        json!({"url": stage.hooks.url("/many"), "method": "POST", "body": body}),
        &json!({}),
    );
    many["spec"]["args"] = json!(args);
    let stored = store(stage, [many]).await?;
    for name in stored {
        eventually("the run ends", LIMIT, async || {
            let status = stage.run(&name).await?["status"].take();
            let has_ended = !status["finishedAt"].is_null();
            ensure!(has_ended, "{status:#}");
            Ok(())
        })
        .await?;
    }
    Ok(())
}

/// Bodies that are small as text and large as maps, in objects that the operator caches.
async fn maps_that_fill_the_caches(stage: &Stage) -> Result<()> {
    let maps = vec![json!({}); 400_000];
    for number in 0..9 {
        let body = json!({"url": stage.hooks.url("/"), "method": "POST", "jsonBody": {"a": maps}});
        let mut template = web(&format!("maps-{number}"), body, &json!({}));
        template["kind"] = json!("HookTemplate");
        stage.store("hooktemplates", &template).await?;
    }
    Ok(())
}

/// A connection to a local port from the loopback address 127.0.1.`host`.
async fn connect_from(host: u8, port: u16) -> Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::from((Ipv4Addr::new(127, 0, 1, host), 0)))?;
    let server = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    Ok(socket.connect(server).await?)
}

/// Idle connections from many addresses, and requests whose responses are not read.
async fn connections_that_stay_open(stage: &Stage) -> Result<()> {
    let port = stage.operator.port()?;
    let mut held = Vec::new();
    for number in 0..600_usize {
        let mut stream = connect_from(u8::try_from(2 + number % 20)?, port).await?;
        if number % 3 == 0 {
            // A refused connection may close during the write.
            let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").await;
        }
        held.push(stream);
    }
    // The kubelet probes from an address of its own. The connections are held, so the time limit only has to be finite.
    for _ in 0..10 {
        let mut probe = connect_from(200, port).await?;
        probe.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await?;
        let mut answer = String::new();
        let read = probe.read_to_string(&mut answer);
        timeout(Duration::from_secs(60), read).await.context("the probe timed out")??;
        ensure!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    Ok(())
}

/// Owners with invented names, each of which could become a metric label.
async fn owners_that_do_not_exist(stage: &Stage) -> Result<()> {
    let runs = (0..200).map(|number| {
        let url = json!({"url": stage.hooks.url("/owned")});
        let mut run = web(&format!("owned-{number}"), url, &json!({}));
        run["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "missing.example.com/v1", "kind": "Anything", "controller": true,
            "name": format!("made-up-{number}"), "uid": format!("made-up-{number}"),
        }]);
        run
    });
    let runs = store(stage, runs).await?;
    eventually("the runs are measured", LIMIT, async || {
        let calls = stage.hooks.calls("/owned").len();
        // How many are measured in this time depends on the other attacks.
        ensure!(calls > 0 || runs.is_empty(), "{calls} calls");
        Ok(())
    })
    .await?;
    let (_, page) = stage.operator.get("/metrics").await?;
    ensure!(!page.contains("made-up"), "names of missing owners became labels");
    Ok(())
}

/// Host names that do not resolve, each a new lookup.
async fn names_that_do_not_resolve(stage: &Stage) -> Result<()> {
    let runs = (0..100).map(|number| {
        let url = json!({"url": format!("http://missing-{number}.invalid/")});
        web(&format!("missing-{number}"), url, &json!({}))
    });
    let runs = store(stage, runs).await?;
    until_error(stage, &runs).await
}

/// Responses with a header of 16 MiB.
async fn very_long_response_headers(stage: &Stage) -> Result<()> {
    let head = [b"HTTP/1.1 200 OK\r\nx: ".as_slice(), &[b'x'; 16 << 20]].concat();
    let server = RawServer::start(Raw::Bytes(head)).await?;
    let runs = (0..100).map(|number| {
        let url = json!({"url": server.url, "timeoutSeconds": 20});
        web(&format!("head-{number}"), url, &json!({}))
    });
    let runs = store(stage, runs).await?;
    until_error(stage, &runs).await
}

/// Long requests, each second, that the server does not read.
async fn servers_that_never_read(stage: &Stage) -> Result<()> {
    let server = RawServer::start(Raw::Unread).await?;
    let metrics: Vec<Value> = (0..32)
        .map(|number| {
            let body = "{{ args.Long }}".repeat(15);
            let web = json!({
                "url": server.url, "method": "POST", "body": body, "timeoutSeconds": 1,
            });
            json!({"name": format!("m-{number}"), "interval": "1s", "count": 2,
                "consecutiveErrorLimit": 1, "failureLimit": 1, "provider": {"web": web}})
        })
        .collect();
    let args = json!([{"name": "Long", "value": "x".repeat(64 << 10)}]);
    let run = hook_run("unread", json!({"args": args, "metrics": metrics}));
    let runs = store(stage, [run]).await?;
    until_error(stage, &runs).await
}

/// Interim responses without end.
async fn floods_before_a_response(stage: &Stage) -> Result<()> {
    let hint = b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n".to_vec();
    let server = RawServer::start(Raw::Flood(hint)).await?;
    let runs = (0..100).map(|number| {
        let url = json!({"url": server.url, "timeoutSeconds": 3600});
        web(&format!("hints-{number}"), url, &json!({}))
    });
    let runs = store(stage, runs).await?;
    until_error(stage, &runs).await
}

/// OAuth2 tokens as long as a response may be, each of which would be cached.
async fn tokens_that_fill_the_memory(stage: &Stage) -> Result<()> {
    let token = json!({"access_token": "x".repeat(1_000_000), "expires_in": 3600});
    stage.hooks.answer("/token", Answer::Json(token));
    let keys: serde_json::Map<String, Value> =
        (0..60).map(|number| (format!("client-{number}"), json!("x"))).collect();
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "stringData": keys,
        "metadata": {"name": "clients", "labels": {"tkex.tencent.com/hook-access": "true"}},
    });
    stage.store("secrets", &secret).await?;
    let runs = keys.keys().map(|key| {
        let reference = json!({"name": "clients", "key": key});
        let oauth2 = json!({
            "tokenUrl": stage.hooks.url("/token"), "clientId": reference, "clientSecret": reference,
        });
        let authentication = json!({"oauth2": oauth2});
        let url = json!({"url": stage.hooks.url("/"), "authentication": authentication});
        web(&format!("token-{key}"), url, &json!({}))
    });
    let runs = store(stage, runs).await?;
    until_error(stage, &runs).await
}

/// A patch of a pod that is not the run's own.
async fn a_patch_of_a_foreign_pod(stage: &Stage) -> Result<()> {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "other"},
        "spec": {"containers": [{"name": "game", "image": "game:v1"}]},
    });
    stage.store("pods", &pod).await?.context("the API server refused the pod")?;
    let field = json!({"path": "metadata.labels.mine", "value": "yes"});
    let patch = json!({"kubernetes": {"function": "patch", "fields": [field]}});
    let args = json!([{"name": "PodName", "value": "other"}]);
    let metric = json!({"name": "m", "consecutiveErrorLimit": 0, "provider": patch});
    let run = hook_run("label", json!({"args": args, "metrics": [metric]}));
    let runs = store(stage, [run]).await?;
    until_error(stage, &runs).await?;
    let pods = format!("/api/v1/namespaces/{ATTACKER}/pods");
    let pod = stage.plane.get(&format!("{pods}/other")).await?;
    ensure!(pod["metadata"]["labels"]["mine"].is_null(), "{pod:#}");
    Ok(())
}

/// Cloud metadata addresses, in several notations.
async fn cloud_metadata_addresses(stage: &Stage) -> Result<()> {
    let addresses = [
        "169.254.169.254",
        "[::ffff:169.254.169.254]",
        "[64:ff9b::a9fe:a9fe]",
        "100.100.100.200",
        "[fd00:ec2::254]",
        "100.96.0.96",
    ];
    let runs = addresses.iter().enumerate().map(|(number, address)| {
        let url = json!({"url": format!("http://{address}/")});
        web(&format!("cloud-{number}"), url, &json!({}))
    });
    let runs = store(stage, runs).await?;
    until_error(stage, &runs).await?;
    let mut refused = 0;
    for name in &runs {
        let run = stage.run(name).await?;
        let status = &run["status"];
        let is_refused = text(&run, "/status/message").contains(" is refused");
        ensure!(is_refused || is_left_out(&run), "{name}: {status:#}");
        refused += usize::from(is_refused);
    }
    ensure!(refused > 0 || runs.is_empty(), "all runs were left out");
    Ok(())
}

/// Admission reviews of objects with very long names. Any client that reaches the port can send them.
async fn names_that_fill_the_log(stage: &Stage) -> Result<()> {
    let name = "gamekeeper-webhook";
    let configuration = stage.plane.get(&crate::addons::webhook::configuration_path(name)).await?;
    let tls = trusting(&configuration)?;
    let object = json!({
        "kind": "GameDeployment", "metadata": {"name": "x".repeat(1 << 20)},
        "spec": {"template": {"spec": {}}},
    });
    let request = json!({
        "uid": "1", "namespace": "no namespace", "operation": "CREATE", "object": object,
    });
    let review = Arc::new(json!({"request": request}).to_string());
    for number in 0..30 {
        let stream = connect_from(100 + number, stage.operator.webhook_port()?).await?;
        let mut stream = tls.connect("localhost".try_into()?, stream).await?;
        let head = format!(
            "POST /validate HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\n\
            Content-Length: {}\r\n\r\n",
            review.len()
        );
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(review.as_bytes()).await?;
        let mut answer = Vec::new();
        // The response does not matter, only what the operator logs.
        let _ = timeout(Duration::from_secs(10), stream.read_to_end(&mut answer)).await;
    }
    let log = std::fs::read_to_string(stage.operator.log())?;
    ensure!(log.contains("admitting a pod template"), "the log does not mention the reviews");
    match log.lines().map(str::len).max() {
        Some(longest) if longest > 10_000 => bail!("the log has a line of {longest} bytes"),
        _ => Ok(()),
    }
}
