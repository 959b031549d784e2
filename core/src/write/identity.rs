//! What of an object must be stored as it is asked for. Policies and webhooks of the cluster may change what the operator
//! creates. It finds its objects by labels, annotations and owners, and relies on the content of some, so it does not go
//! on creating objects that it would not find, or that say something else.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{Change, Owner};
use crate::api::names;
use crate::go_json;

/// What of an object must be stored as it is asked for.
#[derive(Debug)]
pub struct Identity {
    /// Parts of the object, with what they must contain.
    parts: Vec<(Vec<String>, Value)>,
    /// The uid of the object that must control it.
    controller: Option<String>,
}

impl Identity {
    fn of(meta: &ObjectMeta, is_part: impl Fn(&str) -> bool) -> Self {
        let maps = [("labels", &meta.labels), ("annotations", &meta.annotations)].into_iter();
        let entries = maps.flat_map(|(map, entries)| {
            entries.iter().flatten().map(move |(key, value)| (map, key, value))
        });
        let parts = entries.filter(|(_, key, _)| is_part(key)).map(|(map, key, value)| {
            (vec!["metadata".to_owned(), map.to_owned(), key.clone()], json!(value))
        });
        let mut owners = meta.owner_references.iter().flatten();
        let controller = owners.find(|owner| owner.controller == Some(true));
        Self { parts: parts.collect(), controller: controller.map(|owner| owner.uid.clone()) }
    }

    fn with(mut self, field: &str, content: Value) -> Self {
        self.parts.push((vec![field.to_owned()], content));
        self
    }

    /// What is stored instead, for users; None if everything is as asked.
    pub fn difference(&self, stored: &Value) -> Option<String> {
        for (path, asked) in &self.parts {
            let found = path.iter().try_fold(stored, |it, key| it.get(key));
            if let Some(difference) = difference(&shown(path), asked, found) {
                return Some(difference);
            }
        }
        let uid = self.controller.as_deref()?;
        let owners = stored["metadata"]["ownerReferences"].as_array().into_iter().flatten();
        let mut controllers = owners.filter(|owner| owner["controller"] == true);
        let is_kept = controllers.any(|owner| owner["uid"] == uid);
        (!is_kept).then(|| "metadata.ownerReferences without this object".to_owned())
    }
}

impl Change {
    /// What of the object that this creates must be stored as it is asked for; None for other changes.
    pub fn identity(&self, owner: &Owner) -> Option<Identity> {
        match self {
            Change::CreatePod(new) => Some(pod(meta_of(new.pod.text()), owner)),
            Change::DryRun { pod: asked, .. } => {
                Some(pod(serde_json::from_value(asked["metadata"].clone()).ok()?, owner))
            }
            Change::CreateRevision(new) => {
                let body = go_json::to_bytes(&super::request::revision(new, owner));
                let mut body: Value = serde_json::from_slice(&body).ok()?;
                let meta = serde_json::from_value(body["metadata"].take()).ok()?;
                Some(Identity::of(&meta, |_| true).with("data", body["data"].take()))
            }
            Change::CreateHookRun(run) => {
                Some(Identity::of(&run.metadata, |_| true).with("spec", json!(run.spec)))
            }
            Change::CreateClaim(new) => {
                let meta = serde_json::from_value(new.claim["metadata"].clone()).ok()?;
                Some(Identity::of(&meta, |key| owner.selects_by(key)))
            }
            Change::ApplyBudget(it) => {
                let meta = serde_json::from_value(it.budget["metadata"].clone()).ok()?;
                Some(Identity::of(&meta, |_| true).with("spec", it.budget["spec"].clone()))
            }
            _ => None,
        }
    }
}

/// The operator finds a pod by the labels of the selector. The revision, the index and the sidecars say what it is.
fn pod(meta: ObjectMeta, owner: &Owner) -> Identity {
    Identity::of(&meta, |key| {
        [names::REVISION_LABEL, names::INDEX_ID].contains(&key)
            || key.starts_with(names::SIDECARS_PREFIX)
            || owner.selects_by(key)
    })
}

fn meta_of(object: &str) -> ObjectMeta {
    #[derive(Default, Deserialize)]
    struct Object {
        metadata: ObjectMeta,
    }
    serde_json::from_str::<Object>(object).unwrap_or_default().metadata
}

