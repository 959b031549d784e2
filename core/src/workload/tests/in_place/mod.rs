//! In-place updates: a pod is changed in three writes, once its hook allows it.

mod gate;
mod hot_patch;
mod native_sidecars;
mod permits;
mod qos;
mod refused;
mod resources_on_old_kubelets;

use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use crate::api::{Actor, ContainerOrder, HookPhase};
use crate::observed::{FirstStatus, Gate, Pod, PodPhase, Resize, RevisionName};
use crate::workload::in_place::{Completion, InPlaceChange, Patching, completion, patch_of};
use crate::workload::tests::story::{Story, story};
use crate::write::{Change, Write};

fn in_place(replicas: i32, spec: serde_json::Value) -> Story {
    let mut story =
        story(replicas, json!({"updateStrategy": {"type": "InplaceUpdate", "maxUnavailable": 1}}));
    story.user(spec).settle();
    story
}

fn is_patch(action: &Write) -> bool {
    matches!(action.change(), Change::PatchInPlace(_))
}

#[test]
fn a_pod_is_changed_in_three_writes() {
    let mut story = in_place(3, json!({}));
    let names = story.names();
    story.done.clear();
    story.image("v2").settle();
    assert_eq!(story.images(), "v2 v2 v2");
    assert_eq!(story.names(), names);
    let writes = story.count(|action| {
        matches!(
            action.change(),
            Change::SetGate { closed_for: Some(_), .. }
                | Change::PatchInPlace(_)
                | Change::SetGate { closed_for: None, .. }
        )
    });
    assert_eq!(writes, 9);
    assert_eq!(
        story
            .count(|action| matches!(action.change(), Change::DeletePod(_) | Change::CreatePod(_))),
        0
    );
}

#[test]
fn the_grace_period_separates_the_change_from_the_closing_of_the_gate() {
    let mut story = in_place(
        1,
        json!({"updateStrategy": {"inPlaceUpdateStrategy": {"gracePeriodSeconds": 30}}}),
    );
    story.image("v2").settle();
    assert!(matches!(story.pods()[0].gate, Gate::Closed(_)));
    assert_eq!(story.images(), "v1");
    // A condition's time is in whole seconds, so the gate may have closed up to a second after that time.
    story.wait(30).settle();
    assert_eq!(story.images(), "v1");
    story.wait(1).settle();
    assert_eq!(story.images(), "v2");
    assert_eq!(story.pods()[0].gate, Gate::Open);
}

#[test]
fn the_change_follows_the_gate_immediately_unless_there_is_a_grace_period() {
    for (grace, follows) in [(0, true), (30, false)] {
        let mut story = in_place(
            1,
            json!({"updateStrategy": {"inPlaceUpdateStrategy": {"gracePeriodSeconds": grace}}}),
        );
        story.image("v2").settle();
        let closing = story.count(
            |action| matches!(action.change(), Change::SetGate { closed_for: Some(_), then, .. } if then.is_some() == follows),
        );
        assert_eq!(closing, 1, "{grace}");
    }
}

#[test]
fn the_update_of_a_pod_that_is_already_changed_completes_during_a_pause() {
    let mut story = in_place(1, json!({}));
    story.image("v2");
    while story.count(is_patch) == 0 {
        story.reconcile();
    }
    story.user(json!({"updateStrategy": {"paused": true}})).settle();
    assert_eq!(story.images(), "v2");
    assert_eq!(story.pods()[0].gate, Gate::Open);
}

#[test]
fn a_pod_that_is_being_updated_gets_the_newest_target_without_a_second_hook() {
    let mut story =
        in_place(1, json!({"preInplaceUpdateStrategy": {"hook": {"templateName": "test"}}}));
    story.image("v2").settle();
    story.hooks_end("pre-inplace", HookPhase::Successful);
    story.kubelets_run = false;
    while story.count(is_patch) == 0 {
        story.reconcile();
    }
    story.image("v3").settle();
    assert_eq!(story.images(), "v3");
    assert!(
        matches!(story.pods()[0].gate, Gate::Closed(_)),
        "the old image does not complete the update"
    );
    story.kubelets_run = true;
    story.settle();
    assert_eq!(story.pods()[0].gate, Gate::Open);
    assert_eq!(story.count(|action| matches!(action.change(), Change::CreateHookRun(_))), 1);
}

#[test]
fn a_post_inplace_hook_that_fails_keeps_the_gate_closed_until_the_next_target() {
    let mut story =
        in_place(2, json!({"postInplaceUpdateStrategy": {"hook": {"templateName": "test"}}}));
    story.image("v2").settle();
    assert_eq!(story.images(), "v1 v2");
    story.hooks_end("post-inplace", HookPhase::Failed);
    story.settle();
    assert_eq!(story.images(), "v1 v2", "the unavailable pod holds the rollout back");
    assert_eq!(story.status().post_inplace_hook_condition.len(), 1);
    story.image("v3").settle();
    story.hooks_end("post-inplace", HookPhase::Successful);
    story.settle();
    story.hooks_end("post-inplace", HookPhase::Successful);
    story.settle();
    assert_eq!(story.images(), "v3 v3");
    assert!(story.pods().iter().all(|pod| pod.gate == Gate::Open));
}

