//! `gamekeeper unguard`, which the chart runs before it is uninstalled: nothing of Gamekeeper blocks afterwards.

use anyhow::{Result, ensure};
use e2e::case::Case;
use e2e::workload::manifest::Game;
use judge::object::text;
use serde_json::Value;

use crate::guard::{budgets, label, living, play, waiting};
use crate::protection::uninstall;

e2e::tests![
    guards_are_removed_unless_pods_wait,
    a_budget_and_labels_without_a_workload_are_removed,
];

/// Nothing that guards pods is left, the pods still run, and they can be deleted.
async fn nothing_blocks(case: &Case, before: &[String]) -> Result<()> {
    ensure!(budgets(case).await?.is_empty(), "a budget is left");
    let pods = case.list("pods").await?;
    ensure!(pods.iter().all(|pod| label(pod).is_empty()), "{pods:#?}");
    ensure!(living(case).await? == before, "a pod is gone");
    let annotation = "/metadata/annotations/karpenter.sh~1do-not-disrupt";
    ensure!(pods.iter().all(|pod| text(pod, annotation).is_empty()));
    let pod = text(&pods[0], "/metadata/name");
    case.kubectl(&["delete", "pod", pod]).await?;
    Ok(())
}

async fn guards_are_removed_unless_pods_wait(case: &mut Case) -> Result<()> {
    play(case, Game::in_place(3), 3).await?;
    let before = living(case).await?;
    case.scale(2).await?;
    case.until("a pod waits", |view| waiting(view) == ["HookNotSuccessful"])
        .await?;
    case.kill_operator().await?;
    let namespace = format!("--namespace={}", case.namespace);
    let unguard = ["unguard", "--all", &namespace];
    let refused = case.operator.run(&unguard).await?;
    let expected = "1 workload has to wait for the hooks of their pods: GameDeployment";
    ensure!(refused.stderr.contains(expected), "{refused:?}");
    ensure!(budgets(case).await?.len() == 1, "the budget is gone");
    let forced = [&unguard[..], &["--force"]].concat();
    let done = case.operator.run(&forced).await?;
    ensure!(
        done.stdout.contains("3 pods are no longer guarded"),
        "{done:?}"
    );
    let view = case.view().await?;
    ensure!(view.game["metadata"]["finalizers"].is_null());
    nothing_blocks(case, &before).await?;
    case.kubectl(&["delete", &case.workload()]).await?;
    uninstall(case, "guard").await
}

async fn a_budget_and_labels_without_a_workload_are_removed(case: &mut Case) -> Result<()> {
    play(case, Game::in_place(2), 2).await?;
    let before = living(case).await?;
    case.kill_operator().await?;
    let orphan = [
        "delete",
        &case.workload(),
        "--cascade=orphan",
        "--wait=false",
    ];
    case.kubectl(&orphan).await?;
    case.eventually("the pods are orphaned", async || {
        let pods = case.list("pods").await?;
        let is_owned = |pod: &&Value| !pod["metadata"]["ownerReferences"].is_null();
        ensure!(pods.iter().filter(is_owned).count() == 0);
        Ok(())
    })
    .await?;
    let finalizers = r#"-p={"metadata":{"finalizers":null}}"#;
    case.kubectl(&["patch", &case.workload(), "--type=merge", finalizers])
        .await?;
    ensure!(budgets(case).await?.len() == 1, "the budget is gone");
    let pods = case.list("pods").await?;
    ensure!(pods.iter().all(|pod| !label(pod).is_empty()), "{pods:#?}");
    let namespace = format!("--namespace={}", case.namespace);
    let done = case.operator.run(&["unguard", "--all", &namespace]).await?;
    ensure!(
        done.stdout.contains("2 pods are no longer guarded"),
        "{done:?}"
    );
    nothing_blocks(case, &before).await?;
    uninstall(case, "guard").await
}
