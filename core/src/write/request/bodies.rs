//! The bodies of patches and creations.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::{Content, Owner};
use crate::api::names;
use crate::observed::time::rounded_down;
use crate::observed::{Kind, PodRef, mark_key};
use crate::write::{
    ClaimOwnership, ImageChange, InPlacePatch, NewRevision, NodePatch, RevisionData, SidecarPatch,
    WorkloadPatch,
};

/// A strategic merge patch of a pod's labels and annotations.
pub(super) fn metadata(
    pod: &PodRef,
    labels: &[(String, Option<String>)],
    annotations: &[(&str, Option<String>)],
) -> Value {
    let mut metadata = json!({"uid": pod.uid});
    require_version(&mut metadata, pod);
    if !labels.is_empty() {
        let labels = labels.iter().map(|(key, value)| (key.clone(), json!(value)));
        metadata["labels"] = labels.collect::<Map<_, _>>().into();
    }
    if !annotations.is_empty() {
        let annotations = annotations.iter().map(|(key, value)| ((*key).to_owned(), json!(value)));
        metadata["annotations"] = annotations.collect::<Map<_, _>>().into();
    }
    json!({"metadata": metadata})
}

/// A strategic merge patch of a claim's owner references.
pub(super) fn claim_owners(change: &ClaimOwnership) -> Value {
    let removed = change.remove.iter();
    let removed = removed.map(|uid| json!({"$patch": "delete", "uid": uid}));
    let references: Vec<Value> = change.add.iter().cloned().chain(removed).collect();
    json!({"metadata": {"uid": change.uid, "ownerReferences": references}})
}

/// A strategic merge patch that makes the workload the controller of an orphan.
fn adopt(uid: &str, owner: &Owner) -> Value {
    json!({"metadata": {"uid": uid, "ownerReferences": [owner.owner_reference()]}})
}

/// A strategic merge patch that makes the owner the controller of a revision. An earlier set of the same name may still
/// be its controller, so the reference to a set replaces all others.
pub(super) fn adopt_revision(uid: &str, number: Option<i64>, owner: &Owner) -> Value {
    let mut body = adopt(uid, owner);
    if owner.kind == Kind::SidecarSet
        && let Some(references) = body["metadata"]["ownerReferences"].as_array_mut()
    {
        references.push(json!({"$patch": "replace"}));
    }
    if let Some(number) = number {
        body["revision"] = json!(number);
    }
    body
}

/// A strategic merge patch that adds the workload's owner reference to a pod. What the pod shows of an earlier wait for
/// its deletion, in this workload or another one, is removed.
pub(super) fn adopt_pod(uid: &str, owner: &Owner) -> Value {
    let mut body = adopt(uid, owner);
    body["metadata"]["annotations"] = no_wait();
    body
}

fn no_wait() -> Value {
    json!({names::DELETING_ANNOTATION: null, names::WAITING_SINCE_ANNOTATION: null})
}

/// A strategic merge patch that removes the workload's owner reference, the label of the guard, and what a pod shows of
/// its wait for its deletion.
pub(super) fn release(uid: &str, owner: &Owner) -> Value {
    let removed = json!({"$patch": "delete", "uid": owner.uid});
    let labels = json!({names::GUARDED_LABEL: null});
    json!({
        "metadata": {
            "uid": uid, "ownerReferences": [removed], "labels": labels, "annotations": no_wait(),
        },
    })
}

/// Makes a patch with this metadata fail if the pod must be unchanged and is not.
fn require_version(metadata: &mut Value, pod: &PodRef) {
    if let Some(version) = pod.version {
        metadata["resourceVersion"] = json!(version.to_string());
    }
}

/// A strategic merge patch of a pod's status that closes the gate for a revision, or opens it.
pub(super) fn gate(pod: &PodRef, closed_for: Option<&str>, now: Timestamp) -> Value {
    let (status, reason, message) = match closed_for {
        Some(revision) => {
            let message = format!("updated in place to {revision}");
            ("False", "InPlaceUpdate", message)
        }
        None => ("True", "NotUpdating", String::new()),
    };
    let condition = json!({
        "type": names::IN_PLACE_GATE,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": rounded_down(now),
    });
    let mut metadata = json!({"uid": pod.uid});
    require_version(&mut metadata, pod);
    json!({"metadata": metadata, "status": {"conditions": [condition]}})
}

/// The JSON patch of an in-place update.
pub(super) fn in_place(patch: &InPlacePatch) -> Value {
    let revision_path = path("labels", names::REVISION_LABEL);
    let mut ops = vec![
        test("/metadata/uid", json!(patch.pod.uid)),
        test(
            &revision_path,
            match patch.from_revision.as_str() {
                "" => Value::Null,
                revision => json!(revision),
            },
        ),
    ];
    if let Some(version) = patch.pod.version {
        ops.push(test("/metadata/resourceVersion", json!(version.to_string())));
    }
    let tokens = patch.tokens.iter();
    ops.extend(tokens.map(|(key, mark)| test(&path("annotations", key), json!(mark))));
    ops.extend(patch.images.iter().flat_map(image));
    if !patch.annotated {
        ops.push(test("/metadata/annotations", Value::Null));
        ops.push(add("/metadata/annotations", json!({})));
    }
    let record = (names::IN_PLACE_RECORD.to_owned(), Some(patch.record.text()));
    let labels = patch.labels.iter().map(|entry| ("labels", entry));
    let annotations = patch.annotations.iter().chain([&record]);
    for (map, (key, value)) in labels.chain(annotations.map(|entry| ("annotations", entry))) {
        let path = path(map, key);
        // Removing a missing key would fail, so a key to be removed is added first.
        ops.push(add(&path, json!(value.as_deref().unwrap_or_default())));
        if value.is_none() {
            ops.push(json!({"op": "remove", "path": path}));
        }
    }
    Value::Array(ops)
}

