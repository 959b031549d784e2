//! Responses, and the values that conditions read from them.

use serde_json::Value;

use super::Subject;
use super::jsonpath::{JsonPath, PathError};
use crate::api::json_memory;
use crate::text::truncate;

/// The maximum memory that parsed JSON may take, in bytes.
const MAX_MEMORY: usize = 40 << 20;
/// The longest quoted text in a message, in characters.
const MAX_QUOTED: usize = 100;

/// The body of a response.
#[derive(Clone, Debug, PartialEq)]
pub enum Document {
    /// JSON.
    Json(Value),
    /// Anything else, as trimmed text.
    Text(String),
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
    /// The path does not match the JSON.
    #[error(transparent)]
    Path(#[from] PathError),
}

impl Document {
    /// Parses a body.
    ///
    /// # Errors
    /// If its JSON would use too much memory.
    pub fn read(body: &[u8]) -> Result<Self, DocumentError> {
        if json_memory(body) > MAX_MEMORY {
            return Err(DocumentError::TooComplex);
        }
        Ok(serde_json::from_slice(body).map_or_else(
            |_| Document::Text(String::from_utf8_lossy(body).trim().to_owned()),
            Document::Json,
        ))
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
        }
    }
}

/// The start of a string, on one line, for a message.
pub fn brief(text: &str) -> String {
    truncate(text, MAX_QUOTED).replace(char::is_control, " ")
}
