//! What happens to an object before it is checked: nulls go, defaults come, and fields that the
//! schema does not know are told.

use serde_json::Value;

use super::below;
use crate::admission::{Finding, lies_in};

/// Drops nulls and fills in defaults, as the API server does before it looks at an object.
pub fn complete(schema: &Value, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            let known = schema["properties"].as_object();
            for (name, field) in known.into_iter().flatten() {
                if fields.get(name).is_some_and(Value::is_null) {
                    fields.remove(name);
                }
                if let Some(default) = field.get("default")
                    && !fields.contains_key(name)
                {
                    fields.insert(name.clone(), default.clone());
                }
            }
            for (name, value) in fields.iter_mut() {
                let field = known.and_then(|known| known.get(name));
                complete(field.unwrap_or(&schema["additionalProperties"]), value);
            }
        }
        Value::Array(items) => items
            .iter_mut()
            .for_each(|item| complete(&schema["items"], item)),
        _ => {}
    }
}

/// Fields that the schema does not know: misspelt, or at the wrong place.
///
/// Core's types keep what they do not know, because a cluster may be newer than we are. It is told all
/// the same: the cluster would refuse it when pods, claims or Jobs are made.
pub fn unknown_fields(schema: &Value, object: &Value) -> Vec<Finding> {
    let mut found = Vec::new();
    for (name, value) in object.as_object().into_iter().flatten() {
        match name.as_str() {
            "apiVersion" | "kind" | "metadata" => {}
            _ => match schema["properties"].get(name) {
                Some(schema) => look(schema, value, name, &mut found),
                None => found.push(Finding::unknown(name)),
            },
        }
    }
    found
}

fn look(schema: &Value, value: &Value, path: &str, found: &mut Vec<Finding>) {
    match value {
        Value::Object(fields) => {
            let keeps = schema["x-kubernetes-preserve-unknown-fields"] == true;
            // An object without properties takes any.
            let keeps = keeps && !(is_of_core(path) && schema["properties"].is_object());
            let any = &schema["additionalProperties"];
            for (name, value) in fields {
                let path = below(path, name);
                match schema["properties"].get(name) {
                    Some(schema) => look(schema, value, &path, found),
                    None if any.is_object() => look(any, value, &path, found),
                    None if keeps || any == true || schema["type"] != "object" => {}
                    None => found.push(Finding::unknown(&path)),
                }
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                look(&schema["items"], item, &format!("{path}[{index}]"), found);
            }
        }
        _ => {}
    }
}

/// Whether a field is, or is in, a value of one of core's types.
fn is_of_core(path: &str) -> bool {
    lies_in(path, "spec.template") || is_of_job_or_claim(path)
}

/// Whether it is in the Job of a metric, or in a volume claim.
pub fn is_of_job_or_claim(path: &str) -> bool {
    let of_metric = path.strip_prefix("spec.metrics[");
    let of_metric = of_metric.and_then(|rest| Some(rest.split_once("].")?.1));
    lies_in(path, "spec.volumeClaimTemplates")
        || of_metric.is_some_and(|field| lies_in(field, "provider.job"))
}
