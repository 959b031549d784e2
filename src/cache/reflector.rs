//! The reflector of one kind: fed by one watch, shared by all readers, and able to say how far it has seen.

use std::collections::HashMap;
use std::future::pending;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tracing::error;

use super::slim::Sight;
use super::store::{Cached, Store, Transition};
use super::watch::{Change, Identity, Object, Source};
use crate::objects::ObjectKey;

/// How far a reflector has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Every change up to this resourceVersion is in the store.
    pub version: u64,
    pub begun: u64,
    /// When the last of them was begun.
    pub begun_at: Option<Instant>,
    /// The list (counted by `begun`) that the store rests on; 0 before the first.
    pub listed: u64,
}

/// The objects of one kind as the watch shows them.
pub(crate) struct Reflector<T> {
    store: RwLock<Store<T>>,
    seen: watch::Sender<Seen>,
    /// When the API server last said something; when this was made, if it never did.
    heard: Mutex<Instant>,
    /// The list (counted as in [`Seen::begun`]) that a caller waits for.
    wanted: watch::Sender<u64>,
}

impl<T> Default for Reflector<T> {
    fn default() -> Self {
        Self {
            store: RwLock::default(),
            seen: watch::Sender::default(),
            heard: Mutex::new(Instant::now()),
            wanted: watch::Sender::default(),
        }
    }
}

impl<T: Cached> Reflector<T> {
    /// The store as it is now. Not to be held over an await.
    pub(crate) fn store(&self) -> RwLockReadGuard<'_, Store<T>> {
        // A panic while writing leaves a store of whole objects; the next list fixes the rest.
        self.store.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get(&self, key: &ObjectKey) -> Option<Arc<T>> {
        self.store().get(&key.namespace, &key.name)
    }

    /// How far it has seen, to wait on.
    pub(crate) fn seen(&self) -> watch::Receiver<Seen> {
        self.seen.subscribe()
    }

