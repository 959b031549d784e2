//! Releases that Helm uninstalls: its hook removes the guards, and a Job whose pod cannot run fails in time, without
//! harm.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use e2e::case::Case;
use e2e::cluster::chart::CHART;
use e2e::cluster::control_plane::ControlPlane;
use e2e::cluster::operator::Operator;
use e2e::process::command::run;
use e2e::wait::{LIMIT, eventually};
use serde_json::Value;
use tokio::process::Command;

use super::rendered::{arguments, words};
use super::{SYSTEM, guard};

#[e2e::test]
async fn an_uninstallation_whose_job_cannot_run_fails_and_can_be_repeated(
    case: &mut Case,
) -> Result<()> {
    let plane = ControlPlane::empty("removal").await?;
    let outcome = check(&plane, case.folder()).await;
    plane.stop().await?;
    outcome
}

async fn check(plane: &ControlPlane, folder: &Path) -> Result<()> {
    let helm = async |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        plane.helm(&words).await
    };
    plane.create_namespace(SYSTEM).await?;
    // No node has this label, so no pod can be scheduled.
    let values = "nodeSelector.pool=absent,uninstall.deadlineSeconds=10";
    helm(&format!("install gamekeeper {CHART} -n {SYSTEM} --set {values}")).await?;
    let mut operator = Operator::installed(plane, SYSTEM, "gamekeeper", folder).await?;
    operator.start().await?;
    guard::create_workload(plane).await?;

    let uninstall = format!("uninstall gamekeeper -n {SYSTEM}");
    let error = refusal(helm(&uninstall).await)?;
    ensure!(error.contains("DeadlineExceeded"), "{error}");
    ensure_runs(plane).await?;
    guard::ensure_guarded(plane).await?;

    // As docs/operations.md says.
    let upgrade = format!(
        "upgrade gamekeeper {CHART} -n {SYSTEM} --reuse-values --set uninstall.deadlineSeconds=120"
    );
    let error = refusal(helm(&upgrade).await)?;
    ensure!(error.contains("has no deployed releases"), "{error}");
    helm(&format!("rollback gamekeeper 1 -n {SYSTEM}")).await?;
    helm(&upgrade).await?;
    guard::ensure_guarded(plane).await?;

    let (uninstalled, hook) = tokio::join!(helm(&uninstall), run_hook(plane, &operator));
    hook?;
    uninstalled?;
    guard::ensure_nothing_left(plane).await
}

fn refusal(result: Result<String>) -> Result<String> {
    match result {
        Ok(printed) => bail!("it was not refused: {printed}"),
        Err(error) => Ok(format!("{error:#}")),
    }
}

async fn deployment(plane: &ControlPlane) -> Result<Value> {
    let path = format!("/apis/apps/v1/namespaces/{SYSTEM}/deployments/gamekeeper");
    plane.get(&path).await
}

async fn ensure_runs(plane: &ControlPlane) -> Result<()> {
    let deployment = deployment(plane).await?;
    ensure!(deployment["spec"]["replicas"] == 2, "{deployment:#}");
    Ok(())
}

/// Does what the pod of the Job and the operator's pods would do, as simulated nodes run no programs: runs the command
/// of the Job, and ends the operator when its Deployment is scaled to 0. Then lets the simulated pod run.
async fn run_hook(plane: &ControlPlane, operator: &Operator) -> Result<()> {
    let jobs = format!("/apis/batch/v1/namespaces/{SYSTEM}/jobs");
    let job = eventually("Helm creates the Job", LIMIT, async || {
        let list = plane.get(&jobs).await?;
        let jobs = list["items"].as_array().context("no list")?;
        let has_ended = |job: &&Value| !job["status"]["conditions"].is_null();
        let job = jobs.iter().find(|job| !has_ended(job));
        job.cloned().context("no Job runs")
    })
    .await?;
    let args = arguments(&job)?;
    // The command waits for the operator to stop.
    let (done, ended) = {
        let scaled = eventually("the Deployment is scaled to 0", LIMIT, async || {
            let deployment = deployment(plane).await?;
            ensure!(deployment["spec"]["replicas"] == 0, "{deployment:#}");
            Ok(())
        });
        let args = words(&args);
        let command = operator.run(&args);
        tokio::pin!(command);
        tokio::select! {
            done = &mut command => bail!("the command did not wait for the operator: {done:?}"),
            scaled = scaled => scaled?,
        }
        // `terminate` needs the operator for itself, but its command runs.
        let id = operator.id()?.to_string();
        let mut kill = Command::new("kill");
        kill.args(["-TERM", &id]);
        let ended = run(&mut kill, "").await;
        (command.await?, ended)
    };
    ended?;
    ensure!(done.code == 0, "{done:?}");
    plane.kubectl_line("label node node-0 pool=absent").await?;
    Ok(())
}
