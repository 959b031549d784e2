//! What guards a pod: label, budget and finalizer, and the order in which they are set up and taken down.

use crate::api::names;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::{Value, json};

use super::{delete_workload, guard_condition, guarded, has_finalizer, labeled};
use crate::api::HookPhase;
use crate::api::names::{GUARDED_LABEL, KEPT_HOOK_ANNOTATION, ORPHAN_FINALIZER};
use crate::observed::OtherBudget;
use crate::workload::GuardState;
use crate::workload::tests::story::{Story, story};
use crate::write::Attempt;
use crate::write::{Change, Owned, Write};

#[test]
fn new_pods_have_the_label_from_the_start() {
    let mut story = story(2, guarded());
    story.settle();
    assert_eq!(labeled(&story), 2);
    assert_eq!(
        story.count(|it| it.change().label(names::GUARDED_LABEL).is_some()),
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
        let is_guard_action = |it: &Write| {
            matches!(
                it.change(),
                Change::ApplyBudget(_)
                    | Change::ProbeGuard { .. }
                    | Change::Delete { kind: Owned::Budget, .. }
            ) || it.change().label(names::GUARDED_LABEL).is_some()
        };
        assert_eq!(story.count(is_guard_action), 0);
        assert_eq!(story.status().protection, None);
        assert!(!has_finalizer(&story));
    }
}

/// The annotations keep autoscalers from evicting guarded pods, and the priority class keeps other pods from
/// preempting them. Values that the template sets take precedence.
#[test]
fn new_guarded_pods_have_annotations_and_a_priority_class() {
    let created = |spec: Value| -> Value {
        let mut story = story(1, spec);
        story.world.priority_class = Some("guarded".into());
        story.settle();
        let mut pods = story.done.iter().filter_map(|action| match action.change() {
            Change::CreatePod(new) => Some(new.pod.parse()),
            _ => None,
        });
        pods.next().expect("a pod")
    };
    let (safe_to_evict, do_not_disrupt) =
        ("cluster-autoscaler.kubernetes.io/safe-to-evict", "karpenter.sh/do-not-disrupt");
    let pod = created(guarded());
    let expected = json!({safe_to_evict: "false", do_not_disrupt: "true"});
    assert_eq!(pod["metadata"]["annotations"], expected);
    assert_eq!(pod["spec"]["priorityClassName"], "guarded");
    let mut with_settings = guarded();
    with_settings["template"] = json!({
        "metadata": {"annotations": {do_not_disrupt: "false"}}, "spec": {"priorityClassName": "mine"},
    });
    let pod = created(with_settings);
    let expected = json!({safe_to_evict: "false", do_not_disrupt: "false"});
    assert_eq!(pod["metadata"]["annotations"], expected);
    assert_eq!(pod["spec"]["priorityClassName"], "mine");
    let pod = created(json!({}));
    assert!(pod["metadata"]["annotations"].is_null() && pod["spec"]["priorityClassName"].is_null());
}

/// An in-place update removes annotations that only the old template sets; the guard sets its own again.
#[test]
fn an_in_place_update_keeps_the_guard_annotations() {
    let safe_to_evict = "cluster-autoscaler.kubernetes.io/safe-to-evict";
    let template =
        |value: Value| json!({"template": {"metadata": {"annotations": {safe_to_evict: value}}}});
    for (is_guarded, expected) in [(true, Some("false")), (false, None)] {
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
        let patches = story.done.iter().filter_map(|action| match action.change() {
            Change::PatchInPlace(patch) => Some(&patch.annotations),
            _ => None,
        });
        let patched = patches.flatten().find(|(key, _)| key == safe_to_evict);
        let (_, value) = patched.expect("the annotation changes");
        assert_eq!(value.as_deref(), expected, "guarded: {is_guarded}");
    }
}

