//! What a page is sent: its whole state first, then what has changed.

use std::collections::{BTreeMap, HashMap};

use serde_json::{Map, Value, json};

use crate::page::sanitize;

/// What a page shows at one moment.
#[derive(Default)]
pub struct Snapshot {
    /// Values that are sent as a whole when they change.
    pub parts: BTreeMap<&'static str, Value>,
    /// Many small values, each sent by itself when it changes. Keys are unique.
    pub rows: Vec<(String, Value)>,
}

/// What one page has been sent so far.
#[derive(Default)]
pub struct Sent {
    parts: BTreeMap<&'static str, Value>,
    rows: HashMap<String, Value>,
    has_begun: bool,
}

impl Sent {
    /// The message that takes the page to this snapshot; None if the page shows it already.
    pub fn delta(&mut self, snapshot: Snapshot) -> Option<Value> {
        let mut message = Map::new();
        let mut parts = Map::new();
        for (name, part) in snapshot.parts {
            let part = clean(part);
            if self.parts.get(name) != Some(&part) {
                parts.insert(name.to_owned(), part.clone());
                self.parts.insert(name, part);
            }
        }
        if !parts.is_empty() {
            message.insert("parts".to_owned(), Value::Object(parts));
        }
        let mut rows = HashMap::with_capacity(snapshot.rows.len());
        let mut changed = Vec::new();
        for (key, row) in snapshot.rows {
            let row = clean(row);
            if self.rows.remove(&key).as_ref() != Some(&row) {
                changed.push(json!([key, row]));
            }
            rows.insert(key, row);
        }
        let gone = std::mem::replace(&mut self.rows, rows);
        if !changed.is_empty() {
            message.insert("rows".to_owned(), Value::Array(changed));
        }
        if !gone.is_empty() {
            message.insert("gone".to_owned(), gone.into_keys().collect());
        }
        if !std::mem::replace(&mut self.has_begun, true) {
            message.insert("reset".to_owned(), Value::Bool(true));
        }
        (!message.is_empty()).then_some(Value::Object(message))
    }
}

/// Escapes control characters, and those that change the direction of text: tenants write names and messages.
fn clean(value: Value) -> Value {
    match value {
        Value::String(text) => match sanitize(&text) {
            std::borrow::Cow::Borrowed(_) => Value::String(text),
            std::borrow::Cow::Owned(escaped) => Value::String(escaped),
        },
        Value::Array(values) => values.into_iter().map(clean).collect(),
        Value::Object(values) => {
            Value::Object(values.into_iter().map(|(key, value)| (key, clean(value))).collect())
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(head: &str, rows: &[(&str, i64)]) -> Snapshot {
        let rows = rows.iter().map(|(key, row)| ((*key).to_owned(), json!(row)));
        Snapshot { parts: BTreeMap::from([("head", json!(head))]), rows: rows.collect() }
    }

    #[test]
    fn only_what_has_changed_is_sent_again() {
        let mut sent = Sent::default();
        for (head, rows, expected) in [
            (
                "a",
                &[("x", 1), ("y", 2)][..],
                Some(json!({
                    "reset": true, "parts": {"head": "a"}, "rows": [["x", 1], ["y", 2]],
                })),
            ),
            ("a", &[("x", 1), ("y", 2)], None),
            ("b", &[("x", 1), ("y", 2)], Some(json!({"parts": {"head": "b"}}))),
            (
                "b",
                &[("x", 3), ("z", 4)],
                Some(json!({"rows": [["x", 3], ["z", 4]], "gone": ["y"]})),
            ),
            ("b", &[], Some(json!({"gone": ["x", "z"]}))),
        ] {
            let mut delta = sent.delta(snapshot(head, rows));
            // The order of what is gone does not matter.
            if let Some(Value::Array(gone)) = delta.as_mut().and_then(|it| it.get_mut("gone")) {
                gone.sort_by_key(Value::to_string);
            }
            assert_eq!(delta, expected);
        }
    }

    #[test]
    fn control_characters_of_objects_are_escaped() {
        let mut sent = Sent::default();
        let delta = sent.delta(snapshot("a\u{202e}b\u{1b}[2J\n<b>", &[])).expect("a delta");
        assert_eq!(delta["parts"]["head"], "a\\u{202e}b\\u{1b}[2J <b>");
    }
}
