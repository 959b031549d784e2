//! Decides which metrics are measured, and when: intervals, delays and the order of metrics.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};

use super::record::{measurement_in_progress, result};
use crate::api::{HookPhase, HookPolicy, HookRunSpec, HookRunStatus, Metric, MetricResult};
use crate::observed::time::parse_duration;

/// Time from an error to the next measurement if the metric has no interval.
const ERROR_RETRY: SignedDuration = SignedDuration::from_secs(10);

/// Minimum interval. There is one because each measurement causes a write, and all runs share the operator.
/// In objects that are already stored, the minimum replaces shorter intervals.
pub const SHORTEST_INTERVAL: SignedDuration = SignedDuration::from_secs(1);

/// The metrics that are due.
#[derive(Debug, Default)]
pub(super) struct Due {
    /// Metrics (by index) to measure now.
    pub start: Vec<usize>,
    /// When the next one is due.
    pub wake: Option<Timestamp>,
}

/// Finds the metrics that are due.
///
/// # Errors
/// The index of a metric that cannot be scheduled, and why.
pub(super) fn schedule(
    spec: &HookRunSpec,
    status: &HookRunStatus,
    running: &BTreeSet<usize>,
    started: Timestamp,
    now: Timestamp,
) -> Result<Due, (usize, String)> {
    let mut found = Due::default();
    for index in open_metrics(spec, status) {
        let metric = &spec.metrics[index];
        let turn = turn(spec, status, index, started);
        match due(metric, result(status, &metric.name), turn) {
            Err(why) => return Err((index, format!("metric {}: {why}", metric.name))),
            Ok(_) if running.contains(&index) => {}
            Ok(due) if due <= now => found.start.push(index),
            Ok(due) => found.wake = Some(found.wake.map_or(due, |wake| wake.min(due))),
        }
    }
    Ok(found)
}

/// Metrics that may be measured: all that have not ended or, with the policy Ordered, the first of them.
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

/// When a metric's turn came: at the run's start or, with the policy Ordered, when the one before it ended.
fn turn(spec: &HookRunSpec, status: &HookRunStatus, index: usize, started: Timestamp) -> Timestamp {
    let previous = match spec.policy {
        HookPolicy::Ordered => index.checked_sub(1).map(|previous| &spec.metrics[previous].name),
        HookPolicy::Parallel => None,
    };
    previous
        .and_then(|name| result(status, name)?.measurements.last()?.finished_at.as_ref())
        .map_or(started, |finished| finished.0)
}

/// The waiting times of a metric.
struct Waits {
    interval: Option<SignedDuration>,
    initial_delay: SignedDuration,
}

fn waits(metric: &Metric) -> Result<Waits, String> {
    let duration = |field: &str, text: &Option<String>| {
        text.as_deref()
            .map(|text| parse_duration(text).map_err(|why| format!("{field}: {why}")))
            .transpose()
    };
    let interval = duration("interval", &metric.interval)?.map(|it| it.max(SHORTEST_INTERVAL));
    let initial_delay = duration("initialDelay", &metric.initial_delay)?.unwrap_or_default();
    match (metric.count, interval) {
        (Some(count @ 2..), None) => {
            Err(format!("count {count} needs an interval: set one, for example 10s"))
        }
        _ => Ok(Waits { interval, initial_delay }),
    }
}

/// Checks that a metric can be scheduled.
///
/// # Errors
/// If it cannot. The message names the field and the fix.
pub(super) fn check_schedule(metric: &Metric) -> Result<(), String> {
    waits(metric).map(drop)
}

/// When a metric is measured next.
fn due(
    metric: &Metric,
    result: Option<&MetricResult>,
    turn: Timestamp,
) -> Result<Timestamp, String> {
    let Waits { interval, initial_delay } = waits(metric)?;
    if let Some(in_progress) = result.and_then(measurement_in_progress) {
        return Ok(in_progress.resume_at.as_ref().map_or(turn, |at| at.0));
    }
    let last = result.and_then(|result| result.measurements.last());
    let Some(last) = last else {
        return Ok(later(turn, initial_delay));
    };
    let wait = match (interval, last.phase) {
        (Some(interval), _) => interval,
        (None, HookPhase::Error) => ERROR_RETRY,
        (None, _) => {
            let count = metric.count.unwrap_or_default();
            return Err(format!("count {count} needs an interval: set one, for example 10s"));
        }
    };
    Ok(later(last.finished_at.as_ref().map_or(turn, |finished| finished.0), wait))
}

/// Adds a wait to a time; the result is at most `Timestamp::MAX`.
pub(super) fn later(from: Timestamp, wait: SignedDuration) -> Timestamp {
    from.checked_add(wait).unwrap_or(Timestamp::MAX)
}