/// Set up: the finalizer, the budget, a check that the policy is in force, and last the labels. Taken down: the labels,
/// the budget, and last the finalizer.
#[test]
fn the_guard_is_set_up_and_taken_down_in_order() {
    let mut story =
        story(2, json!({"preDeleteUpdateStrategy": {"hook": {"templateName": "test"}}}));
    story.has_policy = false;
    story.settle();
    story.user(json!({"protection": {"pods": "Guarded"}}));
    story.reconcile();
    assert!(has_finalizer(&story) && story.budget.is_none());
    story.reconcile();
    assert!(story.budget.is_some());
    story.settle();
    assert_eq!((labeled(&story), guard_condition(&story)), (0, "GuardNotInForce".to_owned()));

    story.has_policy = true;
    assert!(!story.reconcile(), "the check is not due yet");
    story.wait(1).settle();
    assert_eq!((labeled(&story), guard_condition(&story)), (2, "PodsGuarded".to_owned()));

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
fn a_removed_policy_is_noticed_and_a_removed_budget_is_restored() {
    let mut story = story(2, guarded());
    story.settle();
    let due = story.plan().wake.expect("a wake time");
    (story.world.now, story.has_policy) = (due, false);
    story.settle();
    assert_eq!(guard_condition(&story), "GuardNotInForce");
    (story.budget, story.world.memory.guard) = (None, Some(GuardState::NoBudget { times: 0 }));
    story.has_policy = true;
    story.settle();
    assert!(story.budget.is_some());
    assert_eq!(guard_condition(&story), "PodsGuarded");
}

#[test]
fn a_guard_label_of_another_workload_is_corrected() {
    let mut story = story(1, guarded());
    story.settle();
    let name = story.names()[0].clone();
    let mislabel = |story: &mut Story| {
        story.edit_pod(&name, |pod| {
            pod.labels.insert(GUARDED_LABEL.to_owned(), "uid-before".to_owned());
        });
    };
    mislabel(&mut story);
    story.settle();
    assert_eq!(labeled(&story), 1);
    story.user(json!({"protection": null})).settle();
    mislabel(&mut story);
    story.settle();
    assert_eq!(story.pods()[0].guarded_by(), None);
}

#[test]
fn a_budget_that_is_not_ours_for_the_same_pods_is_reported() {
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

/// An upgrade of the chart can switch guards off. Labels, budgets and finalizers that stayed would block evictions
/// and the deletion of the workload.
#[test]
fn guards_are_removed_if_the_operator_was_installed_without_them() {
    let mut story = story(2, guarded());
    story.settle();
    story.world.guards_pods = false;
    story.settle();
    assert_eq!(labeled(&story), 0);
    assert!(story.budget.is_none() && !has_finalizer(&story));
    assert_eq!(guard_condition(&story), "GuardNotInForce");
    story.user(json!({"replicas": 3})).settle();
    assert_eq!(labeled(&story), 0, "a new pod is not guarded");

    story.world.guards_pods = true;
    story.settle();
    assert_eq!(labeled(&story), 3);
    assert_eq!(guard_condition(&story), "PodsGuarded");
}

/// A budget that cannot be deleted blocks evictions, and the deletion of the workload.
#[test]
fn a_refused_deletion_of_the_budget_is_shown() {
    let switch_off = |story: &mut Story| {
        story.user(json!({"protection": {"pods": "None"}}));
    };
    let orphan = |story: &mut Story| delete_workload(story, &[ORPHAN_FINALIZER]);
    for remove in [switch_off as fn(&mut Story), orphan] {
        let mut story = story(2, guarded());
        story.settle();
        remove(&mut story);
        story.reconcile();
        assert_eq!(labeled(&story), 0);
        story.refuse(Attempt::DeleteBudget, "forbidden");
        let plan = story.plan();
        let attempts = plan.writes.iter().filter_map(Write::attempt);
        assert_eq!(attempts.collect::<Vec<_>>(), [Attempt::DeleteBudget]);
        let events = plan.events.iter().map(|it| it.reason.as_str());
        assert_eq!(events.collect::<Vec<_>>(), ["BudgetNotDeleted"]);
        story.object.status = plan.status;
        let (reason, message) = story.condition("Guarded").expect("a condition");
        assert_eq!(reason, "BudgetNotDeleted");
        assert!(message.ends_with("cannot be deleted: forbidden"), "{message}");
        assert_eq!(story.plan().status, None, "the status is written once");
    }
}
