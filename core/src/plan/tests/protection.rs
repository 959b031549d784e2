//! Guarded pods: labels, budget and finalizer; the effects of the hook's result, the deadline and a release; and the
//! deletion of the workload.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, Time};
use serde_json::{Value, json};

use super::story::{Story, set, story};
use crate::api::names::{GUARD_FINALIZER, GUARDED_LABEL, KEPT_HOOK_ANNOTATION, ORPHAN_FINALIZER};
use crate::api::{HookPhase, WaitReason};
use crate::plan::{
    Action, Deletion, Disruption, Ground, GuardState, GuardedPlayers, LostNode, MoveRequest,
    OtherBudget, Planned, Pod, PodPhase, Taint,
};

fn guarded() -> Value {
    json!({
        "preDeleteUpdateStrategy": {"hook": {"templateName": "test"}},
        "protection": {"pods": "Guarded", "askAgainSeconds": 60},
    })
}

fn with_deadline(seconds: i32) -> Value {
    let mut spec = guarded();
    spec["protection"]["deadlineSeconds"] = json!(seconds);
    spec
}

/// The number of pods with the guard label of the workload.
fn labeled<K: Planned + serde::Serialize>(story: &Story<K>) -> usize {
    let pods = story.pods().into_iter();
    pods.filter(|pod| pod.guarded_by() == Some("uid-game"))
        .count()
}

fn has_finalizer<K: Planned + serde::Serialize>(story: &Story<K>) -> bool {
    let finalizers = story.object.meta().finalizers.iter().flatten();
    finalizers.into_iter().any(|it| it == GUARD_FINALIZER)
}

fn guard_condition<K: Planned + serde::Serialize>(story: &Story<K>) -> String {
    let reason = story.condition("Guarded").map(|(reason, _)| reason);
    reason.unwrap_or_else(|| "none".to_owned())
}

fn grounds<K: Planned + serde::Serialize>(story: &Story<K>) -> Vec<Ground> {
    let deletions = story.done.iter().filter_map(|action| match action {
        Action::DeletePod(Deletion { ground, .. }) => Some(*ground),
        _ => None,
    });
    deletions.collect()
}

/// The user deletes the workload.
fn delete<K: Planned + serde::Serialize>(story: &mut Story<K>, finalizers: &[&str]) {
    let now = story.world.now;
    let meta = story.object.meta_mut();
    meta.deletion_timestamp = Some(Time(now));
    *meta.generation.get_or_insert(0) += 1;
    let more = finalizers.iter().map(|it| (*it).to_owned());
    meta.finalizers.get_or_insert_default().extend(more);
}

#[test]
fn new_pods_have_the_label_from_the_start() {
    let mut story = story(2, guarded());
    story.settle();
    assert_eq!(labeled(&story), 2);
    assert_eq!(
        story.count(|it| matches!(it, Action::GuardPod { .. })),
        0,
        "no additional write"
    );
    assert!(has_finalizer(&story) && story.budget.is_some());
    assert_eq!(guard_condition(&story), "PodsGuarded");
    assert_eq!(story.status().protection.expect("status").guarded, 2);
}

#[test]
fn a_workload_that_is_not_guarded_needs_no_additional_write() {
    let hook = json!({"preDeleteUpdateStrategy": {"hook": {"templateName": "test"}}});
    for spec in [json!({}), hook] {
        let mut story = story(2, spec);
        story.settle();
        story.image("v2").settle();
        story.hooks_end("", HookPhase::Successful);
        story.settle();
        let is_guard_action = |it: &Action| {
            matches!(
                it,
                Action::ApplyBudget(_)
                    | Action::ProbeGuard { .. }
                    | Action::DeleteBudget { .. }
                    | Action::GuardPod { .. }
            )
        };
        assert_eq!(story.count(is_guard_action), 0);
        assert_eq!(story.status().protection, None);
        assert!(!has_finalizer(&story));
    }
}

