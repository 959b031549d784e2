//! The fleet: all workloads, SidecarSets and Clusters that the visitor may list.

use futures::FutureExt;
use gamekeeper_core::api::names::WorkloadKind;
use gamekeeper_core::api::{Cluster as Lifecycle, HookRun, SidecarSet};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use kube::api::ListParams;
use kube::core::{ApiResource, DynamicObject};
use kube::runtime::reflector::Store;
use kube::runtime::reflector::store::Writer;
use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::delta::Snapshot;
use super::events::latest;
use super::head::{seconds, tone_name, verdict_fields};
use crate::cluster::{Cluster, resource};
use crate::error::Error;
use crate::kind::{CLUSTER_KINDS, SIDECAR_SET_KINDS};
use crate::lifecycle;
use crate::scene::Scene;
use crate::sidecar_set::{self, Set};
use crate::verdict::{End, judge};
use crate::view::guard::Guard;
use crate::view::list::step;
use crate::watch::{Events, Probe, Watched, config, copied, reflect};

/// What is watched of the fleet.
pub struct WatchedFleet {
    cluster: Cluster,
    lists: Lists,
    workloads: Vec<(WorkloadKind, Store<DynamicObject>)>,
    runs: Option<Store<HookRun>>,
    sets: Option<Store<DynamicObject>>,
    clusters: Option<Store<Lifecycle>>,
    ended: Option<Store<Event>>,
}

/// What the visitor may list and the cluster serves.
#[derive(Clone, Debug, Default)]
struct Lists {
    everywhere: bool,
    kinds: Vec<WorkloadKind>,
    runs: bool,
    sets: bool,
    clusters: bool,
    events: bool,
}

/// The fleet at one moment.
pub struct Fleet {
    namespace: Option<String>,
    may_list_runs: bool,
    scenes: Vec<Scene>,
    /// Workloads that this version cannot read, with the reason.
    unreadable: Vec<(WorkloadKind, DynamicObject, String)>,
    sets: Vec<Set>,
    clusters: Vec<Lifecycle>,
    /// Events of matches that were ended in spite of the guard.
    ended: Vec<Event>,
}

impl WatchedFleet {
    /// Finds out what the visitor may list: all namespaces, or else the one of the context. With `only_namespace`,
    /// nothing else is tried.
    pub async fn find(cluster: &Cluster, only_namespace: bool) -> Result<Self, Error> {
        let mut lists = Lists::default();
        if !only_namespace {
            lists = Lists::of_workloads(cluster, true).await?;
        }
        if lists.kinds.is_empty() {
            lists = Lists::of_workloads(cluster, false).await?;
        }
        if lists.kinds.is_empty() {
            // The refusal, or that the kinds are not served.
            cluster.list(false).await?;
        }
        let runs: Api<HookRun> = cluster.scoped(lists.everywhere);
        lists.runs = may_list(cluster, &runs).await?;
        lists.sets = may_list(cluster, &cluster.sidecar_sets()).await?;
        lists.clusters = may_list(cluster, &cluster.lifecycles()).await?;
        lists.events = may_list(cluster, &cluster.scoped::<Event>(lists.everywhere)).await?;
        Ok(WatchedFleet {
            cluster: cluster.clone(),
            lists,
            workloads: Vec::new(),
            runs: None,
            sets: None,
            clusters: None,
            ended: None,
        })
    }
}

impl Lists {
    async fn of_workloads(cluster: &Cluster, everywhere: bool) -> Result<Self, Error> {
        let mut lists = Lists { everywhere, ..Lists::default() };
        for kind in WorkloadKind::ALL {
            if may_list(cluster, &cluster.workloads(kind, everywhere)).await? {
                lists.kinds.push(kind);
            }
        }
        Ok(lists)
    }
}

