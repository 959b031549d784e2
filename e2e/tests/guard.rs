//! Guarded pods (`spec.protection`): no client ends a match before the hook of its pod allows that, not even while no
//! operator is running. The commands are those that users type.

use anyhow::{Context, Result, ensure};
use e2e::case::Case;
use e2e::workload::manifest::{Game, hook_template};
use e2e::workload::view::Pod;
use e2e::workload::{GAME, SET};
use judge::object::text;
use serde_json::json;

use crate::guard_setup::{
    allowing_answer, apply_guarded, budgets, condition, create_node, evict, install_policy, label,
    live_pods, refusing_answer, until_counted, until_deleted, until_guarded, waiting_reasons,
};
use crate::protection::{release, uninstall};

const LABEL: &str = "gamekeeper.tkex.tencent.com/guarded";

/// Checks that every request that would end a match is refused, with a message that says what to do instead.
async fn ensure_no_request_ends_the_match(case: &Case, pod: &str) -> Result<()> {
    let before = live_pods(case).await?;
    let ensure_refused = async |args: &[&str], words: &str| -> Result<()> {
        let error = case.refused(args, "").await?;
        ensure!(error.contains(words), "{args:?}: {error}");
        Ok(())
    };
    let players = format!("players may be on {pod}");
    let release = format!("kubectl game release pod/{pod} -n {}", case.namespace);
    for args in [
        &["delete", "pod", pod][..],
        &["delete", "pod", pod, "--force", "--grace-period=0"],
        &["delete", "pods", "--all"],
    ] {
        ensure_refused(args, &players).await?;
        ensure_refused(args, &release).await?;
    }
    // This request names no pod, so the message cannot take the pod's name from the request.
    let all = format!("/api/v1/namespaces/{}/pods", case.namespace);
    let workload = case.workload();
    let (_, game) = workload.split_once('/').context("no name")?;
    for words in [
        format!("players may be on {game}-"),
        format!("kubectl game move pod/{game}-"),
        format!("kubectl game release pod/{game}-"),
    ] {
        ensure_refused(&["delete", "--raw", &all], &words).await?;
    }
    let object = case.get(&format!("pods/{pod}")).await?;
    let mut copy = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": pod, "labels": object["metadata"]["labels"]}, "spec": object["spec"],
    });
    copy["metadata"]["namespace"] = json!(case.namespace);
    let replace = ["replace", "--force", "-f", "-"];
    let error = case.refused(&replace, &copy.to_string()).await?;
    ensure!(error.contains(&players), "{error}");
    let target = format!("pod/{pod}");
    let deadline = r#"-p={"spec":{"activeDeadlineSeconds":1}}"#;
    for args in [["set", "image", &target, "game=game:v9"], ["patch", "pod", pod, deadline]] {
        ensure_refused(&args, &players).await?;
        ensure_refused(&args, &release).await?;
    }
    let error = evict(case, pod).await.err().map(|it| format!("{it:#}"));
    let error = error.context("the eviction was not refused")?;
    ensure!(error.contains("disruption budget"), "{error}");
    ensure!(live_pods(case).await? == before, "a pod was deleted");
    Ok(())
}

