//! `gamekeeper unguard`, which the chart runs before it is uninstalled: afterward, nothing that Gamekeeper has left
//! behind blocks deletions.

use anyhow::{Context, Result, bail, ensure};
use e2e::case::Case;
use e2e::cluster::operator::ACCOUNT;
use e2e::process::command::{CommandOutput, run_unchecked};
use e2e::workload::manifest::Game;
use judge::object::text;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::guard_setup::{apply_guarded, budgets, label, live_pods, waiting_reasons};
use crate::protection::uninstall;

/// The annotation that stores the operator's number of replicas while it is stopped.
const REMEMBERED_REPLICAS: &str = "/metadata/annotations/gamekeeper.tkex.tencent.com~1replicas";

/// Checks that nothing that guards pods is left, and that the pods still run and can be deleted.
async fn ensure_nothing_blocks(case: &Case, before: &[String]) -> Result<()> {
    ensure!(budgets(case).await?.is_empty(), "a budget is left");
    let pods = case.list("pods").await?;
    ensure!(pods.iter().all(|pod| label(pod).is_empty()), "{pods:#?}");
    ensure!(live_pods(case).await? == before, "a pod was deleted");
    let annotation = "/metadata/annotations/karpenter.sh~1do-not-disrupt";
    ensure!(pods.iter().all(|pod| text(pod, annotation).is_empty()));
    let pod = text(&pods[0], "/metadata/name");
    case.kubectl(&["delete", "pod", pod]).await?;
    Ok(())
}

#[e2e::test]
async fn guards_are_removed_unless_pods_wait(case: &mut Case) -> Result<()> {
    apply_guarded(case, Game::in_place(3), 3).await?;
    let before = live_pods(case).await?;
    case.scale(2).await?;
    case.until("a pod waits", |view| waiting_reasons(view) == ["HookNotSuccessful"]).await?;
    case.kill_operator().await?;
    let namespace = format!("--namespace={}", case.namespace);
    let unguard = ["unguard", "--all", &namespace];
    let refused = case.operator.run(&unguard).await?;
    let expected = "1 workload has to wait for the hooks of its pods: GameDeployment";
    ensure!(refused.stderr.contains(expected), "{refused:?}");
    ensure!(budgets(case).await?.len() == 1, "the budget was deleted");
    let forced = [&unguard[..], &["--force"]].concat();
    let done = case.operator.run(&forced).await?;
    ensure!(done.stdout.contains("3 pods are no longer guarded"), "{done:?}");
    let view = case.view().await?;
    ensure!(view.game["metadata"]["finalizers"].is_null());
    ensure_nothing_blocks(case, &before).await?;
    case.kubectl(&["delete", &case.workload()]).await?;
    uninstall(case, "guard").await
}

#[e2e::test]
async fn a_budget_and_labels_without_a_workload_are_removed(case: &mut Case) -> Result<()> {
    apply_guarded(case, Game::in_place(2), 2).await?;
    let before = live_pods(case).await?;
    case.kill_operator().await?;
    let orphan = ["delete", &case.workload(), "--cascade=orphan", "--wait=false"];
    case.kubectl(&orphan).await?;
    case.eventually("the pods are orphaned", async || {
        let pods = case.list("pods").await?;
        let is_owned = |pod: &&Value| !pod["metadata"]["ownerReferences"].is_null();
        ensure!(pods.iter().filter(is_owned).count() == 0);
        Ok(())
    })
    .await?;
    let finalizers = r#"-p={"metadata":{"finalizers":null}}"#;
    case.kubectl(&["patch", &case.workload(), "--type=merge", finalizers]).await?;
    ensure!(budgets(case).await?.len() == 1, "the budget was deleted");
    let pods = case.list("pods").await?;
    ensure!(pods.iter().all(|pod| !label(pod).is_empty()), "{pods:#?}");
    let namespace = format!("--namespace={}", case.namespace);
    let done = case.operator.run(&["unguard", "--all", &namespace]).await?;
    ensure!(done.stdout.contains("2 pods are no longer guarded"), "{done:?}");
    ensure_nothing_blocks(case, &before).await?;
    // Uninstalling a release whose namespace was deleted must not fail.
    let deleted = format!("--namespace={}-deleted", case.namespace);
    let done = case.operator.run(&["unguard", "--all", &deleted]).await?;
    let words = "nothing to remove: the namespace does not exist";
    ensure!(done.code == 0 && done.stdout.contains(words), "{done:?}");
    uninstall(case, "guard").await
}

