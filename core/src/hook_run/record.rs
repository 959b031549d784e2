//! The results of metrics in a status, and how measurements are recorded in them.

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::assess::Measured;
use super::by_name::Rules;
use super::schedule::later;
use super::{budget, metric};
use crate::api::{
    HookPhase, HookRunSpec, HookRunStatus, JobReference, Measurement, Metric, MetricResult,
};

/// Number of the measurement that a metric makes next; the first is 1.
pub fn next_number(status: &HookRunStatus, metric: &Metric) -> i32 {
    result(status, &metric.name).map_or(1, |result| metric::total(result) + 1)
}

/// The Job of a metric's measurement in progress. If there is one, the next call only checks on it.
pub fn job_in_progress<'a>(status: &'a HookRunStatus, metric: &Metric) -> Option<&'a JobReference> {
    let result = result(status, &metric.name)?;
    measurement_in_progress(result)?.job.as_ref()
}

pub(super) fn result<'a>(status: &'a HookRunStatus, name: &str) -> Option<&'a MetricResult> {
    status.metric_results.iter().find(|result| result.name == name)
}

pub(super) fn result_mut<'a>(
    status: &'a mut HookRunStatus,
    name: &str,
) -> Option<&'a mut MetricResult> {
    status.metric_results.iter_mut().find(|result| result.name == name)
}

/// A metric's measurement in progress, if there is one.
pub(super) fn measurement_in_progress(result: &MetricResult) -> Option<&Measurement> {
    let last = result.measurements.last();
    last.filter(|last| last.phase == HookPhase::Running)
}

/// Removes the measurement in progress from the list.
pub(super) fn take_in_progress(result: &mut MetricResult) -> Option<Measurement> {
    measurement_in_progress(result)?;
    result.measurements.pop()
}

/// The result of a metric. If there is none yet, an empty one is inserted, in the order of the spec.
pub(super) fn entry<'a>(
    spec: &HookRunSpec,
    rules: &Rules,
    status: &'a mut HookRunStatus,
    index: usize,
) -> &'a mut MetricResult {
    let name = &spec.metrics[index].name;
    let results = &mut status.metric_results;
    let place = results.iter().position(|result| result.name == *name).unwrap_or_else(|| {
        let comes_before = |result: &MetricResult| {
            spec.metrics[..index].iter().any(|metric| metric.name == result.name)
        };
        let place = results.iter().take_while(|result| comes_before(result)).count();
        results.insert(
            place,
            MetricResult {
                name: name.clone(),
                phase: HookPhase::Running,
                dry_run: rules.of_metric(index).dry_run,
                ..MetricResult::default()
            },
        );
        place
    });
    &mut results[place]
}

/// Records what a call returned. A measurement that has ended is counted; one in progress is only shown.
pub(super) fn record(
    spec: &HookRunSpec,
    rules: &Rules,
    status: &mut HookRunStatus,
    measured: &Measured,
) {
    if measured.metric >= spec.metrics.len() {
        return;
    }
    let result = entry(spec, rules, status, measured.metric);
    if result.phase.is_completed() {
        return;
    }
    let (began_at, job) = take_in_progress(result)
        .map(|earlier| (earlier.started_at, earlier.job))
        .unwrap_or_default();
    let outcome = &measured.outcome;
    let resume = (outcome.phase == HookPhase::Running).then_some(outcome.resume_after);
    if resume.is_none() {
        metric::count(result, outcome.phase);
    }
    let resume_at =
        |after: Option<SignedDuration>| later(measured.finished, after.unwrap_or_default());
    result.measurements.push(Measurement {
        phase: outcome.phase,
        value: outcome.value.clone().map(budget::cut),
        message: outcome.message.clone().map(budget::cut),
        started_at: began_at.or(Some(Time(measured.started))),
        finished_at: resume.is_none().then_some(Time(measured.finished)),
        resume_at: resume.map(|after| Time(resume_at(after))),
        job: outcome.job.clone().or(job),
    });
    let kept = rules.of_metric(measured.metric).kept;
    let surplus = result.measurements.len().saturating_sub(kept);
    result.measurements.drain(..surplus);
}
