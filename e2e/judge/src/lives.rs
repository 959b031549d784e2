//! When the containers of a pod start and end, and which client ends them.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::Value;

use crate::evidence::Event;
use crate::object::{controller, images, is_running, is_terminating, uid};
use crate::replay::history::{Resource, Write, history};

/// The life of a pod that has a controller.
#[derive(Clone, Debug, PartialEq)]
pub struct Life {
    /// Uid of the pod.
    pub uid: String,
    /// Its name.
    pub name: String,
    /// When a container was first reported as running.
    pub began: Timestamp,
    /// The request that deleted or evicted the pod, or changed one of its images.
    pub end: Option<End>,
}

/// The end of a life.
#[derive(Clone, Debug, PartialEq)]
pub struct End {
    /// When the request was received.
    pub at: Timestamp,
    /// The user.
    pub user: String,
    /// Name and version of the client.
    pub user_agent: String,
    /// Verb and URI of the request, and the pod's phase before the request.
    pub request: String,
}

/// The lives of all pods that have a controller and have run a container. All events are from one namespace. A pod has
/// only one life: if its images are updated in place, the life ends with the first of these updates.
pub fn pod_lives(events: &[Event]) -> Vec<Life> {
    let mut lives: BTreeMap<String, Life> = BTreeMap::new();
    for write in history(events) {
        if write.resource != Resource::Pod {
            continue;
        }
        if let Some(end) = end_of(&write) {
            let life = write.before.as_deref().and_then(|it| lives.get_mut(uid(it)));
            if let Some(life) = life.filter(|it| it.end.is_none()) {
                life.end = Some(end);
            }
        }
        let after = write.after.as_deref();
        if let Some(pod) = after.filter(|it| controller(it).is_some() && is_running(it)) {
            let life = || Life {
                uid: uid(pod).to_owned(),
                name: write.name.clone(),
                began: write.done,
                end: None,
            };
            lives.entry(uid(pod).to_owned()).or_insert_with(life);
        }
    }
    lives.into_values().collect()
}

/// The end of a pod's life, if a write ends its running containers.
fn end_of(write: &Write) -> Option<End> {
    let before = write.before.as_deref()?;
    let ends_containers = match write.after.as_deref() {
        None => true,
        Some(after) => is_terminating(after) || images(before) != images(after),
    };
    let is_end = ends_containers && is_running(before) && !is_terminating(before);
    is_end.then(|| End {
        at: write.received,
        user: write.user.clone(),
        user_agent: write.user_agent.clone(),
        request: request(write, before),
    })
}

fn request(write: &Write, before: &Value) -> String {
    let phase = crate::object::phase(before);
    format!("{} {} ({phase})", write.verb, write.uri)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(version: u32, container: Value, is_running: bool) -> Value {
        let state = if is_running { "running" } else { "waiting" };
        json!({
            "kind": "Pod",
            "metadata": {
                "name": "x", "uid": "pod", "resourceVersion": version.to_string(),
                "ownerReferences": [{"uid": "game", "controller": true}],
            },
            "spec": {"containers": [container]},
            "status": {"containerStatuses": [{"name": "game", "state": {state: {}}}]},
        })
    }

    fn event(verb: &str, subresource: &str, second: u32, user: &str, answer: Value) -> Event {
        serde_json::from_value(json!({
            "stage": "ResponseComplete", "requestURI": "/x", "verb": verb,
            "user": {"username": "admin"}, "impersonatedUser": {"username": user},
            "objectRef": {"resource": "pods", "subresource": subresource, "name": "x"},
            "responseStatus": {"code": 200}, "responseObject": answer,
            "requestReceivedTimestamp": format!("2026-01-01T00:00:{second:02}Z"),
            "stageTimestamp": format!("2026-01-01T00:00:{second:02}.1Z"),
        }))
        .expect("an event")
    }

    /// The user who ended the pod's life. None if the pod has no life, Some(None) if its life has not ended.
    fn ended_by(is_running: bool, end: Event) -> Option<Option<String>> {
        let container = json!({"name": "game", "image": "game:v1"});
        let events = [
            event("create", "", 1, "a", pod(10, container.clone(), false)),
            event("patch", "status", 2, "kubelet", pod(11, container, is_running)),
            end,
        ];
        let life = pod_lives(&events).pop()?;
        Some(life.end.map(|end| end.user))
    }

    #[test]
    fn a_life_ends_with_a_deletion_an_eviction_or_an_image_change() {
        let container = |image: &str| json!({"name": "game", "image": image});
        let status = || json!({"kind": "Status", "metadata": {}});
        let mut terminating = pod(12, container("game:v1"), true);
        terminating["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:03Z");
        terminating["metadata"]["deletionGracePeriodSeconds"] = json!(30);
        let user = || Some(Some("u".to_owned()));
        for (end, expected) in [
            (event("delete", "", 3, "u", terminating), user()),
            (event("delete", "", 3, "u", status()), user()),
            (event("create", "eviction", 3, "u", status()), user()),
            (event("deletecollection", "", 3, "u", status()), user()),
            (event("patch", "", 3, "u", pod(12, container("game:v2"), true)), user()),
            (event("patch", "", 3, "u", pod(12, container("game:v1"), true)), Some(None)),
        ] {
            let case = format!("{end:?}");
            assert_eq!(ended_by(true, end), expected, "{case}");
        }
    }

    #[test]
    fn a_pod_that_never_ran_has_no_life() {
        let gone = event("delete", "", 3, "u", json!({"kind": "Status", "metadata": {}}));
        assert_eq!(ended_by(false, gone), None);
    }
}
