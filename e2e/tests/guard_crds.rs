//! CRDs that are deleted while pods are guarded: what waits, and the ways out that docs/guard.md describes.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::case::Case;
use e2e::checkout::repository;
use e2e::cluster::control_plane::ControlPlane;
use e2e::wait::consistently;
use e2e::workload::manifest::Game;
use e2e::workload::{GAME, SET};
use judge::object::text;
use serde_json::Value;

use crate::guard_setup::{
    allowing_answer, apply_guarded, budgets, live_pods, refusing_answer, until_guarded,
};
use crate::protection::uninstall;

const RUNS: &str = "hookruns.tkex.tencent.com";
const DEPLOYMENTS: &str = "gamedeployments.tkex.tencent.com";
/// The name of the workload with a deadline.
const LATE: &str = "late";
const SETS: &str = "gamestatefulsets.tkex.tencent.com";

#[e2e::test]
async fn guarded_pods_outlive_deleted_crds_until_their_hooks_run_or_they_are_released(
    case: &mut Case,
) -> Result<()> {
    case.operator.terminate().await?;
    let plane: &'static ControlPlane = Box::leak(Box::new(ControlPlane::another("crds").await?));
    let outcome = run_on_own_control_plane(plane, case.folder()).await;
    plane.stop().await?;
    outcome
}

async fn run_on_own_control_plane(plane: &'static ControlPlane, folder: &Path) -> Result<()> {
    let mut case = Case::open(plane, "crds", &folder.join("crds")).await?;
    let outcome = delete_crds(&mut case).await;
    let mut violations = case.violations().await?;
    // The namespace's log does not show that workloads are deleted with their CRD, so they seem to be settled.
    violations.retain(|it| it.rule != "settled");
    outcome?;
    ensure!(violations.is_empty(), "{violations:#?}");
    Ok(())
}

async fn delete_crds(case: &mut Case) -> Result<()> {
    apply_guarded(case, Game::in_place(3), 3).await?;
    let late = Game::in_place(1).named(LATE).pre_delete("test").guarded();
    case.apply(late.set("/spec/protection/deadlineSeconds", 10)).await?;
    case.use_stateful_set();
    let set = Game::parallel(2).max_unavailable(2).pre_delete("test");
    case.apply(set.guarded()).await?;
    until_guarded(case, 2).await?;

    // HookRuns have no finalizers, so their CRD is deleted immediately.
    case.kubectl(&["delete", "crd", RUNS, "--timeout=300s"]).await?;
    delete_while_guarded(case, SETS, 5 + 2).await?;
    // Hooks run again once the CRD is back, even if the operator was restarted while the CRD was missing.
    case.operator.terminate().await?;
    case.operator.launch().await?;
    case.hooks.answer("/", allowing_answer());
    install(case, "hookruns").await?;
    until_deleted(case, SETS).await?;
    ensure!(!case.hooks.calls("/").is_empty(), "no hook was called");
    let left = live_pods(case).await?.len();
    ensure!(left == 4, "{left} pods");
    install(case, "gamestatefulsets").await?;
    case.operator.terminate().await?;
    case.operator.start().await?;

    // Without HookRuns, users release the pods by the name of their workload, even if the other kind of workload is not
    // served.
    case.hooks.answer("/", refusing_answer());
    // A new leader compares its caches with the API server before it plans, and could not do so without a CRD.
    case.until_planned(&format!("gamedeployment/{GAME}")).await?;
    let wait = ["wait", "--for=condition=Guarded", "gamedeployment", "--all"];
    case.kubectl(&wait).await?;
    for crd in [RUNS, SETS] {
        case.kubectl(&["delete", "crd", crd, "--timeout=300s"]).await?;
    }
    delete_while_guarded(case, DEPLOYMENTS, 3 + 1).await?;
    for command in [&["get", GAME][..], &["tree", GAME], &["history", GAME]] {
        let shown = case.game(command).await?;
        ensure!(shown.code == 0 && shown.stdout.contains(GAME), "{shown:?}");
    }
    let unknown = case.game(&["release", &format!("gsts/{SET}")]).await?;
    ensure!(unknown.stderr.contains("does not serve GameStatefulSets"), "{unknown:?}");
    unlabel_and_delete_pod(case).await?;
    let calls = case.hooks.calls("/").len();
    let released = case.game(&["release", GAME, "--yes"]).await?;
    ensure!(released.stdout.contains("released: 2 pods"), "{released:?}");
    // The CRD is deleted once the deadline of the other workload has also passed.
    until_deleted(case, DEPLOYMENTS).await?;
    let pods = live_pods(case).await?;
    ensure!(pods.is_empty(), "{pods:?}");
    ensure!(case.hooks.calls("/").len() == calls, "a hook was called");
    case.eventually("one pod's deadline has passed", async || {
        let events = case.kubectl(&["get", "events"]).await?;
        ensure!(events.matches("DeadlinePassed").count() == 1, "{events}");
        Ok(())
    })
    .await?;
    uninstall(case, "guard").await
}

