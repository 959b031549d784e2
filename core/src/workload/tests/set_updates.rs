//! Stories about updates of GameStatefulSets: order, partition, canary steps and surge pods.

use serde_json::json;

use super::sets::{Set, created_and_deleted, hooked, shape};
use super::story::set;
use crate::observed::{Pod, PodPhase};
use crate::write::Change;

#[test]
fn an_update_proceeds_downward_within_its_budget() {
    let mut story = set(4, json!({}));
    story.settle();
    story.image("v2");
    let mut shapes = Vec::new();
    while story.reconcile() {
        let ready = story.pods().iter().filter(|pod| pod.is_ready()).count();
        assert!(ready >= 3, "{ready}");
        let current = shape(&story);
        if shapes.last() != Some(&current) {
            shapes.push(current);
        }
    }
    // The shape of four pods has 19 characters.
    let with_all_pods: Vec<_> = shapes.iter().filter(|it| it.len() == 19).collect();
    assert_eq!(
        with_all_pods,
        [
            "0:v1 1:v1 2:v1 3:v1",
            "0:v1 1:v1 2:v1 3:v2",
            "0:v1 1:v1 2:v2 3:v2",
            "0:v1 1:v2 2:v2 3:v2",
            "0:v2 1:v2 2:v2 3:v2"
        ]
    );
}

#[test]
fn a_partition_counts_from_the_first_ordinal() {
    for (partition, images) in [
        (json!(2), "5:v1 6:v1 7:v2 8:v2"),
        (json!("50%"), "5:v1 6:v1 7:v2 8:v2"),
        (json!("99%"), "5:v1 6:v1 7:v1 8:v2"),
        (json!(9), "5:v1 6:v1 7:v1 8:v1"),
    ] {
        let mut story = set(
            4,
            json!({"ordinals": {"start": 5}, "updateStrategy": {"rollingUpdate": {"partition": partition}}}),
        );
        story.settle();
        story.image("v2").settle();
        assert_eq!(shape(&story), images, "{partition}");
        story.image("v1").settle();
        assert_eq!(shape(&story), "5:v1 6:v1 7:v1 8:v1", "a rollback reaches every pod");
    }
}

#[test]
fn failed_pods_are_recreated_at_the_revision_of_their_side_of_the_partition() {
    let mut story = set(4, json!({"updateStrategy": {"partition": 2}}));
    story.settle();
    story.image("v2").settle();
    for name in ["game-1", "game-3"] {
        story.edit_pod(name, |pod| pod.phase = PodPhase::Failed);
    }
    story.settle();
    assert_eq!(shape(&story), "0:v1 1:v1 2:v2 3:v2");
}

#[test]
fn a_pod_below_the_partition_is_not_recreated_if_the_stable_revision_is_gone() {
    let mut story = set(3, json!({"updateStrategy": {"partition": 2}}));
    story.settle();
    let stable = story.status().update_revision;
    story.image("v2").settle();
    story.world.revisions.retain(|it| it.name != stable);
    story.edit_pod("game-0", |pod| pod.terminating = true);
    story.end_terminating().settle();
    assert_eq!(shape(&story), "1:v1 2:v2");
    let (reason, _) = story.condition("FailedScale").expect("a condition");
    assert_eq!(reason, "RevisionNotFound");
}

#[test]
fn lowering_or_raising_the_partition_reverts_no_pod() {
    let mut story = set(3, json!({"updateStrategy": {"partition": 3}}));
    story.settle();
    story.image("v2").settle();
    for (partition, images) in
        [(2, "0:v1 1:v1 2:v2"), (1, "0:v1 1:v2 2:v2"), (3, "0:v1 1:v2 2:v2"), (0, "0:v2 1:v2 2:v2")]
    {
        story.user(json!({"updateStrategy": {"partition": partition}})).settle();
        assert_eq!(shape(&story), images, "{partition}");
    }
}

#[test]
fn an_ordered_removal_and_an_update_do_not_begin_together() {
    let mut story = set(3, json!({}));
    story.settle();
    story.user(json!({"replicas": 2}));
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
    assert_eq!(all_deleted, ["game-2", "game-1", "game-0"]);
    assert_eq!(shape(&story), "0:v2 1:v2");
}

