//! The rules of a run that refer to metrics by name: `dryRun` and `measurementRetention`.

use regex::{Regex, RegexBuilder};

use super::template::check_usable;
use crate::api::{DryRun, HookRunSpec, Metric};

/// Number of measurements per metric that the status keeps unless a rule says otherwise.
const KEPT_MEASUREMENTS: usize = 10;
/// Maximum size of a compiled expression, in bytes: enough for names, and compiled within a millisecond.
const MAX_EXPRESSION: usize = 128 << 10;

/// The rules of a run's spec, resolved for each metric. Compiling expressions is too expensive for every
/// assessment of a run, so it is done once for each spec.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rules {
    metrics: Vec<MetricRules>,
    /// Why the run cannot have a meaningful result; None if it can.
    pub(super) unusable: Option<String>,
}

/// How the rules apply to one metric.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct MetricRules {
    /// Whether the metric has no effect on the result of the run.
    pub dry_run: bool,
    /// How many of its measurements the status keeps.
    pub kept: usize,
}

impl Default for MetricRules {
    fn default() -> Self {
        MetricRules { dry_run: false, kept: KEPT_MEASUREMENTS }
    }
}

impl Rules {
    /// Resolves the rules of a spec.
    pub fn of(spec: &HookRunSpec) -> Self {
        let dry_runs: Vec<Rule> =
            { spec.dry_run.iter() }.map(|rule| Rule::read(&rule.metric_name)).collect();
        let retentions: Vec<(Rule, usize)> = { spec.measurement_retention.iter() }
            .map(|rule| {
                // The next measurement is scheduled from the end of the last one, which is therefore always kept.
                let kept = usize::try_from(rule.limit).unwrap_or_default().max(1);
                (Rule::read(&rule.metric_name), kept)
            })
            .collect();
        let metric_rules = |metric: &Metric| {
            let mut reversed = retentions.iter().rev();
            let rule = reversed.find(|(rule, _)| rule.matches(&metric.name));
            MetricRules {
                dry_run: dry_runs.iter().any(|rule| rule.matches(&metric.name)),
                kept: rule.map_or(KEPT_MEASUREMENTS, |(_, kept)| *kept),
            }
        };
        Rules {
            metrics: spec.metrics.iter().map(metric_rules).collect(),
            unusable: check_usable(spec).err(),
        }
    }

    /// How the rules apply to the metric with this index.
    pub(super) fn of_metric(&self, index: usize) -> MetricRules {
        self.metrics.get(index).copied().unwrap_or_default()
    }
}

/// A name, or an expression that must match the whole name: if matching a part were enough, the rule
/// would apply to other metrics by accident.
struct Rule<'a> {
    name: &'a str,
    expression: Option<Regex>,
}

impl<'a> Rule<'a> {
    fn read(name: &'a str) -> Self {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        let expression = match name.chars().all(plain) {
            true => None,
            false => RegexBuilder::new(&format!("^(?:{name})$"))
                .size_limit(MAX_EXPRESSION)
                .dfa_size_limit(MAX_EXPRESSION)
                .build()
                .ok(),
        };
        Rule { name, expression }
    }

    fn matches(&self, name: &str) -> bool {
        let matches = |expression: &Regex| expression.is_match(name);
        self.name == name || self.expression.as_ref().is_some_and(matches)
    }
}

/// The first entry of dryRun that matches no metric. It was meant to keep some metric from affecting the result.
pub(super) fn unmatched_dry_run<'a>(rules: &'a [DryRun], metrics: &[Metric]) -> Option<&'a str> {
    let names = rules.iter().map(|rule| rule.metric_name.as_str());
    let is_unmatched = |name: &&str| {
        let rule = Rule::read(name);
        !metrics.iter().any(|metric| rule.matches(&metric.name))
    };
    names.into_iter().find(is_unmatched)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::MeasurementRetention;

    fn rules(names: &[&str]) -> Vec<DryRun> {
        let rule = |name: &&str| DryRun { metric_name: (*name).into() };
        names.iter().map(rule).collect()
    }

    fn named(name: &str) -> Metric {
        Metric { name: name.into(), ..Metric::default() }
    }

    #[test]
    fn a_rule_matches_whole_names() {
        for (rule, name) in [
            ("errors", "errors"),
            (".*", "errors"),
            ("a|errors", "errors"),
            ("a(", "a("),
            (r"\w+-\d{1,3}(ms|s)?", "errors-10s"),
            (r"(?i)[[:alpha:]]{1,63}", "Errors"),
        ] {
            assert!(Rule::read(rule).matches(name), "{rule} {name}");
        }
        for (rule, name) in
            [("errors", "errors-total"), ("rrors", "errors"), ("a|e", "errors"), ("a(", "a")]
        {
            assert!(!Rule::read(rule).matches(name), "{rule} {name}");
        }
    }

    /// Compiling such an expression would delay all runs, which share their threads.
    #[test]
    fn an_expression_that_is_too_expensive_matches_nothing_and_is_refused() {
        let metrics = [named("aaaa")];
        for huge in [r"\w{1,200}", r"(?i)(\pL{9}){9}", "((a{99}){99}){99}|aaaa"] {
            assert_eq!(unmatched_dry_run(&rules(&[huge]), &metrics), Some(huge));
        }
    }

    #[test]
    fn a_rule_that_matches_no_metric_is_reported() {
        let metrics = [named("ready")];
        assert_eq!(unmatched_dry_run(&rules(&["ready", "re.*"]), &metrics), None);
        assert_eq!(unmatched_dry_run(&rules(&["ready", "raedy"]), &metrics), Some("raedy"));
    }

    #[test]
    fn the_last_matching_rule_decides_how_many_measurements_are_kept() {
        let rule = |name: &str, limit| MeasurementRetention { metric_name: name.into(), limit };
        let kept = |measurement_retention: &[MeasurementRetention], name| {
            let spec = HookRunSpec {
                metrics: vec![named(name)],
                measurement_retention: measurement_retention.to_vec(),
                ..HookRunSpec::default()
            };
            Rules::of(&spec).of_metric(0).kept
        };
        let rules = [rule(".*", 3), rule("ready", 20), rule("none", 0)];
        assert_eq!(kept(&rules, "other"), 3);
        assert_eq!(kept(&rules, "ready"), 20);
        assert_eq!(kept(&rules, "none"), 1);
        assert_eq!(kept(&[], "ready"), 10);
    }
}
