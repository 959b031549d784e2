//! The CEL rules of the CRDs (x-kubernetes-validations), evaluated as for the creation of an object.
//!
//! The evaluator of the crate `cel` has no limits. That is acceptable, because the rules are our own and the files
//! belong to the user who runs the linter. `duration` is implemented here, because the crate's own implementation needs
//! another date library.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use cel::objects::OptionalValue;
use cel::{Context, Env, ExecutionError, Program, Value as Cel};
use serde_json::Value;

use super::below;
use crate::admission::Finding;
use crate::api::escaped;
use crate::observed::time::parse_duration;

/// The rules, each compiled once.
pub(super) struct Rules {
    env: Arc<Env>,
    programs: RefCell<BTreeMap<String, Option<Arc<Program>>>>,
}

impl Default for Rules {
    fn default() -> Self {
        Rules { env: Arc::new(Env::stdlib()), programs: RefCell::default() }
    }
}

impl Rules {
    pub(super) fn check(
        &self,
        schema: &Value,
        value: &Value,
        path: &str,
        found: &mut Vec<Finding>,
    ) {
        for rule in schema["x-kubernetes-validations"].as_array().into_iter().flatten() {
            found.extend(self.check_rule(rule, schema, value, path));
        }
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    let known = schema["properties"].get(name);
                    let field = known.unwrap_or(&schema["additionalProperties"]);
                    self.check(field, value, &below(path, name), found);
                }
            }
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    self.check(&schema["items"], item, &format!("{path}[{index}]"), found);
                }
            }
            _ => {}
        }
    }

    fn check_rule(
        &self,
        rule: &Value,
        schema: &Value,
        value: &Value,
        path: &str,
    ) -> Option<Finding> {
        let source = rule["rule"].as_str()?;
        if source.contains("oldSelf") && rule["optionalOldSelf"] != true {
            return None;
        }
        let program = self.program(source)?;
        let message = rule["message"].as_str().unwrap_or_default();
        // The API server's message contains the value if it is a scalar, and an empty value if the evaluation failed.
        let why = match (program.execute(&self.context(schema, value)), value) {
            (Ok(Cel::Bool(true)), _) => return None,
            (Ok(_), Value::Object(_) | Value::Array(_)) => message.to_owned(),
            (Ok(_), scalar) => format!("{scalar}: {message}"),
            (Err(ExecutionError::FunctionError { function, .. }), _) => {
                format!("\"\": {} evaluating rule: {message}", conversion_error(&function))
            }
            // Only the API server can evaluate this rule.
            (Err(_), _) => return None,
        };
        let field = rule["fieldPath"].as_str().unwrap_or_default();
        let at = below(path, field.trim_start_matches('.'));
        let at = at.trim_end_matches('.');
        Some(Finding::error(at, format!("Invalid value: {why}")))
    }

    fn context(&self, schema: &Value, value: &Value) -> Context<'static, 'static> {
        let mut context = Context::with_env(Arc::clone(&self.env));
        context.add_variable_from_value("self", to_cel(schema, value));
        context.add_variable_from_value("oldSelf", Cel::Opaque(Arc::new(OptionalValue::none())));
        // Fails only if the library already has this function.
        let _ = context.add_function("duration", duration);
        context
    }

    fn program(&self, source: &str) -> Option<Arc<Program>> {
        let mut programs = self.programs.borrow_mut();
        if let Some(program) = programs.get(source) {
            return program.clone();
        }
        let program = self.env.compile(source).ok().map(Arc::new);
        programs.insert(source.to_owned(), program.clone());
        program
    }
}

/// The API server's message for a failed type conversion.
fn conversion_error(function: &str) -> String {
    let to = match function {
        "duration" => "google.protobuf.Duration",
        other => other,
    };
    format!("type conversion error from 'string' to '{to}'")
}

/// A duration in nanoseconds, because the rules only compare durations.
fn duration(text: Arc<String>) -> Result<i64, ExecutionError> {
    let unsigned = text.strip_prefix('-').unwrap_or(&text);
    let parsed =
        parse_duration(unsigned).ok().and_then(|duration| i64::try_from(duration.as_nanos()).ok());
    let sign = if unsigned.len() < text.len() { -1 } else { 1 };
    parsed
        .map(|nanos| sign * nanos)
        .ok_or_else(|| ExecutionError::function_error("duration", "cannot be read"))
}

/// The value as rules see it. The names of fields that the schema lists are escaped; keys of maps are data.
fn to_cel(schema: &Value, value: &Value) -> Cel {
    match value {
        Value::Null => Cel::Null,
        Value::Bool(value) => Cel::Bool(*value),
        Value::Number(number) => match number.as_i64() {
            Some(integer) => Cel::Int(integer),
            None => Cel::Float(number.as_f64().unwrap_or_default()),
        },
        Value::String(text) => Cel::String(Arc::new(text.clone())),
        Value::Array(items) => {
            let items = items.iter().map(|item| to_cel(&schema["items"], item));
            Cel::List(Arc::new(items.collect()))
        }
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, value)| match schema["properties"].get(name) {
                Some(field) => (escaped(name), to_cel(field, value)),
                None => (name.clone(), to_cel(&schema["additionalProperties"], value)),
            });
            Cel::from(fields.collect::<std::collections::HashMap<String, Cel>>())
        }
    }
}
