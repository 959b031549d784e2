//! Gates that are open at the wrong time: the observation that the other tests rely on must detect them.

use anyhow::{Result, ensure};
use e2e::case::Case;
use e2e::workload::view::Pod;
use judge::object::is_true;
use serde_json::json;

use crate::fixture::{Images, pod_fields};
use crate::observation::{GATE, Observation};

#[e2e::test]
async fn a_gate_that_is_open_at_the_wrong_time_is_detected(case: &mut Case) -> Result<()> {
    let mut images = Images::new(case).await?;
    let (v1, v2) = (images.publish("v1", "v1"), images.publish_quick("v2", "v2"));
    let v3 = images.publish("v3", "v3");
    // A pod that no operator manages, whose gate a user opens for good.
    let mut pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "game"},
        "spec": {
            "readinessGates": [{"conditionType": GATE}],
            "containers": [{"name": "game", "image": v1}],
        },
    });
    for (field, value) in pod_fields() {
        match field.strip_prefix("containers/0/") {
            Some(field) => pod["spec"]["containers"][0][field] = value,
            None => pod["spec"][field] = value,
        }
    }
    // A superseded version continues to answer during this hook, long enough for a response.
    pod["spec"]["containers"][0]["lifecycle"] = json!({"preStop": {"sleep": {"seconds": 10}}});
    pod["spec"]["terminationGracePeriodSeconds"] = json!(30);
    case.apply(pod).await?;
    let open = json!({"status": {"conditions": [{"type": GATE, "status": "True"}]}});
    let open = format!("-p={open}");
    case.kubectl(&["wait", "--for=condition=ContainersReady", "pod/game"]).await?;
    case.kubectl(&["patch", "pod", "game", "--subresource=status", &open]).await?;
    let pod = case
        .eventually("the pod is ready", async || {
            let pod = case.get("pods/game").await?;
            ensure!(is_true(&pod, "Ready"), "{pod}");
            Ok(Pod(pod))
        })
        .await?;
    let observation = Observation::start(&[pod])?;
    let set_image = async |image: &str| {
        let image = format!("game={image}");
        case.kubectl(&["set", "image", "pod/game", &image]).await
    };
    let until_detected = async |waited_for: &str, wrong: &str| {
        case.eventually(waited_for, async || {
            let findings = observation.compare(case, GATE, &images.versions())?;
            let is_detected = findings.wrong.iter().any(|line| line.contains(wrong));
            let (count, last) = (findings.wrong.len(), findings.wrong.last());
            ensure!(is_detected, "{count} wrong responses, the last one: {last:?}");
            Ok(())
        })
        .await
    };
    let (held, next_held) = (images.hold(&v2), images.hold(&v3));
    set_image(&v2).await?;
    until_detected("the gate is open while nothing answers", "version: None").await?;
    // Without this wait, the kubelet might go straight to v3.
    images.until_requested(&v2).await;
    set_image(&v3).await?;
    drop(held);
    until_detected("the gate is open while the superseded version answers", "Some(\"v2\")").await?;
    drop(next_held);
    case.eventually("the right version answers", async || {
        let findings = observation.compare(case, GATE, &images.versions())?;
        ensure!(findings.open.contains_key("v3"), "{findings:?}");
        Ok(())
    })
    .await?;
    Ok(())
}
