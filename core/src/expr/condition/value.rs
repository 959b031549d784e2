//! The values in conditions. They borrow the response, so no expression copies it.

use std::cmp::Ordering;
use std::rc::Rc;

use serde_json::Value;

use crate::expr::jsonpath::{Selection, text_of};
use crate::text::truncate;

/// The longest value in a status, in characters.
const MAX_SHOWN: usize = 1_000;
/// The longest value in a message, in characters.
const MAX_BRIEF: usize = 40;

/// The input of a condition.
#[derive(Clone, Debug)]
pub struct Subject<'a> {
    pub(super) result: Val<'a>,
    pub(super) value: Val<'a>,
    filtered: bool,
}

impl<'a> Subject<'a> {
    /// The selection of a jsonPath. `value` is the selection itself. In `result`, a scalar is converted to text; null,
    /// lists and objects keep their type. If a selection is `filtered` and has a single match, `result` is this match,
    /// not a list.
    pub fn selected(selection: &Selection<'a>) -> Self {
        match selection {
            Selection::One(value) => Self::whole(value),
            Selection::Text(text) => Self::text(text.as_str()),
            Selection::Many { values, filtered } => {
                let list: Rc<[Val<'a>]> =
                    values.iter().map(|value| Val::from_json(value)).collect();
                let value = Val::List(List::Built(list));
                let result = match values.as_slice() {
                    [one] if *filtered => as_result(one),
                    _ => value.clone(),
                };
                Subject { result, value, filtered: *filtered }
            }
        }
    }

    /// A whole JSON value.
    pub fn whole(value: &'a Value) -> Self {
        Subject { result: as_result(value), value: Val::from_json(value), filtered: false }
    }

    /// Text that is not JSON.
    pub fn text(text: impl Into<Rc<str>>) -> Self {
        Self::plain(Val::Text(Text::Built(text.into())))
    }

    /// A number.
    pub fn number(number: f64) -> Self {
        Self::plain(Val::Double(number))
    }

    /// A list of numbers.
    pub fn numbers(numbers: &[f64]) -> Self {
        let list: Rc<[Val<'a>]> = numbers.iter().copied().map(Val::Double).collect();
        Self::plain(Val::List(List::Built(list)))
    }

    /// The same value for `result` and `value`.
    fn plain(value: Val<'a>) -> Self {
        Subject { result: value.clone(), value, filtered: false }
    }

    /// `result` where true or false is needed: the value with its type, so that `result == true` holds for true in JSON.
    pub(super) fn truth(&self) -> Val<'a> {
        match &self.value {
            Val::List(list) if self.filtered && list.len() == 1 => list.get(0).unwrap_or(Val::Null),
            value => value.clone(),
        }
    }

    pub(super) fn result_is_text(&self) -> bool {
        matches!(self.result, Val::Text(_))
    }

    /// Whether a filter selected the value. If so, the number of matches decides whether `result` is a list.
    pub(super) fn is_filtered(&self) -> bool {
        self.filtered
    }

    /// The value as a status shows it.
    pub fn shown(&self) -> String {
        self.result.shown(MAX_SHOWN)
    }
}

/// Converts a value for `result`: scalars other than null become text.
fn as_result(value: &Value) -> Val<'_> {
    match value {
        Value::Null | Value::Array(_) | Value::Object(_) => Val::from_json(value),
        scalar => Val::Text(Text::Built(text_of(scalar).into())),
    }
}

