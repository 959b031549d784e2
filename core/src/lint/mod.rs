//! Manifests checked before anybody applies them, in the words in which the API server and the webhook
//! would refuse them, with file and line.
//!
//! A workload is also checked against the HookTemplates of the same run, so that templates and
//! workloads are best given together. Objects of other kinds are left alone.

mod objects;
#[cfg(test)]
mod tests;
pub mod yaml;

use std::fmt;

use crate::admission::Finding;
use crate::expr::{Panicked, on_deep_stack};

/// A text of YAML documents, and what it is called.
#[derive(Clone, Debug)]
pub struct Source {
    /// Its name in messages.
    pub name: String,
    /// What it says.
    pub text: String,
}

/// A finding, and where it stands.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Diagnostic {
    /// The file, as it was named; `-` for standard input.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// What is wrong.
    pub finding: Finding,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = if self.finding.is_error() {
            ""
        } else {
            "warning: "
        };
        write!(f, "{}:{}: {severity}{}", self.file, self.line, self.finding)
    }
}

/// Checks texts, each object alone and against the templates of all.
///
/// # Errors
/// When the check panicked, or the operating system gives no thread.
pub fn check(sources: &[Source]) -> Result<Vec<Diagnostic>, Panicked> {
    // Conditions are parsed on a deep stack.
    on_deep_stack(|| objects::check(sources))
}
