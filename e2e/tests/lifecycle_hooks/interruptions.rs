//! What interrupts scripts: an operator that is killed, and a node that is lost.

use anyhow::{Result, ensure};
use e2e::case::Case;
use e2e::cluster::lifecycle::{HOOKS, Stage};
use e2e::wait::{LIMIT, consistently, eventually};
use judge::object::text;
use serde_json::json;

use super::{DELETE_NODES, QUIET, cluster_one, upgrade_kubelet};

#[e2e::test]
async fn an_operator_that_is_killed_repeatedly_runs_no_script_twice(case: &mut Case) -> Result<()> {
    Stage::play("lifecycle-killed", case.folder(), kill_repeatedly).await
}

/// Takes a Cluster from installation to deletion, and replaces the operator again and again.
async fn kill_repeatedly(stage: &mut Stage) -> Result<()> {
    stage.kubectl(DELETE_NODES).await?;
    let script = "/tmp/hooks/pre-install";
    let mut cluster = cluster_one(script, json!({"ip": "127.0.0.1"}));
    cluster["spec"]["version"] = json!("1.36.3");
    let features = &mut cluster["spec"]["features"];
    features["parallelism"] = json!(1);
    features["upgrade"] = json!({"strategy": {"drainNodeBeforeUpgrade": true}});
    for hook in ["PostClusterInstall", "PreUpgrade", "PreClusterDelete"] {
        features["hooks"][hook] = json!(script);
    }
    stage.apply(&cluster).await?;
    let mut kills = kill_until(stage, async |stage| {
        let ready = stage.condition("one", "Ready").await;
        Ok(ready.is_ok_and(|it| it.starts_with("True")))
    })
    .await?;
    stage.patch("one", json!({"version": "1.37.0"})).await?;
    kills += kill_until(stage, async |stage| {
        let step = stage.condition("one", "EnsureUpgrade").await;
        for node in ["node-0", "node-1"] {
            let awaited = format!("node {node} has version");
            if step.as_ref().is_ok_and(|it| it.contains(&awaited)) {
                upgrade_kubelet(stage, node).await?;
            }
        }
        let status = stage.cluster("one").await?["status"].take();
        Ok(status["version"] == "1.37.0")
    })
    .await?;
    stage.kubectl("delete cluster one --wait=false").await?;
    kills += kill_until(stage, async |stage| {
        let found = stage.kubectl("get clusters -o name").await?;
        Ok(found.is_empty())
    })
    .await?;

    let nodes = stage.kubectl("get nodes -o json").await?;
    ensure!(
        !nodes.contains("lifecycle-record") && !nodes.contains("\"unschedulable\": true"),
        "{nodes}"
    );
    let mut runs = stage.created_runs()?;
    let names = ["copy-files", "pre-install-hook", "pre-upgrade-hook"];
    let expected = 2 * names.len() + 2;
    let are_first_attempts = runs.iter().all(|it| it.ends_with("-1"));
    // On a slow machine, the test sees several writes at once, so there are fewer kills than writes.
    let enough_kills = kills > expected;
    ensure!(enough_kills && are_first_attempts, "{kills} kills: {runs:#?}");
    ensure!(runs.len() == expected, "{runs:#?}");
    runs.sort();
    runs.dedup();
    ensure!(runs.len() == expected, "{runs:#?}");
    Ok(())
}

/// Replaces the operator whenever it has written, until `is_over`. Returns the number of replacements.
async fn kill_until(
    stage: &mut Stage,
    is_over: impl AsyncFn(&Stage) -> Result<bool>,
) -> Result<usize> {
    let (mut kills, mut known_writes) = (0, writes(stage)?);
    while !eventually("the operator writes, or the phase is over", LIMIT, async || {
        let is_over = is_over(stage).await?;
        let now = writes(stage)?;
        ensure!(is_over || now > known_writes, "{now} writes");
        known_writes = now;
        Ok(is_over)
    })
    .await?
    {
        stage.replace_operator().await?;
        kills += 1;
    }
    Ok(kills)
}

/// Waits until the Job of a run exists. The Cluster's status says that an attempt is in progress before its run is
/// created. If the script were canceled while its Job is being created, it might still start.
async fn until_job_exists(stage: &Stage, run_prefix: &str) -> Result<()> {
    eventually("the Job of the run exists", LIMIT, async || {
        let jobs = stage.jobs().await?;
        let mut names = jobs.iter().map(|job| text(job, "/metadata/name"));
        ensure!(names.any(|it| it.starts_with(run_prefix)), "{jobs:#?}");
        Ok(())
    })
    .await
}

/// The number of the operator's writes to Clusters and nodes, and in the namespace of the scripts.
fn writes(stage: &Stage) -> Result<usize> {
    let operator = stage.operator.username();
    let mut writes = stage.plane.audit.writes("")?;
    writes.extend(stage.plane.audit.writes(HOOKS)?);
    writes.retain(|event| event.user.username == operator);
    Ok(writes.len())
}

#[e2e::test]
async fn a_script_on_a_lost_node_holds_the_step_until_the_node_is_deleted(
    case: &mut Case,
) -> Result<()> {
    Stage::play("lifecycle-lost", case.folder(), lose_node).await
}

async fn lose_node(stage: &mut Stage) -> Result<()> {
    stage.kubectl(DELETE_NODES).await?;
    let slow = "/tmp/hooks/pre-install --kwok-seconds=600";
    let mut cluster = cluster_one(slow, json!({"ip": "127.0.0.1"}));
    cluster["spec"]["features"]["parallelism"] = json!(1);
    stage.apply(&cluster).await?;
    let step = "EnsurePreInstallHook";
    let running = "on node node-0, attempt 1 in progress";
    stage.until_condition("one", step, running).await?;
    until_job_exists(stage, "pre-install-hook-one-node-0-").await?;
    let lose = "label node node-0 stage.gamekeeper/lost=true";
    stage.kubectl(lose).await?;
    let lost = "attempt 1 in progress: node node-0 is lost";
    stage.until_condition("one", step, lost).await?;
    let before = stage.created_runs()?;
    consistently("nothing starts elsewhere", QUIET, async || {
        let now = stage.created_runs()?;
        ensure!(now == before, "{now:#?}");
        Ok(())
    })
    .await?;
    // A new operator knows of the attempt in progress.
    stage.replace_operator().await?;
    stage.kubectl("delete node node-0").await?;
    let other = "on node node-1, attempt 1 in progress; passed on 0 of 1 nodes";
    stage.until_condition("one", step, other).await?;
    until_job_exists(stage, "pre-install-hook-one-node-1-").await?;
    // An edit cancels an attempt in progress.
    let hooks = json!({"hooks": {"PreInstall": "/tmp/hooks/pre-install"}});
    stage.patch("one", json!({"features": hooks})).await?;
    stage.until_condition("one", "Ready", "True Installed").await?;
    let runs = stage.created_runs()?;
    let is_pre_install = |run: &&String| run.starts_with("pre-install-hook-one-");
    let count_on = |node: &str| {
        let part = format!("-{node}-");
        runs.iter().filter(is_pre_install).filter(|it| it.contains(&part)).count()
    };
    ensure!([count_on("node-0"), count_on("node-1")] == [1, 2], "{runs:#?}");
    Ok(())
}
