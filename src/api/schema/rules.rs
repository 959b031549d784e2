//! CEL rules on more than one field.

use kube::core::{Message, Rule};

use crate::api::names::MAX_WORKLOAD_NAME;

/// A rule, the field that its message is shown at, and the message.
fn rule(at: &str, rule: impl Into<String>, message: impl Into<String>) -> Rule {
    let mut rule = Rule::new(rule);
    rule.message = Some(Message::Message(message.into()));
    if !at.is_empty() {
        rule.field_path = Some(format!(".{at}"));
    }
    rule
}

/// Fields of which exactly one is set.
pub fn exactly_one_of(fields: &[&str]) -> Rule {
    let given: Vec<String> = fields
        .iter()
        .map(|field| format!("has(self.{field})"))
        .collect();
    rule(
        "",
        format!("[{}].exists_one(given, given)", given.join(", ")),
        format!("set exactly one of {}", fields.join(", ")),
    )
}

/// A field that cannot change, and what to do instead.
pub fn immutable(instead: &str) -> Rule {
    rule(
        "",
        "self == oldSelf",
        format!("cannot be changed; {instead}"),
    )
}

/// The name of a workload leaves room for what is appended to it. Binds on create only: it stands
/// on the root, where it would otherwise refuse every later write of an object that broke it.
pub fn workload_name() -> Rule {
    rule(
        "",
        format!("oldSelf.hasValue() || size(self.metadata.name) <= {MAX_WORKLOAD_NAME}"),
        format!(
            "metadata.name must be no longer than {MAX_WORKLOAD_NAME} characters, because the names of \
             revisions are made of it and go into labels, which end at 63"
        ),
    )
    .optional_old_self(true)
}

/// The name of a GameStatefulSet is also a part of its pods' host names.
pub fn dns_label_name() -> Rule {
    rule(
        "",
        "oldSelf.hasValue() || self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",
        "metadata.name must be a DNS label, because pods' host names are made of it: write lower case letters, \
         digits and '-', no dots",
    )
    .optional_old_self(true)
}

/// The template's labels are such that the selector finds its pods.
pub fn selector_matches_template() -> [Rule; 2] {
    let at = "template.metadata.labels";
    let labelled = "has(self.template.metadata) && has(self.template.metadata.labels)";
    let labels = format!("self.{at}");
    [
        rule(
            at,
            format!(
                "!has(self.selector.matchLabels) || ({labelled} && self.selector.matchLabels.all(\
                 key, key in {labels} && {labels}[key] == self.selector.matchLabels[key]))"
            ),
            "must hold all labels of selector.matchLabels",
        ),
        rule(
            at,
            format!(
                "!has(self.selector.matchExpressions) || self.selector.matchExpressions.all(\
                 wanted, ({labelled} && wanted.key in {labels} && (!has(wanted.values) || \
                 size(wanted.values) == 0 || {labels}[wanted.key] in wanted.values)) == \
                 (wanted.operator in ['In', 'Exists']))"
            ),
            "must match all selector.matchExpressions",
        ),
    ]
}

/// A deadline would end matches.
pub fn no_deadline() -> Rule {
    rule(
        "activeDeadlineSeconds",
        "!has(self.activeDeadlineSeconds)",
        "would end pods whatever their hooks say; leave it out",
    )
}

/// Where limits stand in an update strategy: a GameStatefulSet has two places for them.
const ONE_PLACE: [&str; 1] = [""];
const TWO_PLACES: [&str; 2] = ["", "rollingUpdate."];

/// An expression: a limit is set in a place, and is 0.
fn is_zero(path: &str) -> String {
    format!("{} && ({path} == 0 || {path} == '0%')", is_set(path))
}

/// An expression: a limit is set at one of the places, and is not 0.
fn is_above_zero(strategy: &str, places: &[&str], field: &str) -> String {
    let at_each: Vec<String> = places
        .iter()
        .map(|place| format!("{strategy}.{place}{field}"))
        .map(|path| format!("({} && {path} != 0 && {path} != '0%')", is_set(&path)))
        .collect();
    format!("({})", at_each.join(" || "))
}

/// An expression: a limit is set.
fn is_set(path: &str) -> String {
    match path.rsplit_once('.') {
        Some((parent, _)) if parent.ends_with("rollingUpdate") => {
            format!("has({parent}) && has({path})")
        }
        _ => format!("has({path})"),
    }
}

/// Limits with which an update goes on. An absent maxUnavailable is above 0.
fn limits_let_go_on(places: &[&str]) -> Vec<Rule> {
    let surge = is_above_zero("self", places, "maxSurge");
    let mut rules = Vec::new();
    for place in places {
        let at = format!("{place}maxUnavailable");
        let zero = is_zero(&format!("self.{at}"));
        rules.push(rule(
            &at,
            format!("!({zero}) || {surge}"),
            "must not be 0 while maxSurge is 0, or no pod could ever be updated; set one of them \
             to 1 or more",
        ));
        rules.push(rule(
            &at,
            format!("!(self.type == 'HotPatchUpdate' && {zero} && {surge})"),
            "must not be 0 with type HotPatchUpdate, which makes no surge pods; set it to 1 or more",
        ));
    }
    rules
}

/// Limits of a GameDeployment.
pub fn game_deployment_limits() -> Vec<Rule> {
    limits_let_go_on(&ONE_PLACE)
}

/// Limits of a GameStatefulSet: each at one place only.
pub fn game_stateful_set_limits() -> Vec<Rule> {
    ["partition", "maxUnavailable", "maxSurge"]
        .map(|field| {
            rule(
                field,
                format!(
                    "!(has(self.{field}) && {})",
                    is_set(&format!("self.rollingUpdate.{field}"))
                ),
                "is set here and in rollingUpdate; keep one of the two",
            )
        })
        .into_iter()
        .chain(limits_let_go_on(&TWO_PLACES))
        .collect()
}

/// Rules on a GameStatefulSet's spec as a whole.
pub fn game_stateful_set_rules() -> Vec<Rule> {
    let mut rules = Vec::from(selector_matches_template());
    rules.extend(TWO_PLACES.map(surge_is_parallel));
    rules
}

/// Surge pods of a GameStatefulSet are made beside the others, which OrderedReady does not do.
fn surge_is_parallel(place: &str) -> Rule {
    let surge = is_above_zero("self.updateStrategy", &[place], "maxSurge");
    rule(
        &format!("updateStrategy.{place}maxSurge"),
        format!("self.podManagementPolicy == 'Parallel' || !{surge}"),
        "needs podManagementPolicy Parallel; leave maxSurge out, or make the workload Parallel",
    )
}

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
            "self.method != 'GET' || !(has(self.body) || has(self.jsonBody))",
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
