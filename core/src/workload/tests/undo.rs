//! Rollbacks that a user requests with an annotation.

use serde_json::json;

use super::story::{Story, story};
use crate::api::names::UNDO_ANNOTATION;

/// A rollout that is paused after the first of four pods.
fn canary() -> Story {
    let steps = json!([{"partition": 3}, {"pause": {}}, {"partition": 2}, {"pause": {}}]);
    let strategy =
        json!({"type": "InplaceUpdate", "maxUnavailable": 4, "canary": {"steps": steps}});
    let mut story = story(4, json!({"updateStrategy": strategy}));
    story.settle();
    let labels = json!({"app": "game", "season": "winter"});
    story.user(json!({"template": {"metadata": {"labels": labels}}}));
    story.image("v2").settle();
    assert_eq!((story.images().as_str(), story.paused()), ("v1 v1 v1 v2", true));
    story
}

#[test]
fn all_pods_return_to_the_stable_template() {
    let mut story = canary();
    let rollout = story.status().update_revision;
    story.annotate(UNDO_ANNOTATION, &rollout);
    story.settle();
    assert_eq!((story.images().as_str(), story.paused()), ("v1 v1 v1 v1", false));
    assert_eq!(story.annotation(UNDO_ANNOTATION), None);
    let status = story.status();
    assert_eq!(status.update_revision, status.canary.revision);
    assert_ne!(status.update_revision, rollout);
}

#[test]
fn a_request_does_not_apply_to_a_later_rollout() {
    let mut story = canary();
    let rollout = story.status().update_revision;
    story.image("v3");
    story.annotate(UNDO_ANNOTATION, &rollout);
    story.settle();
    assert_eq!((story.images().as_str(), story.paused()), ("v1 v1 v1 v3", true));
    assert_eq!(story.annotation(UNDO_ANNOTATION), None);
}

#[test]
fn a_request_without_a_rollout_changes_nothing() {
    let mut story = canary();
    story.user(json!({"updateStrategy": {"paused": false}})).settle();
    story.user(json!({"updateStrategy": {"paused": false}})).settle();
    let revision = story.status().update_revision;
    assert_eq!(story.images(), "v2 v2 v2 v2");
    story.annotate(UNDO_ANNOTATION, &revision);
    story.settle();
    assert_eq!(story.images(), "v2 v2 v2 v2");
    assert_eq!(story.annotation(UNDO_ANNOTATION), None);
}
