//! Lifecycle hooks of Clusters. Each test has a control plane of its own, with the operator as the chart installs it.
//! Simulated nodes run no scripts: the script's arguments say how it ends, such as `--kwok-exit=3`.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::case::Case;
use e2e::checkout::repository;
use e2e::cluster::chart::CHART;
use e2e::cluster::control_plane::ControlPlane;
use e2e::cluster::operator::Operator;
use e2e::process::command::run;
use e2e::wait::{consistently, eventually};
use judge::object::text;
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::time::timeout;

e2e::tests![
    the_examples_run_from_install_to_deletion,
    a_failing_script_is_shown_retried_and_skipped,
    an_upgrade_goes_node_by_node,
    a_node_is_drained_before_its_upgrade,
    an_operator_that_is_killed_after_each_write_repeats_no_script,
    a_disabled_feature_adds_nothing_to_the_chart,
    bootstrap_scripts_are_helm_hooks,
];

const SYSTEM: &str = "gamekeeper-system";
const HOOKS: &str = "gamekeeper-hooks";
const LIMIT: Duration = Duration::from_secs(60);
/// How long an object must not change.
const QUIET: Duration = Duration::from_secs(3);

/// A control plane with the chart's operator.
struct Stage {
    plane: ControlPlane,
    operator: Operator,
}

impl Stage {
    async fn start(name: &str, folder: &Path) -> Result<Self> {
        let plane = ControlPlane::empty(name).await?;
        let install = [
            "install",
            "gamekeeper",
            CHART,
            "--namespace",
            SYSTEM,
            "--create-namespace",
            "--set=lifecycleHooks.enabled=true",
            // Its Service would not reach the operator, which runs outside of the cluster.
            "--set=admission.enabled=false",
            "--set=image.repository=registry.example/gamekeeper",
        ];
        plane.helm(&install).await?;
        let wait = ["wait", "--for=condition=Established", "crd", "--all"];
        // Right after its creation a CRD has no conditions, which kubectl wait reports as an error.
        let established = async || plane.kubectl(&wait, "").await;
        eventually("the CRDs are established", LIMIT, established).await?;
        let mut operator = Operator::installed(&plane, SYSTEM, "gamekeeper", folder).await?;
        operator.start().await?;
        Ok(Self { plane, operator })
    }

    async fn kubectl(&self, line: &str) -> Result<String> {
        let words: Vec<&str> = line.split(' ').collect();
        self.plane.kubectl(&words, "").await
    }

    async fn apply(&self, object: &Value) -> Result<String> {
        let object = object.to_string();
        self.plane.kubectl(&["apply", "-f", "-"], &object).await
    }

    /// Merges fields into a Cluster's spec.
    async fn patch(&self, cluster: &str, spec: Value) -> Result<()> {
        let patch = json!({"spec": spec}).to_string();
        let words = ["patch", "cluster", cluster, "--type=merge", "-p", &patch];
        self.plane.kubectl(&words, "").await?;
        Ok(())
    }

    async fn apply_example(&self, name: &str) -> Result<()> {
        let folder = repository().join("examples/lifecycle").join(name);
        self.kubectl(&format!("apply -f {}", folder.display()))
            .await?;
        Ok(())
    }

    async fn cluster(&self, name: &str) -> Result<Value> {
        let path = format!("/apis/tkex.tencent.com/v1alpha1/clusters/{name}");
        self.plane.get(&path).await
    }

    /// Status, reason and message of a condition.
    async fn condition(&self, cluster: &str, type_: &str) -> Result<String> {
        let cluster = self.cluster(cluster).await?;
        let conditions = cluster["status"]["conditions"].as_array();
        let mut conditions = conditions.into_iter().flatten();
        let found = conditions.find(|it| it["type"] == type_);
        let found = found.with_context(|| format!("no {type_} in {:#}", cluster["status"]))?;
        let [status, reason, message] =
            ["/status", "/reason", "/message"].map(|field| text(found, field));
        Ok(format!("{status} {reason}: {message}"))
    }

    async fn until_condition(&self, cluster: &str, type_: &str, words: &str) -> Result<String> {
        eventually(&format!("{type_} has {words:?}"), LIMIT, async || {
            let condition = self.condition(cluster, type_).await?;
            ensure!(condition.contains(words), "{condition}");
            Ok(condition)
        })
        .await
    }

