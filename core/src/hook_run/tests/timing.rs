//! When metrics are measured.

use super::*;

#[test]
fn intervals_count_from_the_end_of_the_last_measurement() {
    let mut metric = counted(3);
    metric.initial_delay = Some("30s".into());
    let played = play(metric, "SES S");
    assert_eq!(played.calls, [(0, 1, 30), (0, 2, 91), (0, 3, 152), (0, 4, 213)]);
}

#[test]
fn a_metric_without_an_interval_is_retried_ten_seconds_after_an_error() {
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
fn a_metric_that_is_being_measured_is_not_started_again() {
    let spec = run_of(&[counted(2)]);
    let running = BTreeSet::from([0]);
    let next = assess_now(&spec, &HookRunStatus::default(), &[], &running, start());
    assert_eq!((next.start, next.wake), (vec![], None));
}

#[test]
fn a_measurement_in_progress_is_shown_and_checked_again() {
    let job = || JobReference { name: "job".into(), uid: "uid".into() };
    let in_progress = |seconds| Outcome {
        phase: Running,
        message: Some("it is in progress".into()),
        resume_after: Some(SignedDuration::from_secs(seconds)),
        job: (seconds == 3).then(job),
        ..Outcome::default()
    };
    let spec = run_of(&[counted(2)]);
    let measured = |outcome, at| Measured { metric: 0, started: at, finished: at, outcome };
    let none = BTreeSet::new();
    let started = assess_now(&spec, &HookRunStatus::default(), &[], &none, start());
    assert_eq!(job_in_progress(&started.status, &spec.metrics[0]), None);
    let shown =
        assess_now(&spec, &started.status, &[measured(in_progress(3), start())], &none, start());
    assert_eq!(job_in_progress(&shown.status, &spec.metrics[0]), Some(&job()));
    assert_eq!(next_number(&shown.status, &spec.metrics[0]), 1);
    assert_eq!((shown.start, shown.wake), (vec![], Some(start() + SignedDuration::from_secs(3))));
    let result = &shown.status.metric_results[0];
    assert_eq!((result.count, result.measurements[0].phase), (0, Running));

    let later = start() + SignedDuration::from_secs(3);
    let next = assess_now(&spec, &shown.status, &[], &none, later);
    assert_eq!(next.start, [0]);
    let complete =
        assess_now(&spec, &next.status, &[measured(ended(Successful), later)], &none, later);
    let result = &complete.status.metric_results[0];
    assert_eq!((result.count, result.measurements.len()), (1, 1));
    assert_eq!(result.measurements[0].started_at.as_ref().map(|at| at.0), Some(start()));
    assert_eq!(result.measurements[0].resume_at, None);
    assert_eq!(result.measurements[0].job, Some(job()));
    // The interval counts from the end of the measurement.
    assert_eq!(complete.wake, Some(later + SignedDuration::from_secs(60)));

    let mut terminated = spec;
    terminated.terminate = true;
    let stopped = assess_now(&terminated, &next.status, &[], &none, later);
    assert_eq!(stopped.stop, [0]);
    assert_eq!(stopped.status.phase, Inconclusive);
    assert!(stopped.status.metric_results[0].measurements.is_empty());
}

#[test]
fn no_metric_is_measured_more_often_than_once_a_second() {
    let too_frequent = metric(|m| {
        m.count = Some(3);
        m.interval = Some("1ns".into());
    });
    let played = play(too_frequent, "SSS");
    let times: Vec<i64> = played.calls.iter().map(|(_, _, time)| *time).collect();
    // Each call takes a second, and the interval counts from its end.
    assert_eq!(times, [0, 2, 4]);
}
