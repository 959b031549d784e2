//! Lifecycle hooks on a node with a real kubelet: scripts really run there, as root, on the node's own file system.
//! On a machine that cannot run such a node, the test is skipped, and the reason is printed.

use std::os::unix::fs::PermissionsExt;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use e2e::case::Case;
use e2e::checkout::{manifest, repository};
use e2e::cluster::lifecycle::{HOOKS, Stage};
use e2e::documents::shell::Shell;
use e2e::documents::transcript::commands;
use e2e::node::{self, Node};
use e2e::process::command::run_unchecked;
use e2e::wait::{LIMIT, eventually};
use judge::object::text;
use serde_json::{Value, json};

/// What the scripts of the examples print about the Cluster.
const PRINTED: &str = "the cluster labels and annotations key=value pair:location=xa node.alpha.kubernetes.io/test=hello\n";
/// A script that waits until the test releases it.
const WAIT: &str = r#"#!/bin/bash
echo "waiting for $1"
echo "$1" >>/tmp/started
until [ -e "/tmp/release-$1" ]; do sleep 0.1; done
"#;
/// A script that fails the first time.
const FAILS_ONCE: &str = r#"#!/bin/bash
[ ! -e /tmp/failed ] || exit 0
touch /tmp/failed
echo "disk full" >&2
exit 3
"#;

fn main() -> Result<ExitCode> {
    let missing = tokio::runtime::Runtime::new()?.block_on(node::missing())?;
    if let Some(missing) = missing {
        println!("the test of scripts on a real kubelet is skipped: {missing}");
        return Ok(ExitCode::SUCCESS);
    }
    e2e::trial::main(e2e::trial::all())
}

#[e2e::test]
async fn scripts_run_on_a_real_node(case: &mut Case) -> Result<()> {
    Stage::play("real", case.folder(), async |stage| {
        let node = node::shared(stage.plane, env!("CARGO_BIN_EXE_game-server")).await?;
        let image = stage.image().await?;
        node.publish_program(&image, stage.operator.binary()).await?;
        let outcome = run_scripts(stage, node).await;
        // Until the node has stopped, it needs the control plane.
        node::stop().await;
        outcome
    })
    .await
}

async fn run_scripts(stage: &mut Stage, node: &Node) -> Result<()> {
    run_examples(stage, node).await?;
    let cluster = "flaky";
    retry_failed_script(stage, cluster).await?;
    interrupt_scripts(stage, node, cluster).await?;
    end_hanging_script(stage, node, cluster).await
}

/// Creates a Cluster whose only node, and first master, is the real node.
async fn create(stage: &Stage, mut cluster: Value) -> Result<()> {
    cluster["spec"]["machines"][0]["ip"] = json!("10.213.77.1");
    cluster["spec"]["features"]["nodeSelector"] = json!({"gamekeeper/kubelet": "real"});
    stage.apply(&cluster).await?;
    Ok(())
}

/// The name of the first Job whose name has this prefix.
async fn job_name(stage: &Stage, prefix: &str) -> Result<String> {
    let jobs = stage.jobs().await?;
    let mut names = jobs.iter().map(|job| text(job, "/metadata/name"));
    let name = names.find(|name| name.starts_with(prefix));
    Ok(name.with_context(|| format!("no Job {prefix}"))?.to_owned())
}

/// Waits until exactly these scripts have started, in this order.
async fn until_started(node: &Node, expected: &[&str]) -> Result<()> {
    eventually("the script has started", LIMIT, async || {
        let started = std::fs::read_to_string(node.file("tmp/started")?)?;
        let started: Vec<&str> = started.lines().collect();
        ensure!(started == expected, "{started:?}");
        Ok(())
    })
    .await
}

fn release(node: &Node, script: &str) -> Result<()> {
    Ok(std::fs::write(node.file(&format!("tmp/release-{script}"))?, "")?)
}

/// Runs the documentation's examples, whose manifests and scripts come from TKEStack: one with single files, and one
/// with directories.
async fn run_examples(stage: &Stage, node: &Node) -> Result<()> {
    let node_jobs = |name: &str| {
        let output = |when: &str| format!("{when} node install\n");
        [
            (format!("pre-install-hook-{name}-real-0-"), output("pre")),
            (format!("post-install-hook-{name}-real-0-"), output("post")),
        ]
    };
    run_example(stage, "one-file", "one", &node_jobs("one")).await?;
    let files = ["tmp/hooks/pre-install", "tmp/hooks/post-install"];
    for file in files {
        let file = node.file(file)?;
        let mode = std::fs::metadata(&file)?.permissions().mode();
        ensure!(mode & 0o777 == 0o755, "mode {mode:o}");
        std::fs::remove_file(file)?;
    }
    let cluster_job = |when: &str| {
        let job = format!("{when}-cluster-install-hook-xa-real-0-");
        (job, format!("{PRINTED}{when} cluster install\n"))
    };
    let [first, second] = node_jobs("xa");
    let printed = [first, second, cluster_job("pre"), cluster_job("post")];
    run_example(stage, "directories", "xa", &printed).await?;
    for file in ["pre/pre-install", "post/cluster-post-install"] {
        let file = node.file(&format!("tmp/hooks/{file}"))?;
        let mode = std::fs::metadata(file)?.permissions().mode();
        ensure!(mode & 0o777 == 0o755, "mode {mode:o}");
    }
    Ok(())
}

