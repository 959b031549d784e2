//! GameStatefulSets: at most one pod for each ordinal.

use anyhow::{Result, ensure};
use e2e::case::Case;
use e2e::workload::SET;
use e2e::workload::manifest::Game;
use e2e::workload::view::View;
use serde_json::json;

fn name(ordinal: i64) -> String {
    format!("{SET}-{ordinal}")
}

fn uid_of(view: &View, ordinal: i64) -> Result<String> {
    Ok(view.pod(&name(ordinal))?.uid().to_owned())
}

#[e2e::test]
async fn pods_have_names_labels_and_host_names(case: &mut Case) -> Result<()> {
    case.use_stateful_set();
    case.apply(Game::ordered(2).set("/spec/serviceName", "games")).await?;
    let view = case.until_settled(2).await?;
    for (ordinal, pod) in (0..).zip(&view.pods) {
        ensure!(pod.name() == name(ordinal));
        ensure!(pod.label("gamestatefulset.kubernetes.io/pod-name") == Some(pod.name()));
        let number = ordinal.to_string();
        for label in ["gamestatefulset.kubernetes.io/pod-ordinal", "apps.kubernetes.io/pod-index"] {
            ensure!(pod.label(label) == Some(&number), "{label}");
        }
        ensure!(pod.0["spec"]["hostname"] == pod.name());
        ensure!(pod.0["spec"]["subdomain"] == "games");
    }
    Ok(())
}

#[e2e::test]
async fn changed_identity_labels_are_restored(case: &mut Case) -> Result<()> {
    case.use_stateful_set();
    case.apply(Game::ordered(1)).await?;
    let before = case.until_settled(1).await?;
    let label = "apps.kubernetes.io/pod-index";
    case.kubectl(&["label", "pod", &name(0), &format!("{label}=7"), "--overwrite"]).await?;
    let view =
        case.until("the label is restored", |view| view.pods[0].label(label) == Some("0")).await?;
    view.ensure(view.pods[0].uid() == before.pods[0].uid())
}

#[e2e::test]
async fn orphans_are_adopted_and_unmatched_pods_are_released(case: &mut Case) -> Result<()> {
    case.use_stateful_set();
    case.apply(Game::ordered(2)).await?;
    let before = case.until_settled(2).await?;
    let orphan = r#"-p={"metadata":{"ownerReferences":null}}"#;
    case.kubectl(&["patch", "pod", &name(1), "--type=merge", orphan]).await?;
    let view = case.until_settled(2).await?;
    view.ensure(uid_of(&view, 1)? == uid_of(&before, 1)?)?;
    case.kubectl(&["label", "pod", &name(1), "app=other", "--overwrite"]).await?;
    case.until("the pod is released", |view| view.pods.len() == 1).await?;
    case.consistently("no pod replaces it", 2, |view| view.pods.len() == 1).await?;
    case.kubectl(&["label", "pod", &name(1), &format!("app={SET}"), "--overwrite"]).await?;
    let view = case.until_settled(2).await?;
    view.ensure(uid_of(&view, 1)? == uid_of(&before, 1)?)
}

#[e2e::test]
async fn a_foreign_pod_with_the_name_of_an_ordinal_is_a_conflict(case: &mut Case) -> Result<()> {
    case.use_stateful_set();
    let foreign = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name(1)},
        "spec": {"containers": [{"name": "game", "image": "game:v0"}]},
    });
    case.apply(foreign).await?;
    case.apply(Game::ordered(2)).await?;
    let view = case.until("the conflict is reported", |view| view.is_true("FailedScale")).await?;
    let condition = view.condition("FailedScale");
    ensure!(condition.is_some_and(|it| it.message.contains(&name(1))));
    case.delete_pod(&name(1)).await?;
    let view = case.until_settled(2).await?;
    view.ensure(view.condition("FailedScale").is_none())
}

