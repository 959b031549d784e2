//! Scripts that fail: what is shown, the next attempt, a pause, skipped steps; and what the API server refuses.

use anyhow::{Context, Result, ensure};
use e2e::addons::argo_cd;
use e2e::addons::kstatus::ensure_status;
use e2e::case::Case;
use e2e::checkout::repository;
use e2e::cluster::lifecycle::Stage;
use e2e::wait::{LIMIT, eventually};
use serde_json::{Value, json};

use super::{DELETE_NODES, apply_example, cluster_one, node};

#[e2e::test]
async fn a_failing_script_is_shown_retried_and_skipped(case: &mut Case) -> Result<()> {
    Stage::play("lifecycle-fails", case.folder(), show_retry_and_skip).await
}

async fn show_retry_and_skip(stage: &mut Stage) -> Result<()> {
    check_refusals(stage).await?;
    check_lint(stage).await?;
    stage.kubectl(DELETE_NODES).await?;
    let failing = "/tmp/hooks/pre-install --kwok-exit=3 --kwok-message=disk-full";
    let machine = json!({"ip": "127.0.0.1"});
    stage.apply(&cluster_one(failing, machine.clone())).await?;
    let condition = "EnsurePreInstallHook";
    let failure = "False FailedInit: exec \"/tmp/hooks/pre-install\" on node node-0 failed: exit 3: disk-full; attempt ";
    let message = stage.until_condition("one", condition, failure).await?;
    ensure!(message.ends_with("; passed on 0 of 2 nodes"), "{message}");
    let get_events =
        "get events -n default --field-selector reason=FailedInit -o jsonpath={..message}{..note}";
    eventually("an event reports the failure", LIMIT, async || {
        let events = stage.kubectl(get_events).await?;
        ensure!(events.contains("exit 3: disk-full"), "{events}");
        Ok(())
    })
    .await?;
    // More attempts follow, even if the operator is replaced. Forty seconds pass between the third attempt and the
    // next, which is enough time for the commands below.
    stage.replace_operator().await?;
    stage.until_condition("one", condition, "attempt 3, next at").await?;
    let attempts = check_plugin_output(stage).await?;
    let failed = stage.cluster("one").await?;
    ensure!(argo_cd::actions(&failed).await? == ["pause", "retry"], "{failed:#}");
    check_command(stage, 0, "retry cluster/one", "cluster.tkex.tencent.com/one retried\n").await?;
    let next = format!("attempt {}, next at", attempts + 1);
    stage.until_condition("one", condition, &next).await?;
    // Nothing starts while the Cluster is paused.
    check_command(stage, 0, "pause cluster/one", "cluster.tkex.tencent.com/one paused\n").await?;
    check_command(stage, 1, "pause cluster/one", "").await?;
    stage.apply(&cluster_one("/tmp/hooks/pre-install", machine.clone())).await?;
    stage.until_condition("one", condition, "Unknown Paused: spec.paused is true").await?;
    let paused = stage.cluster("one").await?;
    argo_cd::ensure_health(&paused, &["Suspended"]).await?;
    ensure!(argo_cd::actions(&paused).await? == ["resume"], "{paused:#}");
    let resume = argo_cd::patch(&paused, "resume").await?;
    stage.kubectl(&format!("patch cluster one --type=merge -p={resume}")).await?;
    let watch = stage.game("status cluster/one --watch --timeout 300s").await?;
    let is_over = watch.stdout.contains("cluster/one: Running, 2 of 2 nodes installed");
    ensure!(watch.code == 0 && is_over, "{watch:?}");
    check_command(stage, 1, "retry cluster/one", "").await?;

    // The step can be skipped when the script fails on a node that joins.
    stage.apply(&cluster_one(failing, machine)).await?;
    stage.apply(&node("node-9", "10.0.0.19", json!([]))).await?;
    stage.until_condition("one", condition, "on node node-9 failed").await?;
    refuse_records(stage).await?;
    let skip = json!({"skipConditions": ["EnsurePreInstallHook"]});
    stage.patch("one", json!({"features": skip})).await?;
    let message = stage.until_condition("one", "Ready", "False FailedWrite: ").await?;
    let is_told = message.contains("not allowed here") && message.ends_with("within 30 s");
    ensure!(is_told, "{message}");
    stage
        .kubectl("delete validatingadmissionpolicybinding,validatingadmissionpolicy no-records")
        .await?;
    stage.until_condition("one", condition, "True Skip").await?;
    stage.until_condition("one", "Ready", "True Installed").await?;

    // A second Cluster waits, and can be deleted.
    apply_example(stage, "one-file").await?;
    let mut second = cluster_one("/tmp/hooks/pre-install", json!({"ip": "127.0.0.1"}));
    second["metadata"]["name"] = json!("two");
    stage.apply(&second).await?;
    stage.until_condition("two", "Ready", "False AnotherCluster: Cluster one is older").await?;
    let until_status = async |name: &str, expected: &str| {
        eventually(&format!("{name} is {expected}"), LIMIT, async || {
            ensure_status(&stage.cluster(name).await?, expected).await
        })
        .await
    };
    until_status("one", "Current").await?;
    until_status("two", "Failed: Cluster one is older").await?;
    stage.kubectl("delete cluster two --timeout=300s").await?;
    Ok(())
}

