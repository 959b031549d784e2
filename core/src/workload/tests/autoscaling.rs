//! Stories about what an autoscaler reads from the scale subresource. While its metric is within its tolerance, a
//! HorizontalPodAutoscaler answers with status.activeReplicas, so that number must not call a scale-in off.

use serde::Serialize;
use serde_json::{Value, json};

use super::story::{Story, merge, set, story};
use crate::api::HookPhase;
use crate::workload::Planned;

fn pre_delete() -> Value {
    json!({"preDeleteUpdateStrategy": {"hook": {"templateName": "test"}}})
}

/// The spec with a PreDelete hook.
fn with_hook(spec: Value) -> Value {
    let mut whole = pre_delete();
    merge(&mut whole, spec);
    whole
}

/// status.activeReplicas and status.replicas.
fn counts<K: Planned + Serialize>(story: &Story<K>) -> (i32, i32) {
    let status = story.status();
    (status.active_replicas, status.replicas)
}

/// Reconciles until nothing changes. Returns each value that status.activeReplicas has on the way, without repetitions.
fn active_while_settling<K: Planned + Serialize>(story: &mut Story<K>) -> Vec<i32> {
    let mut seen = vec![story.status().active_replicas];
    while story.reconcile() {
        seen.push(story.status().active_replicas);
    }
    seen.dedup();
    seen
}

fn scales_in_and_back<K: Planned + Serialize>(mut story: Story<K>) {
    story.settle();
    assert_eq!(counts(&story), (40, 40));
    story.user(json!({"replicas": 34})).settle();
    assert_eq!(counts(&story), (34, 40), "six wait for their hook");
    story.user(json!({"replicas": 36})).settle();
    assert_eq!(counts(&story), (36, 40), "two of them are kept");
    while !story.runs().is_empty() {
        story.hooks_end("pre-delete", HookPhase::Successful);
        story.settle();
    }
    assert_eq!(counts(&story), (36, 36));
}

#[test]
fn pods_that_wait_for_the_hook_of_their_removal_are_not_active() {
    scales_in_and_back(story(40, pre_delete()));
    scales_in_and_back(set(40, with_hook(json!({"podManagementPolicy": "Parallel"}))));
    // Here one pod after the other waits, and five more are surplus.
    scales_in_and_back(set(40, pre_delete()));
}

#[test]
fn a_rollout_does_not_change_the_number_of_active_pods() {
    let template =
        json!({"template": {"spec": {"containers": [{"name": "game", "image": "game:v2"}]}}});
    for strategy in [
        json!({"type": "RollingUpdate", "maxSurge": 2, "maxUnavailable": 0}),
        json!({"type": "RollingUpdate", "maxSurge": 2, "maxUnavailable": 1}),
        json!({"type": "InplaceUpdate"}),
    ] {
        let mut surging = story(5, json!({"updateStrategy": strategy}));
        surging.settle();
        surging.user(template.clone());
        let active = active_while_settling(&mut surging);
        assert!(active.iter().all(|it| (3..=5).contains(it)), "{active:?}");
        assert_eq!(counts(&surging), (5, 5));
    }
}

/// They are replaced one for one: fewer would scale the workload in.
#[test]
fn pods_that_wait_to_be_replaced_are_active() {
    let update = json!({"type": "RollingUpdate", "maxSurge": 1, "maxUnavailable": 0});
    let mut recreated = story(3, with_hook(json!({"updateStrategy": update})));
    recreated.settle();
    let name = recreated.names()[0].clone();
    recreated.user(json!({"scaleStrategy": {"podsToDelete": [name]}})).settle();
    assert_eq!(counts(&recreated), (3, 4), "with its replacement");
    recreated.user(json!({"replicas": 2})).settle();
    assert_eq!(counts(&recreated).0, 2, "and without");

    let update = json!({"type": "RollingUpdate", "maxUnavailable": 1});
    let mut updated = story(3, with_hook(json!({"updateStrategy": update})));
    updated.settle();
    updated.user(
        json!({"template": {"spec": {"containers": [{"name": "game", "image": "game:v2"}]}}}),
    );
    updated.settle();
    assert_eq!(updated.runs().len(), 1);
    assert_eq!(counts(&updated), (3, 3));
}

#[test]
fn a_pod_with_a_reserved_ordinal_is_active_until_its_substitute_exists() {
    for policy in ["OrderedReady", "Parallel"] {
        let mut story = set(3, with_hook(json!({"podManagementPolicy": policy})));
        story.settle();
        story.user(json!({"reserveOrders": [1]}));
        assert_eq!(active_while_settling(&mut story), [3], "{policy}");
        assert_eq!(counts(&story), (3, 4), "{policy}");
    }
}

/// A failed pod is not replaced for minutes; an autoscaler must not take that for a smaller workload.
#[test]
fn pods_that_are_kept_after_they_ended_at_once_are_active() {
    let mut story = story(3, json!({}));
    story.settle();
    story.rejection = Some("OutOfcpu: Pod was rejected".to_owned());
    story.user(json!({"replicas": 5})).settle();
    story.wait(1).settle();
    assert_eq!(story.condition("FailedScale").expect("condition").0, "PodsEndAtOnce");
    assert_eq!(counts(&story), (5, 3));
}
