//! Histories of whole runs, played with given answers.

mod properties;

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};

use super::*;
use crate::api::HookPhase::{Error, Failed, Inconclusive, Pending, Running, Successful};
use crate::api::{
    DryRun, HookPhase, HookPolicy, HookRunSpec, HookRunStatus, MeasurementRetention, Metric,
    MetricResult,
};

fn start() -> Timestamp {
    "2020-11-10T09:02:05Z".parse().expect("a time")
}

/// Resolves the rules of a run, and assesses it.
fn look(
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
    /// When each call was made: metric, number, seconds since the start.
    calls: Vec<(usize, i32, i64)>,
}

impl Play {
    fn new(spec: HookRunSpec, answers: &[&str]) -> Self {
        let answers = answers.iter().map(|answers| {
            let phases = answers.chars().filter(|c| !c.is_whitespace());
            phases.map(phase_of).rev().collect()
        });
        let answers = answers.collect();
        Play {
            spec,
            status: HookRunStatus::default(),
            now: start(),
            answers,
            calls: Vec::new(),
        }
    }

    /// Plays until the run ends, waits for nothing, or has no answer left.
    fn play(mut self) -> Self {
        let mut measured = Vec::new();
        loop {
            let next = look(
                &self.spec,
                &self.status,
                &measured,
                &BTreeSet::new(),
                self.now,
            );
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
                assert!(wake > self.now, "the wake is in the past");
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
    Outcome {
        phase,
        value: Some("32".into()),
        message,
        ..Outcome::default()
    }
}

fn metric(change: impl FnOnce(&mut Metric)) -> Metric {
    let mut metric = Metric {
        name: "webtest".into(),
        ..Metric::default()
    };
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
    HookRunSpec {
        metrics: metrics.to_vec(),
        ..HookRunSpec::default()
    }
}

fn play(metric: Metric, answers: &str) -> Play {
    Play::new(run_of(&[metric]), &[answers]).play()
}

#[test]
fn histories_end_as_the_design_says() {
    let with = |count: i32, change: fn(&mut Metric)| {
        let mut metric = counted(count);
        change(&mut metric);
        metric
    };
    let endless = |change: fn(&mut Metric)| {
        let mut metric = metric(|m| m.interval = Some("5s".into()));
        change(&mut metric);
        metric
    };
    // Metric, answers, phase, number of calls.
    let rows = [
        (metric(|_| {}), "S", Successful, 1),
        (metric(|_| {}), "F", Failed, 1),
        (metric(|_| {}), "I", Inconclusive, 1),
        (metric(|_| {}), "EEEE S", Successful, 5),
        (metric(|_| {}), "EEEEE S", Error, 5),
        (counted(1), "S", Successful, 1),
        (counted(3), "SSS S", Successful, 3),
        (counted(2), "F S", Failed, 1),
        (counted(2), "S F", Failed, 2),
        (counted(2), "S E S", Successful, 3),
        (counted(2), "SEEEEE S", Error, 6),
        (with(3, |m| m.failure_limit = Some(2)), "FFS", Successful, 3),
        (with(3, |m| m.failure_limit = Some(2)), "FFF", Failed, 3),
        (
            with(3, |m| m.failure_limit = Some(3)),
            "FFF",
            Inconclusive,
            3,
        ),
        (
            with(2, |m| m.inconclusive_limit = Some(1)),
            "IS",
            Successful,
            2,
        ),
        (
            with(2, |m| m.inconclusive_limit = Some(2)),
            "II",
            Inconclusive,
            2,
        ),
        (
            with(5, |m| m.successful_limit = Some(2)),
            "SS S",
            Successful,
            2,
        ),
        (
            with(3, |m| {
                m.failure_limit = Some(2);
                m.successful_limit = Some(2);
            }),
            "FFS",
            Inconclusive,
            3,
        ),
        // A poll: failures end it only if failureLimit is set.
        (
            endless(|m| m.successful_limit = Some(1)),
            "FFFFFFS S",
            Successful,
            7,
        ),
        (
            endless(|m| {
                m.successful_limit = Some(1);
                m.failure_limit = Some(0);
            }),
            "F S",
            Failed,
            1,
        ),
        (
            with(3, |m| m.successful_limit = Some(1)),
            "FFF S",
            Inconclusive,
            3,
        ),
        (
            with(1, |m| m.consecutive_error_limit = Some(0)),
            "E S",
            Error,
            1,
        ),
        (with(1, |m| m.failure_limit = Some(-1)), "F", Failed, 1),
        (
            endless(|m| {
                m.consecutive_successful_limit = Some(2);
                m.failure_limit = Some(9);
            }),
            "SFSES FSS S",
            Successful,
            8,
        ),
        (
            endless(|m| m.successful_limit = Some(3)),
            "SSS S",
            Successful,
            3,
        ),
        (endless(|_| {}), "SSS", Running, 3),
        (endless(|_| {}), "SSF S", Failed, 3),
    ];
    for (row, (metric, answers, phase, asked)) in rows.into_iter().enumerate() {
        let played = play(metric, answers);
        assert_eq!(played.status.phase, phase, "row {row}: {answers}");
        assert_eq!(played.calls.len(), asked, "row {row}: {answers}");
        assert_eq!(
            played.status.finished_at.is_some(),
            phase != Running,
            "row {row}"
        );
        let ended_badly = !matches!(phase, Successful | Running);
        assert_eq!(
            played.status.message.is_some(),
            ended_badly,
            "row {row}: {answers}"
        );
    }
}

/// A status that the user documentation shows.
#[test]
fn the_first_failure_ends_a_run_of_two_measurements() {
    let played = play(counted(2), "F");
    let result = played.result(0);
    assert_eq!(
        (result.count, result.failed, result.measurements.len()),
        (1, 1, 1)
    );
    assert_eq!(result.measurements[0].value.as_deref(), Some("32"));
    assert_eq!(
        played.message(),
        "measurement 1 of metric webtest: it was Failed"
    );
    insta::assert_yaml_snapshot!(played.status);
}

#[test]
fn a_run_between_its_measurements_is_running() {
    let mut spec = counted(3);
    spec.failure_limit = Some(2);
    let played = play(spec, "S");
    insta::assert_yaml_snapshot!(played.status);
}

#[test]
fn intervals_count_from_the_end_of_the_last_measurement() {
    let mut spec = counted(3);
    spec.initial_delay = Some("30s".into());
    let played = play(spec, "SES S");
    assert_eq!(
        played.calls,
        [(0, 1, 30), (0, 2, 91), (0, 3, 152), (0, 4, 213)]
    );
}

#[test]
fn an_error_without_interval_is_retried_after_ten_seconds() {
    assert_eq!(play(metric(|_| {}), "ES").calls, [(0, 1, 0), (0, 2, 11)]);
}

#[test]
fn parallel_metrics_start_together_and_ordered_ones_in_turn() {
    let mut spec = run_of(&[counted(1), metric(|m| m.name = "second".into())]);
    spec.metrics[1].initial_delay = Some("5s".into());
    let played = Play::new(spec.clone(), &["S", "S"]).play();
    assert_eq!(played.calls, [(0, 1, 0), (1, 1, 5)]);
    assert_eq!(played.status.phase, Successful);
    spec.policy = HookPolicy::Ordered;
    let played = Play::new(spec, &["S", "S"]).play();
    assert_eq!(played.calls, [(0, 1, 0), (1, 1, 6)]);
    assert_eq!(played.status.phase, Successful);
}

#[test]
fn the_first_bad_end_stops_the_other_metrics() {
    let later = Metric {
        name: "later".into(),
        initial_delay: Some("60s".into()),
        ..counted(5)
    };
    let spec = run_of(&[counted(5), metric(|m| m.name = "bad".into()), later]);
    let played = Play::new(spec, &["SSSSS", "F", "S"]).play();
    assert_eq!(played.status.phase, Failed);
    assert_eq!(
        played.message(),
        "measurement 1 of metric bad: it was Failed"
    );
    assert_eq!(played.result(0).phase, Inconclusive);
    assert_eq!(
        played.result(0).message.as_deref(),
        Some("metric webtest was stopped after 1 measurements: metric bad ended Failed")
    );
    assert_eq!(
        (played.result(2).phase, played.result(2).count),
        (Inconclusive, 0)
    );
}

#[test]
fn the_worst_metric_decides() {
    let named = |name: &str| metric(|m| m.name = name.into());
    let spec = run_of(&[named("a"), named("b"), named("c")]);
    let played = Play::new(spec, &["S", "I", "F"]).play();
    assert_eq!(played.status.phase, Failed);
    assert_eq!(played.message(), "measurement 1 of metric c: it was Failed");
}

#[test]
fn a_dry_run_decides_nothing() {
    let named = |name: &str| metric(|m| m.name = name.into());
    let mut spec = run_of(&[named("dry"), named("real"), named("wet")]);
    spec.dry_run = vec![DryRun {
        metric_name: "d.*".into(),
    }];
    let played = Play::new(spec.clone(), &["F", "S", "S"]).play();
    assert_eq!(played.status.phase, Successful);
    assert_eq!(played.status.message, None);
    let dry = played.result(0);
    assert_eq!((dry.phase, dry.failed, dry.dry_run), (Failed, 1, true));
    assert!(!played.result(1).dry_run);
    // Other metrics still decide, and the run waits for the dry run.
    let played = Play::new(spec.clone(), &["S", "F", "S"]).play();
    assert_eq!(played.status.phase, Failed);
    spec.metrics[0] = Metric {
        name: "dry".into(),
        failure_limit: Some(9),
        ..counted(3)
    };
    let played = Play::new(spec.clone(), &["FFS", "S", "S"]).play();
    assert_eq!(played.status.phase, Successful);
    assert_eq!(played.calls.len(), 5);
    // A failed dry run does not stop the metrics after it either.
    spec.policy = HookPolicy::Ordered;
    spec.metrics[0].failure_limit = None;
    let played = Play::new(spec, &["F", "S", "S"]).play();
    assert_eq!(played.status.phase, Successful);
}

#[test]
fn a_run_of_dry_runs_alone_says_that_nothing_decided() {
    let mut spec = run_of(&[counted(1)]);
    spec.dry_run = vec![DryRun {
        metric_name: ".*".into(),
    }];
    let played = Play::new(spec, &["F"]).play();
    assert_eq!(played.status.phase, Successful);
    assert_eq!(
        played.message(),
        "all metrics are dry runs: none affects the result"
    );
}

#[test]
fn as_many_measurements_are_kept_as_the_run_says() {
    let mut spec = run_of(&[counted(25)]);
    spec.measurement_retention = vec![MeasurementRetention {
        metric_name: "web.*".into(),
        limit: 20,
    }];
    let played = Play::new(spec, &[&"S".repeat(25)]).play();
    assert_eq!(played.result(0).count, 25);
    assert_eq!(played.result(0).measurements.len(), 20);
}

#[test]
fn counters_count_what_the_list_has_dropped() {
    let mut spec = counted(25);
    spec.failure_limit = Some(25);
    let played = play(spec, &"SSFSE".repeat(7));
    let result = played.result(0);
    assert_eq!(
        (result.count, result.successful, result.failed, result.error),
        (25, 19, 6, 6)
    );
    assert_eq!(result.measurements.len(), 10);
    assert_eq!(played.status.phase, Successful);
}

#[test]
fn limits_are_explained_by_their_last_measurement() {
    let mut spec = counted(9);
    spec.failure_limit = Some(1);
    assert_eq!(
        play(spec, "SFSF").message(),
        "measurement 4 of metric webtest: it was Failed (2 of 4 Failed; failureLimit is 1)"
    );
    assert_eq!(
        play(counted(1), "EEEEE").message(),
        "measurement 5 of metric webtest: it was Error \
         (5 errors in a row; consecutiveErrorLimit is 4)"
    );
}

fn terminated(metric: Metric, answers: &str) -> Play {
    let mut played = play(metric, answers);
    played.spec.terminate = true;
    played.play()
}

#[test]
fn a_terminated_run_is_successful_only_if_it_had_met_its_end() {
    let endless = metric(|m| m.interval = Some("5s".into()));
    assert_eq!(terminated(endless.clone(), "SS").status.phase, Successful);
    let mut tolerant = endless.clone();
    tolerant.failure_limit = Some(5);
    assert_eq!(terminated(tolerant, "F").status.phase, Inconclusive);
    assert_eq!(terminated(endless.clone(), "").status.phase, Inconclusive);
    assert_eq!(terminated(endless.clone(), "EE").status.phase, Inconclusive);
    let mut limited = endless;
    limited.successful_limit = Some(5);
    assert_eq!(terminated(limited, "SSS").status.phase, Inconclusive);
    let stopped = terminated(counted(3), "SS");
    assert_eq!(stopped.status.phase, Inconclusive);
    assert_eq!(
        stopped.message(),
        "metric webtest was stopped after 2 measurements: the run was terminated"
    );
}

#[test]
fn a_run_that_cannot_be_played_is_an_error_that_says_why() {
    let no_interval = metric(|m| m.count = Some(3));
    let bad_interval = metric(|m| m.interval = Some("60".into()));
    let rows = [
        (run_of(&[]), "there are no metrics"),
        (
            run_of(&[counted(1), counted(1)]),
            "two metrics are named webtest",
        ),
        (
            HookRunSpec {
                dry_run: vec![DryRun {
                    metric_name: "web".into(),
                }],
                ..run_of(&[counted(1)])
            },
            "dryRun names web, but there is no such metric",
        ),
        (
            run_of(&[no_interval]),
            "metric webtest: count 3 needs an interval",
        ),
        (
            run_of(&[bad_interval]),
            "metric webtest: interval: \"60\" is not a duration",
        ),
    ];
    for (spec, message) in rows {
        let played = Play::new(spec, &["SSS", "SSS"]).play();
        assert_eq!(played.status.phase, Error, "{message}");
        assert!(
            played.message().starts_with(message),
            "{}",
            played.message()
        );
        assert!(played.calls.is_empty(), "{message}");
    }
}

#[test]
fn a_completed_run_stays_as_it_is() {
    let played = play(counted(1), "S");
    let late = [Measured {
        metric: 0,
        started: played.now,
        finished: played.now,
        outcome: ended(Failed),
    }];
    let next = look(
        &played.spec,
        &played.status,
        &late,
        &BTreeSet::new(),
        Timestamp::MAX,
    );
    assert_eq!(
        next,
        Assessment {
            status: played.status,
            start: vec![],
            wake: None,
            stop: vec![]
        }
    );
}

#[test]
fn a_metric_that_is_being_measured_is_not_started_again() {
    let spec = run_of(&[counted(2)]);
    let running = BTreeSet::from([0]);
    let next = look(&spec, &HookRunStatus::default(), &[], &running, start());
    assert_eq!((next.start, next.wake), (vec![], None));
}

#[test]
fn a_measurement_that_takes_its_time_is_shown_and_looked_at_again() {
    let goes_on = |seconds| Outcome {
        phase: Running,
        message: Some("it is in progress".into()),
        resume_after: Some(SignedDuration::from_secs(seconds)),
        ..Outcome::default()
    };
    let spec = run_of(&[counted(2)]);
    let measured = |outcome, at| Measured {
        metric: 0,
        started: at,
        finished: at,
        outcome,
    };
    let none = BTreeSet::new();
    let begun = look(&spec, &HookRunStatus::default(), &[], &none, start());
    assert!(!is_in_progress(&begun.status, &spec.metrics[0]));
    let shown = look(
        &spec,
        &begun.status,
        &[measured(goes_on(3), start())],
        &none,
        start(),
    );
    assert!(is_in_progress(&shown.status, &spec.metrics[0]));
    assert_eq!(next_number(&shown.status, &spec.metrics[0]), 1);
    assert_eq!(
        (shown.start, shown.wake),
        (vec![], Some(start() + SignedDuration::from_secs(3)))
    );
    let result = &shown.status.metric_results[0];
    assert_eq!((result.count, result.measurements[0].phase), (0, Running));

    let later = start() + SignedDuration::from_secs(3);
    let again = look(&spec, &shown.status, &[], &none, later);
    assert_eq!(again.start, [0]);
    let over = look(
        &spec,
        &again.status,
        &[measured(ended(Successful), later)],
        &none,
        later,
    );
    let result = &over.status.metric_results[0];
    assert_eq!((result.count, result.measurements.len()), (1, 1));
    assert_eq!(
        result.measurements[0].started_at.as_ref().map(|at| at.0),
        Some(start())
    );
    assert_eq!(result.measurements[0].resume_at, None);
    // The interval counts from the end of the measurement.
    assert_eq!(over.wake, Some(later + SignedDuration::from_secs(60)));

    let mut terminated = spec;
    terminated.terminate = true;
    let stopped = look(&terminated, &again.status, &[], &none, later);
    assert_eq!(stopped.stop, [0]);
    assert_eq!(stopped.status.phase, Inconclusive);
    assert!(stopped.status.metric_results[0].measurements.is_empty());
}

#[test]
fn no_metric_is_measured_more_often_than_once_a_second() {
    let hasty = metric(|m| {
        m.count = Some(3);
        m.interval = Some("1ns".into());
    });
    let played = play(hasty, "SSS");
    let since: Vec<i64> = played.calls.iter().map(|(_, _, since)| *since).collect();
    // Each call takes a second, too.
    assert_eq!(since, [0, 2, 4]);
}
