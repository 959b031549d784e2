//! The command `lint` of `gamekeeper` and `kubectl game`: reads files, checks them with [`gamekeeper_core::lint`],
//! and prints a line for each finding.

mod files;

use std::io::Write as _;
use std::path::PathBuf;

use clap::Args;
use gamekeeper_core::expr::Panicked;
use gamekeeper_core::lint::{Diagnostic, check};

use files::Unreadable;

/// Arguments and flags of `lint`.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// Files, or directories with *.yaml, *.yml and *.json files; - reads standard input.
    #[arg(required_unless_present = "filename")]
    pub files: Vec<PathBuf>,
    /// The same, as an option.
    #[arg(short, long, value_name = "FILE")]
    pub filename: Vec<PathBuf>,
    /// Treat warnings as errors.
    #[arg(long)]
    pub strict: bool,
}

#[derive(Debug, thiserror::Error)]
enum LintError {
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    #[error(transparent)]
    Panicked(#[from] Panicked),
}

/// Runs the command; returns its exit code: 1 if an object would be refused, or gets a warning with `--strict`; 2 if a
/// file cannot be read.
pub fn run(options: &Options) -> u8 {
    match diagnose(options) {
        Ok(diagnostics) => {
            let mut out = std::io::stdout().lock();
            for diagnostic in &diagnostics {
                // The reader may have closed the pipe.
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

fn diagnose(options: &Options) -> Result<Vec<Diagnostic>, LintError> {
    let files: Vec<PathBuf> = options.files.iter().chain(&options.filename).cloned().collect();
    Ok(check(&files::read(&files)?)?)
}

fn exit_code(diagnostics: &[Diagnostic], strict: bool) -> u8 {
    let fails = |diagnostic: &Diagnostic| strict || diagnostic.finding.is_error();
    u8::from(diagnostics.iter().any(fails))
}

#[cfg(test)]
mod tests {
    use gamekeeper_core::admission::Finding;

    use super::*;

    #[test]
    fn warnings_fail_only_if_strict() {
        let diagnostic = |finding| Diagnostic { file: "a.yaml".to_owned(), line: 1, finding };
        let error = diagnostic(Finding::error("spec", "bad"));
        let warning = diagnostic(Finding::error("spec", "odd").as_warning());
        for (diagnostics, strict, code) in [
            (vec![], true, 0),
            (vec![warning.clone()], false, 0),
            (vec![warning], true, 1),
            (vec![error], false, 1),
        ] {
            assert_eq!(exit_code(&diagnostics, strict), code, "{diagnostics:?}");
        }
    }
}
