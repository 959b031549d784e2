//! A guarded pod that waits for its hook: refusals, deadlines and releases.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    delete_workload, grounds, guard_condition, guarded, has_finalizer, labeled, with_deadline,
};
use crate::api::names::GUARDED_LABEL;
use crate::api::{GameDeployment, HookPhase, WaitReason};
use crate::guard::Ground;
use crate::observed::MoveRequest;
use crate::workload::GuardState;
use crate::workload::tests::story::{Story, set, story};

#[test]
fn a_failed_hook_is_run_again_at_growing_intervals() {
    let mut story = story(2, guarded());
    story.settle();
    story.user(json!({"replicas": 1})).settle();
    let mut pauses = Vec::new();
    for _ in 0..4 {
        assert_eq!(story.hooks_end("", HookPhase::Failed), 1);
        // The guard has just been checked, so the next wake time is not that of another check.
        let at = story.world.now;
        story.world.memory.guard = Some(GuardState::InForce { at, others: Vec::new() });
        story.settle();
        let waiting = &story.status().protection.expect("status").waiting;
        assert_eq!(waiting[0].reason, WaitReason::HookNotSuccessful);
        let wake = story.plan().wake.expect("a wake time");
        pauses.push(wake.duration_since(story.world.now).as_secs());
        story.world.now = wake;
        story.settle();
    }
    assert_eq!(pauses, [60, 60, 120, 240]);
    assert_eq!(story.hooks_end("", HookPhase::Successful), 1);
    story.settle();
    assert_eq!(story.pods().len(), 1);
    assert_eq!(grounds(&story), [Ground::Hook]);
}

#[test]
fn without_protection_a_failed_hook_is_not_run_again() {
    let hook = json!({"preDeleteUpdateStrategy": {"hook": {"templateName": "test"}}});
    let mut story = story(2, hook);
    story.settle();
    story.user(json!({"replicas": 1})).settle();
    story.hooks_end("", HookPhase::Failed);
    story.settle();
    story.wait(3600).settle();
    assert_eq!(story.hooks_end("", HookPhase::Successful), 0);
    assert_eq!(story.pods().len(), 2);
}

/// The deadline applies whether the hook fails, still runs or cannot be run at all.
#[test]
fn a_pod_is_deleted_at_its_deadline() {
    for hook in ["fails", "runs", "is missing"] {
        let mut story = story(2, with_deadline(600));
        story.settle();
        if hook == "is missing" {
            story.world.templates.clear();
        }
        story.user(json!({"replicas": 1})).settle();
        if hook == "fails" {
            story.hooks_end("", HookPhase::Failed);
            story.settle();
        }
        let waiting = story.status().protection.expect("status").waiting;
        assert_eq!(waiting.len(), 1, "{hook}");
        story.wait(599).settle();
        assert_eq!(story.pods().len(), 2, "{hook}");
        story.wait(1).settle();
        assert_eq!(story.pods().len(), 1, "{hook}");
        assert_eq!(grounds(&story), [Ground::Deadline], "{hook}");
    }
}

#[test]
fn the_deadline_counts_from_the_last_request_for_the_deletion() {
    let mut story = story(2, with_deadline(600));
    story.settle();
    story.user(json!({"replicas": 1})).settle();
    story.wait(500).settle();
    story.user(json!({"replicas": 2})).settle();
    assert!(story.pods().iter().all(|pod| pod.waiting_since.is_none()));
    story.user(json!({"replicas": 1})).settle();
    story.wait(599).settle();
    assert_eq!(story.pods().len(), 2);
    story.wait(1).settle();
    assert_eq!(story.pods().len(), 1);
}

