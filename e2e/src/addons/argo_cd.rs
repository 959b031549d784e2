//! What Argo CD shows of an object and does with it: the scripts of `release/argo-cd`, run as Argo CD runs them.

pub mod controller;

use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use judge::object::text;
use serde_json::Value;
use tokio::process::Command;
use tokio::sync::OnceCell;

use crate::checkout::repository;
use crate::process::command::{go_command, run};

/// The field manager of the patches that Argo CD sends for an action.
pub const SERVER: &str = "argocd-server";

/// The folder of the scripts for objects of the group.
pub fn folder() -> PathBuf {
    repository().join("release/argo-cd/tkex.tencent.com")
}

/// The health of an object: its status, such as Healthy, and a message.
pub async fn health(object: &Value) -> Result<Value> {
    execute(object, &["health.lua"]).await
}

/// Fails unless the health of an object is one of these.
pub async fn ensure_health(object: &Value, expected: &[&str]) -> Result<()> {
    let found = health(object).await?;
    ensure!(expected.contains(&text(&found, "/status")), "{found}: {object:#}");
    Ok(())
}

/// The actions that are offered for an object, sorted.
pub async fn actions(object: &Value) -> Result<Vec<String>> {
    let found = execute(object, &["actions/discovery.lua"]).await?;
    let all = found.as_object().context("no table of actions")?;
    let enabled = all.iter().filter(|(_, action)| action["disabled"] == false);
    Ok(enabled.map(|(name, _)| name.clone()).collect())
}

/// The merge patch that an action sends.
pub async fn patch(object: &Value, action: &str) -> Result<Value> {
    execute(object, &["--action", &format!("actions/{action}/action.lua")]).await
}

async fn execute(object: &Value, arguments: &[&str]) -> Result<Value> {
    static PROGRAM: OnceCell<PathBuf> = OnceCell::const_new();
    let mut command = go_command(PROGRAM.get_or_try_init(build).await?);
    command.args(arguments).current_dir(folder().join(text(object, "/kind")));
    Ok(serde_json::from_str(&run(&mut command, &object.to_string()).await?)?)
}

async fn build() -> Result<PathBuf> {
    let mut build = Command::new(repository().join("e2e/argo-cd/build.sh"));
    let printed = run(build.stderr(Stdio::inherit()), "").await?;
    Ok(PathBuf::from(printed.trim()).join("argo-cd-lua"))
}
