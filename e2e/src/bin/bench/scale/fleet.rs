//! The fleets of pods that are measured at scale, and the patches that drive them through a phase.

use anyhow::Result;
use e2e::case::Case;
use e2e::workload::manifest::Game;
use e2e::workload::{GAME, SET};
use futures::{StreamExt, TryStreamExt, stream};
use serde_json::{Value, json};

use crate::pods::PodStates;

/// The number of pods per workload in a fleet of many workloads.
const FEW: usize = 10;
/// The number of concurrent patches by the benchmark.
const CONCURRENCY: usize = 16;

/// The workloads that own the pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fleet {
    /// One GameDeployment.
    Deployment,
    /// One GameStatefulSet: Parallel, with a claim per pod, which is deleted along with the pod.
    Set,
    /// GameDeployments of ten pods each.
    Many,
    /// One native Deployment.
    Native,
}

/// What is done to all pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// They are created.
    Create,
    /// They are updated in place.
    Update,
    /// They are hot-patched.
    HotPatch,
    /// They are deleted.
    Delete,
}

impl Phase {
    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Create => "created",
            Phase::Update => "updated in place",
            Phase::HotPatch => "hot-patched",
            Phase::Delete => "deleted",
        }
    }

    /// The image that pods have once this phase is complete.
    fn image(self) -> &'static str {
        match self {
            Phase::Create | Phase::Delete => "game:v1",
            Phase::Update => "game:v2",
            Phase::HotPatch => "game:v3",
        }
    }

    /// Whether exactly `done` of `all` pods have completed this phase.
    pub fn is_at(self, done: usize, all: usize, pods: &PodStates) -> bool {
        match self {
            Phase::Create => pods.ready(self.image()) == done,
            Phase::Update | Phase::HotPatch => {
                pods.ready(self.image()) == done && pods.len() == all
            }
            Phase::Delete => pods.len() == all - done,
        }
    }

    /// How many of `all` pods have completed this phase.
    pub fn progress(self, all: usize, pods: &PodStates) -> usize {
        match self {
            Phase::Delete => all.saturating_sub(pods.len()),
            _ => pods.ready(self.image()),
        }
    }
}

impl Fleet {
    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Fleet::Deployment => "GameDeployment",
            Fleet::Set => "GameStatefulSet, Parallel, with claims",
            Fleet::Many => "GameDeployments of 10",
            Fleet::Native => "native Deployment",
        }
    }

    /// Whether it is a single GameDeployment or GameStatefulSet.
    pub fn is_single_game_workload(self) -> bool {
        matches!(self, Fleet::Deployment | Fleet::Set)
    }

    /// Creates the workloads, without pods.
    pub async fn prepare(self, case: &mut Case, pods: usize) -> Result<()> {
        let game = Game::in_place(0).max_unavailable("10%");
        match self {
            Fleet::Deployment => case.apply(game).await?,
            Fleet::Set => {
                case.use_stateful_set();
                case.apply(stateful_set()).await?
            }
            Fleet::Many => {
                let games = (0..pods / FEW).map(|n| Value::from(game.clone().named(&numbered(n))));
                let games: Vec<Value> = games.collect();
                case.apply(json!({"apiVersion": "v1", "kind": "List", "items": games})).await?
            }
            Fleet::Native => case.apply(crate::subject::deployment()).await?,
        };
        Ok(())
    }

    /// Patches the workloads so that the phase advances from `from` to `to` of `all` pods.
    pub async fn start_step(
        self,
        case: &Case,
        phase: Phase,
        (from, to, all): (usize, usize, usize),
    ) -> Result<()> {
        let namespace = &case.namespace;
        let api = format!("/apis/tkex.tencent.com/v1alpha1/namespaces/{namespace}");
        if self == Fleet::Many {
            let operations = operations(phase, FEW, FEW);
            let operations = &operations;
            return stream::iter(from / FEW..to / FEW)
                .map(async |n| {
                    let path = format!("{api}/gamedeployments/{}", numbered(n));
                    case.plane().patch(&path, operations).await.map(|_| ())
                })
                .buffer_unordered(CONCURRENCY)
                .try_collect()
                .await;
        }
        let path = match self {
            Fleet::Set => format!("{api}/gamestatefulsets/{SET}"),
            Fleet::Native => format!("/apis/apps/v1/namespaces/{namespace}/deployments/game"),
            _ => format!("{api}/gamedeployments/{GAME}"),
        };
        let mut operations = operations(phase, to, all);
        if self.is_single_game_workload()
            && let Some(operations) = operations.as_array_mut()
        {
            // The previous step may have ended while the workload was paused.
            operations
                .push(json!({"op": "add", "path": "/spec/updateStrategy/paused", "value": false}));
        }
        case.plane().patch(&path, &operations).await?;
        Ok(())
    }
}

/// The name of a workload in a fleet of many.
fn numbered(n: usize) -> String {
    format!("few-{n:04}")
}

/// The patch that advances a phase to `to` of a workload's `all` pods.
fn operations(phase: Phase, to: usize, all: usize) -> Value {
    let set = |path: &str, value: Value| json!({"op": "add", "path": path, "value": value});
    let image = set("/spec/template/spec/containers/0/image", json!(phase.image()));
    let partition = set("/spec/updateStrategy/partition", json!(all - to));
    match phase {
        Phase::Create => json!([set("/spec/replicas", json!(to))]),
        Phase::Update => json!([image, partition]),
        Phase::HotPatch => {
            let type_ = set("/spec/updateStrategy/type", json!("HotPatchUpdate"));
            json!([type_, image, partition])
        }
        Phase::Delete => json!([set("/spec/replicas", json!(all - to))]),
    }
}

/// A GameStatefulSet whose claims stay unbound and whose pods run without volumes, because binding volumes would be
/// the work of other controllers. A claim that names a missing volume waits silently.
fn stateful_set() -> Game {
    let claim = json!([{
        "metadata": {"name": "data"},
        "spec": {
            "storageClassName": "none", "volumeName": "none", "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }]);
    Game::parallel(0)
        .updated_by("InplaceUpdate")
        .max_unavailable("10%")
        .set("/spec/volumeClaimTemplates", claim)
        .set("/spec/template/spec/nodeName", "node-0")
        .set(
            "/spec/persistentVolumeClaimRetentionPolicy",
            json!({"whenDeleted": "Delete", "whenScaled": "Delete"}),
        )
}