#[test]
fn an_in_place_update_waits_for_its_hook_beyond_the_deadline() {
    let mut spec = with_deadline(600);
    spec["updateStrategy"] = json!({"type": "InplaceUpdate", "maxUnavailable": 2});
    let mut story = story(2, spec);
    story.settle();
    story.image("v2").settle();
    story.hooks_end("", HookPhase::Failed);
    story.settle();
    story.wait(6000).settle();
    assert_eq!(story.images(), "v1 v1");
    story.hooks_end("", HookPhase::Successful);
    story.settle();
    assert_eq!(story.images(), "v2 v2");
    assert!(story.pods().iter().all(|pod| pod.waiting_since.is_none()));
}

/// The deadline applies to deletions only, so the time for which another action waits for the hook does not count.
#[test]
fn the_time_that_a_pod_waits_for_its_update_is_not_part_of_its_deadline() {
    let mut spec = with_deadline(600);
    spec["preInplaceUpdateStrategy"] = json!({"hook": {"templateName": "test"}});
    spec["updateStrategy"] = json!({"type": "InplaceUpdate", "maxUnavailable": 1});
    let mut story = story(1, spec);
    story.settle();
    story.image("v2").settle();
    let pod = &story.pods()[0];
    assert_eq!((pod.marked_deleting, pod.waiting_since), (true, None));
    story.wait(3600).settle();
    story.user(json!({"replicas": 0})).settle();
    assert_eq!(grounds(&story), []);
    assert_eq!(story.pods()[0].waiting_since, Some(story.world.now));
    story.user(json!({"replicas": 1})).settle();
    let pod = &story.pods()[0];
    assert_eq!((pod.marked_deleting, pod.waiting_since), (true, None));
}

#[test]
fn a_waiting_deletion_proceeds_after_a_release_or_at_its_deadline() {
    let mut story = story(2, with_deadline(600));
    story.settle();
    delete_workload(&mut story, &[]);
    story.settle();
    let name = story.names()[0].clone();
    story.edit_pod(&name, |pod| {
        pod.released = true;
        pod.labels.remove(GUARDED_LABEL);
    });
    story.settle();
    assert_eq!(grounds(&story), [Ground::Released]);
    let since: Timestamp = story.pods()[0].waiting_since.expect("a recorded time");
    assert_eq!(since, story.world.now);
    story.wait(600).settle();
    assert_eq!(grounds(&story), [Ground::Released, Ground::Deadline]);
    assert!(!has_finalizer(&story));
}

#[test]
fn a_released_pod_needs_no_hook_and_is_not_guarded_again() {
    let mut story = story(2, guarded());
    story.settle();
    let name = story.names()[0].clone();
    story.edit_pod(&name, |pod| {
        pod.released = true;
        pod.labels.remove(GUARDED_LABEL);
    });
    story.settle();
    assert_eq!(labeled(&story), 1);
    let (_, message) = story.condition("Guarded").expect("condition");
    assert_eq!(message, "1 pod is guarded; 1 was released by a user");
    story.user(json!({"replicas": 0})).settle();
    assert_eq!(story.pods().len(), 1);
    assert_eq!(grounds(&story), [Ground::Released]);
}

/// The annotation has no effect on pods that are not guarded.
#[test]
fn only_guarded_pods_can_be_released() {
    let hook = json!({"preDeleteUpdateStrategy": {"hook": {"templateName": "test"}}});
    let mut story = story(1, hook);
    story.settle();
    let name = story.names()[0].clone();
    story.edit_pod(&name, |pod| pod.released = true);
    story.user(json!({"replicas": 0})).settle();
    assert_eq!(story.pods().len(), 1);
}

fn release_all(story: &mut Story<GameDeployment>) {
    for name in story.names() {
        story.edit_pod(&name, |pod| {
            pod.released = true;
            pod.labels.remove(GUARDED_LABEL);
        });
    }
}

