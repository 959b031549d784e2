//! Watches of objects, with what is known of the connection.
//!
//! A watch without events may be idle or cut off, so the server is probed at intervals. When a probe or a
//! watch fails, all watches start again, and their first lists show that the connection is restored.

mod scene;

use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::{self, BoxStream, select_all};
use futures::{Stream, StreamExt, TryStreamExt};
use jiff::Timestamp;
use kube::runtime::reflector::Store;
use kube::runtime::reflector::store::Writer;
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt, reflector, watcher};
use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::error::Error;

pub use scene::{SceneWatch, WatchedScene};

/// Events within this time cause one update.
const DEBOUNCE: Duration = Duration::from_millis(100);
/// The time between two probes of the server.
const PROBE_INTERVAL: Duration = Duration::from_secs(5);
/// The timeout of a probe.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);
/// The time between two attempts to reconnect.
const RECONNECT_DELAY: Duration = Duration::from_secs(1);
/// Seconds after which a watch is renewed, so that a broken one is noticed.
const WATCH_SECONDS: u32 = 30;

/// Objects that are watched together.
pub trait Watched {
    /// What the watches have observed, as one value.
    type State;

    /// Starts one watch for each kind of object, and restarts them after the connection was lost.
    fn start(&mut self) -> Vec<Events>;

    /// A small read that shows whether the server responds.
    fn probe(&self) -> Probe;

    /// The observed state; None if what is watched was deleted.
    fn state(&self) -> Result<Option<Self::State>, Error>;
}

/// Sends a request that probes the server.
pub type Probe = Box<dyn Fn() -> BoxFuture<'static, Result<(), Error>> + Send + Sync>;

/// What a [`Watch`] reports.
pub enum Update<T> {
    /// A state that may differ from the previous one. The connection works.
    State(Box<T>),
    Disconnected(Outage),
    /// What is watched was deleted.
    Deleted,
}

#[derive(Clone, Debug)]
pub struct Outage {
    /// When the last event, or the last response to a probe, arrived.
    pub since: Timestamp,
    /// The error that followed.
    pub why: String,
}

/// Watches of some objects, with the state of the connection.
pub struct Watch<W> {
    watched: W,
    /// The events of all watches.
    events: Events,
    /// Number of watches that have not received their first list yet.
    missing: usize,
    /// When the pending update is reported. It stays set if the caller stops waiting.
    update_at: Option<Instant>,
    /// The results of the probes.
    probes: BoxStream<'static, Result<(), Error>>,
    /// When the last event, or the last response to a probe, arrived.
    last_contact: Timestamp,
    connection: Connection,
    /// When the watches start again; until then their events are ignored.
    reconnect_at: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Connection {
    Healthy,
    /// A watch failed. A single failure is not reported: servers end watches at will.
    Broken,
    Lost,
}

impl<W: Watched> Watch<W> {
    /// Starts the watches.
    pub fn start(watched: W) -> Self {
        let mut watch = Watch {
            probes: probes(&watched),
            watched,
            events: stream::pending().boxed(),
            missing: 0,
            update_at: None,
            last_contact: Timestamp::now(),
            connection: Connection::Healthy,
            reconnect_at: None,
        };
        watch.reconnect();
        watch
    }

    /// The next update. Cancel-safe: a pending update is reported by the next call.
    pub async fn next(&mut self) -> Result<Update<W::State>, Error> {
        loop {
            let update_at = self.update_at.filter(|_| self.missing == 0);
            let reconnect_at = self.reconnect_at;
            let outage = tokio::select! {
                event = self.events.try_next(), if reconnect_at.is_none() => match event {
                    Ok(Some(is_first_list)) => {
                        self.on_event(is_first_list);
                        continue;
                    }
                    Ok(None) => return Ok(Update::Deleted),
                    Err(error) => self.on_watch_error(error.into())?,
                },
                Some(probed) = self.probes.next() => match probed {
                    Ok(()) => {
                        self.last_contact = Timestamp::now();
                        continue;
                    }
                    Err(error) => self.disconnect(error)?,
                },
                () = until(reconnect_at) => {
                    self.reconnect();
                    continue;
                }
                () = until(update_at) => {
                    self.update_at = None;
                    self.connection = Connection::Healthy;
                    return Ok(match self.watched.state()? {
                        Some(state) => Update::State(Box::new(state)),
                        None => Update::Deleted,
                    });
                }
            };
            if let Some(outage) = outage {
                return Ok(Update::Disconnected(outage));
            }
        }
    }