#[test]
fn a_revert_does_not_wait_for_a_broken_update() {
    for policy in ["OrderedReady", "Parallel"] {
        let mut story = set(3, json!({"podManagementPolicy": policy}));
        story.settle();
        story.image("v2");
        story.user(json!({"template": {"metadata": {"labels": {"broken": ""}}}})).settle();
        assert_eq!(shape(&story), "0:v1 1:v1 2:v2", "{policy}: the update stops at the first pod");
        story.image("v1");
        story.user(json!({"template": {"metadata": {"labels": {"broken": null}}}})).settle();
        assert_eq!(shape(&story), "0:v1 1:v1 2:v1", "{policy}");
        assert_eq!(story.status().ready_replicas, 3);
    }
}

#[test]
fn a_first_version_that_never_becomes_ready_is_fixed_by_the_next_one() {
    let mut story = set(3, json!({"template": {"metadata": {"labels": {"broken": ""}}}}));
    story.settle();
    assert_eq!(shape(&story), "0:v1");
    story.image("v2");
    story.user(json!({"template": {"metadata": {"labels": {"broken": null}}}})).settle();
    assert_eq!(shape(&story), "0:v2 1:v2 2:v2");
}

#[test]
fn with_on_delete_the_ready_condition_shows_how_many_pods_are_updated() {
    let mut story = set(3, json!({"updateStrategy": {"type": "OnDelete"}}));
    story.settle();
    let ready = |story: &Set| story.condition("Ready").expect("condition").1;
    assert_eq!(ready(&story), "3 pods are available at the desired revision");
    story.image("v2").settle();
    let message = "3 pods are available, 0 of them at the update revision: the others are updated when they are deleted";
    assert_eq!(ready(&story), message);
}

#[test]
fn a_full_quota_does_not_block_an_ordered_update() {
    // The pod that cannot be created counts as unavailable.
    let mut story = set(3, json!({"updateStrategy": {"maxUnavailable": 2}}));
    story.settle();
    story.quota = Some(3);
    story.user(json!({"replicas": 4})).image("v2");
    for _ in 0..50 {
        let (created, deleted) = created_and_deleted(&story);
        assert!(created.is_empty() || deleted.is_empty(), "not both in the same plan");
        story.reconcile();
    }
    assert_eq!(shape(&story), "0:v2 1:v2 2:v2");
    let (reason, message) = story.condition("FailedScale").expect("a condition");
    assert_eq!(reason, "FailedCreate");
    assert!(message.contains("exceeded quota"), "{message}");
    story.quota = None;
    story.settle();
    assert_eq!(shape(&story), "0:v2 1:v2 2:v2 3:v2");
    assert_eq!(story.condition("FailedScale"), None);
}

#[test]
fn with_on_delete_a_pod_is_updated_when_a_user_deletes_it() {
    let mut story = set(3, json!({"updateStrategy": {"type": "OnDelete"}}));
    story.settle();
    story.image("v2").settle();
    assert_eq!(shape(&story), "0:v1 1:v1 2:v1");
    story.world.pods.retain(|pod| pod.name != "game-1");
    story.settle();
    assert_eq!(shape(&story), "0:v1 1:v2 2:v1");
    assert_eq!(story.condition("Ready").map(|it| it.0).as_deref(), Some("AllPodsAvailable"));
}

#[test]
fn in_place_updates_keep_every_pod() {
    let mut story = set(3, json!({"updateStrategy": {"type": "InplaceUpdate"}}));
    story.settle();
    let before: Vec<_> = story.pods().iter().map(|pod| pod.uid.clone()).collect();
    story.image("v2").settle();
    let after: Vec<_> = story.pods().iter().map(|pod| pod.uid.clone()).collect();
    assert_eq!(before, after);
    assert_eq!(shape(&story), "0:v2 1:v2 2:v2");
}

#[test]
fn canary_steps_update_the_highest_ordinals() {
    let mut story = set(
        4,
        json!({"updateStrategy": {"canary": {"steps": [{"partition": 3}, {"pause": {}}, {"partition": 1}, {"pause": {"duration": 60}}]}}}),
    );
    story.settle();
    story.image("v2").settle();
    assert_eq!(shape(&story), "0:v1 1:v1 2:v1 3:v2");
    assert!(story.paused());
    // Pods that an autoscaler adds do not get the unproven build.
    story.user(json!({"replicas": 6})).settle();
    assert_eq!(shape(&story), "0:v1 1:v1 2:v1 3:v2 4:v1 5:v1");
    story.user(json!({"replicas": 4})).settle();
    story.user(json!({"updateStrategy": {"paused": false}})).settle();
    assert_eq!(shape(&story), "0:v1 1:v2 2:v2 3:v2");
    story.wait(61).settle();
    assert_eq!(shape(&story), "0:v2 1:v2 2:v2 3:v2");
    assert_eq!(story.object.status.clone().expect("status").current_replicas, 4);
}