fn image(change: &ImageChange) -> [Value; 3] {
    let list = if change.init { "initContainers" } else { "containers" };
    let path = |field: &str| format!("/spec/{list}/{}/{field}", change.index);
    [
        test(&path("name"), json!(change.name)),
        test(&path("image"), json!(change.from)),
        json!({"op": "replace", "path": path("image"), "value": change.to}),
    ]
}

fn test(path: &str, value: Value) -> Value {
    json!({"op": "test", "path": path, "value": value})
}

fn add(path: &str, value: Value) -> Value {
    json!({"op": "add", "path": path, "value": value})
}

/// The path of a label or annotation in a JSON patch.
fn path(map: &str, key: &str) -> String {
    let key = key.replace('~', "~0").replace('/', "~1");
    format!("/metadata/{map}/{key}")
}

/// The patch of a pod by a SidecarSet. A new mark alone is a JSON patch, which tests the old mark, so it fails if a
/// workload has begun to update the pod. New images come in a strategic merge patch, which fails if the pod has changed;
/// its record says what to wait for, even after this process restarts.
pub(super) fn sidecars(patch: &SidecarPatch) -> (Content, Value) {
    let key = mark_key(&patch.set);
    let Some((images, record)) = &patch.images else {
        let path = path("annotations", &key);
        let body = json!([
            test("/metadata/uid", json!(patch.pod.uid)),
            test(&path, json!(patch.from)),
            {"op": "replace", "path": path, "value": patch.to},
        ]);
        return (Content::JsonPatch, body);
    };
    let mut metadata = json!({"uid": patch.pod.uid});
    require_version(&mut metadata, &patch.pod);
    metadata["annotations"] = json!({key: patch.to, names::IN_PLACE_RECORD: record.text()});
    let mut body = json!({"metadata": metadata, "spec": {}});
    for (list, native) in [("containers", false), ("initContainers", true)] {
        let images = images.iter().filter(|it| it.native == native);
        let images = images.map(|it| json!({"name": it.container, "image": it.image}));
        let images: Vec<Value> = images.collect();
        if !images.is_empty() {
            body["spec"][list] = Value::Array(images);
        }
    }
    (Content::StrategicPatch, body)
}

/// A merge patch of a node that has not changed.
pub(super) fn node(patch: &NodePatch) -> Value {
    let mut body = json!({"metadata": {
        "uid": patch.uid, "resourceVersion": patch.resource_version,
        "annotations": {names::NODE_RECORD: patch.record},
    }});
    if let Some(cordon) = patch.cordon {
        body["spec"] = json!({"unschedulable": cordon});
    }
    body
}

/// The JSON patch that removes the taint. It fails if the node was replaced or the index of the taint has changed.
pub(super) fn without_taint(uid: &str, taint: usize) -> Value {
    let taint = format!("/spec/taints/{taint}");
    json!([
        test("/metadata/uid", json!(uid)),
        test(&format!("{taint}/key"), json!(names::NOT_INSTALLED_TAINT)),
        {"op": "remove", "path": taint},
    ])
}

/// A strategic merge patch for the resize subresource.
pub(super) fn resize(uid: &str, resources: &[(String, Value)]) -> Value {
    let containers: Vec<Value> = resources
        .iter()
        .map(|(name, resources)| json!({"name": name, "resources": resources}))
        .collect();
    json!({"metadata": {"uid": uid}, "spec": {"containers": containers}})
}

/// The new ControllerRevision.
pub(in crate::write) fn revision(new: &NewRevision, owner: &Owner) -> Value {
    let mut labels: Map<String, Value> =
        owner.revision_labels.iter().map(|(key, value)| (key.clone(), json!(value))).collect();
    let spec = match &new.data {
        RevisionData::Sidecars(content) => content.clone(),
        RevisionData::Template(template) => {
            labels.insert(names::REVISION_LABEL.to_owned(), json!(new.name));
            let mut template = template.parse();
            if let Some(fields) = template.as_object_mut() {
                fields.insert("$patch".to_owned(), json!("replace"));
            }
            json!({"template": template})
        }
    };
    let causes = new.cause.iter();
    let annotations: Map<String, Value> =
        causes.map(|cause| (names::CHANGE_CAUSE.to_owned(), json!(cause))).collect();
    json!({
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {
            "name": new.name,
            "namespace": owner.revision_namespace,
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [owner.owner_reference()],
        },
        "data": {"spec": spec},
        "revision": new.number,
    })
}

/// A merge patch of the workload itself.
pub(super) fn workload(patch: &WorkloadPatch, resource_version: &str) -> Value {
    let mut body = json!({"metadata": {"resourceVersion": resource_version}});
    if !patch.annotations.is_empty() {
        let annotations: Map<String, Value> =
            patch.annotations.iter().map(|(key, value)| (key.clone(), json!(value))).collect();
        body["metadata"]["annotations"] = Value::Object(annotations);
    }
    if let Some(paused) = patch.paused {
        body["spec"]["updateStrategy"]["paused"] = json!(paused);
    }
    for point in &patch.retry_off {
        if let Some(field) = point.strategy_field() {
            body["spec"][field]["retry"] = json!(false);
        }
    }
    if let Some(finalizers) = &patch.finalizers {
        body["metadata"]["finalizers"] = json!(finalizers);
    }
    if let Some(names) = &patch.pods_to_delete {
        body["spec"]["scaleStrategy"]["podsToDelete"] = json!(names);
    }
    if let Some(template) = &patch.template {
        body["spec"]["template"] = template.clone();
    }
    body
}

#[cfg(test)]
mod tests;
