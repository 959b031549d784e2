//! A scene that changes before one's eyes: watches of the workload and of what belongs to it.

use std::pin::Pin;
use std::time::Duration;

use futures::stream::{BoxStream, select_all};
use futures::{Stream, StreamExt, TryStreamExt};
use gamekeeper::api::HookRun;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::Pod;
use kube::core::DynamicObject;
use kube::runtime::reflector::Store;
use kube::runtime::reflector::store::Writer;
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt, reflector, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep_until};

use crate::cluster::{Cluster, read, resource};
use crate::error::Error;
use crate::game::Game;
use crate::scene::Scene;

/// What happens within this time is seen together.
const TOGETHER: Duration = Duration::from_millis(100);

/// Watches of one workload.
pub struct SceneWatch {
    kind: gamekeeper::api::names::WorkloadKind,
    games: Store<DynamicObject>,
    pods: Store<Pod>,
    runs: Store<HookRun>,
    revisions: Store<ControllerRevision>,
    /// Yields true when one of the watches has its first list.
    events: Pin<Box<dyn Stream<Item = Result<bool, watcher::Error>> + Send>>,
    /// Watches that have no first list yet.
    missing: usize,
}

impl SceneWatch {
    /// Begins to watch.
    pub fn new(cluster: &Cluster, game: &Game) -> Self {
        let all = watcher::Config::default();
        let name = format!("metadata.name={}", game.name);
        let resource = resource(game.kind);
        let writer = Writer::new(resource);
        let workloads = cluster.workloads(game.kind, false);
        let (games, of_games) = mirror(workloads, all.clone().fields(&name), writer);
        let selected = |selector: &str| all.clone().labels(selector);
        let (pods, of_pods) = mirror(cluster.api(), selected(&game.selector), Writer::default());
        let runs = selected(game.kind.type_label());
        let (runs, of_runs) = mirror(cluster.api(), runs, Writer::default());
        let revisions = selected(&game.revision_selector);
        let (revisions, of_revisions) = mirror(cluster.api(), revisions, Writer::default());
        SceneWatch {
            kind: game.kind,
            games,
            pods,
            runs,
            revisions,
            events: Box::pin(select_all([of_games, of_pods, of_runs, of_revisions])),
            missing: 4,
        }
    }

    /// The next scene that may differ from the one before; None when the workload is gone.
    pub async fn next(&mut self) -> Result<Option<Scene>, Error> {
        let mut until: Option<Instant> = None;
        loop {
            let pause = async {
                match until.filter(|_| self.missing == 0) {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                event = self.events.try_next() => match event {
                    Ok(Some(is_first)) => {
                        self.missing = self.missing.saturating_sub(usize::from(is_first));
                        until.get_or_insert_with(|| Instant::now() + TOGETHER);
                    }
                    Ok(None) => return Ok(None),
                    Err(error) => give_up_for_good(error.into())?,
                },
                () = pause => return self.scene(),
            }
        }
    }

    fn scene(&self) -> Result<Option<Scene>, Error> {
        let Some(object) = self
            .games
            .state()
            .first()
            .map(|it| DynamicObject::clone(it))
        else {
            return Ok(None);
        };
        Ok(Some(Scene::new(
            read(self.kind, object)?,
            copied(&self.pods),
            copied(&self.runs),
            copied(&self.revisions),
        )))
    }
}

/// A watch goes on by itself after a network error; not after a refusal.
fn give_up_for_good(error: Error) -> Result<(), Error> {
    if error.is_final() { Err(error) } else { Ok(()) }
}

fn copied<K: Resource<DynamicType = ()> + Clone + 'static>(store: &Store<K>) -> Vec<K> {
    store
        .state()
        .iter()
        .map(|object| K::clone(object))
        .collect()
}

type Firsts = BoxStream<'static, Result<bool, watcher::Error>>;

fn mirror<K>(api: Api<K>, config: watcher::Config, writer: Writer<K>) -> (Store<K>, Firsts)
where
    K: Resource + Clone + DeserializeOwned + std::fmt::Debug + Send + Sync + 'static,
    K::DynamicType: Eq + std::hash::Hash + Clone + Send + Sync,
{
    let store = writer.as_reader();
    let events = reflector(writer, watcher(api, config).default_backoff());
    let events = events.map_ok(|event| matches!(event, Event::InitDone));
    (store, events.boxed())
}
