//! The two reviews that change an object: the defaults of a SidecarSet, and the sidecars of a pod. Pure.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::review::{AdmissionRequest, AdmissionResponse};
use crate::kinds::Reaching;
use gamekeeper_core::sidecar_set::{inject, unreadable_for, with_defaults};

/// Sets the defaults of a SidecarSet.
pub(super) fn defaulted(request: &AdmissionRequest) -> AdmissionResponse {
    let is_new_sidecar_set =
        request.object["kind"] == "SidecarSet" && request.operation == "CREATE";
    let changed = match is_new_sidecar_set {
        true => with_defaults(&request.object),
        false => request.object.clone(),
    };
    allowed_with(request, &changed)
}

/// Injects the sidecars of the sets that reach its namespace into a new pod. Refuses a pod that a set may select which
/// cannot be decoded: the pod would never get its containers.
pub(super) fn injected(request: &AdmissionRequest, reaching: &Reaching) -> AdmissionResponse {
    let mut pod = request.object.clone();
    if request.operation == "CREATE" && request.sub_resource.is_empty() && pod["kind"] == "Pod" {
        let labels = serde_json::from_value(pod["metadata"]["labels"].clone()).unwrap_or_default();
        if let Some(set) = unreadable_for(&reaching.unreadable, &labels) {
            return refused(request, &set.why_none_is_created());
        }
        inject(&mut pod, &reaching.sets);
    }
    allowed_with(request, &pod)
}

fn refused(request: &AdmissionRequest, why: &str) -> AdmissionResponse {
    AdmissionResponse {
        uid: request.uid.clone(),
        allowed: false,
        status: Some(json!({"code": 403, "reason": "Forbidden", "message": why})),
        ..AdmissionResponse::default()
    }
}

/// Allows the object, with a patch of the fields that were changed.
fn allowed_with(request: &AdmissionRequest, changed: &Value) -> AdmissionResponse {
    let old = &request.object;
    let paths = ["/spec", "/metadata/annotations"].into_iter();
    let differing = paths.filter(|path| old.pointer(path) != changed.pointer(path));
    let operations: Vec<Value> = differing
        .map(|path| json!({"op": "add", "path": path, "value": changed.pointer(path)}))
        .collect();
    let patch = (!operations.is_empty()).then(|| STANDARD.encode(json!(operations).to_string()));
    AdmissionResponse {
        uid: request.uid.clone(),
        allowed: true,
        patch_type: patch.as_ref().map(|_| "JSONPatch"),
        patch,
        ..AdmissionResponse::default()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use gamekeeper_core::api::SidecarSet;
    use gamekeeper_core::sidecar_set::{Sidecars, UnreadableSet};

    fn reaching(set: Value) -> Reaching {
        let set: SidecarSet = serde_json::from_value(set).expect("a set");
        let sets = vec![Arc::new(Sidecars::of(&set).expect("the set selects something"))];
        Reaching { sets, unreadable: Vec::new() }
    }

    fn request(object: Value) -> AdmissionRequest {
        AdmissionRequest {
            uid: "1".into(),
            operation: "CREATE".into(),
            object,
            ..AdmissionRequest::default()
        }
    }

    fn patch(response: &AdmissionResponse) -> Value {
        assert!(response.allowed);
        let Some(patch) = &response.patch else {
            return Value::Null;
        };
        let patch = STANDARD.decode(patch).expect("base64");
        serde_json::from_slice(&patch).expect("a patch")
    }

    fn set() -> Value {
        json!({
            "kind": "SidecarSet",
            "metadata": {"name": "log"},
            "spec": {
                "selector": {"matchLabels": {"app": "arena"}},
                "containers": [{"name": "log", "image": "log:1"}],
            },
        })
    }

    #[test]
    fn a_set_gets_its_defaults_once() {
        let patch = patch(&defaulted(&request(set())));
        let container = &patch[0]["value"]["containers"][0];
        assert_eq!(patch[0]["path"], "/spec");
        assert_eq!(container["podInjectPolicy"], "BeforeAppContainer");
        let mut complete = set();
        complete["spec"] = patch[0]["value"].clone();
        assert_eq!(defaulted(&request(complete)).patch, None);
    }

    #[test]
    fn a_pod_gets_containers_and_a_mark_in_one_patch() {
        let sets = reaching(set());
        let pod = |app: &str| {
            json!({
                "kind": "Pod",
                "metadata": {"generateName": "a-", "labels": {"app": app}},
                "spec": {"containers": [{"name": "game"}]},
            })
        };
        let patched = patch(&injected(&request(pod("arena")), &sets));
        assert_eq!(patched[0]["value"]["containers"][0]["name"], "log");
        assert_eq!(patched[1]["path"], "/metadata/annotations");
        assert_eq!(patch(&injected(&request(pod("lobby")), &sets)), Value::Null);
        let mut update = request(pod("arena"));
        update.operation = "UPDATE".into();
        assert_eq!(patch(&injected(&update, &sets)), Value::Null);
    }

    #[test]
    fn a_pod_that_an_unreadable_set_may_select_is_refused() {
        let pod = |app: &str| {
            request(json!({
                "kind": "Pod", "metadata": {"labels": {"app": app}}, "spec": {"containers": []},
            }))
        };
        for (head, selected) in [(Some(set()), ["arena"].as_slice()), (None, &["arena", "lobby"])] {
            let head = head.map(|it| serde_json::from_value(it).expect("a head"));
            let set = UnreadableSet::new("log", head.as_ref()).expect("it selects something");
            let reaching = Reaching { unreadable: vec![Arc::new(set)], ..Reaching::default() };
            for app in ["arena", "lobby"] {
                let response = injected(&pod(app), &reaching);
                assert_eq!(response.allowed, !selected.contains(&app), "{app}");
                let told = response.status.map(|it| it["message"].to_string());
                assert!(response.allowed || told.is_some_and(|it| it.contains("SidecarSet log")));
            }
            let mut update = pod("arena");
            update.operation = "UPDATE".into();
            assert!(injected(&update, &reaching).allowed);
        }
    }

    #[test]
    fn hostile_objects_are_not_patched() {
        let sets = reaching(set());
        let labels = json!({"app": "arena"});
        for object in [
            Value::Null,
            json!([]),
            json!({"kind": "Pod"}),
            json!({"kind": "Pod", "metadata": 1, "spec": 2}),
            json!({"kind": "Pod", "metadata": {"labels": labels}, "spec": []}),
            json!({"kind": "Pod", "metadata": {"labels": labels, "annotations": 3}, "spec": {}}),
            json!({"kind": "SidecarSet", "spec": 1}),
            json!({"kind": "SidecarSet", "spec": {"containers": [1, [], null]}}),
        ] {
            let text = object.to_string();
            let object = request(object);
            assert_eq!(injected(&object, &sets).patch, None, "{text}");
            assert_eq!(defaulted(&object).patch, None, "{text}");
        }
    }
}
