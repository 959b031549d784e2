//! Helpers for the tests of guarded pods: they install the policy, apply a guarded workload, and read what guards it.

use anyhow::{Context, Result, ensure};
use e2e::case::Case;
use e2e::servers::hook_server::Answer;
use e2e::workload::manifest::{Game, hook_template};
use e2e::workload::view::View;
use judge::object::{is_true, text};
use serde_json::{Value, json};

use crate::protection::install;

/// The response that makes the hook fail.
pub(crate) fn refusing_answer() -> Answer {
    Answer::Json(json!({"age": 10}))
}

/// The response that makes the hook allow the deletion.
pub(crate) fn allowing_answer() -> Answer {
    Answer::Json(json!({"age": 45}))
}

pub(crate) async fn install_policy(case: &Case) -> Result<()> {
    let value = "admission.guardedPods=true";
    install(case, value, "guard", &[&case.namespace]).await
}

/// Installs the policy, and applies a guarded workload whose hook allows no deletion.
pub(crate) async fn apply_guarded(case: &Case, game: Game, replicas: usize) -> Result<View> {
    install_policy(case).await?;
    case.hooks.answer("/", refusing_answer());
    case.apply(hook_template("test", &case.hooks.url("/"))).await?;
    case.apply(game.pre_delete("test").guarded()).await?;
    until_guarded(case, replicas).await
}

/// Waits until this number of pods run and are guarded.
pub(crate) async fn until_guarded(case: &Case, pods: usize) -> Result<View> {
    case.until("the pods are guarded", |view| {
        condition(view) == ("True", "PodsGuarded")
            && view.pods.len() == pods
            && view.number("/status/protection/guarded") == pods as i64
            && view.pods.iter().all(|pod| pod.is_running() && !label(&pod.0).is_empty())
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
pub(crate) fn waiting_reasons(view: &View) -> Vec<&str> {
    let waiting = view.game.pointer("/status/protection/waiting");
    let waiting = waiting.and_then(Value::as_array).into_iter().flatten();
    waiting.map(|it| text(it, "/reason")).collect()
}

/// The uids of all pods in the namespace that are not Terminating.
pub(crate) async fn live_pods(case: &Case) -> Result<Vec<String>> {
    let pods = case.list("pods").await?.into_iter();
    let pods = pods.filter(|pod| pod["metadata"]["deletionTimestamp"].is_null());
    let mut uids: Vec<String> = pods.map(|pod| text(&pod, "/metadata/uid").to_owned()).collect();
    uids.sort();
    Ok(uids)
}

/// The names of all PodDisruptionBudgets in the namespace.
pub(crate) async fn budgets(case: &Case) -> Result<Vec<String>> {
    let namespace = &case.namespace;
    let path = format!("/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets");
    let list = case.plane().get(&path).await?;
    let items = list["items"].as_array().context("no list")?.iter();
    Ok(items.map(|it| text(it, "/metadata/name").to_owned()).collect())
}

/// Waits until gamekeeper_guarded_pods_ended_total has these counts for these values of `why`.
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
    case.kubectl_with(&["create", "--raw", &path, "-f", "-"], &eviction.to_string()).await
}

/// Creates a node for the pods of this test.
pub(crate) async fn create_node(case: &Case) -> Result<String> {
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
    // Until the control plane has removed its own taint, pods that only prefer the node would start elsewhere.
    case.eventually("the node accepts pods", async || {
        let found = case.plane().get(&format!("/api/v1/nodes/{node}")).await?;
        let taints = found["spec"]["taints"].as_array().map_or(0, Vec::len);
        ensure!(is_true(&found, "Ready") && taints == 1, "{found:#}");
        Ok(())
    })
    .await?;
    Ok(node)
}

/// Waits until the workload, its pods and its budget are deleted.
pub(crate) async fn until_deleted(case: &Case) -> Result<()> {
    let workload = case.workload();
    case.eventually("the workload is deleted", async || {
        let found = case.kubectl(&["get", &workload, "--ignore-not-found"]).await?;
        ensure!(found.is_empty(), "{found}");
        Ok(())
    })
    .await?;
    case.eventually("its pods and its budget are deleted", async || {
        ensure!(live_pods(case).await?.is_empty());
        ensure!(budgets(case).await?.is_empty());
        Ok(())
    })
    .await
}
