//! Guarded pods (`spec.protection`): no client ends a match before its hook allows it, not even while no operator
//! runs. The commands are those that users type.

use anyhow::{Context, Result, ensure};
use e2e::case::Case;
use e2e::servers::hook_server::Answer;
use e2e::workload::manifest::{Game, hook_template};
use e2e::workload::view::{Pod, View};
use e2e::workload::{GAME, SET};
use judge::object::text;
use serde_json::{Value, json};

use crate::protection::{install, release, uninstall};

e2e::tests![
    no_client_ends_a_guarded_match,
    a_drain_waits_for_guarded_pods,
    a_guarded_workload_is_deleted_after_its_last_match,
    a_foreground_deletion_waits_for_guarded_pods,
    orphaned_guarded_pods_are_left_to_the_user,
    a_guarded_workload_is_deleted_together_with_its_hook_template,
    the_guard_is_switched_on_and_off,
    a_guard_is_not_in_force_without_its_policy,
    a_refusing_hook_is_run_again,
    a_guarded_pod_is_deleted_at_its_deadline,
    guarded_pods_are_released_by_users,
    removing_the_hook_keeps_the_guard,
    the_label_alone_guards_nothing,
    a_guarded_set_is_updated_and_scaled_in,
];

const LABEL: &str = "gamekeeper.tkex.tencent.com/guarded";

pub(crate) fn no() -> Answer {
    Answer::Json(json!({"age": 10}))
}

pub(crate) fn yes() -> Answer {
    Answer::Json(json!({"age": 45}))
}

pub(crate) async fn install_policy(case: &Case) -> Result<()> {
    let value = "admission.guardedPods=true";
    install(case, value, "guard", &[&case.namespace]).await
}

/// Installs the policy, and applies a guarded workload whose hook refuses all deletions.
pub(crate) async fn apply_guarded(case: &Case, game: Game, replicas: usize) -> Result<View> {
    install_policy(case).await?;
    case.hooks.answer("/", no());
    case.apply(hook_template("test", &case.hooks.url("/")))
        .await?;
    case.apply(game.pre_delete("test").guarded()).await?;
    until_guarded(case, replicas).await
}

/// Waits until this number of pods run and are guarded.
pub(crate) async fn until_guarded(case: &Case, pods: usize) -> Result<View> {
    case.until("the pods are guarded", |view| {
        condition(view) == ("True", "PodsGuarded")
            && view.pods.len() == pods
            && view.number("/status/protection/guarded") == pods as i64
            && view
                .pods
                .iter()
                .all(|pod| pod.runs() && !label(&pod.0).is_empty())
    })
    .await
}

/// The status and reason of the condition Guarded.
pub(crate) fn condition(view: &View) -> (&str, &str) {
    let conditions = view.game.pointer("/status/conditions");
    let mut conditions = conditions.and_then(Value::as_array).into_iter().flatten();
    match conditions.find(|it| it["type"] == "Guarded") {
        Some(it) => (text(it, "/status"), text(it, "/reason")),
        None => ("", ""),
    }
}

pub(crate) fn label(pod: &Value) -> &str {
    text(pod, "/metadata/labels/gamekeeper.tkex.tencent.com~1guarded")
}

/// Why pods wait: the reasons in status.protection.waiting.
pub(crate) fn waiting(view: &View) -> Vec<&str> {
    let waiting = view.game.pointer("/status/protection/waiting");
    let waiting = waiting.and_then(Value::as_array).into_iter().flatten();
    waiting.map(|it| text(it, "/reason")).collect()
}

/// The uids of all pods in the namespace that are not Terminating.
pub(crate) async fn living(case: &Case) -> Result<Vec<String>> {
    let pods = case.list("pods").await?.into_iter();
    let pods = pods.filter(|pod| pod["metadata"]["deletionTimestamp"].is_null());
    let mut uids: Vec<String> = pods
        .map(|pod| text(&pod, "/metadata/uid").to_owned())
        .collect();
    uids.sort();
    Ok(uids)
}

/// The names of all PodDisruptionBudgets in the namespace.
pub(crate) async fn budgets(case: &Case) -> Result<Vec<String>> {
    let namespace = &case.namespace;
    let path = format!("/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets");
    let list = case.plane().get(&path).await?;
    let items = list["items"].as_array().context("no list")?.iter();
    Ok(items
        .map(|it| text(it, "/metadata/name").to_owned())
        .collect())
}

