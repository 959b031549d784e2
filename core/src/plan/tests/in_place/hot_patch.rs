//! Hot patches, which restart nothing if the kubelet supports them.

use serde_json::json;

use super::is_patch;
use crate::plan::tests::story::story;

#[test]
fn a_hot_patch_restarts_nothing_and_is_tried_on_one_pod_first() {
    let mut story = story(
        3,
        json!({"updateStrategy": {"type": "HotPatchUpdate", "maxUnavailable": 3}}),
    );
    story.settle();
    story.kubelets_run = false;
    story.image("v2").settle();
    assert_eq!(story.count(is_patch), 1);
    story.kubelets_run = true;
    story.settle();
    assert_eq!(story.images(), "v2 v2 v2");
    assert!(story.pods().iter().all(|pod| pod.hot_patched));
}

#[test]
fn a_first_hot_patch_that_never_completes_is_reported() {
    let mut story = story(
        3,
        json!({"updateStrategy": {"type": "HotPatchUpdate", "maxUnavailable": 3}}),
    );
    story.settle();
    story.kubelets_run = false;
    story.image("v2").settle();
    assert_eq!(story.images(), "v1 v1 v2");
    assert_eq!(
        story.condition("FailedUpdate"),
        None,
        "it is not overdue yet"
    );
    let wake = story.plan().wake.expect("a time to plan again");
    story.wait(60).settle();
    assert_eq!(wake, story.world.now);
    let (reason, message) = story.condition("FailedUpdate").expect("condition");
    assert_eq!(reason, "HotPatchNotShown");
    let patched = story.pods().into_iter().find(|pod| pod.hot_patched);
    assert!(message.contains(&patched.expect("a pod").name), "{message}");
    story.kubelets_run = true;
    story.settle();
    assert_eq!(story.images(), "v2 v2 v2");
    assert_eq!(story.condition("FailedUpdate"), None);
}

#[test]
fn a_kubelet_that_restarts_the_container_stops_a_hot_patch_at_one_pod() {
    let mut story = story(
        3,
        json!({"updateStrategy": {"type": "HotPatchUpdate", "maxUnavailable": 3}}),
    );
    story.settle();
    story.kubelets_run = false;
    story.image("v2").settle();
    let name = story
        .pods()
        .iter()
        .find(|pod| pod.hot_patched)
        .map(|pod| pod.name.clone())
        .expect("patched");
    story.edit_pod(&name, |pod| {
        pod.observed_generation = pod.generation;
        let status = pod.containers[0].status.as_mut().expect("status");
        status.image = "game:v2".to_owned();
        status.restart_count = 1;
        status.container_id = "another".to_owned();
    });
    story.settle();
    assert_eq!(story.count(is_patch), 1);
    assert_eq!(
        story.condition("FailedUpdate").expect("condition").0,
        "HotPatchNotSupported"
    );
}

#[test]
fn a_later_in_place_update_removes_the_hot_patch_annotation() {
    let mut story = story(1, json!({"updateStrategy": {"type": "HotPatchUpdate"}}));
    story.settle();
    story.image("v2").settle();
    assert!(story.pods()[0].hot_patched);
    story
        .user(json!({"updateStrategy": {"type": "InplaceUpdate"}}))
        .image("v3")
        .settle();
    assert!(!story.pods()[0].hot_patched);
    assert_eq!(story.images(), "v3");
}
