//! HookRuns that belong to no workload: what they measure and how they end.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::case::Case;
use e2e::servers::hook_server::Answer;
use e2e::wait::consistently;
use judge::object::text;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::run::{hook_run, status, until_phase, web};

/// A row of the table `tests/hook_runs.yaml`, which the unit tests also use.
#[derive(Deserialize)]
struct Row {
    name: String,
    metric: Option<Value>,
    metrics: Option<BTreeMap<String, Value>>,
    policy: Option<String>,
    answers: Value,
    terminate: Option<u64>,
    phase: String,
    counts: [i64; 5],
    message: Option<String>,
    /// Whether only the unit tests check the row.
    #[serde(default)]
    pure: bool,
}

impl Row {
    fn metrics(&self) -> Vec<(String, Value)> {
        let one = self.metric.iter().map(|metric| ("m".to_owned(), metric.clone()));
        let many = self.metrics.iter().flatten();
        one.chain(many.map(|(name, metric)| (name.clone(), metric.clone()))).collect()
    }

    /// Sets the row's answers on the hook server and returns its HookRun.
    fn prepare(&self, case: &Case, run: &str) -> Value {
        let metrics = self.metrics().into_iter().map(|(name, mut metric)| {
            let path = format!("/{run}/{name}");
            let answers = self.answers.get(&name).unwrap_or(&self.answers);
            let answers = answers.as_array().into_iter().flatten().map(answer);
            case.hooks.answer_in_sequence(&path, answers);
            let json_path = metric["path"].take();
            let json_path = if json_path.is_null() { json!("{$.age}") } else { json_path };
            metric["name"] = json!(name);
            // The hook server runs in the process of all tests, which may be busy.
            metric["provider"] = json!({"web": {
                "url": case.hooks.url(&path), "jsonPath": json_path, "timeoutSeconds": 60,
            }});
            metric.as_object_mut().map(|fields| fields.remove("path"));
            metric
        });
        let metrics: Vec<Value> = metrics.collect();
        hook_run(
            run,
            json!({"metrics": metrics, "policy": self.policy.as_deref().unwrap_or("Parallel")}),
        )
    }
}

fn answer(value: &Value) -> Answer {
    match value {
        Value::Number(age) => Answer::Json(json!({"age": age})),
        Value::String(line) => {
            let (status, text) = line.split_once(' ').unwrap_or((line, ""));
            Answer::StatusAndText(status.parse().unwrap_or(500), text.to_owned())
        }
        json => match json["text"].as_str() {
            Some(text) => Answer::Text(text.to_owned()),
            None => Answer::Json(json.clone()),
        },
    }
}

/// A message with the parts that differ from run to run replaced.
fn normalized(message: &str, url: &str) -> String {
    let message = message.replace(url, "URL");
    let mut words: Vec<&str> = message.split(' ').collect();
    for index in 1..words.len() {
        if words[index].trim_end_matches(':') == "ms" {
            words[index - 1] = "N";
        }
    }
    words.join(" ")
}

#[e2e::test]
async fn runs_end_as_in_the_table(case: &mut Case) -> Result<()> {
    let rows: Vec<Row> = serde_yaml_ng::from_str(include_str!("../../tests/hook_runs.yaml"))?;
    let rows: Vec<Row> =
        rows.into_iter().filter(|row| !row.pure && row.terminate.is_none()).collect();
    ensure!(rows.len() >= 70, "{} rows", rows.len());
    let name = |index: usize| format!("row-{index}");
    let manifests = rows.iter().enumerate().map(|(index, row)| row.prepare(case, &name(index)));
    let list = json!({"apiVersion": "v1", "kind": "List", "items": manifests.collect::<Vec<_>>()});
    case.kubectl_with(&["create", "-f", "-"], &list.to_string()).await?;

    let mut measurements = 0;
    for (index, row) in rows.iter().enumerate() {
        let run = name(index);
        let status = until_phase(case, &run, &row.phase).await.context(row.name.clone())?;
        let results = status["metricResults"].as_array().context("no results")?;
        let last = results.last().context("no result")?;
        let count = |field: &str| last[field].as_i64().unwrap_or(0);
        let counts = ["count", "successful", "failed", "inconclusive", "error"].map(count);
        ensure!(counts == row.counts, "{}: {status:#}", row.name);
        if let Some(expected) = &row.message {
            let metric = results.iter().find(|result| {
                let (message, run_message) = (text(result, "/message"), text(&status, "/message"));
                !message.is_empty() && message == run_message
            });
            let name = metric.map_or("m", |metric| text(metric, "/name"));
            let url = case.hooks.url(&format!("/{run}/{name}"));
            let message = normalized(text(&status, "/message"), &url);
            ensure!(message == *expected, "{}: {message}", row.name);
        }
        let measurement_count = |result: &Value| {
            result["count"].as_i64().unwrap_or(0) + result["error"].as_i64().unwrap_or(0)
        };
        measurements += results.iter().map(measurement_count).sum::<i64>();
    }
    let (without_result, with_result) = status_writes(case)?;
    // If the first measurement of a metric takes a long time, its start is written before its result. With an
    // initialDelay, other metrics may have results by then.
    let metrics = rows.iter().flat_map(Row::metrics);
    let delayed = metrics.filter(|(_, metric)| !metric["initialDelay"].is_null());
    let delayed = delayed.count();
    ensure!(
        with_result <= measurements + delayed as i64,
        "{with_result} status writes with a result for {measurements} measurements"
    );
    ensure!(without_result <= rows.len() + delayed, "{without_result} writes without a result");
    Ok(())
}

