//! A release in the cluster: the endpoints of its Services, its PodDisruptionBudget, and what rollbacks and
//! upgrades restore.

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail, ensure};
use e2e::addons::webhook::{BAD, redirect_calls};
use e2e::checkout::repository;
use e2e::cluster::control_plane::ControlPlane;
use e2e::cluster::operator::Operator;
use e2e::wait::{LIMIT, eventually};
use serde_json::{Value, json};

use super::lifecycle::trusted_certificates;
use super::{GAMES, SYSTEM};

/// Recreates the nodes so that pods get addresses that are valid in EndpointSlices. In other tests, pods have
/// loopback addresses, which the API server refuses in EndpointSlices. Waits until pods can be scheduled on all nodes,
/// or the scheduler could put all pods on the first node that is ready.
pub async fn use_valid_pod_addresses(plane: &ControlPlane) -> Result<()> {
    let nodes = std::fs::read_to_string(repository().join("e2e/cluster/nodes.yaml"))?;
    let nodes = nodes.replace("podCIDR: 127.", "podCIDR: 10.");
    // The podCIDR of an existing node cannot change.
    plane.kubectl(&["delete", "nodes", "--all"], "").await?;
    plane.kubectl(&["apply", "-f", "-"], &nodes).await?;
    eventually("no node has a taint", LIMIT, async || {
        let nodes = items(plane.get("/api/v1/nodes").await?)?;
        let is_untainted = |node: &Value| node["spec"]["taints"].is_null();
        ensure!(nodes.iter().all(is_untainted), "{nodes:#?}");
        Ok(())
    })
    .await
}

/// Checks that the Services reach the pods at their ports, and that the PodDisruptionBudget counts the pods.
pub async fn ensure_services_reach_pods(plane: &ControlPlane) -> Result<()> {
    for (service, port) in [("gamekeeper-webhook", 9443), ("gamekeeper-metrics", 8080)] {
        let description = format!("{service} reaches the pods");
        eventually(&description, LIMIT, async || ensure_reaches_pods(plane, service, port).await)
            .await?;
    }
    let budget = format!("/apis/policy/v1/namespaces/{SYSTEM}/poddisruptionbudgets/gamekeeper");
    eventually("one pod may be evicted", LIMIT, async || {
        let status = plane.get(&budget).await?["status"].take();
        let is_counted = status["expectedPods"] == 2 && status["disruptionsAllowed"] == 1;
        ensure!(is_counted, "{status:#}");
        Ok(())
    })
    .await
}

async fn ensure_reaches_pods(plane: &ControlPlane, service: &str, port: u16) -> Result<()> {
    let pods = format!("/api/v1/namespaces/{SYSTEM}/pods?labelSelector=app.kubernetes.io/instance");
    let pods = items(plane.get(&format!("{pods}=gamekeeper")).await?)?;
    let pods = pods.iter().filter_map(|pod| pod["status"]["podIP"].as_str());
    let pods: BTreeSet<&str> = pods.collect();
    ensure!(pods.len() == 2, "{pods:?}");
    let slices = format!("/apis/discovery.k8s.io/v1/namespaces/{SYSTEM}/endpointslices");
    let selector = format!("labelSelector=kubernetes.io/service-name={service}");
    let slices = items(plane.get(&format!("{slices}?{selector}")).await?)?;
    ensure!(slices.len() == 1, "{slices:#?}");
    let ports = slices[0]["ports"].as_array().context("no ports")?;
    ensure!(ports.len() == 1 && ports[0]["port"] == port, "{ports:#?}");
    let endpoints = slices[0]["endpoints"].as_array().context("no endpoints")?;
    let ready = endpoints.iter().filter(|it| it["conditions"]["ready"] == true);
    let ready = ready.filter_map(|it| it["addresses"][0].as_str());
    let ready: BTreeSet<&str> = ready.collect();
    ensure!(ready == pods, "{ready:?} instead of {pods:?}");
    Ok(())
}

fn items(mut list: Value) -> Result<Vec<Value>> {
    serde_json::from_value(list["items"].take()).context("no list")
}

/// Rolls back to the first revision of the release, whose CRD lacks the new short name.
pub async fn roll_back(plane: &ControlPlane) -> Result<()> {
    ensure!(kinds(plane).await?.contains("brandnew"));
    let before = identities(plane).await?;
    let rollback =
        ["rollback", "gamekeeper", "1", "--namespace", SYSTEM, "--wait", "--timeout=300s"];
    plane.helm(&rollback).await?;
    eventually("the short name is no longer served", LIMIT, async || {
        let kinds = kinds(plane).await?;
        let is_rolled_back = kinds.contains("gamedeployments") && !kinds.contains("brandnew");
        ensure!(is_rolled_back, "{kinds}");
        Ok(())
    })
    .await?;
    let after = identities(plane).await?;
    ensure!(after == before, "{before:#?} became {after:#?}");
    Ok(())
}

/// The operator's kinds as kubectl discovers them. This command does not use kubectl's discovery cache.
async fn kinds(plane: &ControlPlane) -> Result<String> {
    let list = ["api-resources", "--api-group=tkex.tencent.com"];
    plane.kubectl(&list, "").await
}

/// The uids and generations of workloads and pods.
async fn identities(plane: &ControlPlane) -> Result<Vec<Value>> {
    let get = ["get", "gamedeployments,pods", "-n", GAMES, "-o", "json"];
    let list = serde_json::from_str(&plane.kubectl(&get, "").await?)?;
    let identity = |it: Value| json!([it["metadata"]["uid"], it["metadata"]["generation"]]);
    Ok(items(list)?.into_iter().map(identity).collect())
}

/// Deletes the webhook's Secret and upgrades. The running operator must create a new certificate, and the
/// webhook must work.
pub async fn ensure_upgrade_restores_secret(
    plane: &ControlPlane,
    operator: &Operator,
    upgrade: &[&str],
) -> Result<()> {
    let [before, _] = trusted_certificates(plane, operator).await?;
    let delete = ["delete", "secret", "gamekeeper-webhook", "-n", SYSTEM];
    plane.kubectl(&delete, "").await?;
    plane.helm(upgrade).await?;
    eventually("a new certificate is served", LIMIT, async || {
        let [after, _] = trusted_certificates(plane, operator).await?;
        ensure!(after["tls.crt"] != before["tls.crt"], "the old certificate is still served");
        Ok(())
    })
    .await?;
    ensure_bad_manifest_is_refused(plane, operator).await
}

/// Makes the API server call the operator's port, because Services have no data plane here, and waits until
/// the webhook refuses a manifest.
async fn ensure_bad_manifest_is_refused(plane: &ControlPlane, operator: &Operator) -> Result<()> {
    redirect_calls(plane, "gamekeeper-webhook", operator.webhook_port()?).await?;
    let apply = ["apply", "--dry-run=server", "-n", GAMES, "-f", "-"];
    eventually("a bad manifest is refused", LIMIT, async || {
        let error = match plane.kubectl(&apply, BAD).await {
            Ok(output) => bail!("{output}"),
            Err(error) => format!("{error:#}"),
        };
        ensure!(error.contains("spec.metrics[0].successCondition: "), "{error}");
        Ok(())
    })
    .await
}
