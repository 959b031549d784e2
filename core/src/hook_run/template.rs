//! Validates a template before a run is created from it.

use std::collections::BTreeSet;

use super::arguments::{ArgumentError, have_too_many_references};
use super::by_name::unmatched_dry_run;
use super::schedule::check_schedule;
use crate::api::{DryRun, HookRunSpec, HookTemplateSpec, Metric, MetricProvider};

/// Checks that runs of a template can end Successful without a user's action.
///
/// # Errors
/// If they cannot. The message contains the reason and a fix.
pub fn check_can_succeed(template: &HookTemplateSpec) -> Result<(), String> {
    check_metrics(&template.metrics, &template.dry_run)?;
    if have_too_many_references(&template.metrics) {
        return Err(ArgumentError::TooMany.to_string());
    }
    template.metrics.iter().try_for_each(|metric| {
        let name = &metric.name;
        check_schedule(metric).map_err(|why| format!("metric {name}: {why}"))?;
        check_provider(metric)?;
        let Some(count) = metric.planned_count() else {
            return if metric.success_limits().is_empty() {
                Err(format!(
                    "metric {name} is measured forever: set count, \
                     successfulLimit or consecutiveSuccessfulLimit"
                ))
            } else {
                Ok(())
            };
        };
        match metric.success_limits().into_iter().min_by_key(|(_, limit)| *limit) {
            Some((field, limit)) if limit > count => Err(format!(
                "metric {name} ends after {count} measurements (count), before {field} {limit} can \
                 be reached: raise count or lower {field}"
            )),
            _ => Ok(()),
        }
    })
}

/// Checks that a run can have a meaningful result. Admission refuses a run that cannot. If such a run exists
/// anyway, it must not succeed merely because nothing in it can fail.
pub(super) fn check_usable(run: &HookRunSpec) -> Result<(), String> {
    check_metrics(&run.metrics, &run.dry_run)
}

fn check_metrics(metrics: &[Metric], dry_run: &[DryRun]) -> Result<(), String> {
    if metrics.is_empty() {
        return Err("there are no metrics: add at least one to the template".into());
    }
    let mut names = BTreeSet::new();
    if let Some(duplicate) = metrics.iter().find(|metric| !names.insert(&metric.name)) {
        let name = &duplicate.name;
        return Err(format!("two metrics are named {name}: give each its own name"));
    }
    match unmatched_dry_run(dry_run, metrics) {
        Some(rule) => Err(format!(
            "dryRun names {rule}, but there is no such metric: use the name of a metric"
        )),
        None => Ok(()),
    }
}

fn check_provider(metric: &Metric) -> Result<(), String> {
    match metric.provider.given().count() {
        1 => Ok(()),
        _ => Err(format!(
            "metric {}: provider needs exactly one of {}",
            metric.name,
            MetricProvider::names()
        )),
    }
}

impl Metric {
    /// Number of measurements after which the metric ends; None if it continues until something else ends it.
    pub(super) fn planned_count(&self) -> Option<i32> {
        match self.count.filter(|count| *count > 0) {
            None if self.interval.is_none() => Some(1),
            count => count,
        }
    }

    /// The success limits that are set, with their field names.
    pub(super) fn success_limits(&self) -> Vec<(&'static str, i32)> {
        [
            ("successfulLimit", self.successful_limit),
            ("consecutiveSuccessfulLimit", self.consecutive_successful_limit),
        ]
        .into_iter()
        .filter_map(|(field, limit)| Some((field, limit.filter(|limit| *limit > 0)?)))
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::api::MetricProvider;

    fn check(change: impl FnOnce(&mut Metric)) -> Result<(), String> {
        let provider = MetricProvider { web: Some(Box::default()), ..MetricProvider::default() };
        let mut metric = Metric { name: "ready".into(), provider, ..Metric::default() };
        change(&mut metric);
        check_can_succeed(&HookTemplateSpec {
            metrics: vec![metric],
            ..HookTemplateSpec::default()
        })
    }

    #[test]
    fn an_endless_metric_without_a_success_limit_cannot_succeed() {
        let message = check(|m| m.interval = Some("5s".into())).expect_err("endless");
        assert!(message.starts_with("metric ready "), "{message}");
        assert!(message.contains("set count, successfulLimit"), "{message}");
    }

    #[test]
    fn a_count_below_the_success_limit_cannot_succeed() {
        let message = check(|m| {
            m.interval = Some("5s".into());
            m.count = Some(3);
            m.consecutive_successful_limit = Some(5);
        })
        .expect_err("too few");
        assert!(message.contains("raise count"), "{message}");
    }

    #[test]
    fn metrics_with_an_end_can_succeed() {
        assert_eq!(check(|_| {}), Ok(()));
        assert_eq!(check(|m| m.count = Some(1)), Ok(()));
        assert_eq!(
            check(|m| {
                m.interval = Some("5s".into());
                m.successful_limit = Some(2);
            }),
            Ok(())
        );
    }

    /// A template may have been stored before today's rules existed.
    #[test]
    fn a_template_that_the_api_server_would_refuse_is_refused_and_the_field_is_named() {
        for (result, expected) in [
            (check(|m| m.count = Some(3)), "metric ready: count 3 needs an interval"),
            (
                check(|m| m.initial_delay = Some("soon".into())),
                "metric ready: initialDelay: \"soon\" is not a duration",
            ),
            (
                check(|m| m.provider = MetricProvider::default()),
                "metric ready: provider needs exactly one of",
            ),
        ] {
            let message = result.expect_err(expected);
            assert!(message.starts_with(expected), "{message}");
        }
        let message = check_can_succeed(&HookTemplateSpec::default()).expect_err("no metrics");
        assert!(message.starts_with("there are no metrics"), "{message}");
    }
}
