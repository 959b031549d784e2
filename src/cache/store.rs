//! The index over the objects of one kind: by name, and by the object that controls them.
//!
//! Plain data: it is fed objects and answers questions, so tests need no API server.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crate::objects::ObjectKey;

/// What the index must know of an object.
#[derive(Clone, Copy, Debug)]
pub struct Head<'a> {
    /// Namespace; empty for objects that have none.
    pub namespace: &'a str,
    /// Name.
    pub name: &'a str,
    /// Uid.
    pub uid: &'a str,
    /// resourceVersion.
    pub version: u64,
    /// Whether it is Terminating.
    pub terminating: bool,
    /// Uid of the object that controls it.
    pub controller: Option<&'a str>,
}

/// An object that can be cached.
pub trait Cached: Send + Sync + 'static {
    /// What the index must know of it.
    fn head(&self) -> Head<'_>;

    /// Namespace; empty for objects that have none.
    fn namespace(&self) -> &str {
        self.head().namespace
    }
    /// Name.
    fn name(&self) -> &str {
        self.head().name
    }
    /// Name, for the index; shared with it by what is small beside its name.
    fn shared_name(&self) -> Arc<str> {
        self.name().into()
    }
    /// Uid.
    fn uid(&self) -> &str {
        self.head().uid
    }
    /// resourceVersion.
    fn version(&self) -> u64 {
        self.head().version
    }
    /// Whether it is Terminating.
    fn terminating(&self) -> bool {
        self.head().terminating
    }
    /// Uid of the object that controls it.
    fn controller(&self) -> Option<&str> {
        self.head().controller
    }
    /// What it is found by besides its name and its controller.
    fn index_keys(&self) -> Vec<String> {
        Vec::new()
    }
    /// Namespace and name.
    fn key(&self) -> ObjectKey {
        ObjectKey::new(self.namespace(), self.name())
    }
}

/// An object before and after; None where it did not exist.
pub type Transition<T> = (Option<Arc<T>>, Option<Arc<T>>);

/// The objects of one kind.
pub struct Store<T> {
    namespaces: HashMap<Box<str>, Namespace<T>>,
}

struct Namespace<T> {
    objects: HashMap<Arc<str>, Arc<T>>,
    /// Names by the uid of the controlling object; those without one under None.
    controlled: HashMap<Option<Box<str>>, BTreeSet<Arc<str>>>,
    /// Names by what objects are found by besides.
    indexed: HashMap<String, BTreeSet<Arc<str>>>,
}

impl<T> Default for Store<T> {
    fn default() -> Self {
        Self {
            namespaces: HashMap::new(),
        }
    }
}

impl<T> Default for Namespace<T> {
    fn default() -> Self {
        Self {
            objects: HashMap::new(),
            controlled: HashMap::new(),
            indexed: HashMap::new(),
        }
    }
}

impl<T: Cached> Store<T> {
    /// The object of this name.
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<T>> {
        self.namespaces.get(namespace)?.objects.get(name).cloned()
    }

    /// The objects that the object with this uid controls (None: those without a controller), by name.
    pub fn controlled_by(&self, namespace: &str, controller: Option<&str>) -> Vec<Arc<T>> {
        let Some(space) = self.namespaces.get(namespace) else {
            return Vec::new();
        };
        let names = space.controlled.get(&controller.map(Box::from));
        names
            .into_iter()
            .flatten()
            .filter_map(|name| space.objects.get(name).cloned())
            .collect()
    }

    /// The objects that are found by this, by name.
    pub fn by_index(&self, namespace: &str, key: &str) -> Vec<Arc<T>> {
        let Some(space) = self.namespaces.get(namespace) else {
            return Vec::new();
        };
        let names = space.indexed.get(key).into_iter().flatten();
        names
            .filter_map(|name| space.objects.get(name).cloned())
            .collect()
    }

    /// All objects of a namespace.
    pub fn in_namespace(&self, namespace: &str) -> Vec<Arc<T>> {
        let space = self.namespaces.get(namespace);
        space
            .into_iter()
            .flat_map(|space| space.objects.values().cloned())
            .collect()
    }

    /// All objects.
    pub fn all(&self) -> Vec<Arc<T>> {
        self.namespaces
            .values()
            .flat_map(|space| space.objects.values().cloned())
            .collect()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.namespaces.values().map(|s| s.objects.len()).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.namespaces.is_empty()
    }

    /// Stores an object in place of the one of the same name.
    pub fn put(&mut self, object: T) -> Transition<T> {
        let old = self.remove(object.namespace(), object.name());
        let object = Arc::new(object);
        let space = self
            .namespaces
            .entry(object.namespace().into())
            .or_default();
        let name = object.shared_name();
        let controller = object.controller().map(Box::from);
        let names = space.controlled.entry(controller).or_default();
        names.insert(Arc::clone(&name));
        for key in object.index_keys() {
            let names = space.indexed.entry(key).or_default();
            names.insert(Arc::clone(&name));
        }
        space.objects.insert(name, Arc::clone(&object));
        (old, Some(object))
    }

