//! An index of the workloads by what relates them to other objects: labels, claims and HookTemplates.
//!
//! Each change to a claim or an orphan causes a lookup, and a cluster may have thousands of claims and orphans. So a
//! lookup must not iterate over all workloads.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use kube::core::{Selector, SelectorExt};
use serde::Deserialize;

use crate::kinds::Whole;
use crate::runtime::objects::ObjectKey;
use crate::runtime::store::Cached;
use gamekeeper_core::api::names::{self, WorkloadKind};
use gamekeeper_core::api::{
    GameWorkload, JsonText, OnNodeGoing, PodProtection, UpdateStrategyType,
};

/// An indexed workload.
pub(super) struct Entry {
    pub kind: WorkloadKind,
    pub key: ObjectKey,
    selector: Option<Selector>,
    keys: BTreeSet<IndexKey>,
    /// Whether the workload's pods are updated in place.
    pub is_updated_in_place: bool,
    /// Whether the workload's pods have native sidecars.
    pub has_sidecars: bool,
    /// Whether it matters to the workload that a node is going to be removed: its pods are moved off the node, or the drain
    /// waits for them.
    pub heeds_going_nodes: bool,
}

/// A property that objects and their workloads have in common.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum IndexKey {
    /// A label of the selector; None for a selector without `matchLabels`.
    Label(Option<(String, String)>),
    /// What the claims' names start with, before the ordinal.
    ClaimPrefix(String),
    HookTemplate(String),
}

