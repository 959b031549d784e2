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
    /// What is wrong, and the fix.
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
    pub fn invalid(field: impl Into<String>, value: &str, fix: impl fmt::Display) -> Self {
        Finding::error(field, format!("Invalid value: {value:?}: {fix}"))
    }

    /// A refusal of a field that is not known: misspelt, or at the wrong place.
    pub fn unknown(field: &str) -> Self {
        Finding::error(field, format!("unknown field {field:?}"))
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

/// Whether a path is this field or lies in it: `spec.a[0].b` lies in `spec.a`, `spec.ab` does not, and
/// everything lies in the object as a whole, whose path is empty.
pub fn lies_in(path: &str, field: &str) -> bool {
    let rest = path.strip_prefix(field);
    field.is_empty() || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.field.as_str() {
            "" => f.write_str(&self.message),
            field => write!(f, "{field}: {}", self.message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_holds_what_is_in_it_and_nothing_that_is_only_spelt_alike() {
        for (within, field, expected) in [
            ("spec.a", "spec.a", true),
            ("spec.a.b", "spec.a", true),
            ("spec.a[0].b", "spec.a", true),
            ("spec.ab", "spec.a", false),
            ("spec.a", "spec.a.b", false),
            ("spec.a", "", true),
            ("", "spec.a", false),
        ] {
            assert_eq!(lies_in(within, field), expected, "{within} in {field}");
        }
    }
}