#[e2e::test]
async fn no_client_ends_a_guarded_match(case: &mut Case) -> Result<()> {
    let view = apply_guarded(case, Game::in_place(2), 2).await?;
    let pod = view.pod_names()[0].to_owned();
    ensure_no_request_ends_the_match(case, &pod).await?;
    case.kill_operator().await?;
    ensure_no_request_ends_the_match(case, &pod).await?;
    // Requests that end no container are accepted.
    case.kubectl(&["annotate", "pod", &pod, "note=x"]).await?;
    case.kubectl(&["label", "pod", &pod, "note=x"]).await?;
    let policy = format!("{}-guard", release(case));
    let path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
    let policy = case.plane().get(&format!("{path}/{policy}")).await?;
    let warnings = &policy["status"]["typeChecking"]["expressionWarnings"];
    ensure!(warnings.is_null(), "{warnings:#}");
    let budgets = budgets(case).await?;
    let budget = budgets[0].as_str();
    for args in [
        &["delete", "pdb", budget][..],
        &["patch", "pdb", budget, "--type=merge", r#"-p={"spec":{"minAvailable":1}}"#],
    ] {
        let error = case.refused(args, "").await?;
        ensure!(error.contains("only the operator"), "{error}");
    }
    // The operator deletes the pod once its hook allows it.
    case.hooks.answer("/", allowing_answer());
    case.operator.start().await?;
    case.scale(1).await?;
    case.until("one pod is left", |view| view.pods.len() == 1).await?;
    // A pod without a running container has no players.
    let last = case.view().await?.pod_names()[0].to_owned();
    case.operator.terminate().await?;
    case.end_pod(&last, "Failed").await?;
    case.kubectl(&["delete", "pod", &last, "--wait=false"]).await?;
    uninstall(case, "guard").await
}

#[e2e::test]
async fn a_drain_waits_for_guarded_pods(case: &mut Case) -> Result<()> {
    let node = create_node(case).await?;
    let tolerations = json!([{"key": "only", "operator": "Exists"}]);
    let game = Game::rolling(2)
        .set("/spec/template/spec/tolerations", tolerations)
        .set("/spec/template/spec/nodeSelector/kubernetes.io~1hostname", node.as_str());
    apply_guarded(case, game, 2).await?;
    let before = live_pods(case).await?;
    let drain = ["drain", &node, "--timeout=4s"];
    let drain_without_eviction = ["drain", &node, "--disable-eviction", "--timeout=4s"];
    for operator_is_running in [true, false] {
        if !operator_is_running {
            case.kill_operator().await?;
        }
        let error = case.refused(&drain, "").await?;
        ensure!(error.contains("disruption budget"), "{error}");
        let error = case.refused(&drain_without_eviction, "").await?;
        ensure!(error.contains("players may be on"), "{error}");
        ensure!(live_pods(case).await? == before, "a pod was deleted");
    }
    case.operator.start().await?;
    case.hooks.answer("/", allowing_answer());
    case.scale(0).await?;
    case.until("all pods are deleted", |view| view.pods.is_empty()).await?;
    case.kubectl(&["drain", &node, "--timeout=300s"]).await?;
    case.kubectl(&["delete", "node", &node]).await?;
    uninstall(case, "guard").await
}

fn is_kept_by_autoscalers(pod: &Pod) -> bool {
    let annotation = |key: &str| text(&pod.0, &format!("/metadata/annotations/{key}"));
    annotation("cluster-autoscaler.kubernetes.io~1safe-to-evict") == "false"
        && annotation("karpenter.sh~1do-not-disrupt") == "true"
}

#[e2e::test]
async fn the_guard_is_switched_on_and_off(case: &mut Case) -> Result<()> {
    install_policy(case).await?;
    case.hooks.answer("/", refusing_answer());
    case.apply(hook_template("test", &case.hooks.url("/"))).await?;
    case.apply(Game::in_place(3).pre_delete("test")).await?;
    let view = case.until_settled(3).await?;
    ensure!(
        budgets(case).await?.is_empty() && view.pods.iter().all(|pod| label(&pod.0).is_empty())
    );
    let protect =
        |pods: &str| json!([{"op": "add", "path": "/spec/protection", "value": {"pods": pods}}]);
    let workload = case.workload();
    for _ in 0..2 {
        case.patch(&workload, protect("Guarded")).await?;
        let guarded = until_guarded(case, 3).await?;
        ensure_no_request_ends_the_match(case, guarded.pod_names()[0]).await?;
        guarded.ensure(guarded.pods.iter().all(is_kept_by_autoscalers))?;
        case.patch(&workload, protect("None")).await?;
        case.until("the guard is removed", |view| {
            condition(view) == ("", "")
                && view.game["metadata"]["finalizers"].is_null()
                && view.pods.iter().all(|pod| label(&pod.0).is_empty())
                && !view.pods.iter().any(is_kept_by_autoscalers)
        })
        .await?;
        ensure!(budgets(case).await?.is_empty());
    }
    let after = case.until_settled(3).await?;
    ensure!(after.pod_names() == view.pod_names(), "a pod was replaced");
    case.kubectl(&["delete", "pod", after.pod_names()[0]]).await?;
    uninstall(case, "guard").await
}

#[e2e::test]
async fn a_guard_is_not_in_force_without_its_policy(case: &mut Case) -> Result<()> {
    case.apply(hook_template("test", &case.hooks.url("/"))).await?;
    case.apply(Game::in_place(1).pre_delete("test").guarded()).await?;
    case.until("the status reports that the guard is not in force", |view| {
        condition(view) == ("False", "GuardNotInForce") && view.pods.len() == 1
    })
    .await?;
    let tree = case.game(&["tree", GAME]).await?.stdout;
    ensure!(tree.contains("Guard:      not in force: the ValidatingAdmissionPolicy"), "{tree}");
    install_policy(case).await?;
    // Once the condition is True, deletions are refused.
    let view = until_guarded(case, 1).await?;
    ensure_no_request_ends_the_match(case, view.pod_names()[0]).await?;
    uninstall(case, "guard").await
}

#[e2e::test]
async fn a_failed_hook_of_a_guarded_pod_is_run_again(case: &mut Case) -> Result<()> {
    apply_guarded(case, Game::in_place(2), 2).await?;
    case.scale(1).await?;
    case.until("the hook fails", |view| waiting_reasons(view) == ["HookNotSuccessful"]).await?;
    case.eventually("the hook is run again", async || {
        ensure!(case.hooks.calls("/").len() > 3);
        Ok(())
    })
    .await?;
    case.hooks.answer("/", allowing_answer());
    case.until("the pod is deleted", |view| {
        view.pods.len() == 1 && waiting_reasons(view).is_empty()
    })
    .await?;
    uninstall(case, "guard").await
}

#[e2e::test]
async fn a_guarded_pod_is_deleted_at_its_deadline(case: &mut Case) -> Result<()> {
    let game = Game::in_place(2);
    apply_guarded(case, game, 2).await?;
    case.replace("/spec/replicas", 1).await?;
    case.until("the hook fails", |view| waiting_reasons(view) == ["HookNotSuccessful"]).await?;
    let deadline = json!([{"op": "add", "path": "/spec/protection/deadlineSeconds", "value": 1}]);
    let error = case.patch(&case.workload(), deadline).await;
    let error = error.err().context("a deadline that is too short was accepted")?;
    let error = format!("{error:#}");
    ensure!(error.contains("must be more than askAgainSeconds"), "{error}");
    let deadline = json!([{"op": "add", "path": "/spec/protection/deadlineSeconds", "value": 5}]);
    case.patch(&case.workload(), deadline).await?;
    case.until("the pod is deleted", |view| view.pods.len() == 1).await?;
    case.eventually("an event reports the deadline", async || {
        let events = case.kubectl(&["get", "events"]).await?;
        ensure!(events.contains("DeadlinePassed"), "{events}");
        Ok(())
    })
    .await?;
    uninstall(case, "guard").await
}

#[e2e::test]
async fn guarded_pods_are_released_by_users(case: &mut Case) -> Result<()> {
    let view = apply_guarded(case, Game::in_place(3), 3).await?;
    let pod = format!("pod/{}", view.pod_names()[0]);
    let released = case.game(&["release", &pod, "--yes"]).await?;
    ensure!(released.stdout == format!("{pod} released\n"), "{released:?}");
    let again = case.game(&["release", &pod, "--yes"]).await?;
    ensure!(again.stderr.contains("is not guarded: nothing to release"), "{again:?}");
    case.until("the pod stays released", |view| {
        condition(view).0 == "True" && view.number("/status/protection/guarded") == 2
    })
    .await?;
    case.kubectl(&["delete", &pod]).await?;
    until_guarded(case, 3).await?;
    until_counted(case, &[("released", 1), ("other_client", 0)]).await?;
    case.kubectl(&["delete", "gamedeployment", GAME, "--wait=false"]).await?;
    case.until("the pods wait", |view| waiting_reasons(view).len() == 3).await?;
    let released = case.game(&["release", GAME, "--yes"]).await?;
    let expected = "gamedeployment.tkex.tencent.com/test-gamedeployment released: 3 pods";
    ensure!(released.stdout.contains(expected), "{released:?}");
    until_deleted(case).await?;
    uninstall(case, "guard").await
}

#[e2e::test]
async fn removing_the_hook_keeps_the_guard(case: &mut Case) -> Result<()> {
    apply_guarded(case, Game::in_place(2), 2).await?;
    let remove = json!([{"op": "remove", "path": "/spec/preDeleteUpdateStrategy/hook"}]);
    case.patch(&case.workload(), remove).await?;
    case.scale(1).await?;
    case.until("the pod waits for a confirmation", |view| {
        condition(view) == ("False", "HookRemoved") && waiting_reasons(view) == ["HookRemoved"]
    })
    .await?;
    case.consistently("the pods are kept", 2, |view| view.pods.len() == 2).await?;
    case.game(&["release", GAME, "--yes"]).await?;
    case.until("the pod is deleted, and the guard is removed", |view| {
        view.pods.len() == 1 && view.game["metadata"]["finalizers"].is_null()
    })
    .await?;
    uninstall(case, "guard").await
}

#[e2e::test]
async fn no_pod_is_recreated_after_its_hook_was_removed(case: &mut Case) -> Result<()> {
    let game = Game::rolling(2).max_unavailable(2);
    let guarded = apply_guarded(case, game, 2).await?;
    let remove = json!([{"op": "remove", "path": "/spec/preDeleteUpdateStrategy/hook"}]);
    case.patch(&case.workload(), remove).await?;
    case.set_image("game:v2").await?;
    case.until("the pods wait for a confirmation", |view| {
        waiting_reasons(view) == ["HookRemoved", "HookRemoved"]
    })
    .await?;
    case.consistently("no pod is recreated", 2, |view| view.pod_names() == guarded.pod_names())
        .await?;
    case.game(&["release", GAME, "--yes"]).await?;
    case.until("the released pods are updated, and the guard is removed", |view| {
        view.count_with("game:v2") == 2 && view.game["metadata"]["finalizers"].is_null()
    })
    .await?;
    uninstall(case, "guard").await
}

#[e2e::test]
async fn the_label_alone_guards_nothing(case: &mut Case) -> Result<()> {
    apply_guarded(case, Game::in_place(1), 1).await?;
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "mine", "labels": {LABEL: "x"}},
        "spec": {"containers": [{"name": "game", "image": "game:v1"}]},
    });
    case.apply(pod).await?;
    let wait = ["wait", "--for=condition=Ready", "pod/mine", "--timeout=300s"];
    case.kubectl(&wait).await?;
    case.kubectl(&["delete", "pod", "mine"]).await?;
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": "mine", "labels": {LABEL: "x"}},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}},
    });
    let error = case.refused(&["apply", "-f", "-"], &budget.to_string()).await?;
    ensure!(error.contains("only the operator creates"), "{error}");
    uninstall(case, "guard").await
}

#[e2e::test]
async fn a_guarded_stateful_set_is_updated_and_scaled_in(case: &mut Case) -> Result<()> {
    case.use_stateful_set();
    let view = apply_guarded(case, Game::parallel(3).max_unavailable(3), 3).await?;
    ensure_no_request_ends_the_match(case, &format!("{SET}-0")).await?;
    case.set_image("game:v2").await?;
    case.until("the update waits", |view| waiting_reasons(view).len() == 3).await?;
    case.consistently("no pod is updated", 2, |it| it.pod_names() == view.pod_names()).await?;
    case.hooks.answer("/", allowing_answer());
    case.until_settled(3).await?;
    until_guarded(case, 3).await?;
    case.scale(1).await?;
    case.until("two pods are deleted", |view| view.pods.len() == 1).await?;
    uninstall(case, "guard").await
}
