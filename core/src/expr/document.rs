//! Responses, and the values that conditions read from them.

use std::fmt;

use serde_json::Value;

use super::Subject;
use super::jsonpath::{JsonPath, PathError, Selection};
use crate::api::json_memory;
use crate::text::truncate;

/// The maximum memory that parsed JSON may take, in bytes.
const MAX_MEMORY: usize = 40 << 20;
/// What takes the place of bytes that are not UTF-8.
const REPLACED: char = char::REPLACEMENT_CHARACTER;
/// The longest quoted text in a message, in characters.
const MAX_QUOTED: usize = 100;

/// The body of a response.
#[derive(Clone, Debug, PartialEq)]
pub enum Document {
    /// JSON.
    Json(Value),
    /// JSON in which what is not UTF-8 was replaced.
    Repaired {
        /// The JSON.
        json: Value,
        /// The first byte that was replaced.
        invalid: InvalidByte,
    },
    /// Anything else, as trimmed text.
    Text {
        /// The text, in which what is not UTF-8 was replaced.
        text: String,
        /// The first byte that was replaced.
        invalid: Option<InvalidByte>,
        /// If it looks like JSON, why it is none.
        fault: Option<JsonFault>,
    },
}

/// A byte that is not UTF-8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidByte {
    byte: u8,
    offset: usize,
}

impl InvalidByte {
    /// The first byte of a body that is not UTF-8.
    fn first(body: &[u8]) -> Option<Self> {
        let offset = std::str::from_utf8(body).err()?.valid_up_to();
        let byte = *body.get(offset)?;
        Some(InvalidByte { byte, offset })
    }
}

/// Where a body that looks like JSON is none, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonFault {
    why: String,
    /// The byte and its offset in the body; None at its end.
    at: Option<(u8, usize)>,
}

impl JsonFault {
    /// The fault that an error of the parser describes; None if the body does not look like JSON. If it is JSON, but not
    /// what was expected, the place is not known exactly.
    pub fn of(body: &[u8], error: &serde_json::Error) -> Option<Self> {
        let text = without_mark(body).ok()?;
        if !matches!(text.trim_ascii_start().first(), Some(b'{' | b'[')) {
            return None;
        }
        let why = error.to_string();
        let why = why.split(" at line ").next().unwrap_or_default().to_owned();
        let lines_before =
            text.split_inclusive(|byte| *byte == b'\n').take(error.line().saturating_sub(1));
        let line_start: usize = lines_before.map(<[u8]>::len).sum();
        let offset = body.len() - text.len() + line_start + error.column().saturating_sub(1);
        let byte = body.get(offset).filter(|_| error.is_syntax());
        Some(JsonFault { why, at: byte.map(|byte| (*byte, offset)) })
    }
}

impl fmt::Display for JsonFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.at {
            Some((byte, offset)) => write!(f, "{}: byte {byte:#04X} at offset {offset}", self.why),
            None => f.write_str(&self.why),
        }
    }
}

/// Why a response cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DocumentError {
    /// Its JSON would use too much memory.
    #[error("the response's JSON is too complex: return less")]
    TooComplex,
    /// There is a path, but the response is not JSON.
    #[error("the response is not JSON: {0}")]
    NotJson(String),
    /// What is selected contains bytes that are not UTF-8.
    #[error(
        "byte {:#04X} at offset {} of the response is not UTF-8: send UTF-8, or JSON of which jsonPath selects a single \
         value without such bytes", .0.byte, .0.offset
    )]
    NotUtf8(InvalidByte),
    /// It is in another encoding.
    #[error("the response is {0}: send UTF-8")]
    OtherEncoding(&'static str),
    /// It is compressed.
    #[error(
        "the response is compressed with {0}, although it does not say so: send it uncompressed"
    )]
    Compressed(&'static str),
    /// The path does not match the JSON.
    #[error(transparent)]
    Path(#[from] PathError),
}

impl Document {
    /// Parses a body.
    ///
    /// # Errors
    /// If its JSON would use too much memory, or if it is compressed or in another encoding than UTF-8.
    pub fn read(body: &[u8]) -> Result<Self, DocumentError> {
        let text = without_mark(body)?;
        if json_memory(text) > MAX_MEMORY {
            return Err(DocumentError::TooComplex);
        }
        let error = match serde_json::from_slice(text) {
            Ok(json) => return Ok(Document::Json(json)),
            Err(error) => error,
        };
        let invalid = InvalidByte::first(body);
        let text = String::from_utf8_lossy(text);
        match (invalid, serde_json::from_str(&text)) {
            (Some(invalid), Ok(json)) => Ok(Document::Repaired { json, invalid }),
            _ => {
                let fault = JsonFault::of(body, &error);
                Ok(Document::Text { text: text.trim().to_owned(), invalid, fault })
            }
        }
    }

    /// A body that nothing reads: neither a path nor a condition.
    pub fn unread(body: &[u8]) -> Self {
        let text = String::from_utf8_lossy(body).trim().to_owned();
        Document::Text { text, invalid: None, fault: None }
    }

    /// What a path selects; without a path, or with {$}, the whole response. If nothing `judges` it, it may contain
    /// characters that were replaced.
    ///
    /// # Errors
    /// If there is a path other than {$}, and the response is not JSON or the path does not match it.
    pub fn subject<'a>(
        &'a self,
        path: Option<&'a JsonPath>,
        judges: bool,
    ) -> Result<Subject<'a>, DocumentError> {
        let path = path.filter(|path| !path.is_whole());
        match (self, path) {
            (Document::Text { text, invalid: None, .. }, None) => Ok(Subject::text(text.as_str())),
            (Document::Text { text, .. }, None) if !judges => Ok(Subject::text(text.as_str())),
            (Document::Text { invalid: Some(invalid), .. }, None) => {
                Err(DocumentError::NotUtf8(*invalid))
            }
            (Document::Text { text, fault, .. }, Some(_)) => Err(not_json(text, fault.as_ref())),
            (Document::Json(json) | Document::Repaired { json, .. }, None) if !judges => {
                Ok(Subject::whole(json))
            }
            (Document::Json(json), None) => Ok(Subject::whole(json)),
            (Document::Repaired { invalid, .. }, None) => Err(DocumentError::NotUtf8(*invalid)),
            (Document::Json(json), Some(path)) => Ok(Subject::selected(&path.select(json)?)),
            // A path that can match several values may have compared what was replaced.
            (Document::Repaired { json, invalid }, Some(path)) => match path.select(json)? {
                selection @ Selection::One(value)
                    if !judges || !value.to_string().contains(REPLACED) =>
                {
                    Ok(Subject::selected(&selection))
                }
                _ => Err(DocumentError::NotUtf8(*invalid)),
            },
        }
    }
}

