//! Hot patches, which restart nothing if the kubelet supports them.

use serde_json::json;

use super::is_patch;
use crate::observed::Pod;
use crate::workload::tests::story::{Story, story};
use crate::write::{Change, Write};

#[test]
fn a_hot_patch_restarts_nothing_and_is_tried_on_one_pod_first() {
    let mut story =
        story(3, json!({"updateStrategy": {"type": "HotPatchUpdate", "maxUnavailable": 3}}));
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
    let mut story =
        story(3, json!({"updateStrategy": {"type": "HotPatchUpdate", "maxUnavailable": 3}}));
    story.settle();
    story.kubelets_run = false;
    story.image("v2").settle();
    assert_eq!(story.images(), "v1 v1 v2");
    assert_eq!(story.condition("FailedUpdate"), None, "it is not overdue yet");
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
    let mut story =
        story(3, json!({"updateStrategy": {"type": "HotPatchUpdate", "maxUnavailable": 3}}));
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
    assert_eq!(story.condition("FailedUpdate").expect("condition").0, "HotPatchNotSupported");
}

#[test]
fn a_later_in_place_update_removes_the_hot_patch_annotation() {
    let mut story = story(1, json!({"updateStrategy": {"type": "HotPatchUpdate"}}));
    story.settle();
    story.image("v2").settle();
    assert!(story.pods()[0].hot_patched);
    story.user(json!({"updateStrategy": {"type": "InplaceUpdate"}})).image("v3").settle();
    assert!(!story.pods()[0].hot_patched);
    assert_eq!(story.images(), "v3");
}

/// Pods of a workload with hot patches, each on its own node unless a node is given for all.
fn on_nodes(replicas: i32, nodes: &[&str]) -> Story {
    let strategy = json!({"type": "HotPatchUpdate", "maxUnavailable": replicas});
    let mut story = story(replicas, json!({"updateStrategy": strategy}));
    story.settle();
    for (name, node) in story.names().into_iter().zip(nodes.iter().cycle()) {
        story.edit_pod(&name, |pod| pod.node = Some((*node).to_owned()));
    }
    story.settle().kubelets_run = false;
    story
}

/// Pods whose hot patch their kubelet has not handled yet.
fn unhandled(story: &Story) -> Vec<String> {
    let pods = story.pods().into_iter();
    let pods = pods.filter(|pod| pod.observed_generation != pod.generation);
    pods.map(|pod| pod.name.clone()).collect()
}

/// The kubelet of a pod handles the hot patch: the new image runs in the same container, or in another one.
fn handle(story: &mut Story, name: &str, restarts: bool) {
    story.edit_pod(name, |pod| {
        pod.observed_generation = pod.generation;
        let image = pod.containers[0].image.clone();
        let status = pod.containers[0].status.as_mut().expect("status");
        status.image = image;
        if restarts {
            restart(pod);
        }
    });
}

fn restart(pod: &mut Pod) {
    let status = pod.containers[0].status.as_mut().expect("status");
    status.restart_count += 1;
    status.container_id.push('+');
}

fn reason(story: &Story) -> Option<String> {
    story.condition("FailedUpdate").map(|(reason, _)| reason)
}

#[test]
fn no_pod_is_patched_after_a_patch_has_restarted_one() {
    // The first node supports hot patches, the second does not.
    let mut story = on_nodes(6, &["a", "b"]);
    story.image("v2").settle();
    let mut restarted = 0;
    for _ in 0..12 {
        for name in unhandled(&story) {
            let pods = story.pods();
            let pod = pods.into_iter().find(|pod| pod.name == name);
            let restarts = pod.and_then(|pod| pod.node.as_deref()) == Some("b");
            restarted += usize::from(restarts);
            handle(&mut story, &name, restarts);
        }
        story.settle();
    }
    assert_eq!(restarted, 1);
    assert_eq!(reason(&story).as_deref(), Some("HotPatchNotSupported"));
    let (_, message) = story.condition("FailedUpdate").expect("condition");
    assert!(message.contains("node b"), "{message}");
}

#[test]
fn the_first_pod_of_each_node_is_patched_alone() {
    let mut story = on_nodes(6, &["a", "b"]);
    story.image("v2").settle();
    assert_eq!(story.count(is_patch), 1);
    let first = unhandled(&story).remove(0);
    handle(&mut story, &first, false);
    story.settle();
    // The two other pods of its node, and the first pod of the other node.
    assert_eq!(story.count(is_patch), 4);
    for name in unhandled(&story) {
        handle(&mut story, &name, false);
    }
    story.settle();
    assert_eq!(story.count(is_patch), 6);
}

#[test]
fn a_restart_is_reported_even_if_no_other_pod_is_to_be_patched() {
    let cases = [
        (1, json!({})),
        (2, json!({"updateStrategy": {"partition": 1}})),
        (2, json!({"updateStrategy": {"canary": {"steps": [{"partition": 1}, {"pause": {}}]}}})),
        (2, json!({"updateStrategy": {"paused": true}})),
    ];
    for (replicas, spec) in cases {
        for restarts in [true, false] {
            let mut story = on_nodes(replicas, &["a"]);
            let is_paused = spec["updateStrategy"]["paused"] == true;
            if !is_paused {
                story.user(spec.clone());
            }
            story.image("v2").settle();
            assert_eq!(story.count(is_patch), 1, "{spec}");
            if is_paused {
                story.user(spec.clone()).settle();
            }
            story.wait(61).settle();
            assert_eq!(reason(&story).as_deref(), Some("HotPatchNotShown"), "{spec}");
            let first = unhandled(&story).remove(0);
            handle(&mut story, &first, restarts);
            story.settle();
            let expected = restarts.then_some("HotPatchNotSupported");
            assert_eq!(reason(&story).as_deref(), expected, "{spec}");
        }
    }
}

#[test]
fn a_crash_after_a_patch_has_worked_stops_nothing() {
    let mut story = on_nodes(3, &["a", "b", "c"]);
    story.image("v2").settle();
    let first = unhandled(&story).remove(0);
    handle(&mut story, &first, false);
    story.settle();
    story.edit_pod(&first, restart);
    for _ in 0..3 {
        for name in unhandled(&story) {
            handle(&mut story, &name, false);
        }
        story.settle();
    }
    assert_eq!(story.images(), "v2 v2 v2");
    assert_eq!(reason(&story), None);
}

/// A container that did not run cannot be restarted, and one that starts from the new image proves nothing.
#[test]
fn a_pod_that_did_not_run_proves_nothing() {
    let mut story = on_nodes(3, &["a"]);
    let idle = story.names().remove(0);
    story.stop_containers(&idle);
    story.image("v2").settle();
    // The pod that does not run is patched, and the first one that does.
    assert_eq!(story.count(is_patch), 2);
    let is_unchanged = |action: &Write| match action.change() {
        Change::PatchInPlace(patch) => patch.pod.version.is_some(),
        _ => false,
    };
    assert_eq!(story.count(is_unchanged), 1);
    handle(&mut story, &idle, true);
    story.settle();
    assert_eq!(story.count(is_patch), 2);
    assert_eq!(reason(&story), None);
}
