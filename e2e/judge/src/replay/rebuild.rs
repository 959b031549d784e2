//! Rebuilds objects from responses that contain only metadata.
//!
//! The operator requests only metadata in responses, so the log has the body of its request and the resulting
//! metadata. Together with the previous object they determine the object after the write.

use json_patch::Patch;
use serde_json::Value;

use crate::evidence::Event;

/// Whether a response contains only metadata.
pub fn is_partial(answer: &Value) -> bool {
    answer.get("kind").and_then(Value::as_str) == Some("PartialObjectMetadata")
}

/// The object after a write whose response contains only metadata.
pub fn rebuild(event: &Event, before: Option<&Value>, answer: &Value) -> Value {
    let is_status = event.object_ref.as_ref().is_some_and(|it| it.subresource == "status");
    let sent = event.request_object.as_ref();
    let before = before.cloned();
    let mut object = match (event.verb.as_str(), before) {
        ("patch", Some(before)) => patched(before, sent),
        ("update", Some(mut before)) if is_status => {
            before["status"] =
                sent.and_then(|sent| sent.get("status")).cloned().unwrap_or_default();
            before
        }
        ("delete", Some(before)) => before,
        _ => sent.cloned().unwrap_or_default(),
    };
    object["metadata"] = answer["metadata"].clone();
    object
}

fn patched(mut object: Value, patch: Option<&Value>) -> Value {
    match patch {
        Some(Value::Array(_)) => {
            let patch = patch.cloned().map(serde_json::from_value::<Patch>);
            if let Some(Ok(patch)) = patch {
                // The API server has accepted the patch. If it does not apply here, that is because of a
                // default that is missing in this object.
                let _ = json_patch::patch(&mut object, &patch);
            }
        }
        Some(patch) => merge(&mut object, patch),
        None => {}
    }
    object
}

/// The part of Kubernetes' strategic merge that pods need: a merge patch in which lists of objects are merged
/// by the first of the keys `type`, `uid` and `name` that their items have.
fn merge(object: &mut Value, patch: &Value) {
    let Some(fields) = patch.as_object() else {
        *object = patch.clone();
        return;
    };
    if !object.is_object() {
        *object = Value::Object(serde_json::Map::new());
    }
    for (key, value) in fields.iter().filter(|(key, _)| !key.starts_with('$')) {
        match value {
            Value::Null => {
                object.as_object_mut().map(|object| object.remove(key));
            }
            Value::Array(items) if items.iter().all(Value::is_object) => {
                merge_list(&mut object[key.as_str()], items);
            }
            _ => merge(&mut object[key.as_str()], value),
        }
    }
}

fn merge_list(list: &mut Value, items: &[Value]) {
    if !list.is_array() {
        *list = Value::Array(Vec::new());
    }
    let Some(list) = list.as_array_mut() else {
        return;
    };
    for item in items {
        let key = ["type", "uid", "name"].into_iter().find(|key| item.get(key).is_some());
        let has_same_key = |other: &Value| key.is_some_and(|key| other.get(key) == item.get(key));
        let position = list.iter().position(has_same_key);
        match (position, item.get("$patch").and_then(Value::as_str)) {
            (Some(position), Some("delete")) => {
                list.remove(position);
            }
            (Some(position), _) => merge(&mut list[position], item),
            (None, Some("delete")) => {}
            (None, _) => list.push(item.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn json_patches_and_strategic_patches_are_applied() {
        let pod = json!({
            "spec": {"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "1"}]},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        });
        let strategic = json!({
            "spec": {"$setElementOrder/containers": [], "containers": [{"name": "b", "image": "2"}]},
            "status": {"conditions": [{"type": "Gate", "status": "False"},
                {"$patch": "delete", "type": "Ready"}]},
        });
        let expected = json!({
            "spec": {"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "2"}]},
            "status": {"conditions": [{"type": "Gate", "status": "False"}]},
        });
        assert_eq!(patched(pod.clone(), Some(&strategic)), expected);
        let operations = json!([{"op": "replace", "path": "/spec/containers/1/image", "value": "2"},
            {"op": "remove", "path": "/status"}]);
        let mut expected = expected;
        expected.as_object_mut().map(|pod| pod.remove("status"));
        assert_eq!(patched(pod, Some(&operations)), expected);
    }
}
