//! The Helm chart that users install, rendered.

use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::Value;
use tokio::process::Command;

use crate::checkout::repository;
use crate::process::command::{go_command, run};

/// The chart's path in the repository.
pub const CHART: &str = "charts/gamekeeper";

/// A helm command that runs in the root of the repository.
pub fn helm(helm: &Path) -> Command {
    let mut command = go_command(helm);
    command.current_dir(repository());
    command
}

/// The objects of the chart, rendered as release `gamekeeper` in namespace `gamekeeper-system`.
pub async fn render(program: &Path, options: &[&str]) -> Result<Vec<Value>> {
    render_as(program, "gamekeeper", "gamekeeper-system", options).await
}

/// The objects of the chart, rendered as this release in this namespace.
pub async fn render_as(
    program: &Path,
    release: &str,
    namespace: &str,
    options: &[&str],
) -> Result<Vec<Value>> {
    let mut command = helm(program);
    template(&mut command, release, namespace, options);
    objects(&mut command).await
}

/// The objects of the chart, and its hooks, as Helm renders them when it installs the release in a cluster.
pub(super) async fn render_in_cluster(
    program: &Path,
    kubeconfig: &Path,
    (release, namespace): (&str, &str),
    options: &[&str],
) -> Result<Vec<Value>> {
    let mut command = helm(program);
    template(&mut command, release, namespace, options);
    command.arg("--dry-run=server").env("KUBECONFIG", kubeconfig);
    objects(&mut command).await
}

fn template(command: &mut Command, release: &str, namespace: &str, options: &[&str]) {
    // A helm that is built from source assumes Kubernetes 1.20.
    command
        .args(["template", release, CHART, "--kube-version=1.36"])
        .args(["--namespace", namespace])
        .args(options);
}

/// The objects that a command prints.
async fn objects(command: &mut Command) -> Result<Vec<Value>> {
    let printed = run(command, "").await?;
    let documents = serde_yaml_ng::Deserializer::from_str(&printed).map(object);
    let mut objects: Vec<Value> =
        documents.collect::<Result<_, _>>().context("helm template printed invalid YAML")?;
    objects.retain(|object| !object.is_null());
    Ok(objects)
}

/// Reads an object. A duplicate key is an error: YAML's own values refuse it, while JSON's keep the last one.
fn object(document: serde_yaml_ng::Deserializer) -> serde_yaml_ng::Result<Value> {
    serde_yaml_ng::from_value(serde_yaml_ng::Value::deserialize(document)?)
}

/// The chart's service account, roles and bindings, with all permissions that hooks may have.
pub async fn permissions(program: &Path) -> Result<Vec<Value>> {
    let options = [
        "--set=crds.install=false",
        "--set=hooks.allSecrets=true",
        "--set=hooks.exec={gamekeeper-system}",
    ];
    let mut objects = render(program, &options).await?;
    let is_permission = |kind: &str| kind.contains("Role") || kind == "ServiceAccount";
    objects.retain(|object| object["kind"].as_str().is_some_and(is_permission));
    Ok(objects)
}
