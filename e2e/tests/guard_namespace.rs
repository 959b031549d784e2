//! A namespace that is deleted while pods are guarded. The API server creates no HookRuns there, so hooks run without
//! them.

use anyhow::{Context, Result, ensure};
use e2e::addons::policy::{install, uninstall};
use e2e::case::Case;
use e2e::cluster::operator::Operator;
use e2e::wait::{LIMIT, eventually};
use e2e::workload::manifest::Game;
use judge::names::HOOK_RESULT;
use judge::object::{annotation, text};
use serde_json::{Value, json};

use crate::guard_setup::{live_pods, until_guarded, waiting_reasons};

const PLAYERS: &str = "players";

/// The hook passes for pods without players. It needs nothing but the pod, because the namespace controller deletes
/// everything else.
fn template() -> Value {
    let field = json!({"path": "metadata.annotations.players", "value": "0"});
    json!({
        "apiVersion": "tkex.tencent.com/v1alpha1", "kind": "HookTemplate", "metadata": {"name": "test"},
        "spec": {
            "args": [{"name": "PodName"}, {"name": "PodNamespace"}],
            "metrics": [{"name": "players", "provider": {"kubernetes": {"function": "get", "fields": [field]}}}],
        },
    })
}

/// Moves the operator's account to a namespace of its own, because the test's namespace is going to be deleted, and
/// starts a guarded workload with players on all pods. Returns the operator's namespace.
async fn start_matches(case: &mut Case, game: Game, replicas: usize) -> Result<Case> {
    case.operator.terminate().await?;
    let name = format!("system-{}", case.namespace);
    let system = Case::prepare(case.plane(), &name, &case.folder().join("system")).await?;
    let value = "admission.guardedPods=true";
    install(&system, value, "guard", &[&case.namespace]).await?;
    case.operator =
        Operator::with_account_of(case.plane(), &system.namespace, &case.namespace, case.folder())
            .await?;
    case.operator.disable_leader_election();
    case.operator.start().await?;
    case.apply(template()).await?;
    let game = game.pre_delete("test").guarded().annotated(PLAYERS, "8");
    case.apply(game).await?;
    until_guarded(case, replicas).await?;
    Ok(system)
}

async fn set_players(case: &Case, pod: &str, players: u32) -> Result<()> {
    let players = format!("{PLAYERS}={players}");
    case.kubectl(&["annotate", "pod", pod, &players, "--overwrite"]).await?;
    Ok(())
}

/// Deletes the namespace, and waits until the hooks of `pods` pods have failed.
async fn delete_namespace(case: &Case, pods: usize) -> Result<()> {
    let namespace = case.namespace.clone();
    case.kubectl(&["delete", "namespace", &namespace, "--wait=false"]).await?;
    until_hooks_fail(case, pods).await
}

/// Waits until the hooks of `pods` pods have failed and no HookRun is stored.
async fn until_hooks_fail(case: &Case, pods: usize) -> Result<()> {
    case.until("the hooks fail", |view| {
        waiting_reasons(view) == vec!["HookNotSuccessful"; pods] && view.runs.is_empty()
    })
    .await?;
    Ok(())
}

async fn until_namespace_is_deleted(case: &Case) -> Result<()> {
    // The namespace controller may check only once a minute whether the namespace is empty.
    eventually("the namespace is deleted", LIMIT, async || {
        let get = ["get", "namespace", &case.namespace, "--ignore-not-found"];
        let found = case.kubectl(&get).await?;
        ensure!(found.is_empty(), "{found}");
        Ok(())
    })
    .await
}

#[e2e::test]
async fn a_namespace_is_deleted_after_its_last_match(case: &mut Case) -> Result<()> {
    let system = start_matches(case, Game::in_place(3), 3).await?;
    case.apply(Game::in_place(2).named("unguarded")).await?;
    case.eventually("all pods run", async || {
        let pods = live_pods(case).await?.len();
        ensure!(pods == 5, "{pods} pods");
        Ok(())
    })
    .await?;
    delete_namespace(case, 3).await?;
    let view = case.view().await?;
    let pods = view.pod_names();
    let (idle, busy) = pods.split_first().context("no guarded pods")?;
    let pod = case.get(&format!("pods/{idle}")).await?;
    let result: Value = serde_json::from_str(annotation(&pod, HOOK_RESULT).context("no result")?)?;
    ensure!(text(&result, "/phase") == "Failed", "{result}");
    ensure!(text(&result, "/message").contains("is 8, not 0"), "{result}");

    set_players(case, idle, 0).await?;
    case.eventually("only the idle pod is deleted", async || {
        let left = live_pods(case).await?.len();
        ensure!(left == 2, "{left} pods");
        Ok(())
    })
    .await?;
    // The runs are lost with the process, and the hooks run again.
    case.kill_operator().await?;
    let before = live_pods(case).await?;
    case.operator.start().await?;
    case.until_planned(&case.workload()).await?;
    until_hooks_fail(case, 2).await?;
    ensure!(live_pods(case).await? == before, "a pod with players was deleted");
    for pod in busy {
        set_players(case, pod, 0).await?;
    }
    until_namespace_is_deleted(case).await?;
    uninstall(&system, "guard").await
}

#[e2e::test]
async fn a_set_in_a_deleted_namespace_ends_after_its_last_match(case: &mut Case) -> Result<()> {
    case.use_stateful_set();
    let system = start_matches(case, Game::ordered(2), 2).await?;
    delete_namespace(case, 2).await?;
    for pod in case.view().await?.pod_names() {
        set_players(case, pod, 0).await?;
    }
    until_namespace_is_deleted(case).await?;
    uninstall(&system, "guard").await
}
