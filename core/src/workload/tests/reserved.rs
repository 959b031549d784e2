//! Stories about reserved ordinals: which pods exist, which ones are deleted, and what happens to claims.

use std::sync::Arc;

use serde_json::{Value, json};

use super::sets::{Set, assert_deleted_in_turn, created_and_deleted, set_ready, shape};
use super::story::set;
use crate::api::HookPhase;
use crate::write::{Change, DeletionReason, Write};

const POLICIES: [&str; 2] = ["OrderedReady", "Parallel"];

fn with_policy(policy: &str) -> Value {
    json!({"podManagementPolicy": policy})
}

fn settled(replicas: i32, policy: &str) -> Set {
    let mut story = set(replicas, with_policy(policy));
    story.settle();
    story
}

/// A settled set with a PreDelete hook.
fn hooked(replicas: i32, policy: &str) -> Set {
    let hook = json!({"hook": {"templateName": "test"}});
    let mut story =
        set(replicas, json!({"podManagementPolicy": policy, "preDeleteUpdateStrategy": hook}));
    story.settle();
    story
}

fn reserve(story: &mut Set, ordinals: &[i64]) {
    story.user(json!({"reserveOrders": ordinals}));
}

/// Reconciles until nothing changes. Returns the lowest number of pods and the lowest number of ready pods on the way.
fn fewest_while_settling(story: &mut Set) -> (usize, usize) {
    let (mut pods, mut ready) = (usize::MAX, usize::MAX);
    while story.reconcile() {
        pods = pods.min(story.pods().len());
        ready = ready.min(story.pods().iter().filter(|it| it.is_ready()).count());
    }
    (pods, ready)
}

#[test]
fn reserved_ordinals_get_no_pod_and_do_not_count_as_replicas() {
    for policy in POLICIES {
        for (start, reserved, expected) in [
            (0, json!([1]), "0:v1 2:v1 3:v1"),
            (0, json!([0, 2]), "1:v1 3:v1 4:v1"),
            (0, json!([3, 7]), "0:v1 1:v1 2:v1"),
            (5, json!([1, 6, 8]), "5:v1 7:v1 9:v1"),
        ] {
            let mut story = set(3, with_policy(policy));
            story.user(json!({"ordinals": {"start": start}, "reserveOrders": reserved}));
            story.settle();
            assert_eq!(shape(&story), expected, "{policy}");
            assert_eq!(story.columns(), "3 3 3 3 3");
            let ready = story.condition("Ready").expect("a condition");
            assert_eq!(ready.0, "AllPodsAvailable");
            story.user(json!({"replicas": 4})).settle();
            story.user(json!({"replicas": 1})).settle();
            assert_eq!(story.pods().len(), 1);
        }
    }
}

#[test]
fn the_next_ordinal_substitutes_for_a_reserved_one_until_the_reservation_ends() {
    for policy in POLICIES {
        let mut story = settled(3, policy);
        let revisions = story.world.revisions.len();
        let uid = |story: &Set, name: &str| {
            let pods = story.pods();
            pods.iter().find(|pod| pod.name == name).map(|pod| pod.uid.clone())
        };
        let kept = ["game-0", "game-2"].map(|name| uid(&story, name));
        reserve(&mut story, &[1]);
        assert_eq!(fewest_while_settling(&mut story), (3, 3), "{policy}");
        assert_eq!(shape(&story), "0:v1 2:v1 3:v1", "{policy}");
        reserve(&mut story, &[]);
        let (pods, _) = fewest_while_settling(&mut story);
        assert_eq!(pods, 3, "{policy}");
        assert_eq!(shape(&story), "0:v1 1:v1 2:v1", "{policy}");
        assert_eq!(["game-0", "game-2"].map(|name| uid(&story, name)), kept);
        assert_eq!(story.world.revisions.len(), revisions, "no new revision");
    }
}