    /// The names of all HookRuns that were created, in order.
    fn created_runs(&self) -> Result<Vec<String>> {
        let writes = self.plane.audit.writes(HOOKS)?;
        let created = writes.iter().filter(|event| {
            event.verb == "create" && event.resource() == "hookruns" && event.succeeded()
        });
        let objects = created.filter_map(|event| event.response_object.as_ref());
        Ok(objects
            .map(|run| text(run, "/metadata/name").to_owned())
            .collect())
    }

    async fn jobs(&self) -> Result<Vec<Value>> {
        let path = format!("/apis/batch/v1/namespaces/{HOOKS}/jobs");
        let jobs = self.plane.get(&path).await?;
        Ok(jobs["items"].as_array().cloned().unwrap_or_default())
    }

    async fn upgrade_kubelet(&self, node: &str) -> Result<()> {
        let version = json!({"status": {"nodeInfo": {"kubeletVersion": "v1.37.0"}}}).to_string();
        let patch = [
            "patch",
            "node",
            node,
            "--subresource=status",
            "--type=merge",
            "-p",
            &version,
        ];
        self.plane.kubectl(&patch, "").await?;
        Ok(())
    }

    async fn stop(self) -> Result<()> {
        self.plane.stop().await
    }
}

async fn the_examples_run_from_install_to_deletion(case: &mut Case) -> Result<()> {
    let mut stage = Stage::start("lifecycle", case.folder()).await?;
    let outcome = life(&mut stage).await;
    stage.stop().await?;
    outcome
}

/// The node that the example's first machine names.
fn node(name: &str, address: &str, taints: Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/os": "linux", "kubernetes.io/hostname": name},
            "annotations": {"stage.gamekeeper/address": address},
        },
        "spec": {"podCIDR": "127.40.0.0/16", "taints": taints},
    })
}

async fn life(stage: &mut Stage) -> Result<()> {
    stage.kubectl("delete node node-2 node-3 node-4").await?;
    stage.apply_example("directories").await?;
    // The first machine has no node yet.
    let missing = "spec.machines[0].ip: no node has the address 10.0.0.9";
    stage
        .until_condition("xa", "EnsurePreClusterInstallHook", missing)
        .await?;
    stage
        .apply(&node("master-0", "10.0.0.9", json!([])))
        .await?;
    stage
        .until_condition("xa", "Ready", "True Installed")
        .await?;
    for step in ["PreInstall", "PostInstall"] {
        let condition = stage.condition("xa", &format!("Ensure{step}Hook")).await?;
        ensure!(
            condition == "True Passed: passed on 3 of 3 nodes",
            "{condition}"
        );
    }
    let table = stage.kubectl("get clusters").await?;
    let row: Vec<&str> = table
        .lines()
        .nth(1)
        .unwrap_or_default()
        .split_whitespace()
        .collect();
    ensure!(
        row.len() > 4 && row[..5] == ["xa", "Running", "3", "3", "master-0"],
        "{table}"
    );

    let runs = stage.created_runs()?;
    let at = |prefix: &str| {
        let found = runs.iter().position(|run| run.starts_with(prefix));
        found.with_context(|| format!("no {prefix} in {runs:#?}"))
    };
    let last = |prefix: &str| runs.iter().rposition(|run| run.starts_with(prefix));
    ensure!(runs.len() == 3 * 3 + 2, "{runs:#?}");
    let before = at("pre-cluster-install-hook-xa-master-0-")?;
    let after = at("post-cluster-install-hook-xa-master-0-")?;
    ensure!(last("copy-files-xa-") < Some(before), "{runs:#?}");
    ensure!(before < at("pre-install-hook-xa-")?, "{runs:#?}");
    ensure!(last("post-install-hook-xa-") < Some(after), "{runs:#?}");
    for node in ["master-0", "node-0", "node-1"] {
        let [pre, post] =
            ["pre", "post"].map(|point| at(&format!("{point}-install-hook-xa-{node}-")));
        ensure!(pre? < post?, "{node}: {runs:#?}");
    }
    check_job(stage).await?;
    joins_and_leaves(stage).await?;
    deletion(stage).await
}

