//! Numbers and percentages of pods, resolved.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// How many of `replicas` pods a partition keeps at the old revision.
///
/// A percentage is rounded up, but one below 100% leaves at least one pod to update: a user who writes 90%
/// for three pods wants to see the new build somewhere.
pub fn partition(partition: Option<&IntOrString>, replicas: i64) -> i64 {
    match partition {
        None => 0,
        Some(IntOrString::Int(count)) => i64::from(*count).clamp(0, replicas),
        Some(text @ IntOrString::String(_)) => {
            let kept = resolve(text, replicas, rounded_up).clamp(0, replicas);
            let keeps_all = percent(text).is_none_or(|percent| percent >= 100);
            if keeps_all || kept < replicas { kept } else { (replicas - 1).max(0) }
        }
    }
}

/// Whether a partition keeps any pods at the old revision, provided that there are enough pods.
pub fn keeps_pods(partition: &IntOrString) -> bool {
    resolve(partition, 100, rounded_up) > 0
}

/// createBatch, resolved for `replicas`; never 0.
pub fn batch(size: &IntOrString, replicas: i64) -> i64 {
    resolve(size, replicas, rounded_up).max(1)
}

/// maxUnavailable and maxSurge, resolved for `replicas`; never both 0 (as in a native Deployment).
pub fn limits(unavailable: &IntOrString, surge: Option<&IntOrString>, replicas: i64) -> (i64, i64) {
    let surge = surge.map_or(0, |surge| resolve(surge, replicas, rounded_up)).max(0);
    let round = if surge == 0 { rounded_up } else { rounded_down };
    let unavailable = resolve(unavailable, replicas, round).max(0);
    if surge == 0 && unavailable == 0 { (1, 0) } else { (unavailable, surge) }
}

/// A limit for `total` pods: at least 1, and 1 by default. A percentage is rounded down.
pub fn at_least_one(limit: Option<&IntOrString>, total: i64) -> i64 {
    limit.map_or(1, |limit| resolve(limit, total, rounded_down).max(1))
}

fn percent(value: &IntOrString) -> Option<i64> {
    match value {
        IntOrString::String(text) => text.strip_suffix('%')?.trim().parse().ok(),
        IntOrString::Int(_) => None,
    }
}

fn rounded_up(hundredths: i64) -> i64 {
    (hundredths + 99) / 100
}

fn rounded_down(hundredths: i64) -> i64 {
    hundredths / 100
}

/// A number, or a percentage of `total`. Anything else counts as 0; the schema refuses it.
fn resolve(value: &IntOrString, total: i64, round: fn(i64) -> i64) -> i64 {
    match value {
        IntOrString::Int(count) => i64::from(*count),
        IntOrString::String(text) => match percent(value) {
            Some(percent) => round(percent * total),
            None => text.trim().parse().unwrap_or(0),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(value: &str) -> IntOrString {
        IntOrString::String(value.to_owned())
    }

    #[test]
    fn a_partition_rounds_up_but_below_100_percent_leaves_a_pod_to_update() {
        for (value, replicas, kept) in [
            (IntOrString::Int(2), 5, 2),
            (IntOrString::Int(9), 5, 5),
            (text("50%"), 5, 3),
            (text("90%"), 3, 2),
            (text("100%"), 3, 3),
            (text("0%"), 3, 0),
            (text("99%"), 1, 0),
        ] {
            assert_eq!(partition(Some(&value), replicas), kept, "{value:?} of {replicas}");
        }
        assert_eq!(partition(None, 5), 0);
    }

    #[test]
    fn a_batch_rounds_up_and_is_never_empty() {
        for (size, replicas, pods) in [
            (IntOrString::Int(5), 3, 5),
            (text("20%"), 11, 3),
            (text("1%"), 10, 1),
            (text("20%"), 0, 1),
        ] {
            assert_eq!(batch(&size, replicas), pods, "{size:?} of {replicas}");
        }
    }

    #[test]
    fn max_unavailable_rounds_down_only_with_surge_and_the_limits_are_never_both_zero() {
        for (unavailable, surge, replicas, expected) in [
            (text("20%"), None, 4, (1, 0)),
            (text("20%"), None, 10, (2, 0)),
            (text("20%"), None, 0, (1, 0)),
            (text("25%"), Some(text("25%")), 5, (1, 2)),
            (IntOrString::Int(0), Some(IntOrString::Int(1)), 5, (0, 1)),
            (IntOrString::Int(0), Some(IntOrString::Int(0)), 5, (1, 0)),
        ] {
            assert_eq!(
                limits(&unavailable, surge.as_ref(), replicas),
                expected,
                "{unavailable:?} {surge:?} of {replicas}"
            );
        }
    }
}
