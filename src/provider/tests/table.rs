//! Plays the runs of tests/hook_runs.yaml without a socket or a clock. Each response is judged like a response to a web
//! metric, and the run's state machine assesses the outcomes.

use std::collections::{BTreeMap, BTreeSet};

use http::StatusCode;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::Value;

use super::*;
use crate::provider::http::HttpResponse;
use crate::provider::judge::Conditions;
use crate::provider::secrets::Secrets;
use crate::provider::web;
use gamekeeper_core::api::{HookPhase, HookPolicy, HookRunStatus, MetricResult};
use gamekeeper_core::expr::on_deep_stack;
use gamekeeper_core::hook_run::{Measured, Rules, assess};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    name: String,
    metric: Option<Value>,
    metrics: Option<BTreeMap<String, Value>>,
    #[serde(default)]
    policy: HookPolicy,
    answers: Value,
    /// The number of calls after which the run is told to terminate.
    terminate: Option<usize>,
    phase: HookPhase,
    counts: [i32; 5],
    message: Option<String>,
    /// Whether the row depends on an order of events that only this test guarantees. The e2e tests skip such rows.
    #[serde(default, rename = "pure")]
    _pure: bool,
}

impl Row {
    fn spec(&self) -> HookRunSpec {
        let one = self.metric.iter().map(|metric| ("m".to_owned(), metric.clone()));
        let many =
            self.metrics.iter().flatten().map(|(name, metric)| (name.clone(), metric.clone()));
        let metrics = one.chain(many).map(|(name, mut metric)| {
            let fields = metric.as_object_mut().expect("fields");
            let path = fields.remove("path").unwrap_or(json!("{$.age}"));
            fields.insert("name".into(), name.into());
            fields.insert("provider".into(), json!({"web": {"url": "http://h", "jsonPath": path}}));
            serde_json::from_value(metric).expect("a metric")
        });
        HookRunSpec { metrics: metrics.collect(), policy: self.policy, ..HookRunSpec::default() }
    }

    /// The responses for a metric, in reverse order.
    fn answers(&self, metric: &str) -> Vec<HttpResponse> {
        let answers = self.answers.get(metric).unwrap_or(&self.answers);
        answers.as_array().expect("answers").iter().rev().map(answer).collect()
    }
}

fn answer(value: &Value) -> HttpResponse {
    let (status, body) = match value {
        Value::Number(age) => (200, json!({"age": age}).to_string()),
        Value::String(text) => {
            let (status, body) = text.split_once(' ').expect("a status and a body");
            (status.parse().expect("a status"), body.to_owned())
        }
        json => match json["text"].as_str() {
            Some(text) => (200, text.to_owned()),
            None => (200, json.to_string()),
        },
    };
    HttpResponse {
        status: StatusCode::from_u16(status).expect("a status"),
        body: body.into_bytes(),
        from: "URL".into(),
        elapsed: Duration::from_millis(7),
        secrets: Secrets::default(),
    }
}

/// Plays a row to its end, or until no responses are left.
fn play(row: &Row) -> HookRunStatus {
    let mut spec = row.spec();
    let mut answers: Vec<_> = spec.metrics.iter().map(|metric| row.answers(&metric.name)).collect();
    let mut status = HookRunStatus::default();
    let mut now: Timestamp = "2020-11-10T09:02:05Z".parse().expect("a time");
    let (mut calls, mut measured) = (0, Vec::new());
    let rules = Rules::of(&spec);
    loop {
        spec.terminate = row.terminate.is_some_and(|after| calls >= after);
        let next = assess(&spec, &rules, &status, &measured, &BTreeSet::new(), now);
        status = next.status;
        measured.clear();
        for metric in next.start {
            let Some(answer) = answers[metric].pop() else {
                return status;
            };
            let web = spec.metrics[metric].provider.web.as_ref().expect("web");
            let path = web.json_path.clone().unwrap_or_default();
            let outcome = web::assess(&answer, &path, &Conditions::of(&spec.metrics[metric]));
            measured.push(Measured { metric, started: now, finished: now, outcome });
            calls += 1;
        }
        if measured.is_empty() {
            match next.wake {
                Some(wake) => now = wake + SignedDuration::from_millis(1),
                None => return status,
            }
        }
    }
}

fn counts(result: Option<&MetricResult>) -> [i32; 5] {
    result.map_or([0; 5], |result| {
        [result.count, result.successful, result.failed, result.inconclusive, result.error]
    })
}

#[test]
fn runs_end_as_the_table_specifies() {
    let rows: Vec<Row> =
        serde_yaml_ng::from_str(include_str!("../../../tests/hook_runs.yaml")).expect("the table");
    assert!(rows.len() >= 80, "{} rows", rows.len());
    for row in rows {
        let played = on_deep_stack(move || {
            let status = play(&row);
            (row, status)
        });
        let (row, status) = played.expect("no panic");
        let name = &row.name;
        assert_eq!(status.phase, row.phase, "{name}: {status:?}");
        assert_eq!(counts(status.metric_results.last()), row.counts, "{name}: {status:?}");
        if let Some(expected) = row.message {
            let message = status.message.unwrap_or_default().replace("7 ms", "N ms");
            assert_eq!(message, expected, "{name}");
        }
    }
}
