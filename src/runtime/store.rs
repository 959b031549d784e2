//! The objects of one kind, indexed by name and by controller. Plain data, without a client.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::sync::Arc;

use crate::runtime::objects::ObjectKey;

/// The metadata of an object that the index needs.
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
    /// The metadata that the index needs.
    fn head(&self) -> Head<'_>;

    /// Namespace; empty for objects that have none.
    fn namespace(&self) -> &str {
        self.head().namespace
    }
    /// Name.
    fn name(&self) -> &str {
        self.head().name
    }
    /// Name, for the index. Small objects share this string with the index.
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
    /// Whether it differs from the cached state of the same object.
    fn differs_from(&self, cached: &Self) -> bool {
        self.version() != cached.version()
    }
    /// Whether it is Terminating.
    fn terminating(&self) -> bool {
        self.head().terminating
    }
    /// Uid of the object that controls it.
    fn controller(&self) -> Option<&str> {
        self.head().controller
    }
    /// Further keys by which the index finds the object.
    fn index_keys(&self) -> Vec<String> {
        Vec::new()
    }
    /// How many bytes of memory it takes, roughly; 0 for kinds that only administrators create.
    fn memory(&self) -> usize {
        0
    }
    /// Namespace and name.
    fn key(&self) -> ObjectKey {
        ObjectKey::new(self.namespace(), self.name())
    }
}

/// An object before and after a change; None where it does not exist.
pub type Transition<T> = (Option<Arc<T>>, Option<Arc<T>>);

/// The objects of one kind.
pub struct Store<T> {
    namespaces: HashMap<Box<str>, Namespace<T>>,
}

struct Namespace<T> {
    objects: HashMap<Arc<str>, Arc<T>>,
    /// Names by the uid of the controller; None if there is no controller.
    controlled: HashMap<Option<Box<str>>, BTreeSet<Arc<str>>>,
    /// Names by [`Cached::index_keys`].
    indexed: HashMap<String, BTreeSet<Arc<str>>>,
    /// The sum of [`Cached::memory`].
    memory: usize,
}

impl<T> Default for Store<T> {
    fn default() -> Self {
        Self { namespaces: HashMap::new() }
    }
}

impl<T> Default for Namespace<T> {
    fn default() -> Self {
        Self {
            objects: HashMap::new(),
            controlled: HashMap::new(),
            indexed: HashMap::new(),
            memory: 0,
        }
    }
}

impl<T: Cached> Store<T> {
    /// The object with this name.
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<T>> {
        self.namespaces.get(namespace)?.objects.get(name).cloned()
    }

    /// The objects with this controller (None: those without a controller), sorted by name.
    pub fn controlled_by(&self, namespace: &str, controller: Option<&str>) -> Vec<Arc<T>> {
        let controller = controller.map(Box::from);
        self.objects_named(namespace, |space| space.controlled.get(&controller))
    }

    /// The objects with this key among their [`Cached::index_keys`], sorted by name.
    pub fn by_index(&self, namespace: &str, key: &str) -> Vec<Arc<T>> {
        self.objects_named(namespace, |space| space.indexed.get(key))
    }

    fn objects_named(
        &self,
        namespace: &str,
        names: impl Fn(&Namespace<T>) -> Option<&BTreeSet<Arc<str>>>,
    ) -> Vec<Arc<T>> {
        let Some(space) = self.namespaces.get(namespace) else {
            return Vec::new();
        };
        let names = names(space).into_iter().flatten();
        let objects = names.filter_map(|name| space.objects.get(name).cloned());
        objects.collect()
    }

    /// All objects.
    pub fn all(&self) -> Vec<Arc<T>> {
        let spaces = self.namespaces.values();
        let objects = spaces.flat_map(|space| space.objects.values().cloned());
        objects.collect()
    }

    /// The objects of a namespace.
    pub fn in_namespace(&self, namespace: &str) -> impl Iterator<Item = &Arc<T>> {
        let objects = self.namespaces.get(namespace).into_iter();
        objects.flat_map(|space| space.objects.values())
    }

    /// The memory of the objects in a namespace, in bytes.
    pub(crate) fn memory(&self, namespace: &str) -> usize {
        let space = self.namespaces.get(namespace);
        space.map_or(0, |space| space.memory)
    }

    /// The memory of the objects in each namespace, in bytes.
    pub(crate) fn memory_by_namespace(&self) -> HashMap<Box<str>, usize> {
        let spaces = self.namespaces.iter();
        spaces.map(|(name, space)| (name.clone(), space.memory)).collect()
    }

