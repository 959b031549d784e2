//! The SidecarSets and the namespaces that they reach.
//!
//! Until the first SidecarSet exists, nothing is spent on sidecars: namespaces are not watched, and pods of other
//! controllers are not kept.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use tokio::sync::watch;

use crate::kinds::Whole;
use crate::runtime::store::{Cached, Head};
use crate::runtime::watch::version_number;
use gamekeeper_core::api::SidecarSet;
use gamekeeper_core::sidecar_set::{
    Namespace, NamespacePolicy, SetHead, SetRevision, Sidecars, UnreadableSet,
};

/// The cached form of a namespace.
#[derive(Debug)]
pub(crate) struct CachedNamespace {
    pub namespace: Arc<Namespace>,
    uid: String,
    version: u64,
}

/// A namespace as a PartialObjectMetadata.
#[derive(Debug, Deserialize)]
pub(crate) struct NamespaceHead {
    metadata: ObjectMeta,
}

impl From<NamespaceHead> for CachedNamespace {
    fn from(head: NamespaceHead) -> Self {
        let meta = head.metadata;
        Self {
            namespace: Arc::new(Namespace {
                name: meta.name.unwrap_or_default(),
                labels: meta.labels.unwrap_or_default(),
            }),
            uid: meta.uid.unwrap_or_default(),
            version: version_number(&meta.resource_version.unwrap_or_default()),
        }
    }
}

impl Cached for CachedNamespace {
    fn head(&self) -> Head<'_> {
        Head {
            namespace: "",
            name: &self.namespace.name,
            uid: &self.uid,
            version: self.version,
            terminating: false,
            controller: None,
        }
    }
}

/// The sets and the namespaces that they reach. Readers always get a consistent state of both.
#[derive(Default)]
pub(crate) struct SidecarIndex {
    /// The namespace that this process is limited to; None if it is not limited. A limited process
    /// uses only sets for its namespace, so that only one operator writes the status of a set.
    scope: Option<String>,
    policy: NamespacePolicy,
    state: RwLock<State>,
    /// Whether there has ever been a set.
    used: watch::Sender<bool>,
    /// The namespaces that `State::open` has gained, until they are taken.
    opened: watch::Sender<BTreeSet<String>>,
}

/// The sets that reach a namespace.
#[derive(Default)]
pub(crate) struct Reaching {
    /// Those that can be decoded, in the order of injection.
    pub sets: Vec<Arc<Sidecars>>,
    /// The others. No pod that one of them may select is created.
    pub unreadable: Vec<Arc<UnreadableSet>>,
}

#[derive(Default)]
struct State {
    /// Sorted by name, which is the order of injection.
    sets: BTreeMap<String, Arc<Sidecars>>,
    /// The sets that cannot be decoded.
    unreadable: BTreeMap<String, Arc<UnreadableSet>>,
    /// The objects from which `sets` is parsed.
    objects: BTreeMap<String, Arc<SidecarSet>>,
    /// The ControllerRevisions of sets, by the uid of the set and then by name.
    revisions: HashMap<String, BTreeMap<String, Arc<SetRevision>>>,
    namespaces: BTreeMap<String, Arc<Namespace>>,
    /// The namespaces in which pods of other controllers are kept.
    open: HashSet<String>,
}

impl SidecarIndex {
    pub(super) fn new(scope: Option<&str>, policy: NamespacePolicy) -> Self {
        Self { scope: scope.map(str::to_owned), policy, ..Self::default() }
    }

    /// Whether there is currently no set.
    pub(crate) fn is_empty(&self) -> bool {
        self.read().is_empty()
    }

    /// The sets that reach a namespace. None if this is unknown: there are sets, but the namespace is not in the cache
    /// yet. No pod may be created then, because it would never get its sidecars.
    pub(crate) fn reaching(&self, namespace: &str) -> Option<Reaching> {
        let state = self.read();
        if state.is_empty() {
            return Some(Reaching::default());
        }
        let namespace = state.namespaces.get(namespace)?;
        Some(state.reaching(namespace, &self.policy))
    }

    /// The sets that reach a namespace whose labels may be newer than those in the cache.
    pub(crate) fn reaching_newer(&self, namespace: &Namespace) -> Reaching {
        self.read().reaching(namespace, &self.policy)
    }

    /// The operator's settings for namespaces.
    pub(crate) fn policy(&self) -> &NamespacePolicy {
        &self.policy
    }