fn not_json(text: &str, fault: Option<&JsonFault>) -> DocumentError {
    let shown = match (text, fault) {
        ("", _) => "it is empty".to_owned(),
        (_, Some(fault)) => format!("{fault}: {}", brief(text)),
        (_, None) => brief(text),
    };
    DocumentError::NotJson(shown)
}

/// The body without a byte order mark, which some servers send before JSON.
///
/// # Errors
/// If it is compressed, or in another encoding than UTF-8.
pub fn without_mark(body: &[u8]) -> Result<&[u8], DocumentError> {
    match body {
        [0xEF, 0xBB, 0xBF, rest @ ..] => Ok(rest),
        [0xFF, 0xFE, 0, 0, ..]
        | [0, 0, 0xFE, 0xFF, ..]
        | [0, 0, 0, 1..=255, ..]
        | [1..=255, 0, 0, 0, ..] => Err(DocumentError::OtherEncoding("UTF-32")),
        [0xFF, 0xFE, ..]
        | [0xFE, 0xFF, ..]
        | [0, 1..=255, 0, 1..=255, ..]
        | [1..=255, 0, 1..=255, 0, ..] => Err(DocumentError::OtherEncoding("UTF-16")),
        [0x1F, 0x8B, ..] => Err(DocumentError::Compressed("gzip")),
        [0x28, 0xB5, 0x2F, 0xFD, ..] => Err(DocumentError::Compressed("zstd")),
        _ => Ok(body),
    }
}

/// The start of a string, on one line, for a message.
pub fn brief(text: &str) -> String {
    truncate(text, MAX_QUOTED).replace(char::is_control, " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selected(body: &[u8], path: &str) -> Result<String, String> {
        let path = (!path.is_empty()).then(|| JsonPath::parse(path).expect("a path"));
        let document = Document::read(body).map_err(|error| error.to_string())?;
        let subject = document.subject(path.as_ref(), true);
        subject.map(|it| format!("{it:?}")).map_err(|error| error.to_string())
    }

    #[test]
    fn a_byte_order_mark_is_no_part_of_the_response() {
        let marked = [b"\xEF\xBB\xBF".as_slice(), b"{\"players\":0}"].concat();
        let plain = selected(b"{\"players\":0}", "{$.players}");
        assert_eq!(selected(&marked, "{$.players}"), plain);
        assert!(plain.is_ok());
        let utf16 = [b"\xFF\xFE".as_slice(), b"{\0}\0"].concat();
        let expected = Err("the response is UTF-16: send UTF-8".to_owned());
        assert_eq!(selected(&utf16, "{$.players}"), expected);
    }

    /// A garbled text would make comparisons true that should be false.
    #[test]
    fn bytes_of_another_encoding_matter_only_where_they_are_read() {
        let body =
            b"{\"map\":\"Z\xFCrich\",\"players\":0,\"all\":[{\"map\":\"Z\xFCrich\",\"n\":1}]}";
        assert!(selected(body, "{$.players}").is_ok());
        let expected = "byte 0xFC at offset 9 of the response is not UTF-8: send UTF-8, or JSON of which jsonPath selects \
                        a single value without such bytes";
        for path in ["", "{$}", "{$.map}", "{$.all}", "{$.all[?(@.map!='x')].n}", "{$.all[*].n}"] {
            assert_eq!(selected(body, path), Err(expected.to_owned()), "{path}");
        }
    }
}
