//! Divides a file into documents before they are parsed, as kubectl does: by lines that begin with `---`, whatever YAML
//! would make of them; or, if the file begins with `{`, into JSON objects.

use serde_json::Deserializer;
use serde_json::value::RawValue;

use super::NotYaml;

/// A document that is not parsed yet.
#[derive(Debug)]
pub(super) struct Part {
    pub text: String,
    /// The line of the file at which it begins, from 1.
    pub line: usize,
    pub is_json: bool,
}

pub(super) fn divide(text: &str) -> Result<Vec<Part>, NotYaml> {
    let (mut parts, read) = leading_json(text)?;
    let (before, rest) = text.split_at(read);
    parts.extend(yaml(rest, 1 + line_breaks(before))?);
    Ok(parts)
}

fn line_breaks(text: &str) -> usize {
    text.bytes().filter(|byte| *byte == b'\n').count()
}

/// The JSON objects that a file begins with, and how many bytes of it they take. What follows one JSON object may be
/// YAML; what follows several must be JSON. If not even the first is JSON, the file is YAML.
fn leading_json(text: &str) -> Result<(Vec<Part>, usize), NotYaml> {
    let mut parts = Vec::new();
    let mut read = 0;
    if !text.trim_start().starts_with('{') {
        return Ok((parts, read));
    }
    let mut objects = Deserializer::from_str(text).into_iter::<Box<RawValue>>();
    while let Some(object) = objects.next() {
        match object {
            Ok(json) => {
                let text_before = &text[..objects.byte_offset() - json.get().len()];
                let line = 1 + line_breaks(text_before);
                parts.push(Part { text: json.get().to_owned(), line, is_json: true });
                read = objects.byte_offset();
            }
            Err(error) if parts.len() > 1 => {
                return Err(NotYaml::at(error.line(), format!("JSON: {error}")));
            }
            Err(_) => return Ok((parts, read + spaces(&text[read..]))),
        }
    }
    Ok((parts, text.len()))
}

/// How many bytes of white space a text begins with, up to the end of its first line.
fn spaces(text: &str) -> usize {
    let end = text.find('\n').map_or(text.len(), |at| at + 1);
    end - text[..end].trim_start().len()
}

fn yaml(text: &str, first_line: usize) -> Result<Vec<Part>, NotYaml> {
    let mut parts = Vec::new();
    let mut part = Part { text: String::new(), line: first_line, is_json: false };
    for (index, line) in text.lines().enumerate() {
        let number = first_line + index;
        if let Some(rest) = line.strip_prefix("---") {
            let rest = rest.trim();
            if !rest.is_empty() && !rest.starts_with('#') {
                let why = format!(
                    "kubectl reads only a comment after ---: begin {rest:?} on the next line"
                );
                return Err(NotYaml::at(number, why));
            }
            if !part.text.is_empty() {
                let next = Part { text: String::new(), line: number + 1, is_json: false };
                parts.push(std::mem::replace(&mut part, next));
                continue;
            }
        }
        if !part.text.is_empty() && line.trim_start().starts_with('\u{feff}') {
            let why = "a byte order mark, which cannot be seen, begins this line: remove it";
            return Err(NotYaml::at(number, why));
        }
        part.text.push_str(line);
        part.text.push('\n');
    }
    parts.push(part);
    parts.iter().try_for_each(without_directive)?;
    Ok(parts)
}

/// Refuses directives: they end with `---`, so kubectl takes them for a document of their own.
fn without_directive(part: &Part) -> Result<(), NotYaml> {
    let mut lines = part.text.lines().enumerate();
    let first = lines.find(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
    match first {
        Some((index, line)) if line.starts_with('%') => {
            let why = format!("kubectl cannot read the directive {line}: remove it");
            Err(NotYaml::at(part.line + index, why))
        }
        _ => Ok(()),
    }
}
