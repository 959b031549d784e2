//! Stories about rolling updates: budget, surge, partition, refused templates, hooks and revisions.

use serde_json::json;

use super::story::story;
use crate::api::HookPhase;
use crate::observed::PodPhase;
use crate::write::{Change, DeletionReason, Write};

#[test]
fn a_rolling_update_never_exceeds_its_budget() {
    let mut story = story(5, json!({"updateStrategy": {"maxUnavailable": 2}}));
    story.settle();
    story.image("v2");
    while story.reconcile() {
        let available = story.pods().iter().filter(|pod| pod.is_ready()).count();
        assert!(available >= 3, "{available}");
    }
    assert_eq!(story.images(), "v2 v2 v2 v2 v2");
}

#[test]
fn a_pod_that_is_ready_but_not_yet_available_takes_a_slot() {
    let mut story =
        story(4, json!({"minReadySeconds": 30, "updateStrategy": {"maxUnavailable": 1}}));
    story.settle();
    story.image("v2").settle();
    assert_eq!(story.images(), "v1 v1 v1 v1", "none is available yet");
    story.wait(30).settle();
    assert_eq!(story.images(), "v1 v1 v1 v2");
    // The pod that is not available may be updated again; no other pod may be updated.
    story.wait(10).image("v3").settle();
    assert_eq!(story.images(), "v1 v1 v1 v3");
    story.wait(20).settle();
    assert_eq!(story.images(), "v1 v1 v1 v3");
    story.wait(10).settle();
    assert_eq!(story.images(), "v1 v1 v3 v3");
}

#[test]
fn pods_in_pods_to_delete_are_replaced_only_within_the_budget() {
    let mut story =
        story(4, json!({"minReadySeconds": 30, "updateStrategy": {"maxUnavailable": 1}}));
    story.settle();
    let before = story.names();
    story.user(json!({"scaleStrategy": {"podsToDelete": before}})).settle();
    assert_eq!(story.names(), before);
    story.wait(30).settle();
    let kept = story.names().into_iter().filter(|it| before.contains(it));
    assert_eq!(kept.count(), 3);
}

/// The order of the list does not matter, nor the order in which the pods would be deleted.
#[test]
fn a_pod_in_pods_to_delete_keeps_its_slot_while_its_hook_runs() {
    for first in [0, 1] {
        let mut story = story(
            3,
            json!({
                "updateStrategy": {"maxUnavailable": 1},
                "preDeleteUpdateStrategy": {"hook": {"templateName": "test"}},
            }),
        );
        story.settle();
        let names = story.names();
        let named = [&names[first]];
        story.user(json!({"scaleStrategy": {"podsToDelete": named}})).settle();
        let runs = story.runs();
        assert_eq!(runs.len(), 1);
        let named = &names[..2];
        story.user(json!({"scaleStrategy": {"podsToDelete": named}})).settle();
        assert_eq!(story.runs(), runs);
    }
}

/// With maxUnavailable 0, the replacement of a pod in podsToDelete is created first.
#[test]
fn a_pod_in_pods_to_delete_is_replaced_by_a_surge_pod() {
    let mut story = story(3, json!({"updateStrategy": {"maxUnavailable": 0, "maxSurge": 1}}));
    story.settle();
    let before = story.names();
    story.user(json!({"scaleStrategy": {"podsToDelete": before}}));
    while story.reconcile() {
        assert!(story.pods().len() <= 4);
        let ready = story.pods().iter().filter(|pod| pod.is_ready()).count();
        assert!(ready >= 3, "{ready}");
    }
    assert_eq!(story.pods().len(), 3);
    assert!(!before.iter().any(|name| story.names().contains(name)));
}

