//! CEL rules on hooks: metrics, their calls and arguments.

use kube::core::Rule;

use super::rules::rule;

/// Rules on a metric as a whole.
pub(crate) fn metric_rules() -> Vec<Rule> {
    let mut rules = vec![count_needs_interval(), a_job_has_no_conditions()];
    rules.extend(text_is_not_a_number());
    rules
}

/// A metric with several measurements needs an interval.
fn count_needs_interval() -> Rule {
    rule(
        "interval",
        "!has(self.count) || type(self.count) in [string] || int(self.count) <= 1 || has(self.interval)",
        "is needed when count is more than 1; set one, for example interval: 10s",
    )
}

/// A Job has no result that a condition could check.
fn a_job_has_no_conditions() -> Rule {
    rule(
        "provider",
        "!has(self.provider.job) || !(has(self.successCondition) || has(self.failureCondition))",
        "is a job, which has no result to check; remove successCondition and failureCondition",
    )
}

/// A Job must run, and must exist until its result is read.
pub(crate) fn job_rules() -> [Rule; 3] {
    [
        rule(
            "manualSelector",
            "!has(self.manualSelector) || !self.manualSelector",
            "must not be true, or any pod with the selected labels would count for the Job, and so for the hook; \
             remove it, and selector",
        ),
        rule(
            "suspend",
            "!has(self.suspend) || !self.suspend",
            "must not be true, or the measurement would never end; leave it out",
        ),
        rule(
            "ttlSecondsAfterFinished",
            "!has(self.ttlSecondsAfterFinished)",
            "must not be set, or the Job might be deleted before its result is read; it is deleted with its HookRun",
        ),
    ]
}

/// A regular expression that finds comparisons of `result` with a numeric literal. It matches only `result`
/// itself, not `asInt(result)`, `result.age`, `result[0]` or `my_result`.
const TEXT_WITH_NUMBER: &str = concat!(
    r"(^|[^\w.])result\s*([=!]=|[<>]=?|in\s*\[)\s*-?[.]?[0-9]",
    r"|(^|[^\w.])[0-9.]+\s*([=!]=|[<>]=?)\s*result\s*($|[^\w.\[\s(])",
);

/// The result of a web call is text: a comparison with a number would never be true.
fn text_is_not_a_number() -> [Rule; 2] {
    let pattern = TEXT_WITH_NUMBER.replace('\\', r"\\");
    ["successCondition", "failureCondition"].map(|field| {
        rule(
            field,
            format!(
                "!has(self.provider.web) || !has(self.{field}) || \
                 !self.{field}.matches('{pattern}')"
            ),
            "compares result with a number, but a web call's result is text: write \
             asInt(result) < 30 or asFloat(result) < 0.5",
        )
    })
}

/// An argument cannot have both `value` and `valueFrom`.
pub(crate) fn one_value() -> Rule {
    rule(
        "valueFrom",
        "!(has(self.value) && has(self.valueFrom))",
        "must not be set together with value; keep one of the two",
    )
}

/// Each argument of a HookRun has `value` or `valueFrom`.
pub(crate) fn arguments_have_values() -> Rule {
    rule(
        "",
        "self.all(argument, has(argument.value) || has(argument.valueFrom))",
        "each argument of a HookRun needs value or valueFrom",
    )
}

/// Each entry of dryRun and measurementRetention must name a metric, or match one as a regular expression.
pub(crate) fn rules_by_metric_name() -> [Rule; 2] {
    ["dryRun", "measurementRetention"].map(|field| {
        rule(
            field,
            format!(
                "!has(self.{field}) || self.{field}.all(rule, self.metrics.exists(metric, \
                 metric.name == rule.metricName || \
                 metric.name.matches('^(' + rule.metricName + ')$')))"
            ),
            "names a metric that does not exist; use the name of one in metrics, or a regular \
             expression that matches one, such as .*",
        )
    })
}

