//! Properties that hold for any run: whatever its measurements return, however long its Jobs take, and whenever the
//! operator restarts, calls are lost or a user terminates the run.

use proptest::prelude::*;

use super::*;

fn any_metric() -> impl Strategy<Value = Metric> {
    let limit = || proptest::option::of(0..4_i32);
    let successes = || proptest::option::of(1..4_i32);
    let waits = (any::<bool>(), proptest::option::of(1..30_u8));
    (proptest::option::of(1..6_i32), waits, limit(), limit(), limit(), successes(), successes())
        .prop_map(
            |(count, (interval, delay), failed, inconclusive, errors, successful, in_a_row)| {
                Metric {
                    count,
                    interval: (interval || count > Some(1)).then(|| "7s".into()),
                    initial_delay: delay.map(|seconds| format!("{seconds}s")),
                    failure_limit: failed,
                    inconclusive_limit: inconclusive,
                    consecutive_error_limit: errors,
                    successful_limit: successful,
                    consecutive_successful_limit: in_a_row,
                    ..Metric::default()
                }
            },
        )
}

fn any_run() -> impl Strategy<Value = HookRunSpec> {
    let metrics = proptest::collection::vec((any_metric(), 0..5_u8), 1..4);
    let retention = proptest::option::of(1..12_i32);
    (metrics, any::<bool>(), retention).prop_map(|(metrics, ordered, retention)| {
        let mut spec = HookRunSpec::default();
        if ordered {
            spec.policy = HookPolicy::Ordered;
        }
        for (index, (metric, dry)) in metrics.into_iter().enumerate() {
            let name = format!("m{index}");
            if dry == 0 {
                let metric_name = name.clone();
                spec.dry_run.push(DryRun { metric_name });
            }
            spec.metrics.push(Metric { name, ..metric });
        }
        spec.measurement_retention.extend(
            retention.map(|limit| MeasurementRetention { metric_name: "m0".into(), limit }),
        );
        spec
    })
}

fn any_answer() -> impl Strategy<Value = HookPhase> {
    prop_oneof![
        4 => Just(Successful),
        1 => Just(Failed),
        1 => Just(Inconclusive),
        2 => Just(Error),
        1 => Just(Running),
    ]
}

/// A moment in a run: what is measured, and what else happens.
#[derive(Clone, Copy, Debug)]
struct Moment {
    answer: HookPhase,
    /// Whether the operator restarts from the written status.
    restart: bool,
    /// Whether a restart loses the calls in progress.
    loses_calls: bool,
    terminate: bool,
}

fn any_moments() -> impl Strategy<Value = Vec<Moment>> {
    let moment = (any_answer(), any::<bool>(), any::<bool>(), 0..60_u8);
    let moment = moment.prop_map(|(answer, restart, loses_calls, stop)| Moment {
        answer,
        restart,
        loses_calls,
        terminate: stop == 0,
    });
    proptest::collection::vec(moment, 1..80)
}

/// The status as the API server would return it: times in whole seconds, and nothing that exists only in memory.
fn restarted(status: &HookRunStatus) -> HookRunStatus {
    let written = serde_json::to_value(status).expect("a status");
    serde_json::from_value(written).expect("a status")
}

/// Whether a metric met its own condition, derived from its answers alone.
fn meets_condition(metric: &Metric, answers: &[HookPhase]) -> bool {
    let successes = count_of(answers, Successful);
    let in_a_row = answers.iter().rev().take_while(|answer| **answer == Successful).count() as i32;
    let within = |phase, limit: i32| count_of(answers, phase) <= limit;
    let has_success_limit = [metric.successful_limit, metric.consecutive_successful_limit]
        .into_iter()
        .flatten()
        .any(|limit| limit > 0);
    let failures = metric.failure_limit.unwrap_or(if has_success_limit { i32::MAX } else { 0 });
    let enough = match (metric.successful_limit, metric.consecutive_successful_limit) {
        (None, None) => successes >= 1,
        (total, row) => total.is_some_and(|n| successes >= n) || row.is_some_and(|n| in_a_row >= n),
    };
    enough
        && within(Failed, failures)
        && within(Inconclusive, metric.inconclusive_limit.unwrap_or(0))
}

fn count_of(answers: &[HookPhase], phase: HookPhase) -> i32 {
    answers.iter().filter(|answer| **answer == phase).count() as i32
}

/// A run, and the answers that each metric has received.
struct History {
    spec: HookRunSpec,
    status: HookRunStatus,
    answers: Vec<Vec<HookPhase>>,
}

