//! Guarded pods and their nodes: moves by users, nodes that are going to be removed, and lost nodes.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::case::Case;
use e2e::wait::{LIMIT, consistently, eventually};
use e2e::workload::manifest::Game;
use e2e::workload::view::View;
use e2e::workload::{GAME, SET};
use judge::object::text;
use serde_json::json;

use crate::guard_setup::{
    allowing_answer, apply_guarded, create_node, live_pods, until_guarded, waiting_reasons,
};
use crate::protection::uninstall;
use crate::stateful_volumes::with_volumes;

/// A GameDeployment with two pods that start on a node as long as it accepts them.
fn two_pods_preferring(case: &Case, node: &str) -> Game {
    preferring(node, case, Game::rolling(2).max_unavailable(1))
}

/// A workload whose pods start on a node as long as it accepts them.
pub(crate) fn preferring(node: &str, case: &Case, game: Game) -> Game {
    // Without the value, replacements would be scheduled onto the nodes of other tests.
    let tolerations = json!([{"key": "only", "operator": "Equal", "value": case.namespace}]);
    let preferences = json!([{"weight": 100, "preference": {"matchExpressions": [
        {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]},
    ]}}]);
    game.set("/spec/template/spec/tolerations", tolerations).set(
        "/spec/template/spec/affinity/nodeAffinity/preferredDuringSchedulingIgnoredDuringExecution",
        preferences,
    )
}

pub(crate) fn count_on(view: &View, node: &str) -> usize {
    let pods = view.pods.iter();
    pods.filter(|pod| text(&pod.0, "/spec/nodeName") == node).count()
}

/// Creates a node with two guarded pods, and returns its name.
async fn create_node_with_two_pods(case: &mut Case) -> Result<String> {
    let node = create_node(case).await?;
    let view = apply_guarded(case, two_pods_preferring(case, &node), 2).await?;
    view.ensure(count_on(&view, &node) == 2)?;
    Ok(node)
}

#[e2e::test]
async fn a_node_is_emptied_by_a_move(case: &mut Case) -> Result<()> {
    let node = create_node_with_two_pods(case).await?;
    let on_node = |view: &View| count_on(view, &node);
    let target = format!("node/{node}");
    let moved = case.game(&["move", &target]).await?;
    ensure!(moved.stdout.contains("2 pods will be moved"), "{moved:?}");
    ensure!(moved.stderr.contains("kubectl cordon"), "{moved:?}");
    case.kubectl(&["cordon", &node]).await?;
    case.until("pods wait for their hooks", |view| !waiting_reasons(view).is_empty()).await?;
    let error = case.refused(&["drain", &node, "--timeout=3s"], "").await?;
    ensure!(error.contains("disruption budget"), "{error}");
    ensure!(on_node(&case.view().await?) == 2, "a pod was deleted");
    case.hooks.answer("/", allowing_answer());
    case.kubectl(&["drain", &node, "--timeout=300s"]).await?;
    let view = until_guarded(case, 2).await?;
    view.ensure(on_node(&view) == 0)?;
    let again = case.game(&["move", &target]).await?;
    ensure!(again.stderr.contains("no pod of a GameDeployment"), "{again:?}");
    case.kubectl(&["delete", "node", &node]).await?;
    uninstall(case, "guard").await
}

#[e2e::test]
async fn a_pod_of_a_set_is_moved(case: &mut Case) -> Result<()> {
    case.use_stateful_set();
    let view = apply_guarded(case, Game::ordered(2), 2).await?;
    let pod = format!("{SET}-0");
    let uid = view.pod(&pod)?.uid().to_owned();
    let target = format!("pod/{pod}");
    let error = case.refused(&["delete", &target], "").await?;
    ensure!(error.contains(&format!("kubectl game move {target}")), "{error}");
    case.game(&["move", &target]).await?;
    let is_moving = |view: &View| view.number("/status/protection/moving") == 1;
    case.until("the pod waits for its hook", |view| {
        is_moving(view) && waiting_reasons(view) == ["HookNotSuccessful"]
    })
    .await?;
    let again = case.game(&["move", &target]).await?;
    ensure!(again.stderr.contains("already marked to be moved"), "{again:?}");
    case.game(&["move", &target, "--cancel"]).await?;
    case.until("the pod stays", |view| !is_moving(view) && waiting_reasons(view).is_empty())
        .await?;
    case.game(&["move", &target]).await?;
    case.hooks.answer("/", allowing_answer());
    case.until("the pod is replaced", |view| {
        let new = view.pod(&pod);
        new.is_ok_and(|new| new.uid() != uid) && !is_moving(view)
    })
    .await?;
    until_guarded(case, 2).await?;
    uninstall(case, "guard").await
}

