//! Runs a program and returns its output; an error shows the command line and all output.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Output, Stdio};

use anyhow::{Context, Result, bail};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// Disables garbage collection in Go programs. In kubectl and helm, which exit soon, collection would take up to a
/// third of the CPU time.
pub const WITHOUT_GC: (&str, &str) = ("GOGC", "off");

/// A command that runs kubectl or helm, without garbage collection.
pub fn go_command(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.env(WITHOUT_GC.0, WITHOUT_GC.1);
    command
}

/// Runs a command that must succeed, and returns its standard output.
pub async fn run(command: &mut Command, stdin: &str) -> Result<String> {
    let line = line(command);
    let output = output(command, stdin).await.with_context(|| format!("could not run: {line}"))?;
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        bail!("{line}\n{}\nstdout: {stdout}\nstderr: {stderr}", output.status);
    }
    Ok(stdout)
}

/// The exit code and output of a program that may fail.
#[derive(Debug)]
pub struct CommandOutput {
    /// Exit code.
    pub code: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

/// Runs a command that may fail.
pub async fn run_unchecked(command: &mut Command) -> Result<CommandOutput> {
    let line = line(command);
    let output = output(command, "").await;
    let output = output.with_context(|| format!("could not run: {line}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(CommandOutput {
        code: output.status.code().with_context(|| format!("{line}: {}", output.status))?,
        stdout: text(&output.stdout),
        stderr: text(&output.stderr),
    })
}

async fn output(command: &mut Command, stdin: &str) -> std::io::Result<Output> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn()?;
    if let Some(mut input) = child.stdin.take() {
        // If the program fails before it has read its input, its own error is more useful than this one.
        let _ = input.write_all(stdin.as_bytes()).await;
    }
    child.wait_with_output().await
}

/// The command line, quoted for a shell.
fn line(command: &Command) -> String {
    let command = command.as_std();
    let quoted = |word: &OsStr| {
        let word = word.to_string_lossy();
        if word.contains([' ', '"', '{']) { format!("'{word}'") } else { word.into_owned() }
    };
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(quoted).collect::<Vec<_>>().join(" ")
}