#[test]
fn undoing_a_scale_in_and_an_update_cancels_their_hooks() {
    let mut story = set(4, hooked());
    story.settle();
    story.image("v2").settle();
    story.user(json!({"replicas": 2})).settle();
    let runs = story.runs();
    assert!(runs.iter().any(|name| name.contains("-3-test")), "{runs:?}");
    story.user(json!({"replicas": 4}));
    story.image("v1").settle();
    assert!(story.runs().is_empty());
    assert_eq!(story.count(|action| matches!(action.change(), Change::DeletePod(_))), 0);
}

#[test]
fn surge_pods_have_the_highest_ordinals_and_are_deleted_at_the_end() {
    for type_ in ["RollingUpdate", "InplaceUpdate"] {
        let mut story = set(
            3,
            json!({
                "podManagementPolicy": "Parallel",
                "updateStrategy": {"type": type_, "maxSurge": 1, "maxUnavailable": 0},
            }),
        );
        story.settle();
        story.image("v2");
        let mut max_pods = 0;
        while story.reconcile() {
            let ready = story.pods().iter().filter(|pod| pod.is_ready()).count();
            assert!(ready >= 3, "{type_}: {}", shape(&story));
            max_pods = max_pods.max(story.pods().len());
        }
        assert_eq!(max_pods, 4);
        assert_eq!(shape(&story), "0:v2 1:v2 2:v2", "{type_}");
    }
}

#[test]
fn a_surge_pod_stays_until_the_last_updated_pod_is_available() {
    let spec = json!({
        "podManagementPolicy": "Parallel",
        "updateStrategy": {"maxSurge": 1, "maxUnavailable": 0},
    });
    for is_rolled_back in [false, true] {
        let mut story = set(2, spec.clone());
        story.settle();
        story.slow_to_end = true;
        story.image("v2");
        if is_rolled_back {
            reconcile_until(&mut story, "0:v1 1:v2 2:v2");
            story.image("v1");
        }
        let end = if is_rolled_back { "0:v1 1:v1" } else { "0:v2 1:v2" };
        reconcile_until(&mut story, end);
        assert_eq!(story.status().surge_replicas, 0);
    }
}

/// Reconciles until exactly these pods exist, and checks that two pods are always available.
fn reconcile_until(story: &mut Set, end: &str) {
    for _ in 0..50 {
        while shape(story) != end && story.reconcile() {
            assert_available(story, 2);
        }
        if shape(story) == end {
            return;
        }
        story.end_terminating();
    }
    panic!("{} instead of {end}", shape(story));
}

fn assert_available(story: &Set, minimum: usize) {
    let is_available = |pod: &&&Pod| pod.is_ready() && !pod.terminating;
    let available = story.pods().iter().filter(is_available).count();
    assert!(available >= minimum, "{}", shape(story));
}

#[test]
fn a_scale_in_does_not_wait_for_broken_pods() {
    let mut story = set(
        4,
        json!({
            "podManagementPolicy": "Parallel",
            "updateStrategy": {"maxSurge": 2, "maxUnavailable": 0},
        }),
    );
    story.settle();
    story.edit_pod("game-0", |pod| {
        pod.labels.insert("broken".to_owned(), String::new());
    });
    story.settle();
    story.user(json!({"replicas": 2})).settle();
    assert_eq!(shape(&story), "0:v1 1:v1");
}

#[test]
fn a_surge_pod_becomes_a_regular_one_on_a_scale_out() {
    let mut story = set(
        2,
        json!({
            "podManagementPolicy": "Parallel",
            "updateStrategy": {"maxSurge": 1, "maxUnavailable": 0},
            "preDeleteUpdateStrategy": {"hook": {"templateName": "test"}},
        }),
    );
    story.settle();
    story.image("v2").settle();
    assert_eq!(shape(&story), "0:v1 1:v1 2:v2");
    let surge_uid = story.pods()[2].uid.clone();
    story.user(json!({"replicas": 3})).settle();
    assert!(story.pods().iter().any(|pod| pod.uid == surge_uid));
}
