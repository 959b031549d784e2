//! The parser of templates.

use serde_json::Value;

use super::{Filter, Operator, Part, Slice, Step};

/// The maximum nesting of filters, unions and ranges.
const MAX_DEPTH: usize = 16;

type Result<T> = std::result::Result<T, String>;

pub(super) fn template(source: &str) -> Result<Vec<Part>> {
    if !source.contains('{') {
        return Err(format!("a path must be in braces: write {{{source}}}"));
    }
    let mut reader = Reader { rest: source, in_filter: false };
    let (parts, has_end) = parts(&mut reader, 0)?;
    if has_end {
        return Err("{end} has no {range}: remove it".into());
    }
    Ok(parts)
}

/// The contents of braces.
enum Braces {
    Path(Vec<Step>),
    Range(Vec<Step>),
    End,
}

/// Parses parts up to the end of the template or the `{end}` of a range. Returns the parts, and whether `{end}` was
/// there.
fn parts(reader: &mut Reader<'_>, depth: usize) -> Result<(Vec<Part>, bool)> {
    let mut parts = Vec::new();
    while !reader.rest.is_empty() {
        let text = reader.take_while(|c| c != '{');
        if !text.is_empty() {
            parts.push(Part::Text(text.to_owned()));
        }
        if !reader.eat("{") {
            break;
        }
        match braces(reader, depth)? {
            Braces::Path(steps) => parts.push(Part::Path(steps)),
            Braces::End => return Ok((parts, true)),
            Braces::Range(steps) => {
                let (body, has_end) = self::parts(reader, deeper(depth)?)?;
                if !has_end {
                    return Err("{range} is not closed: write {end} after what it repeats".into());
                }
                parts.push(Part::Range(steps, body));
            }
        }
    }
    Ok((parts, false))
}

fn deeper(depth: usize) -> Result<usize> {
    if depth >= MAX_DEPTH {
        return Err(format!("it is nested more than {MAX_DEPTH} levels deep: simplify it"));
    }
    Ok(depth + 1)
}

/// Parses what follows an opening brace, up to and including the closing one.
fn braces(reader: &mut Reader<'_>, depth: usize) -> Result<Braces> {
    reader.skip_spaces();
    let keyword = reader.clone().take_while(|c| c.is_alphanumeric() || c == '_');
    let braces = match keyword {
        "end" => {
            reader.eat("end");
            Braces::End
        }
        "range" => {
            reader.eat("range");
            Braces::Range(path(reader, depth)?)
        }
        _ => Braces::Path(path(reader, depth)?),
    };
    reader.skip_spaces();
    if reader.eat("}") {
        return Ok(braces);
    }
    match reader.rest.chars().next() {
        None => Err("a brace is not closed: write } at the end of the path".into()),
        Some(found) => Err(format!("unexpected character {found:?} at {:?}", reader.shown())),
    }
}

/// Parses the steps of a path.
fn path(reader: &mut Reader<'_>, depth: usize) -> Result<Vec<Step>> {
    reader.skip_spaces();
    if let Some(literal) = literal(reader)? {
        return Ok(vec![Step::Literal(literal)]);
    }
    if !reader.eat("$") {
        reader.eat("@");
    }
    let mut steps = Vec::new();
    loop {
        if reader.eat("..") {
            if steps.last() == Some(&Step::Recursive) {
                return Err("there are more than two dots: write ..".into());
            }
            steps.push(Step::Recursive);
            if reader.rest.starts_with(|c: char| c.is_alphanumeric() || c == '_' || c == '*') {
                steps.push(field(reader)?);
            }
        } else if reader.eat("[?(") {
            steps.push(filter(reader, deeper(depth)?)?);
        } else if reader.eat("[") {
            steps.extend(brackets(reader, deeper(depth)?)?);
        } else if reader.eat(".") {
            steps.push(field(reader)?);
        } else {
            reader.skip_spaces();
            if reader.rest.starts_with(['.', '[']) {
                continue;
            }
            return Ok(steps);
        }
    }
}

