//! Two tenants of one operator, on a cluster of their own. The chart is installed as users install it, and the
//! operator runs with the chart's memory limit. One tenant is the victim, whose rollouts wait for hooks; the
//! other one attacks from another namespace.

mod attacks;
mod deliveries;
mod figures;
mod health;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use http::Request;
use serde_json::{Value, json};

pub use attacks::{ATTACKS, Attack};
use deliveries::Deliveries;
pub use figures::{Figures, MeasurementStart};
pub use health::HealthProbes;

use crate::addons::webhook::redirect_calls;
use crate::cluster::chart::CHART;
use crate::cluster::control_plane::ControlPlane;
use crate::cluster::operator::Operator;
use crate::servers::hook_server::HookServer;
use crate::wait::{LIMIT, eventually};
use crate::workload::manifest::{Game, hook_template};

/// Namespace of the release.
const SYSTEM: &str = "gamekeeper-system";
/// Namespace of the tenant whose latencies are measured.
pub const VICTIM: &str = "victim";
/// Namespace of the attacking tenant.
pub const ATTACKER: &str = "attacker";
/// The chart's memory limit, in bytes.
const MEMORY: u64 = 1 << 30;

/// The cluster, the operator and both tenants.
pub struct Stage {
    /// The control plane.
    pub plane: ControlPlane,
    /// The operator of the release.
    pub operator: Operator,
    /// The server that both tenants' hooks call.
    pub hooks: HookServer,
    deliveries: Deliveries,
    pods: i64,
}

/// The leader, and how often it has changed.
#[derive(Clone, Debug, PartialEq)]
pub struct Lease {
    holder: Value,
    transitions: Value,
}

impl Stage {
    /// Sets up the stage with this number of victim pods, and with these further values of the chart (`KEY=VALUE`). The
    /// operator keeps its files in `folder`.
    pub async fn start(folder: &Path, pods: i64, values: &str) -> Result<Self> {
        let plane = ControlPlane::fair("tenants").await?;
        match Self::set_up(&plane, folder, values).await {
            Ok((operator, hooks, deliveries)) => {
                let stage = Stage { plane, operator, hooks, deliveries, pods };
                stage.create_victim().await?;
                Ok(stage)
            }
            Err(error) => {
                plane.stop().await?;
                Err(error)
            }
        }
    }

    async fn set_up(
        plane: &ControlPlane,
        folder: &Path,
        values: &str,
    ) -> Result<(Operator, HookServer, Deliveries)> {
        for namespace in [SYSTEM, VICTIM, ATTACKER] {
            plane.create_namespace(namespace).await?;
        }
        let values = format!("--set=hooks.allSecrets=true,hooks.allowLoopback=true,{values}");
        let install = [
            "install",
            "gamekeeper",
            CHART,
            "--namespace",
            SYSTEM,
            &values,
            "--wait",
            "--timeout=300s",
        ];
        plane.helm(&install).await?;
        let mut operator = Operator::installed(plane, SYSTEM, "gamekeeper", folder).await?;
        operator.start().await?;
        operator.limit_memory(MEMORY).await?;
        // The operator runs outside the cluster, where a Service cannot reach it.
        redirect_calls(plane, "gamekeeper-webhook", operator.webhook_port()?).await?;
        let deliveries = Deliveries::start(plane.client()).await?;
        Ok((operator, HookServer::start().await?, deliveries))
    }

    /// Creates the victim's workload and waits for its pods.
    async fn create_victim(&self) -> Result<()> {
        let template = hook_template("check", &self.hooks.url("/check"));
        self.apply(VICTIM, &template.to_string()).await?;
        let steps = json!([{"partition": self.pods / 2}, {"hook": {"templateName": "check"}}]);
        let game =
            Game::in_place(self.pods).max_unavailable(self.pods).pre_inplace("check").steps(steps);
        self.apply(VICTIM, &game.to_string()).await?;
        self.until_complete().await
    }

    /// Restarts the operator, which lists everything that the attacker has stored.
    pub async fn restart(&mut self) -> Result<()> {
        self.operator.terminate().await?;
        self.operator.start().await?;
        self.operator.limit_memory(MEMORY).await?;
        let port = self.operator.webhook_port()?;
        redirect_calls(&self.plane, "gamekeeper-webhook", port).await
    }

    /// Stops the operator and the cluster.
    pub async fn stop(mut self) -> Result<()> {
        let outcome = self.operator.terminate().await;
        self.plane.stop().await?;
        outcome
    }

    async fn apply(&self, namespace: &str, manifest: &str) -> Result<()> {
        let apply = ["apply", "-n", namespace, "-f", "-"];
        self.plane.kubectl(&apply, manifest).await?;
        Ok(())
    }

