//! `kubectl game hooks`: the HookRuns of a workload, metric by metric.

use gamekeeper::api::names::HookPoint;
use gamekeeper::api::{HookRun, MetricResult};
use jiff::Timestamp;
use kube::ResourceExt;

use super::cut;
use super::run::{last_measured, message, phase_cell};
use crate::age::age;
use crate::scene::{Scene, phase};
use crate::style::Style;
use crate::table::{Cell, Table};

/// Longest message in a table; `-o yaml` has all of it.
const MESSAGE: usize = 120;

/// The table.
pub fn hooks(scene: &Scene, style: Style, now: Timestamp) -> String {
    let mut table = Table::new([
        "HOOKRUN", "POINT", "ABOUT", "PHASE", "METRIC", "COUNT", "LAST", "AGE", "MESSAGE",
    ]);
    for run in &scene.runs {
        let metrics = run
            .status
            .as_ref()
            .map_or(&[][..], |status| &status.metric_results);
        if metrics.is_empty() {
            table.push(line(scene, run, None, now));
        }
        for metric in metrics {
            table.push(line(scene, run, Some(metric), now));
        }
    }
    table.render(style)
}

fn line(scene: &Scene, run: &HookRun, metric: Option<&MetricResult>, now: Timestamp) -> [Cell; 9] {
    let point = scene.point(run);
    let none = || "-".to_owned();
    let of_run = run
        .status
        .as_ref()
        .and_then(|status| status.message.clone());
    let message = metric.and_then(message).or(of_run).unwrap_or_default();
    let name = |metric: &MetricResult| match metric.dry_run {
        true => format!("{} (dry run)", metric.name),
        false => metric.name.clone(),
    };
    let measured = metric.map_or(0, |metric| metric.count + metric.error);
    [
        run.name_any().into(),
        point.map_or("-", HookPoint::as_str).into(),
        scene.about(run).into(),
        phase_cell(metric.map_or(phase(run), |metric| metric.phase)),
        metric.map_or_else(none, name).into(),
        measured.to_string().into(),
        metric.and_then(last_measured).unwrap_or_else(none).into(),
        age(run.creation_timestamp().as_ref(), now).into(),
        cut(&message, MESSAGE).into(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{failed_pod_hook, failed_step, now};

    #[test]
    fn each_metric_with_its_last_measurement() {
        insta::assert_snapshot!(hooks(&failed_step(), Style::PLAIN, now()));
        insta::assert_snapshot!(hooks(&failed_pod_hook(), Style::PLAIN, now()));
    }
}
