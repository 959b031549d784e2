//! Revisions: which one belongs to the current template, and which ones are kept.
//!
//! A revision is a ControllerRevision named `WORKLOAD-HASH`. Templates are compared by meaning: neither writing
//! `cpu: "0.5"` instead of `500m`, nor adding a default that was omitted before, creates a new revision.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::api::{JsonText, names};
use crate::plan::decision::{Action, NewRevision};
use crate::plan::observed::RevisionName;
use crate::plan::quantity;
use crate::plan::workload::Workload;
use crate::plan::world::{Revision, World};

/// The revisions of a workload.
pub struct Revisions<'a> {
    by_name: BTreeMap<RevisionName<'a>, &'a Revision>,
    /// The revision of the current template.
    pub update: &'a Revision,
}

impl<'a> Revisions<'a> {
    /// The revision with this name.
    pub fn get(&self, name: RevisionName) -> Option<&'a Revision> {
        self.by_name.get(&name).copied()
    }
}

/// The revisions of a workload, and what has to be done first.
pub struct FoundRevisions<'a> {
    /// None if the update revision has to be created or adopted first; plan again once that is observed.
    pub revisions: Option<Revisions<'a>>,
    /// Creates, adopts or renumbers the update revision.
    pub action: Option<Action>,
    /// How often a revision's name was taken by another object.
    pub collisions: i32,
}

/// Finds the revision of the current template.
pub fn find<'a>(workload: &Workload, world: &'a World) -> FoundRevisions<'a> {
    let mut collisions = workload.progress.collision_count;
    let revisions = &world.revisions;
    let wanted = canonical(&workload.template);
    let highest = revisions.iter().map(|it| it.number).max().unwrap_or(0);
    // The newest revision is compared first: it is nearly always the one, and only one is parsed at a time.
    let mut newest_first: Vec<_> = revisions.iter().collect();
    newest_first.sort_by_key(|it| Reverse(it.number));
    let is_same = |it: &&Arc<Revision>| canonical(&it.template.parse()) == wanted;
    let matching = newest_first.into_iter().find(is_same);
    let number = highest + 1;
    let (revisions, action) = match matching {
        Some(update) if update.controlled => {
            let name = update.name.clone();
            let renumber = Action::RenumberRevision { name, number };
            let by_name = revisions.iter().map(|it| (it.name(), it.as_ref()));
            let by_name = by_name.collect();
            let action = (update.number < highest).then_some(renumber);
            (Some(Revisions { by_name, update }), action)
        }
        Some(orphan) => {
            let (name, uid) = (orphan.name.clone(), orphan.uid.clone());
            (None, Some(Action::AdoptRevision { name, uid }))
        }
        None => {
            let mut name = revision_name(workload, &wanted, collisions);
            let is_taken = |name: &String| {
                revisions.iter().any(|it| it.name == *name) || world.taken.contains(name)
            };
            while is_taken(&name) {
                collisions += 1;
                name = revision_name(workload, &wanted, collisions);
            }
            let new = NewRevision {
                name,
                number,
                template: JsonText::from(&workload.template),
                cause: workload.annotations.get(names::CHANGE_CAUSE).cloned(),
            };
            (None, Some(Action::CreateRevision(new)))
        }
    };
    FoundRevisions {
        revisions,
        action,
        collisions,
    }
}

fn revision_name(workload: &Workload, canonical: &Value, collision_count: i32) -> String {
    let mut text = canonical.to_string();
    if collision_count > 0 {
        text.push_str(&collision_count.to_string());
    }
    format!("{}-{}", workload.name, names::safe_hash(text.as_bytes()))
}

/// Deletes the oldest revisions beyond the history limit. Those in `named`, which a pod or the status
/// refers to, are never deleted and do not count toward the limit.
pub fn prune(
    workload: &Workload,
    revisions: &[Arc<Revision>],
    named: &HashSet<RevisionName>,
) -> Vec<Action> {
    let mut unused: Vec<_> = revisions
        .iter()
        .filter(|revision| revision.controlled && !named.contains(&revision.name()))
        .collect();
    unused.sort_by_key(|revision| Reverse(revision.number));
    unused
        .into_iter()
        .skip(workload.history_limit)
        .map(|revision| Action::DeleteRevision {
            name: revision.name.clone(),
            uid: revision.uid.clone(),
        })
        .collect()
}