#[test]
fn a_set_is_not_ready_while_a_pod_with_a_reserved_ordinal_exists() {
    for policy in POLICIES {
        let mut story = settled(3, policy);
        for reserved in [&[1][..], &[]] {
            reserve(&mut story, reserved);
            story.reconcile();
            let ready = story.condition("Ready").expect("a condition");
            assert_ne!(ready.0, "AllPodsAvailable", "{policy} {reserved:?}");
            story.settle();
            let ready = story.condition("Ready").expect("a condition");
            assert_eq!(ready.0, "AllPodsAvailable", "{policy} {reserved:?}");
        }
    }
}

#[test]
fn parallel_creates_all_substitutes_immediately_and_deletes_each_pod_when_its_substitute_is_available()
 {
    let mut story = settled(4, "Parallel");
    story.kubelets_run = false;
    reserve(&mut story, &[0, 2]);
    let (created, deleted) = created_and_deleted(&story);
    assert_eq!((created.len(), deleted.len()), (2, 0));
    story.reconcile();
    assert_eq!(created_and_deleted(&story), (vec![], vec![]), "neither substitute is available");
    story.edit_pod("game-4", |pod| {
        pod.labels.insert("broken".to_owned(), String::new());
    });
    story.kubelets_run = true;
    story.settle();
    assert_eq!(
        shape(&story),
        "0:v1 1:v1 3:v1 4:v1 5:v1",
        "one reserved pod has no available substitute"
    );
    set_ready(&mut story, "game-4", true);
    story.settle();
    assert_eq!(shape(&story), "1:v1 3:v1 4:v1 5:v1");
}

#[test]
fn an_unavailable_pod_delays_substitutes_only_with_ordered_ready() {
    for (policy, shape_meanwhile) in
        [("Parallel", "0:v1 2:v1 3:v1"), ("OrderedReady", "0:v1 1:v1 2:v1")]
    {
        let mut story = settled(3, policy);
        set_ready(&mut story, "game-0", false);
        reserve(&mut story, &[1]);
        story.settle();
        assert_eq!(shape(&story), shape_meanwhile);
        set_ready(&mut story, "game-0", true);
        story.settle();
        assert_eq!(shape(&story), "0:v1 2:v1 3:v1");
    }
}

#[test]
fn ordered_ready_creates_substitutes_upward_and_deletes_reserved_pods_downward() {
    let mut story = settled(3, "OrderedReady");
    story.slow_to_end = true;
    reserve(&mut story, &[0, 1]);
    for created in ["game-3", "game-4"] {
        assert_eq!(created_and_deleted(&story), (vec![created.to_owned()], vec![]));
        story.reconcile();
    }
    assert_deleted_in_turn(&mut story, &["game-1", "game-0"]);
    story.settle();
    assert_eq!(shape(&story), "2:v1 3:v1 4:v1");
}

#[test]
fn a_reserved_pod_is_kept_until_its_hook_passes() {
    for policy in POLICIES {
        let mut story = hooked(3, policy);
        reserve(&mut story, &[1]);
        story.settle();
        assert_eq!(shape(&story), "0:v1 1:v1 2:v1 3:v1", "{policy}");
        assert_eq!(story.runs().len(), 1);
        let (reason, message) = story.condition("Ready").expect("a condition");
        assert_eq!(reason, "PodsToDelete");
        assert!(message.contains("their ordinal is reserved: 1"), "{message}");
        story.hooks_end("-1-test", HookPhase::Failed);
        story.settle();
        assert_eq!(story.pods().len(), 4, "{policy}");
        let blocked = story.status().pre_delete_hook_condition;
        assert_eq!(blocked[0].pod_name, "game-1");
        story.world.runs.clear();
        story.settle();
        story.hooks_end("-1-test", HookPhase::Successful);
        story.settle();
        assert_eq!(shape(&story), "0:v1 2:v1 3:v1", "{policy}");
        let is_reserved = |action: &Write| matches!(action.change(), Change::DeletePod(it) if it.reason == DeletionReason::Reserved);
        assert_eq!(story.count(is_reserved), 1);
    }
}