    /// Takes an object out.
    pub fn remove(&mut self, namespace: &str, name: &str) -> Option<Arc<T>> {
        let space = self.namespaces.get_mut(namespace)?;
        let old = space.objects.remove(name)?;
        let controller = old.controller().map(Box::from);
        if let Some(names) = space.controlled.get_mut(&controller) {
            names.remove(name);
            if names.is_empty() {
                space.controlled.remove(&controller);
            }
        }
        for key in old.index_keys() {
            if let Some(names) = space.indexed.get_mut(&key) {
                names.remove(name);
                if names.is_empty() {
                    space.indexed.remove(&key);
                }
            }
        }
        if space.objects.is_empty() {
            self.namespaces.remove(namespace);
        }
        Some(old)
    }

    /// Makes the store hold exactly these objects; tells what that changed, deletions included.
    pub fn replace(&mut self, objects: HashMap<ObjectKey, T>) -> Vec<Transition<T>> {
        let mut transitions = Vec::new();
        for old in self.all() {
            if !objects.contains_key(&old.key()) {
                let gone = self.remove(old.namespace(), old.name());
                transitions.push((gone, None));
            }
        }
        for object in objects.into_values() {
            let known = self.get(object.namespace(), object.name());
            if known.is_none_or(|known| known.version() != object.version()) {
                transitions.push(self.put(object));
            }
        }
        transitions
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Thing {
        name: &'static str,
        controller: Option<&'static str>,
        version: u64,
    }

    impl Cached for Thing {
        fn head(&self) -> Head<'_> {
            Head {
                namespace: "games",
                name: self.name,
                uid: self.name,
                version: self.version,
                terminating: false,
                controller: self.controller,
            }
        }

        fn index_keys(&self) -> Vec<String> {
            let stem = self.name.trim_end_matches(|it: char| it.is_ascii_digit());
            vec![stem.to_owned()]
        }
    }

    fn thing(name: &'static str, controller: Option<&'static str>, version: u64) -> Thing {
        Thing {
            name,
            controller,
            version,
        }
    }

    fn names(found: &[Arc<Thing>]) -> Vec<&str> {
        found.iter().map(|thing| thing.name).collect()
    }

    #[test]
    fn objects_are_found_by_the_one_who_controls_them() {
        let mut store = Store::default();
        store.put(thing("b", Some("owner"), 1));
        store.put(thing("a", Some("owner"), 2));
        store.put(thing("orphan", None, 3));
        let owned = store.controlled_by("games", Some("owner"));
        assert_eq!(names(&owned), ["a", "b"]);
        assert_eq!(names(&store.controlled_by("games", None)), ["orphan"]);
    }

    #[test]
    fn objects_are_found_by_what_they_are_akin_to() {
        let mut store = Store::default();
        for name in ["data-world-1", "data-world-2", "data-other-1"] {
            store.put(thing(name, None, 1));
        }
        let by_index = |store: &Store<Thing>| {
            let found = store.by_index("games", "data-world-");
            found.iter().map(|thing| thing.name).collect::<Vec<_>>()
        };
        assert_eq!(by_index(&store), ["data-world-1", "data-world-2"]);
        store.put(thing("data-world-2", Some("owner"), 2));
        assert_eq!(by_index(&store), ["data-world-1", "data-world-2"]);
        store.remove("games", "data-world-1");
        assert_eq!(by_index(&store), ["data-world-2"]);
        assert!(store.by_index("other", "data-world-").is_empty());
    }

    #[test]
    fn an_adopted_object_changes_its_place() {
        let mut store = Store::default();
        store.put(thing("a", None, 1));
        store.put(thing("a", Some("owner"), 2));
        assert!(store.controlled_by("games", None).is_empty());
        assert_eq!(store.controlled_by("games", Some("owner")).len(), 1);
    }

    #[test]
    fn an_emptied_store_keeps_nothing() {
        let mut store = Store::default();
        store.put(thing("a", Some("owner"), 1));
        store.remove("games", "a");
        assert!(store.is_empty());
    }

    #[test]
    fn a_list_tells_what_was_missed_and_nothing_else() {
        let mut store = Store::default();
        for name in ["gone", "changed", "same"] {
            store.put(thing(name, None, 1));
        }
        let listed = [("changed", 2), ("same", 1), ("new", 3)];
        let listed = listed.map(|(name, version)| {
            let object = thing(name, None, version);
            (object.key(), object)
        });
        let mut told: Vec<_> = store
            .replace(HashMap::from(listed))
            .iter()
            .map(|(old, new)| {
                let version = |side: &Option<Arc<Thing>>| side.as_ref().map(|thing| thing.version);
                let name = old.as_ref().or(new.as_ref()).map(|thing| thing.name);
                (name, version(old), version(new))
            })
            .collect();
        told.sort();
        let expected = [
            (Some("changed"), Some(1), Some(2)),
            (Some("gone"), Some(1), None),
            (Some("new"), None, Some(3)),
        ];
        assert_eq!(told, expected);
    }
}
