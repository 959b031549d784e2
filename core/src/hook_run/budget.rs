//! Limits the size of a status. The API server refuses a status that it cannot store, and a run whose
//! end cannot be written would hold back its pod forever. And each write stores the whole status again: etcd keeps all
//! versions for minutes.

use serde_json::to_string;

use crate::api::{HookRunStatus, Measurement};

/// Maximum total size of the measurements in a status, in bytes.
const MEASUREMENT_BYTES: usize = 64 << 10;
/// Maximum total length of the messages of metrics, in bytes.
const MESSAGE_BYTES: usize = 32 << 10;
/// Maximum length of one string, in bytes.
const TEXT_BYTES: usize = 4 << 10;

/// Truncates a string to the maximum length.
pub(super) fn cut(text: String) -> String {
    cut_to(text, TEXT_BYTES)
}

/// Truncates the message of one of several metrics.
pub(super) fn cut_message(message: String, metrics: usize) -> String {
    cut_to(message, TEXT_BYTES.min(MESSAGE_BYTES / metrics.max(1)))
}

fn cut_to(mut text: String, length: usize) -> String {
    const MARK: &str = "...";
    if text.len() > length {
        text.truncate(text.floor_char_boundary(length.saturating_sub(MARK.len())));
        text.push_str(MARK);
    }
    text
}

/// Drops the oldest measurements until the others fit. The newest measurement of each metric is kept, because the time
/// of the next one is computed from its end. If these alone do not fit, their texts are truncated.
pub(super) fn limit_size(status: &mut HookRunStatus) {
    drop_oldest(status);
    let newest = { status.metric_results.iter_mut() }.flat_map(|it| &mut it.measurements);
    let mut newest: Vec<&mut Measurement> = newest.collect();
    let mut length = TEXT_BYTES;
    while newest.iter().map(|it| size(it)).sum::<usize>() > MEASUREMENT_BYTES && length > 1 {
        length /= 2;
        for measurement in &mut newest {
            for text in [&mut measurement.value, &mut measurement.message] {
                *text = text.take().map(|text| cut_to(text, length));
            }
        }
    }
}

fn drop_oldest(status: &mut HookRunStatus) {
    let sizes = { status.metric_results.iter() }.map(|result| result.measurements.iter().map(size));
    let mut total: usize = sizes.flatten().sum();
    while total > MEASUREMENT_BYTES {
        let reducible = { status.metric_results.iter_mut() }.filter(|it| it.measurements.len() > 1);
        let ended = |measurement: &Measurement| measurement.finished_at.as_ref().map(|at| at.0);
        let Some(oldest) = reducible.min_by_key(|result| ended(&result.measurements[0])) else {
            return;
        };
        total -= size(&oldest.measurements.remove(0));
    }
}

/// The size of a measurement as JSON, in bytes.
fn size(measurement: &Measurement) -> usize {
    // A measurement consists of strings and times, which can always be serialized.
    to_string(measurement).map_or(0, |json| json.len() + 1)
}

#[cfg(test)]
mod tests {
    use jiff::{SignedDuration, Timestamp};

    use super::*;
    use crate::api::{HookPhase, HookRunSpec, MeasurementRetention, Metric};
    use crate::hook_run::{Measured, Outcome, Rules, assess};

    /// The spec of the largest possible run.
    fn largest() -> HookRunSpec {
        let metric = |number| Metric {
            name: format!("{number:a>253}"),
            count: Some(1_000),
            interval: Some("1s".into()),
            failure_limit: Some(1_000),
            ..Metric::default()
        };
        let keep = MeasurementRetention { metric_name: ".*".into(), limit: 100 };
        HookRunSpec {
            metrics: (0..32).map(metric).collect(),
            measurement_retention: vec![keep],
            ..HookRunSpec::default()
        }
    }

    fn stored_size(status: &HookRunStatus) -> usize {
        to_string(status).expect("a status").len()
    }

    /// The status after each metric was measured `rounds` times, each time with this value and message.
    fn status_after(rounds: i64, text: &str) -> HookRunStatus {
        let spec = largest();
        let rules = Rules::of(&spec);
        let mut status = HookRunStatus::default();
        let mut now: Timestamp = "2020-11-10T09:02:05Z".parse().expect("a time");
        for _ in 0..rounds {
            now += SignedDuration::from_secs(1);
            let measured: Vec<Measured> = (0..spec.metrics.len())
                .map(|metric| Measured {
                    metric,
                    started: now,
                    finished: now,
                    outcome: Outcome {
                        phase: HookPhase::Failed,
                        value: Some(text.to_owned()),
                        message: Some(text.to_owned()),
                        ..Outcome::default()
                    },
                })
                .collect();
            status = assess(&spec, &rules, &status, &measured, &Default::default(), now).status;
        }
        status
    }

    #[test]
    fn the_status_of_the_largest_run_can_be_stored() {
        let long = "\"\u{1f3ae}".repeat(100_000);
        for (rounds, text) in [(1, long.as_str()), (8, &long), (120, &"x".repeat(1_000))] {
            let status = status_after(rounds, text);
            assert!(stored_size(&status) < 128 << 10, "{}", stored_size(&status));
            for result in &status.metric_results {
                let newest = result.measurements.last().expect("the newest");
                let text = newest.value.as_deref().expect("a value");
                assert!(text.len() > 250, "{text}");
                assert_eq!(i64::from(result.count), rounds);
            }
        }
    }

    #[test]
    fn the_oldest_measurements_are_dropped_and_no_more_than_needed() {
        let status = status_after(100, &"x".repeat(40));
        let kept: Vec<usize> =
            { status.metric_results.iter() }.map(|result| result.measurements.len()).collect();
        let (least, most) = (kept.iter().min(), kept.iter().max());
        assert!(least >= Some(&10) && most <= Some(&11), "{kept:?}");
        assert!(stored_size(&status) > 60 << 10, "{}", stored_size(&status));
        // The default number of measurements of a run with many metrics is kept.
        let status = status_after(10, "32");
        assert!({ status.metric_results.iter() }.all(|result| result.measurements.len() == 10));
    }
}