#[test]
fn ending_a_reservation_cancels_the_deletion_of_the_pod() {
    for policy in POLICIES {
        let mut story = hooked(3, policy);
        let uid = story.pods()[1].uid.clone();
        reserve(&mut story, &[1]);
        story.settle();
        assert!(story.pods()[1].marked_deleting, "{policy}");
        reserve(&mut story, &[]);
        story.settle();
        assert_eq!(story.runs().len(), 1);
        assert!(story.runs()[0].contains("-3-test"), "{:?}", story.runs());
        story.hooks_end("-3-test", HookPhase::Successful);
        story.settle();
        assert_eq!(shape(&story), "0:v1 1:v1 2:v1", "{policy}");
        assert_eq!(story.pods()[1].uid, uid, "{policy}");
        assert!(!story.pods()[1].marked_deleting);
    }
}

#[test]
fn a_reserved_pod_is_not_updated() {
    for policy in POLICIES {
        let mut story = hooked(3, policy);
        reserve(&mut story, &[1]);
        story.settle();
        story.image("v2").settle();
        for _ in 0..5 {
            story.hooks_end("-0-test", HookPhase::Successful);
            story.hooks_end("-2-test", HookPhase::Successful);
            story.hooks_end("-3-test", HookPhase::Successful);
            story.settle();
        }
        assert_eq!(shape(&story), "0:v2 1:v1 2:v2 3:v2", "{policy}");
        story.hooks_end("-1-test", HookPhase::Successful);
        story.settle();
        assert_eq!(shape(&story), "0:v2 2:v2 3:v2", "{policy}");
    }
}

#[test]
fn a_reserved_pod_and_its_substitute_are_not_deleted_together() {
    let mut story = settled(3, "Parallel");
    reserve(&mut story, &[1]);
    story.image("v2");
    let mut all_deleted = Vec::new();
    loop {
        let (_, deleted) = created_and_deleted(&story);
        assert!(deleted.len() <= 1, "{deleted:?}");
        all_deleted.extend(deleted);
        if !story.reconcile() {
            break;
        }
    }
    assert!(all_deleted.contains(&"game-1".to_owned()), "{all_deleted:?}");
    assert_eq!(shape(&story), "0:v2 2:v2 3:v2");
}

#[test]
fn reserved_pods_are_replaced_while_a_rollout_is_paused() {
    for policy in POLICIES {
        let mut story = settled(3, policy);
        story.user(json!({"updateStrategy": {"paused": true}}));
        story.image("v2").settle();
        reserve(&mut story, &[0]);
        story.settle();
        assert_eq!(shape(&story), "1:v1 2:v1 3:v1", "{policy}");
    }
}

/// A set of three pods of which two are updated, in which room for one more update is left, and which grows by two pods. They
/// take a while to start.
fn growing(policy: &str, strategy: Value) -> Set {
    let mut story = set(3, json!({"podManagementPolicy": policy, "updateStrategy": strategy}));
    reserve(&mut story, &[0]);
    story.settle();
    story.image("v2").user(json!({"updateStrategy": {"partition": 1}})).settle();
    assert_eq!(shape(&story), "1:v1 2:v2 3:v2", "{policy}");
    story.done.clear();
    story.kubelets_run = false;
    story.user(json!({"replicas": 5, "updateStrategy": {"partition": 2}}));
    story
}

/// The pod would come back at the old revision, and be deleted again without end.
#[test]
fn no_pod_is_deleted_for_an_update_that_a_pod_above_it_will_get() {
    for policy in POLICIES {
        let mut story = growing(policy, json!({}));
        story.settle();
        story.kubelets_run = true;
        story.settle();
        assert_eq!(shape(&story), "1:v1 2:v2 3:v2 4:v1 5:v2", "{policy}");
        assert_eq!(story.count(|it| matches!(it.change(), Change::DeletePod(_))), 0);
    }
}

/// It need not come back.
#[test]
fn a_pod_is_updated_in_place_although_a_pod_above_it_is_yet_to_be_created() {
    let in_place = json!({"type": "InplaceUpdate"});
    let mut story = growing("OrderedReady", in_place);
    story.reconcile();
    let name = story.names().pop().expect("a new pod");
    story.edit_pod(&name, |pod| {
        pod.labels.insert("broken".to_owned(), String::new());
    });
    story.kubelets_run = true;
    story.settle();
    assert_eq!(shape(&story), "1:v1 2:v2 3:v2 4:v2");
}