#[e2e::test]
async fn on_node_going_moves_pods_off_a_cordoned_node(case: &mut Case) -> Result<()> {
    let node = create_node(case).await?;
    let game = two_pods_preferring(case, &node);
    let view = apply_guarded(case, game.clone(), 2).await?;
    view.ensure(count_on(&view, &node) == 2)?;
    let moving = |view: &View| view.number("/status/protection/moving");
    case.kubectl(&["cordon", &node]).await?;
    case.consistently("nothing moves by default", 2, |view| moving(view) == 0).await?;
    let move_patch =
        json!([{"op": "add", "path": "/spec/protection/onNodeGoing", "value": "Move"}]);
    case.patch(&case.workload(), move_patch).await?;
    case.until("both pods are to be moved", |view| {
        moving(view) == 2 && !waiting_reasons(view).is_empty()
    })
    .await?;
    case.kubectl(&["uncordon", &node]).await?;
    case.until("both pods stay", |view| moving(view) == 0 && waiting_reasons(view).is_empty())
        .await?;
    // A taint that the pods tolerate does not move them.
    let taint = format!("only={}:NoExecute", case.namespace);
    case.kubectl(&["taint", "node", &node, &taint]).await?;
    case.consistently("nothing moves", 2, |view| moving(view) == 0).await?;
    case.kubectl(&["taint", "node", &node, "ToBeDeletedByClusterAutoscaler=1:NoSchedule"]).await?;
    case.until("both pods are to be moved", |view| moving(view) == 2).await?;
    case.hooks.answer("/", allowing_answer());
    case.kubectl(&["drain", &node, "--timeout=300s"]).await?;
    let view = until_guarded(case, 2).await?;
    view.ensure(count_on(&view, &node) == 0)?;
    case.kubectl(&["delete", "node", &node]).await?;
    uninstall(case, "guard").await
}

/// Waits until no pod is left on this node, and two guarded pods run elsewhere. Fails if a hook was called.
async fn until_replaced(case: &Case, node: &str) -> Result<()> {
    // The pod garbage collector waits for 40 s before it treats a node as deleted, and runs every 20 s: at worst, 80 s
    // pass before it acts.
    eventually("the pods are replaced", LIMIT, async || {
        let pods = case.view().await?.pods.into_iter();
        let left = pods.filter(|pod| text(&pod.0, "/spec/nodeName") == node).count();
        ensure!(left == 0, "{left} pods are left");
        Ok(())
    })
    .await?;
    until_guarded(case, 2).await?;
    ensure!(case.hooks.calls("/").is_empty(), "a hook was called");
    Ok(())
}

#[e2e::test]
async fn a_drain_that_waits_is_told_with_the_command_that_moves_the_pods(
    case: &mut Case,
) -> Result<()> {
    let node = create_node_with_two_pods(case).await?;
    let error = case.refused(&["drain", &node, "--timeout=1s"], "").await?;
    ensure!(error.contains("disruption budget"), "{error}");
    let command = format!("kubectl game move node/{node} -A");
    case.eventually("the status names the drain", async || {
        let status = case.game(&["status", GAME]).await?;
        ensure!(status.stdout.contains(&command), "{status:?}");
        Ok(())
    })
    .await?;
    case.until("the cause is in the status", |view| {
        let causes = view.game["status"]["causes"].as_array();
        causes.is_some_and(|it| it.iter().any(|it| it["reason"] == "DrainWaits"))
    })
    .await?;
    case.hooks.answer("/", allowing_answer());
    case.game(&["move", &format!("node/{node}"), "-A"]).await?;
    case.kubectl(&["drain", &node, "--timeout=300s"]).await?;
    let view = until_guarded(case, 2).await?;
    view.ensure(count_on(&view, &node) == 0)?;
    case.kubectl(&["delete", "node", &node]).await?;
    uninstall(case, "guard").await
}

