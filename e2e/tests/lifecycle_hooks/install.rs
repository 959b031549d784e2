//! From installation to deletion: order, names and arguments of scripts, and nodes that join and leave.

use anyhow::{Context, Result, ensure};
use e2e::case::Case;
use e2e::cluster::lifecycle::{HOOKS, Stage};
use e2e::wait::{LIMIT, consistently, eventually};
use judge::object::text;
use serde_json::{Value, json};

use super::{DELETE_NODES, QUIET, apply_example, has_read_clusters, node};

#[e2e::test]
async fn the_examples_run_from_install_to_deletion(case: &mut Case) -> Result<()> {
    Stage::play("lifecycle", case.folder(), lifecycle).await
}

async fn lifecycle(stage: &mut Stage) -> Result<()> {
    stage.kubectl(DELETE_NODES).await?;
    apply_example(stage, "directories").await?;
    // The first machine has no node yet.
    let missing = "spec.machines[0].ip: no node has the address 10.0.0.9";
    stage.until_condition("xa", "EnsurePreClusterInstallHook", missing).await?;
    stage.apply(&node("master-0", "10.0.0.9", json!([]))).await?;
    stage.until_condition("xa", "Ready", "True Installed").await?;
    for step in ["PreInstall", "PostInstall"] {
        let condition = stage.condition("xa", &format!("Ensure{step}Hook")).await?;
        ensure!(condition == "True Passed: passed on 3 of 3 nodes", "{condition}");
    }
    let table = stage.kubectl("get clusters").await?;
    let row: Vec<&str> = table.lines().nth(1).unwrap_or_default().split_whitespace().collect();
    ensure!(row.len() > 4 && row[..5] == ["xa", "Running", "3", "3", "master-0"], "{table}");

    let runs = stage.created_runs()?;
    let first = |prefix: &str| {
        let found = runs.iter().position(|run| run.starts_with(prefix));
        found.with_context(|| format!("no {prefix} in {runs:#?}"))
    };
    let last = |prefix: &str| {
        let found = runs.iter().rposition(|run| run.starts_with(prefix));
        found.with_context(|| format!("no {prefix} in {runs:#?}"))
    };
    ensure!(runs.len() == 3 * 3 + 2, "{runs:#?}");
    let pre_cluster = first("pre-cluster-install-hook-xa-master-0-")?;
    let post_cluster = first("post-cluster-install-hook-xa-master-0-")?;
    ensure!(last("copy-files-xa-")? < pre_cluster, "{runs:#?}");
    ensure!(pre_cluster < first("pre-install-hook-xa-")?, "{runs:#?}");
    ensure!(last("post-install-hook-xa-")? < post_cluster, "{runs:#?}");
    for node in ["master-0", "node-0", "node-1"] {
        let [pre, post] =
            ["pre", "post"].map(|point| first(&format!("{point}-install-hook-xa-{node}-")));
        ensure!(pre? < post?, "{node}: {runs:#?}");
    }
    check_job(stage).await?;
    nodes_join_and_leave(stage).await?;
    deletion(stage).await
}

/// Checks the node's record, and the Job of a cluster hook, whose script gets the Cluster's labels and annotations as
/// arguments.
async fn check_job(stage: &Stage) -> Result<()> {
    let jobs = stage.jobs().await?;
    let is_pre_cluster_install =
        |job: &&Value| text(job, "/metadata/name").starts_with("pre-cluster-install-hook-xa");
    let job = jobs.iter().find(is_pre_cluster_install).context("no Job of PreClusterInstall")?;
    let container = &job["spec"]["template"]["spec"]["containers"][0];
    let expected = json!([
        "node-hook",
        "--copy",
        "/sources/configmap-hooks-pre",
        "/tmp/hooks/pre",
        "--copy",
        "/sources/configmap-hooks-post",
        "/tmp/hooks/post",
        "--",
        "/tmp/hooks/pre/cluster-pre-install",
        "location=xa",
        "node.alpha.kubernetes.io/test=hello",
    ]);
    ensure!(container["args"] == expected, "{container:#}");
    ensure!(text(container, "/image").starts_with("registry.test/gamekeeper:"), "{container:#}");
    let node = stage.kubectl("get node master-0 -o json").await?;
    let node: Value = serde_json::from_str(&node)?;
    let record = "/metadata/annotations/gamekeeper.tkex.tencent.com~1lifecycle-record";
    let record: Value = serde_json::from_str(text(&node, record))?;
    ensure!(record["installed"] == true && record["passed"].is_array(), "{record}");
    Ok(())
}