/// Waits until gamekeeper_guarded_pods_ended_total has these values, by `why`.
pub(crate) async fn until_counted(case: &Case, expected: &[(&str, u64)]) -> Result<()> {
    case.eventually("the ended matches are counted", async || {
        let (_, page) = case.operator.get("/metrics").await?;
        let ended = page.lines();
        let ended = ended.filter(|it| it.starts_with("gamekeeper_guarded_pods_ended_total{"));
        let ended: Vec<&str> = ended.collect();
        for (why, count) in expected {
            let series = format!("why=\"{why}\"}} {count}");
            let is_shown = ended.iter().any(|it| it.ends_with(&series));
            ensure!(is_shown, "no {series} among {ended:#?}");
        }
        Ok(())
    })
    .await
}

pub(crate) async fn evict(case: &Case, pod: &str) -> Result<String> {
    let eviction = json!({
        "apiVersion": "policy/v1", "kind": "Eviction",
        "metadata": {"name": pod, "namespace": case.namespace},
    });
    let path = format!("/api/v1/namespaces/{}/pods/{pod}/eviction", case.namespace);
    case.kubectl_with(
        &["create", "--raw", &path, "-f", "-"],
        &eviction.to_string(),
    )
    .await
}

/// Checks that every request that would end a match is refused, with a message that says what to do instead.
async fn every_way_is_refused(case: &Case, pod: &str) -> Result<()> {
    let before = living(case).await?;
    let says = async |args: &[&str], words: &str| -> Result<()> {
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
        says(args, &players).await?;
        says(args, &release).await?;
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
    says(
        &["set", "image", &format!("pod/{pod}"), "game=game:v9"],
        &players,
    )
    .await?;
    let deadline = r#"-p={"spec":{"activeDeadlineSeconds":1}}"#;
    says(&["patch", "pod", pod, deadline], &players).await?;
    let error = evict(case, pod).await.err().map(|it| format!("{it:#}"));
    let error = error.context("the eviction was not refused")?;
    ensure!(error.contains("disruption budget"), "{error}");
    ensure!(living(case).await? == before, "a pod was deleted");
    Ok(())
}

async fn no_client_ends_a_guarded_match(case: &mut Case) -> Result<()> {
    let view = apply_guarded(case, Game::in_place(2), 2).await?;
    let pod = view.pod_names()[0].to_owned();
    every_way_is_refused(case, &pod).await?;
    case.kill_operator().await?;
    every_way_is_refused(case, &pod).await?;
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
        &[
            "patch",
            "pdb",
            budget,
            "--type=merge",
            r#"-p={"spec":{"minAvailable":1}}"#,
        ],
    ] {
        let error = case.refused(args, "").await?;
        ensure!(error.contains("only the operator"), "{error}");
    }
    // The operator deletes the pod once its hook allows it.
    case.hooks.answer("/", yes());
    case.operator.start().await?;
    case.scale(1).await?;
    case.until("one pod is left", |view| view.pods.len() == 1)
        .await?;
    // A pod without a running container has no players.
    let left = case.view().await?.pod_names()[0].to_owned();
    case.operator.terminate().await?;
    case.end_pod(&left, "Failed").await?;
    case.kubectl(&["delete", "pod", &left, "--wait=false"])
        .await?;
    uninstall(case, "guard").await
}

/// Creates a node for the pods of this test.
pub(crate) async fn own_node(case: &Case) -> Result<String> {
    // The name is also the value of a label, so it has at most 63 characters.
    let name = format!("guard-{}", case.namespace);
    let node = name[..name.len().min(63)].trim_end_matches('-').to_owned();
    let taint = json!({"key": "only", "value": case.namespace, "effect": "NoSchedule"});
    case.apply(json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": node, "labels": {"kubernetes.io/hostname": node}},
        "spec": {"podCIDR": "127.103.0.0/16", "taints": [taint]},
    }))
    .await?;
    Ok(node)
}

