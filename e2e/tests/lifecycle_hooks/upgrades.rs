//! Upgrades go node by node, wait until the games on a node have been moved, and keep the user's own cordons.

use anyhow::{Context, Result, ensure};
use e2e::case::Case;
use e2e::cluster::lifecycle::Stage;
use e2e::faults::{Script, WatchFault};
use e2e::servers::hook_server::Answer;
use e2e::wait::{LIMIT, consistently, eventually};
use e2e::workload::manifest::{Game, hook_template};
use serde_json::{Value, json};

use super::{DELETE_NODES, QUIET, cluster_one, upgrade_kubelet};

#[e2e::test]
async fn an_upgrade_goes_node_by_node(case: &mut Case) -> Result<()> {
    Stage::play("lifecycle-upgrade", case.folder(), upgrade).await
}

async fn upgrade(stage: &mut Stage) -> Result<()> {
    stage.kubectl(DELETE_NODES).await?;
    let mut cluster = cluster_one("/tmp/hooks/pre-install", json!({"ip": "127.0.0.1"}));
    cluster["spec"]["version"] = json!("1.36.3");
    cluster["spec"]["features"]["parallelism"] = json!(1);
    let script = "/tmp/hooks/pre-install";
    cluster["spec"]["features"]["hooks"] = json!({
        "PreClusterUpgrade": script, "PreUpgrade": script, "PostUpgrade": script, "PostClusterUpgrade": script,
    });
    stage.apply(&cluster).await?;
    stage.until_condition("one", "Ready", "True Installed").await?;
    stage.patch("one", json!({"version": "1.37.0"})).await?;
    for node in ["node-0", "node-1"] {
        stage.until_condition("one", "EnsureUpgrade", &format!("node {node} has version")).await?;
        stage.replace_operator().await?;
        upgrade_kubelet(stage, node).await?;
    }
    stage.until_condition("one", "EnsurePostClusterUpgradeHook", "True Passed").await?;
    stage.until_condition("one", "Ready", "True Installed").await?;
    eventually("the upgrade is over", LIMIT, async || {
        let status = stage.cluster("one").await?["status"].take();
        let is_over = status["phase"] == "Running" && status["version"] == "1.37.0";
        ensure!(is_over, "{status:#}");
        Ok(())
    })
    .await?;
    let runs = stage.created_runs()?;
    let upgrades: Vec<&str> = runs
        .iter()
        .filter(|run| run.contains("-upgrade-hook-"))
        .filter_map(|run| run.rsplit_once('-')?.0.rsplit_once('-'))
        .map(|(name, _)| name)
        .collect();
    let master = upgrades.first().and_then(|it| it.strip_prefix("pre-cluster-upgrade-hook-one-"));
    let master = master.with_context(|| format!("{upgrades:#?}"))?;
    let expected = [
        format!("pre-cluster-upgrade-hook-one-{master}"),
        "pre-upgrade-hook-one-node-0".to_owned(),
        "post-upgrade-hook-one-node-0".to_owned(),
        "pre-upgrade-hook-one-node-1".to_owned(),
        "post-upgrade-hook-one-node-1".to_owned(),
        format!("post-cluster-upgrade-hook-one-{master}"),
    ];
    ensure!(upgrades == expected, "{upgrades:#?}");
    Ok(())
}

#[e2e::test]
async fn a_node_is_upgraded_when_the_hooks_of_its_games_allow_it(case: &mut Case) -> Result<()> {
    let hook = hook_template("matches", &case.hooks.url("/matches"));
    case.hooks.answer("/matches", Answer::Json(json!({"age": 10})));
    let allow = || case.hooks.answer("/matches", Answer::Json(json!({"age": 45})));
    Stage::play("lifecycle-drain", case.folder(), async |stage| {
        upgrade_with_drain(stage, &hook, allow).await
    })
    .await
}

