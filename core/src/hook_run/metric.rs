//! Decides when and how a metric ends, by comparing its counters with its limits.

use crate::api::{HookPhase, Metric, MetricResult};

/// Number of consecutive errors to tolerate unless the metric sets consecutiveErrorLimit.
const DEFAULT_CONSECUTIVE_ERROR_LIMIT: i32 = 4;

/// How a metric has ended.
#[derive(Debug, PartialEq)]
pub(super) struct Verdict {
    pub phase: HookPhase,
    /// None if it ended Successful, because there is nothing to explain.
    pub message: Option<String>,
}

/// Number of measurements made so far, including errors.
pub(super) fn total(result: &MetricResult) -> i32 {
    result.count.saturating_add(result.error)
}

/// This number of measurements, in words.
fn measurements(count: i32) -> String {
    match count {
        1 => "1 measurement".to_owned(),
        count => format!("{count} measurements"),
    }
}

/// Counts a measurement. Errors do not use up `count`, because they measured nothing.
pub(super) fn count(result: &mut MetricResult, phase: HookPhase) {
    let add = |counter: &mut i32| *counter = counter.saturating_add(1);
    match phase {
        HookPhase::Successful => add(&mut result.successful),
        HookPhase::Failed => add(&mut result.failed),
        HookPhase::Inconclusive => add(&mut result.inconclusive),
        _ => add(&mut result.error),
    }
    match phase {
        HookPhase::Successful => add(&mut result.consecutive_successful),
        _ => result.consecutive_successful = 0,
    }
    match phase {
        HookPhase::Successful | HookPhase::Failed | HookPhase::Inconclusive => {
            add(&mut result.count);
            result.consecutive_error = 0;
        }
        _ => add(&mut result.consecutive_error),
    }
}

/// How a metric has ended; None while it is in progress.
pub(super) fn verdict(metric: &Metric, result: &MetricResult) -> Option<Verdict> {
    exceeded_limit(metric, result).or_else(|| {
        if reached_success_limit(metric, result) {
            return Some(Verdict { phase: HookPhase::Successful, message: None });
        }
        let count = metric.planned_count()?;
        (result.count >= count).then(|| verdict_at_count(metric, result))
    })
}

/// How a metric ends when it is stopped. A metric that would never have ended on its own is Successful if
/// any of its measurements was. Any other metric has not reached its own end, so it cannot succeed.
pub(super) fn verdict_when_stopped(metric: &Metric, result: &MetricResult, cause: &str) -> Verdict {
    let endless = metric.planned_count().is_none() && metric.success_limits().is_empty();
    if endless && result.successful > 0 {
        return Verdict { phase: HookPhase::Successful, message: None };
    }
    let made = measurements(total(result));
    let message = format!("metric {} was stopped after {made}: {cause}", metric.name);
    Verdict { phase: HookPhase::Inconclusive, message: Some(message) }
}

fn exceeded_limit(metric: &Metric, result: &MetricResult) -> Option<Verdict> {
    // As in bk-bcs, failures do not end a metric that runs until it has been Successful often enough, unless
    // its failureLimit is set.
    let default_failure_limit = match metric.success_limits().is_empty() {
        true => 0,
        false => i32::MAX,
    };
    let limits = [
        (
            HookPhase::Failed,
            result.failed,
            "failureLimit",
            metric.failure_limit,
            default_failure_limit,
        ),
        (
            HookPhase::Inconclusive,
            result.inconclusive,
            "inconclusiveLimit",
            metric.inconclusive_limit,
            0,
        ),
        (
            HookPhase::Error,
            result.consecutive_error,
            "consecutiveErrorLimit",
            metric.consecutive_error_limit,
            DEFAULT_CONSECUTIVE_ERROR_LIMIT,
        ),
    ];
    limits.into_iter().find_map(|(phase, counter, field, limit, default)| {
        let limit = limit.unwrap_or(default).max(0);
        (counter > limit).then(|| Verdict {
            phase,
            message: Some(explain(metric, result, phase, counter, field, limit)),
        })
    })
}

/// Describes the measurement that exceeded the limit and, unless it was the first of its kind, how many of that
/// kind there were.
fn explain(
    metric: &Metric,
    result: &MetricResult,
    phase: HookPhase,
    counter: i32,
    field: &str,
    limit: i32,
) -> String {
    let last = result.measurements.last().and_then(|last| last.message.as_deref());
    let last = last.map_or_else(|| format!("it is {phase}"), str::to_owned);
    let message = format!("measurement {} of metric {}: {last}", total(result), metric.name);
    match (counter, phase) {
        (1, _) => message,
        (_, HookPhase::Error) => {
            format!("{message} ({counter} errors in a row; {field} is {limit})")
        }
        _ => format!("{message} ({counter} of {} {phase}; {field} is {limit})", result.count),
    }
}

fn reached_success_limit(metric: &Metric, result: &MetricResult) -> bool {
    metric.success_limits().into_iter().any(|(field, limit)| {
        let counter = match field {
            "successfulLimit" => result.successful,
            _ => result.consecutive_successful,
        };
        counter >= limit
    })
}

/// How a metric ends when all measurements are made and no limit is exceeded: Successful only if enough of them were
/// Successful. A metric whose limits allow every measurement to fail is still not Successful if all of them fail.
fn verdict_at_count(metric: &Metric, result: &MetricResult) -> Verdict {
    let limits = metric.success_limits();
    if limits.is_empty() && result.successful > 0 {
        return Verdict { phase: HookPhase::Successful, message: None };
    }
    let wanted = match limits.first() {
        Some((field, limit)) => format!("{field} {limit} was not reached"),
        None => "none was Successful".into(),
    };
    let made = measurements(result.count);
    let message = format!("metric {}: {made} made, {wanted}", metric.name);
    Verdict { phase: HookPhase::Inconclusive, message: Some(message) }
}
