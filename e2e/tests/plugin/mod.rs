//! The kubectl plugin, run as `kubectl game`: its output, its changes and its exit codes.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use e2e::case::Case;
use e2e::process::command::CommandOutput;
use serde_json::Value;

mod change;
mod connect;
mod document;
mod follow;
mod show;
mod sidecar_sets;

/// Runs a command that must exit with this code, and returns its output.
async fn exits_with(case: &Case, code: i32, args: &[&str]) -> Result<String> {
    let CommandOutput { code: found, stdout, stderr } = case.game(args).await?;
    ensure!(found == code, "{args:?} exited with {found}: {stdout}{stderr}");
    Ok(stdout)
}

/// Runs a command that must fail with this error.
async fn fails_with(case: &Case, args: &[&str], words: &str) -> Result<()> {
    let CommandOutput { code, stdout, stderr } = case.game(args).await?;
    ensure!(code == 1 && stdout.is_empty(), "{args:?} exited with {code}: {stdout}{stderr}");
    ensure!(stderr.contains(words), "{args:?} does not print {words:?}: {stderr}");
    Ok(())
}

/// Waits with `status --watch` until the rollout completes or stops, and returns the output.
async fn status(case: &Case, code: i32, name: &str) -> Result<String> {
    let watch = ["status", name, "--watch", "--timeout", "300s"];
    exits_with(case, code, &watch).await
}

fn check_contains(text: &str, words: &[&str]) -> Result<()> {
    for word in words {
        ensure!(text.contains(word), "no {word:?} in:\n{text}");
    }
    Ok(())
}

/// The words of the first line that, without the symbols of a tree, starts with this text.
fn line<'t>(text: &'t str, start: &str) -> Result<Vec<&'t str>> {
    let mut lines = text.lines();
    let found = lines.find(|line| line.trim_start_matches(['|', '`', '-', ' ']).starts_with(start));
    let found = found.with_context(|| format!("no line {start:?} in:\n{text}"))?;
    Ok(found.trim_start_matches(['|', '`', '-', ' ']).split_whitespace().collect())
}

/// A changed copy of the user's kubeconfig.
pub(crate) fn kubeconfig(
    case: &Case,
    name: &str,
    change: impl FnOnce(&mut Value),
) -> Result<PathBuf> {
    let original = std::fs::read(case.folder().join("kubeconfig"))?;
    let mut config: Value = serde_json::from_slice(&original)?;
    change(&mut config);
    let path = case.folder().join(format!("kubeconfig-{name}"));
    std::fs::write(&path, config.to_string())?;
    Ok(path)
}
