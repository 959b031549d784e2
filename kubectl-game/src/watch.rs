//! A scene that changes before one's eyes: watches of the workload and of what belongs to it.
//!
//! A watch that hears nothing may be quiet or cut off, so the server is asked now and then whether it is
//! still there. When it is not, or when a watch breaks, all of them begin again, and their first lists show
//! that the connection is back.

use std::time::Duration;

use futures::stream::{self, BoxStream, select_all};
use futures::{StreamExt, TryStreamExt};
use gamekeeper_core::api::HookRun;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::Pod;
use kube::core::DynamicObject;
use kube::runtime::reflector::Store;
use kube::runtime::reflector::store::Writer;
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt, reflector, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::cluster::{Cluster, read, resource};
use crate::error::Error;
use crate::game::Game;
use crate::scene::Scene;

/// What happens within this time is seen together.
const TOGETHER: Duration = Duration::from_millis(100);
/// How long nobody asks whether the server is there.
const PULSE: Duration = Duration::from_secs(5);
/// How long it may take to answer that.
const ANSWER: Duration = Duration::from_secs(10);
/// How long there is between two tries to begin again.
const RETRY: Duration = Duration::from_secs(1);
/// Seconds after which each watch is renewed, so that none is cut off for long unseen.
const RENEWED: u32 = 30;

/// What is there to see.
pub enum Sight {
    /// A scene that may differ from the one before. The connection is there.
    Scene(Box<Scene>),
    /// The connection is lost.
    Lost(Loss),
    /// The workload is gone.
    Gone,
}

/// A connection that is lost.
#[derive(Clone, Debug)]
pub struct Loss {
    /// When something was heard last.
    pub since: Timestamp,
    /// What went wrong then.
    pub why: String,
}

/// Watches of one workload.
pub struct SceneWatch {
    cluster: Cluster,
    game: Game,
    mirrors: Mirrors,
    /// Watches that have no first list yet.
    missing: usize,
    /// When what happened is looked at. It stays when nobody waits for a look any more.
    until: Option<Instant>,
    /// Whether the server is there, each time that it was asked.
    pulse: BoxStream<'static, Result<(), Error>>,
    /// When something was heard last.
    heard: Timestamp,
    /// How it stands with the connection.
    connection: Connection,
    /// When the watches begin again; they are not listened to until then.
    again: Option<Instant>,
}

/// How it stands with a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Connection {
    Whole,
    /// A watch broke. Once is nothing to speak of: servers end them as they like.
    Broken,
    Lost,
}

impl SceneWatch {
    /// Begins to watch.
    pub fn new(cluster: &Cluster, game: &Game) -> Self {
        SceneWatch {
            cluster: cluster.clone(),
            game: game.clone(),
            mirrors: Mirrors::new(cluster, game),
            missing: Mirrors::COUNT,
            until: None,
            pulse: pulse(cluster, game),
            heard: Timestamp::now(),
            connection: Connection::Whole,
            again: None,
        }
    }

    /// The next thing to see. To cut this short loses nothing.
    pub async fn next(&mut self) -> Result<Sight, Error> {
        loop {
            let until = self.until.filter(|_| self.missing == 0);
            let again = self.again;
            let failed = tokio::select! {
                event = self.mirrors.events.try_next(), if again.is_none() => match event {
                    Ok(Some(is_first)) => {
                        self.hear(is_first);
                        continue;
                    }
                    Ok(None) => return Ok(Sight::Gone),
                    Err(error) => self.breaks(error.into())?,
                },
                Some(answer) = self.pulse.next() => match answer {
                    Ok(()) => {
                        self.heard = Timestamp::now();
                        continue;
                    }
                    Err(error) => self.is_lost(error)?,
                },
                () = at(again) => {
                    self.begin_anew();
                    continue;
                }
                () = at(until) => {
                    self.until = None;
                    self.connection = Connection::Whole;
                    return self.sight();
                }
            };
            if let Some(loss) = failed {
                return Ok(Sight::Lost(loss));
            }
        }
    }

    fn hear(&mut self, is_first: bool) {
        self.heard = Timestamp::now();
        self.missing = self.missing.saturating_sub(usize::from(is_first));
        self.until.get_or_insert_with(|| Instant::now() + TOGETHER);
    }

    /// A watch broke: says so if it could not be fixed at once.
    fn breaks(&mut self, error: Error) -> Result<Option<Loss>, Error> {
        match self.connection {
            // A watch that has fallen behind lists again by itself.
            _ if error.is_expired() => Ok(None),
            Connection::Whole if !error.is_final() => {
                self.connection = Connection::Broken;
                self.begin_anew();
                Ok(None)
            }
            _ => self.is_lost(error),
        }
    }

    /// Says so, once. Nothing fixes a refusal.
    fn is_lost(&mut self, error: Error) -> Result<Option<Loss>, Error> {
        if error.is_final() {
            return Err(error);
        }
        self.again.get_or_insert_with(|| Instant::now() + RETRY);
        let is_known = self.connection == Connection::Lost;
        self.connection = Connection::Lost;
        Ok((!is_known).then(|| Loss {
            since: self.heard,
            why: error.to_string(),
        }))
    }

    fn begin_anew(&mut self) {
        self.again = None;
        self.until = None;
        self.missing = Mirrors::COUNT;
        self.mirrors = Mirrors::new(&self.cluster, &self.game);
    }

    fn sight(&self) -> Result<Sight, Error> {
        let games = self.mirrors.games.state();
        let Some(object) = games.first() else {
            return Ok(Sight::Gone);
        };
        Ok(Sight::Scene(Box::new(Scene::new(
            read(self.game.kind, DynamicObject::clone(object))?,
            copied(&self.mirrors.pods),
            copied(&self.mirrors.runs),
            copied(&self.mirrors.revisions),
        ))))
    }
}

