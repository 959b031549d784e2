//! Types what a document shows, and compares what is printed with what the document shows.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;
use tokio::time::timeout;

use crate::checkout::repository;
use crate::cluster::control_plane::ControlPlane;
use crate::documents::transcript::{Typed, lasting};
use crate::process::command::{Ended, run, run_to_end};
use crate::wait::eventually;

/// How long something may take to show.
const LIMIT: Duration = Duration::from_secs(120);
/// Commands that only look: they are looked at until they show what is expected.
const LOOKS: [&str; 4] = [
    "kubectl get ",
    "kubectl game tree ",
    "kubectl game hooks ",
    "kubectl game status ",
];

/// A shell in the checkout, of a user of a cluster.
pub struct Shell {
    path: OsString,
    kubeconfig: PathBuf,
}

impl Shell {
    /// That of the administrator.
    pub async fn of(plane: &ControlPlane) -> Result<Self> {
        Self::with(plane, plane.kubeconfig.clone()).await
    }

    /// That of the user of this kubeconfig.
    pub async fn with(plane: &ControlPlane, kubeconfig: PathBuf) -> Result<Self> {
        let path = plane.path().await?;
        Ok(Self { path, kubeconfig })
    }

    /// Types a command. Names of pods and revisions of these workloads may differ in what it prints.
    pub async fn play(&self, typed: &Typed, workload: &str) -> Result<()> {
        let outcome = self.follow(typed, workload).await;
        outcome.with_context(|| format!("{}: $ {}", typed.section, typed.command))
    }

    async fn follow(&self, typed: &Typed, workload: &str) -> Result<()> {
        let line = &typed.command;
        let shown = |text: &str| shows(text, &typed.printed, workload);
        if line.ends_with(" -w") {
            return timeout(LIMIT, watched(self.command(line), shown)).await?;
        }
        if line.contains(" --watch ") {
            // What it waits for on the way is as it comes; how it ends is not.
            let Ended { stdout, .. } = run_to_end(&mut self.command(line)).await?;
            let lines: Vec<&str> = stdout.lines().collect();
            let end = lines.len().saturating_sub(typed.printed.len().max(1));
            return shown(&lines[end..].join("\n"));
        }
        if LOOKS.iter().any(|look| line.starts_with(look)) {
            return eventually("it shows that", LIMIT, async || {
                shown(&run(&mut self.command(line), "").await?)
            })
            .await;
        }
        // Long lines are folded in the document.
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let expected = words(&typed.printed.join(" "));
        if !expected.contains("Invalid value") {
            return shown(&run(&mut self.command(line), "").await?);
        }
        let Ended {
            code,
            stdout,
            stderr,
        } = run_to_end(&mut self.command(line)).await?;
        ensure!(code == 1, "it ended with {code}: {stdout}{stderr}");
        let said = words(&(stdout + &stderr));
        ensure!(said == expected, "{said}\nis not\n{expected}");
        Ok(())
    }

    /// A command line, not yet typed.
    pub fn command(&self, line: &str) -> Command {
        let mut command = Command::new("bash");
        command
            .args(["-o", "pipefail", "-c", line])
            .current_dir(repository())
            .env("PATH", &self.path)
            .env("KUBECONFIG", &self.kubeconfig)
            .kill_on_drop(true);
        command
    }
}

/// Whether a text is what the document shows, if it shows any.
fn shows(text: &str, expected: &[String], workload: &str) -> Result<()> {
    let expected = lasting(expected.iter().map(String::as_str), workload);
    let shown = lasting(text.lines(), workload);
    ensure!(
        expected.is_empty() || shown == expected,
        "{}\nis not\n{}\nprinted:\n{text}",
        shown.join("\n"),
        expected.join("\n")
    );
    Ok(())
}

/// Follows a command that never ends until a frame of it is what is expected.
async fn watched(mut command: Command, is_shown: impl Fn(&str) -> Result<()>) -> Result<()> {
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let output = child.stdout.take().context("its output")?;
    let mut lines = BufReader::new(output).lines();
    let mut frame = String::new();
    while let Some(line) = lines.next_line().await? {
        // Each frame stands under a line with its time.
        if line.starts_with("---") {
            frame.clear();
            continue;
        }
        frame.push_str(&line);
        frame.push('\n');
        if is_shown(&frame).is_ok() {
            return Ok(());
        }
    }
    anyhow::bail!("it ended")
}