/// Whether the visitor may list these objects, and the cluster serves them.
pub async fn may_list<K>(cluster: &Cluster, api: &Api<K>) -> Result<bool, Error>
where
    K: Clone + DeserializeOwned + std::fmt::Debug,
{
    let one = ListParams::default().limit(1).match_any();
    match cluster.send(async || api.list_metadata(&one).await).await {
        Ok(_) => Ok(true),
        Err(error) if error.is_forbidden() || error.is_404() => Ok(false),
        Err(error) => Err(error),
    }
}

impl Watched for WatchedFleet {
    type State = Fleet;

    fn start(&mut self) -> Vec<Events> {
        let (cluster, lists) = (&self.cluster, &self.lists);
        let mut all = Vec::new();
        self.workloads.clear();
        for kind in &lists.kinds {
            let api = cluster.workloads(*kind, lists.everywhere);
            let (store, events) = reflect(api, config(), Writer::new(resource(*kind)));
            self.workloads.push((*kind, store));
            all.push(events);
        }
        if lists.runs {
            let api = cluster.scoped(lists.everywhere);
            let (store, events) = reflect(api, config(), Writer::default());
            self.runs = Some(store);
            all.push(events);
        }
        if lists.sets {
            let writer = Writer::new(ApiResource::erase::<SidecarSet>(&()));
            let (store, events) = reflect(cluster.sidecar_sets(), config(), writer);
            self.sets = Some(store);
            all.push(events);
        }
        if lists.clusters {
            let (store, events) = reflect(cluster.lifecycles(), config(), Writer::default());
            self.clusters = Some(store);
            all.push(events);
        }
        if lists.events {
            let ended = config().fields("reason=MatchEnded");
            let (store, events) =
                reflect(cluster.scoped(lists.everywhere), ended, Writer::default());
            self.ended = Some(store);
            all.push(events);
        }
        all
    }

    fn probe(&self) -> Probe {
        let kind = self.lists.kinds.first().copied().unwrap_or(WorkloadKind::GameDeployment);
        let api = self.cluster.workloads(kind, self.lists.everywhere);
        Box::new(move || {
            let api = api.clone();
            let one = ListParams::default().limit(1).match_any();
            async move { Ok(api.list_metadata(&one).await.map(drop)?) }.boxed()
        })
    }

    fn state(&self) -> Result<Option<Fleet>, Error> {
        let mut games = Vec::new();
        let mut unreadable = Vec::new();
        for (kind, store) in &self.workloads {
            for object in store.state() {
                let object = DynamicObject::clone(&object);
                match self.cluster.read(*kind, object.clone()) {
                    Ok(game) => games.push(game),
                    Err(error) => unreadable.push((*kind, object, error.to_string())),
                }
            }
        }
        let runs = self.runs.as_ref().map(copied).unwrap_or_default();
        let (scenes, _) = Scene::group_runs(games, runs);
        let sets = self.sets.iter().flat_map(Store::state);
        let sets = sets.filter_map(|set| Set::read(DynamicObject::clone(&set)).ok());
        Ok(Some(Fleet {
            namespace: (!self.lists.everywhere).then(|| self.cluster.namespace.clone()),
            may_list_runs: self.lists.runs,
            scenes,
            unreadable,
            sets: sets.collect(),
            clusters: self.clusters.as_ref().map(copied).unwrap_or_default(),
            ended: self.ended.as_ref().map(copied).unwrap_or_default(),
        }))
    }
}

