//! The linter: reports what the API server and the webhook would refuse, with file and line.
//!
//! An object is also checked against others in the same files: HookTemplates, SidecarSets, workloads, Namespaces and
//! PodDisruptionBudgets. Objects of other API groups are not checked themselves.

mod argo;
mod objects;
#[cfg(test)]
mod tests;
pub mod yaml;

use std::fmt;

use crate::admission::Finding;
use crate::expr::{Panicked, on_deep_stack};

/// A file with YAML documents.
#[derive(Clone, Debug)]
pub struct Source {
    /// The name of the file, for messages.
    pub name: String,
    /// The contents of the file.
    pub text: String,
}

/// A finding and its position.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Diagnostic {
    /// The name of the file.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The problem.
    pub finding: Finding,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = if self.finding.is_error() { "" } else { "warning: " };
        write!(f, "{}:{}: {severity}{}", self.file, self.line, self.finding)
    }
}

/// Checks all objects in these files.
///
/// ```
/// use gamekeeper_core::lint::{Source, check};
///
/// # fn main() -> Result<(), gamekeeper_core::expr::Panicked> {
/// let diagnostics = check(&[Source {
///     name: "lobby.yaml".to_owned(),
///     text: "apiVersion: tkex.tencent.com/v1alpha2\nkind: GameDeployment".to_owned(),
/// }])?;
/// assert_eq!(
///     diagnostics[0].to_string(),
///     "lobby.yaml:1: apiVersion: Invalid value: \"tkex.tencent.com/v1alpha2\": \
///      write tkex.tencent.com/v1alpha1"
/// );
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// If the check panicked, or its thread could not be started.
pub fn check(sources: &[Source]) -> Result<Vec<Diagnostic>, Panicked> {
    // The parser of conditions needs a deep stack.
    on_deep_stack(|| objects::check(sources))
}