#[test]
fn a_pre_delete_hook_guards_in_place_updates_too() {
    let mut story =
        in_place(2, json!({"preDeleteUpdateStrategy": {"hook": {"templateName": "test"}}}));
    story.image("v2").settle();
    assert_eq!(story.runs().len(), 1);
    assert!(story.runs()[0].starts_with("pre-delete-hook-"));
    story.hooks_end("pre-delete", HookPhase::Successful);
    story.settle();
    assert_eq!(story.images(), "v1 v2");
    assert_eq!(
        story.pods().iter().filter(|pod| pod.marked_deleting).count(),
        1,
        "only the next pod is marked"
    );
}

#[test]
fn the_mark_of_a_running_pre_inplace_hook_does_not_make_a_pod_a_victim() {
    let mut story =
        in_place(3, json!({"preInplaceUpdateStrategy": {"hook": {"templateName": "test"}}}));
    let marked = |story: &Story| -> Vec<String> {
        let pods = story.pods().into_iter().filter(|pod| pod.marked_deleting);
        pods.map(|pod| pod.name.clone()).collect()
    };
    story.image("v2").settle();
    let [waiting] = &marked(&story)[..] else {
        panic!("{:?}", marked(&story));
    };
    let others = story.names().into_iter().filter(|name| name != waiting);
    for other in others.collect::<Vec<_>>() {
        story.edit_pod(&other, |pod| pod.deletion_cost = -1);
    }
    story.user(json!({"replicas": 2})).settle();
    assert!(story.names().contains(waiting));
    story.hooks_end("pre-inplace", HookPhase::Successful);
    story.settle();
    let changed = story.pods().into_iter().find(|pod| pod.name == *waiting);
    assert_eq!(changed.expect("a pod").containers[0].image, "game:v2");
    assert!(!marked(&story).contains(waiting));
    story.image("v1").settle();
    let expected = std::slice::from_ref(waiting);
    assert_eq!(marked(&story), expected, "updates of other pods are canceled");
}

#[test]
fn a_change_that_is_impossible_in_place_is_refused_or_recreates_pods() {
    let change = json!({"template": {"spec": {"hostNetwork": true}}});
    let mut story = in_place(2, json!({}));
    story.user(change.clone()).settle();
    assert_eq!(story.condition("FailedUpdate").expect("condition").0, "NotInPlace");
    assert_eq!(story.status().updated_replicas, 0);
    story.user(json!({"replicas": 3})).settle();
    assert_eq!(story.status().updated_replicas, 0, "new pods are created at the stable revision");

    let mut story = in_place(
        2,
        json!({
            "updateStrategy": {"inPlaceUpdateStrategy": {"whenImpossible": "Recreate"}},
            "preInplaceUpdateStrategy": {"hook": {"templateName": "test"}},
        }),
    );
    story.user(change).settle();
    assert_eq!(story.status().updated_replicas, 0, "the PreInplace hook guards a recreation, too");
    for _ in 0..2 {
        story.hooks_end("pre-inplace", HookPhase::Successful);
        story.settle();
    }
    assert_eq!(story.status().updated_replicas, 2);
}

#[test]
fn resources_are_set_through_resize_and_a_revert_frees_a_pod_whose_resize_is_infeasible() {
    let resources = |cpu: &str| {
        let resources = json!({"requests": {"cpu": cpu}});
        json!({"template": {"spec": {"containers": [{"name": "game", "image": "game:v1", "resources": resources}]}}})
    };
    let mut story = in_place(1, resources("1"));
    story.user(resources("2")).settle();
    assert_eq!(story.count(|action| matches!(action.change(), Change::ResizePod { .. })), 1);
    assert_eq!(story.pods()[0].gate, Gate::Open);

    let name = story.names()[0].clone();
    story.user(resources("900"));
    while story.count(|action| matches!(action.change(), Change::ResizePod { .. })) < 2 {
        story.reconcile();
    }
    story.edit_pod(&name, |pod| pod.resize = Resize::Infeasible("node has 8 cpus".to_owned()));
    story.settle();
    assert_eq!(story.condition("FailedUpdate").expect("condition").0, "ResizeNotPossible");
    story.user(resources("2"));
    while story.count(|action| matches!(action.change(), Change::ResizePod { .. })) < 3 {
        story.reconcile();
    }
    story.edit_pod(&name, |pod| pod.resize = Resize::Settled);
    story.settle();
    assert_eq!(story.pods()[0].gate, Gate::Open);
    assert_eq!(story.condition("FailedUpdate"), None);
}

