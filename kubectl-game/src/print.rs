//! Objects as JSON, YAML or names.

use serde::Serialize;
use serde_json::{Value, json};

use crate::error::Error;
use crate::options::Output;

pub fn object(object: &Value, output: Output) -> Result<String, Error> {
    match output {
        Output::Json => {
            let json = serde_json::to_string_pretty(object).map_err(unexpected)?;
            Ok(sanitize(&json) + "\n")
        }
        Output::Yaml => Ok(serde_yaml_ng::to_string(object)?),
        Output::Name => Ok(name(object) + "\n"),
    }
}

/// A list of objects, as `kubectl get -o` prints it.
pub fn list<T: Serialize>(objects: &[T], output: Output) -> Result<String, Error> {
    let items: Vec<Value> =
        objects.iter().map(serde_json::to_value).collect::<Result<_, _>>().map_err(unexpected)?;
    match output {
        Output::Name => Ok(items.iter().map(|item| name(item) + "\n").collect()),
        _ => object(&json!({"apiVersion": "v1", "kind": "List", "items": items}), output),
    }
}

fn name(object: &Value) -> String {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let group = text("/apiVersion").split_once('/').map_or("", |(group, _)| group);
    let dot = if group.is_empty() { "" } else { "." };
    format!("{}{dot}{group}/{}", text("/kind").to_lowercase(), text("/metadata/name"))
}

/// Escapes DEL and the C1 control characters, which JSON leaves as they are.
fn sanitize(json: &str) -> String {
    let escaped = |it: char| match it {
        '\u{7f}'..='\u{9f}' => format!("\\u{:04x}", u32::from(it)),
        _ => it.to_string(),
    };
    json.chars().map(escaped).collect()
}

fn unexpected(error: serde_json::Error) -> Error {
    Error::Unexpected(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped_and_parsed_back() {
        let value = json!({"a": "\x1b]0;title\x07\u{9b}2J\u{7f}"});
        let json = object(&value, Output::Json).expect("JSON");
        let yaml = object(&value, Output::Yaml).expect("YAML");
        for printed in [&json, &yaml] {
            let is_control = |it: char| it.is_control() && it != '\n';
            assert!(!printed.contains(is_control), "{printed:?}");
            let read: Value = serde_yaml_ng::from_str(printed).expect("an object");
            assert_eq!(read, value);
        }
    }
}
