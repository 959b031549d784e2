//! Plays whole runs. Each test gives the results of the calls.

mod ends;
mod properties;
mod timing;

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};

use super::*;
use crate::api::HookPhase::{Error, Failed, Inconclusive, Pending, Running, Successful};
use crate::api::{
    DryRun, HookPhase, HookPolicy, HookRunSpec, HookRunStatus, JobReference, MeasurementRetention,
    Metric, MetricResult,
};

fn start() -> Timestamp {
    "2020-11-10T09:02:05Z".parse().expect("a time")
}

/// Resolves the rules of a run, and assesses it.
fn assess_now(
    spec: &HookRunSpec,
    status: &HookRunStatus,
    measured: &[Measured],
    running: &BTreeSet<usize>,
    now: Timestamp,
) -> Assessment {
    assess(spec, &Rules::of(spec), status, measured, running, now)
}

/// A run that is played with given answers. Each call takes a second.
struct Play {
    spec: HookRunSpec,
    status: HookRunStatus,
    now: Timestamp,
    /// Answers still to come, by metric, in reverse order.
    answers: Vec<Vec<HookPhase>>,
    /// The calls that were made: the metric, the number, and the seconds since the start.
    calls: Vec<(usize, i32, i64)>,
}

impl Play {
    fn new(spec: HookRunSpec, answers: &[&str]) -> Self {
        let answers = answers.iter().map(|answers| {
            let phases = answers.chars().filter(|c| !c.is_whitespace());
            phases.map(phase_of).rev().collect()
        });
        let answers = answers.collect();
        Play { spec, status: HookRunStatus::default(), now: start(), answers, calls: Vec::new() }
    }

    /// Plays until the run ends, has nothing to wait for, or has no answer left.
    fn play(mut self) -> Self {
        let mut measured = Vec::new();
        loop {
            let next = assess_now(&self.spec, &self.status, &measured, &BTreeSet::new(), self.now);
            measured.clear();
            self.status = next.status;
            for metric in next.start {
                let Some(phase) = self.answers[metric].pop() else {
                    return self;
                };
                let number = next_number(&self.status, &self.spec.metrics[metric]);
                let since = self.now.duration_since(start()).as_secs();
                self.calls.push((metric, number, since));
                let finished = self.now + SignedDuration::from_secs(1);
                measured.push(Measured {
                    metric,
                    started: self.now,
                    finished,
                    outcome: ended(phase),
                });
            }
            if !measured.is_empty() {
                self.now += SignedDuration::from_secs(1);
            } else if let Some(wake) = next.wake {
                assert!(wake > self.now, "the wake is not in the future");
                self.now = wake;
            } else {
                return self;
            }
        }
    }

    fn result(&self, index: usize) -> &MetricResult {
        &self.status.metric_results[index]
    }

    fn message(&self) -> &str {
        self.status.message.as_deref().unwrap_or_default()
    }
}

fn phase_of(letter: char) -> HookPhase {
    match letter {
        'S' => Successful,
        'F' => Failed,
        'I' => Inconclusive,
        _ => Error,
    }
}

fn ended(phase: HookPhase) -> Outcome {
    let message = (phase != Successful).then(|| format!("it was {phase}"));
    Outcome { phase, value: Some("32".into()), message, ..Outcome::default() }
}

fn metric(change: impl FnOnce(&mut Metric)) -> Metric {
    let mut metric = Metric { name: "webtest".into(), ..Metric::default() };
    change(&mut metric);
    metric
}

fn counted(count: i32) -> Metric {
    metric(|m| {
        m.count = Some(count);
        m.interval = Some("60s".into());
    })
}

fn run_of(metrics: &[Metric]) -> HookRunSpec {
    HookRunSpec { metrics: metrics.to_vec(), ..HookRunSpec::default() }
}

fn play(metric: Metric, answers: &str) -> Play {
    Play::new(run_of(&[metric]), &[answers]).play()
}

/// A status that the user documentation shows.
#[test]
fn the_first_failure_ends_a_run_of_two_measurements() {
    let played = play(counted(2), "F");
    let result = played.result(0);
    assert_eq!((result.count, result.failed, result.measurements.len()), (1, 1, 1));
    assert_eq!(result.measurements[0].value.as_deref(), Some("32"));
    assert_eq!(played.message(), "measurement 1 of metric webtest: it was Failed");
    insta::assert_yaml_snapshot!(played.status);
}

#[test]
fn a_run_between_its_measurements_is_running() {
    let mut metric = counted(3);
    metric.failure_limit = Some(2);
    let played = play(metric, "S");
    insta::assert_yaml_snapshot!(played.status);
}

#[test]
fn measurement_retention_decides_how_many_measurements_are_kept() {
    let mut spec = run_of(&[counted(25)]);
    spec.measurement_retention =
        vec![MeasurementRetention { metric_name: "web.*".into(), limit: 20 }];
    let played = Play::new(spec, &[&"S".repeat(25)]).play();
    assert_eq!(played.result(0).count, 25);
    assert_eq!(played.result(0).measurements.len(), 20);
}

#[test]
fn counters_include_measurements_that_the_list_has_dropped() {
    let mut metric = counted(25);
    metric.failure_limit = Some(25);
    let played = play(metric, &"SSFSE".repeat(7));
    let result = played.result(0);
    assert_eq!((result.count, result.successful, result.failed, result.error), (25, 19, 6, 6));
    assert_eq!(result.measurements.len(), 10);
    assert_eq!(played.status.phase, Successful);
}