/// The pod template in a ControllerRevision's data, without the marker that makes it a patch; null
/// if there is no template.
pub fn recorded_template(data: &JsonText) -> JsonText {
    let mut fields = data.read::<RecordedData>().spec.template;
    fields.remove("$patch");
    match fields.is_empty() {
        true => JsonText::default(),
        false => JsonText::of(&fields),
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RecordedData<'a> {
    #[serde(borrow)]
    spec: RecordedSpec<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RecordedSpec<'a> {
    #[serde(borrow)]
    template: BTreeMap<String, &'a RawValue>,
}

/// The canonical form of a template, which is the same for all templates with the same meaning. Nulls, empty lists,
/// defaults of the API server and empty maps are left out, except for the empty maps that have a meaning. Quantities are
/// canonical, too.
pub fn canonical(template: &Value) -> Value {
    let mut template = prune_empty(template).unwrap_or(Value::Object(Map::new()));
    if let Some(metadata) = template.get_mut("metadata").and_then(Value::as_object_mut) {
        // The API server adds this field to embedded metadata; it has no effect on pods.
        metadata.remove("creationTimestamp");
        if metadata.is_empty() {
            template
                .as_object_mut()
                .map(|template| template.remove("metadata"));
        }
    }
    if let Some(spec) = template.get_mut("spec").and_then(Value::as_object_mut) {
        drop_defaults(spec, &POD_DEFAULTS);
        for list in ["containers", "initContainers"] {
            for container in spec
                .get_mut(list)
                .and_then(Value::as_array_mut)
                .into_iter()
                .flatten()
            {
                canonical_container(container);
            }
        }
    }
    template
}

fn canonical_container(container: &mut Value) {
    let Some(container) = container.as_object_mut() else {
        return;
    };
    drop_defaults(container, &CONTAINER_DEFAULTS);
    for port in container
        .get_mut("ports")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        if let Some(port) = port.as_object_mut() {
            drop_defaults(port, &[("protocol", "TCP")]);
        }
    }
    for kind in ["requests", "limits"] {
        let quantities = container
            .get_mut("resources")
            .and_then(|it| it.get_mut(kind));
        for (_, value) in quantities
            .and_then(Value::as_object_mut)
            .into_iter()
            .flatten()
        {
            *value = Value::String(quantity::canonical(value));
        }
    }
}

/// Defaults that the API server sets in pods.
const POD_DEFAULTS: [(&str, &str); 4] = [
    ("restartPolicy", "Always"),
    ("dnsPolicy", "ClusterFirst"),
    ("schedulerName", "default-scheduler"),
    ("terminationGracePeriodSeconds", "30"),
];
const CONTAINER_DEFAULTS: [(&str, &str); 2] = [
    ("terminationMessagePath", "/dev/termination-log"),
    ("terminationMessagePolicy", "File"),
];

fn drop_defaults(object: &mut Map<String, Value>, defaults: &[(&str, &str)]) {
    object.retain(|key, value| {
        let text = match &*value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        !defaults
            .iter()
            .any(|(name, default)| name == key && *default == text)
    });
}

/// Removes nulls, empty lists and empty objects, except objects that have a meaning even if they are empty.
fn prune_empty(value: &Value) -> Option<Value> {
    match value {
        Value::Null => None,
        Value::Object(map) => {
            let kept: Map<String, Value> = map
                .iter()
                .filter_map(|(key, value)| {
                    let pruned = prune_empty(value).or_else(|| meaningful_empty(key, value));
                    pruned.map(|value| (key.clone(), value))
                })
                .collect();
            (!kept.is_empty()).then_some(Value::Object(kept))
        }
        Value::Array(list) if list.is_empty() => None,
        Value::Array(list) => Some(Value::Array(
            list.iter()
                .map(|it| prune_empty(it).unwrap_or(Value::Null))
                .collect(),
        )),
        other => Some(other.clone()),
    }
}

/// An empty object that has a meaning: without `emptyDir: {}`, for example, a volume has no source.
fn meaningful_empty(key: &str, value: &Value) -> Option<Value> {
    let has_meaning = !matches!(
        key,
        "metadata" | "resources" | "securityContext" | "labels" | "annotations"
    ) && value.is_object();
    has_meaning.then(|| value.clone())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn templates_with_the_same_meaning_have_the_same_canonical_form() {
        let short = json!({"spec": {"containers": [
            {"name": "game", "image": "game:v1", "resources": {"requests": {"cpu": 0.5}}}]}});
        let long = json!({
            "metadata": {"creationTimestamp": null, "annotations": {}},
            "spec": {
                "restartPolicy": "Always", "terminationGracePeriodSeconds": 30, "securityContext": {},
                "containers": [{
                    "resources": {"requests": {"cpu": "500m"}}, "image": "game:v1", "name": "game",
                    "env": [], "terminationMessagePolicy": "File",
                }],
            },
        });
        assert_eq!(canonical(&short), canonical(&long));
    }

    #[test]
    fn fields_with_a_meaning_are_kept() {
        let volume =
            json!({"spec": {"containers": [], "volumes": [{"name": "data", "emptyDir": {}}]}});
        assert_eq!(
            canonical(&volume).pointer("/spec/volumes/0/emptyDir"),
            Some(&json!({}))
        );
        let grace = json!({"spec": {"terminationGracePeriodSeconds": 60}});
        assert_ne!(canonical(&grace), canonical(&json!({"spec": {}})));
    }
}