/// A TTL strategy must not be empty.
pub(crate) fn some_time_to_live() -> Rule {
    rule(
        "",
        "has(self.secondsAfterCompletion) || has(self.secondsAfterFailure) || \
         has(self.secondsAfterSuccess)",
        "must not be empty; set secondsAfterCompletion, secondsAfterFailure or secondsAfterSuccess",
    )
}

/// A CA cannot be combined with an insecure call.
pub(crate) fn ca_or_insecure() -> Rule {
    rule(
        "caSecret",
        "!(has(self.caSecret) && has(self.insecure) && self.insecure)",
        "cannot be combined with insecure: true; keep one of the two",
    )
}

/// A query has one timeout.
pub(crate) fn one_timeout() -> Rule {
    rule(
        "timeout",
        "!(has(self.timeout) && has(self.timeoutSeconds))",
        "must not be set together with timeoutSeconds, which means the same; keep one of the two",
    )
}

/// Rules on the CA, the body and the method of a web call.
pub(crate) fn web_rules() -> [Rule; 3] {
    [
        ca_or_insecure(),
        rule(
            "jsonBody",
            "!(has(self.body) && has(self.jsonBody))",
            "must not be set together with body; keep one of the two",
        ),
        rule(
            "method",
            "(has(self.method) && self.method != 'GET') || !(has(self.body) || has(self.jsonBody))",
            "must be POST or PUT when there is a body",
        ),
    ]
}

/// A JSONPath in client-go's dialect is a template; without braces it is just text.
pub(crate) fn in_braces() -> Rule {
    rule("", "self == '' || self.contains('{')", "must be in braces, for example {$.age}")
}

/// The fields that a patch may write.
pub(crate) fn patched_fields() -> [Rule; 3] {
    let patch = "self.__function__ != 'patch' || self.fields.all(field";
    [
        rule(
            "fields",
            format!("{patch}, field.path.matches('^metadata[.](annotations|labels)[.].'))"),
            "can only be patched below metadata.annotations and metadata.labels, for example \
             path: metadata.annotations.example.com/drained",
        ),
        rule(
            "fields",
            format!("{patch}, has(field.value))"),
            "must each have a value when function is patch; set value next to path",
        ),
        rule(
            "fields",
            format!(
                "{patch}, !field.path.matches('^metadata[.](annotations|labels)[.]\
                 (([-a-z0-9]+[.])*(kubernetes|k8s)[.]io/|gamekeeper[.]tkex[.]tencent[.]com/|\
                 tkex[.]bkbcs[.]tencent[.]com/|controller-revision-hash$)'))"
            ),
            "must not be keys that belong to Kubernetes or to the operator; use a key of your own",
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compares_text_with_a_number(condition: &str) -> bool {
        let pattern = regex::Regex::new(TEXT_WITH_NUMBER).expect("a pattern");
        pattern.is_match(condition)
    }

    #[test]
    fn a_comparison_of_result_with_a_number_is_detected() {
        for condition in [
            "result < 30",
            "result<30",
            "result == -1",
            "result >= .5",
            "(result != 3)",
            "result == \"none\" || result == 0",
            "result in [1, 2]",
            "30 > result",
            "value < 3 && 0.5 <= result",
            "1 == result || true",
        ] {
            assert!(compares_text_with_a_number(condition), "{condition}");
        }
    }

    #[test]
    fn other_conditions_are_accepted() {
        for condition in [
            "asInt(result) < 30",
            "asFloat( result ) >= 0.5",
            "30 > asInt(result)",
            "len(result) > 3",
            "result.size() > 3",
            "result[0] > 3",
            "result.age < 3",
            "3 < result.age",
            "3 < result[0]",
            "my_result < 3",
            "results < 3",
            "value.result < 3",
            "value < 30",
            "result == \"30\"",
            "'30' == result",
            "result in ['1', '2']",
            "result.all(age, age > 3)",
        ] {
            assert!(!compares_text_with_a_number(condition), "{condition}");
        }
    }
}
