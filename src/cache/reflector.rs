//! The reflector of one kind: fed by one watch and shared by all readers. It also records the progress of the watch,
//! and which objects cannot be decoded.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::future::pending;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tracing::error;

use super::slim::Origin;
use super::store::{Cached, Store, Transition};
use super::watch::{Change, Identity, Object, Source};
use crate::objects::ObjectKey;

/// The progress of a reflector's watch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WatchProgress {
    /// Every change up to this resourceVersion is in the store.
    pub version: u64,
    /// The number of lists that have started.
    pub started: u64,
    /// When the last list started.
    pub started_at: Option<Instant>,
    /// The number of the list that the store is based on; 0 before the first one.
    pub listed: u64,
}

/// An object that cannot be decoded. It is not in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unreadable {
    pub uid: String,
    pub resource_version: String,
    pub reason: String,
}

/// The longest reason that is kept, in bytes, because a reason can quote a value of any length.
const MAX_REASON_BYTES: usize = 512;

impl Unreadable {
    fn new(identity: &Identity, error: &DecodeError) -> Self {
        let mut reason = error.to_string();
        reason.truncate(reason.floor_char_boundary(MAX_REASON_BYTES));
        Self {
            uid: identity.uid.clone(),
            resource_version: identity.resource_version.clone(),
            reason,
        }
    }
}

/// The objects of one kind as the watch shows them.
pub(crate) struct Reflector<T> {
    store: RwLock<Store<T>>,
    unreadable: RwLock<BTreeMap<ObjectKey, Unreadable>>,
    progress: watch::Sender<WatchProgress>,
    /// When the last watch event arrived, or when the reflector was created.
    last_event: Mutex<Instant>,
    /// The number of the list that callers wait for.
    wanted: watch::Sender<u64>,
}

impl<T> Default for Reflector<T> {
    fn default() -> Self {
        Self {
            store: RwLock::default(),
            unreadable: RwLock::default(),
            progress: watch::Sender::default(),
            last_event: Mutex::new(Instant::now()),
            wanted: watch::Sender::default(),
        }
    }
}

impl<T: Cached> Reflector<T> {
    /// The store. The guard must not be held across an await.
    pub(crate) fn store(&self) -> RwLockReadGuard<'_, Store<T>> {
        // After a panic in a writer, each object in the store is still whole; the next list fixes the rest.
        self.store.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get(&self, key: &ObjectKey) -> Option<Arc<T>> {
        self.store().get(&key.namespace, &key.name)
    }

    /// Why an object cannot be decoded; None if it can be decoded or does not exist.
    pub(crate) fn unreadable(&self, key: &ObjectKey) -> Option<Unreadable> {
        self.all_unreadable().get(key).cloned()
    }

    /// All objects that cannot be decoded. The guard must not be held across an await.
    pub(crate) fn all_unreadable(&self) -> RwLockReadGuard<'_, BTreeMap<ObjectKey, Unreadable>> {
        let unreadable = self.unreadable.read();
        unreadable.unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn progress(&self) -> watch::Receiver<WatchProgress> {
        self.progress.subscribe()
    }

    /// When the last watch event arrived. A working watch receives at least one bookmark a minute.
    pub(crate) fn last_event(&self) -> Instant {
        *self
            .last_event
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until every change up to this resourceVersion is in the store.
    pub(crate) async fn reach(&self, version: u64) {
        let reached = |progress: &WatchProgress| progress.listed > 0 && progress.version >= version;
        // Cannot fail, because self holds the sender.
        let _ = self.progress().wait_for(reached).await;
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
            self.wanted.send_if_modified(|wanted| {
                let is_later = next > *wanted;
                *wanted = next.max(*wanted);
                is_later
            });
            pending::<()>().await
        };
        tokio::select! {
            () = request => {}
            _ = progress.wait_for(|progress| progress.listed >= next) => {}
        }
    }

