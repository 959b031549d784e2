//! Assesses a run: its next status, what to measure now, and when to assess it again.
//!
//! A run's state is its status alone, so a restarted operator continues where the last one stopped. A
//! call that was in progress at that moment is made again, under the same number.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::budget::{cut_message, limit_size};
use super::by_name::Rules;
use super::metric::{self, Verdict};
use super::record::{entry, record, result, result_mut, take_in_progress};
use super::schedule::{Due, schedule};
use crate::api::{HookPhase, HookRunSpec, HookRunStatus, JobReference, Metric, MetricResult};
use crate::kstatus::{self, State, Why};

/// The message of a run that is Successful because none of its metrics affects the result.
const NOTHING_DECIDES: &str = "all metrics are dry runs: none affects the result";

/// A call that has ended. Its measurement may continue.
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

/// How a measurement ended, or that it is in progress.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Successful, Failed, Inconclusive or Error; Running if it is in progress.
    pub phase: HookPhase,
    /// The measured value, as text.
    pub value: Option<String>,
    /// Why it is not Successful.
    pub message: Option<String>,
    /// If it is in progress, how long to wait before it is checked again.
    pub resume_after: Option<SignedDuration>,
    /// The Job that was created for it.
    pub job: Option<JobReference>,
}

impl Outcome {
    /// A measurement that returned nothing to judge.
    pub fn error(message: impl Into<String>) -> Self {
        Outcome { phase: HookPhase::Error, message: Some(message.into()), ..Outcome::default() }
    }
}

/// The result of assessing a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Assessment {
    /// The new status of the run.
    pub status: HookRunStatus,
    /// Metrics (by index) to measure now.
    pub start: Vec<usize>,
    /// When to assess the run again if nothing happens before then.
    pub wake: Option<Timestamp>,
    /// Metrics (by index) whose measurement might be in progress although the run has ended.
    pub stop: Vec<usize>,
}

impl Assessment {
    /// The assessment of a run that has ended.
    fn ended(status: HookRunStatus, stop: Vec<usize>) -> Self {
        Assessment { status, start: Vec::new(), wake: None, stop }
    }
}

/// Assesses a run. `measured` are the calls that have ended since `status` was computed; `running` are
/// the metrics (by index) with a call in progress; `rules` are those of the spec.
pub fn assess(
    spec: &HookRunSpec,
    rules: &Rules,
    status: &HookRunStatus,
    measured: &[Measured],
    running: &BTreeSet<usize>,
    now: Timestamp,
) -> Assessment {
    let mut status = status.clone();
    // They report that a run cannot be decoded, and this one was decoded; or how it ended, which is added at its end.
    status.conditions.clear();
    if status.phase.is_completed() {
        return Assessment::ended(status, Vec::new());
    }
    status.phase = HookPhase::Running;
    let started = status.started_at.get_or_insert(Time(now)).0;
    if let Some(why) = &rules.unusable {
        status.phase = HookPhase::Error;
        status.message = Some(why.clone());
        status.finished_at = Some(Time(now));
        return Assessment::ended(status, Vec::new());
    }
    for call in measured {
        record(spec, rules, &mut status, call);
    }
    if !measured.is_empty() {
        limit_size(&mut status);
    }
    for metric in &spec.metrics {
        if let Some(result) = result_mut(&mut status, &metric.name) {
            settle(metric, result, spec.metrics.len());
        }
    }
    let has_failed_metric = status.metric_results.iter().any(fails_run);
    let all_ended = spec.metrics.iter().all(|metric| {
        result(&status, &metric.name).is_some_and(|result| result.phase.is_completed())
    });
    if has_failed_metric || all_ended || spec.terminate {
        return finish(spec, rules, status, now);
    }
    match schedule(spec, &status, running, started, now) {
        Ok(Due { start, wake }) => {
            for index in &start {
                entry(spec, rules, &mut status, *index);
            }
            Assessment { status, start, wake, stop: Vec::new() }
        }
        Err((index, why)) => {
            let result = entry(spec, rules, &mut status, index);
            result.phase = HookPhase::Error;
            result.message = Some(why);
            // The error of a dry run must not decide the result. The run continues with its other metrics.
            match result.dry_run {
                true => assess(spec, rules, &status, &[], running, now),
                false => finish(spec, rules, status, now),
            }
        }
    }
}

/// Whether a metric ends its run: it has ended without success, and is not a dry run.
fn fails_run(result: &MetricResult) -> bool {
    result.phase.has_failed() && !result.dry_run
}

/// Ends a metric if its counters decide its result.
fn settle(metric: &Metric, result: &mut MetricResult, metrics: usize) {
    if result.phase.is_completed() {
        return;
    }
    if let Some(Verdict { phase, message }) = metric::verdict(metric, result) {
        result.phase = phase;
        result.message = message.map(|message| cut_message(message, metrics));
    }
}

/// Ends the run: metrics that have not ended are judged by their current counters, and the worst metric decides.
fn finish(
    spec: &HookRunSpec,
    rules: &Rules,
    mut status: HookRunStatus,
    now: Timestamp,
) -> Assessment {
    let failed = status.metric_results.iter().find(|it| fails_run(it));
    let cause = failed.map_or("the run was terminated".to_owned(), |result| {
        format!("metric {} ended {}", result.name, result.phase)
    });
    let mut stop = Vec::new();
    for (index, metric) in spec.metrics.iter().enumerate() {
        let result = entry(spec, rules, &mut status, index);
        if !result.phase.is_completed() {
            // A measurement in progress has no value yet, and will not get one.
            take_in_progress(result);
            let Verdict { phase, message } = metric::verdict_when_stopped(metric, result, &cause);
            result.phase = phase;
            result.message = message.map(|message| cut_message(message, spec.metrics.len()));
            stop.push(index);
        }
    }
    let deciding = status.metric_results.iter().filter(|it| !it.dry_run);
    (status.phase, status.message) = match deciding.min_by_key(|it| rank(it.phase)) {
        Some(worst) => (worst.phase, worst.message.clone()),
        None => (HookPhase::Successful, Some(NOTHING_DECIDES.to_owned())),
    };
    status.finished_at = Some(Time(now));
    Assessment::ended(status, stop)
}

/// The status after `before`, with what kstatus reads once a run has ended: the generation and, unless it was
/// successful, Stalled. A run that ended before there was such a verdict is left alone, because there may be thousands.
pub fn with_verdict(
    before: &HookRunStatus,
    status: HookRunStatus,
    generation: Option<i64>,
) -> HookRunStatus {
    let lacks_verdict = before.phase.is_completed() && before.observed_generation.is_none();
    if lacks_verdict || !status.phase.is_completed() {
        return status;
    }
    let why = Why {
        reason: status.phase.to_string(),
        message: status.message.clone().unwrap_or_default(),
    };
    let state = match status.phase.has_failed() {
        true => State::Blocked { why, since: None },
        false => State::Done,
    };
    let ended = status.finished_at.clone().map_or(Timestamp::UNIX_EPOCH, |it| it.0);
    let (stalled, _) = kstatus::condition(state, generation.unwrap_or_default(), &[], ended);
    HookRunStatus {
        observed_generation: generation,
        conditions: stalled.into_iter().collect(),
        ..status
    }
}

/// The rank of a phase; the worst one has rank 0.
fn rank(phase: HookPhase) -> u8 {
    match phase {
        HookPhase::Failed => 0,
        HookPhase::Error => 1,
        HookPhase::Inconclusive => 2,
        _ => 3,
    }
}
