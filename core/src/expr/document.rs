//! Responses, and the values that conditions read from them.

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
    Text(String),
}

/// A byte that is not UTF-8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidByte {
    byte: u8,
    offset: usize,
}

impl InvalidByte {
    /// The first byte of a text that is not UTF-8.
    fn first(text: &[u8]) -> Option<Self> {
        let offset = std::str::from_utf8(text).err()?.valid_up_to();
        let byte = *text.get(offset)?;
        Some(InvalidByte { byte, offset })
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
        "byte {:#04X} at offset {} of the response is not UTF-8: send JSON as UTF-8, or select a single value without \
         such bytes with jsonPath", .0.byte, .0.offset
    )]
    NotUtf8(InvalidByte),
    /// It is UTF-16 or UTF-32.
    #[error("the response is {0}: send UTF-8")]
    OtherEncoding(&'static str),
    /// The path does not match the JSON.
    #[error(transparent)]
    Path(#[from] PathError),
}

impl Document {
    /// Parses a body.
    ///
    /// # Errors
    /// If its JSON would use too much memory, or if it begins with the mark of another encoding than UTF-8.
    pub fn read(body: &[u8]) -> Result<Self, DocumentError> {
        let body = without_mark(body)?;
        if json_memory(body) > MAX_MEMORY {
            return Err(DocumentError::TooComplex);
        }
        if let Ok(json) = serde_json::from_slice(body) {
            return Ok(Document::Json(json));
        }
        let text = String::from_utf8_lossy(body);
        if let Some(invalid) = InvalidByte::first(body)
            && let Ok(json) = serde_json::from_str(&text)
        {
            return Ok(Document::Repaired { json, invalid });
        }
        Ok(Document::Text(text.trim().to_owned()))
    }

    /// What a path selects; without a path, or with {$}, the whole response.
    ///
    /// # Errors
    /// If there is a path other than {$}, and the response is not JSON or the path does not match it.
    pub fn subject<'a>(&'a self, path: Option<&'a JsonPath>) -> Result<Subject<'a>, DocumentError> {
        match (self, path.filter(|path| !path.is_whole())) {
            (Document::Json(json), None) => Ok(Subject::whole(json)),
            (Document::Text(text), None) => Ok(Subject::text(text.as_str())),
            (Document::Json(json), Some(path)) => Ok(Subject::selected(&path.select(json)?)),
            (Document::Text(text), Some(_)) => Err(DocumentError::NotJson(brief(text))),
            (Document::Repaired { invalid, .. }, None) => Err(DocumentError::NotUtf8(*invalid)),
            // A path that can match several values may have compared what was replaced.
            (Document::Repaired { json, invalid }, Some(path)) => match path.select(json)? {
                selection @ Selection::One(value) if !value.to_string().contains(REPLACED) => {
                    Ok(Subject::selected(&selection))
                }
                _ => Err(DocumentError::NotUtf8(*invalid)),
            },
        }
    }
}

/// The body without a byte order mark, which some servers send before JSON.
///
/// # Errors
/// If it is the mark of another encoding than UTF-8.
pub fn without_mark(body: &[u8]) -> Result<&[u8], DocumentError> {
    match body {
        [0xEF, 0xBB, 0xBF, rest @ ..] => Ok(rest),
        [0xFF, 0xFE, 0, 0, ..] | [0, 0, 0xFE, 0xFF, ..] => {
            Err(DocumentError::OtherEncoding("UTF-32"))
        }
        [0xFF, 0xFE, ..] | [0xFE, 0xFF, ..] => Err(DocumentError::OtherEncoding("UTF-16")),
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
        let subject = document.subject(path.as_ref());
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
        let expected = "byte 0xFC at offset 9 of the response is not UTF-8: send JSON as UTF-8, or select a single value \
                        without such bytes with jsonPath";
        for path in ["", "{$}", "{$.map}", "{$.all}", "{$.all[?(@.map!='x')].n}", "{$.all[*].n}"] {
            assert_eq!(selected(body, path), Err(expected.to_owned()), "{path}");
        }
    }
}
