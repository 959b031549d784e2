//! The fleet: twenty workloads of a hundred pods, and what is changed in a round.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::cluster::control_plane::ControlPlane;
use e2e::servers::hook_server::HookServer;
use e2e::wait::eventually;
use e2e::workload::manifest::{Game, hook_template};
use serde_json::{Value, json};

const NAMESPACES: usize = 4;
const WORKLOADS: usize = 20;
const PODS: i64 = 100;
/// How long a round's changes may take.
const LIMIT: Duration = Duration::from_secs(900);
/// Name of the HookTemplate, and of the SidecarSet.
const CHECK: &str = "check";
const API: &str = "/apis/tkex.tencent.com/v1alpha1";

/// The workloads, and the servers that their hooks call.
pub struct Fleet<'a> {
    plane: &'a ControlPlane,
    _hooks: HookServer,
    workloads: Vec<Workload>,
}

struct Workload {
    /// Its place in the fleet, which decides what it is.
    place: usize,
    /// How many workloads this place has had.
    number: usize,
}

/// What is done to a workload in a round.
enum Change {
    RollOut,
    ScaleInAndOut,
    Replace,
}

impl Workload {
    fn namespace(&self) -> String {
        format!("soak-{}", self.place % NAMESPACES)
    }

    fn name(&self) -> String {
        format!("game-{}-{}", self.place, self.number)
    }

    fn plural(&self) -> &'static str {
        match self.place % 5 {
            3 => "gamestatefulsets",
            _ => "gamedeployments",
        }
    }

    fn collection(&self) -> String {
        format!("{API}/namespaces/{}/{}", self.namespace(), self.plural())
    }

    fn path(&self) -> String {
        format!("{}/{}", self.collection(), self.name())
    }

    fn manifest(&self) -> Game {
        let steps = json!([
            {"partition": PODS - 1},
            {"pause": {"duration": "1s"}},
            {"hook": {"templateName": CHECK}},
        ]);
        let game = match self.place % 5 {
            0 => Game::in_place(PODS).pre_inplace(CHECK).steps(steps),
            1 => Game::rolling(PODS).pre_delete(CHECK).guarded(),
            2 => Game::hot_patch(PODS)
                .pre_delete(CHECK)
                .set("/spec/template/metadata/labels/hot", "yes"),
            3 => Game::parallel(PODS)
                .updated_by("InplaceUpdate")
                .pre_inplace(CHECK)
                .post_inplace(CHECK),
            _ => Game::rolling(PODS).max_surge(10),
        };
        game.max_unavailable("20%").named(&self.name())
    }

    fn change(&self, round: usize) -> Change {
        match (round + self.place) % 4 {
            0 | 2 => Change::RollOut,
            1 => Change::ScaleInAndOut,
            _ => Change::Replace,
        }
    }
}

impl<'a> Fleet<'a> {
    /// Creates namespaces, HookTemplates, a SidecarSet and the workloads.
    pub async fn create(plane: &'a ControlPlane) -> Result<Self> {
        let hooks = HookServer::start().await?;
        for index in 0..NAMESPACES {
            let namespace = format!("soak-{index}");
            plane.create_namespace(&namespace).await?;
            let account = format!("/api/v1/namespaces/{namespace}/serviceaccounts/default");
            eventually("the default service account exists", LIMIT, async || {
                plane.get(&account).await
            })
            .await?;
            let templates = format!("{API}/namespaces/{namespace}/hooktemplates");
            let template = hook_template(CHECK, &hooks.url("/check"));
            plane.create(&templates, &template).await?;
        }
        plane.create(&format!("{API}/sidecarsets"), &sidecar_set()).await?;
        let workloads = (0..WORKLOADS).map(|place| Workload { place, number: 0 });
        let workloads: Vec<Workload> = workloads.collect();
        for workload in &workloads {
            plane.create(&workload.collection(), &workload.manifest().into()).await?;
        }
        Ok(Self { plane, _hooks: hooks, workloads })
    }

