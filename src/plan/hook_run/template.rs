//! What can be said of a template before it runs.

use crate::api::Metric;

/// Whether runs of these metrics can end well without anybody's help.
///
/// # Errors
/// Names the first metric that cannot, why, and what to write.
pub fn can_succeed(metrics: &[Metric]) -> Result<(), String> {
    metrics.iter().try_for_each(|metric| {
        let name = &metric.name;
        let Some(count) = metric.planned_count() else {
            return if metric.success_limits().is_empty() {
                Err(format!(
                    "metric {name} is measured every interval without an end: set count, \
                     successfulLimit or consecutiveSuccessfulLimit"
                ))
            } else {
                Ok(())
            };
        };
        match metric
            .success_limits()
            .into_iter()
            .min_by_key(|(_, limit)| *limit)
        {
            Some((field, limit)) if limit > count => Err(format!(
                "metric {name} ends after count {count} measurements, before {field} {limit} can \
                 be reached: raise count or lower {field}"
            )),
            _ => Ok(()),
        }
    })
}

impl Metric {
    /// Measurements after which the metric ends; None when it goes on until something else ends it.
    pub(super) fn planned_count(&self) -> Option<i32> {
        match self.count.filter(|count| *count > 0) {
            None if self.interval.is_none() => Some(1),
            count => count,
        }
    }

    /// The limits of successes that are set, by field.
    pub(super) fn success_limits(&self) -> Vec<(&'static str, i32)> {
        [
            ("successfulLimit", self.successful_limit),
            (
                "consecutiveSuccessfulLimit",
                self.consecutive_successful_limit,
            ),
        ]
        .into_iter()
        .filter_map(|(field, limit)| Some((field, limit.filter(|limit| *limit > 0)?)))
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metric(change: impl FnOnce(&mut Metric)) -> [Metric; 1] {
        let mut metric = Metric {
            name: "ready".into(),
            ..Metric::default()
        };
        change(&mut metric);
        [metric]
    }

    #[test]
    fn an_endless_metric_without_a_limit_of_successes_cannot_succeed() {
        let message =
            can_succeed(&metric(|m| m.interval = Some("5s".into()))).expect_err("endless");
        assert!(message.starts_with("metric ready "), "{message}");
        assert!(message.contains("set count, successfulLimit"), "{message}");
    }

    #[test]
    fn a_count_below_the_limit_of_successes_cannot_succeed() {
        let message = can_succeed(&metric(|m| {
            m.interval = Some("5s".into());
            m.count = Some(3);
            m.consecutive_successful_limit = Some(5);
        }))
        .expect_err("too few");
        assert!(message.contains("raise count"), "{message}");
    }

    #[test]
    fn metrics_with_an_end_can_succeed() {
        assert_eq!(can_succeed(&[]), Ok(()));
        assert_eq!(can_succeed(&metric(|_| {})), Ok(()));
        assert_eq!(can_succeed(&metric(|m| m.count = Some(3))), Ok(()));
        assert_eq!(
            can_succeed(&metric(|m| {
                m.interval = Some("5s".into());
                m.successful_limit = Some(2);
            })),
            Ok(())
        );
    }
}
