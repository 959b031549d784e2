//! The deletion of a guarded workload, whatever options a client uses: its pods are kept until their hooks allow it.

use anyhow::{Context, Result, ensure};
use e2e::case::Case;
use e2e::workload::GAME;
use e2e::workload::manifest::Game;
use judge::object::text;

use crate::guard_setup::{
    allowing_answer, apply_guarded, budgets, evict, label, live_pods, until_deleted,
    waiting_reasons,
};
use crate::protection::uninstall;

/// Deletes the workload with these options while its hook fails. The pods must be kept until the hook allows the
/// deletion, first without an operator, then with one.
async fn delete_with(case: &mut Case, options: &[&str]) -> Result<()> {
    let before = live_pods(case).await?;
    case.kill_operator().await?;
    let workload = case.workload();
    let delete = [&["delete", &workload, "--wait=false"], options].concat();
    case.kubectl(&delete).await?;
    let ensure_kept = async |case: &Case| {
        e2e::wait::consistently(
            "the pods are kept",
            std::time::Duration::from_secs(3),
            async || {
                ensure!(live_pods(case).await? == before, "a pod was deleted");
                ensure!(budgets(case).await?.len() == 1, "the budget was deleted");
                Ok(())
            },
        )
        .await
    };
    ensure_kept(case).await?;
    case.operator.start().await?;
    case.until("the pods wait for their hooks", |view| waiting_reasons(view).len() == before.len())
        .await?;
    ensure_kept(case).await?;
    let pod = case.view().await?.pod_names()[0].to_owned();
    let error = evict(case, &pod).await.err().context("the pod was evicted")?;
    ensure!(format!("{error:#}").contains("disruption budget"), "{error:#}");
    let tree = case.game(&["tree", &workload]).await?.stdout;
    ensure!(tree.contains("guarded pods wait for their hook"), "{tree}");
    case.hooks.answer("/", allowing_answer());
    until_deleted(case).await
}

#[e2e::test]
async fn a_guarded_workload_is_deleted_after_its_last_match(case: &mut Case) -> Result<()> {
    apply_guarded(case, Game::in_place(2), 2).await?;
    delete_with(case, &[]).await?;
    uninstall(case, "guard").await
}

#[e2e::test]
async fn a_foreground_deletion_waits_for_guarded_pods(case: &mut Case) -> Result<()> {
    case.use_stateful_set();
    apply_guarded(case, Game::parallel(2), 2).await?;
    delete_with(case, &["--cascade=foreground"]).await?;
    uninstall(case, "guard").await
}

#[e2e::test]
async fn orphaned_guarded_pods_are_left_to_the_user(case: &mut Case) -> Result<()> {
    apply_guarded(case, Game::in_place(2), 2).await?;
    let before = live_pods(case).await?;
    // The garbage collector removes the owner references before the operator starts.
    case.operator.terminate().await?;
    case.kubectl(&["delete", "gamedeployment", GAME, "--cascade=orphan", "--wait=false"]).await?;
    case.eventually("the pods are orphaned", async || {
        let pods = case.list("pods").await?;
        let owned = pods.iter().filter(|pod| !pod["metadata"]["ownerReferences"].is_null());
        ensure!(owned.count() == 0);
        Ok(())
    })
    .await?;
    case.operator.start().await?;
    case.eventually("the workload, its budget and the labels are removed", async || {
        let get = ["get", "gamedeployment", GAME, "--ignore-not-found"];
        ensure!(case.kubectl(&get).await?.is_empty());
        ensure!(budgets(case).await?.is_empty());
        let pods = case.list("pods").await?;
        ensure!(pods.iter().all(|pod| label(pod).is_empty()), "{pods:#?}");
        Ok(())
    })
    .await?;
    ensure!(live_pods(case).await? == before, "a pod was deleted");
    ensure!(case.hooks.calls("/").is_empty(), "a hook was called");
    let pods = case.list("pods").await?;
    let pod = text(&pods[0], "/metadata/name").to_owned();
    case.kubectl(&["delete", "pod", &pod]).await?;
    uninstall(case, "guard").await
}

#[e2e::test]
async fn a_guarded_workload_is_deleted_together_with_its_hook_template(
    case: &mut Case,
) -> Result<()> {
    apply_guarded(case, Game::in_place(1), 1).await?;
    case.until("the workload keeps a copy of the template", |view| {
        let copy = "/metadata/annotations/gamekeeper.tkex.tencent.com~1pre-delete-hook";
        !view.text(copy).is_empty()
    })
    .await?;
    case.kubectl(&["delete", "hooktemplate", "test"]).await?;
    case.kubectl(&["delete", "gamedeployment", GAME, "--wait=false"]).await?;
    case.until("the hook runs", |view| waiting_reasons(view) == ["HookNotSuccessful"]).await?;
    ensure!(live_pods(case).await?.len() == 1);
    case.hooks.answer("/", allowing_answer());
    until_deleted(case).await?;
    uninstall(case, "guard").await
}
