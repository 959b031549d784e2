//! JSONPath evaluation.

use std::cmp::Ordering;

use serde_json::Value;

use crate::text::truncate;

use super::{Filter, Operator, Part, Selection, Slice, Step, is_filtered, is_single, text_of};

/// The maximum number of values that a selection may visit: paths such as `{..*..*}` could exhaust the memory.
const MAX_VISITS: usize = 500_000;

/// The longest text that a template may create, in bytes.
const MAX_TEXT: usize = 1 << 20;

type Result<T> = std::result::Result<T, String>;

pub(super) fn selection<'v>(parts: &'v [Part], document: &'v Value) -> Result<Selection<'v>> {
    let mut walk = Walk { visits: 0 };
    if let [Part::Path(steps)] = parts {
        let mut values = walk.path(steps, vec![document])?;
        if !is_single(steps) {
            return Ok(Selection::Many { values, filtered: is_filtered(steps) });
        }
        return values.pop().map(Selection::One).ok_or("it selects nothing".into());
    }
    let mut text = String::new();
    walk.text(parts, document, &mut text)?;
    Ok(Selection::Text(text))
}

struct Walk {
    visits: usize,
}

impl Walk {
    fn visit(&mut self, count: usize) -> Result<()> {
        self.visits = self.visits.saturating_add(count);
        if self.visits > MAX_VISITS {
            return Err("it selects too much: write a narrower path".into());
        }
        Ok(())
    }

    /// Writes parts as text, with spaces between the values of a path.
    fn text(&mut self, parts: &[Part], current: &Value, text: &mut String) -> Result<()> {
        for part in parts {
            self.visit(1)?;
            match part {
                Part::Text(plain) => text.push_str(plain),
                Part::Path(steps) => {
                    for (index, place) in self.path(steps, vec![current])?.into_iter().enumerate() {
                        if index > 0 {
                            text.push(' ');
                        }
                        text.push_str(&text_of(place));
                        check_length(text)?;
                    }
                }
                Part::Range(steps, body) => {
                    for place in self.path(steps, vec![current])? {
                        self.text(body, place, text)?;
                    }
                }
            }
            check_length(text)?;
        }
        Ok(())
    }

    /// Applies the steps one after another. A place is a value that the path has reached so far.
    fn path<'v>(
        &mut self,
        steps: &'v [Step],
        mut places: Vec<&'v Value>,
    ) -> Result<Vec<&'v Value>> {
        for step in steps {
            places = self.step(step, places)?;
        }
        Ok(places)
    }

    fn step<'v>(&mut self, step: &'v Step, places: Vec<&'v Value>) -> Result<Vec<&'v Value>> {
        let mut found = Vec::new();
        match step {
            Step::Field(key) => {
                found = field(key, &places)?;
                self.visit(places.len())?;
            }
            Step::Slice(slice) => {
                for place in places {
                    let items = sliced(slice, place)?;
                    self.visit(1 + items.len())?;
                    found.extend(items);
                }
            }
            Step::Wildcard => {
                for place in places {
                    self.visit(1 + size(place))?;
                    found.extend(children(place));
                }
            }
            Step::Recursive => {
                for place in places {
                    self.descend(place, &mut found)?;
                }
            }
            Step::Union(members) => {
                for member in members {
                    found.extend(self.path(member, places.clone())?);
                    self.visit(places.len())?;
                }
            }
            Step::Filter(filter) => {
                for place in places {
                    self.filter(filter, place, &mut found)?;
                }
            }
            Step::Literal(value) => found.push(value),
        }
        Ok(found)
    }

    /// Finds the non-empty lists and objects from this value downward.
    fn descend<'v>(&mut self, place: &'v Value, found: &mut Vec<&'v Value>) -> Result<()> {
        self.visit(1)?;
        let mut inner = children(place).peekable();
        if inner.peek().is_some() {
            found.push(place);
        }
        inner.try_for_each(|child| self.descend(child, found))
    }

    fn filter<'v>(
        &mut self,
        filter: &'v Filter,
        place: &'v Value,
        found: &mut Vec<&'v Value>,
    ) -> Result<()> {
        let items = place
            .as_array()
            .ok_or_else(|| format!("a filter needs a list, but got {}", kind(place)))?;
        for item in items {
            self.visit(1)?;
            let left = self.path(&filter.left, vec![item]);
            let passes = match &filter.comparison {
                None => left.is_ok_and(|places| !places.is_empty()),
                Some((operator, right)) => {
                    let right = self.path(right, vec![item])?;
                    match (at_most_one(left?)?, at_most_one(right)?) {
                        (Some(left), Some(right)) => compare(*operator, left, right)?,
                        _ => false,
                    }
                }
            };
            if passes {
                found.push(item);
            }
        }
        Ok(())
    }
}

