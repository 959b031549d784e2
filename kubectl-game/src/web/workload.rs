//! The page of one workload.

use gamekeeper_core::api::names::CHANGE_CAUSE;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use kube::ResourceExt;
use kube::runtime::reflector::Store;
use kube::runtime::reflector::store::Writer;
use serde_json::{Value, json};

use super::act;
use super::delta::Snapshot;
use super::events::latest;
use super::fleet::may_list;
use super::head::{causes, head, seconds, steps};
use super::pods;
use super::rights::Rights;
use super::runs::runs;
use crate::cluster::Cluster;
use crate::error::Error;
use crate::game::Game;
use crate::scene::Scene;
use crate::verdict::judge;
use crate::view::history;
use crate::watch::{Events, Probe, Watched, WatchedScene, config, copied, reflect};

/// A workload with its events.
pub struct WatchedWorkload {
    cluster: Cluster,
    scene: WatchedScene,
    uid: String,
    events: Option<Store<Event>>,
}

/// A workload with its events at one moment.
pub struct State {
    scene: Scene,
    events: Vec<Event>,
}

impl WatchedWorkload {
    pub async fn find(cluster: &Cluster, game: &Game) -> Result<Self, Error> {
        let may_list_events = may_list(cluster, &cluster.api::<Event>()).await?;
        Ok(WatchedWorkload {
            cluster: cluster.clone(),
            scene: WatchedScene::new(cluster, game),
            uid: game.uid.clone(),
            events: may_list_events.then(|| Writer::default().as_reader()),
        })
    }
}

impl Watched for WatchedWorkload {
    type State = State;

    fn start(&mut self) -> Vec<Events> {
        let mut all = self.scene.start();
        if self.events.is_some() {
            let about = config().fields(&format!("involvedObject.uid={}", self.uid));
            let (store, events) = reflect(self.cluster.api(), about, Writer::default());
            self.events = Some(store);
            all.push(events);
        }
        all
    }

    fn probe(&self) -> Probe {
        self.scene.probe()
    }

    fn state(&self) -> Result<Option<State>, Error> {
        let events = self.events.as_ref().map(copied).unwrap_or_default();
        Ok(self.scene.state()?.map(|scene| State { scene, events }))
    }
}

/// The workload as the page shows it.
pub fn show(state: &State, rights: Rights, now: Timestamp) -> Snapshot {
    let scene = &state.scene;
    let verdict = judge(scene, now);
    let mut snapshot = Snapshot { rows: pods::rows(scene), ..Snapshot::default() };
    for (name, part) in [
        ("head", head(scene, &verdict)),
        ("causes", causes(&verdict)),
        ("steps", steps(&scene.game)),
        ("revisions", revisions(scene)),
        ("runs", runs(scene)),
        ("events", latest(&state.events)),
        ("actions", act::offered(scene, rights)),
        ("may", json!({"workload": rights.workload, "pods": rights.pods})),
    ] {
        snapshot.parts.insert(name, part);
    }
    snapshot
}

/// The revisions that have a role or pods, and those that can be restored, newest first.
fn revisions(scene: &Scene) -> Value {
    let revision = |revision: &k8s_openapi::api::apps::v1::ControllerRevision| {
        let name = revision.name_any();
        json!({
            "name": name, "number": revision.revision, "role": scene.role(&name),
            "images": history::images(revision),
            "cause": revision.annotations().get(CHANGE_CAUSE),
            "created": seconds(revision.creation_timestamp().as_ref()),
        })
    };
    scene.revisions.iter().map(revision).collect()
}
