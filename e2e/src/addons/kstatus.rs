//! The status of objects as Flux, Helm 4 and kpt see it, computed by their library.

use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Result, ensure};
use serde_json::Value;
use tokio::process::Command;

use crate::addons::argo_cd::ensure_health;
use crate::checkout::repository;
use crate::process::command::{go_command, run};

/// The directory of Helm 4, and of a program that computes the status of an object. They are built if they are missing.
pub async fn programs() -> Result<PathBuf> {
    let script = repository().join("e2e/compatibility/build.sh");
    let mut build = Command::new(script);
    let printed = run(build.arg("helm-4").stderr(Stdio::inherit()), "").await?;
    Ok(PathBuf::from(printed.trim()))
}

/// The status of an object, such as `InProgress: 1 of 2 pods are available`.
pub async fn status(object: &Value) -> Result<String> {
    let mut compute = go_command(&programs().await?.join("kstatus"));
    let printed = run(&mut compute, &object.to_string()).await?;
    Ok(printed.trim().to_owned())
}

/// Fails unless an object has this status, and the health in Argo CD that goes with it.
pub async fn ensure_status(object: &Value, expected: &str) -> Result<()> {
    let found = status(object).await?;
    ensure!(found.starts_with(expected), "{found}: {object:#}");
    let health: &[&str] = match expected.split(':').next() {
        Some("Current") => &["Healthy"],
        Some("Failed") => &["Degraded"],
        _ => &["Progressing", "Suspended"],
    };
    ensure_health(object, health).await
}