async fn a_drain_waits_for_guarded_pods(case: &mut Case) -> Result<()> {
    let node = own_node(case).await?;
    let tolerations = json!([{"key": "only", "operator": "Exists"}]);
    let game = Game::rolling(2)
        .set("/spec/template/spec/tolerations", tolerations)
        .set(
            "/spec/template/spec/nodeSelector/kubernetes.io~1hostname",
            node.as_str(),
        );
    apply_guarded(case, game, 2).await?;
    let before = living(case).await?;
    let drain = ["drain", &node, "--timeout=4s"];
    let without_eviction = ["drain", &node, "--disable-eviction", "--timeout=4s"];
    for is_alive in [true, false] {
        if !is_alive {
            case.kill_operator().await?;
        }
        let error = case.refused(&drain, "").await?;
        ensure!(error.contains("disruption budget"), "{error}");
        let error = case.refused(&without_eviction, "").await?;
        ensure!(error.contains("players may be on"), "{error}");
        ensure!(living(case).await? == before, "a pod was deleted");
    }
    case.operator.start().await?;
    case.hooks.answer("/", yes());
    case.scale(0).await?;
    case.until("all pods are deleted", |view| view.pods.is_empty())
        .await?;
    case.kubectl(&["drain", &node, "--timeout=30s"]).await?;
    case.kubectl(&["delete", "node", &node]).await?;
    uninstall(case, "guard").await
}

/// Waits until the workload, its pods and its budget are deleted.
pub(crate) async fn until_deleted(case: &Case) -> Result<()> {
    let workload = case.workload();
    case.eventually("the workload is deleted", async || {
        let found = case
            .kubectl(&["get", &workload, "--ignore-not-found"])
            .await?;
        ensure!(found.is_empty(), "{found}");
        Ok(())
    })
    .await?;
    case.eventually("its pods and its budget are deleted", async || {
        ensure!(living(case).await?.is_empty());
        ensure!(budgets(case).await?.is_empty());
        Ok(())
    })
    .await
}

/// Deletes the workload with these options while its hook refuses. The pods must be kept, at first without an
/// operator, and then with one, until the hook allows the deletion.
async fn delete_with(case: &mut Case, options: &[&str]) -> Result<()> {
    let before = living(case).await?;
    case.kill_operator().await?;
    let workload = case.workload();
    let delete = [&["delete", &workload, "--wait=false"], options].concat();
    case.kubectl(&delete).await?;
    let kept = async |case: &Case| {
        e2e::wait::consistently(
            "the pods are kept",
            std::time::Duration::from_secs(3),
            async || {
                ensure!(living(case).await? == before, "a pod was deleted");
                ensure!(budgets(case).await?.len() == 1, "the budget was deleted");
                Ok(())
            },
        )
        .await
    };
    kept(case).await?;
    case.operator.start().await?;
    case.until("the pods wait for their hooks", |view| {
        waiting(view).len() == before.len()
    })
    .await?;
    kept(case).await?;
    let pod = case.view().await?.pod_names()[0].to_owned();
    let error = evict(case, &pod)
        .await
        .err()
        .context("the pod was evicted")?;
    ensure!(
        format!("{error:#}").contains("disruption budget"),
        "{error:#}"
    );
    let tree = case.game(&["tree", &workload]).await?.stdout;
    ensure!(tree.contains("guarded pods wait for their hook"), "{tree}");
    case.hooks.answer("/", yes());
    until_deleted(case).await
}

async fn a_guarded_workload_is_deleted_after_its_last_match(case: &mut Case) -> Result<()> {
    apply_guarded(case, Game::in_place(2), 2).await?;
    delete_with(case, &[]).await?;
    uninstall(case, "guard").await
}

async fn a_foreground_deletion_waits_for_guarded_pods(case: &mut Case) -> Result<()> {
    case.use_stateful_set();
    apply_guarded(case, Game::parallel(2), 2).await?;
    delete_with(case, &["--cascade=foreground"]).await?;
    uninstall(case, "guard").await
}