/// How many status writes to HookRuns the operator has made: without a result, and with one.
fn status_writes(case: &Case) -> Result<(usize, i64)> {
    let operator = case.operator.username();
    let events = case.plane().audit.writes(&case.namespace)?;
    let writes = events.iter().filter(|event| {
        let object = event.object_ref.as_ref();
        event.user.username == operator
            && object.is_some_and(|it| it.resource == "hookruns" && it.subresource == "status")
    });
    let (mut without_result, mut with_result) = (0, 0);
    for write in writes {
        let status = write.request_object.as_ref().map(|object| &object["status"]);
        let metrics = status.and_then(|status| status["metricResults"].as_array());
        let has_result = |metric: &Value| metric["measurements"].is_array();
        match metrics.into_iter().flatten().any(has_result) {
            true => with_result += 1,
            false => without_result += 1,
        }
    }
    Ok((without_result, with_result))
}

#[e2e::test]
async fn runs_continue_after_the_operator_is_killed(case: &mut Case) -> Result<()> {
    case.hooks.answer("/game", Answer::Json(json!({"age": 45})));
    case.apply(web(
        case,
        "game",
        json!({"count": 6, "interval": "1s", "successCondition": "value > 30"}),
    ))
    .await?;
    for kills in 1..=2 {
        case.eventually("more calls are made", async || {
            let calls = case.hooks.calls("/game").len();
            ensure!(calls >= 2 * kills, "{calls} calls");
            Ok(())
        })
        .await?;
        case.kill_operator().await?;
        case.operator.start().await?;
    }
    let status = until_phase(case, "game", "Successful").await?;
    let result = &status["metricResults"][0];
    ensure!(result["count"] == 6 && result["successful"] == 6, "{status:#}");
    // A call whose result was not written is repeated, with the same idempotency key.
    let calls = case.hooks.calls("/game");
    let mut keys: Vec<_> =
        calls.iter().filter_map(|call| call.headers.get("idempotency-key")).collect();
    ensure!(keys.len() == calls.len() && calls.len() <= 8, "{} calls", calls.len());
    keys.dedup();
    ensure!(keys.len() == 6, "{keys:?}");
    Ok(())
}

#[e2e::test]
async fn terminating_or_deleting_a_run_stops_its_calls(case: &mut Case) -> Result<()> {
    let endless = json!({"interval": "1s", "failureLimit": 1000, "successCondition": "value > 30"});
    for (run, age) in [("good", 45), ("bad", 10), ("deleted", 45)] {
        case.hooks.answer(&format!("/{run}"), Answer::Json(json!({"age": age})));
        case.apply(web(case, run, endless.clone())).await?;
    }
    let late = Answer::Delayed(Duration::from_secs(3), Box::new(Answer::Json(json!({"age": 45}))));
    case.hooks.answer("/late", late);
    case.apply(web(case, "late", json!({"count": 1000, "interval": "1s"}))).await?;
    for run in ["good", "bad", "deleted"] {
        case.eventually("two measurements are made", async || {
            let status = status(case, run).await?;
            ensure!(status["metricResults"][0]["count"].as_i64() >= Some(2), "{status:#}");
            Ok(())
        })
        .await?;
    }
    until_phase(case, "late", "Running").await?;
    for run in ["good", "bad", "late"] {
        let terminate = json!([{"op": "add", "path": "/spec/terminate", "value": true}]);
        case.patch(&format!("hookrun/{run}"), terminate).await?;
    }
    until_phase(case, "good", "Successful").await?;
    for run in ["bad", "late"] {
        let status = until_phase(case, run, "Inconclusive").await?;
        let message = text(&status, "/message");
        ensure!(message.ends_with("the run was terminated"), "{run}: {message}");
    }

    case.kubectl(&["delete", "hookrun", "deleted"]).await?;
    let calls =
        || ["good", "bad", "deleted", "late"].map(|run| case.hooks.calls(&format!("/{run}")).len());
    // A call may be in flight, and the deletion is observed with a delay.
    case.eventually("no more calls are made", async || {
        let before = calls();
        let ensure_no_call = async || {
            ensure!(calls() == before, "another call was made");
            Ok(())
        };
        consistently("no more calls are made", Duration::from_secs(3), ensure_no_call).await
    })
    .await
}