/// Checks the Job of a cluster hook: labels and annotations are the script's arguments.
async fn check_job(stage: &Stage) -> Result<()> {
    let jobs = stage.jobs().await?;
    let is_wanted =
        |job: &&Value| text(job, "/metadata/name").starts_with("pre-cluster-install-hook-xa");
    let job = jobs
        .iter()
        .find(is_wanted)
        .context("no Job of PreClusterInstall")?;
    let container = &job["spec"]["template"]["spec"]["containers"][0];
    let expected = json!([
        "node-hook",
        "--copy",
        "/sources/0",
        "/tmp/hooks/pre",
        "--copy",
        "/sources/1",
        "/tmp/hooks/post",
        "--",
        "/tmp/hooks/pre/cluster-pre-install",
        "location=xa",
        "node.alpha.kubernetes.io/test=hello",
    ]);
    ensure!(container["args"] == expected, "{container:#}");
    ensure!(
        text(container, "/image").starts_with("registry.example/gamekeeper:"),
        "{container:#}"
    );
    let node = stage.kubectl("get node master-0 -o json").await?;
    let node: Value = serde_json::from_str(&node)?;
    let record = "/metadata/annotations/gamekeeper.tkex.tencent.com~1lifecycle-record";
    let record: Value = serde_json::from_str(text(&node, record))?;
    ensure!(
        record["installed"] == true && record["passed"].is_array(),
        "{record}"
    );
    Ok(())
}

/// A node that joins is installed, and then loses its taint. Steps wait for a lost node until it is deleted. A settled
/// Cluster is not written to.
async fn joins_and_leaves(stage: &mut Stage) -> Result<()> {
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
    // A new leader continues.
    stage.operator.kill().await?;
    stage.operator.start().await?;
    eventually("the taint is gone", LIMIT, async || {
        let keys = stage
            .kubectl("get node node-9 -o jsonpath={.spec.taints[*].key}")
            .await?;
        ensure!(
            !keys.contains("not-installed") && keys.contains("other"),
            "{keys}"
        );
        Ok(())
    })
    .await?;
    stage
        .until_condition("xa", "EnsurePostInstallHook", "4 of 4")
        .await?;
    let runs = stage.created_runs()?;
    let of_new = runs.iter().filter(|run| run.contains("-xa-node-9-"));
    ensure!(of_new.count() == 3 && runs.len() == 14, "{runs:#?}");

    stage.kubectl("cordon node-1").await?;
    stage
        .kubectl("label node node-0 stage.gamekeeper/lost=true")
        .await?;
    stage.apply(&node("node-8", "10.0.0.18", json!([]))).await?;
    stage
        .until_condition("xa", "Ready", "True Installed")
        .await?;
    stage
        .until_condition("xa", "EnsurePostInstallHook", "5 of 5")
        .await?;
    stage.kubectl("delete node node-0 node-8").await?;
    stage
        .until_condition("xa", "EnsurePostInstallHook", "3 of 3")
        .await?;
    Ok(())
}

/// Delete hooks run on the first master. The Cluster is removed only after them.
async fn deletion(stage: &mut Stage) -> Result<()> {
    let hooks = json!({
        "PreClusterDelete": "/tmp/hooks/pre/bye --kwok-exit=4 --kwok-message=busy",
        "PostClusterDelete": "/tmp/hooks/post/gone",
    });
    stage
        .patch("xa", json!({"features": {"hooks": hooks}}))
        .await?;
    stage.kubectl("delete cluster xa --wait=false").await?;
    let failed = "False FailedDelete: exec \"/tmp/hooks/pre/bye\" on node master-0 failed: exit 4: busy; attempt 1";
    stage
        .until_condition("xa", "EnsurePreClusterDeleteHook", failed)
        .await?;
    let hooks = json!({"PreClusterDelete": "/tmp/hooks/pre/bye"});
    stage
        .patch("xa", json!({"features": {"hooks": hooks}}))
        .await?;
    stage
        .kubectl("wait cluster/xa --for=delete --timeout=60s")
        .await?;
    let runs = stage.created_runs()?;
    let last = runs.last().map(String::as_str).unwrap_or_default();
    ensure!(
        last.starts_with("post-cluster-delete-hook-xa-master-0-"),
        "{runs:#?}"
    );
    let nodes = stage.kubectl("get nodes -o json").await?;
    ensure!(!nodes.contains("lifecycle-record"), "{nodes}");
    eventually("the HookRuns are gone with it", LIMIT, async || {
        let left = stage
            .kubectl(&format!("get hookruns,jobs -n {HOOKS} -o name"))
            .await?;
        ensure!(left.is_empty(), "{left}");
        Ok(())
    })
    .await
}

