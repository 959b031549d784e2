//! Rollouts that skip their remaining steps at a user's request.

use serde_json::json;

use super::story::{Story, story};
use crate::api::names::PROMOTE_ANNOTATION;
use crate::workload::Promotion;

fn canary() -> Story {
    let mut story = story(
        4,
        json!({"updateStrategy": {"type": "InplaceUpdate", "maxUnavailable": 4, "canary": {"steps": [
            {"partition": 3}, {"pause": {}}, {"hook": {"templateName": "test"}}, {"partition": 2}, {"pause": {}}]}}}),
    );
    story.settle();
    story
}

/// Promotes the rollout as the plugin does.
fn promote(story: &mut Story) {
    let status = story.status();
    let promotion = Promotion {
        revision: status.update_revision,
        step_hash: status.current_step_hash.expect("steps"),
    };
    let promotion = serde_json::to_string(&promotion).expect("JSON");
    story.annotate(PROMOTE_ANNOTATION, &promotion);
    story.user(json!({"updateStrategy": {"paused": false}}));
}

#[test]
fn a_promoted_rollout_skips_the_remaining_steps() {
    let mut story = canary();
    story.image("v2").settle();
    assert_eq!((story.columns().as_str(), story.paused()), ("4 1 1 4 4", true));
    promote(&mut story);
    story.settle();
    assert_eq!(story.columns(), "4 4 4 4 4");
    let status = story.status();
    assert_eq!(status.current_step_index, Some(5));
    assert_eq!(status.canary.revision, status.update_revision);
    assert!(!story.paused() && story.runs().is_empty());
}

#[test]
fn a_promotion_cancels_the_running_hook_of_a_step() {
    let mut story = canary();
    story.image("v2").settle();
    story.user(json!({"updateStrategy": {"paused": false}})).settle();
    assert_eq!((story.status().current_step_index, story.runs().len()), (Some(2), 1));
    promote(&mut story);
    story.settle();
    assert_eq!(story.columns(), "4 4 4 4 4");
    assert!(story.runs().is_empty());
}

#[test]
fn a_promotion_does_not_apply_to_a_later_rollout() {
    let mut story = canary();
    story.image("v2").settle();
    promote(&mut story);
    story.settle();
    assert_eq!(story.annotation(PROMOTE_ANNOTATION), None);
    story.image("v3").settle();
    assert_eq!((story.columns().as_str(), story.paused()), ("4 1 1 4 4", true));
    // Another template supersedes the rollout before the operator has observed the promotion.
    promote(&mut story);
    story.image("v4").settle();
    assert_eq!((story.columns().as_str(), story.paused()), ("4 1 1 4 4", true));
    assert_eq!(story.annotation(PROMOTE_ANNOTATION), None);
}

#[test]
fn a_users_pause_holds_a_promotion_back() {
    let mut story = canary();
    story.image("v2").settle();
    promote(&mut story);
    story.user(json!({"updateStrategy": {"paused": true}})).settle();
    assert_eq!(
        (story.status().current_step_index, story.columns().as_str()),
        (Some(1), "4 1 1 4 4")
    );
    story.user(json!({"updateStrategy": {"paused": false}})).settle();
    assert_eq!(story.columns(), "4 4 4 4 4");
}

#[test]
fn a_promoted_rollout_reaches_every_pod_regardless_of_the_partition() {
    let mut story = canary();
    story.user(json!({"updateStrategy": {"partition": 1}}));
    story.image("v2").settle();
    promote(&mut story);
    story.settle();
    assert_eq!(story.columns(), "4 4 4 4 4");
    assert_eq!(story.annotation(PROMOTE_ANNOTATION), None);
}

#[test]
fn a_promoted_rollout_can_be_rolled_back() {
    let mut story = canary();
    story.image("v2").settle();
    promote(&mut story);
    story.kubelets_run = false;
    story.settle();
    assert_eq!(story.images(), "v2 v2 v2 v2");
    story.kubelets_run = true;
    story.image("v1").settle();
    assert_eq!(story.images(), "v1 v1 v1 v1");
    assert_eq!(story.annotation(PROMOTE_ANNOTATION), None);
}
