//! Whether patches apply, and what they change.

use super::*;
use crate::api::names::HookPoint;
use crate::observed::InPlaceRecord;

fn patch() -> InPlacePatch {
    InPlacePatch {
        pod: PodRef {
            namespace: "games".into(),
            name: "lobby-aaaaa".into(),
            uid: "pod-uid".into(),
            version: None,
            allowed_until: None,
        },
        from_revision: "lobby-1".into(),
        images: vec![ImageChange {
            init: false,
            index: 0,
            name: "game".into(),
            from: "game:v1".into(),
            to: "game:v2".into(),
        }],
        labels: vec![(names::REVISION_LABEL.into(), Some("lobby-2".into()))],
        annotated: true,
        annotations: vec![(names::DELETING_ANNOTATION.into(), None)],
        tokens: Vec::new(),
        record: InPlaceRecord::default(),
    }
}

/// The pod after the patch, or an error if the patch does not apply.
fn patched(pod: &Value, patch: &Value) -> Result<Value, json_patch::PatchError> {
    let mut pod = pod.clone();
    let patch: json_patch::Patch = serde_json::from_value(patch.clone()).unwrap();
    json_patch::patch(&mut pod, &patch)?;
    Ok(pod)
}

fn pod(annotations: &Value) -> Value {
    json!({
        "metadata": {
            "uid": "pod-uid",
            "labels": {names::REVISION_LABEL: "lobby-1"},
            "annotations": annotations,
        },
        "spec": {"containers": [{"name": "game", "image": "game:v1"}]},
    })
}

#[test]
fn an_in_place_update_is_one_patch_that_tests_its_preconditions() {
    let before = pod(&json!({names::DELETING_ANNOTATION: "true"}));
    let after = patched(&before, &in_place(&patch())).unwrap();
    assert_eq!(after["spec"]["containers"][0]["image"], "game:v2");
    assert_eq!(after["metadata"]["labels"][names::REVISION_LABEL], "lobby-2");
    let annotations = after["metadata"]["annotations"].as_object().unwrap();
    assert!(annotations.contains_key(names::IN_PLACE_RECORD));
    assert!(!annotations.contains_key(names::DELETING_ANNOTATION));
    let mut with_version = patch();
    with_version.pod.version = Some(7);
    for (version, applies) in [("7", true), ("8", false)] {
        let mut pod = before.clone();
        pod["metadata"]["resourceVersion"] = json!(version);
        assert_eq!(patched(&pod, &in_place(&with_version)).is_ok(), applies);
    }
    for (path, value) in [
        ("/metadata/uid", "another"),
        ("/spec/containers/0/image", "game:v3"),
        ("/spec/containers/0/name", "sidecar"),
    ] {
        let mut changed = before.clone();
        *changed.pointer_mut(path).unwrap() = json!(value);
        assert!(patched(&changed, &in_place(&patch())).is_err(), "{path}");
    }
}

#[test]
fn annotations_are_added_to_a_pod_that_has_none() {
    let bare = InPlacePatch { annotated: false, ..patch() };
    let after = patched(&pod(&Value::Null), &in_place(&bare)).unwrap();
    let annotations = after["metadata"]["annotations"].as_object().unwrap();
    assert!(annotations.contains_key(names::IN_PLACE_RECORD));
    let changed = pod(&json!({"another": "client"}));
    assert!(patched(&changed, &in_place(&bare)).is_err());
}

#[test]
fn an_in_place_update_fails_once_a_sidecar_token_is_withdrawn() {
    let key = "sidecars.gamekeeper.tkex.tencent.com/log".to_owned();
    let with_token = InPlacePatch { tokens: vec![(key.clone(), "with token".into())], ..patch() };
    for (mark, applies) in [("with token", true), ("withdrawn", false)] {
        let pod = pod(&json!({key.as_str(): mark}));
        assert_eq!(patched(&pod, &in_place(&with_token)).is_ok(), applies);
    }
}

#[test]
fn removing_a_missing_annotation_is_not_an_error() {
    let after = patched(&pod(&json!({"a": "b"})), &in_place(&patch())).unwrap();
    let annotations = after["metadata"]["annotations"].as_object().unwrap();
    assert!(!annotations.contains_key(names::DELETING_ANNOTATION));
}

#[test]
fn times_are_written_in_whole_seconds() {
    let now: Timestamp = "2026-01-02T03:04:05.678Z".parse().unwrap();
    let body = gate(&patch().pod, Some("lobby-2"), now);
    let condition = &body["status"]["conditions"][0];
    assert_eq!(condition["lastTransitionTime"], "2026-01-02T03:04:05Z");
}

#[test]
fn only_the_operators_own_taint_is_removed() {
    let patch = without_taint("u", 2);
    assert_eq!(patch[1]["path"], "/spec/taints/2/key");
    assert_eq!(patch[1]["value"], names::NOT_INSTALLED_TAINT);
    assert_eq!(patch[2]["path"], "/spec/taints/2");
}

#[test]
fn a_workload_patch_names_only_what_changes() {
    let patch = WorkloadPatch {
        paused: Some(true),
        annotations: vec![("a".into(), Some("b".into())), ("c".into(), None)],
        retry_off: vec![HookPoint::PreDelete],
        pods_to_delete: None,
        finalizers: Some(vec!["f".into()]),
        template: Some(json!({"metadata": {"labels": {"old": null}}})),
    };
    let expected = json!({
        "metadata": {"resourceVersion": "7", "annotations": {"a": "b", "c": null}, "finalizers": ["f"]},
        "spec": {
            "updateStrategy": {"paused": true},
            "preDeleteUpdateStrategy": {"retry": false},
            "template": {"metadata": {"labels": {"old": null}}},
        },
    });
    assert_eq!(workload(&patch, "7"), expected);
}
