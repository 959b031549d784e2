//! Prepares an object for validation: removes nulls, sets defaults, and finds unknown fields.

use serde_json::Value;

use super::below;
use crate::admission::{Finding, lies_in};

/// Removes nulls and sets defaults as the API server does.
pub(crate) fn complete(schema: &Value, value: &mut Value) {
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
        Value::Array(items) => items.iter_mut().for_each(|item| complete(&schema["items"], item)),
        _ => {}
    }
}

/// Fields that are not in the schema: misspelled or misplaced.
///
/// The schemas of core types preserve unknown fields, because the cluster may be newer than this schema. Unknown fields
/// of core types are reported here nevertheless, because the cluster may refuse pods, claims or Jobs that have them.
pub(super) fn unknown_fields(schema: &Value, object: &Value) -> Vec<Finding> {
    let mut found = Vec::new();
    for (name, value) in object.as_object().into_iter().flatten() {
        match name.as_str() {
            "apiVersion" | "kind" | "metadata" => {}
            _ => match schema["properties"].get(name) {
                Some(schema) => search(schema, value, name, &mut found),
                None => found.push(Finding::unknown(name)),
            },
        }
    }
    found
}

fn search(schema: &Value, value: &Value, path: &str, found: &mut Vec<Finding>) {
    match value {
        Value::Object(fields) => {
            let preserves = schema["x-kubernetes-preserve-unknown-fields"] == true;
            // A schema without properties allows all fields.
            let preserves =
                preserves && !(is_in_core_type(path) && schema["properties"].is_object());
            let other = &schema["additionalProperties"];
            for (name, value) in fields {
                let path = below(path, name);
                match schema["properties"].get(name) {
                    Some(schema) => search(schema, value, &path, found),
                    None if other.is_object() => search(other, value, &path, found),
                    None if preserves || other == true || schema["type"] != "object" => {}
                    None => found.push(Finding::unknown(&path)),
                }
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                search(&schema["items"], item, &format!("{path}[{index}]"), found);
            }
        }
        _ => {}
    }
}

/// Whether a field belongs to a core type.
fn is_in_core_type(path: &str) -> bool {
    lies_in(path, "spec.template") || is_in_core_type_outside_template(path)
}

/// The fields of a SidecarSet that hold core types.
const SIDECAR_SET_FIELDS: [&str; 3] = ["spec.initContainers", "spec.containers", "spec.volumes"];

/// Whether a field belongs to the Job of a metric, to a volume claim, or to a SidecarSet's containers or volumes.
pub(super) fn is_in_core_type_outside_template(path: &str) -> bool {
    let in_metric = path.strip_prefix("spec.metrics[");
    let in_metric = in_metric.and_then(|rest| Some(rest.split_once("].")?.1));
    lies_in(path, "spec.volumeClaimTemplates")
        || SIDECAR_SET_FIELDS.iter().any(|field| lies_in(path, field))
        || in_metric.is_some_and(|field| lies_in(field, "provider.job"))
}
