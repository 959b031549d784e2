//! Guarded pods during upgrades and rollbacks of the release: the policy stays in force, and the operator keeps its
//! exemption from it.

use anyhow::{Result, ensure};
use e2e::cluster::control_plane::ControlPlane;
use e2e::wait::{LIMIT, eventually};
use e2e::workload::GAME;
use e2e::workload::manifest::{Game, hook_template};
use serde_json::Value;

/// The namespace of the guarded workload.
pub const NAMESPACE: &str = "guarded";

/// Creates a guarded workload whose hook cannot be reached.
pub async fn create_workload(plane: &ControlPlane) -> Result<()> {
    plane.create_namespace(NAMESPACE).await?;
    let template = hook_template("test", "http://unreachable.invalid/");
    let game = Game::in_place(1).pre_delete("test").guarded();
    for manifest in [template.to_string(), game.to_string()] {
        plane.kubectl(&["apply", "-n", NAMESPACE, "-f", "-"], &manifest).await?;
    }
    ensure_guarded(plane).await
}

/// Waits until the operator reports that the pod is guarded, and checks that users cannot delete it.
pub async fn ensure_guarded(plane: &ControlPlane) -> Result<()> {
    eventually("the pod is guarded", LIMIT, async || {
        let status = game(plane).await?["status"].take();
        let conditions = status["conditions"].as_array().into_iter().flatten();
        let is_guarded = |it: &Value| it["type"] == "Guarded" && it["status"] == "True";
        ensure!(
            conditions.clone().any(is_guarded) && status["protection"]["guarded"] == 1,
            "{status:#}"
        );
        Ok(())
    })
    .await?;
    let delete = ["delete", "pods", "--all", "-n", NAMESPACE];
    let error = plane.kubectl(&delete, "").await.err();
    let error = error.map_or_else(String::new, |error| format!("{error:#}"));
    ensure!(error.contains("players may be on"), "{error}");
    Ok(())
}

/// Waits until an operator that was installed without the guard of pods has removed the guard.
pub async fn ensure_left_out(plane: &ControlPlane) -> Result<()> {
    eventually("the guard is left out", LIMIT, async || {
        let game = game(plane).await?;
        let conditions = game["status"]["conditions"].as_array().into_iter();
        let mut reasons = conditions.flatten().filter(|it| it["type"] == "Guarded");
        let reason = reasons.next().map(|it| it["reason"].clone());
        ensure!(
            reason == Some("GuardNotInForce".into())
                && game["status"]["protection"].is_null()
                && game["metadata"]["finalizers"].is_null(),
            "{game:#}"
        );
        ensure_nothing_left(plane).await
    })
    .await
}

/// Checks that no budget, label or finalizer is left, and that the pod still runs.
pub async fn ensure_nothing_left(plane: &ControlPlane) -> Result<()> {
    let finalizers = game(plane).await?["metadata"]["finalizers"].take();
    ensure!(finalizers.is_null(), "{finalizers}");
    let budgets = ["get", "poddisruptionbudgets", "-n", NAMESPACE, "-o", "name"];
    let budgets = plane.kubectl(&budgets, "").await?;
    ensure!(budgets.is_empty(), "{budgets}");
    let pods = ["get", "pods", "-n", NAMESPACE, "-o", "name"];
    let count = plane.kubectl(&pods, "").await?.lines().count();
    ensure!(count == 1, "{count} pods");
    let label = "-l=gamekeeper.tkex.tencent.com/guarded";
    let labeled = plane.kubectl(&[&pods[..], &[label]].concat(), "").await?;
    ensure!(labeled.is_empty(), "{labeled}");
    Ok(())
}

/// Switches the guard off and deletes the workload. Switching the guard off requires writes that the policy
/// allows only the operator to make.
pub async fn delete_workload(plane: &ControlPlane) -> Result<()> {
    let name = format!("gamedeployment/{GAME}");
    let patch = r#"-p={"spec":{"protection":{"pods":"None"}}}"#;
    plane.kubectl(&["patch", &name, "-n", NAMESPACE, "--type=merge", patch], "").await?;
    eventually("the guard is removed", LIMIT, async || {
        let finalizers = game(plane).await?["metadata"]["finalizers"].take();
        let budgets = ["get", "poddisruptionbudgets", "-n", NAMESPACE, "-o", "name"];
        let budgets = plane.kubectl(&budgets, "").await?;
        ensure!(finalizers.is_null() && budgets.is_empty(), "{finalizers} {budgets}");
        Ok(())
    })
    .await?;
    plane.kubectl(&["delete", &name, "-n", NAMESPACE], "").await?;
    Ok(())
}

async fn game(plane: &ControlPlane) -> Result<Value> {
    let path = "/apis/tkex.tencent.com/v1alpha1/namespaces";
    plane.get(&format!("{path}/{NAMESPACE}/gamedeployments/{GAME}")).await
}
