//! The reflector of one kind: fed by one watch and shared by all readers. It also records the progress of the watch,
//! and which objects cannot be decoded or kept.

mod feed;
mod wanted;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};

use tokio::sync::watch;
use tokio::time::Instant;

use self::feed::Feed;
use super::control::Control;
use super::memory::MemoryUse;
use super::store::{Cached, Store, Transition};
use super::watch::{Change, Identity, Object, Source};
use crate::runtime::objects::ObjectKey;

/// How an object's new state was observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// By the watch: no state between the previous one and this one was missed.
    Watch,
    /// By a list: states in between may have been missed.
    List,
}

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
    /// How many objects that list contained, including those that are not kept, such as pods of other controllers.
    pub size: usize,
}

/// An object that cannot be decoded, or that exceeds the memory of its namespace. It is not in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unreadable {
    pub uid: String,
    pub resource_version: String,
    pub reason: String,
    /// What controls it.
    pub control: Control,
    /// Whether it can be decoded, but exceeds the memory of its namespace. It is read again when there is room.
    pub over_budget: bool,
}

/// The longest reason that is kept, in bytes, because a reason can quote a value of any length.
const MAX_REASON_BYTES: usize = 512;

impl Unreadable {
    fn new(identity: &Identity, mut reason: String, over_budget: bool) -> Self {
        reason.truncate(reason.floor_char_boundary(MAX_REASON_BYTES));
        reason.shrink_to_fit();
        Self {
            uid: identity.uid.clone(),
            resource_version: identity.resource_version.clone(),
            reason,
            control: identity.control.clone(),
            over_budget,
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
    /// The version that callers wait for a bookmark of.
    wanted_bookmark: watch::Sender<u64>,
    /// The namespaces to list again.
    namespaces: watch::Sender<BTreeSet<String>>,
    memory: Arc<MemoryUse>,
}

impl<T> Default for Reflector<T> {
    fn default() -> Self {
        Self {
            store: RwLock::default(),
            unreadable: RwLock::default(),
            progress: watch::Sender::default(),
            last_event: Mutex::new(Instant::now()),
            wanted: watch::Sender::default(),
            wanted_bookmark: watch::Sender::default(),
            namespaces: watch::Sender::default(),
            memory: Arc::default(),
        }
    }
}

impl<T: Cached> Reflector<T> {
    /// An empty reflector whose objects count toward this memory.
    pub(crate) fn counting(memory: &Arc<MemoryUse>) -> Arc<Self> {
        Arc::new(Self { memory: Arc::clone(memory), ..Self::default() })
    }

    /// The number of the list that callers wait for, and the namespaces to list again.
    #[cfg(test)]
    pub(crate) fn wanted(&self) -> (u64, BTreeSet<String>) {
        (*self.wanted.borrow(), self.namespaces.borrow().clone())
    }

    /// The store. The guard must not be held across an await.
    pub(crate) fn store(&self) -> RwLockReadGuard<'_, Store<T>> {
        // After a panic in a writer, each object in the store is still whole; the next list fixes the rest.
        self.store.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get(&self, key: &ObjectKey) -> Option<Arc<T>> {
        self.store().get(&key.namespace, &key.name)
    }

    /// Records that an object is unreadable.
    #[cfg(test)]
    pub(crate) fn show_unreadable(&self, key: ObjectKey, unreadable: Unreadable) {
        let mut all = self.unreadable.write().unwrap_or_else(PoisonError::into_inner);
        all.insert(key, unreadable);
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
        *self.last_event.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until every change up to this resourceVersion is in the store.
    pub(crate) async fn reach(&self, version: u64) {
        let reached = |progress: &WatchProgress| progress.listed > 0 && progress.version >= version;
        // Cannot fail, because self holds the sender.
        let _ = self.progress().wait_for(reached).await;
    }

    /// Feeds the reflector a whole list.
    #[cfg(test)]
    pub(crate) fn show(&self, version: u64, objects: Vec<T>) {
        let convert = |_: Option<&T>, _, _: &Identity, object: T| Ok(Some(object));
        let mut feed = Feed::new(self, convert, |_: &Routed<T>| {});
        feed.apply(Change::<T>::ListBegin);
        for object in objects {
            let identity = Identity {
                namespace: object.namespace().to_owned(),
                name: object.name().to_owned(),
                uid: object.uid().to_owned(),
                ..Identity::default()
            };
            feed.apply(Change::Listed(identity, object));
        }
        feed.apply(Change::<T>::ListEnd(version));
    }

    /// Feeds the reflector from a watch, forever. `convert` makes the cached form of an object from its previous
    /// cached form and its text, or returns None for an object that is not kept.
    pub(crate) async fn feed<C, R>(self: Arc<Self>, source: Source, convert: C, route: R)
    where
        C: FnMut(Option<&T>, Origin, &Identity, Object<'_>) -> Result<Option<T>, DecodeError>
            + Send,
        R: Fn(&Routed<T>) + Send,
    {
        let feed = Mutex::new(Feed::new(&self, convert, route));
        let until_list_is_due = || self.until_list_is_due();
        let until_bookmark_is_due = || self.until_bookmark_is_due();
        let apply = |change: Change<Object<'_>>| lock(&feed).apply(change);
        let watching =
            super::watch::watch(source.clone(), until_list_is_due, until_bookmark_is_due, apply);
        tokio::join!(watching, self.list_wanted_namespaces(&source, &feed));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Why an object cannot be decoded.
pub(super) type DecodeError = serde_json::Error;

/// A change for the router.
pub(crate) enum Routed<T> {
    Changed(Transition<T>),
    /// An object that cannot be decoded, or that could not be decoded before this change:
    /// [`Reflector::unreadable`] distinguishes the two cases. If the object can be decoded now, a `Changed`
    /// for it follows. Contains what controls the object.
    Unreadable(ObjectKey, Control),
}

/// The objects of a namespace among those that cannot be decoded.
pub(crate) fn unreadable_in<'u>(
    unreadable: &'u BTreeMap<ObjectKey, Unreadable>,
    namespace: &str,
) -> impl Iterator<Item = (&'u ObjectKey, &'u Unreadable)> {
    let from = ObjectKey::new(namespace, "");
    let namespace = namespace.to_owned();
    let entries = unreadable.range(from..);
    entries.take_while(move |(key, _)| key.namespace == namespace)
}

#[cfg(test)]
mod tests;