/// Creates a Deployment with the operator's name. Its pods represent the operator, which is a process here.
async fn deploy(case: &Case) -> Result<()> {
    let labels = json!({"app": "operator"});
    let containers = json!([{"name": "operator", "image": "operator:v1"}]);
    let template = json!({"metadata": {"labels": labels}, "spec": {"containers": containers}});
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": ACCOUNT},
        "spec": {"replicas": 2, "selector": {"matchLabels": labels}, "template": template},
    });
    case.kubectl_with(&["apply", "-f", "-"], &deployment.to_string()).await?;
    case.eventually("the Deployment has its pods", async || {
        let deployment = deployment_of_operator(case).await?;
        ensure!(deployment["status"]["replicas"] == 2, "{deployment:#}");
        Ok(())
    })
    .await
}

async fn deployment_of_operator(case: &Case) -> Result<Value> {
    let namespace = &case.namespace;
    let path = format!("/apis/apps/v1/namespaces/{namespace}/deployments/{ACCOUNT}");
    case.plane().get(&path).await
}

/// Waits until the Deployment is scaled to 0 and has no pods.
async fn until_scaled_to_0(case: &Case) -> Result<()> {
    case.eventually("the Deployment has no pods", async || {
        let deployment = deployment_of_operator(case).await?;
        let pods = deployment["status"]["replicas"].as_u64().unwrap_or(0);
        ensure!(deployment["spec"]["replicas"] == 0 && pods == 0, "{deployment:#}");
        Ok(())
    })
    .await
}

/// Creates the hooks of the chart in the namespace of this test as Helm does when it uninstalls a release, and returns
/// the arguments of the Job. Its pod does not run: the test runs the command.
async fn run_hooks(case: &Case) -> Result<Vec<String>> {
    let plane = case.plane();
    let objects = plane.render_installed(ACCOUNT, &case.namespace, &[]).await?;
    let is_hook = |it: &&Value| text(it, "/metadata/annotations/helm.sh~1hook") == "pre-delete";
    let (mut args, namespace) = (None, &case.namespace);
    for hook in objects.iter().filter(is_hook) {
        if hook["kind"] != "Job" {
            plane.apply(std::slice::from_ref(hook)).await?;
            continue;
        }
        let mut job = hook.clone();
        args = Some(job["spec"]["template"]["spec"]["containers"][0]["args"].clone());
        job["spec"]["suspend"] = json!(true);
        let jobs = format!("/apis/batch/v1/namespaces/{namespace}/jobs?fieldManager=helm");
        plane.create(&jobs, &job).await?;
    }
    let username = case.operator.username();
    for permission in ["list secrets", "patch deployments.apps/gamekeeper"] {
        let line = format!("auth can-i {permission} -n {namespace} --as {username}");
        case.eventually("the role is in force", async || plane.kubectl_line(&line).await).await?;
    }
    let args = args.context("the chart has no Job")?;
    let mut args: Vec<String> = serde_json::from_value(args)?;
    args.push(format!("--namespace={namespace}"));
    Ok(args)
}

/// Writes what Helm stores of a release: the labels say what it does.
async fn record(case: &Case, version: u32, status: &str) -> Result<()> {
    let name = format!("sh.helm.release.v1.{ACCOUNT}.v{version}");
    let labels = json!({
        "owner": "helm", "name": ACCOUNT, "version": version.to_string(), "status": status,
    });
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "helm.sh/release.v1",
        "metadata": {"name": name, "labels": labels},
    });
    case.kubectl_with(&["apply", "-f", "-"], &secret.to_string()).await?;
    Ok(())
}

#[e2e::test]
async fn an_interrupted_run_does_not_leave_the_operator_stopped(case: &mut Case) -> Result<()> {
    apply_guarded(case, Game::in_place(3), 3).await?;
    deploy(case).await?;
    record(case, 1, "uninstalling").await?;
    let args = run_hooks(case).await?;
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    // The operator keeps its lease, so the command waits for the operator. The command is killed when its future is
    // dropped.
    tokio::select! {
        done = case.operator.run(&args) => bail!("the command did not wait for the operator: {done:?}"),
        scaled = until_scaled_to_0(case) => scaled?,
    }
    let stopped = deployment_of_operator(case).await?;
    ensure!(text(&stopped, REMEMBERED_REPLICAS) == "2", "{stopped:#}");
    case.scale(2).await?;
    case.until("a pod waits", |view| waiting_reasons(view) == ["HookNotSuccessful"]).await?;
    let refused = case.operator.run(&args).await?;
    ensure!(refused.stderr.contains("to wait for the hooks"), "{refused:?}");
    let restored = deployment_of_operator(case).await?;
    ensure!(restored["spec"]["replicas"] == 2, "{restored:#}");
    ensure!(restored.pointer(REMEMBERED_REPLICAS).is_none(), "{restored:#}");
    ensure!(budgets(case).await?.len() == 1, "the budget was deleted");
    case.scale(3).await?;
    case.until("no pod waits", |view| waiting_reasons(view).is_empty()).await?;
    uninstall(case, "guard").await
}

