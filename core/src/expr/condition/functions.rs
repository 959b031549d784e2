//! The functions of conditions: those of CEL for text and lists, and those of bk-bcs and Argo.

use regex::RegexBuilder;

use super::eval::{Budget, Result, wrong};
use super::value::{Text, Val};
use crate::expr::jsonpath::text_of;

/// Maximum sizes of a compiled regular expression, in bytes, each with the steps that a match then costs per byte of
/// text. The smallest size that fits is used, because larger expressions take longer to match.
const REGEX_SIZES: [(usize, usize); 4] = [(1 << 11, 1), (1 << 13, 4), (1 << 15, 16), (1 << 16, 32)];
/// The steps that compiling a regular expression costs, in addition to its length.
const REGEX_STEPS: usize = 2_000;

/// The maximum number of bytes that a call of the function `string` is charged for.
const MAX_CHARGED_BYTES: usize = 1 << 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Function {
    Size,
    Contains,
    StartsWith,
    EndsWith,
    Matches,
    AsInt,
    AsFloat,
    AsText,
    IsNan,
    IsInf,
}

impl Function {
    /// The function with this name, and the number of its arguments including the target.
    pub(super) fn named(name: &str) -> Option<(Self, usize)> {
        Some(match name {
            "size" | "len" => (Function::Size, 1),
            "contains" => (Function::Contains, 2),
            "startsWith" => (Function::StartsWith, 2),
            "endsWith" => (Function::EndsWith, 2),
            "matches" => (Function::Matches, 2),
            "asInt" | "int" => (Function::AsInt, 1),
            "asFloat" | "double" => (Function::AsFloat, 1),
            "string" => (Function::AsText, 1),
            "isNaN" => (Function::IsNan, 1),
            "isInf" => (Function::IsInf, 1),
            _ => return None,
        })
    }
}

pub(super) fn call<'a>(
    function: Function,
    operands: &[Val<'a>],
    budget: &mut Budget,
) -> Result<Val<'a>> {
    match (function, operands) {
        (Function::Size, [val]) => size(val, budget),
        (Function::AsInt, [val]) => as_int(val).map(Val::Int),
        (Function::AsFloat, [val]) => as_float(val).map(Val::Double),
        (Function::AsText, [val]) => as_text(val, budget),
        (Function::IsNan, [val]) => as_float(val).map(|number| Val::Bool(number.is_nan())),
        (Function::IsInf, [val]) => as_float(val).map(|number| Val::Bool(number.is_infinite())),
        (_, [Val::Text(text), Val::Text(part)]) => {
            search(function, text.as_str(), part.as_str(), budget).map(Val::Bool)
        }
        (_, operands) => {
            let other = operands.iter().find(|operand| !matches!(operand, Val::Text(_)));
            let kind = other.map_or("nothing", Val::kind);
            wrong(format!("a text search needs text, but got {kind}"))
        }
    }
}

fn size<'a>(val: &Val<'a>, budget: &mut Budget) -> Result<Val<'a>> {
    let size = match val {
        Val::Text(text) => {
            budget.spend_bytes(text.as_str().len())?;
            text.as_str().chars().count()
        }
        Val::List(list) => list.len(),
        Val::Object(fields) => fields.len(),
        other => {
            return wrong(format!("len needs text, a list or an object, but got {}", other.kind()));
        }
    };
    Ok(Val::Int(i64::try_from(size).unwrap_or(i64::MAX)))
}

fn search(function: Function, text: &str, part: &str, budget: &mut Budget) -> Result<bool> {
    budget.spend_bytes(text.len() + part.len())?;
    Ok(match function {
        Function::Contains => text.contains(part),
        Function::StartsWith => text.starts_with(part),
        Function::EndsWith => text.ends_with(part),
        _ => matches(text, part, budget)?,
    })
}

/// Whether a string contains a match of a regular expression.
fn matches(text: &str, expression: &str, budget: &mut Budget) -> Result<bool> {
    for (size, steps) in REGEX_SIZES {
        budget.spend(REGEX_STEPS + expression.len())?;
        let mut builder = RegexBuilder::new(expression);
        match builder.size_limit(size).dfa_size_limit(1 << 16).build() {
            Ok(regex) => {
                budget.spend(text.len() * steps)?;
                return Ok(regex.is_match(text));
            }
            Err(regex::Error::CompiledTooBig(_)) => {}
            Err(_) => break,
        }
    }
    wrong(format!("{expression:?} is not a valid regular expression, or is too large"))
}

fn as_int(val: &Val<'_>) -> Result<i64> {
    const RANGE: std::ops::Range<f64> = -9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0;
    let int = match val {
        Val::Int(int) => Some(*int),
        // Rounded toward zero, as in Go and CEL.
        Val::Double(double) => RANGE.contains(double).then_some(*double as i64),
        Val::Text(text) => text.as_str().trim().parse().ok(),
        _ => None,
    };
    int.map_or_else(|| wrong(not_a_number("asInt", val, "a whole number")), Ok)
}

fn as_float(val: &Val<'_>) -> Result<f64> {
    let float = match val {
        Val::Int(int) => Some(*int as f64),
        Val::Double(double) => Some(*double),
        Val::Text(text) => text.as_str().trim().parse().ok(),
        _ => None,
    };
    float.map_or_else(|| wrong(not_a_number("asFloat", val, "a number")), Ok)
}

fn not_a_number(function: &str, val: &Val<'_>, expected: &str) -> String {
    let fix = match val {
        Val::List(_) => "pick an element, as in result[0]",
        Val::Object(_) => "select a number with jsonPath",
        Val::Text(_) if function == "asInt" => {
            "select a whole number with jsonPath, or write asFloat"
        }
        _ => "select a number with jsonPath",
    };
    format!("{function}({}) is not {expected}: {fix}", val.brief())
}

fn as_text<'a>(val: &Val<'a>, budget: &mut Budget) -> Result<Val<'a>> {
    let text = match val {
        Val::Text(_) => return Ok(val.clone()),
        Val::Bool(value) => value.to_string(),
        Val::Int(value) => value.to_string(),
        Val::Double(value) => {
            let number = serde_json::Number::from_f64(*value).map(serde_json::Value::Number);
            number.map_or_else(|| value.to_string(), |number| text_of(&number))
        }
        other => {
            return wrong(format!("string needs a scalar, but got {}", other.kind()));
        }
    };
    budget.spend_bytes(text.len().min(MAX_CHARGED_BYTES))?;
    Ok(Val::Text(Text::Built(text.into())))
}