/// Reports a pod as evicted, as its kubelet would.
async fn evict(case: &Case, ordinal: i64) -> Result<()> {
    let evicted = json!({"status": {"phase": "Failed", "reason": "Evicted"}});
    let (pod, evicted) = (name(ordinal), format!("-p={evicted}"));
    let args = ["patch", "pod", &pod, "--subresource=status", "--type=merge", &evicted];
    case.kubectl(&args).await?;
    Ok(())
}

#[e2e::test]
async fn an_evicted_pod_is_replaced_under_its_ordinal(case: &mut Case) -> Result<()> {
    case.use_stateful_set();
    case.apply(Game::ordered(2)).await?;
    let before = case.until_settled(2).await?;
    let old = uid_of(&before, 0)?;
    evict(case, 0).await?;
    let view = case
        .until("the pod is replaced", |view| {
            let is_new = uid_of(view, 0).is_ok_and(|uid| uid != old);
            is_new && view.counts() == [2; 5]
        })
        .await?;
    view.ensure(uid_of(&view, 1)? == uid_of(&before, 1)?)
}

#[e2e::test]
async fn an_evicted_orphan_is_replaced(case: &mut Case) -> Result<()> {
    case.use_stateful_set();
    case.apply(Game::ordered(3)).await?;
    let before = case.until_settled(3).await?;
    case.kubectl(&["delete", "gamestatefulset", SET, "--cascade=orphan"]).await?;
    case.eventually("the pods are orphaned", async || {
        let pods = case.list("pods").await?;
        let is_orphan = |pod: &&serde_json::Value| pod["metadata"]["ownerReferences"].is_null();
        ensure!(pods.iter().filter(is_orphan).count() == 3);
        Ok(())
    })
    .await?;
    evict(case, 1).await?;
    case.apply(Game::ordered(3)).await?;
    let view = case.until_settled(3).await?;
    for (ordinal, is_kept) in [(0, true), (1, false), (2, true)] {
        view.ensure((uid_of(&view, ordinal)? == uid_of(&before, ordinal)?) == is_kept)?;
    }
    Ok(())
}

#[e2e::test]
async fn pods_that_end_are_replaced_under_their_ordinal(case: &mut Case) -> Result<()> {
    case.use_stateful_set();
    case.apply(Game::parallel(3)).await?;
    let before = case.until_settled(3).await?;
    for (ordinal, phase) in [(0, "Failed"), (2, "Succeeded")] {
        case.end_pod(&name(ordinal), phase).await?;
    }
    case.until("both pods are replaced", |view| {
        let uids = |view: &View| (0..3).map(|it| uid_of(view, it).ok()).collect::<Vec<_>>();
        let (old, new) = (uids(&before), uids(view));
        let is_replaced = |ordinal: usize| new[ordinal].is_some() && new[ordinal] != old[ordinal];
        view.counts() == [3; 5] && is_replaced(0) && is_replaced(2) && new[1] == old[1]
    })
    .await?;
    Ok(())
}

#[e2e::test]
async fn a_restarted_operator_waits_for_a_terminating_pod(case: &mut Case) -> Result<()> {
    case.use_stateful_set();
    case.apply(Game::parallel(2)).await?;
    case.until_settled(2).await?;
    let held = r#"-p={"metadata":{"finalizers":["e2e.example/held"]}}"#;
    case.kubectl(&["patch", "pod", &name(1), "--type=merge", held]).await?;
    case.kubectl(&["delete", "pod", &name(1), "--wait=false"]).await?;
    case.kill_operator().await?;
    case.operator.start().await?;
    // The restarted operator acts once the lease of the killed one has expired.
    case.scale(3).await?;
    case.until("the restarted operator creates another pod", |view| view.pods.len() == 3).await?;
    case.consistently("no pod replaces the terminating one", 3, |view| {
        view.pods.len() == 3 && view.pods[1].is_terminating()
    })
    .await?;
    let free = r#"-p={"metadata":{"finalizers":null}}"#;
    case.kubectl(&["patch", "pod", &name(1), "--type=merge", free]).await?;
    case.until_settled(3).await?;
    Ok(())
}