/// Parses a key after a dot; a backslash escapes the next character.
fn field(reader: &mut Reader<'_>) -> Result<Step> {
    let mut key = String::new();
    let mut chars = reader.rest.char_indices();
    let mut end = reader.rest.len();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => key.extend(chars.next().map(|(_, escaped)| escaped)),
            ' ' | '\t' | '\r' | '\n' | '.' | ',' | '[' | ']' | '$' | '@' | '{' | '}' => {
                end = at;
                break;
            }
            '!' | '<' | '>' | '=' | ')' if reader.in_filter => {
                end = at;
                break;
            }
            _ => key.push(c),
        }
    }
    let raw = &reader.rest[..end];
    reader.rest = &reader.rest[end..];
    match raw {
        "" => {
            Err("a key is missing after a dot: write {$.KEY}, or {$} for the whole response".into())
        }
        "*" => Ok(Step::Wildcard),
        _ => Ok(Step::Field(key)),
    }
}

/// Parses the contents of brackets: an index, a slice, a quoted key, or a list of these.
fn brackets(reader: &mut Reader<'_>, depth: usize) -> Result<Vec<Step>> {
    let inside = reader.until_unquoted("]").ok_or("a bracket is not closed: write ]")?;
    let members = split_unquoted(inside);
    if let [member] = members.as_slice() {
        return union_member(member, depth);
    }
    let union = members.iter().map(|member| union_member(member.trim_matches(' '), depth));
    Ok(vec![Step::Union(union.collect::<Result<_>>()?)])
}

fn union_member(inside: &str, depth: usize) -> Result<Vec<Step>> {
    if inside == "*" {
        return Ok(vec![Step::Slice(Slice { from: None, to: None, step: None, single: false })]);
    }
    let quoted = inside.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\''));
    if let Some(keys) = quoted {
        // As in client-go, an unescaped dot in quotes separates two keys.
        let dotted = format!(".{keys}");
        let mut reader = Reader { rest: &dotted, in_filter: false };
        let steps = path(&mut reader, depth)?;
        if !reader.rest.is_empty() {
            return Err(format!("[{inside}] is not a key: escape its special characters with \\"));
        }
        return Ok(steps);
    }
    slice(inside).map(|slice| vec![Step::Slice(slice)])
}

fn slice(inside: &str) -> Result<Slice> {
    let bounds: Vec<&str> = inside.split(':').collect();
    let bound = |index: usize| match bounds.get(index) {
        None | Some(&"") => Ok(None),
        Some(text) => text.parse().map(Some).map_err(|_| {
            format!(
                "[{inside}] is not an index: write a number, from:to, *, or a key in single quotes"
            )
        }),
    };
    if inside.is_empty() || bounds.len() > 3 {
        return Err(format!("[{inside}] is not an index: write a number, from:to or from:to:step"));
    }
    let slice =
        Slice { from: bound(0)?, to: bound(1)?, step: bound(2)?, single: bounds.len() == 1 };
    if slice.step.is_some_and(|step| step <= 0) {
        return Err(format!("[{inside}] has a step that is not above 0"));
    }
    Ok(slice)
}

/// Parses a filter after `[?(`.
fn filter(reader: &mut Reader<'_>, depth: usize) -> Result<Step> {
    let was_in_filter = std::mem::replace(&mut reader.in_filter, true);
    let left = path(reader, depth)?;
    reader.skip_spaces();
    let comparison = match operator(reader)? {
        None => None,
        Some(operator) => Some((operator, path(reader, depth)?)),
    };
    reader.skip_spaces();
    reader.in_filter = was_in_filter;
    if !reader.eat(")]") {
        return Err(format!(
            "a filter cannot be parsed at {:?}: write [?(@.KEY == 'VALUE')]",
            reader.shown()
        ));
    }
    Ok(Step::Filter(Box::new(Filter { left, comparison })))
}