/// The fleet as the page shows it.
pub fn show(fleet: &Fleet, now: Timestamp) -> Snapshot {
    let mut snapshot = Snapshot::default();
    let note = (!fleet.may_list_runs).then_some(
        "you may not list HookRuns: a workload that waits for a hook is shown as Updating",
    );
    let scope = json!({"namespace": fleet.namespace, "note": note});
    snapshot.parts.insert("scope", scope);
    snapshot.parts.insert("ended", latest(&fleet.ended));
    for scene in &fleet.scenes {
        snapshot.rows.push((scene.game.uid.clone(), workload_row(scene, now)));
    }
    for (kind, object, why) in &fleet.unreadable {
        let row = json!({
            "kind": kind.short(), "namespace": object.namespace(), "name": object.name_any(),
            "order": rank(End::Stopped, "Blocked"), "word": "Unreadable", "tone": "bad",
            "sentence": why, "created": seconds(object.metadata.creation_timestamp.as_ref()),
        });
        snapshot.rows.push((object.uid().unwrap_or_default(), row));
    }
    for set in &fleet.sets {
        snapshot.rows.push((set.typed.uid().unwrap_or_default(), set_row(set)));
    }
    for cluster in &fleet.clusters {
        snapshot.rows.push((cluster.uid().unwrap_or_default(), cluster_row(cluster)));
    }
    snapshot
}

/// What needs a person comes first, then what waits with a limit, then what makes progress, then what is complete.
fn rank(end: End, word: &str) -> u8 {
    match (end, word) {
        (End::Stopped, "Blocked") => 0,
        (End::Stopped, _) => 1,
        (End::InProgress, "Waiting" | "Paused") => 2,
        (End::InProgress, _) => 3,
        (End::Done, _) => 4,
    }
}

fn workload_row(scene: &Scene, now: Timestamp) -> Value {
    let (game, verdict) = (&scene.game, judge(scene, now));
    let status = &game.status;
    let guard = Guard::of(game);
    let mut row = verdict_fields(&verdict);
    row.extend([
        ("kind", json!(game.kind.short())),
        ("namespace", json!(game.namespace)),
        ("name", json!(game.name)),
        ("order", json!(rank(verdict.end, verdict.word))),
        ("step", json!(step(game))),
        ("desired", json!(game.replicas)),
        ("updated", json!(status.updated_replicas)),
        ("ready", json!(status.ready_replicas)),
        ("guarded", json!(guard.as_ref().map(Guard::word))),
        ("waiting", json!(guard.as_ref().map(Guard::waiting))),
        ("created", json!(seconds(game.created.as_ref()))),
    ]);
    row.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

fn set_row(set: &Set) -> Value {
    let (verdict, status) = (sidecar_set::judge(set), set.status());
    let conditions = status.conditions.iter().map(|it| {
        json!({
            "type": it.type_, "status": it.status, "reason": it.reason, "message": it.message,
            "since": it.last_transition_time.0.as_second(),
        })
    });
    let mut row = verdict_fields(&verdict);
    row.extend([
        ("kind", json!(SIDECAR_SET_KINDS[0])),
        ("name", json!(set.name())),
        ("order", json!(rank(verdict.end, verdict.word))),
        ("desired", json!(status.matched_pods)),
        ("updated", json!(status.updated_pods)),
        ("ready", json!(status.updated_ready_pods)),
        ("conditions", conditions.collect()),
        ("created", json!(seconds(set.created()))),
    ]);
    row.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

fn cluster_row(cluster: &Lifecycle) -> Value {
    let outline = lifecycle::outline(cluster);
    let status = cluster.status.clone().unwrap_or_default();
    let conditions = lifecycle::conditions(cluster).map(|it| {
        json!({
            "type": it.type_, "status": it.status, "reason": it.reason, "message": it.message,
            "since": it.last_transition_time.0.as_second(),
        })
    });
    json!({
        "kind": CLUSTER_KINDS[0], "name": cluster.name_any(),
        "order": rank(outline.end, ""),
        "word": outline.word, "tone": tone_name(outline.tone), "sentence": outline.sentence,
        "stopped": outline.end == End::Stopped,
        "since": lifecycle::since(cluster).map(Timestamp::as_second),
        "desired": status.nodes, "ready": status.installed_nodes,
        "conditions": conditions.collect::<Vec<_>>(),
        "created": seconds(cluster.meta().creation_timestamp.as_ref()),
    })
}