async fn at(when: Option<Instant>) {
    match when {
        Some(when) => sleep_until(when).await,
        None => std::future::pending().await,
    }
}

/// Asks for the workload now and then.
fn pulse(cluster: &Cluster, game: &Game) -> BoxStream<'static, Result<(), Error>> {
    let workloads = cluster.workloads(game.kind, false);
    let beat = move |name: String| {
        let workloads = workloads.clone();
        async move {
            sleep(PULSE).await;
            let answer = match timeout(ANSWER, workloads.get_metadata_opt(&name)).await {
                Ok(answer) => answer.map(drop).map_err(Error::from),
                Err(_) => Err(Error::no_answer(ANSWER)),
            };
            Some((answer, name))
        }
    };
    stream::unfold(game.name.clone(), beat).boxed()
}

/// What the watches have heard.
struct Mirrors {
    games: Store<DynamicObject>,
    pods: Store<Pod>,
    runs: Store<HookRun>,
    revisions: Store<ControllerRevision>,
    /// Yields true when one of the watches has its first list.
    events: BoxStream<'static, Result<bool, watcher::Error>>,
}

impl Mirrors {
    /// How many watches there are.
    const COUNT: usize = 4;

    fn new(cluster: &Cluster, game: &Game) -> Self {
        let all = watcher::Config::default().timeout(RENEWED);
        let name = format!("metadata.name={}", game.name);
        let writer = Writer::new(resource(game.kind));
        let workloads = cluster.workloads(game.kind, false);
        let (games, of_games) = mirror(workloads, all.clone().fields(&name), writer);
        let selected = |selector: &str| all.clone().labels(selector);
        let (pods, of_pods) = mirror(cluster.api(), selected(&game.selector), Writer::default());
        let runs = selected(game.kind.type_label());
        let (runs, of_runs) = mirror(cluster.api(), runs, Writer::default());
        let revisions = selected(&game.revision_selector);
        let (revisions, of_revisions) = mirror(cluster.api(), revisions, Writer::default());
        Mirrors {
            games,
            pods,
            runs,
            revisions,
            events: select_all([of_games, of_pods, of_runs, of_revisions]).boxed(),
        }
    }
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

#[cfg(test)]
mod tests {
    use kube::core::Status;
    use kube::{Client, Config};

    use super::*;
    use crate::fixture::paused_canary;

    type Events = Vec<Result<bool, watcher::Error>>;

    /// A watch of a server that is not there, which hears this first, and has its lists.
    fn watch(events: Events, pulse: Vec<Result<(), Error>>) -> SceneWatch {
        let nowhere = Config::new("http://127.0.0.1:1".parse().expect("a URI"));
        let client = Client::try_from(nowhere).expect("a client");
        let cluster = Cluster::of(client, "prod");
        let mut watch = SceneWatch::new(&cluster, &paused_canary().game);
        watch.mirrors.events = stream::iter(events).chain(stream::pending()).boxed();
        watch.missing = 0;
        watch.pulse = stream::iter(pulse).chain(stream::pending()).boxed();
        watch
    }

    fn broken(code: u16) -> watcher::Error {
        let status = Status::failure("etcd has no leader", "").with_code(code);
        watcher::Error::WatchError(status.boxed())
    }

    fn told(sight: Result<Sight, Error>) -> String {
        match sight {
            Ok(Sight::Scene(_)) => "a scene".to_owned(),
            Ok(Sight::Lost(loss)) => format!("lost: {}", loss.why),
            // Nothing was ever mirrored.
            Ok(Sight::Gone) => "gone".to_owned(),
            Err(error) => format!("error: {error}"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_is_seen_by_the_next_look_when_the_first_was_cut_short() {
        let mut watch = watch(vec![Ok(false)], Vec::new());
        let cut_short = timeout(TOGETHER / 2, watch.next()).await;
        assert!(cut_short.is_err());
        let seen = timeout(10 * TOGETHER, watch.next()).await;
        assert_eq!(told(seen.expect("a look")), "gone");
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_gives_no_answer_is_lost_and_told_once() {
        let no_answer = || Err(Error::no_answer(ANSWER));
        let mut watch = watch(Vec::new(), vec![no_answer(), no_answer()]);
        let sight = told(watch.next().await);
        assert_eq!(
            sight,
            "lost: cannot reach the cluster: no response within 10s"
        );
        let again = timeout(3 * RETRY, watch.next()).await;
        assert!(again.is_err(), "{}", told(again.expect("something")));
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_lost_is_seen_again_when_all_lists_are_there() {
        let mut watch = watch(Vec::new(), vec![Err(Error::no_answer(ANSWER))]);
        assert!(matches!(watch.next().await, Ok(Sight::Lost(_))));
        watch.begin_anew();
        let lists = (0..Mirrors::COUNT).map(|_| Ok(true));
        watch.mirrors.events = stream::iter(lists).chain(stream::pending()).boxed();
        assert_eq!(told(watch.next().await), "gone");
        assert_eq!(watch.connection, Connection::Whole);
    }

    #[tokio::test]
    async fn a_watch_that_breaks_and_cannot_begin_anew_is_lost() {
        let mut watch = watch(vec![Err(broken(500))], Vec::new());
        let sight = told(watch.next().await);
        assert!(
            sight.starts_with("lost: cannot reach the cluster: "),
            "{sight}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_has_fallen_behind_is_not_lost_and_a_refusal_is_an_end() {
        let mut watch = watch(vec![Err(broken(410)), Err(broken(403))], Vec::new());
        let end = told(watch.next().await);
        assert_eq!(end, "error: Error from server: etcd has no leader");
    }
}