fn operator(reader: &mut Reader<'_>) -> Result<Option<Operator>> {
    Ok(Some(match reader.take_while(|c| "!<>=".contains(c)) {
        "" => return Ok(None),
        "==" => Operator::Equal,
        "!=" => Operator::NotEqual,
        "<" => Operator::Less,
        "<=" => Operator::LessOrEqual,
        ">" => Operator::Greater,
        ">=" => Operator::GreaterOrEqual,
        other => {
            return Err(format!("{other} is not a comparison: write ==, !=, <, <=, > or >="));
        }
    }))
}

/// Parses a literal: quoted text, a number, true or false.
fn literal(reader: &mut Reader<'_>) -> Result<Option<Value>> {
    let Some(first) = reader.rest.chars().next() else {
        return Ok(None);
    };
    if first == '"' || first == '\'' {
        return quoted(reader, first).map(|text| Some(Value::String(text)));
    }
    if first.is_ascii_digit() || first == '-' || first == '+' {
        let text = reader.take_while(|c| c.is_ascii_digit() || ".+-eE".contains(c));
        let text = text.strip_prefix('+').unwrap_or(text);
        let number: serde_json::Number =
            text.parse().map_err(|_| format!("{text:?} is not a number"))?;
        return Ok(Some(Value::Number(number)));
    }
    if first.is_alphabetic() || first == '_' {
        return match reader.take_while(|c| c.is_alphanumeric() || c == '_') {
            "true" => Ok(Some(Value::Bool(true))),
            "false" => Ok(Some(Value::Bool(false))),
            name => Err(format!("{name} is not a path: write {{$.{name}}}")),
        };
    }
    Ok(None)
}

/// Parses quoted text with the common escapes of Go.
fn quoted(reader: &mut Reader<'_>, quote: char) -> Result<String> {
    let mut text = String::new();
    let mut chars = reader.rest.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => text.push(match chars.next() {
                Some((_, 'n')) => '\n',
                Some((_, 't')) => '\t',
                Some((_, 'r')) => '\r',
                Some((_, escaped)) => escaped,
                None => break,
            }),
            c if c == quote => {
                reader.rest = &reader.rest[at + c.len_utf8()..];
                return Ok(text);
            }
            c => text.push(c),
        }
    }
    Err(format!("a quote is not closed: write {quote} after the text"))
}

/// Splits a union at commas outside quotes.
fn split_unquoted(inside: &str) -> Vec<&str> {
    let mut reader = Reader { rest: inside, in_filter: false };
    let mut members = Vec::new();
    while let Some(member) = reader.until_unquoted(",") {
        members.push(member);
    }
    members.push(reader.rest);
    members
}

#[derive(Clone)]
struct Reader<'a> {
    rest: &'a str,
    /// Whether a comparison or a closing parenthesis ends a key.
    in_filter: bool,
}

impl<'a> Reader<'a> {
    fn eat(&mut self, prefix: &str) -> bool {
        match self.rest.strip_prefix(prefix) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn skip_spaces(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\t']);
    }

    fn take_while(&mut self, fits: impl Fn(char) -> bool) -> &'a str {
        let end = self.rest.find(|c| !fits(c)).unwrap_or(self.rest.len());
        let (taken, rest) = self.rest.split_at(end);
        self.rest = rest;
        taken
    }

    /// Takes the text before a delimiter outside single quotes, and skips the delimiter.
    fn until_unquoted(&mut self, delimiter: &str) -> Option<&'a str> {
        let mut quoted = false;
        let mut escaped = false;
        for (at, c) in self.rest.char_indices() {
            if escaped {
                escaped = false;
            } else if c == '\\' {
                escaped = true;
            } else if c == '\'' {
                quoted = !quoted;
            } else if !quoted && self.rest[at..].starts_with(delimiter) {
                let taken = &self.rest[..at];
                self.rest = &self.rest[at + delimiter.len()..];
                return Some(taken);
            }
        }
        None
    }

    fn shown(&self) -> String {
        self.rest.chars().take(20).collect()
    }
}