/// Runs an example from installation to deletion, and checks what the scripts of these Jobs print.
async fn run_example(
    stage: &Stage,
    folder: &str,
    name: &str,
    printed: &[(String, String)],
) -> Result<()> {
    for file in ["scripts.yaml", "cluster.yaml"] {
        for object in manifest(&format!("examples/lifecycle/{folder}/{file}"))? {
            match object["kind"] == "Cluster" {
                true => create(stage, object).await?,
                false => stage.apply(&object).await.map(|_| ())?,
            }
        }
    }
    stage.until_condition(name, "Ready", "True Installed").await?;
    for (prefix, expected) in printed {
        let job = job_name(stage, prefix).await?;
        let found = stage.kubectl(&format!("logs -n {HOOKS} job/{job}")).await?;
        ensure!(found == *expected, "{job} printed {found:?}");
    }
    let delete = format!("delete cluster {name} --timeout=300s");
    stage.kubectl(&delete).await?;
    Ok(())
}

/// A missing ConfigMap is reported. A script that fails is reported with its exit code and standard error, and retried.
async fn retry_failed_script(stage: &Stage, name: &str) -> Result<()> {
    let file = |name: &str| json!({"src": format!("own/{name}"), "dst": format!("/tmp/{name}")});
    let cluster = json!({
        "apiVersion": "tkex.tencent.com/v1alpha1",
        "kind": "Cluster",
        "metadata": {"name": name},
        "spec": {
            "version": "1.36.3",
            "machines": [{}],
            "features": {
                "files": [file("wait"), file("fails-once")],
                "hooks": {
                    "PreClusterInstall": "/tmp/fails-once",
                    "PreInstall": "/tmp/wait kubelet",
                    "PostInstall": "/tmp/wait operator",
                    "PostClusterInstall": "/tmp/wait hang",
                },
            },
        },
    });
    create(stage, cluster).await?;
    let missing = "exit 125: cannot find /sources/configmap-own/wait";
    stage.until_condition(name, "EnsureCopyFiles", missing).await?;
    let scripts = json!({"wait": WAIT, "fails-once": FAILS_ONCE});
    let metadata = json!({"name": "own", "namespace": HOOKS});
    stage
        .apply(&json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": scripts}))
        .await?;
    let retry = stage.game(&format!("retry cluster/{name}")).await?;
    ensure!(retry.code == 0, "{retry:?}");
    let failed = "False FailedInit: exec \"/tmp/fails-once\" on node real-0 failed: exit 3: stderr: disk full; attempt 1";
    let step = "EnsurePreClusterInstallHook";
    stage.until_condition(name, step, failed).await?;
    stage.until_condition(name, step, "True Passed").await?;
    Ok(())
}

/// A script runs only once even if the kubelet or the operator is killed in the meantime.
async fn interrupt_scripts(stage: &mut Stage, node: &Node, name: &str) -> Result<()> {
    until_started(node, &["kubelet"]).await?;
    node.kill_kubelet().await?;
    release(node, "kubelet")?;
    let step = "EnsurePreInstallHook";
    stage.until_condition(name, step, "True Passed").await?;

    until_started(node, &["kubelet", "operator"]).await?;
    stage.operator.kill().await?;
    release(node, "operator")?;
    stage.operator.start().await?;
    let step = "EnsurePostInstallHook";
    stage.until_condition(name, step, "True Passed").await?;
    Ok(())
}

/// A script that hangs shows up in the metric that the alert uses, and the commands of the runbook end it.
async fn end_hanging_script(stage: &Stage, node: &Node, name: &str) -> Result<()> {
    let started = ["kubelet", "operator", "hang"];
    until_started(node, &started).await?;
    let series = format!(
        "gamekeeper_cluster_attempt_seconds{{name=\"{name}\",condition=\"EnsurePostClusterInstallHook\"}}"
    );
    let (_, metrics) = stage.operator.get("/metrics").await?;
    ensure!(metrics.contains(&series), "no {series} in:\n{metrics}");

    let runs = stage.created_runs()?;
    let run = runs.last().context("no HookRun")?;
    let job = job_name(stage, run).await?;
    let document = std::fs::read_to_string(repository().join("docs/operations.md"))?;
    let mut runbook = commands(&document)?;
    runbook.retain(|it| it.section == "A lifecycle hook hangs");
    ensure!(runbook.len() == 4, "{runbook:#?}");
    let shell = Shell::admin(stage.plane).await?;
    let mut shown = Vec::new();
    for step in &runbook {
        let line = step.command.replace("NAME", name);
        let line = line.replace("JOB", &job).replace("RUN", run);
        let output = run_unchecked(&mut shell.command(&line)).await?;
        // While a Cluster is in progress, `status` exits with 3.
        let expected = if line.contains("status") { 3 } else { 0 };
        ensure!(output.code == expected, "{line}: {output:?}");
        shown.push(output.stdout);
    }
    let expected = [
        "exec \"/tmp/wait\" on node real-0, attempt 1 in progress",
        run.as_str(),
        "waiting for hang\n",
        "deleted",
    ];
    for (shown, expected) in shown.iter().zip(expected) {
        ensure!(shown.contains(expected), "no {expected:?} in:\n{shown}");
    }
    let started_twice = [&started[..], &["hang"]].concat();
    until_started(node, &started_twice).await?;
    release(node, "hang")?;
    stage.until_condition(name, "Ready", "True Installed").await?;
    until_started(node, &started_twice).await
}