    /// When the API server last said anything about this kind: at least one bookmark a minute, if
    /// the watch lives. Before it ever did, when the waiting for it began.
    pub(crate) fn heard(&self) -> Instant {
        *self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until every change up to this resourceVersion is in the store.
    pub(crate) async fn reach(&self, version: u64) {
        let reached = |seen: &Seen| seen.listed > 0 && seen.version >= version;
        // The sender lives in self: waiting cannot fail.
        let _ = self.seen().wait_for(reached).await;
    }

    /// Waits until the store rests on a list that is begun from now on. Asks for one as soon as the last
    /// began so long ago. One that is under way comes to its end; callers that wait share the next one.
    pub(crate) async fn relist(&self, pause: Duration) {
        let mut seen = self.seen();
        let now = *seen.borrow_and_update();
        let next = now.begun + 1;
        let ask = async {
            if let Some(last) = now.begun_at {
                sleep_until(last + pause).await;
            }
            self.wanted.send_if_modified(|wanted| {
                let is_later = next > *wanted;
                *wanted = next.max(*wanted);
                is_later
            });
            pending::<()>().await
        };
        tokio::select! {
            () = ask => {}
            _ = seen.wait_for(|seen| seen.listed >= next) => {}
        }
    }

    /// Returns when a caller waits for a list that has not begun, and none is in progress.
    async fn list_is_due(&self) {
        let (mut seen, mut wanted) = (self.seen(), self.wanted.subscribe());
        loop {
            let is_due = |wanted: &u64| *wanted > self.seen.borrow().begun;
            // The senders live in self: waiting cannot fail.
            let _ = wanted.wait_for(is_due).await;
            let _ = seen.wait_for(|seen| seen.listed == seen.begun).await;
            if is_due(&wanted.borrow()) {
                return;
            }
        }
    }

    /// Plays a whole list into it.
    #[cfg(test)]
    pub(crate) fn show(&self, version: u64, objects: Vec<T>) {
        let mut feed = Feed {
            reflector: self,
            convert: |_: Option<&T>, _, _: &Identity, object: T| Ok(Some(object)),
            route: |_: &Routed<T>| {},
            listing: None,
        };
        feed.take_in(Change::<T>::ListBegin);
        for object in objects {
            feed.take_in(Change::Listed(Identity::default(), object));
        }
        feed.take_in(Change::<T>::ListEnd(version));
    }

    /// Feeds it from this source, forever. `convert` makes the cached form of an object that had
    /// another one before, or none; it is not kept where that is None.
    pub(crate) async fn feed<C, R>(self: Arc<Self>, source: Source, convert: C, route: R)
    where
        C: FnMut(Option<&T>, Sight, &Identity, Object<'_>) -> Result<Option<T>, Unreadable>,
        R: Fn(&Routed<T>),
    {
        let mut feed = Feed {
            reflector: &self,
            convert,
            route,
            listing: None,
        };
        let list_is_due = || self.list_is_due();
        super::watch::watch(source, list_is_due, |change| feed.take_in(change)).await;
    }
}

/// Why an object cannot be read.
pub(super) type Unreadable = serde_json::Error;

/// What the router is told.
pub(crate) enum Routed<T> {
    Changed(Transition<T>),
    /// An object cannot be read, and is not in the store.
    Broken(ObjectKey, String),
}

/// Folds changes into a reflector.
struct Feed<'a, T, C, R> {
    reflector: &'a Reflector<T>,
    convert: C,
    route: R,
    /// The objects of the list under way.
    listing: Option<HashMap<ObjectKey, T>>,
}

impl<T: Cached, C, R: Fn(&Routed<T>)> Feed<'_, T, C, R> {
    /// Takes one change in: first into the store, then to the router, then into how far it has seen.
    fn take_in<O>(&mut self, change: Change<O>)
    where
        C: FnMut(Option<&T>, Sight, &Identity, O) -> Result<Option<T>, Unreadable>,
    {
        // To ask for a list is our own doing.
        if !matches!(change, Change::ListBegin) {
            let heard = self.reflector.heard.lock();
            *heard.unwrap_or_else(PoisonError::into_inner) = Instant::now();
        }
        match change {
            Change::ListBegin => {
                self.listing = Some(HashMap::new());
                self.reflector.seen.send_modify(|seen| {
                    seen.begun += 1;
                    seen.begun_at = Some(Instant::now());
                });
            }
            Change::Listed(identity, object) => {
                match self.convert(Sight::Listed, &identity, object) {
                    Some(object) => {
                        let listing = self.listing.as_mut();
                        listing.map(|listing| listing.insert(object.key(), object));
                    }
                    // A streamed list may show it a second time.
                    None => self.remove(&identity),
                }
            }
            Change::ListEnd(version) => self.end_list(version),
            Change::Applied(identity, object) => {
                match self.convert(Sight::Watched, &identity, object) {
                    Some(object) => {
                        let transition = self.write().put(object);
                        (self.route)(&Routed::Changed(transition));
                    }
                    None => self.remove(&identity),
                }
                self.advance(identity.version());
            }
            Change::Deleted(identity) => {
                self.remove(&identity);
                self.advance(identity.version());
            }
            Change::Bookmark(version) => self.advance(version),
        }
    }

    /// The cached form of an object; None for one that is not kept, or cannot be read.
    fn convert<O>(&mut self, sight: Sight, identity: &Identity, object: O) -> Option<T>
    where
        C: FnMut(Option<&T>, Sight, &Identity, O) -> Result<Option<T>, Unreadable>,
    {
        let key = identity.key();
        let previous = self.reflector.get(&key);
        match (self.convert)(previous.as_deref(), sight, identity, object) {
            Ok(object) => object,
            Err(error) => {
                let reason = error.to_string();
                error!(object = %key, reason, "cannot decode an object; ignoring it");
                (self.route)(&Routed::Broken(key, reason));
                None
            }
        }
    }

    fn end_list(&mut self, version: u64) {
        let listing = self.listing.take().unwrap_or_default();
        let transitions = self.write().replace(listing);
        for transition in transitions {
            (self.route)(&Routed::Changed(transition));
        }
        self.reflector.seen.send_modify(|seen| {
            // Also when it is lower than before: then the server's history was put back.
            seen.version = version;
            seen.listed = seen.begun;
        });
    }

    fn remove(&mut self, identity: &Identity) {
        if let Some(listing) = &mut self.listing {
            listing.remove(&identity.key());
            return;
        }
        let gone = self.write().remove(&identity.namespace, &identity.name);
        if gone.is_some() {
            (self.route)(&Routed::Changed((gone, None)));
        }
    }

    fn advance(&self, version: u64) {
        if self.listing.is_none() {
            self.reflector.seen.send_if_modified(|seen| {
                let later = version > seen.version;
                seen.version = seen.version.max(version);
                later
            });
        }
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, Store<T>> {
        let store = self.reflector.store.write();
        store.unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
