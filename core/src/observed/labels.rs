//! The labels of a pod.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

use crate::api::names::REVISION_LABEL;

/// The labels of a pod. They are read as a map, and changed only through this type.
///
/// A plan compares the revisions of all pods many times. So the revision is kept outside the map as well: a lookup in
/// the map compares strings that are scattered in memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Labels {
    all: BTreeMap<String, String>,
    revision: Arc<str>,
}

impl Labels {
    /// Wraps labels. Pods of one revision can share the revision's name: `share` returns the string to keep.
    pub fn new(all: BTreeMap<String, String>, share: impl FnOnce(&str) -> Arc<str>) -> Self {
        let revision = all.get(REVISION_LABEL).map_or("", String::as_str);
        Self { revision: share(revision), all }
    }

    /// The label with the revision; empty if there is none.
    pub fn revision(&self) -> &str {
        &self.revision
    }

    /// Sets a label.
    pub fn insert(&mut self, key: String, value: String) {
        if key == REVISION_LABEL {
            self.revision = value.as_str().into();
        }
        self.all.insert(key, value);
    }

    /// Removes a label.
    pub fn remove(&mut self, key: &str) {
        if key == REVISION_LABEL {
            self.revision = Arc::default();
        }
        self.all.remove(key);
    }
}

impl Deref for Labels {
    type Target = BTreeMap<String, String>;

    fn deref(&self) -> &Self::Target {
        &self.all
    }
}

impl From<BTreeMap<String, String>> for Labels {
    fn from(all: BTreeMap<String, String>) -> Self {
        Self::new(all, |revision| revision.into())
    }
}

impl FromIterator<(String, String)> for Labels {
    fn from_iter<T: IntoIterator<Item = (String, String)>>(labels: T) -> Self {
        BTreeMap::from_iter(labels).into()
    }
}
