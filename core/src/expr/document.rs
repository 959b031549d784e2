//! Answers: what a body holds, and what of it a condition is about.

use serde_json::Value;

use super::Subject;
use super::jsonpath::{JsonPath, PathError};
use crate::api::json_memory;

/// Memory that the JSON of an answer may take.
const MAX_MEMORY: usize = 40 << 20;
/// Longest text that is quoted in a message.
const MAX_QUOTED: usize = 100;

/// A body that has been read.
#[derive(Clone, Debug, PartialEq)]
pub enum Document {
    /// JSON.
    Json(Value),
    /// Anything else, as text without space around it.
    Text(String),
}

/// Why an answer cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DocumentError {
    /// Its JSON would fill the memory.
    #[error("the response's JSON is too complex: return less")]
    TooComplex,
    /// A path needs JSON.
    #[error("the response is not JSON: {0}")]
    NoJson(String),
    /// The path selects nothing that can be used.
    #[error(transparent)]
    Path(#[from] PathError),
}

impl Document {
    /// Reads a body.
    ///
    /// # Errors
    /// When its JSON would fill the memory.
    pub fn read(body: &[u8]) -> Result<Self, DocumentError> {
        if json_memory(body) > MAX_MEMORY {
            return Err(DocumentError::TooComplex);
        }
        Ok(serde_json::from_slice(body).map_or_else(
            |_| Document::Text(String::from_utf8_lossy(body).trim().to_owned()),
            Document::Json,
        ))
    }

    /// What a path selects; without one, or with {$}, the whole answer.
    ///
    /// # Errors
    /// When the answer is no JSON, or lacks what the path names.
    pub fn subject<'a>(&'a self, path: Option<&'a JsonPath>) -> Result<Subject<'a>, DocumentError> {
        match (self, path.filter(|path| !path.is_whole())) {
            (Document::Json(json), None) => Ok(Subject::whole(json)),
            (Document::Text(text), None) => Ok(Subject::text(text.as_str())),
            (Document::Json(json), Some(path)) => Ok(Subject::selected(&path.select(json)?)),
            (Document::Text(text), Some(_)) => Err(DocumentError::NoJson(brief(text))),
        }
    }
}

/// The beginning of a text, on one line, for a message.
pub fn brief(text: &str) -> String {
    let mut brief: String = text.chars().take(MAX_QUOTED).collect();
    if brief.len() < text.len() {
        brief.push_str("...");
    }
    brief.replace(char::is_control, " ")
}