#[derive(Clone, Debug)]
pub(super) enum Val<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Double(f64),
    Text(Text<'a>),
    List(List<'a>),
    Object(&'a serde_json::Map<String, Value>),
}

#[derive(Clone, Debug)]
pub(super) enum Text<'a> {
    Borrowed(&'a str),
    Built(Rc<str>),
}

#[derive(Clone, Debug)]
pub(super) enum List<'a> {
    Borrowed(&'a [Value]),
    Built(Rc<[Val<'a>]>),
}

impl Text<'_> {
    pub(super) fn as_str(&self) -> &str {
        match self {
            Text::Borrowed(text) => text,
            Text::Built(text) => text,
        }
    }
}

impl<'a> List<'a> {
    pub(super) fn len(&self) -> usize {
        match self {
            List::Borrowed(items) => items.len(),
            List::Built(items) => items.len(),
        }
    }

    pub(super) fn get(&self, index: usize) -> Option<Val<'a>> {
        match self {
            List::Borrowed(items) => items.get(index).map(Val::from_json),
            List::Built(items) => items.get(index).cloned(),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Val<'a>> {
        (0..self.len()).filter_map(|index| self.get(index))
    }
}

impl<'a> Val<'a> {
    /// Whole numbers become Int, so `value == 1` holds for 1 in JSON.
    pub(super) fn from_json(value: &'a Value) -> Self {
        match value {
            Value::Null => Val::Null,
            Value::Bool(value) => Val::Bool(*value),
            Value::Number(number) => match number.as_i64() {
                Some(int) => Val::Int(int),
                None => Val::Double(number.as_f64().unwrap_or(f64::NAN)),
            },
            Value::String(text) => Val::Text(Text::Borrowed(text)),
            Value::Array(items) => Val::List(List::Borrowed(items)),
            Value::Object(fields) => Val::Object(fields),
        }
    }

    /// The type, for messages.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Val::Null => "null",
            Val::Bool(_) => "true or false",
            Val::Int(_) | Val::Double(_) => "a number",
            Val::Text(_) => "text",
            Val::List(_) => "a list",
            Val::Object(_) => "an object",
        }
    }

    /// The value as a message shows it.
    pub(super) fn brief(&self) -> String {
        let shown = self.shown(MAX_BRIEF);
        match self {
            Val::Text(_) => format!("{shown:?}"),
            _ => shown,
        }
    }

    fn shown(&self, max: usize) -> String {
        let mut shown = String::new();
        // Writing to a String cannot fail.
        let _ = self.write(&mut shown, max);
        truncate(&shown, max)
    }

    /// Writes the value as JSON (text without quotes). May stop early, but not before it has written `max` characters.
    fn write(&self, out: &mut String, max: usize) -> std::fmt::Result {
        use std::fmt::Write;
        let is_long_enough = |out: &String| out.len() > max.saturating_mul(4);
        match self {
            Val::Null => out.write_str("null"),
            Val::Bool(value) => write!(out, "{value}"),
            Val::Int(value) => write!(out, "{value}"),
            Val::Double(value) => write!(out, "{value}"),
            Val::Text(text) => {
                out.extend(text.as_str().chars().take(max + 1));
                Ok(())
            }
            Val::List(list) => {
                out.push('[');
                for (index, item) in list.iter().enumerate() {
                    if is_long_enough(out) {
                        break;
                    }
                    if index > 0 {
                        out.push(',');
                    }
                    item.write_quoted(out, max)?;
                }
                out.push(']');
                Ok(())
            }
            Val::Object(fields) => {
                out.push('{');
                for (index, (key, value)) in fields.iter().enumerate() {
                    if is_long_enough(out) {
                        break;
                    }
                    if index > 0 {
                        out.push(',');
                    }
                    Val::Text(Text::Borrowed(key)).write_quoted(out, max)?;
                    out.push(':');
                    Val::from_json(value).write_quoted(out, max)?;
                }
                out.push('}');
                Ok(())
            }
        }
    }

    fn write_quoted(&self, out: &mut String, max: usize) -> std::fmt::Result {
        match self {
            Val::Text(text) => {
                let text: String = text.as_str().chars().take(max + 1).collect();
                out.push_str(&Value::String(text).to_string());
                Ok(())
            }
            other => other.write(out, max),
        }
    }
}

/// The order of two numbers; None if one of them is NaN.
pub(super) fn number_order(left: &Val<'_>, right: &Val<'_>) -> Option<Ordering> {
    match (left, right) {
        (Val::Int(left), Val::Int(right)) => Some(left.cmp(right)),
        (Val::Double(left), Val::Double(right)) => left.partial_cmp(right),
        (Val::Int(left), Val::Double(right)) => int_order(*left, *right),
        (Val::Double(left), Val::Int(right)) => int_order(*right, *left).map(Ordering::reverse),
        _ => None,
    }
}

/// The order of an integer and a float, exact even if f64 cannot represent the integer; None if the float is NaN.
fn int_order(int: i64, double: f64) -> Option<Ordering> {
    const TWO_63: f64 = 9_223_372_036_854_775_808.0;
    if double.is_nan() {
        None
    } else if double >= TWO_63 {
        Some(Ordering::Less)
    } else if double < -TWO_63 {
        Some(Ordering::Greater)
    } else {
        let whole = double.trunc();
        Some(int.cmp(&(whole as i64)).then(0.0_f64.total_cmp(&(double - whole + 0.0))))
    }
}