#[e2e::test]
async fn a_manual_run_may_read_pods_of_its_namespace_but_not_change_them(
    case: &mut Case,
) -> Result<()> {
    let pod = |name: &str| {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "annotations": {"example.com/players": "0"}},
            "spec": {"containers": [{"name": "game", "image": "game:v1"}]},
        })
    };
    case.apply(pod("game")).await?;
    let run = |name: &str, namespace: &str, kubernetes: Value| {
        let args = json!([
            {"name": "PodName", "value": "game"}, {"name": "PodNamespace", "value": namespace},
        ]);
        let metric = json!({
            "name": "pod", "consecutiveErrorLimit": 0, "provider": {"kubernetes": kubernetes},
        });
        hook_run(name, json!({"args": args, "metrics": [metric]}))
    };
    let get = |path: &str, value: &str| json!({"function": "get", "fields": [{"path": path, "value": value}]});
    let namespace = case.namespace.clone();
    let players = "metadata.annotations.example.com/players";
    case.apply(run("same", &namespace, get(players, "0"))).await?;
    case.apply(run("other", &namespace, get(players, "1"))).await?;
    case.apply(run("elsewhere", "default", get(players, "0"))).await?;
    case.apply(run(
        "drain",
        &namespace,
        json!({"function": "patch", "fields": [
            {"path": "metadata.annotations.example.com/drain", "value": "{{ args.PodName }}"},
        ]}),
    ))
    .await?;
    until_phase(case, "same", "Successful").await?;
    let other = until_phase(case, "other", "Failed").await?;
    let message = text(&other, "/message");
    ensure!(message.ends_with("of pod game is 0, not 1"), "{message}");
    let elsewhere = until_phase(case, "elsewhere", "Error").await?;
    let message = text(&elsewhere, "/message");
    ensure!(message.contains("pods of namespace default are not accessible"), "{message}");
    // Permission to create HookRuns must not imply permission to change pods.
    let drain = until_phase(case, "drain", "Error").await?;
    let message = text(&drain, "/message");
    ensure!(message.contains("function patch works only in"), "{message}");
    let pod = case.get("pods/game").await?;
    let annotation = &pod["metadata"]["annotations"]["example.com/drain"];
    ensure!(annotation.is_null(), "{pod:#}");
    Ok(())
}

#[e2e::test]
async fn only_labeled_secrets_are_read_and_no_secret_is_shown(case: &mut Case) -> Result<()> {
    for (name, labels) in
        [("open", json!({"tkex.tencent.com/hook-access": "true"})), ("shut", json!({}))]
    {
        case.apply(json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": name, "labels": labels}, "stringData": {"token": "s3cret"},
        }))
        .await?;
        case.hooks.answer(
            &format!("/{name}"),
            Answer::StatusAndText(403, "s3cret is not welcome".into()),
        );
        let source = json!({"secretKeyRef": {"name": name, "key": "token"}});
        let metric = json!({
            "name": "ready", "consecutiveErrorLimit": 0,
            "provider": {"web": {
                "url": case.hooks.url(&format!("/{name}")),
                "headers": [{"key": "x-token", "value": "{{ args.token }}"}],
            }},
        });
        let args = json!([{"name": "token", "valueFrom": source}]);
        case.apply(hook_run(name, json!({"args": args, "metrics": [metric]}))).await?;
    }
    let open = until_phase(case, "open", "Error").await?;
    let message = text(&open, "/message");
    ensure!(message.ends_with("ms: *** is not welcome"), "{message}");
    let call = case.hooks.calls("/open").pop().context("no call")?;
    ensure!(call.headers.get("x-token").is_some_and(|token| token == "s3cret"), "{call:?}");
    let shut = until_phase(case, "shut", "Error").await?;
    let message = text(&shut, "/message");
    ensure!(message.contains("secret shut is not readable by hooks: label it"), "{message}");
    ensure!(case.hooks.calls("/shut").is_empty(), "the server was called without the token");
    for run in ["open", "shut"] {
        let run = case.get(&format!("hookruns/{run}")).await?.to_string();
        ensure!(!run.contains("s3cret"), "{run}");
    }
    let log = std::fs::read_to_string(case.operator.log())?;
    ensure!(!log.contains("s3cret"), "the log shows the secret");
    Ok(())
}
