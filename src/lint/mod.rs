//! `gamekeeper lint`: manifests checked before anybody applies them, in the words in which the API
//! server and the webhook would refuse them, with file and line.
//!
//! A workload is also checked against the HookTemplates of the same run, so that templates and
//! workloads are best given together. Objects of other kinds are left alone.

mod files;
mod objects;
#[cfg(test)]
mod tests;
pub(crate) mod yaml;

use std::fmt;
use std::io::Write as _;
use std::path::PathBuf;

use clap::Args;

use files::{LintError, Source};

use crate::admission::Finding;
use crate::expr::Guard;

/// Flags of `gamekeeper lint`.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// Files, or directories with *.yaml, *.yml and *.json files; - reads standard input.
    #[arg(required = true)]
    pub files: Vec<PathBuf>,
    /// Let warnings fail too.
    #[arg(long)]
    pub strict: bool,
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

/// The whole command: checks files and directories, and standard input, prints a line for each finding,
/// and returns the exit code.
pub fn run(options: &Options) -> u8 {
    match files::read(&options.files).and_then(check) {
        Ok(diagnostics) => {
            let mut out = std::io::stdout().lock();
            for diagnostic in &diagnostics {
                // Whoever reads may have seen enough; the exit code is told all the same.
                if writeln!(out, "{diagnostic}").is_err() {
                    break;
                }
            }
            exit_code(&diagnostics, options.strict)
        }
        Err(error) => {
            eprintln!("error: {error}");
            2
        }
    }
}

/// Checks texts that are already read.
///
/// # Errors
/// When the operating system gives no thread.
fn check(sources: Vec<Source>) -> Result<Vec<Diagnostic>, LintError> {
    // Conditions are read on a deep stack.
    let checked = Guard::start()?.run_blocking(move || objects::check(&sources));
    Ok(checked?)
}

/// The exit code of the command: 1 when something is refused.
fn exit_code(diagnostics: &[Diagnostic], strict: bool) -> u8 {
    let fails = |diagnostic: &Diagnostic| strict || diagnostic.finding.is_error();
    u8::from(diagnostics.iter().any(fails))
}
