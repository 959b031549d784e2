//! A HookRun in a few words: its last measurement, and the reason for its phase.

use gamekeeper_core::api::{HookPhase, HookRun, MetricResult};
use jiff::Timestamp;

use super::cut;
use crate::age::span;
use crate::style::Tone;
use crate::table::Cell;

/// The maximum length of a measured value.
const MAX_VALUE: usize = 40;

/// The kind of state that a phase is.
pub fn phase_tone(phase: HookPhase) -> Tone {
    match phase {
        HookPhase::Successful => Tone::Good,
        HookPhase::Pending | HookPhase::Running => Tone::Busy,
        HookPhase::Inconclusive => Tone::Held,
        HookPhase::Failed | HookPhase::Error => Tone::Bad,
    }
}

pub fn phase_cell(phase: HookPhase) -> Cell {
    Cell::state(phase_tone(phase), phase.to_string())
}

/// The last measured value, or the phase of the last measurement.
pub fn last_measured(metric: &MetricResult) -> Option<String> {
    let last = metric.measurements.last()?;
    let value = last.value.as_ref().map(|value| cut(value, MAX_VALUE));
    Some(value.unwrap_or_else(|| last.phase.to_string()))
}

/// The reason for a metric's phase. The metric's message usually repeats that of its last measurement.
pub fn message(metric: &MetricResult) -> Option<String> {
    let last = metric.measurements.last();
    let last_message = last.and_then(|it| it.message.as_deref());
    match (metric.message.as_deref(), last_message) {
        (Some(message), Some(last_message)) if !message.contains(last_message) => {
            Some(format!("{message}: {last_message}"))
        }
        (message, last_message) => last_message.or(message).map(str::to_owned),
    }
}

/// A failed metric, or else the last one with a measurement.
fn most_relevant(run: &HookRun) -> Option<&MetricResult> {
    let metrics = &run.status.as_ref()?.metric_results;
    let is_bad = |metric: &&MetricResult| metric.phase.has_failed() && !metric.dry_run;
    let mut latest = metrics.iter().rev();
    let measured = || latest.find(|metric| !metric.measurements.is_empty());
    metrics.iter().find(is_bad).or_else(measured)
}

/// For how long a run has been measuring, and how far it is.
pub fn clock(run: &HookRun, now: Timestamp) -> String {
    let created = run.metadata.creation_timestamp.as_ref().map_or(now, |it| it.0);
    let elapsed = span(now.duration_since(created).as_secs());
    let progress = most_relevant(run).and_then(|result| {
        let metric = run.spec.metrics.iter().find(|it| it.name == result.name)?;
        let count = metric.count.filter(|count| *count > 1)?;
        Some(format!(", {} of {count} measurements", result.count.saturating_add(result.error)))
    });
    format!("for {elapsed}{}", progress.unwrap_or_default())
}

/// The last measurement, and the reason for the phase.
pub fn summary(run: &HookRun) -> String {
    let Some(metric) = most_relevant(run) else {
        let status = run.status.as_ref();
        let message = status.and_then(|status| status.message.clone());
        return message.unwrap_or_else(|| "nothing measured yet".to_owned());
    };
    let last = metric.measurements.last();
    let measured = match last.and_then(|last| last.value.as_ref()) {
        Some(value) => format!("{} measured {}", metric.name, cut(value, MAX_VALUE)),
        None => metric.name.clone(),
    };
    match message(metric).filter(|_| run.phase() != HookPhase::Successful) {
        Some(why) => format!("{measured}: {why}"),
        None => measured,
    }
}
