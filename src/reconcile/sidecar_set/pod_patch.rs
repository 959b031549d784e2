//! The patches that a SidecarSet makes to pods.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::runtime::objects::Kind;
use crate::runtime::request::{Content, to_bytes};
use gamekeeper_core::api::names::IN_PLACE_RECORD;
use gamekeeper_core::observed::{Pod, mark_key};
use gamekeeper_core::sidecar_set::{MarkWrite, MatchedPod, Sidecars};
use gamekeeper_core::workload::record_of_other_pod;

/// A patch of a pod.
pub(super) struct PodPatch {
    /// The pod's uid.
    pub uid: String,
    pub path: String,
    pub content: Content,
    pub body: Vec<u8>,
}

impl PodPatch {
    pub(super) fn of(set: &Sidecars, write: &MarkWrite, now: Timestamp) -> Self {
        let MatchedPod { namespace, name, uid, running, .. } = write.pod;
        let (content, body) = match running.as_deref().filter(|_| write.updates) {
            Some(running) => (Content::StrategicPatch, update_patch(set, write, running, now)),
            None => (Content::JsonPatch, mark_patch(set, write)),
        };
        Self {
            uid: uid.clone(),
            path: Kind::Pod.path(namespace, name),
            content,
            body: to_bytes(&body),
        }
    }
}

/// The JSON patch of a mark. It tests the old mark, so it fails if a workload has begun to update the pod.
fn mark_patch(set: &Sidecars, write: &MarkWrite) -> Value {
    let key = mark_key(&set.name).replace('/', "~1");
    let path = format!("/metadata/annotations/{key}");
    json!([
        {"op": "test", "path": "/metadata/uid", "value": write.pod.uid},
        {"op": "test", "path": path, "value": write.from.as_read()},
        {"op": "replace", "path": path, "value": write.to.text()},
    ])
}

/// The strategic merge patch that updates a pod of another controller, if the pod has not changed. The in-place record
/// says what to wait for, even after this process restarts.
fn update_patch(set: &Sidecars, write: &MarkWrite, running: &Pod, now: Timestamp) -> Value {
    let images = |native: bool| -> Vec<Value> {
        let images = set.images().filter(|it| it.native == native);
        let containers = images.map(|it| json!({"name": it.container, "image": it.image}));
        containers.collect()
    };
    let record = json!(record_of_other_pod(running, set, now)).to_string();
    let annotations = json!({
        mark_key(&set.name): write.to.text(),
        IN_PLACE_RECORD: record,
    });
    let mut body = json!({
        "metadata": {
            "uid": write.pod.uid,
            "resourceVersion": write.pod.version.to_string(),
            "annotations": annotations,
        },
        "spec": {},
    });
    for (list, native) in [("containers", false), ("initContainers", true)] {
        let images = images(native);
        if !images.is_empty() {
            body["spec"][list] = Value::Array(images);
        }
    }
    body
}