async fn a_failing_script_is_shown_retried_and_skipped(case: &mut Case) -> Result<()> {
    let mut stage = Stage::start("lifecycle-fails", case.folder()).await?;
    let outcome = failing(&mut stage).await;
    stage.stop().await?;
    outcome
}

/// The first example, with a script that fails.
fn one(pre_install: &str, machine: Value) -> Value {
    json!({
        "apiVersion": "tkex.tencent.com/v1alpha1", "kind": "Cluster",
        "metadata": {"name": "one"},
        "spec": {
            "machines": [machine],
            "features": {
                "parallelism": 10,
                "files": [{"src": "hooks/pre-install", "dst": "/tmp/hooks/pre-install"}],
                "hooks": {"PreInstall": pre_install},
            },
        },
    })
}

async fn failing(stage: &mut Stage) -> Result<()> {
    refusals(stage).await?;
    stage.kubectl("delete node node-2 node-3 node-4").await?;
    let failing = "/tmp/hooks/pre-install --kwok-exit=3 --kwok-message=disk-full";
    let machine = json!({"ip": "127.0.0.1"});
    stage.apply(&one(failing, machine.clone())).await?;
    let condition = "EnsurePreInstallHook";
    let failure = "False FailedInit: exec \"/tmp/hooks/pre-install\" on node node-0 failed: exit 3: disk-full; attempt 1";
    let message = stage.until_condition("one", condition, failure).await?;
    ensure!(message.ends_with("; passed on 0 of 2 nodes"), "{message}");
    let events = stage
        .kubectl("get events -n default --field-selector reason=FailedInit -o jsonpath={..message}{..note}")
        .await?;
    ensure!(events.contains("exit 3: disk-full"), "{events}");
    // The second attempt follows after ten seconds, even if another operator leads.
    stage.operator.kill().await?;
    stage.operator.start().await?;
    stage
        .until_condition("one", condition, "attempt 2, next at")
        .await?;
    stage
        .kubectl("annotate cluster one gamekeeper.tkex.tencent.com/retry=now")
        .await?;
    stage
        .until_condition("one", condition, "attempt 3, next at")
        .await?;
    // Nothing starts while it is paused.
    stage.patch("one", json!({"paused": true})).await?;
    stage
        .apply(&one("/tmp/hooks/pre-install", machine.clone()))
        .await?;
    stage
        .until_condition("one", condition, "Unknown Paused: spec.paused is true")
        .await?;
    stage.patch("one", json!({"paused": false})).await?;
    stage
        .until_condition("one", "Ready", "True Installed")
        .await?;

    // A node that joins, and whose script fails, is skipped.
    stage.apply(&one(failing, machine)).await?;
    stage.apply(&node("node-9", "10.0.0.19", json!([]))).await?;
    stage
        .until_condition("one", condition, "on node node-9 failed")
        .await?;
    let skip = json!({"skipConditions": ["EnsurePreInstallHook"]});
    stage.patch("one", json!({"features": skip})).await?;
    stage.until_condition("one", condition, "True Skip").await?;
    stage
        .until_condition("one", "Ready", "True Installed")
        .await?;

    // A second Cluster waits, and can be deleted.
    stage.apply_example("one-file").await?;
    let mut second = one("/tmp/hooks/pre-install", json!({"ip": "127.0.0.1"}));
    second["metadata"]["name"] = json!("two");
    stage.apply(&second).await?;
    stage
        .until_condition("two", "Ready", "False AnotherCluster: Cluster one is older")
        .await?;
    stage.kubectl("delete cluster two --timeout=30s").await?;
    Ok(())
}