    /// Returns when a caller waits for a list that has not started, and no other list is in
    /// progress.
    async fn until_list_is_due(&self) {
        let (mut progress, mut wanted) = (self.progress(), self.wanted.subscribe());
        loop {
            let is_due = |wanted: &u64| *wanted > self.progress.borrow().started;
            // Cannot fail, because self holds the senders.
            let _ = wanted.wait_for(is_due).await;
            let _ = progress
                .wait_for(|progress| progress.listed == progress.started)
                .await;
            if is_due(&wanted.borrow()) {
                return;
            }
        }
    }

    /// Feeds the reflector a whole list.
    #[cfg(test)]
    pub(crate) fn show(&self, version: u64, objects: Vec<T>) {
        let mut feed = Feed {
            reflector: self,
            convert: |_: Option<&T>, _, _: &Identity, object: T| Ok(Some(object)),
            route: |_: &Routed<T>| {},
            listing: None,
        };
        feed.apply(Change::<T>::ListBegin);
        for object in objects {
            feed.apply(Change::Listed(Identity::default(), object));
        }
        feed.apply(Change::<T>::ListEnd(version));
    }

    /// Feeds the reflector from a watch, forever. `convert` makes the cached form of an object from its previous
    /// cached form and its text, or returns None for an object that is not kept.
    pub(crate) async fn feed<C, R>(self: Arc<Self>, source: Source, convert: C, route: R)
    where
        C: FnMut(Option<&T>, Origin, &Identity, Object<'_>) -> Result<Option<T>, DecodeError>,
        R: Fn(&Routed<T>),
    {
        let mut feed = Feed {
            reflector: &self,
            convert,
            route,
            listing: None,
        };
        let until_list_is_due = || self.until_list_is_due();
        super::watch::watch(source, until_list_is_due, |change| feed.apply(change)).await;
    }
}

/// Why an object cannot be decoded.
pub(super) type DecodeError = serde_json::Error;

/// A change for the router.
pub(crate) enum Routed<T> {
    Changed(Transition<T>),
    /// An object that cannot be decoded, or that could not be decoded before this change:
    /// [`Reflector::unreadable`] distinguishes the two cases. If the object can be decoded now, a `Changed`
    /// for it follows.
    Unreadable(ObjectKey),
}

/// The objects of a list in progress.
struct Listing<T> {
    objects: HashMap<ObjectKey, T>,
    unreadable: BTreeMap<ObjectKey, Unreadable>,
}

impl<T> Default for Listing<T> {
    fn default() -> Self {
        Self {
            objects: HashMap::new(),
            unreadable: BTreeMap::new(),
        }
    }
}

/// Applies changes to a reflector.
struct Feed<'a, T, C, R> {
    reflector: &'a Reflector<T>,
    convert: C,
    route: R,
    listing: Option<Listing<T>>,
}