impl History {
    /// Plays the moments until the run ends.
    fn play(mut spec: HookRunSpec, moments: &[Moment]) -> Result<Self, TestCaseError> {
        let rules = Rules::of(&spec);
        let mut status = HookRunStatus::default();
        let mut now = start();
        let mut answers: Vec<Vec<HookPhase>> = vec![Vec::new(); spec.metrics.len()];
        let mut measured: Vec<Measured> = Vec::new();
        for moment in moments {
            spec.terminate |= moment.terminate;
            let next = assess(&spec, &rules, &status, &measured, &BTreeSet::new(), now);
            for ended in measured.drain(..) {
                let phase = ended.outcome.phase;
                answers[ended.metric].extend((phase != Running).then_some(phase));
            }
            prop_assert!(next.status.phase != Pending);
            status = match moment.restart {
                true => restarted(&next.status),
                false => next.status,
            };
            if status.phase.is_completed() {
                break;
            }
            let waits = !next.start.is_empty() || next.wake.is_some();
            prop_assert!(waits, "the run has not ended, but waits for nothing");
            for metric in next.start {
                let number = next_number(&status, &spec.metrics[metric]);
                prop_assert_eq!(number as usize, answers[metric].len() + 1);
                if moment.restart && moment.loses_calls {
                    continue;
                }
                let outcome = Outcome {
                    resume_after: (moment.answer == Running).then(|| SignedDuration::from_secs(3)),
                    ..ended(moment.answer)
                };
                measured.push(Measured { metric, started: now, finished: now, outcome });
            }
            if measured.is_empty() {
                now = next.wake.unwrap_or(now).max(now);
            }
        }
        Ok(History { spec, status, answers })
    }

    fn metrics(&self) -> impl Iterator<Item = (&Metric, &[HookPhase], Option<&MetricResult>)> {
        let metrics = self.spec.metrics.iter().zip(&self.answers);
        metrics.map(|(metric, answers)| {
            let mut results = self.status.metric_results.iter();
            let result = results.find(|result| result.name == metric.name);
            (metric, answers.as_slice(), result)
        })
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    #[test]
    fn counters_equal_the_measurements_made(spec in any_run(), moments in any_moments()) {
        let history = History::play(spec, &moments)?;
        for (metric, answers, result) in history.metrics() {
            let Some(result) = result else {
                prop_assert!(answers.is_empty());
                continue;
            };
            let counted = result.successful + result.failed + result.inconclusive;
            prop_assert_eq!(result.count, counted);
            // A metric that has ended does not count further answers.
            if !result.phase.is_completed() {
                prop_assert_eq!(result.successful, count_of(answers, Successful));
                prop_assert_eq!(result.failed, count_of(answers, Failed));
                prop_assert_eq!(result.inconclusive, count_of(answers, Inconclusive));
                prop_assert_eq!(result.error, count_of(answers, Error));
            }
            prop_assert!(result.count + result.error <= answers.len() as i32);
            let mut rules = history.spec.measurement_retention.iter();
            let rule = rules.find(|rule| rule.metric_name == metric.name);
            let kept = rule.map_or(10, |rule| rule.limit as usize);
            prop_assert!(result.measurements.len() <= kept, "{:?}", metric);
            // Only the last measurement can be in progress, and only while the metric has not ended.
            let in_progress = result.measurements.iter().filter(|it| it.phase == Running).count();
            let last = result.measurements.last().is_some_and(|it| it.phase == Running);
            prop_assert_eq!(in_progress, usize::from(last));
            prop_assert!(!(last && result.phase.is_completed()));
        }
    }

    #[test]
    fn a_run_is_successful_only_if_every_metric_that_decides_met_its_condition(
        spec in any_run(),
        moments in any_moments(),
    ) {
        let history = History::play(spec, &moments)?;
        if history.status.phase != Successful {
            return Ok(());
        }
        for (metric, answers, result) in history.metrics() {
            let result = result.expect("a run that has ended has a result for each metric");
            if result.dry_run {
                continue;
            }
            prop_assert_eq!(result.phase, Successful);
            prop_assert_eq!(result.count + result.error, answers.len() as i32);
            prop_assert!(meets_condition(metric, answers), "{:?} {:?}", metric, answers);
        }
        let is_dry = |metric: &Metric| {
            history.spec.dry_run.iter().any(|rule| rule.metric_name == metric.name)
        };
        let all_dry = history.spec.metrics.iter().all(is_dry);
        prop_assert_eq!(history.status.message.is_some(), all_dry);
    }

    #[test]
    fn every_run_with_a_count_ends(
        spec in any_run(),
        answers in proptest::collection::vec(any_answer(), 100),
    ) {
        let mut spec = spec;
        for metric in &mut spec.metrics {
            metric.count.get_or_insert(3);
            metric.interval = Some("7s".into());
        }
        let answers: Vec<HookPhase> = answers.into_iter().filter(|it| *it != Running).collect();
        let answers: Vec<Vec<HookPhase>> = spec.metrics.iter().map(|_| answers.clone()).collect();
        let play = Play { answers, ..Play::new(spec, &[]) }.play();
        prop_assert!(play.status.phase.is_completed());
    }
}