#[e2e::test]
async fn the_job_of_the_chart_stops_the_operator(case: &mut Case) -> Result<()> {
    apply_guarded(case, Game::in_place(2), 2).await?;
    deploy(case).await?;
    record(case, 1, "uninstalling").await?;
    let args = run_hooks(case).await?;
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    tokio::select! {
        done = case.operator.run(&args) => bail!("the command did not wait for the operator: {done:?}"),
        scaled = until_scaled_to_0(case) => scaled?,
    }
    ensure!(budgets(case).await?.len() == 1, "guards were removed while the operator ran");
    let before = live_pods(case).await?;
    case.start_witness().await?;
    case.operator.terminate().await?;
    let done = case.operator.run(&args).await?;
    ensure!(done.code == 0, "{done:?}");
    let stopped = deployment_of_operator(case).await?;
    ensure!(stopped["spec"]["replicas"] == 0, "{stopped:#}");
    ensure_nothing_blocks(case, &before).await?;
    uninstall(case, "guard").await
}

/// The Job runs although Helm does not uninstall the release: it was applied with the other objects, or its pod could
/// start only after a rollback.
#[e2e::test]
async fn a_release_that_goes_on_keeps_its_operator_and_guards(case: &mut Case) -> Result<()> {
    apply_guarded(case, Game::in_place(2), 2).await?;
    deploy(case).await?;
    let args = run_hooks(case).await?;
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let not_installed = "there is no record of a Helm release gamekeeper in the namespace";
    for (records, reason) in [
        (&[][..], not_installed),
        (&[(1, "deployed")][..], "says deployed, not uninstalling"),
        (&[(1, "uninstalling"), (2, "deployed")], "says deployed, not uninstalling"),
    ] {
        for (version, status) in records {
            record(case, *version, status).await?;
        }
        let refused = case.operator.run(&args).await?;
        let is_refused = refused.code == 1 && refused.stderr.contains(reason);
        ensure!(is_refused, "{records:?}: {refused:?}");
        let deployment = deployment_of_operator(case).await?;
        ensure!(deployment["spec"]["replicas"] == 2, "{deployment:#}");
        ensure!(budgets(case).await?.len() == 1, "the budget was deleted");
    }
    let pods = case.list("pods").await?;
    let guarded = pods.iter().filter(|pod| !label(pod).is_empty()).count();
    ensure!(guarded == 2, "{pods:#?}");
    uninstall(case, "guard").await
}

/// Runs a command of the operator's binary as an administrator.
async fn administrator_runs(case: &Case, args: &[&str]) -> Result<CommandOutput> {
    let mut command = Command::new(case.operator.binary());
    command.args(args).env("KUBECONFIG", &case.plane().kubeconfig);
    run_unchecked(&mut command).await
}

#[e2e::test]
async fn guards_are_removed_by_hand_once_the_operator_is_stopped(case: &mut Case) -> Result<()> {
    apply_guarded(case, Game::in_place(2), 2).await?;
    deploy(case).await?;
    let (namespace, account) = (&case.namespace, case.operator.username());
    let deployment = format!("--deployment={namespace}/{ACCOUNT}");
    let namespace = format!("--namespace={namespace}");
    let account = format!("--as={account}");
    let by_hand = ["unguard", "--all", &deployment, &namespace, &account];
    let refused = administrator_runs(case, &by_hand).await?;
    let expected = "scale it to 0: kubectl -n";
    ensure!(refused.stderr.contains(expected), "{refused:?}");
    ensure!(budgets(case).await?.len() == 1, "the budget was deleted");
    let scale = ["scale", "deployment", ACCOUNT, "--replicas=0"];
    case.kubectl(&scale).await?;
    until_scaled_to_0(case).await?;
    let before = live_pods(case).await?;
    case.start_witness().await?;
    case.operator.terminate().await?;
    // In the eyes of the judge, the command's writes are the operator's, which must not write for a settled workload.
    case.scale(3).await?;
    let done = administrator_runs(case, &by_hand).await?;
    ensure!(done.code == 0, "{done:?}");
    ensure_nothing_blocks(case, &before).await?;
    uninstall(case, "guard").await
}