impl<T: Cached, C, R: Fn(&Routed<T>)> Feed<'_, T, C, R> {
    /// Applies a change: updates the store, then notifies the router, then records the progress.
    fn apply<O>(&mut self, change: Change<O>)
    where
        C: FnMut(Option<&T>, Origin, &Identity, O) -> Result<Option<T>, DecodeError>,
    {
        // The start of a list comes from this process, so it does not show that the server responds.
        if !matches!(change, Change::ListBegin) {
            let last_event = self.reflector.last_event.lock();
            *last_event.unwrap_or_else(PoisonError::into_inner) = Instant::now();
        }
        match change {
            Change::ListBegin => {
                self.listing = Some(Listing::default());
                self.reflector.progress.send_modify(|progress| {
                    progress.started += 1;
                    progress.started_at = Some(Instant::now());
                });
            }
            Change::Listed(identity, object) => {
                let converted = self.convert(Origin::List, &identity, object);
                self.list(&identity, converted);
            }
            Change::ListEnd(version) => self.end_list(version),
            Change::Applied(identity, object) => {
                match self.convert(Origin::Watch, &identity, object) {
                    Ok(Some(object)) => {
                        let transition = self.write().put(object);
                        self.forget_unreadable(&identity);
                        (self.route)(&Routed::Changed(transition));
                    }
                    Ok(None) => self.remove(&identity),
                    Err(unreadable) => self.mark_unreadable(&identity, unreadable),
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

    /// The cached form of an object; None if it is not kept.
    fn convert<O>(
        &mut self,
        origin: Origin,
        identity: &Identity,
        object: O,
    ) -> Result<Option<T>, Unreadable>
    where
        C: FnMut(Option<&T>, Origin, &Identity, O) -> Result<Option<T>, DecodeError>,
    {
        let key = identity.key();
        let previous = self.reflector.get(&key);
        let converted = (self.convert)(previous.as_deref(), origin, identity, object);
        converted.map_err(|error| {
            let unreadable = Unreadable::new(identity, &error);
            error!(object = %key, reason = unreadable.reason, "cannot decode an object; ignoring it");
            unreadable
        })
    }

    /// Adds an object to the list in progress. A streamed list may contain the same object twice.
    fn list(&mut self, identity: &Identity, converted: Result<Option<T>, Unreadable>) {
        let key = identity.key();
        let Some(listing) = &mut self.listing else {
            return;
        };
        listing.objects.remove(&key);
        listing.unreadable.remove(&key);
        match converted {
            Ok(Some(object)) => {
                listing.objects.insert(object.key(), object);
            }
            Ok(None) => {}
            Err(unreadable) => {
                listing.unreadable.insert(key, unreadable);
            }
        }
    }

    fn end_list(&mut self, version: u64) {
        let Listing {
            objects,
            unreadable,
        } = self.listing.take().unwrap_or_default();
        let mut concerned: BTreeSet<ObjectKey> = unreadable.keys().cloned().collect();
        let previously_unreadable = std::mem::replace(&mut *self.unreadable(), unreadable);
        concerned.extend(previously_unreadable.into_keys());
        let transitions = self.write().replace(objects);
        // Some of these objects may have been fixed. The router must see their changes last.
        for key in concerned {
            (self.route)(&Routed::Unreadable(key));
        }
        for transition in transitions {
            (self.route)(&Routed::Changed(transition));
        }
        self.reflector.progress.send_modify(|progress| {
            // The version may be lower than before, if etcd was restored from a backup.
            progress.version = version;
            progress.listed = progress.started;
        });
    }

    fn remove(&mut self, identity: &Identity) {
        let key = identity.key();
        if let Some(listing) = &mut self.listing {
            listing.objects.remove(&key);
            listing.unreadable.remove(&key);
            return;
        }
        let was_unreadable = self.forget_unreadable(identity);
        let removed = self.write().remove(&identity.namespace, &identity.name);
        if removed.is_some() {
            (self.route)(&Routed::Changed((removed, None)));
        }
        if was_unreadable {
            (self.route)(&Routed::Unreadable(key));
        }
    }

    /// Records that an object cannot be decoded, and removes its previous version from the store.
    fn mark_unreadable(&self, identity: &Identity, unreadable: Unreadable) {
        let key = identity.key();
        self.unreadable().insert(key.clone(), unreadable);
        let removed = self.write().remove(&identity.namespace, &identity.name);
        if removed.is_some() {
            (self.route)(&Routed::Changed((removed, None)));
        }
        (self.route)(&Routed::Unreadable(key));
    }

    /// Forgets that an object could not be decoded. Returns whether this was recorded.
    fn forget_unreadable(&self, identity: &Identity) -> bool {
        // This runs for each change of any pod, and unreadable objects are rare: avoid the write lock.
        if self.reflector.all_unreadable().is_empty() {
            return false;
        }
        self.unreadable().remove(&identity.key()).is_some()
    }

    fn advance(&self, version: u64) {
        if self.listing.is_none() {
            self.reflector.progress.send_if_modified(|progress| {
                let is_later = version > progress.version;
                progress.version = progress.version.max(version);
                is_later
            });
        }
    }

    fn write(&self) -> RwLockWriteGuard<'_, Store<T>> {
        let store = self.reflector.store.write();
        store.unwrap_or_else(PoisonError::into_inner)
    }

    fn unreadable(&self) -> RwLockWriteGuard<'_, BTreeMap<ObjectKey, Unreadable>> {
        let unreadable = self.reflector.unreadable.write();
        unreadable.unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