#[test]
fn a_guard_whose_hook_was_removed_stays_until_its_pods_are_released() {
    let mut story = story(2, guarded());
    story.settle();
    story.user(json!({"preDeleteUpdateStrategy": {"hook": null}})).settle();
    assert_eq!((labeled(&story), guard_condition(&story)), (2, "HookRemoved".to_owned()));
    story.user(json!({"replicas": 1})).settle();
    assert_eq!(story.pods().len(), 2);
    let waiting = story.status().protection.expect("status").waiting;
    assert_eq!(waiting[0].reason, WaitReason::HookRemoved);
    release_all(&mut story);
    story.settle();
    assert_eq!(story.pods().len(), 1);
    assert!(story.budget.is_none() && !has_finalizer(&story));
    assert_eq!(guard_condition(&story), "NoPreDeleteHook");
}

/// The PreDelete hook is needed for the update first, and for the deletion later.
#[test]
fn the_deadline_of_a_deletion_begins_when_the_deletion_is_requested() {
    let mut spec = with_deadline(600);
    spec["updateStrategy"] = json!({"type": "InplaceUpdate", "maxUnavailable": 1});
    type Request = fn(&mut Story<GameDeployment>);
    let requests: [Request; 3] = [
        |story| {
            story.user(json!({"replicas": 0}));
        },
        |story| delete_workload(story, &[]),
        |story| {
            let name = story.names()[0].clone();
            story.edit_pod(&name, |pod| pod.move_requested = Some(MoveRequest::User));
        },
    ];
    for request in requests {
        let mut story = story(1, spec.clone());
        story.settle();
        story.image("v2").settle();
        story.hooks_end("", HookPhase::Failed);
        story.settle();
        story.wait(3600).settle();
        request(&mut story);
        story.settle();
        assert_eq!(grounds(&story), []);
        assert_eq!(story.pods()[0].waiting_since, Some(story.world.now));
        story.wait(599).settle();
        assert_eq!(grounds(&story), []);
        story.wait(1).settle();
        assert_eq!(grounds(&story), [Ground::Deadline]);
    }
}

/// A PreInplace hook cannot stand in for the PreDelete hook that guarded the pods.
#[test]
fn a_guarded_pod_whose_hook_was_removed_is_not_recreated_for_an_update() {
    for pre_inplace in [Value::Null, json!({"hook": {"templateName": "test"}})] {
        let mut spec = guarded();
        spec["preInplaceUpdateStrategy"] = pre_inplace;
        let mut story = story(2, spec);
        story.settle();
        story.user(json!({"preDeleteUpdateStrategy": {"hook": null}}));
        story.image("v2").settle();
        story.hooks_end("", HookPhase::Successful);
        story.settle();
        assert_eq!(story.images(), "v1 v1");
        let waiting = story.status().protection.expect("status").waiting;
        assert_eq!(waiting[0].reason, WaitReason::HookRemoved);
        release_all(&mut story);
        story.settle();
        assert_eq!(story.images(), "v2 v2");
    }
}

#[test]
fn a_new_template_does_not_restart_the_deadline_of_a_pod_without_a_hook_run() {
    let mut story = story(2, with_deadline(600));
    story.settle();
    story.user(json!({"preDeleteUpdateStrategy": {"hook": null}, "replicas": 1}));
    story.settle();
    story.wait(500).image("v2").settle();
    assert_eq!(grounds(&story), []);
    story.wait(100).settle();
    assert_eq!(grounds(&story), [Ground::Deadline]);
}

#[test]
fn a_wait_without_a_hook_run_keeps_its_deadline_while_another_pod_is_not_ready() {
    let mut story = set(3, with_deadline(600));
    story.settle();
    story.world.templates.clear();
    story.user(json!({"replicas": 1})).settle();
    story.wait(500).kubelets_run = false;
    // With OrderedReady, no pod is deleted while another one is not ready.
    story.edit_pod("game-0", |pod| pod.ready_since = None);
    story.settle();
    story.kubelets_run = true;
    story.settle();
    story.wait(100).settle();
    assert_eq!(grounds(&story).first(), Some(&Ground::Deadline));
}
