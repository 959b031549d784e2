//! Stories about scaling: which pods are deleted, their hooks, and orphans.

use std::collections::BTreeSet;

use kube::ResourceExt;
use serde_json::json;

use super::story::{Story, set, story};
use crate::api::HookPhase;
use crate::api::names;
use crate::observed::PodPhase;
use crate::write::Attempt;
use crate::write::{Change, Write};

fn hooked(replicas: i32) -> Story {
    let mut story =
        story(replicas, json!({"preDeleteUpdateStrategy": {"hook": {"templateName": "test"}}}));
    story.settle();
    story
}

fn scale(story: &mut Story, replicas: i32) {
    story.user(json!({"replicas": replicas})).settle();
}

fn blocked(story: &Story) -> BTreeSet<String> {
    let conditions = story.status().pre_delete_hook_condition;
    conditions.into_iter().map(|it| it.pod_name).collect()
}

#[test]
fn a_pod_is_kept_until_its_hook_succeeds() {
    let mut story = hooked(6);
    scale(&mut story, 5);
    assert_eq!(story.columns(), "5 6 6 6 6");
    assert_eq!(story.runs().len(), 1);
    assert_eq!(story.pods().iter().filter(|pod| pod.marked_deleting).count(), 1);
    story.wait(600).settle();
    assert_eq!(story.pods().len(), 6);
    story.hooks_end("pre-delete", HookPhase::Successful);
    story.settle();
    assert_eq!(story.columns(), "5 5 5 5 5");
    assert!(story.runs().is_empty());
}

#[test]
fn a_failed_hook_keeps_its_pod_until_a_retry_succeeds() {
    let mut story = hooked(6);
    scale(&mut story, 5);
    story.hooks_end("pre-delete", HookPhase::Failed);
    story.settle();
    assert_eq!(story.columns(), "5 6 6 6 6");
    let blocked = story.status().pre_delete_hook_condition;
    assert_eq!((blocked.len(), blocked[0].phase), (1, HookPhase::Failed));
    let victim = blocked[0].pod_name.clone();

    story.user(json!({"preDeleteUpdateStrategy": {"retry": true}})).settle();
    assert!(!story.object.spec.pre_delete_update_strategy.retry);
    assert_eq!(story.object.metadata.annotations.clone().unwrap_or_default().len(), 0);
    assert!(story.runs()[0].contains(victim.trim_start_matches("game-")));
    assert!(story.status().pre_delete_hook_condition.is_empty());
    story.hooks_end("pre-delete", HookPhase::Successful);
    story.settle();
    assert!(!story.names().contains(&victim));
}

#[test]
fn scaling_back_out_cancels_deletions() {
    let mut story = hooked(6);
    scale(&mut story, 3);
    assert_eq!(story.runs().len(), 3);
    scale(&mut story, 5);
    assert_eq!(story.runs().len(), 1);
    assert_eq!(story.pods().iter().filter(|pod| pod.marked_deleting).count(), 1);
    scale(&mut story, 6);
    assert!(story.runs().is_empty());
    assert_eq!(story.pods().iter().filter(|pod| pod.marked_deleting).count(), 0);
    assert_eq!(story.pods().len(), 6);
}

#[test]
fn pods_that_already_wait_remain_the_victims() {
    let mut story = hooked(6);
    scale(&mut story, 5);
    let waiting: Vec<_> =
        story.pods().iter().filter(|it| it.marked_deleting).map(|it| it.name.clone()).collect();
    // Another pod would now be the better victim.
    let other = story.names().into_iter().find(|name| !waiting.contains(name)).expect("pod");
    story.edit_pod(&other, |pod| pod.deletion_cost = -100);
    story.settle();
    let still_waiting: Vec<_> =
        story.pods().iter().filter(|it| it.marked_deleting).map(|it| it.name.clone()).collect();
    assert_eq!(still_waiting, waiting);
}

