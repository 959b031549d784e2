//! Guarded pods in unusual circumstances: resizes, drains during a foreground deletion, policies that remove labels,
//! missing Secrets, users' budgets, and kubelets that end pods.

use anyhow::{Context, Result, ensure};
use e2e::case::Case;
use e2e::wait::consistently;
use e2e::workload::manifest::Game;
use serde_json::json;

use crate::guard_setup::{
    allowing_answer, apply_guarded, budgets, condition, create_node, evict, install_policy, label,
    live_pods, refusing_answer, until_counted, until_deleted, until_guarded, waiting_reasons,
};
use crate::protection::{release, uninstall};

const CONTAINER: &str = "/spec/template/spec/containers/0";

#[e2e::test]
async fn a_resize_that_restarts_containers_is_refused(case: &mut Case) -> Result<()> {
    let requests = json!({"requests": {"cpu": "100m", "memory": "64Mi"}});
    let policy = json!([
        {"resourceName": "cpu", "restartPolicy": "NotRequired"},
        {"resourceName": "memory", "restartPolicy": "RestartContainer"},
    ]);
    let game = Game::in_place(1)
        .set(&format!("{CONTAINER}/resources"), requests)
        .set(&format!("{CONTAINER}/resizePolicy"), policy);
    let view = apply_guarded(case, game, 1).await?;
    let pod = view.pod_names()[0].to_owned();
    let resize = |resource: &str, value: &str| {
        let container = json!({"name": "game", "resources": {"requests": {resource: value}}});
        format!("-p={}", json!({"spec": {"containers": [container]}}))
    };
    let patch = ["patch", "pod", &pod, "--subresource=resize"];
    let memory = resize("memory", "128Mi");
    let error = case.refused(&[&patch[..], &[memory.as_str()]].concat(), "").await?;
    let expected = "a resize with restartPolicy RestartContainer would end its containers";
    ensure!(error.contains(expected), "{error}");
    let cpu = resize("cpu", "200m");
    case.kubectl(&[&patch[..], &[cpu.as_str()]].concat()).await?;
    uninstall(case, "guard").await
}

#[e2e::test]
async fn a_drain_waits_during_a_foreground_deletion(case: &mut Case) -> Result<()> {
    let node = create_node(case).await?;
    let tolerations = json!([{"key": "only", "operator": "Exists"}]);
    let game = Game::rolling(2)
        .set("/spec/template/spec/tolerations", tolerations)
        .set("/spec/template/spec/nodeSelector/kubernetes.io~1hostname", node.as_str());
    apply_guarded(case, game, 2).await?;
    let before = live_pods(case).await?;
    let workload = case.workload();
    case.kubectl(&["delete", &workload, "--cascade=foreground", "--wait=false"]).await?;
    let error = case.refused(&["drain", &node, "--timeout=4s"], "").await?;
    ensure!(error.contains("disruption budget"), "{error}");
    ensure!(live_pods(case).await? == before, "a pod was deleted");
    ensure!(budgets(case).await?.len() == 1, "the budget was deleted");
    case.hooks.answer("/", allowing_answer());
    case.kubectl(&["drain", &node, "--timeout=300s"]).await?;
    until_deleted(case).await?;
    case.kubectl(&["delete", "node", &node]).await?;
    uninstall(case, "guard").await
}

/// Installs an admission policy that removes the label from pods of this namespace. Returns the policy's name.
async fn install_label_removal(case: &Case) -> Result<String> {
    let name = format!("{}-strip", release(case));
    let path = "/metadata/labels/gamekeeper.tkex.tencent.com~1guarded";
    let expression = format!(
        "'gamekeeper.tkex.tencent.com/guarded' in object.metadata.?labels.orValue({{}}) ? \
         [JSONPatch{{op: 'remove', path: '{path}'}}] : []"
    );
    let version = "admissionregistration.k8s.io/v1";
    let policy = json!({
        "apiVersion": version, "kind": "MutatingAdmissionPolicy", "metadata": {"name": name},
        "spec": {
            "matchConstraints": {"resourceRules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["pods"],
            }]},
            "reinvocationPolicy": "Never",
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}],
        },
    });
    let binding = json!({
        "apiVersion": version, "kind": "MutatingAdmissionPolicyBinding", "metadata": {"name": name},
        "spec": {
            "policyName": name,
            "matchResources": {"namespaceSelector": {
                "matchLabels": {"kubernetes.io/metadata.name": case.namespace},
            }},
        },
    });
    case.plane().apply(&[policy, binding]).await?;
    until_labels_are_removed(case, true).await?;
    Ok(name)
}

/// Waits until the label is removed from pods, or until it is kept.
async fn until_labels_are_removed(case: &Case, are_removed: bool) -> Result<()> {
    let labeled_pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "probe", "labels": {"gamekeeper.tkex.tencent.com/guarded": "x"}},
        "spec": {"containers": [{"name": "game", "image": "game:v1"}]},
    });
    let create = ["create", "--dry-run=server", "-o=json", "-f=-"];
    case.eventually("the policy is in force, or no longer", async || {
        let pod = case.kubectl_with(&create, &labeled_pod.to_string()).await?;
        let is_removed = label(&serde_json::from_str(&pod)?).is_empty();
        ensure!(is_removed == are_removed, "{pod}");
        Ok(())
    })
    .await
}

