//! Stories about quotas. A dry run tests whether there is room for an additional pod, and its refusal names only the first
//! quota that is exceeded: one pod is given up to find out about the others.

use serde_json::{Value, json};

use super::story::{Story, set, story};
use crate::write::{Change, DeletionReason, Write};

const FULL: &str = "exceeded quota: pods, requested: pods=1, used: pods=4, limited: pods=4";
const OTHER: &str =
    "exceeded quota: cpu, requested: requests.cpu=2, used: requests.cpu=3, limited: requests.cpu=4";

/// A workload in a full namespace. Pods with the image `game:v2` are refused by a second quota as well.
fn with_two_quotas(replicas: i32, spec: Value) -> Story {
    let mut story = story(replicas, spec);
    story.settle();
    story.dry_run_refusal = Some(FULL.to_owned());
    story.creation_refusal = Some(("game:v2".to_owned(), OTHER.to_owned()));
    story
}

fn updates(story: &Story) -> usize {
    let updates = |it: &Write| match it.change() {
        Change::DeletePod(it) => it.reason == DeletionReason::Update,
        _ => false,
    };
    story.count(updates)
}

#[test]
fn a_second_quota_costs_one_pod_which_comes_back_at_the_stable_revision() {
    for max_unavailable in [1, 2, 4] {
        let strategy = json!({"updateStrategy": {"maxUnavailable": max_unavailable}});
        let mut story = with_two_quotas(4, strategy);
        story.image("v2");
        for _ in 0..10 {
            for _ in 0..20 {
                story.reconcile();
            }
            story.wait(31);
        }
        assert_eq!((story.images().as_str(), updates(&story)), ("v1 v1 v1 v1", 1));
        let (reason, message) = story.condition("FailedUpdate").expect("a condition");
        assert_eq!(reason, "TemplateRefused");
        assert!(message.contains("after a running pod had been deleted for it"), "{message}");
        assert!(message.contains("make room for an additional pod"), "{message}");
        // There is room.
        (story.dry_run_refusal, story.creation_refusal) = (None, None);
        story.wait(31).settle();
        assert_eq!(story.images(), "v2 v2 v2 v2");
        assert_eq!(story.condition("FailedUpdate"), None);
    }
}

#[test]
fn one_pod_is_replaced_first_in_a_full_namespace_and_the_others_once_it_exists() {
    let mut story = story(4, json!({"updateStrategy": {"maxUnavailable": 2}}));
    story.settle();
    story.dry_run_refusal = Some(FULL.to_owned());
    // The quota goes on counting the deleted pod for a moment.
    story.creation_refusal = Some(("game:v2".to_owned(), FULL.to_owned()));
    story.image("v2");
    for _ in 0..20 {
        story.reconcile();
    }
    assert_eq!((story.images().as_str(), updates(&story)), ("v1 v1 v1", 1));
    story.creation_refusal = None;
    story.wait(2).settle();
    assert_eq!(story.condition("FailedUpdate"), None);
    assert_eq!((story.images().as_str(), updates(&story)), ("v2 v2 v2 v2", 4));
}

/// It counts against the quota until it is gone, which may take as long as its grace period.
#[test]
fn a_pod_is_not_replaced_in_a_full_namespace_before_it_is_gone() {
    let mut story = story(3, json!({"updateStrategy": {"maxUnavailable": 2}}));
    story.settle();
    story.dry_run_refusal = Some(FULL.to_owned());
    story.slow_to_end = true;
    story.image("v2");
    for _ in 0..5 {
        story.settle();
        story.wait(60);
    }
    assert_eq!((story.images().as_str(), updates(&story)), ("v1 v1 v1", 1));
    story.slow_to_end = false;
    story.end_terminating().settle();
    assert_eq!(story.images(), "v2 v2 v2");
}

#[test]
fn no_pod_is_given_up_for_one_that_other_quotas_count() {
    for (before, after) in [
        (json!({"priorityClassName": "low"}), json!({"priorityClassName": "high"})),
        (json!({}), json!({"activeDeadlineSeconds": 3600})),
    ] {
        let mut story = story(4, json!({"template": {"spec": before}}));
        story.settle();
        story.dry_run_refusal = Some(FULL.to_owned());
        story.user(json!({"template": {"spec": after}})).settle();
        assert_eq!(updates(&story), 0, "{after}");
        assert_eq!(story.condition("FailedUpdate").expect("a condition").0, "TemplateRefused");
    }
}

#[test]
fn resources_of_the_whole_pod_and_its_overhead_make_room_for_its_replacement() {
    let mut story =
        story(3, json!({"template": {"spec": {"resources": {"requests": {"cpu": "2"}}}}}));
    story.settle();
    for name in story.names() {
        story.edit_pod(&name, |pod| pod.overhead = Some(r#"{"cpu":"100m"}"#.into()));
    }
    let refusal = "exceeded quota: cpu, requested: requests.cpu=2100m, used: requests.cpu=6300m, \
                   limited: requests.cpu=6300m";
    story.dry_run_refusal = Some(refusal.to_owned());
    story.image("v2").settle();
    assert_eq!(story.images(), "v2 v2 v2");
}

/// A revision may already have pods when a quota is lowered.
#[test]
fn a_pod_of_a_set_that_a_second_quota_refuses_comes_back_at_the_stable_revision() {
    for policy in ["OrderedReady", "Parallel"] {
        let mut story = set(3, json!({"podManagementPolicy": policy}));
        story.settle();
        story.dry_run_refusal = Some(FULL.to_owned());
        story.creation_refusal = Some(("game:v2".to_owned(), OTHER.to_owned()));
        story.image("v2");
        for _ in 0..10 {
            for _ in 0..20 {
                story.reconcile();
            }
            story.wait(31);
        }
        assert_eq!(story.images(), "v1 v1 v1", "{policy}");
        let deleted = |it: &Write| matches!(it.change(), Change::DeletePod(_));
        assert_eq!(story.count(deleted), 1, "{policy}");
    }
}