    async fn until_complete(&self) -> Result<()> {
        eventually("the victim's rollout is complete", LIMIT, async || {
            let game = self.plane.get(&game_path()).await?;
            let status = &game["status"];
            let is_complete = status["observedGeneration"] == game["metadata"]["generation"]
                && status["updatedReadyReplicas"] == self.pods
                && status["canary"]["revision"] == status["updateRevision"];
            ensure!(is_complete, "{status:#}");
            Ok(())
        })
        .await
    }

    /// Rolls out a new image to the victim, through its steps and hooks. Returns how long that took.
    pub async fn roll_out(&self, image: &str) -> Result<Duration> {
        let started = Instant::now();
        let path = "/spec/template/spec/containers/0/image";
        let operation = json!([{"op": "replace", "path": path, "value": image}]);
        let set = async || self.plane.patch(&game_path(), &operation).await;
        eventually("the image is set", LIMIT, set).await?;
        self.until_complete().await?;
        Ok(started.elapsed())
    }

    /// The current lease.
    pub async fn lease(&self) -> Result<Lease> {
        let path = "/apis/coordination.k8s.io/v1/namespaces";
        let lease = self.plane.get(&format!("{path}/{SYSTEM}/leases/gamekeeper")).await?;
        let spec = &lease["spec"];
        Ok(Lease {
            holder: spec["holderIdentity"].clone(),
            transitions: spec["leaseTransitions"].clone(),
        })
    }

    /// Waits until the API server handles renewals of the lease at the priority of the control plane's own
    /// controllers.
    pub async fn until_lease_has_flow_schema(&self) -> Result<()> {
        let series = "apiserver_flowcontrol_dispatched_requests_total\
            {flow_schema=\"gamekeeper-lease\",priority_level=\"leader-election\"}";
        eventually("the lease has a flow schema", LIMIT, async || {
            let get = ["get", "--raw", "/metrics"];
            let metrics = self.plane.kubectl(&get, "").await?;
            let mut lines = metrics.lines();
            let is_used = lines.any(|line| line.starts_with(series) && !line.ends_with(" 0"));
            ensure!(is_used, "no {series}");
            Ok(())
        })
        .await
    }

    /// Creates an object in the attacker's namespace. Returns None if the API server refuses it. What fails otherwise is tried
    /// again, because the attacks may keep the API server busy, too.
    async fn store(&self, plural: &str, object: &Value) -> Result<Option<Value>> {
        let api = match plural {
            "secrets" | "pods" | "persistentvolumeclaims" => "/api/v1",
            "poddisruptionbudgets" => "/apis/policy/v1",
            _ => "/apis/tkex.tencent.com/v1alpha1",
        };
        let collection = format!("{api}/namespaces/{ATTACKER}/{plural}");
        let body = object.to_string().into_bytes();
        eventually("the API server answers an attack", LIMIT, async || {
            let request = Request::post(&collection).header("content-type", "application/json");
            match self.plane.client().request(request.body(body.clone())?).await {
                Ok(stored) => Ok(Some(stored)),
                Err(kube::Error::Api(status)) if status.code < 500 => Ok(None),
                Err(error) => Err(error.into()),
            }
        })
        .await
    }

    /// Deletes the attacker's workloads, HookRuns, HookTemplates, pods, claims and budgets, each kind with one request.
    /// kubectl would delete them one by one, and take longer than the attacks.
    pub async fn clear(&self) -> Result<()> {
        let api = format!("/apis/tkex.tencent.com/v1alpha1/namespaces/{ATTACKER}");
        let pods = format!("/api/v1/namespaces/{ATTACKER}/pods?gracePeriodSeconds=0");
        let collections = [
            format!("{api}/gamedeployments"),
            format!("/api/v1/namespaces/{ATTACKER}/persistentvolumeclaims"),
            format!(
                "/apis/policy/v1/namespaces/{ATTACKER}/poddisruptionbudgets?labelSelector=attack"
            ),
            format!("{api}/hookruns"),
            format!("{api}/hooktemplates"),
            pods,
        ];
        for collection in &collections {
            self.plane.delete(collection).await?;
        }
        Ok(())
    }

    /// Reads a HookRun of the attacker.
    async fn run(&self, name: &str) -> Result<Value> {
        let runs = format!("/apis/tkex.tencent.com/v1alpha1/namespaces/{ATTACKER}/hookruns");
        self.plane.get(&format!("{runs}/{name}")).await
    }
}

/// The path of the victim's workload.
fn game_path() -> String {
    let name = crate::workload::GAME;
    format!("/apis/tkex.tencent.com/v1alpha1/namespaces/{VICTIM}/gamedeployments/{name}")
}