/// The first part of what was asked for that is not stored. What was added, such as defaults, is no difference.
fn difference(path: &str, asked: &Value, stored: Option<&Value>) -> Option<String> {
    match (asked, stored) {
        (Value::Null, None | Some(Value::Null)) => None,
        (Value::Object(asked), None) if is_empty(asked) => None,
        (Value::Array(asked), None) if asked.is_empty() => None,
        (Value::Object(asked), Some(Value::Object(stored))) => {
            let mut entries = asked.iter();
            entries.find_map(|(key, asked)| {
                difference(&format!("{path}.{key}"), asked, stored.get(key))
            })
        }
        (Value::Array(asked), Some(Value::Array(stored))) if asked.len() == stored.len() => {
            let mut items = asked.iter().zip(stored).enumerate();
            items.find_map(|(index, (asked, stored))| {
                difference(&format!("{path}[{index}]"), asked, Some(stored))
            })
        }
        (asked, Some(stored)) if asked == stored => None,
        (_, None) => Some(format!("no {path}")),
        (_, Some(Value::String(stored))) => Some(format!("{path} {stored:?}")),
        (_, Some(_)) => Some(format!("another {path}")),
    }
}

/// Whether nothing but nulls and empty objects are in a map.
fn is_empty(map: &Map<String, Value>) -> bool {
    map.values().all(|value| match value {
        Value::Null => true,
        Value::Object(map) => is_empty(map),
        _ => false,
    })
}

/// A path as kubectl prints it.
fn shown(path: &[String]) -> String {
    match path {
        [metadata, map, key] => format!("{metadata}.{map}[{key}]"),
        _ => path.join("."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity() -> Identity {
        let meta = json!({
            "labels": {"app": "game", "team": "x"},
            "annotations": {"tkex.bkbcs.tencent.com/gamedeployment-index-id": "3"},
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "A", "name": "a", "uid": "other"},
                {"apiVersion": "v1", "kind": "B", "name": "b", "uid": "owner", "controller": true},
            ],
        });
        let meta: ObjectMeta = serde_json::from_value(meta).expect("metadata");
        let content = json!({"a": [{"b": 1, "empty": {}}], "none": null, "list": []});
        Identity::of(&meta, |key| key != "team").with("spec", content)
    }

    fn stored() -> Value {
        json!({
            "metadata": {
                "labels": {"app": "game", "team": "changed", "added": "x"},
                "annotations": {"tkex.bkbcs.tencent.com/gamedeployment-index-id": "3"},
                "ownerReferences": [{"uid": "owner", "controller": true}],
            },
            "spec": {"a": [{"b": 1, "defaulted": true}], "defaulted": 5},
        })
    }

    #[test]
    fn what_is_added_or_concerns_nobody_is_no_difference() {
        assert_eq!(identity().difference(&stored()), None);
    }

    #[test]
    fn each_part_that_is_not_stored_as_asked_is_a_difference() {
        let index = "tkex.bkbcs.tencent.com~1gamedeployment-index-id";
        let changes = [
            ("/metadata/labels/app", json!("mesh"), "metadata.labels[app] \"mesh\""),
            ("/metadata/labels", Value::Null, "no metadata.labels[app]"),
            (
                &format!("/metadata/annotations/{index}"),
                json!("4"),
                "metadata.annotations[tkex.bkbcs.tencent.com/gamedeployment-index-id] \"4\"",
            ),
            (
                "/metadata/ownerReferences",
                json!([]),
                "metadata.ownerReferences without this object",
            ),
            (
                "/metadata/ownerReferences/0/controller",
                json!(false),
                "metadata.ownerReferences without this object",
            ),
            ("/spec/a/0/b", json!(2), "another spec.a[0].b"),
            ("/spec/a", json!([]), "another spec.a"),
            ("/spec", Value::Null, "another spec"),
        ];
        for (path, value, expected) in changes {
            let mut stored = stored();
            *stored.pointer_mut(path).expect(path) = value;
            assert_eq!(identity().difference(&stored).as_deref(), Some(expected), "{path}");
        }
    }
}
