//! The chart in a platform team's umbrella chart: a condition and globals, a namespace with Pod Security, a quota and a
//! network policy that denies by default, and a user ID that the cluster assigns.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use e2e::case::Case;
use e2e::checkout::repository;
use e2e::cluster::chart::CHART;
use e2e::cluster::control_plane::ControlPlane;
use e2e::cluster::operator::Operator;
use e2e::process::command::run;
use judge::object::text;
use serde_json::{Value, json};
use tokio::process::Command;

use super::{SYSTEM, guard};

/// A user ID as OpenShift assigns it.
const USER: u32 = 1_000_650_000;

const UMBRELLA: &str = "
apiVersion: v2
name: platform
version: 1.0.0
dependencies:
- {name: gamekeeper, version: 0.1.0, condition: gamekeeper.enabled}
";

#[e2e::test]
async fn an_umbrella_chart_installs_into_a_restricted_namespace(case: &mut Case) -> Result<()> {
    let plane = ControlPlane::empty("platform").await?;
    let outcome = check(&plane, case.folder()).await;
    plane.stop().await?;
    outcome
}

/// Writes the umbrella chart, and returns its path.
async fn umbrella(folder: &Path) -> Result<String> {
    let chart = folder.join("platform");
    std::fs::create_dir_all(chart.join("charts"))?;
    std::fs::write(chart.join("Chart.yaml"), UMBRELLA)?;
    let values = json!({
        "global": {
            "imageRegistry": "registry.example.com",
            "imagePullSecrets": [{"name": "registry"}],
            "storageClass": "fast",
        },
        "gamekeeper": {
            "enabled": true,
            "commonLabels": {"team": "platform"},
            "podSecurityContext": {"runAsUser": USER, "runAsGroup": 0},
            "networkPolicy": {"egress": [{"ports": [{"port": 443}]}]},
        },
    });
    std::fs::write(chart.join("values.yaml"), values.to_string())?;
    let mut copy = Command::new("cp");
    copy.arg("-r").arg(repository().join(CHART)).arg(chart.join("charts/gamekeeper"));
    run(&mut copy, "").await?;
    Ok(chart.to_string_lossy().into_owned())
}

/// What a platform team puts into a namespace.
fn restrictions() -> [Value; 3] {
    let metadata = |name: &str| json!({"name": name, "namespace": SYSTEM});
    [
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM, "labels": {
            "pod-security.kubernetes.io/enforce": "restricted",
        }}}),
        json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
            "metadata": metadata("default-deny"),
            "spec": {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}}),
        json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata("quota"),
            "spec": {"hard": {"pods": "4", "count/jobs.batch": "2", "requests.cpu": "1",
                "requests.memory": "1Gi", "limits.memory": "4Gi"}}}),
    ]
}

async fn check(plane: &ControlPlane, folder: &Path) -> Result<()> {
    plane.apply(&restrictions()).await?;
    let chart = umbrella(folder).await?;
    let left_out = format!("template platform {chart} -n {SYSTEM} --set gamekeeper.enabled=false");
    let left_out: Vec<&str> = left_out.split(' ').collect();
    let left_out = plane.helm(&left_out).await?;
    ensure!(left_out.trim().is_empty(), "{left_out}");

    let install = format!("install platform {chart} -n {SYSTEM} --wait --timeout=300s");
    let install: Vec<&str> = install.split(' ').collect();
    plane.helm(&install).await?;
    let pods = plane.get(&format!("/api/v1/namespaces/{SYSTEM}/pods")).await?;
    let pods = pods["items"].as_array().context("no list")?;
    ensure!(pods.len() == 2, "{pods:#?}");
    for pod in pods {
        ensure_as_configured(pod)?;
        ensure_may_connect(plane, pod).await?;
    }
    let name = "platform-gamekeeper";
    let mut operator = Operator::installed(plane, SYSTEM, name, folder).await?;
    operator.use_user(USER)?;
    operator.start().await?;
    guard::create_workload(plane).await?;
    guard::delete_workload(plane).await?;
    operator.terminate().await?;

    plane.helm(&["uninstall", "platform", "-n", SYSTEM]).await?;
    let writes = plane.audit.writes(SYSTEM)?;
    let mut created = writes.iter().filter(|it| it.verb == "create" && it.resource() == "pods");
    let pod = created.find_map(|it| {
        let pod = it.response_object.as_ref()?;
        let component = text(pod, "/metadata/labels/app.kubernetes.io~1component");
        (component == "unguard" && it.succeeded()).then_some(pod)
    });
    let pod = pod.context("the Job had no pod")?;
    ensure_as_configured(pod)
}

/// Checks that the umbrella's values are in a pod.
fn ensure_as_configured(pod: &Value) -> Result<()> {
    let spec = &pod["spec"];
    let image = text(spec, "/containers/0/image");
    ensure!(image == "registry.example.com/gamekeeper:0.1.0", "{spec:#}");
    ensure!(spec["imagePullSecrets"] == json!([{"name": "registry"}]), "{spec:#}");
    ensure!(spec["securityContext"]["runAsUser"] == USER, "{spec:#}");
    let labels = &pod["metadata"]["labels"];
    ensure!(labels["team"] == "platform", "{labels:#}");
    Ok(())
}

/// Checks that a network policy of the chart selects the pod, and allows it to connect to the API server.
async fn ensure_may_connect(plane: &ControlPlane, pod: &Value) -> Result<()> {
    let labels = &pod["metadata"]["labels"];
    let path = format!("/apis/networking.k8s.io/v1/namespaces/{SYSTEM}/networkpolicies");
    let policies = plane.get(&path).await?;
    let allows = |policy: &Value| {
        let selector = policy["spec"]["podSelector"]["matchLabels"].as_object();
        selector.is_some_and(|it| it.iter().all(|(key, value)| labels[key] == *value))
            && policy["spec"]["egress"].is_array()
    };
    let policies = policies["items"].as_array().context("no list")?;
    ensure!(policies.iter().any(allows), "{policies:#?}");
    Ok(())
}
