//! How runs end: by their limits, by the first failed metric, by a user, or because they cannot be measured at all.

use super::*;

#[test]
fn results_and_limits_decide_how_a_run_ends() {
    let metric_with = |count: i32, change: fn(&mut Metric)| {
        let mut metric = counted(count);
        change(&mut metric);
        metric
    };
    let endless = |change: fn(&mut Metric)| {
        let mut metric = metric(|m| m.interval = Some("5s".into()));
        change(&mut metric);
        metric
    };
    // Metric, answers (spaces are ignored), phase, number of calls.
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
        (metric_with(3, |m| m.failure_limit = Some(2)), "FFS", Successful, 3),
        (metric_with(3, |m| m.failure_limit = Some(2)), "FFF", Failed, 3),
        (metric_with(3, |m| m.failure_limit = Some(3)), "FFF", Inconclusive, 3),
        (metric_with(2, |m| m.inconclusive_limit = Some(1)), "IS", Successful, 2),
        (metric_with(2, |m| m.inconclusive_limit = Some(2)), "II", Inconclusive, 2),
        (metric_with(5, |m| m.successful_limit = Some(2)), "SS S", Successful, 2),
        (
            metric_with(3, |m| {
                m.failure_limit = Some(2);
                m.successful_limit = Some(2);
            }),
            "FFS",
            Inconclusive,
            3,
        ),
        // A poll: failures end it only if failureLimit is set.
        (endless(|m| m.successful_limit = Some(1)), "FFFFFFS S", Successful, 7),
        (
            endless(|m| {
                m.successful_limit = Some(1);
                m.failure_limit = Some(0);
            }),
            "F S",
            Failed,
            1,
        ),
        (metric_with(3, |m| m.successful_limit = Some(1)), "FFF S", Inconclusive, 3),
        (metric_with(1, |m| m.consecutive_error_limit = Some(0)), "E S", Error, 1),
        (metric_with(1, |m| m.failure_limit = Some(-1)), "F", Failed, 1),
        (
            endless(|m| {
                m.consecutive_successful_limit = Some(2);
                m.failure_limit = Some(9);
            }),
            "SFSES FSS S",
            Successful,
            8,
        ),
        (endless(|m| m.successful_limit = Some(3)), "SSS S", Successful, 3),
        (endless(|_| {}), "SSS", Running, 3),
        (endless(|_| {}), "SSF S", Failed, 3),
    ];
    for (row, (metric, answers, phase, calls)) in rows.into_iter().enumerate() {
        let played = play(metric, answers);
        assert_eq!(played.status.phase, phase, "row {row}: {answers}");
        assert_eq!(played.calls.len(), calls, "row {row}: {answers}");
        assert_eq!(played.status.finished_at.is_some(), phase != Running, "row {row}");
        let needs_message = !matches!(phase, Successful | Running);
        assert_eq!(played.status.message.is_some(), needs_message, "row {row}: {answers}");
    }
}

#[test]
fn the_first_failed_metric_stops_the_others() {
    let later = Metric { name: "later".into(), initial_delay: Some("60s".into()), ..counted(5) };
    let spec = run_of(&[counted(5), metric(|m| m.name = "bad".into()), later]);
    let played = Play::new(spec, &["SSSSS", "F", "S"]).play();
    assert_eq!(played.status.phase, Failed);
    assert_eq!(played.message(), "measurement 1 of metric bad: it was Failed");
    assert_eq!(played.result(0).phase, Inconclusive);
    assert_eq!(
        played.result(0).message.as_deref(),
        Some("metric webtest was stopped after 1 measurement: metric bad ended Failed")
    );
    assert_eq!((played.result(2).phase, played.result(2).count), (Inconclusive, 0));
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
fn a_dry_run_does_not_affect_the_result() {
    let named = |name: &str| metric(|m| m.name = name.into());
    let mut spec = run_of(&[named("dry"), named("real"), named("other")]);
    spec.dry_run = vec![DryRun { metric_name: "d.*".into() }];
    let played = Play::new(spec.clone(), &["F", "S", "S"]).play();
    assert_eq!(played.status.phase, Successful);
    assert_eq!(played.status.message, None);
    let dry = played.result(0);
    assert_eq!((dry.phase, dry.failed, dry.dry_run), (Failed, 1, true));
    assert!(!played.result(1).dry_run);
    // Other metrics still decide, and the run waits for the dry run.
    let played = Play::new(spec.clone(), &["S", "F", "S"]).play();
    assert_eq!(played.status.phase, Failed);
    spec.metrics[0] = Metric { name: "dry".into(), failure_limit: Some(9), ..counted(3) };
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
fn a_run_with_only_dry_runs_reports_that_no_metric_affects_its_result() {
    let mut spec = run_of(&[counted(1)]);
    spec.dry_run = vec![DryRun { metric_name: ".*".into() }];
    let played = Play::new(spec, &["F"]).play();
    assert_eq!(played.status.phase, Successful);
    assert_eq!(played.message(), "all metrics are dry runs: none affects the result");
}

#[test]
fn the_message_names_the_last_measurement_and_the_limit() {
    let mut metric = counted(9);
    metric.failure_limit = Some(1);
    assert_eq!(
        play(metric, "SFSF").message(),
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
fn a_terminated_run_succeeds_only_if_it_is_endless_and_has_measured_a_success() {
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
fn a_run_that_cannot_be_measured_ends_in_error_and_gives_the_reason() {
    let no_interval = metric(|m| m.count = Some(3));
    let bad_interval = metric(|m| m.interval = Some("60".into()));
    let rows = [
        (run_of(&[]), "there are no metrics"),
        (run_of(&[counted(1), counted(1)]), "two metrics are named webtest"),
        (
            HookRunSpec {
                dry_run: vec![DryRun { metric_name: "web".into() }],
                ..run_of(&[counted(1)])
            },
            "dryRun names web, but there is no such metric",
        ),
        (run_of(&[no_interval]), "metric webtest: count 3 needs an interval"),
        (run_of(&[bad_interval]), "metric webtest: interval: \"60\" is not a duration"),
    ];
    for (spec, message) in rows {
        let played = Play::new(spec, &["SSS", "SSS"]).play();
        assert_eq!(played.status.phase, Error, "{message}");
        assert!(played.message().starts_with(message), "{}", played.message());
        assert!(played.calls.is_empty(), "{message}");
    }
}

#[test]
fn a_completed_run_does_not_change() {
    let played = play(counted(1), "S");
    let late =
        [Measured { metric: 0, started: played.now, finished: played.now, outcome: ended(Failed) }];
    let next = assess_now(&played.spec, &played.status, &late, &BTreeSet::new(), Timestamp::MAX);
    assert_eq!(next, Assessment { status: played.status, start: vec![], wake: None, stop: vec![] });
}
