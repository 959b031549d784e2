//! HookRuns with their measurements.

use gamekeeper_core::api::names::HookPoint;
use gamekeeper_core::api::{HookRun, MetricResult};
use kube::ResourceExt;
use serde_json::{Value, json};

use super::head::seconds;
use crate::scene::Scene;
use crate::view::cut;
use crate::view::run::{message, phase_tone, summary};

/// The maximum number of HookRuns on a page: those without success come first, then those in progress.
const MAX_RUNS: usize = 100;
/// The maximum number of measurements of a metric.
const MAX_MEASUREMENTS: usize = 50;
/// The maximum length of a measured value or of a message.
const MAX_TEXT: usize = 200;

/// The HookRuns of a workload, and how many there are.
pub fn runs(scene: &Scene) -> Value {
    let mut runs: Vec<&HookRun> = scene.runs.iter().collect();
    runs.sort_by_key(|run| (!run.phase().has_failed(), run.phase().is_completed()));
    runs.truncate(MAX_RUNS);
    let shown: Vec<Value> = runs.into_iter().map(|run| one_run(scene, run)).collect();
    json!({"shown": shown, "total": scene.runs.len()})
}

fn one_run(scene: &Scene, run: &HookRun) -> Value {
    let metrics = run.status.iter().flat_map(|status| &status.metric_results);
    json!({
        "name": run.name_any(),
        "point": scene.point(run).map(HookPoint::as_str),
        "subject": scene.subject(run),
        "phase": run.phase().to_string(),
        "tone": super::head::tone_name(phase_tone(run.phase())),
        "failed": run.phase().has_failed(),
        "summary": cut(&summary(run), MAX_TEXT),
        "created": seconds(run.creation_timestamp().as_ref()),
        "metrics": metrics.map(one_metric).collect::<Vec<_>>(),
    })
}

fn one_metric(metric: &MetricResult) -> Value {
    let skipped = metric.measurements.len().saturating_sub(MAX_MEASUREMENTS);
    let measurements = metric.measurements.iter().skip(skipped).map(|it| {
        json!({
            "phase": it.phase.to_string(),
            "value": it.value.as_ref().map(|value| cut(value, MAX_TEXT)),
            "message": it.message.as_ref().map(|message| cut(message, MAX_TEXT)),
            "at": seconds(it.finished_at.as_ref().or(it.started_at.as_ref())),
        })
    });
    json!({
        "name": metric.name,
        "phase": metric.phase.to_string(),
        "count": metric.count + metric.error,
        "message": message(metric).map(|text| cut(&text, MAX_TEXT)),
        "measurements": measurements.collect::<Vec<_>>(),
    })
}