async fn orphaned_guarded_pods_are_left_to_the_user(case: &mut Case) -> Result<()> {
    apply_guarded(case, Game::in_place(2), 2).await?;
    let before = living(case).await?;
    // The garbage collector removes the owner references before the operator starts.
    case.operator.terminate().await?;
    case.kubectl(&[
        "delete",
        "gamedeployment",
        GAME,
        "--cascade=orphan",
        "--wait=false",
    ])
    .await?;
    case.eventually("the pods are orphaned", async || {
        let pods = case.list("pods").await?;
        let owned = pods
            .iter()
            .filter(|pod| !pod["metadata"]["ownerReferences"].is_null());
        ensure!(owned.count() == 0);
        Ok(())
    })
    .await?;
    case.operator.start().await?;
    case.eventually(
        "the workload, its budget and the labels are removed",
        async || {
            let get = ["get", "gamedeployment", GAME, "--ignore-not-found"];
            ensure!(case.kubectl(&get).await?.is_empty());
            ensure!(budgets(case).await?.is_empty());
            let pods = case.list("pods").await?;
            ensure!(pods.iter().all(|pod| label(pod).is_empty()), "{pods:#?}");
            Ok(())
        },
    )
    .await?;
    ensure!(living(case).await? == before, "a pod was deleted");
    ensure!(case.hooks.calls("/").is_empty(), "a hook was called");
    let pods = case.list("pods").await?;
    let pod = text(&pods[0], "/metadata/name").to_owned();
    case.kubectl(&["delete", "pod", &pod]).await?;
    uninstall(case, "guard").await
}

async fn a_guarded_workload_is_deleted_together_with_its_hook_template(
    case: &mut Case,
) -> Result<()> {
    apply_guarded(case, Game::in_place(1), 1).await?;
    case.kubectl(&["delete", "hooktemplate", "test"]).await?;
    case.kubectl(&["delete", "gamedeployment", GAME, "--wait=false"])
        .await?;
    case.until("the hook runs", |view| {
        waiting(view) == ["HookNotSuccessful"]
    })
    .await?;
    ensure!(living(case).await?.len() == 1);
    case.hooks.answer("/", yes());
    until_deleted(case).await?;
    uninstall(case, "guard").await
}

fn is_kept_by_autoscalers(pod: &Pod) -> bool {
    let annotation = |key: &str| text(&pod.0, &format!("/metadata/annotations/{key}"));
    annotation("cluster-autoscaler.kubernetes.io~1safe-to-evict") == "false"
        && annotation("karpenter.sh~1do-not-disrupt") == "true"
}

async fn the_guard_is_switched_on_and_off(case: &mut Case) -> Result<()> {
    install_policy(case).await?;
    case.hooks.answer("/", no());
    case.apply(hook_template("test", &case.hooks.url("/")))
        .await?;
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
        every_way_is_refused(case, guarded.pod_names()[0]).await?;
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
    case.kubectl(&["delete", "pod", after.pod_names()[0]])
        .await?;
    uninstall(case, "guard").await
}

async fn a_guard_is_not_in_force_without_its_policy(case: &mut Case) -> Result<()> {
    case.apply(hook_template("test", &case.hooks.url("/")))
        .await?;
    case.apply(Game::in_place(1).pre_delete("test").guarded())
        .await?;
    case.until("the status says that the guard is not in force", |view| {
        condition(view) == ("False", "GuardNotInForce") && view.pods.len() == 1
    })
    .await?;
    let tree = case.game(&["tree", GAME]).await?.stdout;
    ensure!(
        tree.contains("Guard:      not in force: the ValidatingAdmissionPolicy"),
        "{tree}"
    );
    install_policy(case).await?;
    // Once the condition is True, deletions are refused.
    let view = until_guarded(case, 1).await?;
    every_way_is_refused(case, view.pod_names()[0]).await?;
    uninstall(case, "guard").await
}

async fn a_refusing_hook_is_run_again(case: &mut Case) -> Result<()> {
    apply_guarded(case, Game::in_place(2), 2).await?;
    case.scale(1).await?;
    case.until("the hook refuses", |view| {
        waiting(view) == ["HookNotSuccessful"]
    })
    .await?;
    case.eventually("the hook is run again", async || {
        ensure!(case.hooks.calls("/").len() > 3);
        Ok(())
    })
    .await?;
    case.hooks.answer("/", yes());
    case.until("the pod is deleted", |view| {
        view.pods.len() == 1 && waiting(view).is_empty()
    })
    .await?;
    uninstall(case, "guard").await
}

