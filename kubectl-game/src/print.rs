//! Objects as JSON, YAML or names.

use serde::Serialize;
use serde_json::{Value, json};

use crate::error::Error;
use crate::options::Output;

/// One object.
pub fn object(object: &Value, output: Output) -> Result<String, Error> {
    match output {
        Output::Json => Ok(serde_json::to_string_pretty(object).map_err(odd)? + "\n"),
        Output::Yaml => Ok(serde_yaml_ng::to_string(object)?),
        Output::Name => Ok(name(object) + "\n"),
    }
}

/// A list of objects, as `kubectl get -o` prints it.
pub fn list<T: Serialize>(objects: &[T], output: Output) -> Result<String, Error> {
    let items: Vec<Value> = objects
        .iter()
        .map(serde_json::to_value)
        .collect::<Result<_, _>>()
        .map_err(odd)?;
    match output {
        Output::Name => Ok(items.iter().map(|item| name(item) + "\n").collect()),
        _ => object(
            &json!({"apiVersion": "v1", "kind": "List", "items": items}),
            output,
        ),
    }
}

fn name(object: &Value) -> String {
    let text = |pointer: &str| {
        object
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let group = text("/apiVersion")
        .split_once('/')
        .map_or("", |(group, _)| group);
    let dot = if group.is_empty() { "" } else { "." };
    format!(
        "{}{dot}{group}/{}",
        text("/kind").to_lowercase(),
        text("/metadata/name")
    )
}

fn odd(error: serde_json::Error) -> Error {
    Error::Odd(error.to_string())
}