/// Removes the label from one of the workload's pods by hand. Nothing happens until the pod is deleted by hand, too.
async fn unlabel_and_delete_pod(case: &Case) -> Result<()> {
    let selector = format!("app={GAME}");
    let names = ["get", "pods", "-l", &selector, "-o=jsonpath={.items[0].metadata.name}"];
    let pod = case.kubectl(&names).await?;
    let label = "gamekeeper.tkex.tencent.com/guarded-";
    case.kubectl(&["label", "pod", &pod, label]).await?;
    consistently("the pod stays", Duration::from_secs(2), async || {
        case.get(&format!("pods/{pod}")).await?;
        Ok(())
    })
    .await?;
    case.kubectl(&["delete", "pod", &pod]).await?;
    Ok(())
}

/// The names of all pods that are not Terminating, and of all budgets, except those of the workload with a deadline.
async fn pods_and_budgets(case: &Case) -> Result<Vec<String>> {
    let pods = case.list("pods").await?.into_iter();
    let pods = pods.filter(|pod| pod["metadata"]["deletionTimestamp"].is_null());
    let names = pods.map(|pod| text(&pod, "/metadata/name").to_owned());
    let all = names.chain(budgets(case).await?);
    Ok(all.filter(|name| !name.starts_with(LATE)).collect())
}

/// Deletes the CRD of a workload whose hooks cannot run, and checks that the deletion waits for the guarded pods.
/// Before that, [`pods_and_budgets`] must return `expected` names.
async fn delete_while_guarded(case: &Case, crd: &str, expected: usize) -> Result<()> {
    let before = pods_and_budgets(case).await?;
    ensure!(before.len() == expected, "{before:?}");
    case.kubectl(&["delete", "crd", crd, "--wait=false"]).await?;
    let instances = crd.split('.').next().unwrap_or_default();
    case.eventually("the workload is being deleted", async || {
        let found = case.list(instances).await?;
        let is_being_deleted = |it: &Value| !it["metadata"]["deletionTimestamp"].is_null();
        ensure!(found.len() == 1 && found.iter().all(is_being_deleted), "{found:#?}");
        Ok(())
    })
    .await?;
    consistently("the pods and budgets stay", Duration::from_secs(4), async || {
        ensure!(pods_and_budgets(case).await? == before, "a pod or a budget was deleted");
        Ok(())
    })
    .await?;
    let list = case.list("pods").await?;
    let has_kind_of_crd = |pod: &&Value| {
        let is_late = text(pod, "/metadata/name").starts_with(LATE);
        let kind = pod["metadata"]["ownerReferences"][0]["kind"].as_str();
        !is_late && kind.is_some_and(|kind| instances == format!("{}s", kind.to_lowercase()))
    };
    let pod = list.iter().find(has_kind_of_crd).context("no pod of the CRD")?;
    let pod = text(pod, "/metadata/name");
    let error = case.refused(&["delete", "pod", pod], "").await?;
    ensure!(error.contains("players may be on"), "{error}");
    Ok(())
}

/// Waits until a CRD, its workload and the workload's budget are deleted.
async fn until_deleted(case: &Case, crd: &str) -> Result<()> {
    let name = format!("crd/{crd}");
    case.kubectl(&["wait", "--for=delete", &name, "--timeout=300s"]).await?;
    let kind = crd.split('.').next().unwrap_or_default();
    let workload = if kind == "gamestatefulsets" { SET } else { GAME };
    case.eventually("the workload's budget is deleted", async || {
        let left = budgets(case).await?;
        ensure!(!left.iter().any(|it| it.starts_with(workload)), "{left:?}");
        Ok(())
    })
    .await
}

/// Installs a CRD again.
async fn install(case: &Case, plural: &str) -> Result<()> {
    let file = repository().join(format!("crds/{plural}.yaml"));
    case.kubectl(&["apply", "-f", &file.to_string_lossy()]).await?;
    Ok(())
}