async fn a_guarded_pod_is_deleted_at_its_deadline(case: &mut Case) -> Result<()> {
    let game = Game::in_place(2);
    apply_guarded(case, game, 2).await?;
    case.replace("/spec/replicas", 1).await?;
    case.until("the hook refuses", |view| {
        waiting(view) == ["HookNotSuccessful"]
    })
    .await?;
    let deadline = json!([{"op": "add", "path": "/spec/protection/deadlineSeconds", "value": 1}]);
    let error = case.patch(&case.workload(), deadline).await;
    let error = error
        .err()
        .context("a deadline that is too short was accepted")?;
    let error = format!("{error:#}");
    ensure!(
        error.contains("must be more than askAgainSeconds"),
        "{error}"
    );
    let deadline = json!([{"op": "add", "path": "/spec/protection/deadlineSeconds", "value": 5}]);
    case.patch(&case.workload(), deadline).await?;
    case.until("the pod is deleted", |view| view.pods.len() == 1)
        .await?;
    case.eventually("an event reports the deadline", async || {
        let events = case.kubectl(&["get", "events"]).await?;
        ensure!(events.contains("DeadlinePassed"), "{events}");
        Ok(())
    })
    .await?;
    uninstall(case, "guard").await
}

async fn guarded_pods_are_released_by_users(case: &mut Case) -> Result<()> {
    let view = apply_guarded(case, Game::in_place(3), 3).await?;
    let pod = format!("pod/{}", view.pod_names()[0]);
    let released = case.game(&["release", &pod]).await?;
    ensure!(
        released.stdout == format!("{pod} released\n"),
        "{released:?}"
    );
    let again = case.game(&["release", &pod]).await?;
    ensure!(
        again.stderr.contains("is not guarded: nothing to release"),
        "{again:?}"
    );
    case.until("the pod stays released", |view| {
        condition(view).0 == "True" && view.number("/status/protection/guarded") == 2
    })
    .await?;
    case.kubectl(&["delete", &pod]).await?;
    until_guarded(case, 3).await?;
    case.kubectl(&["delete", "gamedeployment", GAME, "--wait=false"])
        .await?;
    case.until("the pods wait", |view| waiting(view).len() == 3)
        .await?;
    let released = case.game(&["release", GAME]).await?;
    let expected = "gamedeployment.tkex.tencent.com/test-gamedeployment released: 3 pods";
    ensure!(released.stdout.contains(expected), "{released:?}");
    until_deleted(case).await?;
    uninstall(case, "guard").await
}

async fn removing_the_hook_keeps_the_guard(case: &mut Case) -> Result<()> {
    apply_guarded(case, Game::in_place(2), 2).await?;
    let remove = json!([{"op": "remove", "path": "/spec/preDeleteUpdateStrategy/hook"}]);
    case.patch(&case.workload(), remove).await?;
    case.scale(1).await?;
    case.until("the pod waits for a confirmation", |view| {
        condition(view) == ("False", "HookRemoved") && waiting(view) == ["HookRemoved"]
    })
    .await?;
    case.consistently("the pods are kept", 2, |view| view.pods.len() == 2)
        .await?;
    case.game(&["release", GAME]).await?;
    case.until("the pod is deleted, and the guard is removed", |view| {
        view.pods.len() == 1 && view.game["metadata"]["finalizers"].is_null()
    })
    .await?;
    uninstall(case, "guard").await
}

async fn the_label_alone_guards_nothing(case: &mut Case) -> Result<()> {
    apply_guarded(case, Game::in_place(1), 1).await?;
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "mine", "labels": {LABEL: "x"}},
        "spec": {"containers": [{"name": "game", "image": "game:v1"}]},
    });
    case.apply(pod).await?;
    case.kubectl(&["wait", "--for=condition=Ready", "pod/mine"])
        .await?;
    case.kubectl(&["delete", "pod", "mine"]).await?;
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": "mine", "labels": {LABEL: "x"}},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}},
    });
    let error = case
        .refused(&["apply", "-f", "-"], &budget.to_string())
        .await?;
    ensure!(error.contains("only the operator creates"), "{error}");
    uninstall(case, "guard").await
}

async fn a_guarded_set_is_updated_and_scaled_in(case: &mut Case) -> Result<()> {
    case.use_stateful_set();
    let view = apply_guarded(case, Game::parallel(3).max_unavailable(3), 3).await?;
    every_way_is_refused(case, &format!("{SET}-0")).await?;
    case.set_image("game:v2").await?;
    case.until("the update waits", |view| waiting(view).len() == 3)
        .await?;
    case.consistently("no pod is updated", 2, |it| {
        it.pod_names() == view.pod_names()
    })
    .await?;
    case.hooks.answer("/", yes());
    case.until_settled(3).await?;
    until_guarded(case, 3).await?;
    case.scale(1).await?;
    case.until("two pods are deleted", |view| view.pods.len() == 1)
        .await?;
    uninstall(case, "guard").await
}
