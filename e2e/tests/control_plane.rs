//! The control planes of the tests themselves.

use anyhow::{Context, Result, ensure};
use e2e::case::Case;
use e2e::cluster::control_plane::ControlPlane;
use e2e::process::command::run;
use tokio::process::Command;

/// As if a component had ended, and its process ID had come again.
#[e2e::test]
async fn stopping_one_spares_a_process_that_has_the_id_of_a_component(_: &mut Case) -> Result<()> {
    let plane = ControlPlane::empty("ids").await?;
    let folder = plane.kubeconfig.parent().context("no folder")?;
    let file = folder.join("pids/kube-scheduler.pid");
    run(Command::new("kill").arg("-KILL").arg(std::fs::read_to_string(&file)?), "").await?;
    let mut other = Command::new("sleep").arg("600").kill_on_drop(true).spawn()?;
    std::fs::write(&file, other.id().context("it has ended")?.to_string())?;
    plane.stop().await?;
    let ended = other.try_wait()?;
    ensure!(ended.is_none(), "{ended:?}");
    Ok(())
}