/// As many pods as the partition leaves are updated, but one of them is below it.
#[test]
fn a_set_is_not_ready_while_a_pod_above_the_partition_waits_for_its_update() {
    for policy in POLICIES {
        let mut story = hooked(3, policy);
        reserve(&mut story, &[0]);
        story.settle();
        story.hooks_end("pre", HookPhase::Successful);
        story.settle();
        story.image("v2").user(json!({"updateStrategy": {"partition": 1}})).settle();
        story.hooks_end("pre", HookPhase::Successful);
        story.settle();
        story.hooks_end("pre", HookPhase::Failed);
        story.settle();
        assert_eq!(shape(&story), "1:v1 2:v1 3:v2", "{policy}");
        reserve(&mut story, &[]);
        story.user(json!({"replicas": 4, "updateStrategy": {"partition": 0}})).settle();
        story.user(json!({"updateStrategy": {"partition": 2}})).settle();
        assert_eq!(shape(&story), "0:v2 1:v1 2:v1 3:v2", "{policy}");
        assert_ne!(story.condition("Ready").expect("a condition").0, "AllPodsAvailable");
        story.user(json!({"preDeleteUpdateStrategy": {"retry": true}})).settle();
        story.hooks_end("pre", HookPhase::Successful);
        story.settle();
        assert_eq!(shape(&story), "0:v2 1:v1 2:v2 3:v2", "{policy}");
        assert_eq!(story.condition("Ready").expect("a condition").0, "AllPodsAvailable");
    }
}

#[test]
fn a_partition_counts_pods_not_ordinals() {
    for (reserved, partition, expected) in [
        (json!([1]), json!(2), "0:v1 2:v1 3:v2 4:v2"),
        (json!([0, 1, 2]), json!(1), "3:v1 4:v2 5:v2 6:v2"),
        (json!([0]), json!("50%"), "1:v1 2:v1 3:v2 4:v2"),
        (json!([4]), json!(4), "0:v1 1:v1 2:v1 3:v1"),
    ] {
        for policy in POLICIES {
            let mut story = set(4, with_policy(policy));
            story.user(
                json!({"reserveOrders": reserved, "updateStrategy": {"partition": partition}}),
            );
            story.settle();
            story.image("v2").settle();
            assert_eq!(shape(&story), expected, "{policy}");
        }
    }
}

#[test]
fn a_step_counts_pods_not_ordinals() {
    let steps = json!([{"partition": 2}, {"pause": {}}]);
    let mut story = set(3, with_policy("Parallel"));
    story.user(json!({"reserveOrders": [1], "updateStrategy": {"canary": {"steps": steps}}}));
    story.settle();
    story.image("v2").settle();
    assert_eq!(shape(&story), "0:v1 2:v1 3:v2");
    // Substitutes for ordinals that are reserved during the step do not get the unproven build.
    reserve(&mut story, &[1, 2]);
    story.settle();
    assert_eq!(shape(&story), "0:v1 3:v2 4:v1");
}

#[test]
fn surge_pods_skip_reserved_ordinals() {
    let mut story = set(
        2,
        json!({
            "podManagementPolicy": "Parallel", "reserveOrders": [1, 3],
            "updateStrategy": {"maxSurge": 1, "maxUnavailable": 0},
        }),
    );
    story.settle();
    assert_eq!(shape(&story), "0:v1 2:v1");
    story.image("v2");
    let mut highest = String::new();
    while story.reconcile() {
        let ready = story.pods().iter().filter(|pod| pod.is_ready()).count();
        assert!(ready >= 2, "{}", shape(&story));
        let last = shape(&story).split(' ').next_back().unwrap_or_default().to_owned();
        highest = highest.max(last);
    }
    assert_eq!(highest, "4:v2");
    assert_eq!(shape(&story), "0:v2 2:v2");
}

