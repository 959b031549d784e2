//! JSONPath in client-go's dialect, `{$.players[0].name}`, as kubectl and bk-bcs have it.
//!
//! It is a template: paths in braces, text around them, `{range}` and `{end}`. Unlike other
//! dialects, a key that is not there is an error, which is what a hook wants: it must not take
//! silence for an answer.

mod parse;
mod select;
#[cfg(test)]
mod tests;

use serde_json::Value;

/// Why a path cannot be read, or selects nothing that can be used. Names the path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("jsonPath {path}: {why}")]
pub struct PathError {
    path: String,
    why: String,
}

impl PathError {
    /// What is wrong, without the path.
    pub fn why(&self) -> &str {
        &self.why
    }
}

/// Longest template.
const MAX_LENGTH: usize = 4096;

/// A template that has been read.
#[derive(Clone, Debug, PartialEq)]
pub struct JsonPath {
    source: String,
    parts: Vec<Part>,
}

/// What a template selects.
#[derive(Clone, Debug, PartialEq)]
pub enum Selection<'v> {
    /// A path to one place: what stands there.
    One(&'v Value),
    /// A path to any number of places: what stands at those that are there.
    Many {
        /// The values, in document order.
        values: Vec<&'v Value>,
        /// Whether only filters make it a path to many, so that one match is meant.
        filtered: bool,
    },
    /// Several parts, or text: all of it as text.
    Text(String),
}

impl Selection<'_> {
    /// Whether it is what a path to any number of places selected.
    pub fn is_many(&self) -> bool {
        matches!(self, Selection::Many { .. })
    }
}

/// A stretch of a template.
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

/// `[2]` or `[from:to:step]`; an index is a slice of one, with `single` set.
#[derive(Clone, Debug, PartialEq)]
struct Slice {
    from: Option<i64>,
    to: Option<i64>,
    step: Option<i64>,
    single: bool,
}

/// `[?(@.a == 'b')]`; without a comparison, whether the path is there.
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
    /// Reads a template.
    ///
    /// # Errors
    /// When it is no template of this dialect; says what to write.
    pub fn parse(source: &str) -> Result<Self, PathError> {
        let error = |why| PathError {
            path: shown(source),
            why,
        };
        if source.len() > MAX_LENGTH {
            return Err(error(format!(
                "it is longer than {MAX_LENGTH} characters: write a shorter one"
            )));
        }
        let parts = parse::template(source).map_err(error)?;
        Ok(JsonPath {
            source: source.to_owned(),
            parts,
        })
    }

    /// Whether it stands for the whole document.
    pub fn is_whole(&self) -> bool {
        matches!(self.parts.as_slice(), [Part::Path(steps)] if steps.is_empty())
    }

    /// Selects from a document.
    ///
    /// # Errors
    /// When a key, index or type is not what the path needs, or it selects too much.
    pub fn select<'v>(&'v self, document: &'v Value) -> Result<Selection<'v>, PathError> {
        select::selection(&self.parts, document).map_err(|why| PathError {
            path: shown(&self.source),
            why,
        })
    }
}

/// A path as it is shown in a message.
fn shown(source: &str) -> String {
    match source.char_indices().nth(100) {
        Some((end, _)) => format!("{}...", &source[..end]),
        None => source.to_owned(),
    }
}

/// Whether a path leads to one place at most.
fn is_single(steps: &[Step]) -> bool {
    steps.iter().all(|step| match step {
        Step::Field(_) | Step::Literal(_) => true,
        Step::Slice(slice) => slice.single,
        _ => false,
    })
}

fn is_filtered(steps: &[Step]) -> bool {
    let others: Vec<Step> = steps
        .iter()
        .filter(|step| !matches!(step, Step::Filter(_)))
        .cloned()
        .collect();
    others.len() < steps.len() && is_single(&others)
}

/// A scalar as text, without quotes; other values as JSON. A number that JSON happens to write with
/// a fraction of zero is a whole number, as in Go.
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
