//! Pods whose revision label is ahead of their spec, as the operator of bk-bcs leaves them during a grace period.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::canary::resume;
use super::story::{Story, story};
use crate::api::HookPhase;
use crate::api::names::REVISION_LABEL;
use crate::observed::Gate;
use crate::write::{Change, Write};

/// Two pods at v1. The first one has the label of v2, whose image will be set at the end of the grace period.
fn labeled_only(spec: Value) -> Story {
    let mut story = story(
        2,
        json!({"updateStrategy": {"type": "InplaceUpdate", "maxUnavailable": 1, "paused": true}}),
    );
    story.user(spec).settle();
    story.image("v2").settle();
    let update = story.status().update_revision;
    let (first, now) = (story.names().remove(0), story.world.now);
    story.edit_pod(&first, |pod| {
        pod.labels.insert(REVISION_LABEL.to_owned(), update);
        pod.gate = Gate::Closed(now);
        pod.ready_since = None;
        let images = BTreeMap::from([("game".to_owned(), "game:v2".to_owned())]);
        pod.postponed = Some(Arc::new(images));
    });
    story
}

#[test]
fn a_pod_that_was_only_labeled_counts_as_old() {
    let mut story = labeled_only(json!({}));
    story.settle();
    assert_eq!(story.columns(), "2 0 0 2 2", "its gate is opened");
    let names = story.names();
    resume(&mut story);
    assert_eq!(story.images(), "v2 v2");
    assert_eq!(story.columns(), "2 2 2 2 2");
    assert_eq!(story.names(), names);
    assert!(story.pods().iter().all(|pod| pod.postponed.is_none()));
}

#[test]
fn a_pod_that_was_only_labeled_gets_the_rest_of_the_template_too() {
    let mut story = labeled_only(json!({}));
    story.user(json!({"template": {"metadata": {"labels": {"tier": "gold"}}}}));
    resume(&mut story);
    let is_gold = |pod: &&crate::observed::Pod| pod.labels.contains_key("tier");
    assert!(story.pods().iter().all(is_gold));
    assert_eq!(story.images(), "v2 v2");
}

#[test]
fn a_pod_that_was_only_labeled_is_changed_after_its_hook() {
    let mut story =
        labeled_only(json!({"preInplaceUpdateStrategy": {"hook": {"templateName": "test"}}}));
    resume(&mut story);
    assert_eq!(story.images(), "v1 v1");
    for _ in 0..2 {
        assert_eq!(story.hooks_end("pre-inplace", HookPhase::Successful), 1);
        story.settle();
    }
    assert_eq!(story.images(), "v2 v2");
}

#[test]
fn a_revert_resets_the_label_and_changes_nothing_else() {
    let mut story = labeled_only(json!({}));
    story.done.clear();
    story.image("v1");
    resume(&mut story);
    assert_eq!(story.columns(), "2 2 2 2 2");
    let changes_images = |action: &Write| match action.change() {
        Change::PatchInPlace(patch) => !patch.images.is_empty(),
        _ => false,
    };
    assert_eq!(story.count(changes_images), 0);
}

#[test]
fn a_pod_that_was_only_labeled_is_recreated_by_a_rolling_update() {
    let mut story = labeled_only(json!({}));
    let first = story.names().remove(0);
    story.user(json!({"updateStrategy": {"type": "RollingUpdate"}}));
    resume(&mut story);
    assert_eq!(story.images(), "v2 v2");
    assert!(!story.names().contains(&first));
}
