//! Where a run stands: the next status, what to measure now, and when to look again.
//!
//! A run's state is its status alone, so an operator that starts anew goes on where the last one
//! stopped; a call that was under way then is made again, under the same number.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::metric::{self, Verdict};
use crate::api::{
    HookPhase, HookPolicy, HookRunSpec, HookRunStatus, Measurement, Metric, MetricResult,
};
use crate::plan::parse_duration;

/// Time until a measurement that ended in an error is made again, where the metric has no interval.
const ERROR_RETRY: SignedDuration = SignedDuration::from_secs(10);

/// Measurements kept in the status; the counters count all.
const KEPT_MEASUREMENTS: usize = 10;

/// A measurement that has ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// Index of its metric in the spec.
    pub metric: usize,
    /// When the call began.
    pub started: Timestamp,
    /// When it ended.
    pub finished: Timestamp,
    /// How it ended.
    pub outcome: Outcome,
}

/// How a measurement ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Successful, Failed, Inconclusive or Error.
    pub phase: HookPhase,
    /// What was measured, as text.
    pub value: Option<String>,
    /// Why it is not Successful.
    pub message: Option<String>,
}

impl Outcome {
    /// A measurement that gave nothing to judge.
    pub fn error(message: impl Into<String>) -> Self {
        Outcome {
            phase: HookPhase::Error,
            value: None,
            message: Some(message.into()),
        }
    }
}

/// What follows for a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Assessment {
    /// Its status from now on.
    pub status: HookRunStatus,
    /// Metrics (by index) to measure now.
    pub start: Vec<usize>,
    /// When to assess again though nothing happens until then.
    pub wake: Option<Timestamp>,
}

/// Assesses a run: `measured` has ended since `status`, `running` is being measured.
pub fn assess(
    spec: &HookRunSpec,
    status: &HookRunStatus,
    measured: &[Measured],
    running: &BTreeSet<usize>,
    now: Timestamp,
) -> Assessment {
    let mut status = status.clone();
    if status.phase.is_completed() {
        return Assessment {
            status,
            start: Vec::new(),
            wake: None,
        };
    }
    status.phase = HookPhase::Running;
    let started = status.started_at.get_or_insert(Time(now)).0;
    if let Some(why) = unusable(spec) {
        status.phase = HookPhase::Error;
        status.message = Some(why);
        status.finished_at = Some(Time(now));
        return Assessment {
            status,
            start: Vec::new(),
            wake: None,
        };
    }
    for ended in measured {
        record(spec, &mut status, ended);
    }
    for metric in &spec.metrics {
        if let Some(result) = result_mut(&mut status, &metric.name) {
            settle(metric, result);
        }
    }
    let ended_badly = status
        .metric_results
        .iter()
        .any(|result| result.phase.is_completed() && result.phase != HookPhase::Successful);
    let all_ended = spec.metrics.iter().all(|metric| {
        result(&status, &metric.name).is_some_and(|result| result.phase.is_completed())
    });
    if ended_badly || all_ended || spec.terminate {
        finish(spec, &mut status, now);
        return Assessment {
            status,
            start: Vec::new(),
            wake: None,
        };
    }
    schedule(spec, status, running, started, now)
}

/// Why nothing can be made of a run, whatever is measured. Admission refuses such runs; one that
/// got past it must not pass for want of something to fail.
fn unusable(spec: &HookRunSpec) -> Option<String> {
    if spec.metrics.is_empty() {
        return Some("the run has no metrics: give its template at least one".into());
    }
    let mut names = BTreeSet::new();
    let twice = spec
        .metrics
        .iter()
        .find(|metric| !names.insert(&metric.name))?;
    Some(format!(
        "two metrics are named {}: give each its own name",
        twice.name
    ))
}

/// Number of the measurement that a metric makes next; the first is 1.
pub fn next_number(status: &HookRunStatus, metric: &Metric) -> i32 {
    result(status, &metric.name).map_or(1, |result| metric::made(result) + 1)
}

fn result<'a>(status: &'a HookRunStatus, name: &str) -> Option<&'a MetricResult> {
    status
        .metric_results
        .iter()
        .find(|result| result.name == name)
}

fn result_mut<'a>(status: &'a mut HookRunStatus, name: &str) -> Option<&'a mut MetricResult> {
    status
        .metric_results
        .iter_mut()
        .find(|result| result.name == name)
}

/// The entry of a metric, made when it is first needed, in the order of the spec.
fn entry<'a>(
    spec: &HookRunSpec,
    status: &'a mut HookRunStatus,
    index: usize,
) -> &'a mut MetricResult {
    let name = &spec.metrics[index].name;
    let results = &mut status.metric_results;
    let place = results
        .iter()
        .position(|result| result.name == *name)
        .unwrap_or_else(|| {
            let before = |result: &MetricResult| {
                spec.metrics[..index]
                    .iter()
                    .any(|metric| metric.name == result.name)
            };
            let place = results.iter().take_while(|result| before(result)).count();
            let phase = HookPhase::Running;
            results.insert(
                place,
                MetricResult {
                    name: name.clone(),
                    phase,
                    ..MetricResult::default()
                },
            );
            place
        });
    &mut results[place]
}

fn record(spec: &HookRunSpec, status: &mut HookRunStatus, ended: &Measured) {
    if ended.metric >= spec.metrics.len() {
        return;
    }
    let result = entry(spec, status, ended.metric);
    if result.phase.is_completed() {
        return;
    }
    metric::count(result, ended.outcome.phase);
    result.measurements.push(Measurement {
        phase: ended.outcome.phase,
        value: ended.outcome.value.clone(),
        message: ended.outcome.message.clone(),
        started_at: Some(Time(ended.started)),
        finished_at: Some(Time(ended.finished)),
        resume_at: None,
    });
    let surplus = result.measurements.len().saturating_sub(KEPT_MEASUREMENTS);
    result.measurements.drain(..surplus);
}