/// A pod that a scale-in deletes needs no replacement, so it does not wait until another pod is available.
#[test]
fn a_pod_in_pods_to_delete_needs_no_surge_pod_if_a_scale_in_deletes_it() {
    let mut story = story(4, json!({"updateStrategy": {"maxUnavailable": 0, "maxSurge": 1}}));
    story.settle();
    let names = story.names();
    story.edit_pod(&names[3], |pod| {
        pod.labels.insert("broken".to_owned(), String::new());
        pod.ready_since = None;
    });
    story.user(json!({"replicas": 3, "scaleStrategy": {"podsToDelete": names[..2]}})).settle();
    let kept = story.names().into_iter().filter(|it| names[..2].contains(it));
    assert_eq!(kept.count(), 1);
    story.edit_pod(&names[3], |pod| {
        pod.labels.remove("broken");
    });
    story.settle();
    assert_eq!(story.pods().len(), 3);
    assert!(!names[..2].iter().any(|name| story.names().contains(name)));
}

#[test]
fn with_surge_new_pods_are_created_first_and_no_surplus_pod_remains() {
    let mut story = story(4, json!({"updateStrategy": {"maxUnavailable": 0, "maxSurge": 1}}));
    story.settle();
    story.image("v2");
    while story.reconcile() {
        assert!(story.pods().len() <= 5);
        let ready = story.pods().iter().filter(|pod| pod.is_ready()).count();
        assert!(ready >= 4, "{ready}");
    }
    assert_eq!(story.images(), "v2 v2 v2 v2");
}

#[test]
fn no_surplus_pod_remains_after_an_in_place_update_with_surge() {
    let mut story = story(
        4,
        json!({"updateStrategy": {"type": "InplaceUpdate", "maxUnavailable": 0, "maxSurge": 2}}),
    );
    story.settle();
    story.image("v2");
    while story.reconcile() {
        assert!(story.pods().len() <= 6);
    }
    assert_eq!(story.images(), "v2 v2 v2 v2");
}

#[test]
fn a_partition_below_100_percent_keeps_old_pods_but_updates_at_least_one() {
    for (partition, images) in [
        (json!(2), "v1 v1 v2 v2 v2"),
        (json!("50%"), "v1 v1 v1 v2 v2"),
        (json!("99%"), "v1 v1 v1 v1 v2"),
        (json!("100%"), "v1 v1 v1 v1 v1"),
    ] {
        let mut story = story(5, json!({"updateStrategy": {"partition": partition}}));
        story.settle();
        story.image("v2").settle();
        assert_eq!(story.images(), images, "{partition}");
        story.image("v1").settle();
        assert_eq!(story.images(), "v1 v1 v1 v1 v1", "a rollback reaches every pod");
    }
}

#[test]
fn scaling_during_a_partition_keeps_the_partition() {
    let mut story = story(6, json!({"updateStrategy": {"partition": 3}}));
    story.settle();
    story.image("v2").settle();
    assert_eq!(story.images(), "v1 v1 v1 v2 v2 v2");
    story.user(json!({"replicas": 4})).settle();
    assert_eq!(story.images(), "v1 v1 v1 v2");
    story.user(json!({"replicas": 8})).settle();
    assert_eq!(story.images(), "v1 v1 v1 v2 v2 v2 v2 v2");
}

#[test]
fn a_refused_template_costs_no_running_pod_and_the_condition_explains_why() {
    let mut story = story(3, json!({}));
    story.settle();
    story.dry_run_refusal = Some("exceeded quota".to_owned());
    story.image("v2").settle();
    assert_eq!(story.images(), "v1 v1 v1");
    let (reason, message) = story.condition("FailedUpdate").expect("condition");
    assert_eq!(reason, "TemplateRefused");
    assert!(message.contains("exceeded quota"));
    // A pod that is added meanwhile gets the revision that works.
    story.user(json!({"replicas": 4})).settle();
    assert_eq!(story.images(), "v1 v1 v1 v1");
    story.dry_run_refusal = None;
    story.wait(31).settle();
    assert_eq!(story.images(), "v2 v2 v2 v2");
    assert_eq!(story.condition("FailedUpdate"), None);
}

