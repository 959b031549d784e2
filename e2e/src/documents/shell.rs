//! Runs the commands of a document, and compares their output with what the document shows.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;
use tokio::time::timeout;

use crate::checkout::repository;
use crate::cluster::control_plane::ControlPlane;
use crate::documents::transcript::{DocCommand, normalized};
use crate::process::command::{CommandOutput, WITHOUT_GC, run, run_unchecked};
use crate::wait::{LIMIT, eventually};

/// Commands that change nothing. They are repeated until their output is as expected.
const READ_ONLY: [&str; 5] = [
    "kubectl get ",
    "kubectl game get ",
    "kubectl game tree ",
    "kubectl game hooks ",
    "kubectl game status ",
];

/// The output of a refused command contains one of these.
const REFUSED: [&str; 2] = ["Invalid value", "Error from server"];

/// A shell in the root of the repository, with a user's kubeconfig.
pub struct Shell {
    path: OsString,
    kubeconfig: PathBuf,
    folder: PathBuf,
}

impl Shell {
    /// A shell for the administrator.
    pub async fn admin(plane: &ControlPlane) -> Result<Self> {
        Self::with(plane, plane.kubeconfig.clone()).await
    }

    /// A shell with this kubeconfig.
    pub async fn with(plane: &ControlPlane, kubeconfig: PathBuf) -> Result<Self> {
        let path = plane.path().await?;
        Ok(Self { path, kubeconfig, folder: repository().to_owned() })
    }

    /// This shell in another folder.
    pub fn in_folder(self, folder: &Path) -> Self {
        Self { folder: folder.to_owned(), ..self }
    }

    /// Runs a command and checks its output. Names of the workload's pods and revisions may differ.
    pub async fn check(&self, documented: &DocCommand, workload: &str) -> Result<()> {
        let outcome = self.try_check(documented, workload).await;
        outcome.with_context(|| format!("{}: $ {}", documented.section, documented.command))
    }

    async fn try_check(&self, documented: &DocCommand, workload: &str) -> Result<()> {
        let line = &documented.command;
        let check_output = |text: &str| ensure_documented(text, &documented.output, workload);
        if line.ends_with(" -w") {
            return timeout(LIMIT, watch(self.command(line), check_output)).await?;
        }
        if line.contains(" --watch ") {
            // The documented timeout is for a reader's machine, which does nothing else.
            let line = line.replace(" --timeout 60s", " --timeout 180s");
            // Only the last lines are checked; the progress before them varies.
            let CommandOutput { stdout, .. } = run_unchecked(&mut self.command(&line)).await?;
            let lines: Vec<&str> = stdout.lines().collect();
            let start = lines.len().saturating_sub(documented.output.len().max(1));
            return check_output(&lines[start..].join("\n"));
        }
        if READ_ONLY.iter().any(|start| line.starts_with(start)) {
            return eventually("the output is as documented", LIMIT, async || {
                check_output(&run(&mut self.command(line), "").await?)
            })
            .await;
        }
        // Long lines are folded in the document.
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let expected = words(&documented.output.join(" "));
        if !REFUSED.iter().any(|it| expected.contains(it)) {
            return check_output(&run(&mut self.command(line), "").await?);
        }
        let CommandOutput { code, stdout, stderr } = run_unchecked(&mut self.command(line)).await?;
        ensure!(code == 1, "exit code {code}: {stdout}{stderr}");
        let output = words(&(stdout + &stderr));
        let [printed_text, documented_text] =
            [&output, &expected].map(|it| normalized([it.as_str()], workload));
        ensure!(printed_text == documented_text, "{output}\nis not\n{expected}");
        Ok(())
    }

    /// A command that runs this line in bash.
    pub fn command(&self, line: &str) -> Command {
        let mut command = Command::new("bash");
        command
            .args(["-o", "pipefail", "-c", line])
            .current_dir(&self.folder)
            .env("PATH", &self.path)
            .env("KUBECONFIG", &self.kubeconfig)
            .env(WITHOUT_GC.0, WITHOUT_GC.1)
            .kill_on_drop(true);
        command
    }
}

/// Checks that the output is as documented, if the document shows any.
fn ensure_documented(text: &str, expected: &[String], workload: &str) -> Result<()> {
    let expected = normalized(expected.iter().map(String::as_str), workload);
    let printed = normalized(text.lines(), workload);
    ensure!(
        expected.is_empty() || printed == expected,
        "{}\nis not\n{}\nprinted:\n{text}",
        printed.join("\n"),
        expected.join("\n")
    );
    Ok(())
}

/// Runs a command that does not end on its own, until a frame of its output is as expected.
async fn watch(mut command: Command, check: impl Fn(&str) -> Result<()>) -> Result<()> {
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let output = child.stdout.take().context("no output of the command")?;
    let mut lines = BufReader::new(output).lines();
    let mut frame = String::new();
    while let Some(line) = lines.next_line().await? {
        // A line with the time precedes each frame.
        if line.starts_with("---") {
            frame.clear();
            continue;
        }
        frame.push_str(&line);
        frame.push('\n');
        if check(&frame).is_ok() {
            return Ok(());
        }
    }
    anyhow::bail!("the command exited")
}