    /// Whether pods in a namespace can get native sidecars.
    pub(super) fn injects_native(&self, namespace: &str) -> bool {
        let sets = self.reaching(namespace);
        sets.is_some_and(|it| it.sets.iter().any(|set| set.has_native()))
    }

    /// A namespace, if it is in the cache.
    pub(crate) fn namespace(&self, name: &str) -> Option<Arc<Namespace>> {
        self.read().namespaces.get(name).cloned()
    }

    /// A set, if it selects pods and belongs to this process.
    pub(crate) fn get(&self, set: &str) -> Option<Arc<Sidecars>> {
        self.read().sets.get(set).cloned()
    }

    /// The names of all namespaces that a set reaches, and whether pods of all controllers count there.
    pub(crate) fn reached_by(&self, set: &Sidecars) -> Vec<(String, bool)> {
        let state = self.read();
        let namespaces = state.namespaces.values();
        let reached = namespaces.filter(|namespace| set.reach.reaches(namespace, &self.policy));
        let reached = reached.map(|it| (it.name.clone(), it.is_open_to_all(&self.policy)));
        reached.collect()
    }

    /// The names of all namespaces that a set does not reach. Tokens of the set may be left there.
    pub(crate) fn not_reached_by(&self, set: &Sidecars) -> Vec<String> {
        let state = self.read();
        let others = state.namespaces.values().filter(|it| !set.reach.reaches(it, &self.policy));
        others.map(|it| it.name.clone()).collect()
    }

    /// Whether this process reports on a set.
    pub(crate) fn is_ours(&self, set: &SidecarSet) -> bool {
        self.scope.is_none() || self.scope == set.spec.namespace
    }

    /// Whether this process works in one namespace only.
    pub(crate) fn is_scoped(&self) -> bool {
        self.scope.is_some()
    }

    /// Whether there has ever been a set.
    pub(super) fn is_used(&self) -> bool {
        *self.used.borrow()
    }

    /// Returns once there is, or ever was, a set.
    pub(super) async fn until_used(&self) {
        // Cannot fail, because self holds the sender.
        let _ = self.used.subscribe().wait_for(|used| *used).await;
    }

    /// Reports when pods of other controllers must be kept in more namespaces.
    pub(super) fn opened(&self) -> watch::Receiver<BTreeSet<String>> {
        self.opened.subscribe()
    }

    /// The namespaces in which pods of other controllers must be kept since the last call.
    pub(super) fn take_opened(&self) -> BTreeSet<String> {
        let mut opened = BTreeSet::new();
        // The receiver need not learn that it has taken them.
        self.opened.send_if_modified(|it| {
            opened = std::mem::take(it);
            false
        });
        opened
    }

    /// Whether pods of other controllers in this namespace are kept.
    pub(super) fn keeps_pods_of(&self, namespace: &str) -> bool {
        self.is_used() && self.read().open.contains(namespace)
    }

    /// The names of the sets that a change concerns.
    pub(super) fn concerned_by(&self, concerns: impl Fn(&Sidecars) -> bool) -> Vec<String> {
        if !self.is_used() {
            return Vec::new();
        }
        let state = self.read();
        let sets = state.sets.values().filter(|set| concerns(set));
        sets.map(|set| set.name.clone()).collect()
    }

    /// The names of all sets.
    pub(super) fn all(&self) -> Vec<String> {
        self.read().sets.keys().cloned().collect()
    }

    /// Records the new state of a set; None if it does not exist or cannot be decoded. Returns whether it can be decoded
    /// now and could not before.
    pub(super) fn put_set(&self, name: &str, set: Option<&Whole<SidecarSet>>) -> bool {
        let ours = set.filter(|set| self.is_ours(&set.object));
        let mut is_fixed = false;
        self.change(|state| {
            is_fixed = set.is_some() && state.unreadable.remove(name).is_some();
            match ours {
                Some(set) => state.objects.insert(name.to_owned(), Arc::clone(&set.object)),
                None => state.objects.remove(name),
            };
            state.parse(name);
        });
        is_fixed
    }

    /// Records that a set cannot be decoded, and what can be decoded of it. This must happen before the readable set is
    /// removed, so that at no time pods are created as if there were no set.
    pub(super) fn put_unreadable(&self, name: &str, head: Option<&SetHead>) {
        let set = UnreadableSet::new(name, head);
        let is_ours =
            |set: &UnreadableSet| self.scope.as_ref().is_none_or(|scope| set.is_only_for(scope));
        self.change(|state| {
            match set.filter(is_ours) {
                Some(set) => state.unreadable.insert(name.to_owned(), Arc::new(set)),
                None => state.unreadable.remove(name),
            };
        });
    }

