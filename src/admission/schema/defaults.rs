//! What happens to an object before it is checked: nulls go, defaults come, and fields that the
//! schema does not know are told.

use serde_json::Value;

use super::below;
use crate::admission::Finding;

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
pub fn unknown_fields(schema: &Value, object: &Value) -> Vec<Finding> {
    let mut found = Vec::new();
    for (name, value) in object.as_object().into_iter().flatten() {
        match name.as_str() {
            "apiVersion" | "kind" | "metadata" => {}
            _ => match schema["properties"].get(name) {
                Some(schema) => look(schema, value, name, &mut found),
                None => found.push(unknown(name)),
            },
        }
    }
    found
}

fn look(schema: &Value, value: &Value, path: &str, found: &mut Vec<Finding>) {
    match value {
        Value::Object(fields) => {
            let keeps = schema["x-kubernetes-preserve-unknown-fields"] == true;
            let any = &schema["additionalProperties"];
            for (name, value) in fields {
                let path = below(path, name);
                match schema["properties"].get(name) {
                    Some(schema) => look(schema, value, &path, found),
                    None if any.is_object() => look(any, value, &path, found),
                    None if keeps || any == true || schema["type"] != "object" => {}
                    None => found.push(unknown(&path)),
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

fn unknown(path: &str) -> Finding {
    Finding::error(path, format!("unknown field {path:?}"))
}
