//! When pods with sidecars are created, and what prevents that.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::addons::webhook::Webhook;
use e2e::case::Case;
use e2e::faults::request::Verb;
use e2e::faults::{Fault, Frequency, Requests, Script, WatchFault};
use e2e::workload::GAME;
use e2e::workload::manifest::Game;
use e2e::workload::view::View;
use judge::object::text;
use serde_json::json;

use crate::sidecars::{
    all_have, containers, label, log, name, pod, remove, set, until_injecting, until_shown,
};

#[e2e::test]
async fn a_set_whose_pods_are_refused_blocks_creations_until_it_is_fixed(
    case: &mut Case,
) -> Result<()> {
    // Pod Security refuses the pods, but not the set itself. Webhooks of other tests in the cluster dry-run the set as
    // a pod template, and must accept it.
    let baseline = "pod-security.kubernetes.io/enforce=baseline";
    case.kubectl(&["label", "namespace", &case.namespace, baseline]).await?;
    let mut privileged = pod("probe");
    privileged["spec"]["containers"][0]["securityContext"] = json!({"privileged": true});
    case.until_refused(
        "Pod Security refuses pods",
        &["create", "--dry-run=server", "-f", "-"],
        &privileged.to_string(),
        "privileged",
    )
    .await?;
    let log_container = |privileged: bool| json!([{"name": "log", "image": "log:1.0", "securityContext": {"privileged": privileged}}]);
    case.apply(set(case, log_container(true))).await?;
    until_shown(case, [0, 0, 0, 0]).await?;
    case.apply(Game::in_place(2)).await?;
    case.until("creations are refused", |view| {
        let condition = view.condition("FailedScale");
        condition.is_some_and(|it| it.status == "True" && it.message.contains("privileged"))
    })
    .await?;
    case.apply(set(case, log_container(false))).await?;
    let view = case.until_settled(2).await?;
    view.ensure(all_have(&view, &["log", "game"]))?;

    // While the set's pods are refused, an update of the game deletes no running pod.
    case.apply(set(case, log_container(true))).await?;
    until_shown(case, [2, 0, 2, 0]).await?;
    case.replace("/spec/updateStrategy/type", "RollingUpdate").await?;
    case.set_image("game:v2").await?;
    case.until("the update is refused", |view| {
        let condition = view.condition("FailedUpdate");
        condition.is_some_and(|it| it.reason == "TemplateRefused")
    })
    .await?;
    case.consistently("both pods are kept", 3, |view| {
        view.pods.len() == 2
            && view.pods.iter().all(|pod| pod.0["spec"]["containers"][1]["image"] == "game:v1")
    })
    .await?;
    case.apply(set(case, log_container(false))).await?;
    case.until_settled(2).await?;
    remove(case).await
}

#[e2e::test]
async fn pods_with_sidecars_are_replaced_under_a_full_quota(case: &mut Case) -> Result<()> {
    let cpu = |amount: &str| json!({"requests": {"cpu": amount}});
    case.apply(json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "quota"},
        "spec": {"hard": {"requests.cpu": "3600m"}},
    }))
    .await?;
    let log = json!([{
        "name": "log", "image": "log:1.0", "podInjectPolicy": "AfterAppContainer",
        "resources": cpu("100m"),
    }]);
    let mut set = set(case, log);
    let mesh = json!({
        "name": "mesh", "image": "mesh:1.0", "restartPolicy": "Always", "resources": cpu("100m"),
    });
    set["spec"]["initContainers"] = json!([mesh]);
    case.apply(set).await?;
    until_shown(case, [0, 0, 0, 0]).await?;
    let resources = "/spec/template/spec/containers/0/resources";
    case.apply(Game::rolling(3).set(resources, cpu("1"))).await?;
    case.until_settled(3).await?;
    case.set_image("game:v2").await?;
    let view = case.until_settled(3).await?;
    view.ensure(view.ready_with("game:v2") == 3)?;
    // A template that requests more does not fit, and no pod is deleted for it.
    case.replace(resources, cpu("1100m")).await?;
    case.until("the update is refused", |view| {
        let condition = view.condition("FailedUpdate");
        condition.is_some_and(|it| it.reason == "TemplateRefused")
    })
    .await?;
    case.consistently("all pods are kept", 2, |view| view.ready_with("game:v2") == 3).await?;
    remove(case).await
}

