//! Drains of guarded GameStatefulSets, whose replacement pods have the names of the pods that the drain evicts.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use e2e::case::Case;
use e2e::workload::manifest::Game;
use jiff::{SignedDuration, Timestamp};
use judge::object::text;

use crate::guard_nodes::{count_on, preferring};
use crate::guard_setup::{
    allowing_answer, apply_guarded, condition, create_node, live_pods, until_guarded,
    waiting_reasons,
};
use crate::protection::uninstall;

/// After a longer pause between two attempts to evict a pod, a drain can miss the pod's deletion: the operator keeps
/// the pod's name free for ten seconds, counted from its decision and in whole seconds.
const LONGEST_PAUSE: SignedDuration = SignedDuration::from_secs(8);

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

/// Whether a drain that began at this time paused for too long between two attempts to evict a pod, although it should
/// try every five seconds. It may then have tried to evict the replacement, and does not complete.
fn was_slow(case: &Case, start: Timestamp) -> Result<bool> {
    let mut events = case.plane().audit.writes(&case.namespace)?;
    events.sort_by_key(|event| event.received);
    let mut attempts = BTreeMap::new();
    let mut is_slow = false;
    for event in events {
        let object = event.object_ref.unwrap_or_default();
        if event.received < start || object.subresource != "eviction" {
            continue;
        }
        if let Some(last) = attempts.insert(object.name, event.received) {
            is_slow |= event.received.duration_since(last) > LONGEST_PAUSE;
        }
    }
    Ok(is_slow)
}

/// Drains the node of a drain that began at `start` and failed because this machine was too slow.
async fn drain_again(case: &Case, node: &str, start: Timestamp, error: &str) -> Result<()> {
    ensure!(was_slow(case, start)?, "{error}");
    case.kubectl(&["drain", node, "--timeout=300s"]).await?;
    Ok(())
}

/// The pods that the operator has recorded as vacated in any status so far.
fn vacated(case: &Case) -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for event in case.events()?.iter().filter(|event| event.succeeded()) {
        let written = event.request_object.as_ref();
        let vacated = written.and_then(|it| it.pointer("/status/protection/vacated")?.as_array());
        let entries = vacated.into_iter().flatten();
        names.extend(entries.map(|it| text(it, "/podName").to_owned()));
    }
    Ok(names)
}

/// A user requests the move. OrderedReady moves one pod at a time.
#[e2e::test]
async fn a_drain_of_a_set_completes_after_the_pods_hooks(case: &mut Case) -> Result<()> {
    let node = create_node_with_two_pods(case, Game::ordered(2)).await?;
    case.kubectl(&["cordon", &node]).await?;
    case.game(&["move", &format!("node/{node}")]).await?;
    case.until("a pod waits for its hook", |view| !waiting_reasons(view).is_empty()).await?;
    let error = case.refused(&["drain", &node, "--timeout=3s"], "").await?;
    ensure!(error.contains("disruption budget"), "{error}");
    case.hooks.answer("/", allowing_answer());
    let start = Timestamp::now();
    if let Err(error) = case.kubectl(&["drain", &node, "--timeout=150s"]).await {
        drain_again(case, &node, start, &format!("{error:#}")).await?;
    }
    ensure_moved(case, &node).await
}

/// With onNodeGoing: Move, both pods are moved at the same time. The restarted operator, too, keeps their names free
/// until the drain can have noticed the deletions.
#[e2e::test]
async fn a_drain_of_a_set_completes_even_if_the_operator_is_killed(case: &mut Case) -> Result<()> {
    let set = Game::parallel(2).max_unavailable(2).set("/spec/protection/onNodeGoing", "Move");
    let node = create_node_with_two_pods(case, set).await?;
    let before = live_pods(case).await?;
    let start = Timestamp::now();
    let mut drain = case.kubectl_command(&["drain", &node, "--timeout=150s"]).await?;
    let drain = drain.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    case.until("both pods wait for their hooks", |view| waiting_reasons(view).len() == 2).await?;
    case.hooks.answer("/", allowing_answer());
    // Their names stay free for ten seconds only, so this does not require that the replacements do not exist yet.
    let view = case
        .until("both pods have left", |view| {
            let mut pods = view.pods.iter();
            !pods.any(|pod| before.iter().any(|uid| uid == pod.uid()))
        })
        .await?;
    view.ensure(condition(&view).0 == "True")?;
    case.kill_operator().await?;
    case.operator.start().await?;
    let output = drain.wait_with_output().await.context("drain")?;
    if !output.status.success() {
        drain_again(case, &node, start, &format!("{output:?}")).await?;
    }
    let vacated = vacated(case)?;
    ensure!(vacated.len() == 2, "{vacated:?}");
    ensure_moved(case, &node).await
}
