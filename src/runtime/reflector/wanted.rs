//! What readers ask of a reflector's watch: a list of everything, lists of namespaces, and bookmarks.

use std::collections::{HashMap, HashSet};
use std::future::pending;
use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::{DecodeError, Feed, Origin, Reflector, Routed, WatchProgress, lock};
use crate::runtime::log_limiter::log_limited;
use crate::runtime::store::Cached;
use crate::runtime::watch::{Identity, Object, Source};

/// The shortest time between two lists of one namespace, because a tenant may cause them.
pub(super) const NAMESPACE_INTERVAL: Duration = Duration::from_secs(60);
/// The interval at which the list of a namespace is tried again.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);

impl<T: Cached> Reflector<T> {
    /// Lists some namespaces again, each on its own: the watch has dropped some of their objects.
    pub(crate) fn list_namespaces(&self, namespaces: impl IntoIterator<Item = String>) {
        self.namespaces.send_if_modified(|wanted| {
            let before = wanted.len();
            wanted.extend(namespaces);
            wanted.len() > before
        });
    }

    /// Waits for the end of a list that starts after the call, and at least `interval` after the start of the
    /// previous list. A list in progress is completed first. Callers that wait at the same time share a list.
    pub(crate) async fn relist(&self, interval: Duration) {
        let mut progress = self.progress();
        let current = *progress.borrow_and_update();
        let next = current.started + 1;
        let request = async {
            if let Some(last) = current.started_at {
                sleep_until(last + interval).await;
            }
            raise(&self.wanted, next);
            pending::<()>().await
        };
        tokio::select! {
            () = request => {}
            _ = progress.wait_for(|progress| progress.listed >= next) => {}
        }
    }

    /// Returns when a caller waits for a list that has not started, and no other list is in
    /// progress.
    pub(super) async fn until_list_is_due(&self) {
        let (mut progress, mut wanted) = (self.progress(), self.wanted.subscribe());
        loop {
            let is_due = |wanted: &u64| *wanted > self.progress.borrow().started;
            // Cannot fail, because self holds the senders.
            let _ = wanted.wait_for(is_due).await;
            let _ = progress.wait_for(|progress| progress.listed == progress.started).await;
            if is_due(&wanted.borrow()) {
                return;
            }
        }
    }

    /// Asks for a bookmark that shows whether the store has everything up to this version, and waits for it. In a quiet
    /// cluster, one would arrive only within a minute, and a list of many objects takes long. Returns whether the version was
    /// reached within `limit`. If not, no bookmark is asked for from then on: the version may never come, for instance if
    /// etcd was restored from a backup.
    pub(crate) async fn reach_by_bookmark(&self, version: u64, limit: Duration) -> bool {
        raise(&self.wanted_bookmark, version);
        let is_reached = timeout(limit, self.reach(version)).await.is_ok();
        if !is_reached {
            self.wanted_bookmark.send_if_modified(|wanted| {
                let is_unchanged = *wanted == version;
                if is_unchanged {
                    *wanted = 0;
                }
                is_unchanged
            });
        }
        is_reached
    }

    /// Returns when a caller waits for a bookmark, and no list is in progress.
    pub(super) async fn until_bookmark_is_due(&self) {
        let mut wanted = self.wanted_bookmark.subscribe();
        loop {
            let is_due = |wanted: &u64| *wanted > self.progress.borrow().version;
            // Cannot fail, because self holds the sender.
            let _ = wanted.wait_for(is_due).await;
            self.until_listed().await;
            if is_due(&wanted.borrow()) {
                return;
            }
        }
    }

    /// Lists namespaces as they are wanted, beside the watch.
    pub(super) async fn list_wanted_namespaces<C, R>(
        &self,
        source: &Source,
        feed: &Mutex<Feed<'_, T, C, R>>,
    ) where
        C: FnMut(Option<&T>, Origin, &Identity, Object<'_>) -> Result<Option<T>, DecodeError>
            + Send,
        R: Fn(&Routed<T>) + Send,
    {
        let mut wanted = self.namespaces.subscribe();
        let mut recent: HashMap<String, Instant> = HashMap::new();
        while wanted.wait_for(|wanted| !wanted.is_empty()).await.is_ok() {
            let started = self.until_listed().await;
            recent.retain(|_, at| at.elapsed() < NAMESPACE_INTERVAL);
            let Some(namespace) = self.take_namespace(&recent) else {
                sleep(RETRY_INTERVAL).await;
                continue;
            };
            recent.insert(namespace.clone(), Instant::now());
            lock(feed).deleted = Some(HashSet::new());
            let apply =
                |identity: Identity, object: Object<'_>| lock(feed).apply_older(&identity, object);
            let listed = source.list_namespace(&namespace, apply).await;
            lock(feed).deleted = None;
            // A list of everything that has started meanwhile has not applied what this one contained.
            let is_disturbed = self.progress.borrow().started != started;
            if let Err(error) = &listed {
                log_limited!(warn, namespace, %error, "cannot list the objects of a namespace");
            }
            if listed.is_err() || is_disturbed {
                recent.remove(&namespace);
                self.list_namespaces([namespace]);
                sleep(RETRY_INTERVAL).await;
            }
        }
    }

    /// Takes a namespace that is to be listed and was not listed recently.
    fn take_namespace(&self, recent: &HashMap<String, Instant>) -> Option<String> {
        let mut next = None;
        self.namespaces.send_if_modified(|wanted| {
            let mut due = wanted.iter().filter(|it| !recent.contains_key(*it));
            next = due.next().cloned();
            next.as_ref().is_some_and(|it| wanted.remove(it))
        });
        next
    }

    /// Waits until no list of everything is in progress. Returns the number of the last one.
    async fn until_listed(&self) -> u64 {
        let mut progress = self.progress();
        let is_listed = |it: &WatchProgress| it.listed > 0 && it.listed == it.started;
        // Cannot fail, because self holds the sender.
        let listed = progress.wait_for(is_listed).await;
        listed.map_or(0, |it| it.started)
    }
}

/// Sets a number that callers wait for, unless a later one is set.
fn raise(wanted: &watch::Sender<u64>, number: u64) {
    wanted.send_if_modified(|wanted| {
        let is_later = number > *wanted;
        *wanted = number.max(*wanted);
        is_later
    });
}