/// Refuses the operator's records of scripts on nodes.
async fn refuse_records(stage: &Stage) -> Result<()> {
    let user = stage.operator.username();
    let version = "admissionregistration.k8s.io/v1";
    let nodes = json!({
        "apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["nodes"],
    });
    let validation = json!({
        // Dry runs show whether it is in force.
        "expression": format!(
            "request.userInfo.username != '{user}' && !(has(request.dryRun) && request.dryRun)"
        ),
        "message": "not allowed here", "reason": "Forbidden",
    });
    stage
        .apply(&json!({
            "apiVersion": version, "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": "no-records"},
            "spec": {"matchConstraints": {"resourceRules": [nodes]}, "validations": [validation]},
        }))
        .await?;
    stage
        .apply(&json!({
            "apiVersion": version, "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": "no-records"},
            "spec": {"policyName": "no-records", "validationActions": ["Deny"]},
        }))
        .await?;
    let probe = "annotate node node-0 probe=yes --dry-run=server";
    eventually("the policy is in force", LIMIT, async || {
        let refused = stage.kubectl(probe).await.err().context("it is not refused")?;
        ensure!(format!("{refused:#}").contains("not allowed here"), "{refused:#}");
        Ok(())
    })
    .await
}

/// Runs a command of the plugin, which must exit with this code and print exactly this.
async fn check_command(stage: &Stage, code: i32, line: &str, expected: &str) -> Result<()> {
    let output = stage.game(line).await?;
    ensure!(output.code == code && output.stdout == expected, "{line}: {output:?}");
    ensure!((code == 0) == output.stderr.is_empty(), "{line}: {output:?}");
    Ok(())
}