/// Autoscalers do not evict guarded pods, and other pods do not preempt them; settings of the template take
/// precedence.
#[test]
fn new_guarded_pods_have_annotations_and_a_priority_class() {
    let created = |spec: Value| -> Value {
        let mut story = story(1, spec);
        story.world.priority_class = Some("guarded".into());
        story.settle();
        let mut pods = story.done.iter().filter_map(|action| match action {
            Action::CreatePod(new) => Some(new.pod.clone()),
            _ => None,
        });
        pods.next().expect("a pod")
    };
    let (to_evict, to_disrupt) = (
        "cluster-autoscaler.kubernetes.io/safe-to-evict",
        "karpenter.sh/do-not-disrupt",
    );
    let pod = created(guarded());
    let expected = json!({to_evict: "false", to_disrupt: "true"});
    assert_eq!(pod["metadata"]["annotations"], expected);
    assert_eq!(pod["spec"]["priorityClassName"], "guarded");
    let mut own = guarded();
    own["template"] = json!({
        "metadata": {"annotations": {to_disrupt: "false"}}, "spec": {"priorityClassName": "mine"},
    });
    let pod = created(own);
    let expected = json!({to_evict: "false", to_disrupt: "false"});
    assert_eq!(pod["metadata"]["annotations"], expected);
    assert_eq!(pod["spec"]["priorityClassName"], "mine");
    let pod = created(json!({}));
    assert!(pod["metadata"]["annotations"].is_null() && pod["spec"]["priorityClassName"].is_null());
}

/// An in-place update removes annotations that only the old template sets; the guard sets its own again.
#[test]
fn an_in_place_update_keeps_the_annotations_of_the_guard() {
    let to_evict = "cluster-autoscaler.kubernetes.io/safe-to-evict";
    let template =
        |value: Value| json!({"template": {"metadata": {"annotations": {to_evict: value}}}});
    for (is_guarded, after) in [(true, Some("false")), (false, None)] {
        let mut spec = guarded();
        spec["updateStrategy"] = json!({"type": "InplaceUpdate", "maxUnavailable": 1});
        if !is_guarded {
            spec["protection"] = json!({"pods": "None"});
        }
        spec["template"] = template(json!("true"))["template"].clone();
        let mut story = story(1, spec);
        story.settle();
        story.user(template(Value::Null)).settle();
        story.hooks_end("", HookPhase::Successful);
        story.settle();
        let patches = story.done.iter().filter_map(|action| match action {
            Action::PatchInPlace(patch) => Some(&patch.annotations),
            _ => None,
        });
        let patched = patches.flatten().find(|(key, _)| key == to_evict);
        let (_, value) = patched.expect("the annotation changes");
        assert_eq!(value.as_deref(), after, "guarded: {is_guarded}");
    }
}

/// On: finalizer, budget, policies seen in force, labels. Off: labels, budget, finalizer.
#[test]
fn the_guard_is_set_up_and_taken_down_in_order() {
    let mut story = story(
        2,
        json!({"preDeleteUpdateStrategy": {"hook": {"templateName": "test"}}}),
    );
    story.has_policies = false;
    story.settle();
    story.user(json!({"protection": {"pods": "Guarded"}}));
    story.reconcile();
    assert!(has_finalizer(&story) && story.budget.is_none());
    story.reconcile();
    assert!(story.budget.is_some());
    story.settle();
    assert_eq!(
        (labeled(&story), guard_condition(&story)),
        (0, "GuardNotInForce".to_owned())
    );

    story.has_policies = true;
    assert!(!story.reconcile(), "the check is not due yet");
    story.wait(1).settle();
    assert_eq!(
        (labeled(&story), guard_condition(&story)),
        (2, "PodsGuarded".to_owned())
    );

    story.user(json!({"protection": {"pods": "None"}}));
    story.reconcile();
    assert_eq!(labeled(&story), 0);
    assert!(story.budget.is_some() && has_finalizer(&story));
    story.reconcile();
    assert!(story.budget.is_none() && has_finalizer(&story));
    story.settle();
    assert!(!has_finalizer(&story));
    assert_eq!(story.annotation(KEPT_HOOK_ANNOTATION), None);
    assert_eq!(guard_condition(&story), "none");
}

#[test]
fn a_guard_that_was_removed_is_noticed_and_restored() {
    let mut story = story(2, guarded());
    story.settle();
    let due = story.plan().wake.expect("a wake time");
    (story.world.now, story.has_policies) = (due, false);
    story.settle();
    assert_eq!(guard_condition(&story), "GuardNotInForce");
    (story.budget, story.world.guard) = (None, Some(GuardState::NoBudget));
    story.has_policies = true;
    story.settle();
    assert!(story.budget.is_some());
    assert_eq!(guard_condition(&story), "PodsGuarded");
}

