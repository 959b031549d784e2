//! Metrics that run a command in a container. A real API server proxies the exec subresource to the simulated
//! kubelets, which run the command on this machine.

use anyhow::{Context, Result, ensure};
use e2e::case::Case;
use e2e::workload::manifest::Game;
use judge::object::text;
use serde_json::{Value, json};

use crate::run::{hook_run, status, until_phase};

/// A HookRun, as a user would create it, that runs a command in a pod. `fields` are added to its metric.
fn command_run(name: &str, pod: &str, command: Value, fields: Value) -> Value {
    let mut metric = json!({
        "name": "command", "consecutiveErrorLimit": 0,
        "provider": {"exec": {"container": "game", "command": command, "timeoutSeconds": 60}},
    });
    for (field, value) in fields.as_object().into_iter().flatten() {
        metric[field] = value.clone();
    }
    let args = json!([{"name": "PodName", "value": pod}, {"name": "map", "value": "a b; $(c) 'd"}]);
    hook_run(name, json!({"args": args, "metrics": [metric]}))
}

/// Allows hooks to run commands, creates a workload, and returns the name of its pod.
async fn prepare(case: &mut Case) -> Result<String> {
    case.operator.terminate().await?;
    case.operator.allow_commands();
    case.operator.start().await?;
    create_workload(case).await
}

/// Creates a workload, and returns the name of its pod.
async fn create_workload(case: &Case) -> Result<String> {
    case.apply(Game::in_place(1)).await?;
    let view = case.until_settled(1).await?;
    let pod = view.pods.first().context("no pod")?;
    Ok(text(&pod.0, "/metadata/name").to_owned())
}

/// Waits until a run ends in phase Error, and returns its message.
async fn until_error(case: &Case, run: &str) -> Result<String> {
    let status = until_phase(case, run, "Error").await?;
    Ok(text(&status, "/message").to_owned())
}

#[e2e::test]
async fn a_command_gets_its_arguments_unchanged_and_its_output_is_judged(
    case: &mut Case,
) -> Result<()> {
    let pod = prepare(case).await?;
    let command = json!(["printf", "%s|", "--map={{ args.map }}", "", "*"]);
    let condition = json!({"successCondition": "result == \"--map=a b; $(c) 'd||*|\""});
    case.apply(command_run("good", &pod, command.clone(), condition)).await?;
    case.apply(command_run("plain", &pod, json!(["true"]), json!({}))).await?;
    let condition = json!({"successCondition": "result == \"idle\""});
    case.apply(command_run("bad", &pod, command, condition)).await?;
    until_phase(case, "good", "Successful").await?;
    until_phase(case, "plain", "Successful").await?;
    let bad = until_phase(case, "bad", "Failed").await?;
    let message = text(&bad, "/message");
    ensure!(message.contains("result is --map=a b; $(c) 'd||*|"), "{message}");
    Ok(())
}

#[e2e::test]
async fn a_command_without_an_exit_code_is_an_error_with_the_reason(case: &mut Case) -> Result<()> {
    let pod = prepare(case).await?;
    for (run, command, expected) in [
        ("missing", json!(["/no/such/program"]), "no such file or directory"),
        // kwok reports the exit code only as text.
        ("failed", json!(["sh", "-c", "echo players >&2; exit 3"]), "exit status 3: players"),
        ("slow", json!(["sleep", "60"]), "did not exit within 2 s, and may still be running"),
        ("endless", json!(["cat", "/dev/zero"]), "printed more than 1 MiB"),
    ] {
        let mut manifest = command_run(run, &pod, command, json!({}));
        if run == "slow" {
            manifest["spec"]["metrics"][0]["provider"]["exec"]["timeoutSeconds"] = json!(2);
        }
        case.apply(manifest).await?;
        let message = until_error(case, run).await?;
        ensure!(message.contains(expected), "{run}: {message}");
    }
    Ok(())
}

#[e2e::test]
async fn commands_are_run_only_in_pods_of_workloads(case: &mut Case) -> Result<()> {
    let pod = prepare(case).await?;
    case.apply(json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "other"},
        "spec": {"containers": [{"name": "game", "image": "other:v1"}]},
    }))
    .await?;
    let ready = ["wait", "pod/other", "--for=condition=Ready", "--timeout=300s"];
    case.kubectl(&ready).await?;
    let mut sidecar = command_run("sidecar", &pod, json!(["true"]), json!({}));
    sidecar["spec"]["metrics"][0]["provider"]["exec"]["container"] = json!("sidecar");
    case.apply(sidecar).await?;
    case.apply(command_run("other", "other", json!(["true"]), json!({}))).await?;
    case.apply(command_run("none", "none", json!(["true"]), json!({}))).await?;
    for (run, expected) in [
        ("other", "pod other belongs to no GameDeployment or GameStatefulSet"),
        ("none", "pods \"none\" not found"),
        ("sidecar", "has no container sidecar: use one of game"),
    ] {
        let message = until_error(case, run).await?;
        ensure!(message.contains(expected), "{run}: {message}");
    }
    Ok(())
}

#[e2e::test]
async fn commands_are_disabled_until_their_namespace_is_listed(case: &mut Case) -> Result<()> {
    let pod = create_workload(case).await?;
    case.apply(command_run("off", &pod, json!(["true"]), json!({}))).await?;
    let message = until_error(case, "off").await?;
    let namespace = &case.namespace;
    let expected = format!(
        "hooks must not run commands in namespace {namespace}: an administrator can allow it with the \
         chart's value hooks.exec"
    );
    ensure!(message.contains(&expected), "{message}");
    Ok(())
}

#[e2e::test]
async fn a_missing_permission_is_an_error_that_names_the_charts_value(
    case: &mut Case,
) -> Result<()> {
    let pod = prepare(case).await?;
    let bindings = case.kubectl(&["get", "rolebindings", "-o=name"]).await?;
    let binding = bindings.lines().find(|it| it.contains("hook-exec"));
    case.kubectl(&["delete", binding.context("no binding")?]).await?;
    let mut tries = 0;
    // The API server may still honor the deleted binding for a moment.
    case.eventually("the command is forbidden", async || {
        tries += 1;
        let run = format!("forbidden-{tries}");
        case.apply(command_run(&run, &pod, json!(["true"]), json!({}))).await?;
        let status = case.eventually("the run ends", async || {
            let status = status(case, &run).await?;
            ensure!(status["finishedAt"].is_string(), "{status:#}");
            Ok(status)
        });
        let status = status.await?;
        let message = text(&status, "/message");
        ensure!(message.contains("is forbidden"), "{status:#}");
        ensure!(message.contains("the chart's value hooks.exec"), "{status:#}");
        Ok(())
    })
    .await
}
