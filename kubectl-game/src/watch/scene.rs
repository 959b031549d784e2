//! The watches of one workload and of the objects that belong to it.

use futures::FutureExt;
use gamekeeper_core::api::HookRun;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::Pod;
use kube::core::DynamicObject;
use kube::runtime::reflector::Store;
use kube::runtime::reflector::store::Writer;

use super::{Events, Probe, Watch, Watched, config, copied, reflect};
use crate::cluster::{Cluster, resource};
use crate::error::Error;
use crate::game::Game;
use crate::scene::Scene;

/// Watches of one workload.
pub type SceneWatch = Watch<WatchedScene>;

impl SceneWatch {
    pub fn new(cluster: &Cluster, game: &Game) -> Self {
        Watch::start(WatchedScene::new(cluster, game))
    }
}

/// One workload, and the objects that belong to it.
pub struct WatchedScene {
    cluster: Cluster,
    game: Game,
    workload: Store<DynamicObject>,
    pods: Store<Pod>,
    runs: Store<HookRun>,
    revisions: Store<ControllerRevision>,
}

impl WatchedScene {
    /// The number of watches.
    #[cfg(test)]
    pub const COUNT: usize = 4;

    pub fn new(cluster: &Cluster, game: &Game) -> Self {
        WatchedScene {
            cluster: cluster.clone(),
            game: game.clone(),
            workload: Writer::new(resource(game.kind)).as_reader(),
            pods: Writer::default().as_reader(),
            runs: Writer::default().as_reader(),
            revisions: Writer::default().as_reader(),
        }
    }
}

impl Watched for WatchedScene {
    type State = Scene;

    fn start(&mut self) -> Vec<Events> {
        let (cluster, game) = (&self.cluster, &self.game);
        let name = format!("metadata.name={}", game.name);
        let writer = Writer::new(resource(game.kind));
        let workloads = cluster.workloads(game.kind, false);
        let (workload, workload_events) = reflect(workloads, config().fields(&name), writer);
        let selected = |selector: &str| config().labels(selector);
        let (pods, pod_events) =
            reflect(cluster.api(), selected(&game.selector), Writer::default());
        let runs = selected(game.kind.type_label());
        let (runs, run_events) = reflect(cluster.api(), runs, Writer::default());
        let revisions = selected(&game.revision_selector);
        let (revisions, revision_events) = reflect(cluster.api(), revisions, Writer::default());
        (self.workload, self.pods, self.runs, self.revisions) = (workload, pods, runs, revisions);
        vec![workload_events, pod_events, run_events, revision_events]
    }

    fn probe(&self) -> Probe {
        let workloads = self.cluster.workloads(self.game.kind, false);
        let name = self.game.name.clone();
        Box::new(move || {
            let (workloads, name) = (workloads.clone(), name.clone());
            async move { Ok(workloads.get_metadata_opt(&name).await.map(drop)?) }.boxed()
        })
    }

    fn state(&self) -> Result<Option<Scene>, Error> {
        let workloads = self.workload.state();
        let Some(object) = workloads.first() else {
            return Ok(None);
        };
        Ok(Some(Scene::new(
            self.cluster.read(self.game.kind, DynamicObject::clone(object))?,
            copied(&self.pods),
            copied(&self.runs),
            copied(&self.revisions),
        )))
    }
}
