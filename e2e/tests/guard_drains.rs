//! Drains of guarded GameStatefulSets, whose replacement pods have the names of the pods that the drain evicts.

use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use e2e::case::Case;
use e2e::workload::manifest::Game;
use e2e::workload::view::View;

use crate::guard_nodes::{count_on, preferring};
use crate::guard_setup::{
    allowing_answer, apply_guarded, condition, create_node, until_guarded, waiting_reasons,
};
use crate::protection::uninstall;

e2e::tests![
    a_drain_of_a_set_completes_after_the_pods_hooks,
    a_drain_of_a_set_completes_even_if_the_operator_is_killed,
];

/// Creates a node with two guarded pods of a GameStatefulSet, and returns its name.
async fn create_node_with_two_pods(case: &mut Case, set: Game) -> Result<String> {
    case.use_stateful_set();
    let node = create_node(case).await?;
    let view = apply_guarded(case, preferring(&node, case, set), 2).await?;
    view.ensure(count_on(&view, &node) == 2)?;
    Ok(node)
}

/// Checks that both pods run on other nodes. Then deletes this node and the policy.
async fn ensure_moved(case: &Case, node: &str) -> Result<()> {
    let view = until_guarded(case, 2).await?;
    view.ensure(count_on(&view, node) == 0)?;
    case.kubectl(&["delete", "node", node]).await?;
    uninstall(case, "guard").await
}

/// A user requests the move. OrderedReady moves one pod at a time.
async fn a_drain_of_a_set_completes_after_the_pods_hooks(case: &mut Case) -> Result<()> {
    let node = create_node_with_two_pods(case, Game::ordered(2)).await?;
    case.kubectl(&["cordon", &node]).await?;
    case.game(&["move", &format!("node/{node}")]).await?;
    case.until("a pod waits for its hook", |view| {
        !waiting_reasons(view).is_empty()
    })
    .await?;
    let error = case.refused(&["drain", &node, "--timeout=3s"], "").await?;
    ensure!(error.contains("disruption budget"), "{error}");
    case.hooks.answer("/", allowing_answer());
    case.kubectl(&["drain", &node, "--timeout=90s"]).await?;
    ensure_moved(case, &node).await
}

/// With onNodeGoing: Move, both pods are moved at the same time. The restarted operator, too, keeps their names free
/// until the drain can have noticed the deletions.
async fn a_drain_of_a_set_completes_even_if_the_operator_is_killed(case: &mut Case) -> Result<()> {
    let set = Game::parallel(2)
        .max_unavailable(2)
        .set("/spec/protection/onNodeGoing", "Move");
    let node = create_node_with_two_pods(case, set).await?;
    let mut drain = case
        .kubectl_command(&["drain", &node, "--timeout=90s"])
        .await?;
    let drain = drain
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    case.until("both pods wait for their hooks", |view| {
        waiting_reasons(view).len() == 2
    })
    .await?;
    case.hooks.answer("/", allowing_answer());
    let is_vacated = |view: &View| {
        let vacated = view.game.pointer("/status/protection/vacated");
        view.pods.is_empty()
            && vacated
                .and_then(|it| it.as_array())
                .is_some_and(|it| it.len() == 2)
    };
    let view = case.until("both pods have left", is_vacated).await?;
    view.ensure(condition(&view).0 == "True")?;
    case.kill_operator().await?;
    case.operator.start().await?;
    let output = drain.wait_with_output().await.context("drain")?;
    ensure!(output.status.success(), "{output:?}");
    ensure_moved(case, &node).await
}
