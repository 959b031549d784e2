//! GameDeployments with OnDelete: no pod is updated automatically, and new pods are created at the update revision.

use serde_json::{Value, json};

use super::story::{Story, story};
use crate::api::HookPhase;
use crate::write::{Change, Write};

fn on_delete(replicas: i32, spec: Value) -> Story {
    let mut story = story(replicas, json!({"updateStrategy": {"type": "OnDelete"}}));
    story.user(spec).settle();
    story
}

/// A user deletes a pod with this image tag, and it terminates.
fn user_deletes(story: &mut Story, tag: &str) {
    let image = format!("game:{tag}");
    let mut pods = story.world.pods.iter();
    let position = pods.position(|pod| pod.containers[0].image == image);
    story.world.pods.remove(position.expect("a pod"));
    story.settle();
}

fn touches_a_pod(action: &Write) -> bool {
    action.pod().is_some() || matches!(action.change(), Change::CreatePod(_))
}

#[test]
fn no_pod_is_updated_and_new_pods_have_the_update_revision() {
    let mut story = on_delete(3, json!({"updateStrategy": {"maxSurge": 2}}));
    story.done.clear();
    story.image("v2").settle();
    assert_eq!(story.images(), "v1 v1 v1");
    assert_eq!(story.count(touches_a_pod), 0);
    let ready = story.condition("Ready").expect("a condition");
    assert_eq!(
        ready.1,
        "3 pods are available, 0 of them at the update revision: the others are updated when they are deleted"
    );
    user_deletes(&mut story, "v1");
    assert_eq!(story.images(), "v1 v1 v2");
    story.user(json!({"replicas": 5})).settle();
    assert_eq!(story.images(), "v1 v1 v2 v2 v2");
}

#[test]
fn a_scale_in_deletes_old_pods_first_and_a_revert_updates_no_pod() {
    let mut story = on_delete(3, json!({}));
    story.image("v2").settle();
    user_deletes(&mut story, "v1");
    story.user(json!({"replicas": 2})).settle();
    assert_eq!(story.images(), "v1 v2");
    story.done.clear();
    story.image("v1").settle();
    assert_eq!(story.images(), "v1 v2");
    assert_eq!(story.count(touches_a_pod), 0);
    story.user(json!({"replicas": 1})).settle();
    assert_eq!(story.images(), "v1");
}

#[test]
fn the_partition_and_canary_steps_apply() {
    let mut story = on_delete(3, json!({"updateStrategy": {"partition": 2}}));
    story.image("v2").settle();
    user_deletes(&mut story, "v1");
    user_deletes(&mut story, "v1");
    assert_eq!(story.images(), "v1 v1 v2");

    let steps = json!([{"partition": 2}, {"pause": {}}]);
    let mut story = on_delete(3, json!({"updateStrategy": {"canary": {"steps": steps}}}));
    story.image("v2").settle();
    assert!(!story.paused());
    assert_eq!(story.condition("Progressing").expect("a condition").0, "AwaitingDeletion");
    user_deletes(&mut story, "v1");
    assert!(story.paused());
    user_deletes(&mut story, "v1");
    assert_eq!(story.images(), "v1 v1 v2");
}

#[test]
fn a_new_pod_gets_the_stable_template_if_the_update_is_refused() {
    let mut story = on_delete(2, json!({}));
    story.dry_run_refusal = Some("unknown field".to_owned());
    story.image("v2").settle();
    assert_eq!(story.condition("FailedUpdate"), None);
    user_deletes(&mut story, "v1");
    assert_eq!(story.images(), "v1 v1");
}

#[test]
fn pods_named_in_pods_to_delete_are_replaced_by_updated_pods_after_their_hook() {
    let mut story =
        on_delete(2, json!({"preDeleteUpdateStrategy": {"hook": {"templateName": "test"}}}));
    story.image("v2").settle();
    let named = story.names()[0].clone();
    story.user(json!({"scaleStrategy": {"podsToDelete": [named]}})).settle();
    assert_eq!(story.images(), "v1 v1");
    assert_eq!(story.hooks_end("pre-delete", HookPhase::Successful), 1);
    story.settle();
    assert_eq!(story.images(), "v1 v2");
    assert!(!story.names().contains(&named));
}