    /// Forgets a set that could not be decoded: it no longer exists.
    pub(super) fn forget_unreadable(&self, name: &str) {
        self.change(|state| {
            state.unreadable.remove(name);
        });
    }

    /// Records a ControllerRevision of the set with this uid; None if the set no longer has it. Returns the set's name,
    /// if the set is known.
    pub(super) fn put_revision(
        &self,
        uid: &str,
        name: &str,
        revision: Option<&Arc<SetRevision>>,
    ) -> Option<String> {
        let mut state = self.write();
        let revisions = state.revisions.entry(uid.to_owned()).or_default();
        match revision {
            Some(revision) => revisions.insert(name.to_owned(), Arc::clone(revision)),
            None => revisions.remove(name),
        };
        if revisions.is_empty() {
            state.revisions.remove(uid);
        }
        let mut objects = state.objects.iter();
        let (set, _) = objects.find(|(_, it)| it.metadata.uid.as_deref() == Some(uid))?;
        let set = set.clone();
        state.parse(&set);
        Some(set)
    }

    /// The ControllerRevisions of the set with this uid.
    pub(crate) fn revisions(&self, uid: &str) -> Vec<Arc<SetRevision>> {
        self.read().revisions_of(uid)
    }

    /// Records the new state of a namespace; None if it does not exist or cannot be decoded.
    pub(super) fn put_namespace(&self, name: &str, namespace: Option<&CachedNamespace>) {
        let mut state = self.write();
        match namespace {
            Some(it) => state.namespaces.insert(name.to_owned(), Arc::clone(&it.namespace)),
            None => state.namespaces.remove(name),
        };
        // The others are not looked at: there may be thousands, and each of them comes here.
        let is_open = state.namespaces.get(name).is_some_and(|it| state.is_open(it, &self.policy));
        let was_open = match is_open {
            true => !state.open.insert(name.to_owned()),
            false => state.open.remove(name),
        };
        drop(state);
        if is_open && !was_open {
            self.opened.send_modify(|it| {
                it.insert(name.to_owned());
            });
        }
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.write();
        change(&mut state);
        let open = state.open_namespaces(&self.policy);
        let opened: Vec<String> = open.difference(&state.open).cloned().collect();
        state.open = open;
        let is_used = !state.is_empty();
        drop(state);
        if is_used {
            self.used.send_if_modified(|used| !std::mem::replace(used, true));
        }
        if !opened.is_empty() {
            self.opened.send_modify(|it| it.extend(opened));
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Parses the set with this name again.
    fn parse(&mut self, name: &str) {
        let set = self.objects.get(name).and_then(|set| {
            let revisions = self.revisions_of(set.metadata.uid.as_deref().unwrap_or_default());
            Some(Sidecars::of(set)?.with_revisions(set, &revisions))
        });
        match set {
            Some(set) => self.sets.insert(name.to_owned(), Arc::new(set)),
            None => self.sets.remove(name),
        };
    }

    fn revisions_of(&self, uid: &str) -> Vec<Arc<SetRevision>> {
        let revisions = self.revisions.get(uid).into_iter();
        revisions.flat_map(|it| it.values().cloned()).collect()
    }

    fn is_empty(&self) -> bool {
        self.sets.is_empty() && self.unreadable.is_empty()
    }

    fn reaching(&self, namespace: &Namespace, policy: &NamespacePolicy) -> Reaching {
        let sets = self.sets.values().filter(|it| it.reach.reaches(namespace, policy));
        let unreadable = self.unreadable.values();
        let unreadable = unreadable.filter(|it| it.reach.reaches(namespace, policy));
        Reaching { sets: sets.cloned().collect(), unreadable: unreadable.cloned().collect() }
    }

    fn open_namespaces(&self, policy: &NamespacePolicy) -> HashSet<String> {
        let open = self.namespaces.values().filter(|it| self.is_open(it, policy));
        open.map(|it| it.name.clone()).collect()
    }

    /// Whether pods of all controllers count in a namespace, and a set reaches it.
    fn is_open(&self, namespace: &Namespace, policy: &NamespacePolicy) -> bool {
        namespace.is_open_to_all(policy)
            && self.sets.values().any(|set| set.reach.reaches(namespace, policy))
    }
}

#[cfg(test)]
mod tests;