/// Ends a metric whose counters say so.
fn settle(metric: &Metric, result: &mut MetricResult) {
    if result.phase.is_completed() {
        return;
    }
    if let Some(Verdict { phase, message }) = metric::verdict(metric, result) {
        result.phase = phase;
        result.message = message;
    }
}

/// Ends the run: metrics that have not ended are judged as they stand, and the worst one decides.
fn finish(spec: &HookRunSpec, status: &mut HookRunStatus, now: Timestamp) {
    let cause = status
        .metric_results
        .iter()
        .find(|result| result.phase.is_completed() && result.phase != HookPhase::Successful)
        .map_or("the run was terminated".to_owned(), |result| {
            format!("metric {} ended {}", result.name, result.phase)
        });
    for (index, metric) in spec.metrics.iter().enumerate() {
        let result = entry(spec, status, index);
        if !result.phase.is_completed() {
            let Verdict { phase, message } = metric::verdict_when_stopped(metric, result, &cause);
            result.phase = phase;
            result.message = message;
        }
    }
    let worst = status
        .metric_results
        .iter()
        .min_by_key(|result| severity(result.phase));
    status.phase = worst.map_or(HookPhase::Error, |result| result.phase);
    status.message = worst.and_then(|result| result.message.clone());
    status.finished_at = Some(Time(now));
}

/// Worst first.
fn severity(phase: HookPhase) -> u8 {
    match phase {
        HookPhase::Failed => 0,
        HookPhase::Error => 1,
        HookPhase::Inconclusive => 2,
        _ => 3,
    }
}

/// Finds out what is due; a metric that cannot be scheduled ends in an error.
fn schedule(
    spec: &HookRunSpec,
    mut status: HookRunStatus,
    running: &BTreeSet<usize>,
    started: Timestamp,
    now: Timestamp,
) -> Assessment {
    let mut start = Vec::new();
    let mut wake = None;
    for index in open_metrics(spec, &status) {
        let metric = &spec.metrics[index];
        let turn = turn(spec, &status, index, started);
        match due(metric, result(&status, &metric.name), turn) {
            Err(why) => {
                let result = entry(spec, &mut status, index);
                result.phase = HookPhase::Error;
                result.message = Some(format!("metric {}: {why}", metric.name));
                finish(spec, &mut status, now);
                return Assessment {
                    status,
                    start: Vec::new(),
                    wake: None,
                };
            }
            Ok(_) if running.contains(&index) => {}
            Ok(due) if due <= now => {
                entry(spec, &mut status, index);
                start.push(index);
            }
            Ok(due) => wake = Some(wake.map_or(due, |wake: Timestamp| wake.min(due))),
        }
    }
    Assessment {
        status,
        start,
        wake,
    }
}

/// Metrics that may be measured: all that have not ended, or when Ordered the first of them.
fn open_metrics(spec: &HookRunSpec, status: &HookRunStatus) -> Vec<usize> {
    let open = (0..spec.metrics.len()).filter(|index| {
        let result = result(status, &spec.metrics[*index].name);
        !result.is_some_and(|result| result.phase.is_completed())
    });
    match spec.policy {
        HookPolicy::Parallel => open.collect(),
        HookPolicy::Ordered => open.take(1).collect(),
    }
}

/// When a metric's turn came: at the run's start, or when Ordered once the one before had ended.
fn turn(spec: &HookRunSpec, status: &HookRunStatus, index: usize, started: Timestamp) -> Timestamp {
    let before = match spec.policy {
        HookPolicy::Ordered => index
            .checked_sub(1)
            .map(|before| &spec.metrics[before].name),
        HookPolicy::Parallel => None,
    };
    before
        .and_then(|name| {
            result(status, name)?
                .measurements
                .last()?
                .finished_at
                .as_ref()
        })
        .map_or(started, |finished| finished.0)
}

/// When a metric is to be measured next.
fn due(
    metric: &Metric,
    result: Option<&MetricResult>,
    turn: Timestamp,
) -> Result<Timestamp, String> {
    let duration = |field: &str, text: &Option<String>| {
        text.as_deref()
            .map(|text| parse_duration(text).map_err(|why| format!("{field}: {why}")))
            .transpose()
    };
    let interval = duration("interval", &metric.interval)?;
    let initial_delay = duration("initialDelay", &metric.initial_delay)?;
    if let (Some(count @ 2..), None) = (metric.count, interval) {
        return Err(format!(
            "count {count} needs an interval: set one, for example 10s"
        ));
    }
    let last = result.and_then(|result| result.measurements.last());
    let Some(last) = last else {
        return Ok(later(turn, initial_delay.unwrap_or_default()));
    };
    let wait = match (interval, last.phase) {
        (Some(interval), _) => interval,
        (None, HookPhase::Error) => ERROR_RETRY,
        (None, _) => {
            let count = metric.count.unwrap_or_default();
            return Err(format!(
                "count {count} needs an interval: set one, for example 10s"
            ));
        }
    };
    Ok(later(
        last.finished_at
            .as_ref()
            .map_or(turn, |finished| finished.0),
        wait,
    ))
}

fn later(from: Timestamp, wait: SignedDuration) -> Timestamp {
    from.checked_add(wait).unwrap_or(Timestamp::MAX)
}
