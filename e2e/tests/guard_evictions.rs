//! Guarded pods: evictions while another pod waits for its deletion, the eviction of a Pending pod, preemption, and a
//! budget that an administrator has deleted.

use anyhow::{Context, Result, ensure};
use e2e::case::Case;
use e2e::servers::hook_server::Answer;
use e2e::workload::manifest::{Game, hook_template};
use e2e::workload::view::View;
use judge::object::text;
use serde_json::{Value, json};

use crate::guard_setup::{
    apply_guarded, budgets, condition, create_node, evict, install_policy, label, live_pods,
    refusing_answer, until_counted, until_guarded, waiting_reasons,
};
use crate::protection::uninstall;

#[e2e::test]
async fn an_eviction_is_refused_while_another_pod_waits(case: &mut Case) -> Result<()> {
    apply_guarded(case, Game::in_place(3), 3).await?;
    case.scale(2).await?;
    let view =
        case.until("a pod waits", |view| waiting_reasons(view) == ["HookNotSuccessful"]).await?;
    let before = live_pods(case).await?;
    for operator_is_running in [true, false] {
        if !operator_is_running {
            case.kill_operator().await?;
        }
        for pod in view.pod_names() {
            let error = evict(case, pod).await.err().context("the pod was evicted")?;
            let error = format!("{error:#}");
            ensure!(error.contains("disruption budget"), "{error}");
        }
        ensure!(live_pods(case).await? == before, "a pod was deleted");
    }
    case.operator.start().await?;
    uninstall(case, "guard").await
}

/// The gap that docs/guard.md describes: the API server evicts Pending pods regardless of budgets.
#[e2e::test]
async fn an_eviction_of_a_pending_pod_succeeds(case: &mut Case) -> Result<()> {
    install_policy(case).await?;
    case.hooks.answer("/", refusing_answer());
    case.apply(hook_template("test", &case.hooks.url("/"))).await?;
    let container = |name: &str, image: &str| json!({"name": name, "image": image});
    let containers = [container("game", "game:v1"), container("sidecar", "sidecar:nope")];
    // As on a real node, the pod is Terminating for some time. Only in that state does a condition show what ended the
    // pod, so it must last until the operator plans.
    let game = Game::rolling(1)
        .set("/spec/template/spec/containers", containers.to_vec())
        .annotated("stage.gamekeeper/stop-seconds", "20");
    case.apply(game.pre_delete("test").guarded()).await?;
    let view = case
        .until("the game runs in a guarded, Pending pod", |view| {
            let mut pods = view.pods.iter();
            condition(view) == ("True", "PodsGuarded")
                && view.pods.len() == 1
                && pods.all(|pod| {
                    let is_pending = text(&pod.0, "/status/phase") == "Pending";
                    is_pending && pod.is_running() && !label(&pod.0).is_empty()
                })
        })
        .await?;
    // Only a pod that the operator has seen running is counted.
    case.until_planned(&case.workload()).await?;
    let pod = view.pod_names()[0];
    let error = case.refused(&["delete", "pod", pod], "").await?;
    ensure!(error.contains("players may be on"), "{error}");
    evict(case, pod).await?;
    // The replacement can have the name of the deleted pod.
    let uid = view.pods[0].uid();
    case.until("the pod is replaced", |view| view.pods.len() == 1 && view.pods[0].uid() != uid)
        .await?;
    until_counted(case, &[("eviction", 1), ("other_client", 0)]).await?;
    uninstall(case, "guard").await
}

fn priority_class(case: &Case, name: &str, value: i32) -> Value {
    json!({
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": value,
        "metadata": {"name": format!("{name}-{}", case.namespace)},
    })
}

/// Creates a guarded pod that takes up most of its node, and a rival pod of priority `value` that requests the same
/// resources. Returns the workload and the node's name.
async fn compete(case: &Case, value: i32) -> Result<(View, String)> {
    let node = create_node(case).await?;
    let tolerations = json!([{"key": "only", "operator": "Exists"}]);
    let resources = json!({"requests": {"cpu": "600"}});
    let game = Game::rolling(1)
        .set("/spec/template/spec/tolerations", tolerations.clone())
        .set("/spec/template/spec/containers/0/resources", resources.clone())
        .set("/spec/template/spec/nodeSelector/kubernetes.io~1hostname", node.as_str());
    let view = apply_guarded(case, game, 1).await?;
    let class = priority_class(case, "rival", value);
    case.plane().apply(std::slice::from_ref(&class)).await?;
    let container = json!({"name": "game", "image": "game:v1", "resources": resources});
    let rival = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "rival"},
        "spec": {
            "priorityClassName": class["metadata"]["name"], "containers": [container],
            "nodeSelector": {"kubernetes.io/hostname": node}, "tolerations": tolerations,
        },
    });
    // Admission refuses the pod until its cache has the class.
    case.eventually("the rival is created", async || case.apply(&rival).await).await?;
    Ok((view, node))
}

async fn clean_up(case: &Case, node: &str) -> Result<()> {
    case.kubectl(&["delete", "pod", "rival"]).await?;
    for class in ["rival", "guarded"] {
        let name = format!("{class}-{}", case.namespace);
        case.plane().kubectl(&["delete", "priorityclass", &name], "").await?;
    }
    case.kubectl(&["delete", "node", node]).await?;
    uninstall(case, "guard").await
}

#[e2e::test]
async fn a_priority_class_keeps_guarded_pods_from_preemption(case: &mut Case) -> Result<()> {
    let mut class = priority_class(case, "guarded", 2000);
    class["preemptionPolicy"] = json!("Never");
    let name = text(&class, "/metadata/name").to_owned();
    case.plane().apply(&[class]).await?;
    case.operator.add_args(vec![format!("--guarded-priority-class={name}")]);
    case.operator.terminate().await?;
    case.operator.start().await?;
    let (view, node) = compete(case, 1000).await?;
    let pod = &view.pods[0].0;
    ensure!(text(pod, "/spec/priorityClassName") == name, "{pod:#}");
    case.eventually("the rival cannot be scheduled", async || {
        let rival = case.get("pods/rival").await?;
        let conditions = &rival["status"]["conditions"];
        ensure!(conditions.to_string().contains("Unschedulable"), "{conditions}");
        Ok(())
    })
    .await?;
    case.consistently("the guarded pod stays", 2, |after| after.pod_names() == view.pod_names())
        .await?;
    clean_up(case, &node).await
}

/// An administrator has removed the policy, deleted the budget, and installed the policy again.
#[e2e::test]
async fn a_deleted_budget_is_restored(case: &mut Case) -> Result<()> {
    let view = apply_guarded(case, Game::in_place(2), 2).await?;
    let budget = budgets(case).await?.remove(0);
    case.kill_operator().await?;
    uninstall(case, "guard").await?;
    case.eventually("the budget can be deleted", async || {
        case.kubectl(&["delete", "pdb", &budget]).await
    })
    .await?;
    install_policy(case).await?;
    case.hooks.answer("/", Answer::Json(json!({"age": 10})));
    case.operator.start().await?;
    case.eventually("the budget is restored", async || {
        ensure!(budgets(case).await?.contains(&budget));
        Ok(())
    })
    .await?;
    until_guarded(case, 2).await?;
    case.eventually("evictions are refused", async || {
        let error = evict(case, view.pod_names()[0]).await.err();
        let error = format!("{:#}", error.context("the pod was evicted")?);
        ensure!(error.contains("disruption budget"), "{error}");
        Ok(())
    })
    .await?;
    uninstall(case, "guard").await
}