/// The init containers of a template.
#[derive(Default, Deserialize)]
#[serde(default)]
struct InitContainers {
    spec: InitContainersOfSpec,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct InitContainersOfSpec {
    init_containers: Option<Vec<InitContainer>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct InitContainer {
    restart_policy: Option<String>,
}

fn has_sidecars(template: &JsonText) -> bool {
    let init = template.read::<InitContainers>().spec.init_containers;
    let mut init = init.into_iter().flatten();
    init.any(|it| it.restart_policy.as_deref() == Some("Always"))
}

#[derive(Default)]
pub(super) struct WorkloadIndex {
    by_uid: HashMap<String, Entry>,
    /// Uids by namespace and key.
    by_key: HashMap<String, HashMap<IndexKey, BTreeSet<String>>>,
}

impl WorkloadIndex {
    pub(super) fn insert<K: GameWorkload>(&mut self, workload: &Whole<K>) {
        let object = &workload.object;
        let templates = object.hook_templates().into_iter().map(str::to_owned);
        let selector = object.selector();
        let label = selector.as_ref().map(|_| self.rarest_label(workload));
        let entry = Entry {
            kind: K::KIND,
            key: workload.key(),
            selector,
            keys: object
                .claim_prefixes()
                .map(IndexKey::ClaimPrefix)
                .chain(templates.map(IndexKey::HookTemplate))
                .chain(label.map(IndexKey::Label))
                .collect(),
            is_updated_in_place: object.update_type() == UpdateStrategyType::InplaceUpdate,
            has_sidecars: has_sidecars(object.pod_template()),
            heeds_going_nodes: object.protection().is_some_and(|it| {
                it.on_node_going == OnNodeGoing::Move || it.pods == PodProtection::Guarded
            }),
        };
        let by_key = self.by_key.entry(entry.key.namespace.clone()).or_default();
        for key in &entry.keys {
            let uids = by_key.entry(key.clone()).or_default();
            uids.insert(workload.uid().to_owned());
        }
        self.by_uid.insert(workload.uid().to_owned(), entry);
    }

    pub(super) fn remove(&mut self, uid: &str) {
        let Some(entry) = self.by_uid.remove(uid) else {
            return;
        };
        let namespace = &entry.key.namespace;
        let Some(by_key) = self.by_key.get_mut(namespace) else {
            return;
        };
        for key in &entry.keys {
            if let Some(uids) = by_key.get_mut(key) {
                uids.remove(uid);
                if uids.is_empty() {
                    by_key.remove(key);
                }
            }
        }
        if by_key.is_empty() {
            self.by_key.remove(namespace);
        }
    }

    /// The label of a workload's selector under which the fewest other workloads are indexed.
    fn rarest_label<K: GameWorkload>(&self, workload: &Whole<K>) -> Option<(String, String)> {
        let by_key = self.by_key.get(workload.namespace());
        let count_others = |label: &(String, String)| {
            let found = by_key?.get(&IndexKey::Label(Some(label.clone())))?;
            Some(found.len())
        };
        let labels = workload.object.label_selector().match_labels.clone();
        labels.unwrap_or_default().into_iter().min_by_key(count_others)
    }

    /// The workload with this uid, if it is in this namespace. An object of another namespace that names the uid does not
    /// belong to it.
    pub(super) fn get(&self, namespace: &str, uid: &str) -> Option<&Entry> {
        let entry = self.by_uid.get(uid);
        entry.filter(|it| it.key.namespace == namespace)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Entry> {
        self.by_uid.values()
    }

    /// The workloads in a namespace. Iterates over all workloads; it is called only for new namespaces, which are rare.
    pub(super) fn in_namespace(&self, namespace: &str) -> impl Iterator<Item = &Entry> {
        self.all().filter(move |it| it.key.namespace == namespace)
    }

    /// The workloads whose selector matches these labels.
    pub(super) fn selecting(
        &self,
        namespace: &str,
        labels: &BTreeMap<String, String>,
    ) -> impl Iterator<Item = &Entry> {
        let candidates = self.candidates(namespace, labels);
        candidates.filter(|entry| {
            let selector = entry.selector.as_ref();
            selector.is_some_and(|selector| selector.matches(labels))
        })
    }

    /// The workloads whose selector is compared with these labels.
    fn candidates(
        &self,
        namespace: &str,
        labels: &BTreeMap<String, String>,
    ) -> impl Iterator<Item = &Entry> {
        let labels = labels.iter();
        let labels = labels.map(|(key, value)| Some((key.clone(), value.clone())));
        let labels = labels.chain([None]).map(IndexKey::Label);
        labels.flat_map(move |label| self.found_by(namespace, &label))
    }

    /// The workloads that may have a pod to which a claim of this name belongs.
    pub(super) fn claiming(&self, namespace: &str, claim: &str) -> impl Iterator<Item = &Entry> {
        let prefix = names::split_ordinal(claim).map(|(prefix, _)| prefix.to_owned());
        let key = prefix.map(IndexKey::ClaimPrefix).into_iter();
        key.flat_map(move |prefix| self.found_by(namespace, &prefix))
    }

    /// The workloads that name this HookTemplate.
    pub(super) fn naming(&self, namespace: &str, template: &str) -> impl Iterator<Item = &Entry> {
        self.found_by(namespace, &IndexKey::HookTemplate(template.to_owned()))
    }

    fn found_by(&self, namespace: &str, key: &IndexKey) -> impl Iterator<Item = &Entry> + use<'_> {
        let by_key = self.by_key.get(namespace);
        let uids = by_key.and_then(|by_key| by_key.get(key));
        let uids = uids.into_iter().flatten();
        uids.filter_map(|uid| self.by_uid.get(uid))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use gamekeeper_core::api::GameDeployment;

    fn workload(name: &str, selector: Value) -> Whole<GameDeployment> {
        let workload = json!({
            "metadata": {"namespace": "games", "name": name, "uid": format!("uid-{name}")},
            "spec": {"selector": selector, "template": {}},
        });
        Whole::new(serde_json::from_value(workload).expect("workload"), false)
    }

    fn names<'k>(found: impl Iterator<Item = &'k Entry>) -> Vec<&'k str> {
        let mut names: Vec<_> = found.map(|entry| entry.key.name.as_str()).collect();
        names.sort();
        names
    }

    fn labels(labels: &[(&str, &str)]) -> BTreeMap<String, String> {
        let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        labels.iter().map(owned).collect()
    }

    #[test]
    fn an_orphan_is_compared_with_few_of_a_thousand_workloads() {
        let mut index = WorkloadIndex::default();
        for number in 0..1_000 {
            let name = format!("lobby-{number}");
            let selector = json!({"matchLabels": {"app": "game", "name": name, "team": "lobby"}});
            index.insert(&workload(&name, selector));
        }
        let labels = labels(&[("app", "game"), ("name", "lobby-17"), ("team", "lobby")]);
        assert_eq!(names(index.selecting("games", &labels)), ["lobby-17"]);
        assert!(index.candidates("games", &labels).count() <= 3);
        assert_eq!(index.candidates("other", &labels).count(), 0);
    }

    #[test]
    fn a_selector_without_match_labels_is_compared_with_all_orphans() {
        let mut index = WorkloadIndex::default();
        let exists = json!({"matchExpressions": [{"key": "app", "operator": "Exists"}]});
        index.insert(&workload("any", exists));
        index.insert(&workload("none", json!({})));
        let found = |pairs| names(index.selecting("games", &labels(pairs)));
        assert_eq!(found(&[("app", "game")]), ["any"]);
        assert!(found(&[("name", "game")]).is_empty());
        assert!(found(&[]).is_empty());
    }

    #[test]
    fn removed_workloads_leave_nothing_in_the_index() {
        let mut index = WorkloadIndex::default();
        for name in ["a", "b"] {
            index.insert(&workload(name, json!({"matchLabels": {"app": "game"}})));
        }
        index.remove("uid-a");
        let labels = labels(&[("app", "game")]);
        assert_eq!(names(index.selecting("games", &labels)), ["b"]);
        index.remove("uid-b");
        assert!(index.by_uid.is_empty() && index.by_key.is_empty());
    }
}
