//! `kubectl game hooks`: the HookRuns of a workload, metric by metric.

use gamekeeper_core::api::names::HookPoint;
use gamekeeper_core::api::{HookRun, MetricResult};
use jiff::Timestamp;
use kube::ResourceExt;

use super::run::{last_measured, message, phase_cell};
use crate::age::age;
use crate::scene::Scene;
use crate::style::Style;
use crate::table::{Cell, Table};

const HEADINGS: [&str; 9] =
    ["HOOKRUN", "POINT", "ABOUT", "PHASE", "METRIC", "COUNT", "LAST", "AGE", "MESSAGE"];

/// The table of a workload.
pub fn hooks(scene: &Scene, style: Style, now: Timestamp) -> String {
    let mut table = Table::new(HEADINGS);
    for run in &scene.runs {
        for line in lines(Some(scene), run, now) {
            table.push(line);
        }
    }
    fitted(table, style).render(style)
}

/// Leaves out what its name and the message of a HookRun tell as well, as far as the terminal is too narrow.
fn fitted(table: Table, style: Style) -> Table {
    ["ABOUT", "POINT", "AGE", "COUNT", "LAST"]
        .iter()
        .fold(table, |table, it| table.without_if_narrow(it, style))
}

/// The table of many workloads, and of HookRuns without a workload.
pub fn all(
    scenes: &[Scene],
    others: &[HookRun],
    all_namespaces: bool,
    style: Style,
    now: Timestamp,
) -> String {
    let namespace = all_namespaces.then_some("NAMESPACE");
    let headings = namespace.into_iter().chain(["WORKLOAD"]).chain(HEADINGS);
    let mut table = Table::new(headings);
    let owned =
        scenes.iter().flat_map(|scene| scene.runs.iter().map(move |run| (Some(scene), run)));
    for (scene, run) in owned.chain(others.iter().map(|run| (None, run))) {
        let namespace = all_namespaces.then(|| Cell::from(run.namespace().unwrap_or_default()));
        let workload = scene.map_or_else(|| "-".to_owned(), |scene| scene.game.short_name());
        for line in lines(scene, run, now) {
            let start = namespace.clone().into_iter().chain([workload.as_str().into()]);
            table.push(start.chain(line));
        }
    }
    fitted(table, style).render(style)
}

/// A line for each metric.
fn lines(scene: Option<&Scene>, run: &HookRun, now: Timestamp) -> Vec<[Cell; 9]> {
    let status = run.status.as_ref();
    let metrics = status.map_or(&[][..], |status| &status.metric_results);
    if metrics.is_empty() {
        return vec![line(scene, run, None, now)];
    }
    let line = |metric| line(scene, run, Some(metric), now);
    metrics.iter().map(line).collect()
}

fn line(
    scene: Option<&Scene>,
    run: &HookRun,
    metric: Option<&MetricResult>,
    now: Timestamp,
) -> [Cell; 9] {
    let point = scene.and_then(|scene| scene.point(run));
    let none = || "-".to_owned();
    let run_message = || run.status.as_ref()?.message.clone();
    let message = metric.and_then(message).or_else(run_message).unwrap_or_default();
    let name = |metric: &MetricResult| match metric.dry_run {
        true => format!("{} (dry run)", metric.name),
        false => metric.name.clone(),
    };
    let measured = metric.map_or(0, |metric| metric.count + metric.error);
    [
        run.name_any().into(),
        point.map_or("-", HookPoint::as_str).into(),
        scene.map_or_else(none, |scene| scene.subject(run)).into(),
        phase_cell(metric.map_or(run.phase(), |metric| metric.phase)),
        metric.map_or_else(none, name).into(),
        measured.to_string().into(),
        metric.and_then(last_measured).unwrap_or_else(none).into(),
        age(run.creation_timestamp().as_ref(), now).into(),
        message.into(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{failed_pod_hook, failed_step, now, stateful_set};

    #[test]
    fn each_metric_with_its_last_measurement() {
        insta::assert_snapshot!(hooks(&failed_step(), Style::PLAIN, now()));
        insta::assert_snapshot!(hooks(&failed_pod_hook(), Style::PLAIN, now()));
    }

    #[test]
    fn runs_fit_a_terminal_of_80_columns() {
        let style = Style { width: Some(80), ..Style::PLAIN };
        let shown = [failed_step(), failed_pod_hook()].map(|it| hooks(&it, style, now())).concat();
        let wide: Vec<&str> = shown.lines().filter(|it| it.chars().count() > 80).collect();
        assert!(wide.is_empty(), "{wide:#?}");
        insta::assert_snapshot!(shown);
    }

    #[test]
    fn runs_of_all_workloads_and_without_one() {
        let (step, pod) = (failed_step(), failed_pod_hook());
        let mut stray = pod.runs[0].clone();
        stray.metadata.owner_references = None;
        stray.metadata.namespace = Some("test".to_owned());
        let runs = [step.runs, pod.runs, vec![stray]].concat();
        let (scenes, others) = Scene::group_runs(vec![stateful_set().game, step.game], runs);
        insta::assert_snapshot!(all(&scenes, &others, true, Style::PLAIN, now()));
    }
}