    /// The number of objects.
    pub fn len(&self) -> usize {
        self.namespaces.values().map(|it| it.objects.len()).sum()
    }

    /// Whether the store has no objects.
    pub fn is_empty(&self) -> bool {
        self.namespaces.is_empty()
    }

    /// Inserts an object, or replaces the one with the same name.
    pub fn put(&mut self, object: T) -> Transition<T> {
        let old = self.remove(object.namespace(), object.name());
        let object = Arc::new(object);
        let space = self.namespaces.entry(object.namespace().into());
        let space = space.or_default();
        let name = object.shared_name();
        let controller = object.controller().map(Box::from);
        let names = space.controlled.entry(controller).or_default();
        names.insert(Arc::clone(&name));
        for key in object.index_keys() {
            let names = space.indexed.entry(key).or_default();
            names.insert(Arc::clone(&name));
        }
        space.memory += object.memory();
        space.objects.insert(name, Arc::clone(&object));
        (old, Some(object))
    }

    /// Removes an object.
    pub fn remove(&mut self, namespace: &str, name: &str) -> Option<Arc<T>> {
        let space = self.namespaces.get_mut(namespace)?;
        let old = space.objects.remove(name)?;
        space.memory = space.memory.saturating_sub(old.memory());
        remove_name(&mut space.controlled, &old.controller().map(Box::from), name);
        for key in old.index_keys() {
            remove_name(&mut space.indexed, &key, name);
        }
        if space.objects.is_empty() {
            self.namespaces.remove(namespace);
        }
        Some(old)
    }

    /// Replaces all objects, and returns the changes, deletions included.
    pub fn replace(&mut self, objects: HashMap<ObjectKey, T>) -> Vec<Transition<T>> {
        let mut transitions = Vec::new();
        for old in self.all() {
            if !objects.contains_key(&old.key()) {
                let removed = self.remove(old.namespace(), old.name());
                transitions.push((removed, None));
            }
        }
        for object in objects.into_values() {
            let known = self.get(object.namespace(), object.name());
            if known.is_none_or(|known| object.differs_from(&known)) {
                transitions.push(self.put(object));
            }
        }
        transitions
    }
}

/// Removes a name from the names of a key, and removes the key too if no other name is left.
fn remove_name<K: Eq + Hash>(index: &mut HashMap<K, BTreeSet<Arc<str>>>, key: &K, name: &str) {
    if let Some(names) = index.get_mut(key) {
        names.remove(name);
        if names.is_empty() {
            index.remove(key);
        }
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
        Thing { name, controller, version }
    }

    fn names(found: &[Arc<Thing>]) -> Vec<&str> {
        found.iter().map(|thing| thing.name).collect()
    }

    #[test]
    fn objects_are_found_by_their_controller() {
        let mut store = Store::default();
        store.put(thing("b", Some("owner"), 1));
        store.put(thing("a", Some("owner"), 2));
        store.put(thing("orphan", None, 3));
        let owned = store.controlled_by("games", Some("owner"));
        assert_eq!(names(&owned), ["a", "b"]);
        assert_eq!(names(&store.controlled_by("games", None)), ["orphan"]);
    }

    #[test]
    fn objects_are_found_by_their_index_keys() {
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
    fn an_adopted_object_is_found_by_its_new_controller() {
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
    fn a_list_returns_the_missed_changes_and_no_others() {
        let mut store = Store::default();
        for name in ["deleted", "changed", "same"] {
            store.put(thing(name, None, 1));
        }
        let listed = [("changed", 2), ("same", 1), ("new", 3)];
        let listed = listed.map(|(name, version)| {
            let object = thing(name, None, version);
            (object.key(), object)
        });
        let mut changes: Vec<_> = store
            .replace(HashMap::from(listed))
            .iter()
            .map(|(old, new)| {
                let version = |side: &Option<Arc<Thing>>| side.as_ref().map(|thing| thing.version);
                let name = old.as_ref().or(new.as_ref()).map(|thing| thing.name);
                (name, version(old), version(new))
            })
            .collect();
        changes.sort();
        let expected = [
            (Some("changed"), Some(1), Some(2)),
            (Some("deleted"), Some(1), None),
            (Some("new"), None, Some(3)),
        ];
        assert_eq!(changes, expected);
    }
}
