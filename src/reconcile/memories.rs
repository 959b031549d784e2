//! What the loop remembers about the objects of one kind between their plans.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::apply::Pace;
use crate::kinds::Cache;
use crate::runtime::objects::ObjectKey;

/// What is remembered about one object.
#[derive(Debug, Default)]
pub(super) struct Remembered<M> {
    /// The object's uid.
    pub uid: String,
    pub memory: M,
    pub pace: Pace,
}

/// By object. An entry is removed while its object is reconciled.
#[derive(Debug, Default)]
pub(super) struct Memories<M>(Mutex<HashMap<ObjectKey, Remembered<M>>>);

impl<M: Default> Memories<M> {
    /// Takes what is remembered about an object, until [`Self::keep`].
    pub(super) fn recall(&self, cache: &Cache, key: &ObjectKey, uid: &str) -> Remembered<M> {
        match self.entries().remove(key) {
            Some(remembered) if remembered.uid == uid => return remembered,
            // It belongs to a deleted object of the same name.
            Some(old) => forget_writes(cache, key, &old.uid),
            None => {}
        }
        Remembered { uid: uid.to_owned(), ..Remembered::default() }
    }

    pub(super) fn keep(&self, key: ObjectKey, remembered: Remembered<M>) {
        self.entries().insert(key, remembered);
    }

    /// Whether anything is remembered about the object with this uid.
    pub(super) fn knows(&self, key: &ObjectKey, uid: &str) -> bool {
        self.entries().get(key).is_some_and(|it| it.uid == uid)
    }

    /// Forgets an object that was deleted. Returns whether anything was remembered about it.
    pub(super) fn forget(&self, cache: &Cache, key: &ObjectKey) -> bool {
        let remembered = self.entries().remove(key);
        remembered.inspect(|it| forget_writes(cache, key, &it.uid)).is_some()
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<ObjectKey, Remembered<M>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Forgets what the cache holds for an object that was deleted.
fn forget_writes(cache: &Cache, key: &ObjectKey, uid: &str) {
    cache.expectations.forget(uid);
    cache.unstored_runs.remove_all_of(&key.namespace, uid);
}