#[test]
fn a_pod_that_waits_for_its_removal_is_chosen_before_one_that_waits_for_its_update() {
    let mut story = hooked(3);
    scale(&mut story, 2);
    let removal_runs = story.runs();
    let other =
        story.pods().iter().find(|it| !it.marked_deleting).map(|it| it.name.clone()).expect("pod");
    story.edit_pod(&other, |pod| pod.deletion_cost = -100);
    story.image("v2").settle();
    let runs = story.runs();
    assert_eq!((runs.len(), runs.contains(&removal_runs[0])), (2, true));
    let target_of = |run: &str| {
        let mut runs = story.world.runs.iter();
        let run = runs.find(|it| it.metadata.name.as_deref() == Some(run));
        run.expect("run").annotations()[names::RUN_TARGET].clone()
    };
    assert_eq!(target_of(&removal_runs[0]), "");
}

#[test]
fn a_success_is_valid_for_a_minute() {
    let mut story = story(
        2,
        json!({
            "preDeleteUpdateStrategy": {"hook": {"templateName": "test"}},
            "updateStrategy": {"maxUnavailable": 1},
        }),
    );
    story.settle();
    scale(&mut story, 1);
    story.hooks_end("pre-delete", HookPhase::Successful);
    story.wait(61);
    story.reconcile();
    assert_eq!(story.pods().len(), 2, "the old success does not count");
    story.settle();
    assert_eq!(story.runs().len(), 1);
    story.hooks_end("pre-delete", HookPhase::Successful);
    story.settle();
    assert_eq!(story.pods().len(), 1);
}

#[test]
fn pending_pods_and_pods_with_a_low_cost_are_deleted_first() {
    let mut story = story(5, json!({}));
    story.settle();
    let names = story.names();
    story.edit_pod(&names[0], |pod| pod.deletion_cost = 10);
    story.edit_pod(&names[1], |pod| pod.deletion_cost = 5);
    story.edit_pod(&names[2], |pod| pod.deletion_cost = -5);
    story.edit_pod(&names[3], |pod| pod.phase = PodPhase::Pending);
    story.kubelets_run = false;
    story.edit_pod(&names[4], |pod| pod.node = Some("costly".to_owned()));
    story.world.node_costs.insert("costly".to_owned(), 7);
    for (replicas, deleted) in [(4, 3), (3, 2), (2, 4), (1, 1)] {
        scale(&mut story, replicas);
        assert!(
            !story.names().contains(&names[deleted]),
            "{replicas} replicas: {:?}",
            story.names()
        );
    }
}

#[test]
fn with_sort_method_descend_pods_with_a_higher_cost_are_deleted_first() {
    let mut story = story(3, json!({}));
    story.settle();
    let names = story.names();
    story.edit_pod(&names[0], |pod| pod.deletion_cost = 10);
    story.edit_pod(&names[1], |pod| pod.deletion_cost = -5);
    story.annotate(crate::api::names::COST_SORT_METHOD, "descend");
    for (replicas, deleted) in [(2, 0), (1, 2)] {
        scale(&mut story, replicas);
        assert!(
            !story.names().contains(&names[deleted]),
            "{replicas} replicas: {:?}",
            story.names()
        );
    }
}

#[test]
fn pods_to_delete_are_deleted_first_when_scaling_in_and_replaced_otherwise() {
    let mut story = story(4, json!({}));
    story.settle();
    let names = story.names();
    story.user(json!({"replicas": 3, "scaleStrategy": {"podsToDelete": [names[1]]}})).settle();
    assert!(!story.names().contains(&names[1]));
    assert_eq!(story.pods().len(), 3);
    assert!(
        story.object.spec.scale_strategy.pods_to_delete.is_empty(),
        "names of deleted pods are removed"
    );
    story.user(json!({"scaleStrategy": {"podsToDelete": [names[2]]}})).settle();
    assert!(!story.names().contains(&names[2]));
    assert_eq!(story.pods().len(), 3);
}

#[test]
fn pods_that_ended_are_replaced_immediately_without_a_hook() {
    let mut story = hooked(3);
    let name = story.names()[0].clone();
    story.fail_pod(&name);
    story.settle();
    assert!(!story.names().contains(&name));
    assert_eq!(story.pods().len(), 3);
    assert_eq!(story.count(|action| matches!(action.change(), Change::CreateHookRun(_))), 0);
}