#[e2e::test]
async fn a_policy_that_removes_the_label_is_reported(case: &mut Case) -> Result<()> {
    install_policy(case).await?;
    let policy = install_label_removal(case).await?;
    case.hooks.answer("/", refusing_answer());
    case.apply(e2e::workload::manifest::hook_template("test", &case.hooks.url("/"))).await?;
    case.apply(Game::in_place(1).pre_delete("test").guarded()).await?;
    case.until("the guard is not in force", |view| {
        condition(view) == ("False", "PodsUnlabeled") && view.pods.len() == 1
    })
    .await?;
    for kind in ["mutatingadmissionpolicybinding", "mutatingadmissionpolicy"] {
        case.plane().kubectl(&["delete", kind, &policy], "").await?;
    }
    // A label that is removed once more changes nothing, so the operator would not notice.
    until_labels_are_removed(case, false).await?;
    case.scale(2).await?;
    until_guarded(case, 2).await?;
    uninstall(case, "guard").await
}

#[e2e::test]
async fn a_missing_secret_holds_a_guarded_pod_until_its_deadline(case: &mut Case) -> Result<()> {
    install_policy(case).await?;
    let source = json!({"secretKeyRef": {"name": "missing", "key": "token"}});
    let metric = json!({
        "name": "players", "consecutiveErrorLimit": 0,
        "provider": {"web": {
            "url": case.hooks.url("/"), "headers": [{"key": "x-token", "value": "{{ args.token }}"}],
        }},
    });
    case.apply(json!({
        "apiVersion": "tkex.tencent.com/v1alpha1", "kind": "HookTemplate", "metadata": {"name": "test"},
        "spec": {"args": [{"name": "token", "valueFrom": source}], "metrics": [metric]},
    }))
    .await?;
    case.apply(Game::in_place(1).pre_delete("test").guarded()).await?;
    until_guarded(case, 1).await?;
    let before = live_pods(case).await?;
    case.kubectl(&["delete", &case.workload(), "--wait=false"]).await?;
    let view = case
        .until("the status shows which Secret is missing", |view| {
            waiting_reasons(view) == ["HookNotSuccessful"]
        })
        .await?;
    let message = view.text("/status/protection/waiting/0/message");
    ensure!(message.contains("secrets \"missing\" not found"), "{message}");
    consistently("the pod is kept", std::time::Duration::from_secs(3), async || {
        ensure!(live_pods(case).await? == before, "a pod was deleted");
        Ok(())
    })
    .await?;
    let deadline = json!([{"op": "add", "path": "/spec/protection/deadlineSeconds", "value": 8}]);
    case.patch(&case.workload(), deadline).await?;
    until_deleted(case).await?;
    uninstall(case, "guard").await
}

#[e2e::test]
async fn a_users_budget_that_selects_guarded_pods_is_reported(case: &mut Case) -> Result<()> {
    install_policy(case).await?;
    case.apply(json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "mine"},
        "spec": {"minAvailable": 1, "selector": {}},
    }))
    .await?;
    // The operator reads the API server's cache, and for a guard in force only every five minutes.
    case.eventually("the API server's cache has the budget", async || {
        let namespace = &case.namespace;
        let path = format!("/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets");
        let list = case.plane().get(&format!("{path}?resourceVersion=0")).await?;
        ensure!(list["items"][0]["metadata"]["name"] == "mine", "{list}");
        Ok(())
    })
    .await?;
    case.hooks.answer("/", refusing_answer());
    case.apply(e2e::workload::manifest::hook_template("test", &case.hooks.url("/"))).await?;
    case.apply(Game::in_place(1).pre_delete("test").guarded()).await?;
    // The API server evicts Pending pods regardless of budgets.
    let view = case
        .until("the condition names the user's budget", |view| {
            condition(view) == ("True", "AnotherBudget")
                && view.pods.len() == 1
                && view.pods[0].is_running()
        })
        .await?;
    let guarded = view.condition("Guarded").context("no condition")?;
    ensure!(guarded.message.contains("PodDisruptionBudget mine also selects guarded pods"));
    let error = evict(case, view.pod_names()[0]).await.err();
    let error = format!("{:#}", error.context("the pod was evicted")?);
    ensure!(error.contains("more than one PodDisruptionBudget"), "{error}");
    uninstall(case, "guard").await
}

#[e2e::test]
async fn a_guarded_pod_that_its_kubelet_ends_is_counted(case: &mut Case) -> Result<()> {
    apply_guarded(case, Game::in_place(2), 2).await?;
    // Only a pod that the operator has seen running is counted.
    let view = case.until_settled(2).await?;
    let pod = view.pod_names()[0];
    let target =
        json!({"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"});
    let patch = format!("-p={}", json!({"status": {"conditions": [target]}}));
    case.kubectl(&["patch", "pod", pod, "--subresource=status", &patch]).await?;
    case.end_pod(pod, "Failed").await?;
    until_counted(case, &[("kubelet", 1), ("other_client", 0), ("eviction", 0)]).await?;
    let selector = "--field-selector=reason=MatchEnded";
    case.eventually("an event names the pod and its end", async || {
        let events = case.kubectl(&["get", "events", selector]).await?;
        ensure!(events.contains("was ended by its kubelet, without its hook"), "{events}");
        Ok(())
    })
    .await?;
    until_guarded(case, 2).await?;
    uninstall(case, "guard").await
}