#[test]
fn a_resize_by_another_client_does_not_hold_up_an_image_change() {
    let mut story = in_place(1, json!({}));
    let name = story.names().remove(0);
    story.edit_pod(&name, |pod| pod.resize = Resize::Deferred("node has no room".to_owned()));
    story.image("v2").settle();
    assert_eq!(story.images(), "v2");
    assert_eq!(story.columns(), "1 1 1 1 1");
    assert!(story.condition("FailedUpdate").is_none());
}

#[test]
fn an_update_to_another_name_of_the_running_image_is_complete_after_the_restart() {
    let story = in_place(1, json!({}));
    let mut pod = story.pods()[0].clone();
    let set_container = |pod: &mut Pod, image: &str, id: &str| {
        let container = &mut pod.containers[0];
        container.image = image.to_owned();
        let status = container.status.as_mut().expect("a status");
        // The node reports the same name, whichever of the two names the spec contains.
        status.image = "game:v1".to_owned();
        status.container_id = id.to_owned();
        status.started_at = Some(Timestamp::UNIX_EPOCH);
    };
    set_container(&mut pod, "game:v1-retag", "old");
    let wanted = InPlaceChange {
        images: vec![(pod.containers[0].name.clone(), "game:v1".to_owned())],
        ..InPlaceChange::default()
    };
    let (now, order) = (Timestamp::UNIX_EPOCH, ContainerOrder::DisOrdered);
    let patching = Patching::InPlace(order);
    let record = patch_of(&pod, RevisionName::of("new"), &wanted, now, patching).record;
    set_container(&mut pod, "game:v1", "old");
    let first = FirstStatus { generation: pod.generation, container_ids: vec!["old".to_owned()] };
    for first_status in [Some(first), None] {
        pod.first_status = first_status;
        set_container(&mut pod, "game:v1", "old");
        let before = completion(&pod, &record, now);
        assert!(matches!(before, Completion::Pending(Some(_))), "{before:?}");
        set_container(&mut pod, "game:v1", "new");
        let later = now + SignedDuration::from_secs(10);
        assert_eq!(completion(&pod, &record, later), Completion::Done);
    }
}

#[test]
fn the_wait_for_a_node_that_reports_another_name_of_the_image_is_told() {
    let mut story = in_place(1, json!({"progressDeadlineSeconds": 30}));
    let name = story.names().remove(0);
    story.kubelets_run = false;
    story.image("v1-retag");
    while story.count(|it| matches!(it.change(), Change::PatchInPlace(_))) == 0 {
        story.reconcile();
    }
    let now = story.world.now;
    let report = |story: &mut Story, id: &str| {
        story.edit_pod(&name, |pod| {
            pod.observed_generation = pod.generation;
            let status = pod.containers[0].status.as_mut().expect("a status");
            (status.container_id, status.started_at) = (id.to_owned(), Some(now));
            (status.image, status.ready) = ("game:v1".to_owned(), true);
            let container_ids = vec![id.to_owned()];
            let first = FirstStatus { generation: pod.generation, container_ids };
            pod.first_status = Some(first);
        });
        story.wait(6);
        story.settle();
        let causes = story.status().causes;
        causes.into_iter().find(|it| it.reason == "ImageNotShown")
    };
    // The kubelet has seen the change, and has not restarted the container yet.
    let old = story.pods()[0].containers[0].status.as_ref().expect("a status").container_id.clone();
    assert_eq!(report(&mut story, &old), None);
    // Or it has restarted the container before it reported the change at all.
    let cause = report(&mut story, "new").expect("a cause");
    assert_eq!(cause.actor, Actor::Nobody, "{cause:?}");
    let words = format!(
        "container game of pod {name} was restarted, but its node, which reports image game:v1, "
    );
    assert!(cause.message.contains(&words), "{}", cause.message);
    let until = cause.until.expect("a time").0;
    assert_eq!(until.duration_since(now), SignedDuration::from_mins(5));
    story.wait(200);
    story.settle();
    let (reason, _) = story.condition("Progressing").expect("a condition");
    assert_ne!(reason, "ProgressDeadlineExceeded", "it ends by itself");
    story.wait(100);
    story.kubelets_run = true;
    story.settle();
    assert_eq!(story.columns(), "1 1 1 1 1");
    assert_eq!(story.status().causes, []);
}

#[test]
fn a_pod_that_has_not_started_gets_its_new_resources() {
    let with_cpu = |cpu: &str| {
        let resources = json!({"requests": {"cpu": cpu}});
        let container = json!({"name": "game", "image": "game:v1", "resources": resources});
        json!({"template": {"spec": {"containers": [container]}}})
    };
    let mut story = in_place(1, with_cpu("64"));
    story.kubelets_run = false;
    let name = story.names().remove(0);
    story.stop_containers(&name);
    story.edit_pod(&name, |pod| {
        pod.phase = PodPhase::Pending;
        pod.ready_since = None;
    });
    story.user(with_cpu("2")).settle();
    let resizes = story.count(|it| matches!(it.change(), Change::ResizePod { .. }));
    assert_eq!(resizes, 1);
    story.kubelets_run = true;
    story.settle();
    assert_eq!(story.columns(), "1 1 1 1 1");
}