#[test]
fn orphans_are_adopted_and_pods_that_do_not_match_are_released() {
    let mut story = story(2, json!({}));
    story.settle();
    let names = story.names();
    story.edit_pod(&names[0], |pod| {
        pod.labels.insert("app".to_owned(), "other".to_owned());
    });
    story.edit_pod(&names[1], |pod| pod.controller = None);
    story.settle();
    let owners: Vec<_> = names
        .iter()
        .map(|name| {
            story.pods().iter().find(|pod| pod.name == *name).map(|pod| pod.controller.clone())
        })
        .collect();
    assert_eq!(owners, [Some(None), Some(Some("uid-game".to_owned()))]);
    assert_eq!(story.pods().len(), 3);
}

#[test]
fn an_orphan_is_not_replaced_while_its_adoption_is_refused() {
    let mut story = story(2, json!({}));
    story.settle();
    let name = story.names()[0].clone();
    story.edit_pod(&name, |pod| pod.controller = None);
    story.refuse(Attempt::AdoptPod, "forbidden");
    let plan = story.plan();
    let changes: Vec<&Change> = plan.writes.iter().map(Write::change).collect();
    assert!(matches!(changes[..], [Change::AdoptPod(_)]), "{plan:?}");
    let status = plan.status.expect("a new status");
    let failed = status.conditions.iter().find(|it| it.type_ == "FailedScale");
    assert_eq!(failed.map(|it| &*it.message), Some("forbidden; tried again within 5 minutes"));
    // A user who wants one more pod gets only that one.
    scale(&mut story, 3);
    assert_eq!(story.count(|action| matches!(action.change(), Change::CreatePod(_))), 3);
    assert_eq!(story.pods().len(), 3);
}

#[test]
fn an_orphan_of_a_new_revision_does_not_prove_that_the_revision_is_accepted() {
    let mut story = story(2, json!({"updateStrategy": {"paused": true}}));
    story.settle().image("v2").settle();
    let update = story.status().update_revision;
    story.world.memory.verdicts.clear();
    story.done.clear();
    let name = story.names()[0].clone();
    story.edit_pod(&name, |pod| {
        pod.controller = None;
        pod.labels.insert(names::REVISION_LABEL.to_owned(), update);
    });
    story.user(json!({"updateStrategy": {"paused": false}})).settle();
    let is_dry_run = |action: &Write| matches!(action.change(), Change::DryRun { .. });
    assert_eq!(story.count(is_dry_run), 1);
}

#[test]
fn a_missing_hook_template_blocks_the_deletion_and_is_reported_until_it_exists() {
    let mut story = hooked(2);
    story.world.templates.clear();
    scale(&mut story, 1);
    assert_eq!(story.pods().len(), 2);
    assert_eq!(story.condition("FailedScale").expect("condition").0, "HookTemplateNotFound");
    story.world.unreadable_templates.insert("test".to_owned());
    story.settle();
    assert_eq!(story.condition("FailedScale").expect("condition").0, "HookTemplateUnreadable");
    story.world.unreadable_templates.clear();
    story.template("test").settle();
    assert_eq!(story.condition("FailedScale"), None);
    assert_eq!(story.runs().len(), 1);
}

#[test]
fn pods_that_wait_for_a_hook_are_deleted_when_it_is_removed_from_the_spec() {
    let mut story = hooked(3);
    scale(&mut story, 1);
    assert_eq!(story.pods().len(), 3);
    story.user(json!({"preDeleteUpdateStrategy": {"hook": null}})).settle();
    assert_eq!(story.pods().len(), 1);
    assert!(story.runs().is_empty());
}

#[test]
fn a_workload_is_not_ready_while_a_pod_in_pods_to_delete_waits_for_its_hook() {
    let mut story = hooked(2);
    let named = story.names().remove(0);
    story.user(json!({"scaleStrategy": {"podsToDelete": [named]}})).settle();
    story.hooks_end("pre-delete", HookPhase::Failed);
    story.settle();
    assert_eq!(story.condition("Ready").map(|(reason, _)| reason), Some("PodsToDelete".to_owned()));
}

