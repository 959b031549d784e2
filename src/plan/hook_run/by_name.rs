//! What a run says about its metrics by their names: `dryRun` and `measurementRetention`.

use regex::RegexBuilder;

use crate::api::{DryRun, MeasurementRetention, Metric};

/// Measurements kept in the status unless a rule says otherwise; the counters count all.
const KEPT_MEASUREMENTS: usize = 10;
/// Largest compiled expression, in bytes.
const MAX_EXPRESSION: usize = 1 << 20;

/// Whether a rule means a metric. An expression must match the whole name: one that matched a part
/// would take metrics out of the decision that nobody thought of.
fn means(rule: &str, name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if rule == name || rule.chars().all(plain) {
        return rule == name;
    }
    RegexBuilder::new(&format!("^(?:{rule})$"))
        .size_limit(MAX_EXPRESSION)
        .build()
        .is_ok_and(|expression| expression.is_match(name))
}

/// Whether a metric decides nothing.
pub(super) fn is_dry_run(rules: &[DryRun], metric: &str) -> bool {
    rules.iter().any(|rule| means(&rule.metric_name, metric))
}

/// How many measurements of a metric the status keeps.
pub(super) fn kept_measurements(rules: &[MeasurementRetention], metric: &str) -> usize {
    let mut matching = rules.iter().rev();
    let rule = matching.find(|rule| means(&rule.metric_name, metric));
    // The next measurement counts from the end of the last one, so that one is always kept.
    rule.map_or(KEPT_MEASUREMENTS, |rule| {
        usize::try_from(rule.limit).unwrap_or_default().max(1)
    })
}

/// A dry run that means no metric: whoever wrote it thinks that some metric decides nothing.
pub(super) fn without_metric<'a>(rules: &'a [DryRun], metrics: &[Metric]) -> Option<&'a str> {
    let names = rules.iter().map(|rule| rule.metric_name.as_str());
    let is_lost = |rule: &&str| !metrics.iter().any(|metric| means(rule, &metric.name));
    names.into_iter().find(is_lost)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(names: &[&str]) -> Vec<DryRun> {
        let rule = |name: &&str| DryRun {
            metric_name: (*name).into(),
        };
        names.iter().map(rule).collect()
    }

    #[test]
    fn a_rule_means_a_metric_by_its_whole_name() {
        for (rule, name) in [
            ("errors", "errors"),
            (".*", "errors"),
            ("a|errors", "errors"),
            ("a(", "a("),
        ] {
            assert!(is_dry_run(&rules(&[rule]), name), "{rule} {name}");
        }
        for (rule, name) in [
            ("errors", "errors-total"),
            ("rrors", "errors"),
            ("a|e", "errors"),
            ("a(", "a"),
        ] {
            assert!(!is_dry_run(&rules(&[rule]), name), "{rule} {name}");
        }
    }

    #[test]
    fn a_rule_that_means_no_metric_is_found() {
        let metrics = [Metric {
            name: "ready".into(),
            ..Metric::default()
        }];
        assert_eq!(without_metric(&rules(&["ready", "re.*"]), &metrics), None);
        assert_eq!(
            without_metric(&rules(&["ready", "raedy"]), &metrics),
            Some("raedy")
        );
    }

    #[test]
    fn the_last_matching_rule_says_how_many_are_kept() {
        let rule = |name: &str, limit| MeasurementRetention {
            metric_name: name.into(),
            limit,
        };
        let rules = [rule(".*", 3), rule("ready", 20), rule("none", 0)];
        assert_eq!(kept_measurements(&rules, "other"), 3);
        assert_eq!(kept_measurements(&rules, "ready"), 20);
        assert_eq!(kept_measurements(&rules, "none"), 1);
        assert_eq!(kept_measurements(&[], "ready"), 10);
    }
}