    /// Changes each workload, and in every fourth round the sidecars, and waits until all pods are as wanted again.
    pub async fn change(&mut self, round: usize) -> Result<()> {
        if round % 4 == 3 {
            let image = replace("/spec/containers/0/image", json!(format!("log:v{round}")));
            let path = format!("{API}/sidecarsets/{CHECK}");
            self.plane.patch(&path, &image).await?;
        }
        let mut deleted = Vec::new();
        for workload in &mut self.workloads {
            match workload.change(round) {
                Change::RollOut => {
                    let image = json!(format!("game:v{}", round + 2));
                    let image = replace("/spec/template/spec/containers/0/image", image);
                    self.plane.patch(&workload.path(), &image).await?;
                }
                Change::ScaleInAndOut => {
                    let fewer = replace("/spec/replicas", json!(PODS * 9 / 10));
                    self.plane.patch(&workload.path(), &fewer).await?;
                }
                Change::Replace => {
                    self.plane.delete(&workload.path()).await?;
                    deleted.push(workload.path());
                    workload.number += 1;
                    self.plane.create(&workload.collection(), &workload.manifest().into()).await?;
                }
            }
        }
        self.until_settled().await?;
        for workload in &self.workloads {
            if let Change::ScaleInAndOut = workload.change(round) {
                let all = replace("/spec/replicas", json!(PODS));
                self.plane.patch(&workload.path(), &all).await?;
            }
        }
        self.until_settled().await?;
        self.until_gone(&deleted).await
    }

    /// Waits until each workload has the pods that it wants, all of them updated and ready.
    pub async fn until_settled(&self) -> Result<()> {
        for workload in &self.workloads {
            let path = workload.path();
            eventually(&format!("{path} is settled"), LIMIT, async || {
                let object = self.plane.get(&path).await?;
                ensure!(is_settled(&object), "{:#}", object["status"]);
                Ok(())
            })
            .await?;
        }
        let path = format!("{API}/sidecarsets/{CHECK}");
        eventually("all sidecars are updated", LIMIT, async || {
            let set = self.plane.get(&path).await?;
            let status = &set["status"];
            let is_current = status["observedGeneration"] == set["metadata"]["generation"];
            ensure!(
                is_current && status["updatedReadyPods"] == status["matchedPods"],
                "{status:#}"
            );
            Ok(())
        })
        .await
    }

    async fn until_gone(&self, paths: &[String]) -> Result<()> {
        for path in paths {
            eventually(&format!("{path} is gone"), LIMIT, async || {
                ensure!(self.plane.get(path).await.is_err(), "it still exists");
                Ok(())
            })
            .await?;
        }
        Ok(())
    }
}

fn replace(path: &str, value: Value) -> Value {
    json!([{"op": "replace", "path": path, "value": value}])
}

fn is_settled(object: &Value) -> bool {
    let (spec, status) = (&object["spec"], &object["status"]);
    status["observedGeneration"] == object["metadata"]["generation"]
        && status["replicas"] == spec["replicas"]
        && status["updatedReadyReplicas"] == spec["replicas"]
        && status["updateRevision"] == status["currentRevision"]
}

/// A SidecarSet for the pods of all workloads.
fn sidecar_set() -> Value {
    json!({
        "apiVersion": "tkex.tencent.com/v1alpha1",
        "kind": "SidecarSet",
        "metadata": {"name": CHECK},
        "spec": {
            // Workloads that are hot-patched wait with sidecars until their pods are replaced.
            "selector": {"matchExpressions": [
                {"key": "app", "operator": "Exists"},
                {"key": "hot", "operator": "DoesNotExist"},
            ]},
            "containers": [{"name": "log", "image": "log:v1"}],
            "updateStrategy": {"maxUnavailable": "20%"},
        },
    })
}