#[test]
fn a_refusing_hook_is_run_again_at_growing_intervals() {
    let mut story = story(2, guarded());
    story.settle();
    story.user(json!({"replicas": 1})).settle();
    let mut pauses = Vec::new();
    for _ in 0..4 {
        assert_eq!(story.hooks_end("", HookPhase::Failed), 1);
        // The guard was just seen in force; otherwise, that would be checked first.
        let at = story.world.now;
        story.world.guard = Some(GuardState::InForce {
            at,
            others: Vec::new(),
        });
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
fn without_protection_a_refusing_hook_is_not_run_again() {
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

/// Whether the hook fails, still runs or cannot be run at all.
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
fn a_deadline_counts_from_the_last_time_that_the_deletion_was_requested() {
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

#[test]
fn a_guard_whose_hook_was_removed_stays_until_its_pods_are_released() {
    let mut story = story(2, guarded());
    story.settle();
    story
        .user(json!({"preDeleteUpdateStrategy": {"hook": null}}))
        .settle();
    assert_eq!(
        (labeled(&story), guard_condition(&story)),
        (2, "HookRemoved".to_owned())
    );
    story.user(json!({"replicas": 1})).settle();
    assert_eq!(story.pods().len(), 2);
    let waiting = story.status().protection.expect("status").waiting;
    assert_eq!(waiting[0].reason, WaitReason::HookRemoved);
    for name in story.names() {
        story.edit_pod(&name, |pod| {
            pod.released = true;
            pod.labels.remove(GUARDED_LABEL);
        });
    }
    story.settle();
    assert_eq!(story.pods().len(), 1);
    assert!(story.budget.is_none() && !has_finalizer(&story));
    assert_eq!(guard_condition(&story), "NoPreDeleteHook");
}

#[test]
fn a_guard_label_of_another_workload_is_corrected() {
    let mut story = story(1, guarded());
    story.settle();
    let name = story.names()[0].clone();
    let other = |story: &mut Story| {
        story.edit_pod(&name, |pod| {
            pod.labels
                .insert(GUARDED_LABEL.to_owned(), "uid-before".to_owned());
        });
    };
    other(&mut story);
    story.settle();
    assert_eq!(labeled(&story), 1);
    story.user(json!({"protection": null})).settle();
    other(&mut story);
    story.settle();
    assert_eq!(story.pods()[0].guarded_by(), None);
}

/// Deletes the workload: each pod is deleted when its hook allows it, then the budget, then the workload.
fn deleted_after_the_last_match<K: Planned + serde::Serialize>(
    mut story: Story<K>,
    finalizers: &[&str],
) {
    story.settle();
    delete(&mut story, finalizers);
    // `kubectl delete -f FOLDER` deletes the template, too.
    story.world.templates.clear();
    story.settle();
    assert_eq!((story.pods().len(), story.runs().len()), (2, 2));
    let blocks = story.world.runs.iter().map(|run| {
        let owners = run.metadata.owner_references.as_ref().expect("owner");
        owners[0].block_owner_deletion
    });
    assert!(blocks.into_iter().all(|it| it == Some(false)));
    // A run that the garbage collector deleted is created again.
    story.world.runs.clear();
    story.settle();
    assert_eq!(story.runs().len(), 2);
    let first = story.runs()[0].clone();
    story.hooks_end(&first, HookPhase::Successful);
    story.settle();
    assert_eq!(story.pods().len(), 1);
    assert!(story.budget.is_some() && has_finalizer(&story));
    assert_eq!(story.status().protection.expect("status").waiting.len(), 1);
    story.hooks_end("", HookPhase::Failed);
    story.settle();
    story.wait(60).settle();
    story.hooks_end("", HookPhase::Successful);
    story.settle();
    assert_eq!(grounds(&story), [Ground::Hook; 2]);
    assert!(story.pods().is_empty() && story.budget.is_none());
    assert!(!has_finalizer(&story));
}

#[test]
fn a_deleted_workload_stays_until_its_last_match_is_over() {
    for finalizers in [&[][..], &["foregroundDeletion"]] {
        deleted_after_the_last_match(story(2, guarded()), finalizers);
        deleted_after_the_last_match(set(2, guarded()), finalizers);
    }
}

#[test]
fn orphaned_pods_lose_their_label_and_no_hook_runs() {
    let mut story = story(2, guarded());
    story.settle();
    delete(&mut story, &[ORPHAN_FINALIZER]);
    // The garbage collector has orphaned one of the two pods.
    let name = story.names()[0].clone();
    story.edit_pod(&name, |pod| pod.controller = None);
    story.settle();
    assert_eq!((story.pods().len(), labeled(&story)), (2, 0));
    assert!(story.runs().is_empty() && story.budget.is_none());
    assert!(!has_finalizer(&story));
}

/// The operator was slow: the finalizer of `--cascade=orphan` has already been removed, and the cache is stale.
#[test]
fn an_orphaned_pod_is_not_deleted_even_if_its_hook_allows_it() {
    let mut story = story(2, guarded());
    story.settle();
    delete(&mut story, &[]);
    story.settle();
    story.hooks_end("", HookPhase::Successful);
    let plan = story.plan();
    let names = story.names();
    story.edit_pod(&names[0], |pod| pod.controller = None);
    story.edit_pod(&names[1], |pod| pod.controller = None);
    for action in plan.actions {
        story.carry_out(action);
    }
    assert_eq!(story.pods().len(), 2);
    story.settle();
    assert_eq!((story.pods().len(), labeled(&story)), (2, 0));
    assert!(!has_finalizer(&story));
}

#[test]
fn a_budget_of_another_client_for_the_same_pods_is_reported() {
    for (app, reason) in [("game", "AnotherBudget"), ("web", "PodsGuarded")] {
        let mut story = story(2, guarded());
        let labels = json!({"matchLabels": {"app": app}});
        let labels: LabelSelector = serde_json::from_value(labels).expect("a selector");
        story.other_budgets = vec![OtherBudget {
            name: "mine".to_owned(),
            selector: labels.try_into().expect("a selector"),
        }];
        story.settle();
        assert_eq!(guard_condition(&story), reason);
        assert_eq!(labeled(&story), 2);
    }
}

/// `kubectl game move` on two pods: they are replaced one after the other, within the budget, until it is canceled.
fn move_two_of_three<K: Planned + serde::Serialize>(mut story: Story<K>) -> Vec<String> {
    story.settle();
    let mut names = story.names();
    names.sort();
    let uid = |story: &Story<K>, name: &str| {
        let mut pods = story.pods().into_iter();
        pods.find(|pod| pod.name == name).map(|pod| pod.uid.clone())
    };
    let before: Vec<_> = names.iter().map(|name| uid(&story, name)).collect();
    for name in &names[..2] {
        story.edit_pod(name, |pod| pod.move_requested = Some(MoveRequest::User));
    }
    story.settle();
    let shown = story.status().protection.expect("status");
    assert_eq!((shown.moving, shown.waiting.len()), (2, 1));
    assert_eq!(
        story.condition("Ready").expect("condition").0,
        "PodsToDelete"
    );
    assert_eq!(story.hooks_end("", HookPhase::Successful), 1);
    story.settle();
    let shown = story.status().protection.expect("status");
    assert_eq!((shown.moving, shown.waiting.len()), (1, 1));
    for pod in story.names() {
        story.edit_pod(&pod, |pod| pod.move_requested = None);
    }
    story.settle();
    let shown = story.status().protection.expect("status");
    assert_eq!((shown.moving, shown.waiting.len()), (0, 0));
    let uids = names.iter().zip(before);
    let replaced = uids.filter(|(name, before)| uid(&story, name) != *before);
    let replaced: Vec<_> = replaced.map(|(name, _)| name.clone()).collect();
    assert_eq!((replaced.len(), story.pods().len()), (1, 3));
    assert_eq!(grounds(&story), [Ground::Hook]);
    replaced
}

#[test]
fn moved_pods_are_replaced_as_their_hooks_allow() {
    let mut spec = guarded();
    spec["updateStrategy"] = json!({"type": "InplaceUpdate", "maxUnavailable": 1});
    move_two_of_three(story(3, spec));
    for policy in ["OrderedReady", "Parallel"] {
        let mut spec = guarded();
        spec["podManagementPolicy"] = json!(policy);
        spec["updateStrategy"] = json!({"type": "InplaceUpdate", "maxUnavailable": 1});
        // Highest first, as in an update; the new pod has the same ordinal.
        assert_eq!(move_two_of_three(set(3, spec)), ["game-1"]);
    }
}

/// A pod whose hook refused leaves its slot to the next one, so idle pods are moved first.
#[test]
fn idle_pods_are_moved_first() {
    let mut spec = guarded();
    spec["updateStrategy"] = json!({"type": "InplaceUpdate", "maxUnavailable": 1});
    let mut story = story(3, spec);
    story.settle();
    for name in story.names() {
        story.edit_pod(&name, |pod| pod.move_requested = Some(MoveRequest::User));
    }
    story.settle();
    let busy = story.runs();
    assert_eq!(story.hooks_end("", HookPhase::Failed), 1);
    story.settle();
    assert_eq!(story.runs().len(), 2, "the hook of the next pod runs");
    assert!(grounds(&story).is_empty());
    assert_eq!(story.hooks_end("", HookPhase::Successful), 1);
    story.settle();
    assert_eq!(grounds(&story), [Ground::Hook]);
    assert!(story.runs().contains(&busy[0]), "the busy pod was replaced");
}

/// With maxUnavailable 0, the replacement of a moved pod is created first.
#[test]
fn moved_pods_use_surge() {
    let mut spec = guarded();
    spec["updateStrategy"] = json!({"type": "RollingUpdate", "maxUnavailable": 0, "maxSurge": 1});
    let mut story = story(3, spec);
    story.settle();
    let names = story.names();
    for name in &names[..2] {
        story.edit_pod(name, |pod| pod.move_requested = Some(MoveRequest::User));
    }
    story.settle();
    assert_eq!(story.pods().len(), 4);
    assert_eq!(story.hooks_end("", HookPhase::Successful), 1);
    story.settle();
    assert_eq!((story.pods().len(), grounds(&story).len()), (4, 1));
    assert_eq!(story.hooks_end("", HookPhase::Successful), 1);
    story.settle();
    assert_eq!((story.pods().len(), grounds(&story).len()), (3, 2));
    assert!(!names[..2].iter().any(|name| story.names().contains(name)));
    // Once the move is canceled, the surplus pod is deleted as in any scale-in.
    let name = story.names()[0].clone();
    story.edit_pod(&name, |pod| pod.move_requested = Some(MoveRequest::User));
    story.settle();
    assert_eq!(story.pods().len(), 4);
    story.edit_pod(&name, |pod| pod.move_requested = None);
    story.settle();
    story.hooks_end("", HookPhase::Successful);
    story.settle();
    assert_eq!(story.pods().len(), 3);
}

/// Kubernetes has tried to delete these pods, and the guard has refused.
#[test]
fn guarded_pods_on_lost_nodes_are_deleted() {
    let tolerations = |seconds: Value| {
        let mut spec = guarded();
        let toleration = json!({
            "key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute",
            "tolerationSeconds": seconds,
        });
        spec["template"] = json!({"spec": {"tolerations": [toleration]}});
        spec
    };
    let unprotected = json!({"preDeleteUpdateStrategy": {"hook": {"templateName": "test"}}});
    let taint = Some(Disruption::Taint);
    let lost = |unreachable, out_of_service| LostNode {
        unreachable,
        since: unreachable.then_some(Timestamp::UNIX_EPOCH),
        out_of_service,
    };
    for (spec, disruption, node, after) in [
        (guarded(), taint, lost(true, false), Some(300)),
        (tolerations(json!(20)), taint, lost(true, false), Some(20)),
        (tolerations(Value::Null), taint, lost(true, false), None),
        (tolerations(Value::Null), taint, lost(false, true), Some(0)),
        (guarded(), None, lost(true, true), None),
        (guarded(), taint, lost(false, false), None),
        (
            guarded(),
            Some(Disruption::Eviction),
            lost(true, true),
            None,
        ),
        (unprotected, taint, lost(true, true), None),
    ] {
        let case = format!("{spec} {disruption:?} {node:?}");
        let mut story = story(2, spec);
        story.settle();
        let since = node.since.map(|_| story.world.now);
        let name = story.names()[0].clone();
        story.edit_pod(&name, |pod| {
            (pod.node, pod.disruption) = (Some("lost".to_owned()), disruption);
            pod.ready_since = None;
        });
        story
            .world
            .lost_nodes
            .insert("lost".to_owned(), LostNode { since, ..node });
        story.settle();
        if let Some(after) = after.filter(|after| *after > 0) {
            assert!(grounds(&story).is_empty(), "{case}");
            story.wait(after - 1).settle();
            assert!(grounds(&story).is_empty(), "{case}");
            story.wait(1);
        } else {
            story.wait(i64::from(after.is_none()) * 1000);
        }
        story.settle();
        let expected: &[Ground] = if after.is_some() {
            &[Ground::NodeLost]
        } else {
            &[]
        };
        assert_eq!(grounds(&story), expected, "{case}");
        // If the node has come back in the meantime, its kubelet has changed the pod, and the deletion fails.
        let has_precondition = |action: &Action| match action {
            Action::DeletePod(deletion) => deletion.pod.version.is_some(),
            _ => true,
        };
        assert!(story.done.iter().all(has_precondition), "{case}");
        assert_eq!(story.names().contains(&name), after.is_none(), "{case}");
    }
}

/// The pod garbage collector has found that the node does not exist.
#[test]
fn guarded_pods_of_deleted_nodes_are_deleted() {
    let mut story = story(2, guarded());
    story.settle();
    let name = story.names()[0].clone();
    story.edit_pod(&name, |pod| {
        (pod.phase, pod.disruption) = (PodPhase::Failed, Some(Disruption::LostNode));
    });
    story.settle();
    assert_eq!(grounds(&story), [Ground::NodeLost]);
    assert!(!story.names().contains(&name));
}

/// A node that is going to be removed causes requests to move, which are withdrawn when it stays. A taint that the
/// template tolerates causes none.
#[test]
fn pods_leave_a_node_that_is_going_to_be_removed() {
    let mut spec = guarded();
    spec["protection"]["onNodeGoing"] = json!("Move");
    spec["updateStrategy"] = json!({"type": "InplaceUpdate", "maxUnavailable": 2});
    let mut story = story(3, spec);
    story.settle();
    let names = story.names();
    for name in &names {
        story.edit_pod(name, |pod| pod.node = Some("stays".to_owned()));
    }
    for name in &names[..2] {
        story.edit_pod(name, |pod| pod.node = Some("goes".to_owned()));
    }
    let taint = Taint {
        key: "node.kubernetes.io/unschedulable".to_owned(),
        value: String::new(),
        effect: "NoSchedule".to_owned(),
    };
    let going = BTreeMap::from([("goes".to_owned(), Arc::from([taint]))]);
    let moving = |story: &Story| story.status().protection.expect("status").moving;
    story.world.going_nodes.clone_from(&going);
    story.settle();
    assert_eq!(moving(&story), 2);
    // The node stays after all.
    story.world.going_nodes.clear();
    story.settle();
    assert_eq!(moving(&story), 0);
    let tolerations = json!([{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]);
    let spec_of_pods = json!({"template": {"spec": {"tolerations": tolerations}}});
    story.user(spec_of_pods).settle();
    story.world.going_nodes.clone_from(&going);
    story.settle();
    assert_eq!(moving(&story), 0);
    let spec_of_pods = json!({"template": {"spec": {"tolerations": null}}});
    story.user(spec_of_pods).settle();
    assert_eq!(moving(&story), 2);
    // While a pod cannot be scheduled, no other pod is moved.
    story.edit_pod(&names[2], |pod| pod.node = None);
    assert_eq!(story.hooks_end("", HookPhase::Successful), 2);
    story.settle();
    assert_eq!(grounds(&story), []);
    story.edit_pod(&names[2], |pod| pod.node = Some("stays".to_owned()));
    story.settle();
    story.hooks_end("", HookPhase::Successful);
    story.settle();
    assert_eq!(grounds(&story), [Ground::Hook, Ground::Hook]);
    assert_eq!((moving(&story), story.pods().len()), (0, 3));
}

/// The node stays, and the hook allows the deletion before the request is withdrawn.
#[test]
fn a_pod_is_not_replaced_if_its_node_stays() {
    let mut spec = guarded();
    spec["protection"]["onNodeGoing"] = json!("Move");
    let mut story = story(2, spec);
    story.settle();
    let names = story.names();
    story.edit_pod(&names[0], |pod| pod.node = Some("goes".to_owned()));
    let taint = Taint {
        key: "node.kubernetes.io/unschedulable".to_owned(),
        value: String::new(),
        effect: "NoSchedule".to_owned(),
    };
    let going = BTreeMap::from([("goes".to_owned(), Arc::from([taint]))]);
    story.world.going_nodes = going;
    story.settle();
    assert_eq!(story.hooks_end("", HookPhase::Successful), 1);
    story.world.going_nodes.clear();
    story.settle();
    assert_eq!(story.names(), names);
    assert_eq!(grounds(&story), []);
}

/// There is also another reason to delete the pod, or to change it.
#[test]
fn a_pod_on_a_lost_node_is_deleted_once() {
    for (is_moved, image, strategy) in [
        (true, "v1", "RollingUpdate"),
        (false, "v2", "RollingUpdate"),
        (false, "v2", "InplaceUpdate"),
    ] {
        let mut spec = guarded();
        spec["updateStrategy"] = json!({"type": strategy, "maxUnavailable": 1});
        let mut story = story(2, spec);
        story.settle();
        let name = story.names()[0].clone();
        story.edit_pod(&name, |pod| {
            (pod.node, pod.disruption) = (Some("lost".to_owned()), Some(Disruption::Taint));
            pod.move_requested = is_moved.then_some(MoveRequest::User);
            pod.ready_since = None;
        });
        let lost = LostNode {
            out_of_service: true,
            ..LostNode::default()
        };
        story.world.lost_nodes.insert("lost".to_owned(), lost);
        story.image(image).settle();
        assert_eq!(grounds(&story), [Ground::NodeLost], "{is_moved} {strategy}");
        assert!(!story.names().contains(&name));
    }
}

/// Matches that were ended without the hook's permission are counted; one that ends by itself is not.
#[test]
fn the_last_status_of_a_guarded_pod_shows_what_ended_it() {
    fn stop(pod: &mut Pod) {
        let statuses = pod.containers.iter_mut();
        for status in statuses.filter_map(|it| it.status.as_mut()) {
            status.running = false;
        }
        pod.phase = PodPhase::Failed;
    }
    let mut story = story(4, guarded());
    story.settle();
    let before = GuardedPlayers::of(&story.object, &story.world);
    assert_eq!(before.ended(&story.object, &story.world), []);
    let names = story.names();
    story.edit_pod(&names[0], |pod| {
        pod.terminating = true;
        pod.disruption = Some(Disruption::Eviction);
    });
    story.edit_pod(&names[1], |pod| {
        stop(pod);
        pod.disruption = Some(Disruption::Kubelet);
    });
    // The game ended by itself.
    story.edit_pod(&names[2], stop);
    story.world.pods.retain(|pod| pod.name != names[3]);
    let mut ended = before.ended(&story.object, &story.world);
    ended.sort();
    let expected = [None, Some(Disruption::Eviction), Some(Disruption::Kubelet)];
    assert_eq!(ended, expected);
}

#[test]
fn a_workload_that_is_not_guarded_is_left_to_the_garbage_collector() {
    let hook = json!({"preDeleteUpdateStrategy": {"hook": {"templateName": "test"}}});
    let mut story = story(2, hook);
    story.settle();
    delete(&mut story, &[]);
    assert!(!story.reconcile());
}

/// The deadline applies to deletions: it does not count from the time at which another hook was first needed.
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
    delete(&mut story, &[]);
    story.settle();
    let name = story.names()[0].clone();
    story.edit_pod(&name, |pod| {
        pod.released = true;
        pod.labels.remove(GUARDED_LABEL);
    });
    story.settle();
    assert_eq!(grounds(&story), [Ground::Released]);
    let since: Timestamp = story.pods()[0].waiting_since.expect("recorded");
    assert_eq!(since, story.world.now);
    story.wait(600).settle();
    assert_eq!(grounds(&story), [Ground::Released, Ground::Deadline]);
    assert!(!has_finalizer(&story));
}
