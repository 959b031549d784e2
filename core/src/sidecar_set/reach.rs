//! Whose pods get the containers of a SidecarSet.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, Time};
use kube::core::{Selector, SelectorExt};
use serde::Deserialize;

use super::namespace::{Namespace, NamespacePolicy};

/// Whose pods get the containers of a set.
#[derive(Clone, Debug, Default)]
pub struct Reach {
    selector: Selector,
    /// The only namespace whose pods get them; None if the set is not limited to one.
    namespace: Option<String>,
    namespaces: Option<Selector>,
}

/// The fields of a SidecarSet that decide whose pods get its containers.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ReachFields {
    /// Labels of the pods.
    pub selector: LabelSelector,
    /// The only namespace of the pods.
    pub namespace: Option<String>,
    /// Labels of the namespaces.
    pub namespace_selector: Option<LabelSelector>,
}

impl Reach {
    /// None if the set selects no pods, because a selector is empty or invalid.
    pub(super) fn of(fields: &ReachFields) -> Option<Self> {
        let parsed = |selector: &LabelSelector| Selector::try_from(selector.clone()).ok();
        Some(Self {
            selector: parsed(&fields.selector).filter(|it| !it.selects_all())?,
            namespace: fields.namespace.clone(),
            namespaces: match &fields.namespace_selector {
                Some(namespaces) => Some(parsed(namespaces)?),
                None => None,
            },
        })
    }

    /// Whether pods in a namespace can get the set's containers. Pods in the operator's own namespace can get them only
    /// if the set names that namespace, even if the operator works in no other namespace.
    pub fn reaches(&self, namespace: &Namespace, policy: &NamespacePolicy) -> bool {
        let is_named = match &self.namespace {
            Some(only) => *only == namespace.name,
            None => policy.own.as_ref() != Some(&namespace.name),
        };
        let labels = &namespace.labels;
        let is_selected = self.namespaces.as_ref().is_none_or(|it| it.matches(labels));
        is_named && is_selected && !namespace.is_closed()
    }

    /// Whether a pod with these labels gets the set's containers, provided that the set reaches the pod's namespace.
    pub fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        self.selector.matches(labels)
    }
}

/// A SidecarSet that cannot be decoded, because a newer version wrote it: its containers are unknown. A pod that is
/// created without them would never get them, so no pod that it may select is created.
#[derive(Clone, Debug)]
pub struct UnreadableSet {
    name: String,
    /// Whose pods it selects. If not even that can be decoded, or a selector has an operator that is not known, it may
    /// select any pod.
    pub reach: Reach,
}

/// What can be decoded of a SidecarSet that a newer version wrote.
#[derive(Debug, Deserialize)]
pub struct SetHead {
    metadata: HeadMeta,
    spec: ReachFields,
}

/// No more of the metadata: managed fields would take many times the length of their text.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct HeadMeta {
    deletion_timestamp: Option<Time>,
}

impl UnreadableSet {
    /// A set, and what can be decoded of it. None if the set selects no pods.
    pub fn new(name: &str, head: Option<&SetHead>) -> Option<Self> {
        let is_empty = |it: &LabelSelector| {
            it.match_labels.as_ref().is_none_or(BTreeMap::is_empty)
                && it.match_expressions.as_ref().is_none_or(Vec::is_empty)
        };
        let selects_nothing =
            |it: &SetHead| it.metadata.deletion_timestamp.is_some() || is_empty(&it.spec.selector);
        if head.is_some_and(selects_nothing) {
            return None;
        }
        let reach = head.and_then(|it| Reach::of(&it.spec)).unwrap_or_default();
        Some(Self { name: name.to_owned(), reach })
    }

    /// Whether it is for pods in this namespace alone.
    pub fn is_only_for(&self, namespace: &str) -> bool {
        self.reach.namespace.as_deref() == Some(namespace)
    }

    /// Why no pod that the set selects is created, for users.
    pub fn why_none_is_created(&self) -> String {
        let name = &self.name;
        format!(
            "SidecarSet {name} may select these pods, and this version of the operator cannot read it, so no pod is \
             created without its containers: kubectl describe sidecarset {name} shows the value that is not known; \
             replace it, or upgrade the operator"
        )
    }
}

/// The first of these sets that may select a pod with these labels.
pub fn unreadable_for<'a>(
    sets: &'a [Arc<UnreadableSet>],
    labels: &BTreeMap<String, String>,
) -> Option<&'a UnreadableSet> {
    sets.iter().map(AsRef::as_ref).find(|set| set.reach.selects(labels))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_set_that_cannot_be_read_selects_at_least_what_a_newer_version_might() {
        let selector = |operator: &str| json!({"matchExpressions": [{"key": "app", "operator": operator, "values": ["a"]}]});
        let selects = |metadata: Value, selector: Value| {
            let head = json!({"metadata": metadata, "spec": {"selector": selector}});
            let head = serde_json::from_value(head).expect("a head");
            let set = UnreadableSet::new("log", Some(&head))?;
            Some(["a", "b"].map(|app| {
                set.reach.selects(&BTreeMap::from([("app".to_owned(), app.to_owned())]))
            }))
        };
        assert_eq!(selects(json!({}), selector("In")), Some([true, false]));
        assert_eq!(selects(json!({}), selector("Someday")), Some([true, true]));
        assert_eq!(selects(json!({}), json!({})), None);
        assert_eq!(selects(json!({}), json!({"matchLabels": {}})), None);
        let deleted = json!({"deletionTimestamp": "2026-11-28T00:00:00Z"});
        assert_eq!(selects(deleted, selector("In")), None);
    }
}
