//! A SidecarSet reports when pods of other controllers do not get its containers because the webhook is not in force.

use anyhow::{Result, ensure};
use e2e::addons::webhook::Webhook;
use e2e::case::Case;
use e2e::workload::manifest::Game;
use serde_json::{Value, json};

use crate::sidecars::{
    condition, containers, label, log, name, pod, read, remove, set, until_injecting, until_shown,
};

/// Waits until the condition Injecting is True with this reason, and returns its message.
async fn until_reason(case: &Case, reason: &str) -> Result<String> {
    case.eventually(&format!("Injecting has reason {reason}"), async || {
        let set = read(case).await?;
        let (status, found, message) = condition(&set, "Injecting");
        ensure!((&*status, &*found) == ("True", reason), "{:#}", set["status"]);
        Ok(message)
    })
    .await
}

#[e2e::test]
async fn a_set_reports_that_pods_of_other_controllers_get_no_sidecars(
    case: &mut Case,
) -> Result<()> {
    case.apply(set(case, log())).await?;
    until_shown(case, [0, 0, 0, 0]).await?;
    // Without a labeled namespace, no pod is affected.
    until_reason(case, "Injecting").await?;
    label(case, "=enabled").await?;
    let message = until_reason(case, "WebhookDisabled").await?;
    let words = format!("({}) do not get them, because the operator serves no", case.namespace);
    ensure!(message.contains(&words), "{message}");
    let shown = case.game(&["tree", &format!("scs/{}", name(case))]).await?;
    ensure!(shown.stdout.contains("Injecting:  WebhookDisabled for "), "{shown:?}");
    case.apply(Game::in_place(1)).await?;
    let view = case.until_settled(1).await?;
    view.ensure(containers(&view.pods[0].0) == ["log", "game"])?;
    label(case, "-").await?;
    until_reason(case, "Injecting").await?;

    // With this lifetime, the operator reads the webhook's configuration every second.
    let installed = Webhook::install(case, "60s").await?;
    installed.until_called(case).await?;
    label(case, "=enabled").await?;
    until_injecting(case, "log").await?;
    until_reason(case, "Injecting").await?;

    let path = format!(
        "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/{}",
        installed.name
    );
    let role = format!("/apis/rbac.authorization.k8s.io/v1/clusterroles/{}", installed.name);
    let verbs = |verbs: Value| json!([{"op": "replace", "path": "/rules/1/verbs", "value": verbs}]);
    case.plane().patch(&role, &verbs(json!(["get"]))).await?;
    // Until then, the operator restores a CA bundle that is removed.
    let request = json!({
        "verb": "patch", "group": "admissionregistration.k8s.io",
        "resource": "mutatingwebhookconfigurations", "name": installed.name,
    });
    case.until_forbidden(&case.operator, &request).await?;
    let bundle = "/webhooks/1/clientConfig/caBundle";
    let remove_bundle = json!([{"op": "remove", "path": bundle}]);
    case.plane().patch(&path, &remove_bundle).await?;
    case.eventually("the operator cannot announce its authority", async || {
        let set = read(case).await?;
        let (status, reason, message) = condition(&set, "Injecting");
        let is_untrusted = (&*status, &*reason) == ("True", "WebhookNotTrusted");
        ensure!(
            is_untrusted && message.contains("are refused") && message.contains("cannot patch"),
            "{:#}",
            set["status"]
        );
        Ok(())
    })
    .await?;
    case.until_refused(
        "a pod is refused, as the condition says",
        &["create", "--dry-run=server", "-f", "-"],
        &pod("a").to_string(),
        "inject.gamekeeper.tkex.tencent.com",
    )
    .await?;
    case.plane().patch(&role, &verbs(json!(["get", "patch"]))).await?;
    until_reason(case, "Injecting").await?;
    until_injecting(case, "log").await?;

    let remove_webhook = json!([{"op": "remove", "path": "/webhooks/1"}]);
    case.plane().patch(&path, &remove_webhook).await?;
    let message = until_reason(case, "WebhookNotInstalled").await?;
    ensure!(message.contains(&installed.name), "{message}");
    case.eventually("a pod is created without the sidecar, as the condition says", async || {
        let create = ["create", "--dry-run=server", "-o=json", "-f", "-"];
        let created = case.kubectl_with(&create, &pod("a").to_string()).await?;
        let created: Value = serde_json::from_str(&created)?;
        ensure!(containers(&created) == ["game"], "{created:#}");
        Ok(())
    })
    .await?;
    remove(case).await?;
    installed.remove(case).await
}