fn check_length(text: &str) -> Result<()> {
    if text.len() > MAX_TEXT {
        return Err("its result is too long: write a narrower path".into());
    }
    Ok(())
}

fn size(place: &Value) -> usize {
    match place {
        Value::Array(items) => items.len(),
        Value::Object(fields) => fields.len(),
        _ => 0,
    }
}

fn children(place: &Value) -> Box<dyn Iterator<Item = &Value> + '_> {
    match place {
        Value::Array(items) => Box::new(items.iter()),
        Value::Object(fields) => Box::new(fields.values()),
        _ => Box::new(std::iter::empty()),
    }
}

/// The values of a key. The key may be missing in some places, but not in all.
fn field<'v>(key: &str, places: &[&'v Value]) -> Result<Vec<&'v Value>> {
    let found: Vec<_> = places.iter().filter_map(|place| place.as_object()?.get(key)).collect();
    match (places, found.is_empty()) {
        ([place], true) if !place.is_object() => {
            Err(format!("key {key} is not found in {}", kind(place)))
        }
        ([place, ..], true) => Err(format!("key {key} is not found{}", known_keys(place))),
        _ => Ok(found),
    }
}

/// The most keys that a message lists, and the longest one, in characters.
const MAX_KEYS: usize = 5;
const MAX_KEY: usize = 40;

/// The keys that there are, as the end of a message.
fn known_keys(place: &Value) -> String {
    let keys: Vec<&String> = place.as_object().into_iter().flatten().map(|(key, _)| key).collect();
    let shown = keys.iter().take(MAX_KEYS).map(|key| truncate(key, MAX_KEY));
    let shown = shown.collect::<Vec<_>>().join(", ");
    match keys.len() {
        0 => " in an empty object".to_owned(),
        count if count > MAX_KEYS => {
            format!("; the keys are {shown} and {} more", count - MAX_KEYS)
        }
        _ => format!("; the keys are {shown}"),
    }
}

fn sliced<'v>(slice: &Slice, place: &'v Value) -> Result<Vec<&'v Value>> {
    let items = match place {
        Value::Array(items) => items,
        Value::Null => return Ok(Vec::new()),
        other => {
            return Err(format!("an index needs a list, but got {}", kind(other)));
        }
    };
    let length = items.len() as i64;
    let absolute = |bound: i64| {
        if bound < 0 { bound.saturating_add(length) } else { bound }
    };
    let from = absolute(slice.from.unwrap_or(0));
    let to = match slice.to {
        _ if slice.single => from.saturating_add(1),
        to => to.map_or(length, absolute),
    };
    if from == to {
        return Ok(Vec::new());
    }
    if from < 0 || from >= length || to < 0 || to > length || from > to {
        let index = slice.from.unwrap_or(0);
        return Err(if slice.single {
            format!("index {index} is outside a list of {length}")
        } else {
            format!("{from}:{to} is outside a list of {length}")
        });
    }
    let step = usize::try_from(slice.step.unwrap_or(1)).unwrap_or(1).max(1);
    Ok(items[from as usize..to as usize].iter().step_by(step).collect())
}

fn at_most_one(places: Vec<&Value>) -> Result<Option<&Value>> {
    match places.as_slice() {
        [] => Ok(None),
        [place] => Ok(Some(place)),
        _ => Err("a filter can compare one value at a time".into()),
    }
}

fn compare(operator: Operator, left: &Value, right: &Value) -> Result<bool> {
    let order = match (left, right) {
        (Value::String(left), Value::String(right)) => Some(left.cmp(right)),
        (Value::Number(left), Value::Number(right)) => match (left.as_i64(), right.as_i64()) {
            (Some(left), Some(right)) => Some(left.cmp(&right)),
            _ => left.as_f64().partial_cmp(&right.as_f64()),
        },
        (Value::Bool(left), Value::Bool(right)) => {
            if !matches!(operator, Operator::Equal | Operator::NotEqual) {
                return Err("true and false are not ordered: compare them with == or !=".into());
            }
            Some(left.cmp(right))
        }
        _ => {
            return Err(format!("a filter cannot compare {} with {}", kind(left), kind(right)));
        }
    };
    Ok(match operator {
        Operator::Equal => order == Some(Ordering::Equal),
        Operator::NotEqual => order != Some(Ordering::Equal),
        Operator::Less => order == Some(Ordering::Less),
        Operator::LessOrEqual => matches!(order, Some(Ordering::Less | Ordering::Equal)),
        Operator::Greater => order == Some(Ordering::Greater),
        Operator::GreaterOrEqual => matches!(order, Some(Ordering::Greater | Ordering::Equal)),
    })
}

/// The type of a value, for messages.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