/// A settled Cluster is not written to. A node that joins is installed, and then loses its taint. An installed node
/// that is lost or cordoned does not hold up a node that joins. Deleted nodes no longer count.
async fn nodes_join_and_leave(stage: &mut Stage) -> Result<()> {
    let before = stage.cluster("xa").await?;
    consistently("the Cluster does not change", QUIET, async || {
        let now = stage.cluster("xa").await?;
        let version = "/metadata/resourceVersion";
        ensure!(text(&now, version) == text(&before, version), "{now:#}");
        Ok(())
    })
    .await?;
    let taint = json!([
        {"key": "gamekeeper.tkex.tencent.com/not-installed", "effect": "NoSchedule"},
        {"key": "other", "effect": "NoSchedule"},
    ]);
    let new = node("node-9", "10.0.0.19", taint);
    stage.apply(&new).await?;
    // A new operator continues.
    stage.replace_operator().await?;
    ensure!(has_read_clusters(stage.plane)?, "no watch of Clusters is logged");
    stage.until_condition("xa", "EnsurePostInstallHook", "4 of 4").await?;
    eventually("the taint is removed", LIMIT, async || {
        let keys = stage.kubectl("get node node-9 -o jsonpath={.spec.taints[*].key}").await?;
        ensure!(!keys.contains("not-installed") && keys.contains("other"), "{keys}");
        Ok(())
    })
    .await?;
    let runs = stage.created_runs()?;
    let on_new_node = runs.iter().filter(|run| run.contains("-xa-node-9-"));
    ensure!(on_new_node.count() == 3 && runs.len() == 14, "{runs:#?}");

    stage.kubectl("cordon node-1").await?;
    stage.kubectl("label node node-0 stage.gamekeeper/lost=true").await?;
    stage.apply(&node("node-8", "10.0.0.18", json!([]))).await?;
    stage.until_condition("xa", "Ready", "True Installed").await?;
    stage.until_condition("xa", "EnsurePostInstallHook", "5 of 5").await?;
    stage.kubectl("delete node node-0 node-8").await?;
    stage.until_condition("xa", "EnsurePostInstallHook", "3 of 3").await?;
    Ok(())
}

/// Delete hooks run on the first master. The Cluster is removed only after they have passed.
async fn deletion(stage: &mut Stage) -> Result<()> {
    let hooks = json!({
        "PreClusterDelete": "/tmp/hooks/pre/bye --kwok-exit=4 --kwok-message=busy",
        "PostClusterDelete": "/tmp/hooks/post/gone",
    });
    stage.patch("xa", json!({"features": {"hooks": hooks}})).await?;
    stage.kubectl("delete cluster xa --wait=false").await?;
    let failed = "False FailedDelete: exec \"/tmp/hooks/pre/bye\" on node master-0 failed: exit 4: busy; attempt ";
    stage.until_condition("xa", "EnsurePreClusterDeleteHook", failed).await?;
    let hooks = json!({"PreClusterDelete": "/tmp/hooks/pre/bye"});
    stage.patch("xa", json!({"features": {"hooks": hooks}})).await?;
    stage.kubectl("wait cluster/xa --for=delete --timeout=300s").await?;
    let runs = stage.created_runs()?;
    let last = runs.last().map(String::as_str).unwrap_or_default();
    ensure!(last.starts_with("post-cluster-delete-hook-xa-master-0-"), "{runs:#?}");
    let nodes = stage.kubectl("get nodes -o json").await?;
    ensure!(!nodes.contains("lifecycle-record"), "{nodes}");
    eventually("the HookRuns are deleted with the Cluster", LIMIT, async || {
        let left = stage.kubectl(&format!("get hookruns,jobs -n {HOOKS} -o name")).await?;
        ensure!(left.is_empty(), "{left}");
        Ok(())
    })
    .await
}