#[test]
fn a_reserved_pod_that_ended_or_was_deleted_is_not_created_again() {
    for policy in POLICIES {
        let mut story = hooked(3, policy);
        reserve(&mut story, &[1]);
        story.settle();
        story.fail_pod("game-1");
        story.settle();
        assert_eq!(shape(&story), "0:v1 2:v1 3:v1", "{policy}");
        let mut story = hooked(3, policy);
        reserve(&mut story, &[1]);
        story.world.pods.retain(|pod| pod.name != "game-1");
        story.settle();
        assert_eq!(shape(&story), "0:v1 2:v1 3:v1", "{policy}");
    }
}

#[test]
fn a_refused_creation_keeps_the_reserved_pod_but_does_not_delay_a_scale_in() {
    let mut story = settled(3, "Parallel");
    story.quota = Some(3);
    reserve(&mut story, &[1]);
    for _ in 0..20 {
        story.reconcile();
    }
    assert_eq!(shape(&story), "0:v1 1:v1 2:v1");
    assert_eq!(story.condition("FailedScale").expect("a condition").0, "FailedCreate");
    story.world.pods.retain(|pod| pod.name != "game-0");
    story.quota = Some(0);
    story.user(json!({"replicas": 1, "reserveOrders": []}));
    for _ in 0..20 {
        story.reconcile();
    }
    assert_eq!(shape(&story), "", "a scale-in does not wait for a pod that cannot be created");
}

#[test]
fn a_victim_is_kept_while_a_pod_is_missing() {
    let mut story = settled(4, "Parallel");
    story.world.pods.retain(|pod| pod.name != "game-0");
    story.user(json!({"replicas": 3}));
    assert_eq!(created_and_deleted(&story), (vec!["game-0".to_owned()], vec![]));
    story.settle();
    assert_eq!(shape(&story), "0:v1 1:v1 2:v1");
}

#[test]
fn claims_of_a_reserved_ordinal_are_kept_regardless_of_the_policy() {
    for (when_deleted, owner) in [("Retain", ""), ("Delete", "GameStatefulSet")] {
        let mut story = set(
            3,
            json!({
                "podManagementPolicy": "Parallel",
                "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {}}],
                "persistentVolumeClaimRetentionPolicy": {"whenDeleted": when_deleted, "whenScaled": "Delete"},
            }),
        );
        story.settle();
        let uid = story.world.claims["data-game-1"].uid.clone();
        reserve(&mut story, &[1]);
        story.settle();
        let claims_of = |ordinals: &[i64]| {
            let claims = ordinals.iter().map(|it| format!("data-game-{it}:{owner}"));
            claims.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(story.claims(), claims_of(&[0, 1, 2, 3]));
        reserve(&mut story, &[]);
        story.settle();
        assert_eq!(
            story.claims(),
            claims_of(&[0, 1, 2]),
            "the claim of game-3 was deleted with its pod"
        );
        assert_eq!(story.world.claims["data-game-1"].uid, uid, "the pod has its old claim");
    }
}

#[test]
fn reserving_the_ordinal_of_a_terminating_pod_saves_its_claim() {
    let mut story = set(
        2,
        json!({
            "podManagementPolicy": "Parallel",
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {}}],
            "persistentVolumeClaimRetentionPolicy": {"whenScaled": "Delete"},
        }),
    );
    story.settle();
    story.slow_to_end = true;
    story.user(json!({"replicas": 1})).settle();
    assert!(story.claims().ends_with("data-game-1:Pod"), "{}", story.claims());
    reserve(&mut story, &[1]);
    story.settle();
    story.end_terminating().settle();
    assert_eq!(story.claims(), "data-game-0: data-game-1:");
}

#[test]
fn an_orphan_with_a_reserved_ordinal_is_adopted_and_deleted_after_its_hook() {
    let mut story = hooked(2, "Parallel");
    let mut orphan = story.pods()[0].clone();
    orphan.name = "game-5".to_owned();
    orphan.uid = "uid-orphan".to_owned();
    orphan.controller = None;
    story.world.pods.push(Arc::new(orphan));
    reserve(&mut story, &[5]);
    story.settle();
    assert_eq!(story.runs().len(), 1);
    story.hooks_end("-5-test", HookPhase::Successful);
    story.settle();
    assert_eq!(shape(&story), "0:v1 1:v1");
}
