//! CEL rules on workloads: names, selectors, and limits that depend on each other.

use kube::core::Rule;

use super::rules::{rule, unless_broken_before};
use crate::api::names::MAX_WORKLOAD_NAME;

/// The name of a workload must be short enough for suffixes. The rule applies on create only: because it is on the
/// root of the schema, it would otherwise refuse every write to an older object.
pub(crate) fn workload_name() -> Rule {
    rule(
        "",
        format!("oldSelf.hasValue() || size(self.metadata.name) <= {MAX_WORKLOAD_NAME}"),
        format!(
            "metadata.name must be no longer than {MAX_WORKLOAD_NAME} characters, because names of \
             revisions are derived from it and used as label values, which are limited to 63"
        ),
    )
    .optional_old_self(true)
}

/// The name of a GameStatefulSet is also a part of its pods' host names.
pub(crate) fn dns_label_name() -> Rule {
    rule(
        "",
        "oldSelf.hasValue() || self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",
        "metadata.name must be a DNS label, because host names of pods are derived from it: use lower case letters, \
         digits and '-', no dots",
    )
    .optional_old_self(true)
}

/// The selector matches the template's labels. Checked when labels are set or changed, because the selector
/// cannot change.
pub(crate) fn selector_matches_template() -> [Rule; 2] {
    let at = "template.metadata.labels";
    let labels = "self.template.metadata.labels";
    let labeled = format!("has(self.template.metadata) && has({labels})");
    let unchanged = format!(
        "(oldSelf.hasValue() && {labeled} && \
         oldSelf.?template.?metadata.?labels.orValue({{}}) == {labels})"
    );
    let labels_match = format!(
        "!has(self.selector.matchLabels) || ({labeled} && self.selector.matchLabels.all(key, \
         key in {labels} && {labels}[key] == self.selector.matchLabels[key]))"
    );
    let expressions_match = format!(
        "!has(self.selector.matchExpressions) || self.selector.matchExpressions.all(wanted, \
         ({labeled} && wanted.key in {labels} && (!has(wanted.values) || \
         size(wanted.values) == 0 || {labels}[wanted.key] in wanted.values)) == \
         (wanted.operator in ['In', 'Exists']))"
    );
    [
        (labels_match, "must hold all labels of selector.matchLabels"),
        (expressions_match, "must match all selector.matchExpressions"),
    ]
    .map(|(matches, message)| {
        rule(at, format!("{matches} || {unchanged}"), message).optional_old_self(true)
    })
}

/// A deadline would terminate pods without running their hooks.
pub(crate) fn no_deadline() -> Rule {
    rule(
        "activeDeadlineSeconds",
        "!has(self.activeDeadlineSeconds)",
        "would terminate pods regardless of their hooks; remove it",
    )
}

/// Game servers are restarted. The rule is no enum, because a null would need a value of its own in it.
pub(crate) fn always_restarted() -> Rule {
    rule(
        "restartPolicy",
        "!has(self.restartPolicy) || self.restartPolicy in ['', 'Always']",
        "must be Always, or a game server that exits would not be started again; remove it",
    )
}

/// A deadline must leave time to run a hook again.
pub(crate) fn deadline_after_first_rerun() -> Rule {
    rule(
        "deadlineSeconds",
        "!has(self.deadlineSeconds) || self.deadlineSeconds > self.askAgainSeconds",
        "must be more than askAgainSeconds, or a hook that has refused the deletion would never be run again",
    )
}

/// Where an update strategy has its limits, as prefixes of their paths. A GameStatefulSet has two places.
const ONE_PLACE: [&str; 1] = [""];
const TWO_PLACES: [&str; 2] = ["", "rollingUpdate."];

/// A CEL expression: the limit at `path` is set, and is 0.
fn is_zero(path: &str) -> String {
    format!("{} && ({path} == 0 || {path} == '0%')", is_set(path))
}

/// A CEL expression: the limit is set in one of the places, and is not 0.
fn is_above_zero(places: &[&str], field: &str) -> String {
    let at_each: Vec<String> = places
        .iter()
        .map(|place| format!("self.{place}{field}"))
        .map(|path| format!("({} && {path} != 0 && {path} != '0%')", is_set(&path)))
        .collect();
    format!("({})", at_each.join(" || "))
}

/// A CEL expression: the limit at `path` is set.
fn is_set(path: &str) -> String {
    match path.rsplit_once('.') {
        Some((parent, _)) if parent.ends_with("rollingUpdate") => {
            format!("has({parent}) && has({path})")
        }
        _ => format!("has({path})"),
    }
}

/// Limits must allow progress. An absent maxUnavailable is above 0.
fn limits_allow_progress(places: &[&str]) -> Vec<Rule> {
    let surge = is_above_zero(places, "maxSurge");
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
            "must not be 0 with type HotPatchUpdate, which creates no surge pods; set it to 1 or more",
        ));
    }
    rules
}

/// Limits of a GameDeployment.
pub(crate) fn game_deployment_limits() -> Vec<Rule> {
    limits_allow_progress(&ONE_PLACE).into_iter().map(unless_broken_before).collect()
}

/// Limits of a GameStatefulSet: each may be set in one place only.
pub(crate) fn game_stateful_set_limits() -> Vec<Rule> {
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
        .chain(limits_allow_progress(&TWO_PLACES))
        .map(unless_broken_before)
        .collect()
}