#[test]
fn a_full_quota_does_not_stop_a_rollout_that_replaces_pods() {
    let mut story = story(3, json!({}));
    story.settle();
    let refusal = "pods \"game\" is forbidden: exceeded quota: team, requested: pods=1, used: pods=3, limited: pods=3";
    story.dry_run_refusal = Some(refusal.to_owned());
    story.image("v2").settle();
    assert_eq!(story.images(), "v2 v2 v2");
}

#[test]
fn the_rollout_of_a_version_that_never_starts_stops_at_max_unavailable_and_can_be_reverted() {
    let mut story = story(5, json!({"updateStrategy": {"maxUnavailable": 2}}));
    story.settle();
    story.image("v2").reconcile();
    story.kubelets_run = false;
    story.settle();
    assert_eq!(story.images(), "v1 v1 v1 v2 v2");
    story.kubelets_run = true;
    story.image("v1").settle();
    assert_eq!(story.images(), "v1 v1 v1 v1 v1");
}

#[test]
fn an_update_waits_for_each_pods_hook() {
    let mut story = story(
        4,
        json!({"updateStrategy": {"maxUnavailable": 2}, "preDeleteUpdateStrategy": {"hook": {"templateName": "test"}}}),
    );
    story.settle();
    story.image("v2").settle();
    assert_eq!(story.runs().len(), 2, "as many as may be unavailable");
    story.hooks_end("", HookPhase::Failed);
    story.settle();
    assert_eq!(story.images(), "v1 v1 v1 v1");
    assert_eq!(story.runs().len(), 2, "a broken hook affects no other pods");
    story.image("v1").settle();
    assert!(story.runs().is_empty(), "a revert cancels the hooks");
    assert_eq!(story.count(|action| matches!(action.change(), Change::DeletePod(_))), 0);
}

#[test]
fn a_recreation_runs_the_pre_inplace_hook_if_there_is_no_pre_delete_hook() {
    let hook = json!({"hook": {"templateName": "test"}});
    let hot = json!({"type": "HotPatchUpdate", "maxUnavailable": 1,
        "inPlaceUpdateStrategy": {"whenImpossible": "Recreate"}});
    let rolling = json!({"type": "RollingUpdate", "maxUnavailable": 1});
    for strategy in [rolling, hot] {
        let mut story =
            story(2, json!({"updateStrategy": strategy, "preInplaceUpdateStrategy": hook}));
        story.settle();
        let pods = story.names();
        let change = json!({"template": {"spec": {"hostNetwork": true}}});
        story.user(change).settle();
        assert_eq!(story.names(), pods, "{strategy}");
        assert_eq!(story.runs().len(), 1);
        assert!(story.runs()[0].starts_with("pre-inplace-hook-"));
        story.hooks_end("", HookPhase::Successful);
        story.settle();
        assert_eq!(story.status().updated_replicas, 1);
        // A scale-in is not an update, so it does not run the PreInplace hook.
        story.user(json!({"replicas": 1})).settle();
        assert_eq!(story.pods().len(), 1);
    }
}

#[test]
fn a_hook_that_succeeded_before_a_revert_does_not_count_after_it() {
    let mut story = story(
        2,
        json!({"updateStrategy": {"maxUnavailable": 1}, "preDeleteUpdateStrategy": {"hook": {"templateName": "test"}}}),
    );
    story.settle();
    story.image("v2").settle();
    story.hooks_end("", HookPhase::Successful);
    story.image("v1").reconcile();
    story.image("v2").settle();
    assert_eq!(story.images(), "v1 v1");
    assert_eq!(story.runs().len(), 1);
}

#[test]
fn pods_that_fail_during_a_rollout_are_replaced_at_their_revision() {
    let mut story = story(4, json!({"updateStrategy": {"partition": 2}}));
    story.settle();
    story.image("v2").settle();
    let old = story
        .pods()
        .iter()
        .find(|pod| pod.containers[0].image == "game:v1")
        .map(|pod| pod.name.clone());
    story.edit_pod(&old.expect("old pod"), |pod| pod.phase = PodPhase::Failed);
    story.settle();
    assert_eq!(story.images(), "v1 v1 v2 v2");
    let deletes_ended = |action: &Write| matches!(action.change(), Change::DeletePod(it) if it.reason == DeletionReason::Ended);
    assert_eq!(story.count(deletes_ended), 1);
}

