//! The kubectl plugin, called as `kubectl game`: what it shows, what it changes, how it ends.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use e2e::case::Case;
use e2e::process::command::Ended;
use e2e::trial::Test;
use serde_json::Value;

mod connect;
mod document;
mod follow;
mod look;
mod steer;

/// The tests of all these modules.
pub fn tests() -> Vec<Test> {
    let tests = [
        steer::tests(),
        follow::tests(),
        look::tests(),
        connect::tests(),
        document::tests(),
    ];
    tests.into_iter().flatten().collect()
}

/// A command that must end so; returns what it printed.
async fn ends(case: &Case, code: i32, args: &[&str]) -> Result<String> {
    let Ended {
        code: found,
        stdout,
        stderr,
    } = case.game(args).await?;
    ensure!(
        found == code,
        "{args:?} ended with {found}: {stdout}{stderr}"
    );
    Ok(stdout)
}

/// A command that must be refused with these words.
async fn says(case: &Case, args: &[&str], words: &str) -> Result<()> {
    let Ended {
        code,
        stdout,
        stderr,
    } = case.game(args).await?;
    ensure!(
        code == 1 && stdout.is_empty(),
        "{args:?} ended with {code}: {stdout}{stderr}"
    );
    ensure!(
        stderr.contains(words),
        "{args:?} does not say {words:?}: {stderr}"
    );
    Ok(())
}

/// Waits for an end of the rollout, or a stop, and returns what is said then.
async fn status(case: &Case, code: i32, name: &str) -> Result<String> {
    ends(case, code, &["status", name, "--watch", "--timeout", "60s"]).await
}

fn has(text: &str, words: &[&str]) -> Result<()> {
    for word in words {
        ensure!(text.contains(word), "no {word:?} in:\n{text}");
    }
    Ok(())
}

/// A line of a table that begins so, in words.
fn line<'t>(text: &'t str, start: &str) -> Result<Vec<&'t str>> {
    let mut lines = text.lines();
    let found = lines.find(|line| {
        line.trim_start_matches(['|', '`', '-', ' '])
            .starts_with(start)
    });
    let found = found.with_context(|| format!("no line {start:?} in:\n{text}"))?;
    Ok(found
        .trim_start_matches(['|', '`', '-', ' '])
        .split_whitespace()
        .collect())
}

/// The user's kubeconfig with a change, as another file.
fn kubeconfig(case: &Case, name: &str, change: impl FnOnce(&mut Value)) -> Result<PathBuf> {
    let own = std::fs::read(case.folder().join("kubeconfig"))?;
    let mut config: Value = serde_json::from_slice(&own)?;
    change(&mut config);
    let path = case.folder().join(format!("kubeconfig-{name}"));
    std::fs::write(&path, config.to_string())?;
    Ok(path)
}
