//! Running a program the way a person would: what matters is what it prints, and when it fails,
//! everything about it.

use std::ffi::OsStr;
use std::process::{Output, Stdio};

use anyhow::{Context, Result, bail};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// Runs a command to its end and returns what it printed.
pub async fn run(command: &mut Command, stdin: &str) -> Result<String> {
    let line = line(command);
    let output = output(command, stdin)
        .await
        .with_context(|| format!("could not run: {line}"))?;
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        bail!(
            "{line}\n{}\nstdout: {stdout}\nstderr: {stderr}",
            output.status
        );
    }
    Ok(stdout)
}

/// How a program that may fail ended, and what it printed.
#[derive(Debug)]
pub struct Ended {
    /// Exit code.
    pub code: i32,
    /// What it printed.
    pub stdout: String,
    /// What it said beside that.
    pub stderr: String,
}

/// Runs a command to its end, whichever that is.
pub async fn run_to_end(command: &mut Command) -> Result<Ended> {
    let line = line(command);
    let output = output(command, "").await;
    let output = output.with_context(|| format!("could not run: {line}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(Ended {
        code: output
            .status
            .code()
            .with_context(|| format!("{line}: {}", output.status))?,
        stdout: text(&output.stdout),
        stderr: text(&output.stderr),
    })
}

async fn output(command: &mut Command, stdin: &str) -> std::io::Result<Output> {
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let mut child = command.spawn()?;
    if let Some(mut input) = child.stdin.take() {
        // A program that fails before it has read its input says better why than this error.
        let _ = input.write_all(stdin.as_bytes()).await;
    }
    child.wait_with_output().await
}

/// The command as one would type it.
fn line(command: &Command) -> String {
    let command = command.as_std();
    let quoted = |word: &OsStr| {
        let word = word.to_string_lossy();
        if word.contains([' ', '"', '{']) {
            format!("'{word}'")
        } else {
            word.into_owned()
        }
    };
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(quoted).collect::<Vec<_>>().join(" ")
}