#[test]
fn updates_in_quick_succession_end_at_the_newest_revision_and_old_ones_are_pruned() {
    let mut story = story(3, json!({"revisionHistoryLimit": 1}));
    story.settle();
    for tag in ["v2", "v3", "v4"] {
        story.image(tag).reconcile();
        story.reconcile();
    }
    story.settle();
    assert_eq!(story.images(), "v4 v4 v4");
    assert_eq!(story.world.revisions.len(), 2);
}

#[test]
fn a_stored_history_limit_above_the_maximum_keeps_the_maximum() {
    let mut story = story(1, json!({"revisionHistoryLimit": 100_000}));
    story.settle();
    story.user(json!({"replicas": 0})).settle();
    for tag in 0..110 {
        story.image(&format!("v{tag}")).settle();
    }
    // The stable and the current one do not count.
    assert_eq!(story.world.revisions.len(), 102);
}

#[test]
fn a_plan_creates_few_pods_of_a_large_template() {
    let annotations = json!({"large": "x".repeat(500_000)});
    let mut story = story(50, json!({"template": {"metadata": {"annotations": annotations}}}));
    let is_created = |action: &Write| matches!(action.change(), Change::CreatePod(_));
    let mut most = 0;
    while story.count(is_created) < 50 {
        let before = story.count(is_created);
        assert!(story.reconcile(), "stuck at {before} pods");
        most = most.max(story.count(is_created) - before);
    }
    assert_eq!(most, 4);
    story.settle();
    assert_eq!(story.world.pods.len(), 50);
}

#[test]
fn a_rollback_uses_the_old_revision_again() {
    let mut story = story(1, json!({}));
    story.settle();
    let first = story.status().update_revision;
    story.image("v2").settle();
    story.image("v1").settle();
    assert_eq!(story.status().update_revision, first);
    assert_eq!(story.world.revisions.len(), 2);
}

#[test]
fn a_workload_that_is_being_deleted_is_left_alone() {
    let mut story = story(3, json!({}));
    let plan = {
        story.object.metadata.deletion_timestamp =
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(story.world.now));
        story.plan()
    };
    assert!(plan.writes.is_empty() && plan.status.is_none());
}

#[test]
fn a_revision_avoids_a_name_that_another_object_has() {
    let mut story = story(1, json!({}));
    let first = story.plan().writes.remove(0);
    let Change::CreateRevision(first) = first.change() else {
        panic!("the revision is created first");
    };
    story.world.memory.taken.insert(first.name.clone());
    story.settle();
    let status = story.status();
    assert_eq!(status.collision_count, 1);
    assert_ne!(status.update_revision, first.name);
}

#[test]
fn a_change_by_the_user_is_acknowledged_before_pods_change() {
    let mut story = story(4, json!({"updateStrategy": {"maxUnavailable": 1}}));
    story.settle();
    story.user(json!({"replicas": 6}));
    assert!(story.plan().status_first);
    story.settle().image("v2");
    story.reconcile();
    story.user(json!({"updateStrategy": {"paused": true}}));
    assert!(story.plan().status_first);
}

#[test]
fn the_current_revision_is_the_stable_one() {
    let mut story = story(2, json!({"updateStrategy": {"partition": 1}}));
    story.settle();
    let first = story.status().update_revision;
    assert_eq!(story.status().current_revision, first);
    story.image("v2").settle();
    assert_ne!(story.status().update_revision, first);
    assert_eq!(story.status().current_revision, first);
    story.user(json!({"updateStrategy": {"partition": 0}})).settle();
    let status = story.status();
    assert_eq!(status.current_revision, status.update_revision);
}