    fn on_event(&mut self, is_first_list: bool) {
        self.last_contact = Timestamp::now();
        self.missing = self.missing.saturating_sub(usize::from(is_first_list));
        self.update_at.get_or_insert_with(|| Instant::now() + DEBOUNCE);
    }

    /// Reconnects after the first error, and reports the outage after the second.
    fn on_watch_error(&mut self, error: Error) -> Result<Option<Outage>, Error> {
        match self.connection {
            // The watcher itself lists again after its watch has expired.
            _ if error.is_expired() => Ok(None),
            Connection::Healthy if !error.is_final() => {
                self.connection = Connection::Broken;
                self.reconnect();
                Ok(None)
            }
            _ => self.disconnect(error),
        }
    }

    /// Schedules a reconnect, and returns the outage if it has not been reported yet. A final error is
    /// returned, because a retry would fail again.
    fn disconnect(&mut self, error: Error) -> Result<Option<Outage>, Error> {
        if error.is_final() {
            return Err(error);
        }
        self.reconnect_at.get_or_insert_with(|| Instant::now() + RECONNECT_DELAY);
        let is_known = self.connection == Connection::Lost;
        self.connection = Connection::Lost;
        Ok((!is_known).then(|| Outage { since: self.last_contact, why: error.to_string() }))
    }

    fn reconnect(&mut self) {
        self.reconnect_at = None;
        self.update_at = None;
        let events = self.watched.start();
        self.missing = events.len();
        self.events = select_all(events).boxed();
    }
}

/// Waits until a time; forever if there is none.
async fn until(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// Probes the server at intervals.
fn probes(watched: &impl Watched) -> BoxStream<'static, Result<(), Error>> {
    let next = |probe: Probe| async move {
        sleep(PROBE_INTERVAL).await;
        let response = probe();
        let probed = match timeout(PROBE_TIMEOUT, response).await {
            Ok(response) => response,
            Err(_) => Err(Error::no_response(PROBE_TIMEOUT)),
        };
        Some((probed, probe))
    };
    stream::unfold(watched.probe(), next).boxed()
}

/// Yields true for the first list of a watch, false for other events.
pub type Events = BoxStream<'static, Result<bool, watcher::Error>>;

/// The configuration of a watch of all objects.
pub fn config() -> watcher::Config {
    watcher::Config::default().timeout(WATCH_SECONDS)
}

/// Copies of all objects that a watch has observed.
pub fn copied<K: Resource<DynamicType = ()> + Clone + 'static>(store: &Store<K>) -> Vec<K> {
    store.state().iter().map(|object| K::clone(object)).collect()
}

/// Starts a watch. Managed fields are not used, so they are dropped from each object.
pub fn reflect<K>(api: Api<K>, config: watcher::Config, writer: Writer<K>) -> (Store<K>, Events)
where
    K: Resource + Clone + DeserializeOwned + std::fmt::Debug + Send + Sync + 'static,
    K::DynamicType: Eq + std::hash::Hash + Clone + Send + Sync,
{
    let store = writer.as_reader();
    let slim = watcher(api, config).default_backoff().modify(|object| {
        object.managed_fields_mut().clear();
    });
    let events = reflector(writer, slim);
    (store, first_lists(events))
}