/// Checks what the API server itself refuses.
async fn refusals(stage: &Stage) -> Result<()> {
    let refused = async |cluster: Value, words: &str| {
        let outcome = stage.apply(&cluster).await;
        let error = format!("{:#}", outcome.err().context("it was not refused")?);
        ensure!(error.contains(words), "{error}");
        Ok(())
    };
    let hook = "/tmp/hooks/pre-install";
    let machine = json!({"ip": "1.2.3.4", "port": 22, "username": "root", "password": "MTIzNDU2"});
    let why = "spec.machines[0].password: Invalid value";
    refused(one(hook, machine), why).await?;
    let mut relative = one(hook, json!({"ip": "1.2.3.4"}));
    relative["spec"]["features"]["files"][0]["dst"] = json!("tmp/../x");
    refused(relative, "must be an absolute path").await?;
    let mut outside = one(hook, json!({"ip": "1.2.3.4"}));
    outside["spec"]["features"]["files"][0]["src"] = json!("../etc/passwd");
    refused(outside, "must be a path without a leading").await?;
    // A user who may write Clusters, but may not create pods in the namespace of the scripts, is refused.
    stage
        .kubectl("create clusterrole clusters --verb=* --resource=clusters.tkex.tencent.com")
        .await?;
    stage
        .kubectl("create clusterrolebinding clusters --clusterrole=clusters --user=jane")
        .await?;
    let cluster = one(hook, json!({"ip": "1.2.3.4"})).to_string();
    let create = ["create", "--as=jane", "-f", "-"];
    eventually("the policy is in force", LIMIT, async || {
        let outcome = stage
            .plane
            .kubectl(&[&create[..], &["--dry-run=server"]].concat(), &cluster)
            .await;
        let error = format!("{:#}", outcome.err().context("it was not refused")?);
        ensure!(
            error.contains("may create pods in namespace gamekeeper-hooks"),
            "{error}"
        );
        Ok(())
    })
    .await
}

async fn an_upgrade_goes_node_by_node(case: &mut Case) -> Result<()> {
    let mut stage = Stage::start("lifecycle-upgrade", case.folder()).await?;
    let outcome = upgrade(&mut stage).await;
    stage.stop().await?;
    outcome
}

async fn upgrade(stage: &mut Stage) -> Result<()> {
    stage.kubectl("delete node node-2 node-3 node-4").await?;
    let mut cluster = one("/tmp/hooks/pre-install", json!({"ip": "127.0.0.1"}));
    cluster["spec"]["version"] = json!("1.36.3");
    cluster["spec"]["features"]["parallelism"] = json!(1);
    let script = "/tmp/hooks/pre-install";
    cluster["spec"]["features"]["hooks"] = json!({
        "PreClusterUpgrade": script, "PreUpgrade": script, "PostUpgrade": script, "PostClusterUpgrade": script,
    });
    stage.apply(&cluster).await?;
    stage
        .until_condition("one", "Ready", "True Installed")
        .await?;
    stage.patch("one", json!({"version": "1.37.0"})).await?;
    for node in ["node-0", "node-1"] {
        stage
            .until_condition("one", "EnsureUpgrade", &format!("node {node} has version"))
            .await?;
        stage.operator.kill().await?;
        stage.operator.start().await?;
        stage.upgrade_kubelet(node).await?;
    }
    stage
        .until_condition("one", "EnsurePostClusterUpgradeHook", "True Passed")
        .await?;
    stage
        .until_condition("one", "Ready", "True Installed")
        .await?;
    let status = stage.cluster("one").await?["status"].take();
    ensure!(
        status["phase"] == "Running" && status["version"] == "1.37.0",
        "{status:#}"
    );
    let runs = stage.created_runs()?;
    let upgrades: Vec<&str> = runs
        .iter()
        .filter(|run| run.contains("-upgrade-hook-"))
        .filter_map(|run| run.rsplit_once('-')?.0.rsplit_once('-'))
        .map(|(name, _)| name)
        .collect();
    let master = upgrades
        .first()
        .and_then(|it| it.strip_prefix("pre-cluster-upgrade-hook-one-"));
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

async fn a_node_is_drained_before_its_upgrade(case: &mut Case) -> Result<()> {
    let mut stage = Stage::start("lifecycle-drain", case.folder()).await?;
    let outcome = drained(&mut stage).await;
    stage.stop().await?;
    outcome
}

async fn drained(stage: &mut Stage) -> Result<()> {
    stage.kubectl("delete node node-2 node-3 node-4").await?;
    let game = json!({
        "apiVersion": "tkex.tencent.com/v1alpha1", "kind": "GameDeployment",
        "metadata": {"name": "arena", "namespace": "default"},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": "arena"}},
            "template": {
                "metadata": {"labels": {"app": "arena"}},
                "spec": {"containers": [{"name": "game", "image": "nginx:1.29"}]},
            },
        },
    });
    stage.apply(&game).await?;
    stage
        .kubectl("wait gamedeployment/arena --for=jsonpath={.status.readyReplicas}=2 --timeout=60s")
        .await?;
    let mut cluster = one("/tmp/hooks/pre-install", json!({"ip": "127.0.0.1"}));
    cluster["spec"]["version"] = json!("1.36.3");
    let features = &mut cluster["spec"]["features"];
    features["parallelism"] = json!(1);
    features["hooks"] = json!({"PreUpgrade": "/tmp/hooks/pre-install"});
    features["upgrade"] = json!({"strategy": {"drainNodeBeforeUpgrade": true}});
    stage.apply(&cluster).await?;
    stage
        .until_condition("one", "Ready", "True Installed")
        .await?;
    stage.patch("one", json!({"version": "1.37.0"})).await?;
    for node in ["node-0", "node-1"] {
        stage
            .until_condition("one", "EnsureUpgrade", &format!("node {node} has version"))
            .await?;
        let pods = format!("get pods -l app=arena --field-selector spec.nodeName={node} -o name");
        let left = stage.kubectl(&pods).await?;
        ensure!(left.is_empty(), "left on {node}: {left}");
        let cordoned = format!("get node {node} -o jsonpath={{.spec.unschedulable}}");
        ensure!(
            stage.kubectl(&cordoned).await? == "true",
            "{node} is not cordoned"
        );
        stage.upgrade_kubelet(node).await?;
    }
    stage
        .until_condition("one", "Ready", "True Installed")
        .await?;
    let cordons = stage
        .kubectl("get nodes -o jsonpath={.items[*].spec.unschedulable}")
        .await?;
    ensure!(cordons.is_empty(), "{cordons}");
    Ok(())
}

