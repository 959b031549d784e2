//! Schemas of fields that occur in several places: limits, durations, URLs, selectors.

use kube::core::Rule;
use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::json;

use super::rules;
use super::sidecar_rules::retain_or_overwrite;

/// Makes server-side apply merge the items of a list; `key` is the field that identifies an item.
pub(crate) fn merged_by(key: &str) -> impl FnMut(&mut Schema) {
    move |list| {
        list.insert("x-kubernetes-list-type".to_owned(), "map".into());
        list.insert("x-kubernetes-list-map-keys".to_owned(), json!([key]));
    }
}

/// A number of pods or a percentage of replicas.
pub(crate) fn pods_or_percentage(_: &mut SchemaGenerator) -> Schema {
    pods_or_percentage_from(0)
}

/// A number of pods or a percentage of replicas, at least 1 or 1%.
pub(crate) fn batch(_: &mut SchemaGenerator) -> Schema {
    pods_or_percentage_from(1)
}

fn pods_or_percentage_from(least: u32) -> Schema {
    // The rule compares with a list of all percentages, because a pattern would iterate over the
    // string; see the documentation of the parent module.
    let percentages: Vec<String> = (least..=100).map(|percent| format!("'{percent}%'")).collect();
    let rule = format!(
        "type(self) in [int] ? int(self) >= {least} : self in [{}]",
        percentages.join(", ")
    );
    let message = format!(
        "must be a number of pods, {least} or more, or a percentage from {least}% to 100%, such as 25%"
    );
    json_schema!({
        "x-kubernetes-int-or-string": true,
        "x-kubernetes-validations": [rules::rule("", rule, message)],
    })
}

/// How long a canary pause lasts.
pub(crate) fn pause_duration(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "x-kubernetes-int-or-string": true,
        "x-kubernetes-validations": [Rule::new(
            // A number, or a string of digits, is in seconds. A string that ends in the letter of a unit
            // is a duration. A pattern would be clearer, but would cost too much.
            "type(self) in [string] && (self.endsWith('s') || self.endsWith('m') || self.endsWith('h')) ? \
             duration(self) > duration('0s') && duration(self) <= duration('876000h') : \
             int(self) > 0 && int(self) <= 3153600000",
        )
        .message(
            "must be more than 0 and at most a century: a number of seconds, or a duration such as 90s, \
             5m or 1h30m; omit duration to pause until the rollout is resumed",
        )],
    })
}

/// A number of measurements, which may be written as text.
pub(crate) fn limit(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "x-kubernetes-int-or-string": true,
        "minimum": 0,
        "maximum": i32::MAX,
        "pattern": "^[0-9]{1,9}$",
    })
}

/// Time between two measurements.
pub(crate) fn interval(_: &mut SchemaGenerator) -> Schema {
    duration(">", "must be a duration such as 10s, 5m or 1h30m, more than 0 and at most a century")
}

/// Time before the first measurement.
pub(crate) fn delay(_: &mut SchemaGenerator) -> Schema {
    duration(">=", "must be a duration such as 10s, 5m or 1h30m, at most a century")
}

fn duration(comparison: &str, message: &str) -> Schema {
    // The pattern comes first, so that a string that is no duration gets the message instead of a CEL
    // error.
    let rule = format!(
        "self.matches('^([0-9]+([.][0-9]+)?(ns|us|ms|s|m|h))+$') && \
         duration(self) {comparison} duration('0s') && duration(self) <= duration('876000h')"
    );
    json_schema!({
        "type": "string",
        "maxLength": 32,
        "x-kubernetes-validations": [Rule::new(rule).message(message)],
    })
}

/// The URL of a call.
pub(crate) fn url(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "maxLength": 2048,
        "x-kubernetes-validations": [Rule::new(
            "self.startsWith('http://') || self.startsWith('https://') || self.startsWith('{{')",
        )
        .message("must begin with http:// or https://, or with an argument such as {{ args.URL }}")],
    })
}

/// A program and its arguments.
pub(crate) fn command(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "minItems": 1,
        "maxItems": 64,
        "x-kubernetes-list-type": "atomic",
        "items": { "type": "string", "maxLength": 4096 },
        "x-kubernetes-validations": [Rule::new("size(self) == 0 || self[0] != ''")
            .message("must begin with a program, such as [/bin/check, --players]")],
    })
}

