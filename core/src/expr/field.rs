//! Reads fields of objects by path, for arguments and Kubernetes metrics.

use serde_json::Value;

use super::jsonpath::{JsonPath, PathError, Selection, text_of};

/// Why a field has no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoField {
    /// The label or annotation is not set.
    NotSet,
    /// The path is invalid, or does not match exactly one field. Contains the message.
    Bad(String),
}

/// The map (`labels` or `annotations`) and key of a path to a label or annotation; None for other paths.
///
/// As in bk-bcs, the rest of the path is the key, including dots. The downward API's syntax, `['KEY']`, is accepted
/// too.
pub fn metadata_key(path: &str) -> Option<(&'static str, &str)> {
    ["annotations", "labels"].into_iter().find_map(|map| {
        let rest = path.strip_prefix("metadata.")?.strip_prefix(map)?;
        let quoted = || rest.strip_prefix("['")?.strip_suffix("']");
        let key = rest.strip_prefix('.').or_else(quoted)?;
        Some((map, key)).filter(|(_, key)| !key.is_empty())
    })
}

/// Parses the path of a field, with or without braces.
///
/// # Errors
/// If the path is invalid.
pub fn parse_field_path(path: &str) -> Result<JsonPath, PathError> {
    match path.contains('{') {
        true => JsonPath::parse(path),
        false => JsonPath::parse(&format!("{{.{}}}", path.trim_start_matches('.'))),
    }
}

/// The text of a field.
///
/// # Errors
/// If the field is not set, or the path is invalid or does not match exactly one field.
pub fn field(object: &Value, path: &str) -> Result<String, NoField> {
    if let Some((map, key)) = metadata_key(path) {
        let value = object["metadata"][map].get(key).and_then(Value::as_str);
        return value.map(str::to_owned).ok_or(NoField::NotSet);
    }
    let bad = |error: &dyn std::fmt::Display| NoField::Bad(error.to_string());
    let template = parse_field_path(path).map_err(|error| bad(&error))?;
    match template.select(object).map_err(|error| bad(&error))? {
        Selection::One(value) => Ok(text_of(value)),
        Selection::Text(text) => Ok(text),
        Selection::Many { values, .. } => match values.as_slice() {
            [one] => Ok(text_of(one)),
            many => Err(bad(&format!(
                "{path} selects {} values, but exactly one is needed",
                many.len()
            ))),
        },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_rest_of_a_metadata_path_is_the_key() {
        let object = json!({
            "metadata": {"name": "n", "annotations": {"example.com/a.b": "1"}, "labels": {"app": "2"}},
            "status": {"conditions": [{"type": "Ready", "status": "True"}], "n": 3},
        });
        for (path, value) in [
            ("metadata.annotations.example.com/a.b", "1"),
            ("metadata.annotations['example.com/a.b']", "1"),
            ("metadata.labels.app", "2"),
            ("metadata.name", "n"),
            (".metadata.name", "n"),
            ("{.status.n}", "3"),
            ("{.status.conditions[?(@.type==\"Ready\")].status}", "True"),
        ] {
            assert_eq!(field(&object, path), Ok(value.to_owned()), "{path}");
        }
        assert_eq!(field(&object, "metadata.labels.none"), Err(NoField::NotSet));
        for path in ["status.none", "{.status.conditions[*].none}", "{.status[", "{.status.*}"] {
            assert!(matches!(field(&object, path), Err(NoField::Bad(_))), "{path}");
        }
    }
}
