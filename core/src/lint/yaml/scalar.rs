//! The values of scalars in YAML 1.1, as Go's yaml package resolves them: `yes` and `on` are true, 0644 is octal, `_`
//! may divide digits; but 1:30 and dates are text.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::civil::Date;

use super::number::{Number, number};

/// The beginning of the tags that `!!` stands for.
const YAML: &str = "tag:yaml.org,2002:";

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Scalar {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
}

/// The value of a scalar with a tag, or of a plain one.
///
/// # Errors
/// If the text is no value of the type that the tag names.
pub(super) fn resolve(text: &str, tag: Option<&str>) -> Result<Scalar, String> {
    let as_text = || Ok(Scalar::Text(text.to_owned()));
    let Some(tag) = tag else { return Ok(plain(text)) };
    let name = tag.strip_prefix(YAML).unwrap_or_default();
    match (name, plain(text)) {
        ("bool", value @ Scalar::Bool(_))
        | ("null", value @ Scalar::Null)
        | ("int", value @ Scalar::Number(Number::Int(_) | Number::Uint(_)))
        | ("float", value @ Scalar::Number(Number::Float(_))) => Ok(value),
        ("float", Scalar::Number(Number::Int(int))) => {
            Ok(Scalar::Number(Number::Float(int as f64)))
        }
        ("timestamp", _) if is_timestamp(text) => as_text(),
        ("bool" | "null" | "int" | "float" | "timestamp", _) => {
            Err(format!("{text:?} is no !!{name}: correct it, or remove the tag"))
        }
        ("binary", _) => binary(text),
        _ => as_text(),
    }
}

fn plain(text: &str) -> Scalar {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Scalar::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            Scalar::Bool(true)
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            Scalar::Bool(false)
        }
        text => number(text).map_or_else(|| Scalar::Text(text.to_owned()), Scalar::Number),
    }
}

fn binary(text: &str) -> Result<Scalar, String> {
    let text: String = text.chars().filter(|it| !matches!(it, '\r' | '\n')).collect();
    let bytes =
        STANDARD.decode(text).map_err(|error| format!("!!binary is not base64: {error}"))?;
    Ok(Scalar::Text(String::from_utf8_lossy(&bytes).into_owned()))
}

/// Whether a text is a date, possibly with a time. Nothing but an explicit tag asks for one.
fn is_timestamp(text: &str) -> bool {
    let (date, time) = text.split_once(['T', 't', ' ']).unwrap_or((text, "0:0:0Z"));
    let numbers = |text: &str, separator| -> Option<Vec<i16>> {
        text.split(separator).map(|it| it.parse().ok()).collect()
    };
    let is_date = match numbers(date, '-').as_deref() {
        Some([year, month, day]) => {
            let (month, day) = (i8::try_from(*month), i8::try_from(*day));
            Date::new(*year, month.unwrap_or(0), day.unwrap_or(0)).is_ok()
        }
        _ => false,
    };
    let clock = time.split(['Z', '+', '-', '.']).next().unwrap_or_default();
    let is_clock = matches!(numbers(clock, ':').as_deref(), Some([0..24, 0..60, 0..60]));
    is_date && is_clock
}