#[test]
fn two_billion_pods_are_not_created_all_at_once() {
    let mut deployment = story(2_000_000_000, json!({}));
    let mut set = set(2_000_000_000, json!({"podManagementPolicy": "Parallel"}));
    deployment.reconcile();
    set.reconcile();
    for actions in [deployment.plan().writes, set.plan().writes] {
        let created = actions.iter();
        let created = created.filter(|it| matches!(it.change(), Change::CreatePod(_)));
        assert_eq!(created.count(), 1_000);
    }
}

#[test]
fn a_scale_in_of_many_pods_starts_its_hooks_gradually() {
    let mut story = hooked(1_200);
    story.user(json!({"replicas": 0}));
    let mut started = Vec::new();
    while story.reconcile() {
        started.push(story.runs().len());
        let marked = story.pods().iter().filter(|pod| pod.marked_deleting).count();
        assert_eq!(marked, story.runs().len(), "each marked pod has a HookRun");
    }
    // The last plan only writes how many pods wait.
    started.dedup();
    assert_eq!(started, [500, 1_000, 1_200]);
}

#[test]
fn names_that_no_pod_has_are_reported_in_one_event() {
    let mut story = story(2, json!({}));
    story.settle();
    let reported = |story: &Story| {
        let events = story.plan().events.into_iter();
        let events = events.filter(|it| it.reason == "PodNotFound");
        events.map(|it| it.message).collect::<Vec<_>>()
    };
    let list_missing_pods = |story: &mut Story, count: usize| {
        let names: Vec<_> = (1..=count).map(|n| format!("gone-{n}")).collect();
        story.user(json!({"scaleStrategy": {"podsToDelete": names}}));
    };
    for (count, expected) in [
        (1, "gone-1, which is not a pod of this workload; it is removed from the list"),
        (2, "gone-1, gone-2, which are not pods of this workload; they are removed from the list"),
        (
            3_000,
            "gone-1, gone-2, gone-3, gone-4, gone-5 and 2995 more, which are not pods of this \
                 workload; they are removed from the list",
        ),
    ] {
        list_missing_pods(&mut story, count);
        assert_eq!(reported(&story), [format!("podsToDelete names {expected}")]);
    }
}

#[test]
fn a_status_shows_the_pods_that_have_waited_longest_for_a_hook() {
    let mut story = hooked(230);
    scale(&mut story, 200);
    story.hooks_end("pre-delete", HookPhase::Failed);
    let waiting_longest = blocked(story.settle());
    assert_eq!(waiting_longest.len(), 30);
    story.wait(60);
    scale(&mut story, 0);
    story.hooks_end("pre-delete", HookPhase::Failed);
    let shown = blocked(story.settle());
    assert_eq!(shown.len(), 100);
    assert!(waiting_longest.is_subset(&shown));
}

#[test]
fn a_scale_in_at_a_pause_leaves_no_surplus_pods() {
    let steps = json!([{"partition": "90%"}, {"pause": {}}]);
    let strategy = json!({"maxSurge": 2, "canary": {"steps": steps}});
    let mut story = story(10, json!({"updateStrategy": strategy}));
    story.settle().image("v2").settle();
    assert!(story.paused());
    for replicas in [5, 0, 3] {
        story.user(json!({"replicas": replicas})).settle();
        assert_eq!(story.pods().len(), replicas);
    }
}

#[test]
fn a_scale_in_with_surge_while_a_template_is_refused_leaves_no_surplus_pods() {
    for strategy in [
        json!({"maxSurge": 2, "maxUnavailable": 0}),
        json!({"type": "InplaceUpdate", "maxSurge": 2, "maxUnavailable": 0}),
    ] {
        let mut story = story(4, json!({"updateStrategy": strategy}));
        story.settle();
        let node = json!({"kubernetes.io/os": "linux"});
        story.dry_run_refusal = Some("not allowed".to_owned());
        story.user(json!({"template": {"spec": {"nodeSelector": node}}})).settle();
        story.user(json!({"replicas": 2})).settle();
        assert_eq!(story.pods().len(), 2, "{strategy}");
    }
}
