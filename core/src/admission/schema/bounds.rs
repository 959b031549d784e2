//! Types and bounds of OpenAPI schemas.

use std::collections::BTreeSet;

use regex::Regex;
use serde_json::{Value, json};

use super::below;
use crate::admission::Finding;

/// Checks an object and collects what violates its schema.
#[derive(Default)]
pub(super) struct Bounds {
    pub findings: Vec<Finding>,
    /// Whether the API server would skip the CEL rules because of these findings.
    pub skips_rules: bool,
}

impl Bounds {
    pub(super) fn check(&mut self, schema: &Value, value: &Value, path: &str) {
        let is_null = value.is_null() && schema["nullable"] == true;
        if is_null || !self.check_type(schema, value, path) {
            return;
        }
        self.check_enum(schema, value, path);
        match value {
            Value::Object(fields) => self.check_object(schema, fields, path),
            Value::Array(items) => self.check_list(schema, items, path),
            Value::String(text) => self.check_text(schema, text, path),
            Value::Number(_) => self.check_number(schema, value, path),
            _ => {}
        }
    }

    fn check_type(&mut self, schema: &Value, value: &Value, path: &str) -> bool {
        let type_ = type_of(value);
        let is_valid =
            |expected: &str| expected == type_ || (expected == "number" && type_ == "integer");
        let expected = match schema["type"].as_str() {
            Some(expected) if !is_valid(expected) => expected,
            None if schema["x-kubernetes-int-or-string"] == true
                && !matches!(type_, "integer" | "string") =>
            {
                "integer,string"
            }
            _ => return true,
        };
        let message = format!("{path} in body must be of type {expected}: {type_:?}");
        self.skips_rules = true;
        self.findings.push(Finding::invalid(path, type_, message));
        false
    }

    fn check_enum(&mut self, schema: &Value, value: &Value, path: &str) {
        let Some(supported) = schema["enum"].as_array() else {
            return;
        };
        if !supported.contains(value) {
            let supported: Vec<String> = supported.iter().map(Value::to_string).collect();
            let supported = supported.join(", ");
            self.push_and_skip_rules(
                path,
                format!("Unsupported value: {value}: supported values: {supported}"),
            );
        }
    }

    fn check_object(
        &mut self,
        schema: &Value,
        fields: &serde_json::Map<String, Value>,
        path: &str,
    ) {
        for name in schema["required"].as_array().into_iter().flatten() {
            let name = name.as_str().unwrap_or_default();
            if !fields.contains_key(name) {
                self.push_and_skip_rules(&below(path, name), "Required value".into());
            }
        }
        self.check_max(&schema["maxProperties"], fields.len(), path);
        for (name, value) in fields {
            let known = schema["properties"].get(name);
            let field = known.unwrap_or(&schema["additionalProperties"]);
            self.check(field, value, &below(path, name));
        }
    }

    fn check_list(&mut self, schema: &Value, items: &[Value], path: &str) {
        if let Some(min) = schema["minItems"].as_u64()
            && (items.len() as u64) < min
        {
            let why = format!("{path} in body should have at least {min} items");
            self.push_out_of_bounds(path, &json!(items.len()), &why);
        }
        self.check_max(&schema["maxItems"], items.len(), path);
        let mut seen = BTreeSet::new();
        for (index, item) in items.iter().enumerate() {
            let path = format!("{path}[{index}]");
            self.check(&schema["items"], item, &path);
            if let Some(key) = self.key(schema, item, &path)
                && !seen.insert(key.clone())
            {
                let message = format!("Duplicate value: {key}");
                self.findings.push(Finding::error(path, message));
            }
        }
    }

    /// The unique key of an item of a list, in the format of the API server.
    fn key(&mut self, schema: &Value, item: &Value, path: &str) -> Option<String> {
        match schema["x-kubernetes-list-type"].as_str()? {
            "set" => Some(item.to_string()),
            "map" => {
                let keys = schema["x-kubernetes-list-map-keys"].as_array()?;
                let mut key_fields = serde_json::Map::new();
                for key in keys.iter().filter_map(Value::as_str) {
                    match item.get(key) {
                        Some(value) => key_fields.insert(key.to_owned(), value.clone()),
                        None if schema["items"]["required"]
                            .as_array()
                            .is_some_and(|it| it.contains(&json!(key))) =>
                        {
                            return None;
                        }
                        None => {
                            self.push_and_skip_rules(&below(path, key), "Required value".into());
                            return None;
                        }
                    };
                }
                Some(Value::Object(key_fields).to_string())
            }
            _ => None,
        }
    }

    fn check_text(&mut self, schema: &Value, text: &str, path: &str) {
        let length = text.chars().count() as u64;
        if let Some(max) = schema["maxLength"].as_u64()
            && length > max
        {
            self.push_and_skip_rules(path, format!("Too long: may not be more than {max} bytes"));
        }
        if let Some(min) = schema["minLength"].as_u64()
            && length < min
        {
            let why = format!("{path} in body should be at least {min} chars long");
            self.push_out_of_bounds(path, &json!(text), &why);
        }
        if let Some(pattern) = schema["pattern"].as_str()
            && Regex::new(pattern).is_ok_and(|regex| !regex.is_match(text))
        {
            let why = format!("{path} in body should match '{pattern}'");
            self.push_out_of_bounds(path, &json!(text), &why);
        }
    }

    fn check_number(&mut self, schema: &Value, number: &Value, path: &str) {
        let bound = |name: &str| schema[name].as_f64();
        let value = number.as_f64().unwrap_or_default();
        if let Some(min) = bound("minimum").filter(|min| value < *min) {
            let why = format!("{path} in body should be greater than or equal to {min}");
            self.push_out_of_bounds(path, number, &why);
        }
        if let Some(max) = bound("maximum").filter(|max| value > *max) {
            let why = format!("{path} in body should be less than or equal to {max}");
            self.push_out_of_bounds(path, number, &why);
        }
    }

    fn check_max(&mut self, max: &Value, count: usize, path: &str) {
        if let Some(max) = max.as_u64()
            && count as u64 > max
        {
            let why = format!("Too many: {count}: must have at most {max} items");
            self.push_and_skip_rules(path, why);
        }
    }

    fn push_out_of_bounds(&mut self, path: &str, value: &Value, why: &str) {
        let message = format!("Invalid value: {value}: {why}");
        self.findings.push(Finding::error(path, message));
    }

    fn push_and_skip_rules(&mut self, path: &str, message: String) {
        self.skips_rules = true;
        self.findings.push(Finding::error(path, message));
    }
}

/// The OpenAPI type of a value.
fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.as_f64().is_some_and(|it| it.fract() == 0.0) => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