#[e2e::test]
async fn a_node_that_does_not_respond_is_named(case: &mut Case) -> Result<()> {
    let node = create_node(case).await?;
    let tolerations = json!([
        {"key": "only", "operator": "Equal", "value": case.namespace},
        {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"},
    ]);
    let game = two_pods_preferring(case, &node).set("/spec/template/spec/tolerations", tolerations);
    case.apply(game).await?;
    let view = case.until_settled(2).await?;
    view.ensure(count_on(&view, &node) == 2)?;
    // No kubelet reports them any more. The node controller would mark them as not ready if it had found out by itself.
    case.kubectl(&["annotate", "pods", "--all", "stage.gamekeeper/lost=true"]).await?;
    case.kubectl(&["label", "node", &node, "stage.gamekeeper/lost=true"]).await?;
    let unready = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
    let patch = format!("-p={unready}");
    for pod in view.pod_names() {
        case.kubectl(&["patch", "pod", pod, "--subresource=status", &patch]).await?;
    }
    let command = format!("kubectl describe node {node}");
    case.eventually("the status names the node", async || {
        let status = case.game(&["status", GAME]).await?;
        let words = format!("node {node}, on which pod ");
        ensure!(status.stdout.contains(&words) && status.stdout.contains(&command), "{status:?}");
        Ok(())
    })
    .await?;
    case.kubectl(&["delete", "node", &node]).await?;
    case.until_settled(2).await?;
    Ok(())
}

#[e2e::test]
async fn guarded_pods_on_an_unreachable_node_are_replaced(case: &mut Case) -> Result<()> {
    let node = create_node(case).await?;
    let tolerations = json!([
        {"key": "only", "operator": "Equal", "value": case.namespace},
        {
            "key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute",
            "tolerationSeconds": 2,
        },
    ]);
    let game = two_pods_preferring(case, &node).set("/spec/template/spec/tolerations", tolerations);
    let view = apply_guarded(case, game, 2).await?;
    view.ensure(count_on(&view, &node) == 2)?;
    let before = live_pods(case).await?;
    case.kill_operator().await?;
    case.kubectl(&["label", "node", &node, "stage.gamekeeper/lost=true"]).await?;
    case.eventually("Kubernetes has tried to delete the pods", async || {
        let pods = case.list("pods").await?;
        let is_target = |pod: &&serde_json::Value| judge::object::is_true(pod, "DisruptionTarget");
        ensure!(pods.iter().filter(is_target).count() == 2);
        Ok(())
    })
    .await?;
    consistently("the guard keeps the pods", Duration::from_secs(2), async || {
        ensure!(live_pods(case).await? == before, "a pod was deleted");
        Ok(())
    })
    .await?;
    case.operator.start().await?;
    until_replaced(case, &node).await?;
    case.kubectl(&["delete", "node", &node]).await?;
    uninstall(case, "guard").await
}

#[e2e::test]
async fn guarded_pods_on_an_out_of_service_node_are_replaced(case: &mut Case) -> Result<()> {
    let node = create_node_with_two_pods(case).await?;
    let taint = "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute";
    case.kubectl(&["taint", "node", &node, taint]).await?;
    until_replaced(case, &node).await?;
    case.kubectl(&["delete", "node", &node]).await?;
    uninstall(case, "guard").await
}

#[e2e::test]
async fn guarded_pods_of_a_deleted_node_are_replaced(case: &mut Case) -> Result<()> {
    let node = create_node_with_two_pods(case).await?;
    case.kubectl(&["delete", "node", &node]).await?;
    until_replaced(case, &node).await?;
    uninstall(case, "guard").await
}

/// The taint manager's deletions are refused whether or not the operator runs. With onNodeGoing: Move, the pods are
/// replaced.
#[e2e::test]
async fn pods_that_do_not_tolerate_a_taint_stay_or_are_moved(case: &mut Case) -> Result<()> {
    let node = create_node_with_two_pods(case).await?;
    let before = live_pods(case).await?;
    case.kill_operator().await?;
    case.kubectl(&["taint", "node", &node, "maintenance=1:NoExecute"]).await?;
    let ensure_kept = async |case: &Case| {
        consistently("the guard keeps the pods", Duration::from_secs(2), async || {
            ensure!(live_pods(case).await? == before, "a pod was deleted");
            Ok(())
        })
        .await
    };
    case.eventually("Kubernetes has tried to delete the pods", async || {
        let pods = case.list("pods").await?;
        let is_target = |pod: &&serde_json::Value| judge::object::is_true(pod, "DisruptionTarget");
        ensure!(pods.iter().filter(is_target).count() == 2);
        Ok(())
    })
    .await?;
    ensure_kept(case).await?;
    case.operator.start().await?;
    ensure_kept(case).await?;
    case.hooks.answer("/", allowing_answer());
    let move_patch =
        json!([{"op": "add", "path": "/spec/protection/onNodeGoing", "value": "Move"}]);
    case.patch(&case.workload(), move_patch).await?;
    case.until("the pods are replaced", |view| count_on(view, &node) == 0 && view.pods.len() == 2)
        .await?;
    until_guarded(case, 2).await?;
    case.kubectl(&["delete", "node", &node]).await?;
    uninstall(case, "guard").await
}

/// Each claim with its uid and the volume that it is bound to.
async fn claims(case: &Case) -> Result<Vec<(String, String, String)>> {
    let claims = case.list("persistentvolumeclaims").await?;
    let field = |claim, pointer| text(claim, pointer).to_owned();
    let claims = claims.iter().map(|claim| {
        let [name, uid] = ["/metadata/name", "/metadata/uid"].map(|it| field(claim, it));
        (name, uid, field(claim, "/spec/volumeName"))
    });
    Ok(claims.collect())
}

#[e2e::test]
async fn pods_of_a_set_leave_a_tainted_node_with_their_claims(case: &mut Case) -> Result<()> {
    let node = create_node(case).await?;
    // A scale-in would delete the claims, but a move is not a scale-in.
    let policy = json!({"whenScaled": "Delete", "whenDeleted": "Retain"});
    let set = with_volumes(case, 2).await?;
    let set = set.set("/spec/persistentVolumeClaimRetentionPolicy", policy);
    let view = apply_guarded(case, preferring(&node, case, set), 2).await?;
    view.ensure(count_on(&view, &node) == 2)?;
    let move_patch =
        json!([{"op": "add", "path": "/spec/protection/onNodeGoing", "value": "Move"}]);
    case.patch(&case.workload(), move_patch).await?;
    let before = claims(case).await?;
    ensure!(
        before.len() == 2 && before.iter().all(|(_, _, volume)| !volume.is_empty()),
        "{before:?}"
    );
    case.kubectl(&["taint", "node", &node, "maintenance=1:NoExecute"]).await?;
    case.until("both pods are to be moved, and wait", |view| {
        view.number("/status/protection/moving") == 2 && !waiting_reasons(view).is_empty()
    })
    .await?;
    case.consistently("both pods stay while their hooks fail", 2, |view| {
        count_on(view, &node) == 2
    })
    .await?;
    case.hooks.answer("/", allowing_answer());
    case.until("both pods run elsewhere", |now| {
        count_on(now, &node) == 0 && now.pod_names() == view.pod_names()
    })
    .await?;
    let after = until_guarded(case, 2).await?;
    ensure!(claims(case).await? == before, "a claim was replaced");
    for pod in &after.pods {
        let volume = "/spec/volumes/0/persistentVolumeClaim/claimName";
        let expected = format!("data-{}", pod.name());
        ensure!(text(&pod.0, volume) == expected, "{:#}", pod.0["spec"]);
    }
    case.kubectl(&["delete", "node", &node]).await?;
    uninstall(case, "guard").await
}

#[e2e::test]
async fn a_paused_canary_keeps_its_revisions_when_it_leaves_a_node(case: &mut Case) -> Result<()> {
    let node = create_node(case).await?;
    let game = two_pods_preferring(case, &node).steps(json!([{"partition": 1}, {"pause": {}}]));
    apply_guarded(case, game, 2).await?;
    case.hooks.answer("/", allowing_answer());
    let move_patch =
        json!([{"op": "add", "path": "/spec/protection/onNodeGoing", "value": "Move"}]);
    case.patch(&case.workload(), move_patch).await?;
    case.set_image("game:v2").await?;
    let is_paused = |view: &View| {
        view.step() == 1
            && view.is_paused()
            && view.ready_with("game:v1") == 1
            && view.ready_with("game:v2") == 1
    };
    let view = case.until("paused at step 1", is_paused).await?;
    view.ensure(count_on(&view, &node) == 2)?;
    case.kubectl(&["cordon", &node]).await?;
    case.until("both revisions run elsewhere", |view| {
        is_paused(view) && count_on(view, &node) == 0
    })
    .await?;
    case.resume().await?;
    case.until("the rollout ends", |view| view.ready_with("game:v2") == 2).await?;
    case.kubectl(&["delete", "node", &node]).await?;
    uninstall(case, "guard").await
}
