//! YAML as kubectl reads it, with the line of each field.
//!
//! kubectl's parser implements YAML 1.1, in which `yes` and `on` are true, and 0644 is octal.

use std::collections::BTreeMap;

use saphyr::{MarkedYaml, Scalar, ScalarStyle, ScanError, YamlData, YamlLoader};
use saphyr_parser::Parser;
use serde_json::{Map, Number, Value};

/// A document in a file.
pub struct Document {
    /// Its contents.
    pub object: Value,
    lines: BTreeMap<String, usize>,
    first_line: usize,
}

impl Document {
    /// An item of a List as a document.
    fn item(&self, index: usize, object: Value) -> Document {
        let path = format!("items[{index}]");
        let below = format!("{path}.");
        let lines = self.lines.iter();
        let lines =
            lines.filter_map(|(it, line)| Some((it.strip_prefix(&below)?.to_owned(), *line)));
        Document { object, lines: lines.collect(), first_line: self.line(&path) }
    }

    /// The line of a field. If the field does not exist, the line of its nearest existing parent.
    pub fn line(&self, field: &str) -> usize {
        let mut field = field;
        loop {
            if let Some(line) = self.lines.get(field) {
                return *line;
            }
            match field.rfind(['.', '[']) {
                Some(end) => field = &field[..end],
                None => return self.first_line,
            }
        }
    }
}

/// Parses all documents of a YAML stream. Empty ones are omitted, and a List is replaced by its items.
///
/// # Errors
/// If it is not YAML; the error is the line and the message.
pub fn read(text: &str) -> Result<Vec<Document>, (usize, String)> {
    let invalid = |error: ScanError| (error.marker().line(), error.info().to_owned());
    let mut loader = YamlLoader::<MarkedYaml>::default();
    loader.early_parse(false);
    Parser::new_from_str(text).load(&mut loader, true).map_err(invalid)?;
    if let Some(error) = loader.error() {
        return Err(invalid(error.clone()));
    }
    let documents = loader.into_documents().into_iter().map(|node| {
        let mut lines = BTreeMap::new();
        let object = value(&node, "", &mut lines);
        let first_line = lines.values().min().copied();
        Document { object, lines, first_line: first_line.unwrap_or_else(|| node.span.start.line()) }
    });
    Ok(documents.filter(|document| !document.object.is_null()).flat_map(items).collect())
}

fn items(document: Document) -> Vec<Document> {
    match document.object["items"].as_array() {
        Some(items)
            if document.object["kind"].as_str().is_some_and(|kind| kind.ends_with("List")) =>
        {
            let items = items.iter().enumerate();
            items.map(|(index, item)| document.item(index, item.clone())).collect()
        }
        _ => vec![document],
    }
}

fn value(node: &MarkedYaml, path: &str, lines: &mut BTreeMap<String, usize>) -> Value {
    match &node.data {
        YamlData::Mapping(fields) => {
            let mut object = Map::new();
            for (key, node) in fields {
                let name = text_of(&value(key, path, &mut BTreeMap::new()));
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                lines.insert(path.clone(), key.span.start.line());
                let value = value(node, &path, lines);
                object.insert(name, value);
            }
            merged(object)
        }
        YamlData::Sequence(items) => {
            let items = items.iter().enumerate().map(|(index, item)| {
                let path = format!("{path}[{index}]");
                lines.insert(path.clone(), item.span.start.line());
                value(item, &path, lines)
            });
            Value::Array(items.collect())
        }
        YamlData::Representation(text, ScalarStyle::Plain, None) => plain_value(text),
        YamlData::Representation(text, style, tag) => {
            let scalar = Scalar::parse_from_cow_and_metadata(text.clone(), *style, tag.as_ref());
            scalar.map_or_else(|| Value::from(text.as_ref()), |scalar| scalar_value(&scalar))
        }
        YamlData::Tagged(_, node) => value(node, path, lines),
        YamlData::Value(scalar) => scalar_value(scalar),
        YamlData::Alias(_) | YamlData::BadValue => Value::Null,
    }
}

/// Merges the mappings of `<<`; the object's own fields take precedence.
fn merged(mut object: Map<String, Value>) -> Value {
    let others = match object.remove("<<") {
        Some(Value::Array(others)) => others,
        Some(other) => vec![other],
        None => Vec::new(),
    };
    for (name, value) in others.into_iter().filter_map(|it| it.as_object().cloned()).flatten() {
        object.entry(name).or_insert(value);
    }
    Value::Object(object)
}

/// The value of an unquoted scalar in YAML 1.1.
fn plain_value(text: &str) -> Value {
    match text {
        "" => return Value::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" => return true.into(),
        "n" | "N" | "no" | "No" | "NO" | "off" | "Off" | "OFF" => return false.into(),
        _ => {}
    }
    let is_octal =
        |digits: &&str| !digits.is_empty() && digits.bytes().all(|it| matches!(it, b'0'..=b'7'));
    if let Some(digits) = text.strip_prefix('0').filter(is_octal) {
        return i64::from_str_radix(digits, 8).map_or_else(|_| text.into(), Value::from);
    }
    scalar_value(&Scalar::parse_from_cow(text.into()))
}

fn scalar_value(scalar: &Scalar) -> Value {
    match scalar {
        Scalar::Null => Value::Null,
        Scalar::Boolean(value) => (*value).into(),
        Scalar::Integer(value) => (*value).into(),
        Scalar::FloatingPoint(value) => {
            Number::from_f64(value.0).map_or(Value::Null, Value::Number)
        }
        Scalar::String(text) => text.as_ref().into(),
    }
}

fn text_of(key: &Value) -> String {
    match key {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
