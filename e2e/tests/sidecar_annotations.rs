//! Annotations that SidecarSets add to new pods.

use anyhow::{Result, ensure};
use e2e::addons::webhook::Webhook;
use e2e::case::Case;
use e2e::workload::manifest::Game;
use judge::object::annotation;
use serde_json::{Value, json};

use crate::sidecars::{label, log, name, read, remove, set, until_injecting, until_shown};

/// A SidecarSet with annotations that yield to a pod's own values, and with one that overwrites the pod's own value.
fn annotating_set(case: &Case, port: &str) -> Value {
    let mut set = set(case, log());
    set["spec"]["patchPodMetadata"] = json!([
        {"annotations": {"example.com/port": port, "example.com/team": "tools"}},
        {"annotations": {"example.com/logs": "on"}, "patchPolicy": "Overwrite"},
    ]);
    set
}

/// Checks the annotations of a pod whose author has set all but the port.
fn check(pod: &Value, port: &str) -> Result<()> {
    for (key, expected) in [("port", port), ("team", "games"), ("logs", "on")] {
        let found = annotation(pod, &format!("example.com/{key}"));
        ensure!(found == Some(expected), "{key}: {pod:#}");
    }
    Ok(())
}

fn authors_annotations() -> Value {
    json!({"example.com/team": "games", "example.com/logs": "off"})
}

#[e2e::test]
async fn new_pods_get_the_annotations_of_a_set_and_running_pods_keep_theirs(
    case: &mut Case,
) -> Result<()> {
    case.apply(annotating_set(case, "9100")).await?;
    until_shown(case, [0, 0, 0, 0]).await?;
    let game = Game::in_place(2).set("/spec/template/metadata/annotations", authors_annotations());
    case.apply(game).await?;
    let before = case.until_settled(2).await?;
    for pod in &before.pods {
        check(&pod.0, "9100")?;
    }
    let old = until_shown(case, [2, 2, 2, 0]).await?;

    case.apply(annotating_set(case, "9200")).await?;
    let new = until_shown(case, [2, 2, 2, 0]).await?;
    let revision = |set: &Value| set["status"]["latestRevision"].clone();
    ensure!(revision(&old) != revision(&new), "{new:#}");
    case.scale(3).await?;
    let after = case.until_settled(3).await?;
    for pod in &after.pods {
        let uid = &pod.0["metadata"]["uid"];
        let old_pod = before.pods.iter().find(|it| it.0["metadata"]["uid"] == *uid);
        check(&pod.0, if old_pod.is_some() { "9100" } else { "9200" })?;
        let restarts = |pod: &Value| pod["status"]["containerStatuses"][0]["restartCount"].clone();
        after.ensure(old_pod.is_none_or(|old| restarts(&old.0) == restarts(&pod.0)))?;
    }
    let kept = after.pods.iter().filter(|pod| {
        let uid = &pod.0["metadata"]["uid"];
        before.pods.iter().any(|it| it.0["metadata"]["uid"] == *uid)
    });
    after.ensure(kept.count() == 2)?;
    until_shown(case, [3, 3, 3, 0]).await?;
    remove(case).await
}

#[e2e::test]
async fn the_webhook_adds_annotations_to_pods_of_other_controllers(case: &mut Case) -> Result<()> {
    let webhook = Webhook::install(case, "2160h").await?;
    webhook.until_called(case).await?;
    label(case, "=enabled").await?;
    case.apply(annotating_set(case, "9100")).await?;
    until_injecting(case, "log").await?;
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "a", "labels": read(case).await?["spec"]["selector"]["matchLabels"],
            "annotations": authors_annotations(),
        },
        "spec": {"containers": [{"name": "game", "image": "game:v1"}]},
    });
    case.apply(pod).await?;
    check(&case.get("pods/a").await?, "9100")?;

    let mut reserved = annotating_set(case, "9100");
    reserved["metadata"]["name"] = json!(format!("r-{}", name(case)));
    let keys = json!({"gamekeeper.tkex.tencent.com/released": "true"});
    reserved["spec"]["patchPodMetadata"][0]["annotations"] = keys;
    let error = case.refused(&["create", "-f", "-"], &reserved.to_string()).await?;
    let message = "spec.patchPodMetadata[0].annotations: Invalid value: \
                   \"gamekeeper.tkex.tencent.com/released\": is reserved";
    ensure!(error.contains(message), "{error}");
    case.kubectl(&["delete", "pod", "a", "--grace-period=1"]).await?;
    until_shown(case, [0, 0, 0, 0]).await?;
    remove(case).await?;
    webhook.remove(case).await
}
