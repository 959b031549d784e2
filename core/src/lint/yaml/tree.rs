//! The nodes of a YAML document, as written: scalars are text, and aliases are not replaced yet.
//!
//! The parser is a port of libyaml, as kubectl's is: so both agree about tabs, indentation and control characters, about
//! which YAML 1.1 and 1.2, and even parsers of the same version, differ.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use libyaml_safer::{Error, Event, EventData, Parser, ScalarStyle};

use super::NotYaml;
use super::stream::Part;

/// How deeply nodes may be nested. kubectl allows 10,000, which only an attack needs.
const MAX_DEPTH: usize = 500;

#[derive(Debug)]
pub(super) struct Node {
    /// The line in the file, from 1.
    pub line: usize,
    /// The tag in full, such as tag:yaml.org,2002:int.
    pub tag: Option<String>,
    pub kind: Kind,
}

#[derive(Debug)]
pub(super) enum Kind {
    Scalar { text: String, is_plain: bool },
    Sequence(Vec<Rc<Node>>),
    Mapping(Vec<(Rc<Node>, Rc<Node>)>),
    Alias(Rc<Node>),
}

/// Parses a document; None if it is empty. As in kubectl, what follows the first document of a part is ignored.
pub(super) fn parse(part: &Part) -> Result<Option<Rc<Node>>, NotYaml> {
    let mut builder =
        Builder { parser: Parser::new(), before: part.line - 1, anchors: BTreeMap::new() };
    builder.parser.set_input(part.text.as_bytes());
    // The parser panics where it is not finished.
    let root = catch_unwind(AssertUnwindSafe(|| builder.root()));
    root.unwrap_or_else(|_| {
        Err(NotYaml::at(part.line, "this document cannot be parsed: simplify it"))
    })
}

struct Builder<'a> {
    parser: Parser<&'a [u8]>,
    /// The lines of the file before this document.
    before: usize,
    /// The nodes with an anchor, by its name.
    anchors: BTreeMap<String, Rc<Node>>,
}

impl Builder<'_> {
    fn root(&mut self) -> Result<Option<Rc<Node>>, NotYaml> {
        loop {
            let event = self.next()?;
            match event.data {
                EventData::StreamEnd => return Ok(None),
                EventData::StreamStart { .. } | EventData::DocumentStart { .. } => {}
                _ => return self.node(event, 0).map(Some),
            }
        }
    }

    fn next(&mut self) -> Result<Event, NotYaml> {
        let before = self.before;
        self.parser.parse().map_err(|error| invalid(before, &error))
    }

    fn node(&mut self, event: Event, depth: usize) -> Result<Rc<Node>, NotYaml> {
        let line = self.before + line(event.start_mark.line);
        if depth > MAX_DEPTH {
            return Err(NotYaml::at(line, format!("is nested more than {MAX_DEPTH} levels deep")));
        }
        let (anchor, tag, kind) = match event.data {
            EventData::Alias { anchor } => {
                let target = self.anchors.get(&anchor).cloned();
                let unknown =
                    || NotYaml::at(line, format!("there is no anchor {anchor} before this alias"));
                (None, None, Kind::Alias(target.ok_or_else(unknown)?))
            }
            EventData::Scalar { anchor, tag, value, style, .. } => {
                let is_plain = style == ScalarStyle::Plain;
                (anchor, tag, Kind::Scalar { text: value, is_plain })
            }
            EventData::SequenceStart { anchor, tag, .. } => {
                self.forget(anchor.as_deref());
                (anchor, tag, self.sequence(depth)?)
            }
            EventData::MappingStart { anchor, tag, .. } => {
                self.forget(anchor.as_deref());
                (anchor, tag, self.mapping(depth)?)
            }
            _ => return Err(NotYaml::at(line, "a value is missing")),
        };
        let node = Rc::new(Node { line, tag, kind });
        if let Some(anchor) = anchor {
            self.anchors.insert(anchor, Rc::clone(&node));
        }
        Ok(node)
    }

    /// Forgets an anchor that is defined again, so that a node cannot contain itself.
    fn forget(&mut self, anchor: Option<&str>) {
        if let Some(anchor) = anchor {
            self.anchors.remove(anchor);
        }
    }

    fn sequence(&mut self, depth: usize) -> Result<Kind, NotYaml> {
        let mut items = Vec::new();
        loop {
            let event = self.next()?;
            if event.data == EventData::SequenceEnd {
                return Ok(Kind::Sequence(items));
            }
            items.push(self.node(event, depth + 1)?);
        }
    }

    fn mapping(&mut self, depth: usize) -> Result<Kind, NotYaml> {
        let mut fields = Vec::new();
        loop {
            let event = self.next()?;
            if event.data == EventData::MappingEnd {
                return Ok(Kind::Mapping(fields));
            }
            let key = self.node(event, depth + 1)?;
            let event = self.next()?;
            fields.push((key, self.node(event, depth + 1)?));
        }
    }
}

/// The line of a mark, from 1. A mark counts from 0.
fn line(mark: u64) -> usize {
    usize::try_from(mark).unwrap_or(usize::MAX).saturating_add(1)
}

fn invalid(before: usize, error: &Error) -> NotYaml {
    let mark = error.problem_mark().map_or(0, |mark| mark.line);
    let why = match error.context() {
        Some(context) => format!("{}, {context}", error.problem()),
        None => error.problem().to_owned(),
    };
    NotYaml::at(before.saturating_add(line(mark)), why)
}
