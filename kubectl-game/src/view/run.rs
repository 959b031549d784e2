//! A HookRun in a few words: its last measurements and why it ended so.

use gamekeeper_core::api::{HookPhase, HookRun, MetricResult};

use super::cut;
use crate::scene::phase;
use crate::style::Tone;
use crate::table::Cell;

/// Longest measured value that is shown.
const VALUE: usize = 40;

/// Its phase.
pub fn phase_cell(phase: HookPhase) -> Cell {
    let tone = match phase {
        HookPhase::Successful => Tone::Good,
        HookPhase::Pending | HookPhase::Running => Tone::Busy,
        HookPhase::Inconclusive => Tone::Held,
        HookPhase::Failed | HookPhase::Error => Tone::Bad,
    };
    Cell::state(tone, phase.to_string())
}

/// What was measured last: a value, or how it went instead.
pub fn last_measured(metric: &MetricResult) -> Option<String> {
    let last = metric.measurements.last()?;
    let value = last.value.as_ref().map(|value| cut(value, VALUE));
    Some(value.unwrap_or_else(|| last.phase.to_string()))
}

/// Why a metric is as it is. Its own message mostly repeats that of a measurement.
pub fn message(metric: &MetricResult) -> Option<String> {
    let of_last = metric
        .measurements
        .last()
        .and_then(|it| it.message.as_deref());
    match (metric.message.as_deref(), of_last) {
        (Some(own), Some(of_last)) if !own.contains(of_last) => Some(format!("{own}: {of_last}")),
        (own, of_last) => of_last.or(own).map(str::to_owned),
    }
}

/// The metric that says most: one that ended badly, else the last that was measured.
fn telling(run: &HookRun) -> Option<&MetricResult> {
    let metrics = &run.status.as_ref()?.metric_results;
    let is_bad = |metric: &&MetricResult| metric.phase.has_failed() && !metric.dry_run;
    let measured = || {
        metrics
            .iter()
            .rev()
            .find(|metric| !metric.measurements.is_empty())
    };
    metrics.iter().find(is_bad).or_else(measured)
}

/// Last measurement and message.
pub fn told(run: &HookRun) -> String {
    let Some(metric) = telling(run) else {
        let said = run
            .status
            .as_ref()
            .and_then(|status| status.message.clone());
        return said.unwrap_or_else(|| "nothing measured yet".to_owned());
    };
    let last = metric.measurements.last();
    let measured = match last.and_then(|last| last.value.as_ref()) {
        Some(value) => format!("{} measured {}", metric.name, cut(value, VALUE)),
        None => metric.name.clone(),
    };
    match message(metric).filter(|_| phase(run) != HookPhase::Successful) {
        Some(why) => format!("{measured}: {why}"),
        None => measured,
    }
}