/// The name of a HookTemplate.
pub(crate) fn template_name(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "maxLength": 253,
        "x-kubernetes-validations": [Rule::new(
            "self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",
        )
        .message(
            "must be the name of a HookTemplate: lower case letters, digits, '-' and '.'",
        )],
    })
}

/// The selector of a workload's pods.
pub(crate) fn label_selector(_: &mut SchemaGenerator) -> Schema {
    // Nothing, a null, which a rule sees as an absent field, and an empty list are the same.
    let is_same = ["matchLabels", "matchExpressions"].map(|part| {
        let (now, before) = (format!("self.{part}"), format!("oldSelf.{part}"));
        let is_empty = |it: &str| format!("!(has({it}) && size({it}) > 0)");
        let (now_empty, before_empty) = (is_empty(&now), is_empty(&before));
        format!("(has({now}) && has({before}) ? {now} == {before} : {now_empty} && {before_empty})")
    });
    selector(vec![
        Rule::new(is_same.join(" && "))
            .message("cannot be changed; create a new workload with the new selector"),
        selects_something("must not be empty, or it would select every pod; set matchLabels"),
    ])
}

/// A SidecarSet's selector of pods.
pub(crate) fn pod_selector(_: &mut SchemaGenerator) -> Schema {
    selector(vec![selects_something(
        "must not be empty, or it would select every pod; add matchLabels or matchExpressions",
    )])
}

/// A SidecarSet's selector that may be empty, and then selects everything.
pub(crate) fn possibly_empty_selector(_: &mut SchemaGenerator) -> Schema {
    selector(Vec::new())
}

fn selects_something(message: &str) -> Rule {
    Rule::new(
        "(has(self.matchLabels) && size(self.matchLabels) > 0) || \
         (has(self.matchExpressions) && size(self.matchExpressions) > 0)",
    )
    .message(message)
}

fn selector(rules: Vec<Rule>) -> Schema {
    let label_value = json_schema!({ "type": "string", "maxLength": 63 });
    let mut schema = json_schema!({
        "type": "object",
        "x-kubernetes-map-type": "atomic",
        "properties": {
            "matchLabels": {
                "description": "Labels that must be present.",
                "type": "object",
                "nullable": true,
                "maxProperties": 64,
                "additionalProperties": label_value,
            },
            "matchExpressions": {
                "description": "Further requirements.",
                "type": "array",
                "nullable": true,
                "maxItems": 64,
                "x-kubernetes-list-type": "atomic",
                "items": label_requirement(&label_value),
            },
        },
    });
    if !rules.is_empty() {
        schema.insert("x-kubernetes-validations".to_owned(), json!(rules));
    }
    schema
}

/// Secrets for image registries.
pub(crate) fn pull_secrets(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 64,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
        "items": {
            "type": "object",
            "required": ["name"],
            "properties": {
                "name": {
                    "description": "Name of the Secret.",
                    "type": "string",
                    "minLength": 1,
                    "maxLength": 253,
                },
            },
        },
    })
}

/// Annotations of pods.
pub(crate) fn pod_annotations(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 64,
        "additionalProperties": { "type": "string", "maxLength": 16384 },
    })
}

/// What happens to annotations that a pod already has. This is a rule rather than an enum, because
/// its message can be more helpful.
pub(crate) fn patch_policy(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "maxLength": 63,
        "x-kubernetes-validations": [retain_or_overwrite()],
    })
}

/// An object that is accepted as it is.
pub(crate) fn any_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}

/// A list that is accepted as it is.
pub(crate) fn any_list(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 64,
        "x-kubernetes-list-type": "atomic",
        "items": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
    })
}

fn label_requirement(label_value: &Schema) -> Schema {
    json_schema!({
        "type": "object",
        "required": ["key", "operator"],
        "properties": {
            "key": {
                "description": "The label.",
                "type": "string",
                "minLength": 1,
                "maxLength": 317,
            },
            "operator": {
                "description": "What is required of the label.",
                "type": "string",
                "enum": ["In", "NotIn", "Exists", "DoesNotExist"],
            },
            "values": {
                "description": "Values for In and NotIn.",
                "type": "array",
                "maxItems": 64,
                "x-kubernetes-list-type": "atomic",
                "items": label_value,
            },
        },
        "x-kubernetes-validations": [Rule::new(
            "(self.operator in ['In', 'NotIn']) == (has(self.values) && size(self.values) > 0)",
        )
        .message("values are required with operators In and NotIn, and forbidden with the others")],
    })
}