/// Creates a node for the pods of this test.
async fn create_node(case: &Case) -> Result<String> {
    let node = format!("lost-set-{}", std::process::id());
    case.apply(json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": node, "labels": {"kubernetes.io/hostname": node}},
        "spec": {
            "podCIDR": "127.101.0.0/16",
            "taints": [{"key": "only", "value": case.namespace, "effect": "NoSchedule"}],
        },
    }))
    .await?;
    Ok(node)
}

#[e2e::test]
async fn a_pod_on_a_lost_node_holds_its_ordinal_until_force_deletion_is_allowed(
    case: &mut Case,
) -> Result<()> {
    case.use_stateful_set();
    let node = create_node(case).await?;
    let game = Game::ordered(1).set("/spec/template/spec/nodeName", node.as_str()).set(
        "/spec/template/spec/tolerations",
        // The taints of nodes keep the pod's successor away from this node and from those of other tests.
        json!([{"operator": "Exists", "effect": "NoExecute"}]),
    );
    case.apply(game).await?;
    let before = case.until_settled(1).await?;
    for (verb, object) in
        [("annotate", format!("pod/{}", name(0))), ("label", format!("node/{node}"))]
    {
        case.kubectl(&[verb, &object, "stage.gamekeeper/lost=true"]).await?;
    }
    case.eventually("the node is lost", async || {
        let node = case.plane().get(&format!("/api/v1/nodes/{node}")).await?;
        let taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
        let lost = "node.kubernetes.io/unreachable";
        ensure!(taints.iter().any(|taint| taint["key"] == lost), "{taints:?}");
        Ok(())
    })
    .await?;
    case.kubectl(&["delete", "pod", &name(0), "--wait=false"]).await?;
    case.consistently("the pod holds its ordinal", 3, |view| {
        view.pods.len() == 1 && view.pods[0].is_terminating()
    })
    .await?;
    let allow = json!({"spec": {"template": {
        "metadata": {"annotations": {
            "pod.gamestatefulset.bkbcs.tencent.com/node-lost-force-delete": "true",
        }},
        // The successor of the pod is scheduled on another node.
        "spec": {"nodeName": null},
    }}});
    let allow = format!("-p={allow}");
    case.kubectl(&["patch", "gamestatefulset", SET, "--type=merge", &allow]).await?;
    let view = case.until_settled(1).await?;
    view.ensure(uid_of(&view, 0)? != uid_of(&before, 0)?)?;
    case.kubectl(&["delete", "node", &node]).await?;
    Ok(())
}

#[e2e::test]
async fn no_ordinal_gets_two_pods_even_if_the_operator_is_killed(case: &mut Case) -> Result<()> {
    case.use_stateful_set();
    case.apply(Game::parallel(20)).await?;
    for _ in 0..3 {
        case.kill_operator().await?;
        case.operator.start().await?;
    }
    case.until_settled(20).await?;
    case.set_image("game:v2").await?;
    case.kill_operator().await?;
    case.operator.start().await?;
    case.until_settled(20).await?;
    Ok(())
}

#[e2e::test]
async fn an_orphaning_deletion_leaves_pods_for_adoption(case: &mut Case) -> Result<()> {
    case.use_stateful_set();
    case.apply(Game::ordered(2)).await?;
    let before = case.until_settled(2).await?;
    case.kubectl(&["delete", "gamestatefulset", SET, "--cascade=orphan"]).await?;
    case.eventually("both pods are orphaned", async || {
        let pods = case.list("pods").await?;
        let is_orphan = |pod: &&serde_json::Value| pod["metadata"]["ownerReferences"].is_null();
        ensure!(pods.iter().filter(is_orphan).count() == 2);
        Ok(())
    })
    .await?;
    case.apply(Game::ordered(3)).await?;
    let view = case.until_settled(3).await?;
    view.ensure(uid_of(&view, 0)? == uid_of(&before, 0)?)?;
    view.ensure(uid_of(&view, 1)? == uid_of(&before, 1)?)
}
