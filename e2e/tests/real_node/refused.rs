//! Changes that the API server refuses, with real containers: no pod leaves service for them, and a pod that has left
//! serves again as it was.

use anyhow::{Result, ensure};
use e2e::addons::interference::{Interference, REFUSED};
use e2e::case::Case;
use e2e::workload::view::{Pod, View};
use serde_json::{Value, json};

use crate::fixture::{Images, game};
use crate::observation::{GATE, Observation};

const RESOURCES: &str = "/spec/template/spec/containers/0/resources";

fn burstable(cpu: &str) -> Value {
    json!({"requests": {"cpu": cpu}, "limits": {"cpu": "1"}})
}

/// Waits until the refusal is told in these words, and both pods serve.
async fn until_told(case: &Case, words: &str, first: &str) -> Result<()> {
    let is_told = |view: &View| {
        let condition = view.condition("FailedUpdate").filter(|_| view.is_true("FailedUpdate"));
        condition.is_some_and(|it| it.message.contains(words))
    };
    let serves = |pod: &Pod| pod.is_ready() && pod.image() == first;
    case.until("the refusal is told", |view| is_told(view) && view.pods.iter().all(serves)).await?;
    Ok(())
}

#[e2e::test]
async fn no_pod_leaves_service_for_a_change_that_is_refused(case: &mut Case) -> Result<()> {
    let mut images = Images::new(case).await?;
    let (v1, v2) = (images.publish("v1", "v1"), images.publish("v2", "v2"));
    case.apply(game(&v1).set(RESOURCES, burstable("20m"))).await?;
    let view = case.until_settled(2).await?;
    let observation = Observation::start(&view.pods)?;

    let to_v2 = format!("object.spec.containers[0].image == '{v2}'");
    let policy = Interference::refuse_where(case, ("", "pods", &["UPDATE"]), &to_v2).await?;
    case.set_image(&v2).await?;
    until_told(case, REFUSED, &v1).await?;
    case.set_image(&v1).await?;
    policy.end(case).await?;
    case.until_settled(2).await?;

    let amounts = json!({"cpu": "1", "memory": "64Mi"});
    case.replace(RESOURCES, json!({"requests": amounts, "limits": amounts})).await?;
    until_told(case, "QoS class", &v1).await?;
    case.replace(RESOURCES, burstable("20m")).await?;
    case.until_settled(2).await?;

    case.apply(json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "cpu"},
        "spec": {"hard": {"requests.cpu": "40m"}},
    }))
    .await?;
    case.eventually("the quota counts the pods", async || {
        let quota = case.get("resourcequotas/cpu").await?;
        ensure!(quota["status"]["used"]["requests.cpu"] == "40m", "{}", quota["status"]);
        Ok(())
    })
    .await?;
    case.replace(RESOURCES, burstable("30m")).await?;
    until_told(case, "exceeded quota", &v1).await?;
    case.replace(RESOURCES, burstable("20m")).await?;
    let after = case.until_settled(2).await?;
    let restarts: i64 = after.pods.iter().map(Pod::restarts).sum();
    after.ensure(restarts == 0 && after.pod_names() == view.pod_names())?;
    let findings = observation.compare(case, GATE, &images.versions())?;
    findings.ensure_no_wrong_response()?;
    let is_served = findings.open.contains_key("v1") && findings.closed.is_empty();
    ensure!(is_served, "a gate was closed: {findings:?}");
    Ok(())
}

#[e2e::test]
async fn a_pod_whose_resize_is_refused_serves_again_as_it_was(case: &mut Case) -> Result<()> {
    let mut images = Images::new(case).await?;
    let (v1, v2) = (images.publish("v1", "v1"), images.publish("v2", "v2"));
    case.apply(game(&v1).set(RESOURCES, burstable("20m"))).await?;
    let observation = Observation::start(&case.until_settled(2).await?.pods)?;
    // The dry run is accepted.
    let is_real = "!has(request.dryRun) || !request.dryRun";
    let policy =
        Interference::refuse_where(case, ("", "pods/resize", &["UPDATE"]), is_real).await?;
    let change = json!([
        {"op": "replace", "path": RESOURCES, "value": burstable("30m")},
        {"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": v2},
    ]);
    case.patch(&case.workload(), change).await?;
    until_told(case, REFUSED, &v1).await?;
    policy.end(case).await?;
    let revert = json!([
        {"op": "replace", "path": RESOURCES, "value": burstable("20m")},
        {"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": v1},
    ]);
    case.patch(&case.workload(), revert).await?;
    case.until_settled(2).await?;
    observation.check(case, &images.versions(), &["v1"])?;
    Ok(())
}
