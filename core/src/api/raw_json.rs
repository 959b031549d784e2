//! JSON that is kept as text.
//!
//! Parsed into maps, JSON takes up to eighty times its length in the memory of every replica. The parts of an
//! object that can hold arbitrary JSON are therefore parsed only where they are used.

use std::fmt;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

const MAX_LENGTH: usize = 256 << 10;

/// JSON as text, of bounded length.
#[derive(Clone)]
pub struct RawJson(Box<RawValue>);

impl RawJson {
    /// The text.
    pub fn text(&self) -> &str {
        self.0.get()
    }

    /// Parses the text.
    ///
    /// # Errors
    /// If it cannot be deserialized as a `T`.
    pub fn read<'a, T: Deserialize<'a>>(&'a self) -> serde_json::Result<T> {
        serde_json::from_str(self.text())
    }
}

impl Default for RawJson {
    fn default() -> Self {
        RawJson(RawValue::NULL.to_owned())
    }
}

impl PartialEq for RawJson {
    fn eq(&self, other: &Self) -> bool {
        self.text() == other.text()
    }
}

impl fmt::Debug for RawJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl From<&Value> for RawJson {
    fn from(value: &Value) -> Self {
        serde_json::value::to_raw_value(value).map_or_else(|_| RawJson::default(), RawJson)
    }
}

impl Serialize for RawJson {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for RawJson {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        match raw.get().len() {
            0..=MAX_LENGTH => Ok(RawJson(raw)),
            length => Err(D::Error::custom(format_args!(
                "a jsonBody, or the spec or metadata of a job, is {length} bytes long: at most \
                 {MAX_LENGTH} are allowed"
            ))),
        }
    }
}

/// The memory, in bytes, that JSON takes when it is parsed into maps, estimated from its brackets and commas.
/// Brackets and commas in strings count, too, so the estimate may be too high.
pub fn json_memory(text: &[u8]) -> usize {
    let memory = |pair: &[u8]| match pair {
        // An empty map has no node yet.
        b"{}" => 64,
        [b'{', _] => 640,
        [b'[', _] => 160,
        [b',', _] => 64,
        _ => 1,
    };
    text.windows(2).map(memory).sum()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::WebMetric;

    #[test]
    fn the_text_is_kept_unchanged() {
        let text = r#"{"url":"http://game","jsonBody":{"b":1.50,"a":[{"":"\u00e4"}]}}"#;
        let web: WebMetric = serde_json::from_str(text).expect("a metric");
        assert_eq!(serde_json::to_string(&web).expect("JSON"), text);
        let value = serde_json::to_value(&web).expect("a value");
        assert_eq!(value["jsonBody"], json!({"a": [{"": "ä"}], "b": 1.5}));
        let read_back: WebMetric = serde_json::from_value(value).expect("a metric");
        let body = read_back.json_body.expect("a body");
        assert_eq!(body.read::<Value>().expect("JSON")["a"][0][""], "ä");
    }

    #[test]
    fn text_beyond_the_limit_is_an_error() {
        let web = |length: usize| {
            let body = "x".repeat(length - r#"{"a":""}"#.len());
            format!(r#"{{"url":"http://game","jsonBody":{{"a":"{body}"}}}}"#)
        };
        assert!(serde_json::from_str::<WebMetric>(&web(MAX_LENGTH)).is_ok());
        let error = serde_json::from_str::<WebMetric>(&web(MAX_LENGTH + 1)).expect_err("too long");
        let error = error.to_string();
        assert!(error.contains("262145 bytes long: at most 262144"), "{error}");
    }
}