#[e2e::test]
async fn a_set_that_is_applied_together_with_a_workload_reaches_the_first_pods(
    case: &mut Case,
) -> Result<()> {
    let proxy = case.restart_behind_proxy().await?;
    // The cache of sets is compared with the API server only if it is not empty. This set selects no pod.
    let mut other = set(case, log());
    other["metadata"]["name"] = json!(format!("a-{}", name(case)));
    other["spec"]["selector"] = json!({"matchLabels": {"app": "none"}});
    case.apply(other.clone()).await?;
    let other = text(&other, "/metadata/name");
    case.eventually("the operator has observed the set", async || {
        let path = format!("/apis/tkex.tencent.com/v1alpha1/sidecarsets/{other}");
        let found = case.plane().get(&path).await?;
        let observed = &found["status"]["observedGeneration"];
        ensure!(*observed == found["metadata"]["generation"], "{found:#}");
        Ok(())
    })
    .await?;
    let game = format!("gamedeployment/{GAME}");
    for round in 0..5 {
        let lag = WatchFault::Lag(Duration::from_secs(2));
        proxy.play(Script::default().watching("sidecarsets", lag, 0.0, 60.0));
        let items = [set(case, log()), Game::in_place(2).into()];
        case.apply(json!({"apiVersion": "v1", "kind": "List", "items": items})).await?;
        let view = case.until_settled(2).await?;
        let context = || format!("round {round}");
        view.ensure(all_have(&view, &["log", "game"])).with_context(context)?;
        proxy.heal();
        case.kubectl(&["delete", &game]).await?;
        remove(case).await?;
    }
    case.kubectl(&["delete", "sidecarset", other]).await?;
    Ok(())
}

#[e2e::test]
async fn no_pod_is_created_before_the_labels_of_its_namespace_are_known(
    case: &mut Case,
) -> Result<()> {
    let proxy = case.restart_behind_proxy().await?;
    label(case, "=disabled").await?;
    // If the operator found a set at its start, it would wait for namespaces before its first plan.
    case.apply(Game::in_place(0)).await?;
    case.until("the operator plans", View::is_observed).await?;
    let lag = WatchFault::Lag(Duration::from_secs(300));
    // Older API servers do not send the list in the watch.
    let lists = Requests::To(Verb::List, "namespaces");
    let script = Script::default().with(lists, Fault::Unavailable, Frequency::Always);
    proxy.play(script.watching("namespaces", lag, 0.0, 300.0));
    // Namespaces are watched from now on, but the first list does not arrive.
    case.apply(set(case, log())).await?;
    until_shown(case, [0, 0, 0, 0]).await?;
    case.apply(Game::in_place(2)).await?;
    case.consistently("no pod is created", 3, |view| view.pods.is_empty()).await?;
    proxy.heal();
    let view = case.until_settled(2).await?;
    view.ensure(all_have(&view, &["game"]))?;
    remove(case).await
}

#[e2e::test]
async fn labeled_namespaces_accept_only_game_pods_while_the_webhook_is_down(
    case: &mut Case,
) -> Result<()> {
    let installed = Webhook::install(case, "2160h").await?;
    installed.until_called(case).await?;
    label(case, "=enabled").await?;
    case.apply(set(case, log())).await?;
    until_injecting(case, "log").await?;
    // From now on, API servers call a port on which no process listens.
    installed.redirect_injection_to_closed_port(case).await?;
    case.apply(Game::in_place(2)).await?;
    let view = case.until_settled(2).await?;
    view.ensure(all_have(&view, &["log", "game"]))?;
    // The API server observes the new port some time after the write.
    case.until_refused(
        "pods of other controllers are refused",
        &["create", "--dry-run=server", "-f", "-"],
        &pod("a").to_string(),
        "inject.gamekeeper.tkex.tencent.com",
    )
    .await?;
    label(case, "-").await?;
    case.eventually("other namespaces are not affected", async || {
        case.kubectl_with(&["create", "-f", "-"], &pod("a").to_string()).await
    })
    .await?;
    let a = case.get("pods/a").await?;
    ensure!(containers(&a) == ["game"], "{a:#}");
    until_shown(case, [2, 2, 2, 0]).await?;
    remove(case).await?;
    installed.remove(case).await
}
