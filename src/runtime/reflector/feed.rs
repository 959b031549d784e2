//! Applies the changes of a watch to a reflector.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, PoisonError, RwLockWriteGuard};

use tokio::time::Instant;

use super::{DecodeError, Origin, Reflector, Routed, Unreadable, unreadable_in};
use crate::runtime::log_limiter::log_limited;
use crate::runtime::objects::ObjectKey;
use crate::runtime::store::{Cached, Store};
use crate::runtime::watch::{Change, Identity, version_number};

fn over_budget(key: &ObjectKey, identity: &Identity, why: String) -> Unreadable {
    log_limited!(warn, object = %key, why, "an object is not kept");
    Unreadable::new(identity, why, true)
}

/// The objects of a list in progress.
struct Listing<T> {
    /// How many objects it has contained so far, whether they are kept or not.
    size: usize,
    objects: HashMap<ObjectKey, T>,
    unreadable: BTreeMap<ObjectKey, Unreadable>,
    /// The memory of `objects`, by namespace.
    memory: HashMap<Box<str>, usize>,
}

impl<T> Default for Listing<T> {
    fn default() -> Self {
        Self {
            size: 0,
            objects: HashMap::new(),
            unreadable: BTreeMap::new(),
            memory: HashMap::new(),
        }
    }
}

impl<T> Listing<T> {
    fn forget(&mut self, key: &ObjectKey) {
        self.unreadable.remove(key);
        // Its memory counts until the list has ended.
        self.objects.remove(key);
    }
}

/// Applies changes to a reflector.
pub(super) struct Feed<'a, T, C, R> {
    reflector: &'a Reflector<T>,
    convert: C,
    route: R,
    listing: Option<Listing<T>>,
    /// The uids of objects that were deleted since the list of a namespace has begun; None if there is none.
    pub(super) deleted: Option<HashSet<String>>,
}

impl<'r, T: Cached, C, R: Fn(&Routed<T>)> Feed<'r, T, C, R> {
    pub(super) fn new(reflector: &'r Reflector<T>, convert: C, route: R) -> Self {
        Self { reflector, convert, route, listing: None, deleted: None }
    }

