//! JSONPath in client-go's dialect, as in kubectl and bk-bcs: `{$.players[0].name}`.
//!
//! An expression is a template: paths in braces, text around them, `{range}` and `{end}`. Unlike in other dialects, a
//! missing key is an error: a hook must not mistake it for a result.

mod parse;
mod select;
#[cfg(test)]
mod tests;

use serde_json::Value;

use crate::text::truncate;

/// Why a path is invalid or does not match. Contains the path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("jsonPath {path}: {why}")]
pub struct PathError {
    path: String,
    why: String,
}

impl PathError {
    /// The message without the path.
    pub fn why(&self) -> &str {
        &self.why
    }
}

/// The maximum length of a template, in bytes.
const MAX_LENGTH: usize = 4096;
/// The longest path in a message, in characters.
const MAX_SHOWN: usize = 100;

/// A parsed template.
///
/// ```
/// use gamekeeper_core::expr::jsonpath::{JsonPath, Selection};
/// use serde_json::json;
///
/// # fn main() -> Result<(), gamekeeper_core::expr::jsonpath::PathError> {
/// let response = json!({"matches": [{"players": 7}, {"players": 0}]});
/// let path = JsonPath::parse("{$.matches[0].players}")?;
/// assert_eq!(path.select(&response)?, Selection::One(&json!(7)));
/// assert!(JsonPath::parse("{$.players}")?.select(&response).is_err());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct JsonPath {
    source: String,
    parts: Vec<Part>,
}

/// What a template selects.
#[derive(Clone, Debug, PartialEq)]
pub enum Selection<'v> {
    /// The value of a path that matches at most one value.
    One(&'v Value),
    /// The values of a path that can match several.
    Many {
        /// In the order in which the path reaches them.
        values: Vec<&'v Value>,
        /// Whether the path can match several only because of filters, in which case users expect a single match.
        filtered: bool,
    },
    /// The text of a template that is more than a single path.
    Text(String),
}

impl Selection<'_> {
    /// Whether its path can match several values.
    pub fn is_many(&self) -> bool {
        matches!(self, Selection::Many { .. })
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Part {
    Text(String),
    Path(Vec<Step>),
    Range(Vec<Step>, Vec<Part>),
}

/// One step of a path.
#[derive(Clone, Debug, PartialEq)]
enum Step {
    Field(String),
    Slice(Slice),
    Wildcard,
    Recursive,
    Union(Vec<Vec<Step>>),
    Filter(Box<Filter>),
    Literal(Value),
}

/// `[2]`, with `single` set, or `[from:to:step]`.
#[derive(Clone, Debug, PartialEq)]
struct Slice {
    from: Option<i64>,
    to: Option<i64>,
    step: Option<i64>,
    single: bool,
}

/// `[?(@.a == 'b')]`, or `[?(@.a)]`, which checks that the path exists.
#[derive(Clone, Debug, PartialEq)]
struct Filter {
    left: Vec<Step>,
    comparison: Option<(Operator, Vec<Step>)>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Operator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl JsonPath {
    /// Parses a template.
    ///
    /// # Errors
    /// If it is invalid; the message says what to write.
    pub fn parse(source: &str) -> Result<Self, PathError> {
        let error = |why| PathError { path: truncate(source, MAX_SHOWN), why };
        if source.len() > MAX_LENGTH {
            return Err(error(format!("it is longer than {MAX_LENGTH} bytes: shorten it")));
        }
        let parts = parse::template(source).map_err(error)?;
        Ok(JsonPath { source: source.to_owned(), parts })
    }

    /// Whether it selects the whole document.
    pub fn is_whole(&self) -> bool {
        matches!(self.parts.as_slice(), [Part::Path(steps)] if steps.is_empty())
    }

    /// Selects from a document.
    ///
    /// # Errors
    /// If a key or index does not exist, a value is of the wrong type, or the path selects too much.
    pub fn select<'v>(&'v self, document: &'v Value) -> Result<Selection<'v>, PathError> {
        select::selection(&self.parts, document)
            .map_err(|why| PathError { path: truncate(&self.source, MAX_SHOWN), why })
    }
}

/// Whether a path matches at most one value.
fn is_single(steps: &[Step]) -> bool {
    steps.iter().all(|step| match step {
        Step::Field(_) | Step::Literal(_) => true,
        Step::Slice(slice) => slice.single,
        _ => false,
    })
}

fn is_filtered(steps: &[Step]) -> bool {
    let others: Vec<Step> =
        steps.iter().filter(|step| !matches!(step, Step::Filter(_))).cloned().collect();
    others.len() < steps.len() && is_single(&others)
}

/// The text of a scalar, without quotes; the JSON of other values. A number whose fraction is zero is written as a whole
/// number.
pub fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => match number.as_f64() {
            Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() < 1e15 => {
                format!("{float:.0}")
            }
            _ => number.to_string(),
        },
        other => other.to_string(),
    }
}
