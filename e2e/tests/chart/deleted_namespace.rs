//! A user deletes the operator's namespace instead of the release: the runbook's commands remove what is left.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use e2e::case::Case;
use e2e::checkout::repository;
use e2e::cluster::chart::CHART;
use e2e::cluster::control_plane::ControlPlane;
use e2e::cluster::operator::Operator;
use e2e::documents::shell::Shell;
use e2e::documents::transcript::commands;
use e2e::process::command::run;

use super::{SYSTEM, guard};

/// The heading of the runbook.
const SECTION: &str = "The namespace of the operator was deleted";

#[e2e::test]
async fn what_a_deleted_namespace_leaves_behind_is_removed_as_documented(
    case: &mut Case,
) -> Result<()> {
    let plane = ControlPlane::empty("deleted").await?;
    let outcome = check(&plane, case.folder()).await;
    plane.stop().await?;
    outcome
}

async fn check(plane: &ControlPlane, folder: &Path) -> Result<()> {
    let install = format!("install gamekeeper {CHART} -n {SYSTEM} --create-namespace");
    let install: Vec<&str> = install.split(' ').collect();
    plane.helm(&install).await?;
    let mut operator = Operator::installed(plane, SYSTEM, "gamekeeper", folder).await?;
    operator.start().await?;
    guard::create_workload(plane).await?;
    operator.terminate().await?;
    plane.kubectl_line(&format!("delete namespace {SYSTEM}")).await?;
    let delete = ["delete", "pods", "--all", "-n", guard::NAMESPACE];
    let Err(error) = plane.kubectl(&delete, "").await else {
        bail!("guarded pods can be deleted");
    };
    ensure!(format!("{error:#}").contains("players may be on"), "{error:#}");

    let shell = Shell::admin(plane).await?;
    let runbooks = std::fs::read_to_string(repository().join("docs/operations.md"))?;
    let mut sections = runbooks.split("\n## ");
    let runbook = sections.find(|it| it.starts_with(SECTION));
    let documented = commands(runbook.context("no runbook")?)?;
    let (install, remove): (Vec<_>, Vec<_>) = documented
        .iter()
        .map(|it| it.command.as_str())
        .partition(|line| line.starts_with("helm install"));
    ensure!(install.len() == 1 && remove.len() == 5, "{documented:#?}");
    for line in remove {
        run(&mut shell.command(line), "").await?;
    }
    guard::ensure_nothing_left(plane).await?;
    plane.kubectl(&delete, "").await?;
    let left = "get clusterroles,clusterrolebindings,priorityclasses,flowschemas,validatingadmissionpolicies,\
        validatingadmissionpolicybindings,validatingwebhookconfigurations,mutatingwebhookconfigurations,roles,\
        rolebindings -A -l app.kubernetes.io/name=gamekeeper -o name";
    let left = plane.kubectl_line(left).await?;
    ensure!(left.is_empty(), "{left}");
    // The CRDs are left, and a new release takes them over.
    run(&mut shell.command(install[0]), "").await?;
    Ok(())
}
