//! Manifests as kubectl reads them, with the line of each field.
//!
//! kubectl divides a file into documents ([`stream`]), parses each as YAML 1.1 ([`tree`], [`scalar`]), and converts it to
//! JSON ([`object`]). A table of files and of what kubectl makes of each is in `testdata`; an end-to-end test compares it
//! with the real kubectl.

mod number;
mod object;
mod scalar;
mod stream;
#[cfg(test)]
mod tests;
mod tree;

use std::collections::BTreeMap;

use serde_json::Value;

/// Where a file is not YAML, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotYaml {
    /// The line, from 1.
    pub line: usize,
    /// The reason, and a fix where there is one.
    pub why: String,
}

impl NotYaml {
    fn at(line: usize, why: impl Into<String>) -> Self {
        NotYaml { line, why: why.into() }
    }
}

/// The lines of an object's fields, by path.
#[derive(Clone, Debug, Default)]
struct Lines {
    of_fields: BTreeMap<String, usize>,
    /// Fields that are set more than once in the same mapping, with the line of the last occurrence.
    repeated: BTreeMap<String, usize>,
}

/// A document in a file.
#[derive(Clone, Debug)]
pub struct Document {
    /// Its contents.
    pub object: Value,
    lines: Lines,
    first_line: usize,
}

impl Document {
    /// The line of a field. If the field does not exist, the line of its nearest existing parent.
    pub fn line(&self, field: &str) -> usize {
        let mut field = field;
        loop {
            if let Some(line) = self.lines.of_fields.get(field) {
                return *line;
            }
            match field.rfind(['.', '[']) {
                Some(end) => field = &field[..end],
                None => return self.first_line,
            }
        }
    }

    /// The fields that are set more than once. kubectl uses the last value.
    pub fn repeated(&self) -> impl Iterator<Item = &str> {
        self.lines.repeated.keys().map(String::as_str)
    }

    /// An item of a list as a document. An item without a kind has the one that the list's kind says.
    fn item(&self, index: usize, mut object: Value) -> Document {
        let path = format!("items[{index}]");
        let below = format!("{path}.");
        let in_item = |fields: &BTreeMap<String, usize>| {
            let fields = fields.iter();
            fields
                .filter_map(|(it, line)| Some((it.strip_prefix(&below)?.to_owned(), *line)))
                .collect()
        };
        let lines = Lines {
            of_fields: in_item(&self.lines.of_fields),
            repeated: in_item(&self.lines.repeated),
        };
        if object["kind"].is_null() && object["apiVersion"].is_null() && object.is_object() {
            let kind = self.object["kind"].as_str().unwrap_or_default();
            object["kind"] = kind.strip_suffix("List").unwrap_or(kind).into();
            object["apiVersion"] = self.object["apiVersion"].clone();
        }
        Document { object, lines, first_line: self.line(&path) }
    }

    /// The document itself, or, if it has `items`, these: kubectl takes any such object for a list.
    fn items(self) -> Result<Vec<Document>, NotYaml> {
        match self.object.get("items") {
            None => Ok(vec![self]),
            Some(Value::Null) => Ok(Vec::new()),
            Some(Value::Array(items)) => {
                let items = items.iter().enumerate();
                Ok(items.map(|(index, item)| self.item(index, item.clone())).collect())
            }
            Some(_) => {
                let why = "items is not a list, and kubectl takes an object with items for a list of objects";
                Err(NotYaml::at(self.line("items"), why))
            }
        }
    }
}

/// The text of a file: UTF-8, or UTF-16 with a byte order mark. What is neither becomes U+FFFD.
///
/// ```
/// use gamekeeper_core::lint::yaml::decode;
///
/// assert_eq!(decode(b"\xEF\xBB\xBFa: 1"), "a: 1");
/// assert_eq!(decode(b"\xFF\xFEa\0"), "a");
/// ```
pub fn decode(bytes: &[u8]) -> String {
    let utf16 = |bytes: &[u8], unit: fn([u8; 2]) -> u16| {
        let units = bytes.chunks(2).map(|it| match it {
            [first, second] => unit([*first, *second]),
            // Half of a character is none.
            _ => 0xFFFD,
        });
        char::decode_utf16(units).map(|it| it.unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
    };
    match bytes {
        [0xEF, 0xBB, 0xBF, text @ ..] => String::from_utf8_lossy(text).into_owned(),
        [0xFF, 0xFE, text @ ..] => utf16(text, u16::from_le_bytes),
        [0xFE, 0xFF, text @ ..] => utf16(text, u16::from_be_bytes),
        text => String::from_utf8_lossy(text).into_owned(),
    }
}

/// Reads all documents of a file. Empty ones are omitted, and a list is replaced by its items.
///
/// # Errors
/// If kubectl could not read it.
pub fn read(text: &str) -> Result<Vec<Document>, NotYaml> {
    let mut documents = Vec::new();
    for part in stream::divide(text)? {
        let document = object::read(&part)?;
        if !document.object.is_null() {
            documents.extend(document.items()?);
        }
    }
    Ok(documents)
}