/// Guarded pods hold up the upgrade of their node until their hooks allow them to be moved.
async fn upgrade_with_drain(stage: &mut Stage, hook: &Value, allow: impl Fn()) -> Result<()> {
    stage.kubectl("delete node node-3 node-4").await?;
    // A user has cordoned this node.
    stage.kubectl("cordon node-2").await?;
    stage.apply(hook).await?;
    let game = Game::in_place(2).named("arena").max_unavailable(1);
    let game = game.pre_delete("matches").guarded();
    stage.apply(&game.into()).await?;
    stage
        .kubectl(
            "wait gamedeployment/arena --for=jsonpath={.status.protection.guarded}=2 --timeout=300s",
        )
        .await?;
    let mut cluster = cluster_one("/tmp/hooks/pre-install", json!({"ip": "127.0.0.1"}));
    cluster["spec"]["version"] = json!("1.36.3");
    let features = &mut cluster["spec"]["features"];
    features["parallelism"] = json!(1);
    features["hooks"] = json!({"PreUpgrade": "/tmp/hooks/pre-install"});
    features["upgrade"] = json!({"strategy": {"drainNodeBeforeUpgrade": true}});
    stage.apply(&cluster).await?;
    stage.until_condition("one", "Ready", "True Installed").await?;
    let pods = "get pods -l app=arena -o jsonpath={range.items[*]}{.metadata.uid}{.spec.nodeName}{'\\n'}{end}";
    let before = stage.kubectl(pods).await?;
    stage.patch("one", json!({"version": "1.37.0"})).await?;
    let mut has_waited = false;
    for node in ["node-0", "node-1", "node-2"] {
        if !has_waited && before.contains(node) {
            has_waited = true;
            let draining = format!("node {node} is being drained: ");
            stage.until_condition("one", "EnsurePreUpgradeHook", &draining).await?;
            consistently("the matches go on, and nothing starts", QUIET, async || {
                ensure!(stage.kubectl(pods).await? == before, "a pod was replaced");
                let runs = stage.created_runs()?;
                let upgrade = format!("pre-upgrade-hook-one-{node}-");
                ensure!(!runs.iter().any(|it| it.starts_with(&upgrade)), "{runs:#?}");
                Ok(())
            })
            .await?;
            stage.replace_operator().await?;
            allow();
        }
        stage.until_condition("one", "EnsureUpgrade", &format!("node {node} has version")).await?;
        let left = format!("get pods -l app=arena --field-selector spec.nodeName={node} -o name");
        let left = stage.kubectl(&left).await?;
        ensure!(left.is_empty(), "left on {node}: {left}");
        let cordoned = format!("get node {node} -o jsonpath={{.spec.unschedulable}}");
        ensure!(stage.kubectl(&cordoned).await? == "true", "{node} is not cordoned");
        upgrade_kubelet(stage, node).await?;
    }
    ensure!(has_waited, "no node had a pod: {before}");
    stage.until_condition("one", "Ready", "True Installed").await?;
    let cordons = "get nodes -o jsonpath={.items[?(@.spec.unschedulable)].metadata.name}";
    let cordons = stage.kubectl(cordons).await?;
    ensure!(cordons == "node-2", "cordoned: {cordons}");
    Ok(())
}

#[e2e::test]
async fn a_node_is_not_upgraded_while_the_cache_lacks_its_games(case: &mut Case) -> Result<()> {
    Stage::play("lifecycle-stale", case.folder(), upgrade_with_a_stale_cache).await
}

/// The operator's watch of pods stalls before the games start, so its cache shows no pods on the node.
async fn upgrade_with_a_stale_cache(stage: &mut Stage) -> Result<()> {
    let proxy = stage.plane.fault_proxy().await?;
    stage.operator.use_proxy(&proxy)?;
    stage.replace_operator().await?;
    stage.kubectl(DELETE_NODES).await?;
    let mut cluster = cluster_one("/tmp/hooks/pre-install", json!({"ip": "127.0.0.1"}));
    cluster["spec"]["version"] = json!("1.36.3");
    let features = &mut cluster["spec"]["features"];
    features["parallelism"] = json!(1);
    features["hooks"] = json!({"PreUpgrade": "/tmp/hooks/pre-install"});
    features["upgrade"] = json!({"strategy": {"drainNodeBeforeUpgrade": true}});
    stage.apply(&cluster).await?;
    stage.until_condition("one", "Ready", "True Installed").await?;
    // The operator has compared its caches with the API server, because it has installed the cluster. Until it has
    // done so, it would not plan while a watch stalls.
    proxy.play(Script::default().watching("pods", WatchFault::Stall, 0.0, 600.0));
    stage.kubectl("cordon node-1").await?;
    stage.apply(&Game::in_place(1).named("arena").into()).await?;
    let on_node = "get pods -l app=arena --field-selector spec.nodeName=node-0 -o name";
    eventually("the game is on node-0", LIMIT, async || {
        let pods = stage.kubectl(on_node).await?;
        ensure!(!pods.is_empty(), "no pod");
        Ok(())
    })
    .await?;
    stage.kubectl("uncordon node-1").await?;
    stage.patch("one", json!({"version": "1.37.0"})).await?;
    let cordoned = "get node node-0 -o jsonpath={.spec.unschedulable}";
    eventually("node-0 is cordoned", LIMIT, async || {
        ensure!(stage.kubectl(cordoned).await? == "true");
        Ok(())
    })
    .await?;
    consistently("no script starts", QUIET, async || {
        let runs = stage.created_runs()?;
        let is_upgrade = |run: &String| run.starts_with("pre-upgrade-hook-one-node-0-");
        ensure!(!runs.iter().any(is_upgrade), "{runs:#?}");
        Ok(())
    })
    .await?;
    proxy.heal();
    stage.until_condition("one", "EnsureUpgrade", "node node-0 has version").await?;
    let left = stage.kubectl(on_node).await?;
    ensure!(left.is_empty(), "left on node-0: {left}");
    Ok(())
}
