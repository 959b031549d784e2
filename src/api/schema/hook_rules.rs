//! CEL rules on hooks: metrics, their calls and arguments.

use kube::core::Rule;

use super::rules::rule;

/// Rules on a metric as a whole.
pub fn metric_rules() -> Vec<Rule> {
    let mut rules = vec![count_needs_interval()];
    rules.extend(text_is_not_a_number());
    rules
}

/// A metric that is measured more than once says how often.
fn count_needs_interval() -> Rule {
    rule(
        "interval",
        "!has(self.count) || self.count <= 1 || has(self.interval)",
        "is needed when count is more than 1; set one, for example interval: 10s",
    )
}

/// What a web call answers is text: comparing it with a number could never hold.
fn text_is_not_a_number() -> [Rule; 2] {
    // `result` alone (not asInt(result), result.age, result[0], my_result) next to a number.
    let right = r"(^|[^\\w.])result\\s*([=!]=|[<>]=?)\\s*-?[.]?[0-9]";
    let left = r"(^|[^\\w.])[0-9.]+\\s*([=!]=|[<>]=?)\\s*result\\s*($|[^\\w.\\[\\s(])";
    ["successCondition", "failureCondition"].map(|field| {
        rule(
            field,
            format!(
                "!has(self.provider.web) || !has(self.{field}) || \
                 !self.{field}.matches('{right}|{left}')"
            ),
            "compares result with a number, but a web call's result is text: write \
             asInt(result) < 30 or asFloat(result) < 0.5",
        )
    })
}

/// An argument has one source.
pub fn one_value() -> Rule {
    rule(
        "valueFrom",
        "!(has(self.value) && has(self.valueFrom))",
        "must not stand beside value; keep one of the two",
    )
}

/// All arguments of a run have a value.
pub fn arguments_have_values() -> Rule {
    rule(
        "",
        "self.all(argument, has(argument.value) || has(argument.valueFrom))",
        "each argument of a HookRun needs value or valueFrom",
    )
}

/// What is sent with a web call.
pub fn web_body() -> [Rule; 2] {
    [
        rule(
            "jsonBody",
            "!(has(self.body) && has(self.jsonBody))",
            "must not stand beside body; keep one of the two",
        ),
        rule(
            "method",
            "(has(self.method) && self.method != 'GET') || !(has(self.body) || has(self.jsonBody))",
            "must be POST or PUT when there is a body",
        ),
    ]
}

/// A JSONPath in client-go's dialect is a template; without braces it would be plain text.
pub fn in_braces() -> Rule {
    rule(
        "",
        "self == '' || self.contains('{')",
        "must stand in braces, for example {$.age}",
    )
}

/// What a patch may write.
pub fn patched_fields() -> [Rule; 3] {
    let patch = "self.function != 'patch' || self.fields.all(field";
    [
        rule(
            "fields",
            format!("{patch}, field.path.matches('^metadata[.](annotations|labels)[.].'))"),
            "can only be patched below metadata.annotations. and metadata.labels., for example \
             path: metadata.annotations.example.com/drained",
        ),
        rule(
            "fields",
            format!("{patch}, has(field.value))"),
            "need a value each when function is patch; write it under path",
        ),
        rule(
            "fields",
            format!(
                "{patch}, !field.path.matches('^metadata[.](annotations|labels)[.]\
                 (([-a-z0-9]+[.])*(kubernetes|k8s)[.]io/|gamekeeper[.]tkex[.]tencent[.]com/|\
                 tkex[.]bkbcs[.]tencent[.]com/|controller-revision-hash$)'))"
            ),
            "must not be ones that belong to Kubernetes or to the operator; write a key of your own",
        ),
    ]
}
