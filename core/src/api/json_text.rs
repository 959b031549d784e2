//! JSON of any shape that is kept as text, and parsed for each use.
//!
//! A pod template of twenty thousand small maps is 330 kB of text, and 16 MB once it is parsed. Every replica keeps the
//! templates of all workloads and of their revisions, so they stay text until a plan needs one of them.

use std::fmt;
use std::sync::Arc;

use serde::de::{Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

/// JSON as text. It can always be parsed: this is checked when it is read.
#[derive(Clone)]
pub struct JsonText(Arc<RawValue>);

impl JsonText {
    /// The text of a value that consists of valid JSON.
    pub(crate) fn of(value: &impl Serialize) -> Self {
        let text = serde_json::value::to_raw_value(value);
        text.map_or_else(|_| Self::default(), |text| Self(text.into()))
    }

    /// The same, of a text that has about this length, for texts that may be long: a buffer that grows takes up to three
    /// times as much.
    pub(crate) fn of_length(value: &impl Serialize, length: usize) -> Self {
        let mut text = Vec::with_capacity(length);
        let written = serde_json::to_writer(&mut text, value).ok();
        let text = written.and_then(|()| String::from_utf8(text).ok());
        let raw = text.and_then(|text| RawValue::from_string(text).ok());
        raw.map_or_else(Self::default, |raw| Self(raw.into()))
    }

    /// The text.
    pub fn text(&self) -> &str {
        self.0.get()
    }

    /// The parsed text. The caller must not keep it.
    pub fn parse(&self) -> Value {
        serde_json::from_str(self.text()).unwrap_or_default()
    }

    /// The parts of the text that a type names; its default if they have another form.
    pub fn read<'a, T: Deserialize<'a> + Default>(&'a self) -> T {
        serde_json::from_str(self.text()).unwrap_or_default()
    }
}

impl From<&Value> for JsonText {
    fn from(value: &Value) -> Self {
        Self::of(value)
    }
}

impl From<Value> for JsonText {
    fn from(value: Value) -> Self {
        Self::from(&value)
    }
}

impl Default for JsonText {
    /// `null`.
    fn default() -> Self {
        Self(RawValue::NULL.to_owned().into())
    }
}

impl PartialEq for JsonText {
    fn eq(&self, other: &Self) -> bool {
        self.text() == other.text() || self.parse() == other.parse()
    }
}

impl fmt::Debug for JsonText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl Serialize for JsonText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for JsonText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        serde_json::from_str::<Valid>(raw.get()).map_err(D::Error::custom)?;
        Ok(Self(raw.into()))
    }
}

/// JSON that a [`Value`] can hold: not nested too deep, and with numbers that are in range. A [`RawValue`] is not
/// checked for either. Takes no memory.
struct Valid;

impl<'de> Deserialize<'de> for Valid {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValidVisitor)
    }
}

struct ValidVisitor;

impl<'de> Visitor<'de> for ValidVisitor {
    type Value = Valid;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Valid, E> {
        Ok(Valid)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Valid, E> {
        Ok(Valid)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Valid, E> {
        Ok(Valid)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Valid, E> {
        Ok(Valid)
    }

    fn visit_str<E>(self, _: &str) -> Result<Valid, E> {
        Ok(Valid)
    }

    fn visit_unit<E>(self) -> Result<Valid, E> {
        Ok(Valid)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Valid, A::Error> {
        while items.next_element::<Valid>()?.is_some() {}
        Ok(Valid)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Valid, A::Error> {
        while fields.next_entry::<IgnoredAny, Valid>()?.is_some() {}
        Ok(Valid)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::GameDeployment;

    fn workload(template: &str) -> Result<GameDeployment, serde_json::Error> {
        let text = format!(
            r#"{{"metadata":{{"name":"arena"}},"spec":{{"selector":{{}},"template":{template}}}}}"#
        );
        serde_json::from_str(&text)
    }

    #[test]
    fn a_template_is_kept_unchanged_and_compared_by_meaning() {
        let template = r#"{"spec":{"hostname":"\u00e4","containers":[]}}"#;
        let read = workload(template).expect("a workload").spec.template;
        assert_eq!(read.text(), template);
        assert_eq!(read, JsonText::from(json!({"spec": {"containers": [], "hostname": "ä"}})));
        assert_ne!(read, JsonText::default());
    }

    #[test]
    fn text_that_cannot_be_parsed_is_an_error_when_it_is_read() {
        let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
        for (template, expected) in
            [(&*deep, "recursion limit exceeded"), ("1e999", "out of range")]
        {
            let error = workload(template).expect_err("unreadable").to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
