//! Findings, with messages like those of the API server.

use std::fmt;

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// The object cannot work, and is refused.
    Error,
    /// The problem may be intended, or may resolve itself.
    Warning,
}

/// A problem with an object, and how to fix it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Finding {
    /// The field, as in `spec.metrics[0].interval`; empty for the object as a whole.
    pub field: String,
    /// The problem and its fix.
    pub message: String,
    /// Whether the object is refused.
    pub severity: Severity,
}

impl Finding {
    /// An error with this message.
    pub fn error(field: impl Into<String>, message: impl Into<String>) -> Self {
        Finding { field: field.into(), message: message.into(), severity: Severity::Error }
    }

    /// An invalid value.
    pub fn invalid(field: impl Into<String>, value: &str, fix: impl fmt::Display) -> Self {
        Finding::error(field, format!("Invalid value: {value:?}: {fix}"))
    }

    /// A value that must be unique, and is not.
    pub fn duplicate(field: impl Into<String>, value: &str, fix: &str) -> Self {
        Finding::error(field, format!("Duplicate value: {value:?}: {fix}"))
    }

    /// An unknown field: misspelled or misplaced.
    pub fn unknown(field: &str) -> Self {
        Finding::error(field, format!("unknown field {field:?}"))
    }

    /// The same finding, as a warning.
    pub fn as_warning(self) -> Self {
        Finding { severity: Severity::Warning, ..self }
    }

    /// Whether the object is refused.
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }
}

/// Whether a path is this field or a field in it. The path of the whole object is empty.
///
/// ```
/// use gamekeeper_core::admission::lies_in;
///
/// assert!(lies_in("spec.metrics[0].name", "spec.metrics"));
/// assert!(!lies_in("spec.metricsRetention", "spec.metrics"));
/// assert!(lies_in("spec.metrics", ""));
/// ```
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
    fn a_path_lies_in_itself_and_its_parents_but_not_in_other_prefixes() {
        for (path, field, expected) in [
            ("spec.a", "spec.a", true),
            ("spec.a.b", "spec.a", true),
            ("spec.a[0].b", "spec.a", true),
            ("spec.ab", "spec.a", false),
            ("spec.a", "spec.a.b", false),
            ("spec.a", "", true),
            ("", "spec.a", false),
        ] {
            assert_eq!(lies_in(path, field), expected, "{path} in {field}");
        }
    }
}
