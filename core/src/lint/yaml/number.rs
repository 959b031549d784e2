//! Numbers in YAML 1.1 and their form in JSON.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

/// A number, in the type that Go reads it as.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Number {
    Int(i64),
    /// Above the largest i64.
    Uint(u64),
    Float(f64),
}

static FLOAT: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$").ok());

/// The number that a plain scalar is; None if it is text.
pub(super) fn number(text: &str) -> Option<Number> {
    match text {
        ".nan" | ".NaN" | ".NAN" => return Some(Number::Float(f64::NAN)),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => {
            return Some(Number::Float(f64::INFINITY));
        }
        "-.inf" | "-.Inf" | "-.INF" => return Some(Number::Float(f64::NEG_INFINITY)),
        _ => {}
    }
    match text.as_bytes().first()? {
        b'.' => float(text),
        b'0'..=b'9' | b'+' | b'-' => {
            let digits = text.replace('_', "");
            integer(&digits).or_else(|| float(&digits)).or_else(|| signed_binary(&digits))
        }
        _ => None,
    }
}

/// A float of finite size: one that is too large is text.
fn float(text: &str) -> Option<Number> {
    let is_float = FLOAT.as_ref().is_some_and(|float| float.is_match(text));
    let float = is_float.then(|| text.parse::<f64>().ok())??;
    float.is_finite().then_some(Number::Float(float))
}

/// An integer: decimal, or with the prefix 0 (octal), 0o, 0x or 0b.
fn integer(text: &str) -> Option<Number> {
    let (sign, digits) = match text.as_bytes().first()? {
        sign @ (b'-' | b'+') => (Some(*sign), &text[1..]),
        _ => (None, text),
    };
    let bytes = digits.as_bytes();
    let (radix, digits) = match bytes {
        [b'0', b'b' | b'B', _, ..] => (2, &digits[2..]),
        [b'0', b'o' | b'O', _, ..] => (8, &digits[2..]),
        [b'0', b'x' | b'X', _, ..] => (16, &digits[2..]),
        [b'0', _, ..] => (8, &digits[1..]),
        _ => (10, digits),
    };
    let size = magnitude(digits, radix)?;
    match sign {
        Some(b'-') => 0i64.checked_sub_unsigned(size).map(Number::Int),
        Some(_) => i64::try_from(size).ok().map(Number::Int),
        None => Some(i64::try_from(size).map_or(Number::Uint(size), Number::Int)),
    }
}

/// A quirk of Go's package: after 0b, a sign may follow.
fn signed_binary(text: &str) -> Option<Number> {
    let digits = text.strip_prefix("0b")?;
    match digits.as_bytes().first()? {
        b'-' => 0i64.checked_sub_unsigned(magnitude(&digits[1..], 2)?).map(Number::Int),
        b'+' => i64::try_from(magnitude(&digits[1..], 2)?).ok().map(Number::Int),
        _ => None,
    }
}

/// Digits without a sign.
fn magnitude(digits: &str, radix: u32) -> Option<u64> {
    let has_sign = digits.starts_with(['+', '-']);
    (!has_sign).then(|| u64::from_str_radix(digits, radix).ok())?
}

impl Number {
    /// The number as the API server reads it; None if JSON has no such number. Go writes a float without a fraction like
    /// an integer, 3.0 as 3, and what fits into an i64 is one when it is read again.
    pub(super) fn to_json(self) -> Option<Value> {
        match self {
            Number::Int(int) => Some(int.into()),
            Number::Uint(uint) => Number::Float(uint as f64).to_json(),
            Number::Float(float) => match float.to_string().parse::<i64>() {
                Ok(int) => Some(int.into()),
                Err(_) => serde_json::Number::from_f64(float).map(Value::Number),
            },
        }
    }

    /// The number as the name of a field; None if kubectl refuses it there. Floats lose precision, as in kubectl.
    pub(super) fn to_key(self) -> Option<String> {
        match self {
            Number::Int(int) => Some(int.to_string()),
            Number::Uint(_) => None,
            Number::Float(float) => Some(single(float as f32)),
        }
    }
}

/// A float as Go's format 'g' writes it in single precision.
fn single(float: f32) -> String {
    if float.is_nan() {
        return ".nan".to_owned();
    }
    if float.is_infinite() {
        return if float > 0.0 { ".inf" } else { "-.inf" }.to_owned();
    }
    let scientific = format!("{float:e}");
    match scientific
        .split_once('e')
        .and_then(|(digits, power)| Some((digits, power.parse::<i32>().ok()?)))
    {
        Some((digits, power)) if !(-4..6).contains(&power) => {
            let sign = if power < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", power.abs())
        }
        _ => float.to_string(),
    }
}

/// Numbers of a JSON document as the API server reads them.
pub(super) fn normalize(value: &mut Value) {
    match value {
        Value::Number(number) if !number.is_i64() => {
            let float = number.as_f64().map(Number::Float);
            if let Some(json) = float.and_then(Number::to_json) {
                *value = json;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(normalize),
        Value::Object(fields) => fields.values_mut().for_each(normalize),
        _ => {}
    }
}