async fn an_operator_that_is_killed_after_each_write_repeats_no_script(
    case: &mut Case,
) -> Result<()> {
    let mut stage = Stage::start("lifecycle-killed", case.folder()).await?;
    let outcome = killed(&mut stage).await;
    stage.stop().await?;
    outcome
}

async fn killed(stage: &mut Stage) -> Result<()> {
    stage.kubectl("delete node node-2 node-3 node-4").await?;
    stage.operator.kill().await?;
    // Without a lease, the next operator need not wait for it to expire.
    stage.operator.disable_leader_election();
    stage.operator.start().await?;
    let mut cluster = one("/tmp/hooks/pre-install", json!({"ip": "127.0.0.1"}));
    cluster["spec"]["features"]["hooks"]["PostClusterInstall"] = json!("/tmp/hooks/pre-install");
    let mut known = stage.plane.audit.writes(HOOKS)?.len();
    stage.apply(&cluster).await?;
    let mut kills = 0;
    loop {
        let is_ready = eventually("another write, or the end", LIMIT, async || {
            let ready = stage.condition("one", "Ready").await;
            let is_ready = ready.is_ok_and(|it| it.starts_with("True"));
            let writes = stage.plane.audit.writes(HOOKS)?.len();
            ensure!(is_ready || writes > known, "{writes} writes");
            known = writes;
            Ok(is_ready)
        })
        .await?;
        if is_ready {
            break;
        }
        stage.operator.kill().await?;
        stage.operator.start().await?;
        kills += 1;
    }
    let mut runs = stage.created_runs()?;
    ensure!(kills > 4 && runs.len() == 5, "{kills} kills: {runs:#?}");
    let jobs = stage.jobs().await?;
    ensure!(jobs.len() == 5, "{} Jobs", jobs.len());
    ensure!(
        runs.last()
            .is_some_and(|it| it.starts_with("post-cluster-install-hook-one-")),
        "{runs:#?}"
    );
    runs.sort();
    runs.dedup();
    ensure!(runs.len() == 5, "{runs:#?}");
    Ok(())
}