/// Tells the first list of a watch from its other events, and from the lists that follow when the watch has expired.
fn first_lists<K>(
    events: impl Stream<Item = Result<Event<K>, watcher::Error>> + Send + 'static,
) -> Events {
    let mut has_listed = false;
    let is_first_list = move |event| {
        let is_list = matches!(event, Event::InitDone);
        is_list && !std::mem::replace(&mut has_listed, true)
    };
    events.map_ok(is_first_list).boxed()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use kube::core::Status;
    use kube::{Client, Config};

    use super::*;
    use crate::cluster::Cluster;
    use crate::fixture::paused_canary;
    use crate::scene::Scene;

    /// A watch that has received all first lists, with these events and probes, and no server to reconnect to.
    fn watch(
        events: Vec<Result<bool, watcher::Error>>,
        probes: Vec<Result<(), Error>>,
    ) -> SceneWatch {
        let nowhere = Config::new("http://127.0.0.1:1".parse().expect("a URI"));
        let client = Client::try_from(nowhere).expect("a client");
        let cluster = Cluster::of(client, "prod");
        let mut watch = SceneWatch::new(&cluster, &paused_canary().game);
        watch.events = stream::iter(events).chain(stream::pending()).boxed();
        watch.missing = 0;
        watch.probes = stream::iter(probes).chain(stream::pending()).boxed();
        watch
    }

    fn broken(code: u16) -> watcher::Error {
        let status = Status::failure("etcd has no leader", "").with_code(code);
        watcher::Error::WatchError(status.boxed())
    }

    fn text(update: Result<Update<Scene>, Error>) -> String {
        match update {
            Ok(Update::State(_)) => "a state".to_owned(),
            Ok(Update::Disconnected(outage)) => format!("disconnected: {}", outage.why),
            // In tests, the reflectors hold no workload, so every update is a deletion.
            Ok(Update::Deleted) => "deleted".to_owned(),
            Err(error) => format!("error: {error}"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_pending_update_survives_a_canceled_call() {
        let mut watch = watch(vec![Ok(false)], Vec::new());
        let canceled = timeout(DEBOUNCE / 2, watch.next()).await;
        assert!(canceled.is_err());
        let update = timeout(10 * DEBOUNCE, watch.next()).await;
        assert_eq!(text(update.expect("an update")), "deleted");
    }

    #[tokio::test(start_paused = true)]
    async fn an_unresponsive_server_is_reported_once() {
        let no_response = || Err(Error::no_response(PROBE_TIMEOUT));
        let mut watch = watch(Vec::new(), vec![no_response(), no_response()]);
        let update = text(watch.next().await);
        assert_eq!(update, "disconnected: cannot reach the cluster: no response within 10s");
        let again = timeout(3 * RECONNECT_DELAY, watch.next()).await;
        assert!(again.is_err(), "{}", text(again.expect("an update")));
    }

    #[tokio::test(start_paused = true)]
    async fn the_connection_is_restored_when_all_watches_have_listed() {
        let mut watch = watch(Vec::new(), vec![Err(Error::no_response(PROBE_TIMEOUT))]);
        assert!(matches!(watch.next().await, Ok(Update::Disconnected(_))));
        watch.reconnect();
        let lists = (0..WatchedScene::COUNT).map(|_| Ok(true));
        watch.events = stream::iter(lists).chain(stream::pending()).boxed();
        assert_eq!(text(watch.next().await), "deleted");
        assert_eq!(watch.connection, Connection::Healthy);
    }

    #[tokio::test]
    async fn a_watch_lists_first_only_once() {
        let pod = Pod::default();
        let events = [
            Ok(Event::Init),
            Ok(Event::InitApply(pod.clone())),
            Ok(Event::InitDone),
            Ok(Event::Apply(pod)),
            Err(broken(410)),
            // The watcher lists again.
            Ok(Event::Init),
            Ok(Event::InitDone),
        ];
        let yielded: Vec<_> = first_lists(stream::iter(events)).collect().await;
        let yielded: Vec<Option<bool>> = yielded.into_iter().map(Result::ok).collect();
        let (other, first) = (Some(false), Some(true));
        assert_eq!(yielded, [other, other, first, other, None, other, other]);
    }

    #[tokio::test]
    async fn a_watch_that_cannot_reconnect_is_reported() {
        let mut watch = watch(vec![Err(broken(500))], Vec::new());
        let update = text(watch.next().await);
        assert!(update.starts_with("disconnected: cannot reach the cluster: "), "{update}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_expired_watch_is_not_reported_and_a_refusal_is_an_error() {
        let mut watch = watch(vec![Err(broken(410)), Err(broken(403))], Vec::new());
        let error = text(watch.next().await);
        assert_eq!(error, "error: Error from server: etcd has no leader");
    }
}