/// Checks what the plugin's status and tree print. Returns the number of the last attempt.
async fn check_plugin_output(stage: &Stage) -> Result<usize> {
    // Read first, so that the tree contains the last run.
    let runs = stage.created_runs()?;
    let start = "pre-install-hook-one-node-0-";
    let node_runs: Vec<&String> = runs.iter().filter(|it| it.starts_with(start)).collect();
    let last = node_runs.last().context("no run on node-0")?;
    let status = stage.game("status cluster/one").await?;
    ensure!(status.code == 2, "{status:?}");
    let tree = stage.game("tree cluster/one").await?;
    ensure!(tree.code == 0, "{tree:?}");
    let single_spaced = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let ensure_has_line = |text: &str, start: &str| -> Result<()> {
        let mut lines =
            text.lines().map(|it| single_spaced(it.trim_start_matches(['|', '`', '-', ' '])));
        ensure!(lines.any(|it| it.starts_with(start)), "no {start:?} in:\n{text}");
        Ok(())
    };
    let failure =
        "exec \"/tmp/hooks/pre-install\" on node node-0 failed: exit 3: disk-full; attempt ";
    for line in [
        "cluster/one: Initializing, 0 of 2 nodes installed, first master node-0",
        "CONDITION REASON MESSAGE",
        "EnsureCopyFiles Passed passed on 2 of 2 nodes",
        "EnsurePreClusterInstallHook NotConfigured",
        &format!("EnsurePreInstallHook FailedInit {failure}"),
        "EnsurePostInstallHook NotConfigured",
        &format!("Ready FailedInit EnsurePreInstallHook: {failure}"),
    ] {
        ensure_has_line(&status.stdout, line)?;
    }
    ensure_has_line(&tree.stdout, "one Cluster Initializing ")?;
    ensure_has_line(&tree.stdout, "EnsurePreInstallHook Condition FailedInit ")?;
    ensure_has_line(&tree.stdout, &format!("{last} HookRun "))?;
    Ok(node_runs.len())
}

/// Checks what the plugin's lint prints.
async fn check_lint(stage: &Stage) -> Result<()> {
    let folder = repository();
    let good = folder.join("examples/lifecycle/directories/cluster.yaml");
    let found = stage.game(&format!("lint {}", good.display())).await?;
    let has_warnings = found.stdout.contains("warning: spec.clusterCIDR: has no effect");
    ensure!(found.code == 0 && has_warnings, "{found:?}");
    let bad = folder.join("e2e/manifests/bad/cluster-file-outside.yaml");
    let found = stage.game(&format!("lint {}", bad.display())).await?;
    let message = "spec.features.files[0].src: Invalid value: \"hooks/../../etc\": must be a path";
    ensure!(found.code == 1 && found.stdout.contains(message), "{found:?}");
    Ok(())
}

/// Checks what the API server itself refuses.
async fn check_refusals(stage: &Stage) -> Result<()> {
    let ensure_refused = async |cluster: Value, words: &str| {
        let outcome = stage.apply(&cluster).await;
        let error =
            format!("{:#}", outcome.err().context("the API server did not refuse the Cluster")?);
        ensure!(error.contains(words), "{error}");
        Ok(())
    };
    let hook = "/tmp/hooks/pre-install";
    let machine = json!({"ip": "1.2.3.4", "port": 22, "username": "root", "password": "MTIzNDU2"});
    let message = "spec.machines[0].password: Invalid value";
    ensure_refused(cluster_one(hook, machine), message).await?;
    let mut relative = cluster_one(hook, json!({"ip": "1.2.3.4"}));
    relative["spec"]["features"]["files"][0]["dst"] = json!("tmp/../x");
    ensure_refused(relative, "must be an absolute path").await?;
    let mut outside = cluster_one(hook, json!({"ip": "1.2.3.4"}));
    outside["spec"]["features"]["files"][0]["src"] = json!("../etc/passwd");
    ensure_refused(outside, "must be a path such as hooks/pre-install").await?;
    // A Cluster is refused if its creator may not create pods in the namespace of the scripts.
    stage
        .kubectl("create clusterrole clusters --verb=* --resource=clusters.tkex.tencent.com")
        .await?;
    stage.kubectl("create clusterrolebinding clusters --clusterrole=clusters --user=jane").await?;
    let cluster = cluster_one(hook, json!({"ip": "1.2.3.4"})).to_string();
    let create = ["create", "--as=jane", "-f", "-"];
    eventually("the policy is in force", LIMIT, async || {
        let outcome =
            stage.plane.kubectl(&[&create[..], &["--dry-run=server"]].concat(), &cluster).await;
        let error =
            format!("{:#}", outcome.err().context("the API server did not refuse the Cluster")?);
        ensure!(error.contains("may create pods in namespace gamekeeper-hooks"), "{error}");
        Ok(())
    })
    .await
}