async fn a_disabled_feature_adds_nothing_to_the_chart(case: &mut Case) -> Result<()> {
    let objects = e2e::cluster::chart::render(&case.plane().helm, &[]).await?;
    let rendered = serde_json::to_string(&objects)?;
    for word in [
        "clusters",
        "gamekeeper-hooks",
        "lifecycle-hooks",
        "bootstrap",
    ] {
        ensure!(!rendered.contains(word), "the chart renders {word}");
    }
    let rules = objects
        .iter()
        .filter_map(|it| it["rules"].as_array())
        .flatten();
    for rule in rules {
        let resources = rule["resources"].as_array();
        let is_of_nodes = resources.is_some_and(|it| it.iter().any(|it| it == "nodes"));
        ensure!(
            !is_of_nodes || rule["verbs"] == json!(["list", "watch"]),
            "{rule}"
        );
    }
    let metrics = case.operator.get("/metrics").await?.1;
    ensure!(
        metrics.contains("kind=\"Node\"") && !metrics.contains("kind=\"Cluster\""),
        "{metrics}"
    );
    let refused = e2e::cluster::chart::render(
        &case.plane().helm,
        &[
            "--set=lifecycleHooks.enabled=true",
            "--set=watchNamespace=games",
        ],
    );
    let error = format!("{:#}", refused.await.err().context("it was not refused")?);
    ensure!(error.contains("lifecycleHooks.enabled"), "{error}");
    Ok(())
}

async fn bootstrap_scripts_are_helm_hooks(case: &mut Case) -> Result<()> {
    let helm = &case.plane().helm;
    let config_map = "--set=bootstrapHooks.configMap=bootstrap";
    let refused = e2e::cluster::chart::render(helm, &[config_map]).await;
    let error = format!("{:#}", refused.err().context("it was not refused")?);
    ensure!(
        error.contains("bootstrapHooks.image: set an image"),
        "{error}"
    );
    let image = "--set=bootstrapHooks.image=busybox:1.37";
    let objects = e2e::cluster::chart::render(helm, &[config_map, image]).await?;
    let jobs: Vec<&Value> = objects.iter().filter(|it| it["kind"] == "Job").collect();
    let found: Vec<[&str; 4]> = jobs
        .iter()
        .map(|job| {
            [
                text(job, "/metadata/name"),
                text(job, "/metadata/annotations/helm.sh~1hook"),
                text(job, "/metadata/annotations/helm.sh~1hook-weight"),
                text(job, "/spec/template/spec/initContainers/0/args/1"),
            ]
        })
        .collect();
    let expected = [
        ["gamekeeper-bootstrap-pre-install", "pre-install", "0", ""],
        [
            "gamekeeper-bootstrap-post-cluster-ready",
            "post-install",
            "1",
            "cluster",
        ],
        [
            "gamekeeper-bootstrap-post-install",
            "post-install",
            "2",
            "leader",
        ],
    ];
    ensure!(found == expected, "{found:#?}");
    scripts_are_retried(jobs[0], case.folder()).await?;

    // A cluster with an operator has all that the Jobs wait for.
    for goal in ["cluster", "leader"] {
        let mut wait = Command::new(case.operator.binary());
        let kubeconfig = case.folder().join("gamekeeper.kubeconfig");
        wait.args(["wait-for", goal]).env("KUBECONFIG", kubeconfig);
        timeout(LIMIT, run(&mut wait, "")).await??;
    }
    Ok(())
}

/// Runs the command of a Job here: a missing script is skipped, a failing one is retried.
async fn scripts_are_retried(job: &Value, folder: &Path) -> Result<()> {
    let folder = folder.display().to_string();
    let words = &job["spec"]["template"]["spec"]["containers"][0]["command"];
    let script = text(words, "/2").replace("/app/hooks", &folder);
    let script = script.replace("sleep 10", "sleep 0");
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", &script]);
    let printed = run(&mut shell, "").await?;
    ensure!(
        printed.contains("there is no script pre-install"),
        "{printed}"
    );
    let path = format!("{folder}/pre-install");
    // It fails until the third attempt.
    let third =
        format!("#!/bin/sh\necho x >> {folder}/attempts\ntest $(wc -l < {folder}/attempts) = 3\n");
    std::fs::write(&path, third)?;
    std::fs::set_permissions(&path, Permissions::from_mode(0o755))?;
    run(&mut shell, "").await?;
    let attempts = std::fs::read_to_string(format!("{folder}/attempts"))?;
    ensure!(attempts.lines().count() == 3, "{attempts}");
    Ok(())
}
