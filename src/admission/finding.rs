//! What is wrong with an object, in the words of the API server's own errors.

use std::fmt;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// The object cannot work, and is refused.
    Error,
    /// It may be meant so, or heals by itself.
    Warning,
}

/// One thing that is wrong: where, what, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Finding {
    /// The field, as in `spec.metrics[0].interval`; empty for the object as a whole.
    pub field: String,
    /// What is wrong, and the mend.
    pub message: String,
    /// Whether it is refused.
    pub severity: Severity,
}

impl Finding {
    /// A refusal, in these words.
    pub fn error(field: impl Into<String>, message: impl Into<String>) -> Self {
        Finding {
            field: field.into(),
            message: message.into(),
            severity: Severity::Error,
        }
    }

    /// A refusal of a text.
    pub fn invalid(field: impl Into<String>, value: &str, mend: impl fmt::Display) -> Self {
        Finding::error(field, format!("Invalid value: {value:?}: {mend}"))
    }

    /// The same, as a warning.
    pub fn as_warning(self) -> Self {
        Finding {
            severity: Severity::Warning,
            ..self
        }
    }

    /// Whether it is a refusal.
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.field.as_str() {
            "" => f.write_str(&self.message),
            field => write!(f, "{field}: {}", self.message),
        }
    }
}
