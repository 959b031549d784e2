//! A document as JSON: aliases are replaced, mappings merged, and scalars given their type.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::number::normalize;
use super::scalar::{Scalar, resolve};
use super::stream::Part;
use super::tree::{self, Kind, Node};
use super::{Document, Lines, NotYaml};

/// In a document of up to this number of nodes, almost all may come from aliases. In larger ones the allowed share
/// falls, until [`LARGE`].
const ORDINARY: f64 = 400_000.0;
/// From this number of nodes on, a tenth may come from aliases.
const LARGE: f64 = 4_000_000.0;

/// Reads a document; its object is null if it is empty.
pub(super) fn read(part: &Part) -> Result<Document, NotYaml> {
    let tree = tree::parse(part);
    if part.is_json {
        // JSON says more exactly than YAML what the values are; YAML says where they are.
        let mut object: Value = serde_json::from_str(&part.text).map_err(|error| {
            NotYaml::at(part.line + error.line().saturating_sub(1), format!("JSON: {error}"))
        })?;
        normalize(&mut object);
        let document = tree.and_then(|tree| convert(part, tree.as_deref()));
        let lines = document.map(|document| document.lines).unwrap_or_default();
        return Ok(Document { object, lines, first_line: part.line });
    }
    convert(part, tree?.as_deref())
}

fn convert(part: &Part, tree: Option<&Node>) -> Result<Document, NotYaml> {
    let Some(root) = tree else {
        let lines = Lines::default();
        return Ok(Document { object: Value::Null, lines, first_line: part.line });
    };
    let mut converter = Converter { lines: Lines::default(), nodes: 0, aliased: 0, aliases: 0 };
    let object = converter.value(root, "")?;
    let first_line = converter.lines.of_fields.values().min().copied();
    Ok(Document { object, lines: converter.lines, first_line: first_line.unwrap_or(root.line) })
}

struct Converter {
    lines: Lines,
    /// How many nodes were converted, and how many of them in aliases.
    nodes: usize,
    aliased: usize,
    /// How many aliases the current node is in.
    aliases: usize,
}

impl Converter {
    fn value(&mut self, node: &Node, path: &str) -> Result<Value, NotYaml> {
        self.count(node)?;
        match &node.kind {
            Kind::Alias(target) => self.in_alias(|converter| converter.value(target, path)),
            Kind::Mapping(_) => {
                let mut object = Map::new();
                self.fill(&mut object, node, path)?;
                Ok(Value::Object(object))
            }
            Kind::Sequence(items) => {
                let items = items.iter().enumerate().map(|(index, item)| {
                    let path = format!("{path}[{index}]");
                    self.lines.of_fields.insert(path.clone(), item.line);
                    self.value(item, &path)
                });
                items.collect::<Result<_, _>>().map(Value::Array)
            }
            Kind::Scalar { text, .. } => match scalar(node)? {
                Scalar::Null => Ok(Value::Null),
                Scalar::Bool(value) => Ok(value.into()),
                Scalar::Text(text) => Ok(text.into()),
                Scalar::Number(number) => number.to_json().ok_or_else(|| {
                    NotYaml::at(
                        node.line,
                        format!("JSON has no number {text}: quote it, or write another one"),
                    )
                }),
            },
        }
    }

    /// Adds the fields of a mapping to an object. As in kubectl, each value replaces an earlier one of the same name,
    /// also one that was merged.
    fn fill(
        &mut self,
        object: &mut Map<String, Value>,
        node: &Node,
        path: &str,
    ) -> Result<(), NotYaml> {
        let Kind::Mapping(fields) = &node.kind else { return Ok(()) };
        let mut names = BTreeSet::new();
        for (key, node) in fields {
            if is_merge(key) {
                self.merge(object, node, path)?;
                continue;
            }
            let name = self.name(key)?;
            let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            let value = self.value(node, &path)?;
            if !names.insert(name.clone()) {
                self.lines.repeated.insert(path.clone(), key.line);
            }
            self.lines.of_fields.insert(path, key.line);
            object.insert(name, value);
        }
        Ok(())
    }

    /// Adds what `<<` names: a mapping or several, of which the first take precedence.
    fn merge(
        &mut self,
        object: &mut Map<String, Value>,
        node: &Node,
        path: &str,
    ) -> Result<(), NotYaml> {
        self.count(node)?;
        match &node.kind {
            Kind::Mapping(_) => self.fill(object, node, path),
            Kind::Alias(target) if matches!(target.kind, Kind::Mapping(_)) => {
                self.in_alias(|converter| converter.merge(object, target, path))
            }
            Kind::Sequence(items) if items.iter().all(|it| is_mapping(it)) => {
                items.iter().rev().try_for_each(|item| self.merge(object, item, path))
            }
            _ => Err(NotYaml::at(node.line, "<< needs a mapping, or a list of mappings")),
        }
    }

    /// The name of a field.
    fn name(&mut self, key: &Node) -> Result<String, NotYaml> {
        self.count(key)?;
        let node = match &key.kind {
            Kind::Alias(target) => target,
            _ => key,
        };
        let name = match scalar(node)? {
            Scalar::Text(text) => Some(text),
            Scalar::Bool(value) => Some(value.to_string()),
            Scalar::Number(number) => number.to_key(),
            Scalar::Null => None,
        };
        name.ok_or_else(|| {
            NotYaml::at(
                key.line,
                "null and very large numbers cannot be names of fields: quote the name",
            )
        })
    }

    fn in_alias<T>(&mut self, convert: impl FnOnce(&mut Self) -> T) -> T {
        self.aliases += 1;
        let converted = convert(self);
        self.aliases -= 1;
        converted
    }

    /// Counts a node, and refuses a document of which too large a part comes from aliases: a few lines can expand to
    /// gigabytes.
    fn count(&mut self, node: &Node) -> Result<(), NotYaml> {
        self.nodes += 1;
        self.aliased += usize::from(self.aliases > 0);
        let above = (self.nodes as f64 - ORDINARY) / (LARGE - ORDINARY);
        let allowed = (0.99 - 0.89 * above.clamp(0.0, 1.0)) * self.nodes as f64;
        if self.nodes > 1_000 && self.aliased > 100 && self.aliased as f64 > allowed {
            return Err(NotYaml::at(node.line, "too much of the document comes from aliases"));
        }
        Ok(())
    }
}

fn is_mapping(node: &Node) -> bool {
    match &node.kind {
        Kind::Alias(target) => matches!(target.kind, Kind::Mapping(_)),
        kind => matches!(kind, Kind::Mapping(_)),
    }
}

fn is_merge(key: &Node) -> bool {
    let is_merge_tag = |tag: &str| tag == "tag:yaml.org,2002:merge";
    match &key.kind {
        Kind::Scalar { text, is_plain } if text == "<<" => {
            key.tag.as_deref().map_or(*is_plain, is_merge_tag)
        }
        _ => false,
    }
}

fn scalar(node: &Node) -> Result<Scalar, NotYaml> {
    match &node.kind {
        Kind::Scalar { text, is_plain: false } if node.tag.is_none() => {
            Ok(Scalar::Text(text.clone()))
        }
        Kind::Scalar { text, .. } => {
            resolve(text, node.tag.as_deref()).map_err(|why| NotYaml::at(node.line, why))
        }
        _ => Err(NotYaml::at(node.line, "the name of a field must be a single value")),
    }
}
