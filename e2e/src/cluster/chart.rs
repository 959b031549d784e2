//! The Helm chart that users install, rendered.

use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::Value;
use tokio::process::Command;

use crate::checkout::repository;
use crate::process::command::run;

/// The chart's folder in the checkout.
pub const CHART: &str = "charts/gamekeeper";

/// A helm command; the chart is `charts/gamekeeper` to it, as to the README's readers.
pub fn helm(helm: &Path) -> Command {
    let mut command = Command::new(helm);
    command.current_dir(repository());
    command
}

/// What the chart renders to, as release `gamekeeper` in namespace `gamekeeper-system`.
pub async fn render(program: &Path, more: &[&str]) -> Result<Vec<Value>> {
    let mut command = helm(program);
    // Built from its sources, as here, helm takes 1.20 for granted unless it is told.
    command
        .args(["template", "gamekeeper", CHART, "--kube-version=1.36"])
        .args(["--namespace=gamekeeper-system"])
        .args(more);
    let printed = run(&mut command, "").await?;
    let documents = serde_yaml_ng::Deserializer::from_str(&printed).map(Value::deserialize);
    let mut objects: Vec<Value> = documents
        .collect::<Result<_, _>>()
        .context("helm template prints YAML")?;
    objects.retain(|object| !object.is_null());
    Ok(objects)
}

/// The account, roles and bindings that users install, with all that hooks may be allowed to do.
pub async fn rights(program: &Path) -> Result<Vec<Value>> {
    let all = ["--set=crds.install=false", "--set=hooks.allSecrets=true"];
    let mut objects = render(program, &all).await?;
    let is_right = |kind: &str| kind.contains("Role") || kind == "ServiceAccount";
    objects.retain(|object| object["kind"].as_str().is_some_and(is_right));
    Ok(objects)
}