    /// Applies a change: updates the store, then notifies the router, then records the progress.
    pub(super) fn apply<O>(&mut self, change: Change<O>)
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
                self.end_charges();
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
                let converted = self.convert(Origin::Watch, &identity, object);
                self.put(&identity, converted);
                self.advance(identity.version());
            }
            Change::Deleted(identity) => {
                if let Some(deleted) = &mut self.deleted {
                    deleted.insert(identity.uid.clone());
                }
                self.remove(&identity);
                self.advance(identity.version());
            }
            Change::Bookmark(version) => self.advance(version),
        }
    }

    /// Applies an object from the list of a namespace, unless what is known about it is newer.
    pub(super) fn apply_older<O>(&mut self, identity: &Identity, object: O)
    where
        C: FnMut(Option<&T>, Origin, &Identity, O) -> Result<Option<T>, DecodeError>,
    {
        let (key, version) = (identity.key(), identity.version());
        let is_deleted = self.deleted.as_ref().is_none_or(|it| it.contains(&identity.uid));
        let known = self.reflector.get(&key);
        let unreadable = self.reflector.unreadable(&key);
        let unreadable_version = unreadable.map(|it| version_number(&it.resource_version));
        let known_version = known.as_ref().map(|it| it.version()).max(unreadable_version);
        let is_newer_known = known_version.is_some_and(|known| known > version);
        // A list of everything in progress contains the object as well.
        if is_deleted || is_newer_known || self.listing.is_some() {
            return;
        }
        let converted = self.convert(Origin::List, identity, object);
        let is_same = match (&converted, &known) {
            (Ok(Some(object)), Some(known)) => !object.differs_from(known),
            (Ok(None), None) => unreadable_version.is_none(),
            _ => false,
        };
        if !is_same {
            self.put(identity, converted);
        }
    }

    /// Changes the store, and notifies the router.
    fn put(&mut self, identity: &Identity, converted: Result<Option<T>, Unreadable>) {
        match converted {
            Ok(Some(object)) => {
                let key = identity.key();
                let namespace = &identity.namespace;
                let (before, old) = {
                    let store = self.reflector.store();
                    let old = store.get(namespace, &identity.name);
                    (store.memory(namespace), old.map_or(0, |it| it.memory()))
                };
                let after = before + object.memory() - old;
                if let Err(why) = self.reflector.memory.check(namespace, before, after) {
                    let unreadable = over_budget(&key, identity, why);
                    return self.mark_unreadable(identity, unreadable);
                }
                let transition = self.write().put(object);
                self.reflector.memory.change(namespace, before, after);
                self.forget_unreadable(identity);
                (self.route)(&Routed::Changed(transition));
                if after < before {
                    self.read_again(namespace);
                }
            }
            Ok(None) => self.remove(identity),
            Err(unreadable) => self.mark_unreadable(identity, unreadable),
        }
    }

    /// Removes an object from the store.
    fn take(&self, identity: &Identity) -> Option<Arc<T>> {
        let (namespace, name) = (&identity.namespace, &identity.name);
        let mut store = self.write();
        let before = store.memory(namespace);
        let removed = store.remove(namespace, name)?;
        let after = store.memory(namespace);
        drop(store);
        self.reflector.memory.change(namespace, before, after);
        Some(removed)
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
            let unreadable = Unreadable::new(identity, error.to_string(), false);
            let reason = &unreadable.reason;
            log_limited!(error, object = %key, reason, "cannot decode an object; ignoring it");
            unreadable
        })
    }

    /// Adds an object to the list in progress. A streamed list may contain the same object twice.
    fn list(&mut self, identity: &Identity, converted: Result<Option<T>, Unreadable>) {
        let key = identity.key();
        let Some(listing) = &mut self.listing else {
            return;
        };
        listing.forget(&key);
        listing.size += 1;
        match converted {
            Ok(Some(object)) => {
                let namespace = &*identity.namespace;
                let stored = self.reflector.store().memory(namespace);
                let listed = listing.memory.entry(namespace.into()).or_default();
                let new = *listed + object.memory();
                // The list replaces what the store has now, so only what exceeds that is new.
                let (before, after) = (stored.max(*listed), stored.max(new));
                if let Err(why) = self.reflector.memory.check(namespace, before, after) {
                    let unreadable = over_budget(&key, identity, why);
                    listing.unreadable.insert(key, unreadable);
                    return;
                }
                self.reflector.memory.change(namespace, before, after);
                *listed = new;
                listing.objects.insert(key, object);
            }
            Ok(None) => {}
            Err(unreadable) => {
                listing.unreadable.insert(key, unreadable);
            }
        }
    }

    /// Counts only what the store has from now on, and not what a list in progress has added.
    fn end_charges(&self) {
        let listed = self.listing.iter().flat_map(|it| &it.memory);
        for (namespace, listed) in listed {
            let stored = self.reflector.store().memory(namespace);
            let memory = &self.reflector.memory;
            memory.change(namespace, stored.max(*listed), stored);
        }
    }

    fn end_list(&mut self, version: u64) {
        self.end_charges();
        let Listing { size, objects, unreadable, .. } = self.listing.take().unwrap_or_default();
        let with_control = |(key, it): (&ObjectKey, &Unreadable)| (key.clone(), it.control.clone());
        let mut concerned: BTreeSet<_> = unreadable.iter().map(with_control).collect();
        // An object is in the store or unreadable at any time: readers look for both.
        let previously_unreadable = {
            let mut all = self.unreadable();
            let previous = all.clone();
            all.extend(unreadable.clone());
            previous
        };
        concerned.extend(previously_unreadable.iter().map(with_control));
        let transitions = {
            let mut store = self.write();
            let mut before = store.memory_by_namespace();
            let transitions = store.replace(objects);
            for (namespace, after) in store.memory_by_namespace() {
                let before = before.remove(&namespace).unwrap_or_default();
                self.reflector.memory.change(&namespace, before, after);
            }
            for (namespace, before) in before {
                self.reflector.memory.change(&namespace, before, 0);
            }
            transitions
        };
        *self.unreadable() = unreadable;
        // Some of these objects may have been fixed. The router must see their changes last.
        for (key, control) in concerned {
            (self.route)(&Routed::Unreadable(key, control));
        }
        for transition in transitions {
            (self.route)(&Routed::Changed(transition));
        }
        self.reflector.progress.send_modify(|progress| {
            // The version may be lower than before, if etcd was restored from a backup.
            progress.version = version;
            progress.listed = progress.started;
            progress.size = size;
        });
    }

    fn remove(&mut self, identity: &Identity) {
        let key = identity.key();
        if let Some(listing) = &mut self.listing {
            listing.forget(&key);
            return;
        }
        let was_unreadable = self.forget_unreadable(identity);
        let removed = self.take(identity);
        if removed.is_some() {
            (self.route)(&Routed::Changed((removed, None)));
            self.read_again(&identity.namespace);
        }
        if let Some(unreadable) = was_unreadable {
            (self.route)(&Routed::Unreadable(key, unreadable.control));
        }
    }

    /// Lists a namespace again if it has room for objects that it had no room for.
    fn read_again(&self, namespace: &str) {
        let is_left_out = {
            let unreadable = self.reflector.all_unreadable();
            let mut in_namespace = unreadable_in(&unreadable, namespace);
            in_namespace.any(|(_, it)| it.over_budget)
        };
        if is_left_out && self.reflector.memory.has_room(namespace) {
            self.reflector.list_namespaces([namespace.to_owned()]);
        }
    }

    /// Records that an object cannot be decoded, and removes its previous version from the store.
    fn mark_unreadable(&self, identity: &Identity, unreadable: Unreadable) {
        let key = identity.key();
        let control = unreadable.control.clone();
        self.unreadable().insert(key.clone(), unreadable);
        let removed = self.take(identity);
        if removed.is_some() {
            (self.route)(&Routed::Changed((removed, None)));
        }
        (self.route)(&Routed::Unreadable(key, control));
    }

    /// Forgets that an object could not be decoded, if this was recorded.
    fn forget_unreadable(&self, identity: &Identity) -> Option<Unreadable> {
        // This runs for each change of any pod, and unreadable objects are rare: avoid the write lock.
        if self.reflector.all_unreadable().is_empty() {
            return None;
        }
        self.unreadable().remove(&identity.key())
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
