//! Stories of canary rollouts: steps, pauses and what ends them, and held replicas.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::json;

use super::story::{Story, story};
use crate::api::{HookPhase, PauseReason, names};
use crate::workload::OwnPause;
use crate::write::{Attempt, Change, Owned};

/// The canary of docs/walkthroughs.md: partition 3, pause, partition 2, pause of 60 s, hook.
fn walkthrough() -> Story {
    let mut story = story(
        4,
        json!({"updateStrategy": {"type": "InplaceUpdate", "maxUnavailable": 2, "canary": {"steps": [
            {"partition": 3}, {"pause": {}}, {"partition": 2}, {"pause": {"duration": 60}},
            {"hook": {"templateName": "test"}}]}}}),
    );
    story.settle();
    story
}

/// The user resumes, and everything settles.
pub fn resume(story: &mut Story) {
    story.user(json!({"updateStrategy": {"paused": false}})).settle();
}

#[test]
fn a_rollback_keeps_the_pause_that_a_user_set_after_the_pause_of_a_step_had_ended() {
    let mut story = story(
        2,
        json!({"updateStrategy": {"canary": {"steps": [{"pause": {"duration": 10}}, {"partition": 0}]}}}),
    );
    story.settle();
    story.image("v2").settle();
    story.wait(10).reconcile();
    assert!(!story.paused());
    story.image("v1").user(json!({"updateStrategy": {"paused": true}})).settle();
    assert!(story.paused());
}

#[test]
fn a_new_template_replaces_the_canary_of_the_previous_one() {
    for strategy in ["RollingUpdate", "InplaceUpdate"] {
        let steps = json!([{"partition": 4}, {"pause": {}}]);
        let strategy = json!({"type": strategy, "maxUnavailable": 1, "canary": {"steps": steps}});
        let mut story = story(5, json!({"updateStrategy": strategy}));
        story.settle();
        for tag in ["v2", "v3", "v4"] {
            story.image(tag).settle();
            assert_eq!(story.images(), format!("v1 v1 v1 v1 {tag}"));
        }
        story.image("v5").user(json!({"replicas": 4})).settle();
        assert!(story.images().starts_with("v1 v1 v1"), "{}", story.images());
        assert!(!story.images().contains("v4"), "{}", story.images());
    }
}

/// The pods of a bad build change forever, because they never become ready.
#[test]
fn a_step_does_not_wait_for_pods_of_an_earlier_rollout() {
    let steps = json!([{"partition": 2}, {"pause": {}}, {"partition": 1}]);
    let strategy =
        json!({"type": "InplaceUpdate", "maxUnavailable": 2, "canary": {"steps": steps}});
    let mut story = story(4, json!({"updateStrategy": strategy}));
    story.settle();
    story.kubelets_run = false;
    story.image("v2").settle();
    assert_eq!(story.images(), "v1 v1 v2 v2");
    let steps = json!([{"partition": 3}, {"pause": {}}]);
    story.user(json!({"updateStrategy": {"canary": {"steps": steps}}}));
    story.image("v3").settle();
    assert_eq!(story.images(), "v1 v1 v2 v3");
    let fixed = story.pods().into_iter().find(|pod| pod.containers[0].image == "game:v3");
    let fixed = fixed.expect("a pod").name.clone();
    let stuck: Vec<_> = story.pods().into_iter().map(|pod| pod.name.clone()).collect();
    // Only the fixed build becomes ready.
    for name in stuck.into_iter().filter(|name| *name != fixed) {
        story.edit_pod(&name, |pod| {
            pod.labels.insert("broken".to_owned(), "true".to_owned());
        });
    }
    story.kubelets_run = true;
    for _ in 0..20 {
        story.reconcile();
    }
    assert_eq!(story.status().current_step_index, Some(1));
}

#[test]
fn each_step_of_the_walkthrough_holds_until_it_is_over() {
    let mut story = walkthrough();
    assert_eq!(story.columns(), "4 4 4 4 4");
    assert_eq!(story.status().current_step_index, Some(5));
    let stable = story.status().update_revision;

    story.image("v2").settle();
    assert_eq!(story.columns(), "4 1 1 4 4");
    let status = story.status();
    assert!(story.paused());
    assert_eq!(status.current_step_index, Some(1));
    assert_eq!(status.canary.revision, stable);
    assert_eq!(status.pause_conditions[0].reason, PauseReason::PausedByCanaryPauseStep);

    resume(&mut story);
    assert_eq!(story.columns(), "4 2 2 4 4");
    assert_eq!(story.status().current_step_index, Some(3));

    story.wait(59).settle();
    assert_eq!(story.status().current_step_index, Some(3));
    story.wait(1).settle();
    assert_eq!(story.status().current_step_index, Some(4));
    let run = format!("canary-step-hook-{}-4-test", story.status().update_revision);
    assert_eq!(story.runs(), std::slice::from_ref(&run));

    story.hooks_end(&run, HookPhase::Failed);
    story.settle();
    let status = story.status();
    assert_eq!(status.pause_conditions[0].reason, PauseReason::PausedByStepBasedHook);
    assert_eq!(status.canary.current_step_hook_run, Some(run));
    assert_eq!(status.current_step_index, Some(4));
    assert!(story.paused());

    resume(&mut story);
    assert_eq!(story.columns(), "4 4 4 4 4");
    let status = story.status();
    assert_eq!(
        (status.current_step_index, status.canary.revision),
        (Some(5), status.update_revision)
    );
    assert!(status.pause_conditions.is_empty());
    assert!(story.runs().is_empty());
}

/// GitOps tools that replace objects send the manifest as it is: without the operator's annotation, and without `paused`.
#[test]
fn a_replaced_workload_does_not_begin_its_pause_again() {
    let mut story = walkthrough();
    story.image("v2").settle();
    resume(&mut story);
    let begun = story.status().pause_conditions.clone();
    for seconds in (0..60).step_by(3) {
        let replaced = &mut story.object.metadata.annotations;
        replaced.get_or_insert_default().remove(names::PAUSE_ANNOTATION);
        // What another client undoes again and again is not written for a while.
        let is_held = (12..30).contains(&seconds) || seconds == 57;
        story.refuses = is_held.then_some(Attempt::SteerRollout);
        story.user(json!({"updateStrategy": {"paused": false}})).settle();
        assert_eq!(story.status().current_step_index, Some(3), "after {seconds} s");
        assert_eq!(story.status().pause_conditions, begun, "after {seconds} s");
        assert!(seconds >= 12 || story.paused(), "after {seconds} s");
        story.wait(3).settle();
    }
    // The pause is over although its annotation could not be written.
    story.wait(30).settle();
    assert_eq!(story.status().current_step_index, Some(4));
}

#[test]
fn rolling_back_after_a_failed_hook_takes_only_one_change_of_the_image() {
    let mut story = walkthrough();
    story.image("v2").settle();
    resume(&mut story);
    story.wait(60).settle();
    story.hooks_end("canary", HookPhase::Failed);
    story.settle();
    assert_eq!(story.images(), "v1 v1 v2 v2");
    story.image("v1").settle();
    assert_eq!(story.images(), "v1 v1 v1 v1");
    assert!(!story.paused());
    assert_eq!(story.status().current_step_index, Some(5));
    assert!(story.runs().is_empty());
}

#[test]
fn steps_that_change_during_a_rollout_start_over_and_revert_no_pod() {
    let mut story = walkthrough();
    story.image("v2").settle();
    resume(&mut story);
    assert_eq!(story.images(), "v1 v1 v2 v2");
    story
        .user(json!({"updateStrategy": {"canary": {"steps": [{"partition": 3}, {"pause": {}}]}}}))
        .settle();
    assert_eq!(story.images(), "v1 v1 v2 v2");
    assert_eq!(story.status().current_step_index, Some(1));
    assert!(story.paused());
    resume(&mut story);
    assert_eq!(story.images(), "v2 v2 v2 v2");
}

#[test]
fn a_new_list_of_steps_is_walked_through_from_its_start() {
    let mut story = walkthrough();
    story.image("v2").settle();
    assert_eq!(story.status().current_step_index, Some(1));
    let steps = json!([{"partition": 3}, {"partition": 2}, {"pause": {}}]);
    story.user(json!({"updateStrategy": {"canary": {"steps": steps}}})).settle();
    assert_eq!(story.images(), "v1 v1 v2 v2");
    assert_eq!(story.status().current_step_index, Some(2));
}

#[test]
fn a_scale_out_during_a_pause_adds_no_pod_of_the_new_revision() {
    let mut story = walkthrough();
    story.image("v2").settle();
    story.user(json!({"replicas": 8})).settle();
    assert_eq!(story.images(), "v1 v1 v1 v1 v1 v1 v1 v2");
    story.user(json!({"replicas": 4})).settle();
    assert_eq!(story.images(), "v1 v1 v1 v2");
}

#[test]
fn only_the_user_ends_a_users_pause() {
    let mut story = walkthrough();
    story.user(json!({"updateStrategy": {"paused": true}})).image("v2").settle();
    assert_eq!(story.images(), "v1 v1 v1 v1");
    assert_eq!(story.status().current_step_index, Some(0));
    assert!(story.status().pause_conditions.is_empty());
    story.user(json!({"replicas": 5})).wait(86_400).settle();
    assert_eq!(story.images(), "v1 v1 v1 v1 v1");
    story.user(json!({"updateStrategy": {"paused": false}})).settle();
    assert_eq!(story.status().current_step_index, Some(1));
}

#[test]
fn a_template_applied_during_a_users_pause_reaches_no_pod_until_the_user_resumes() {
    let mut story = story(4, json!({"updateStrategy": {"partition": 2}}));
    story.settle();
    story.image("v2").settle();
    assert_eq!(story.images(), "v1 v1 v2 v2");
    story.user(json!({"updateStrategy": {"paused": true}})).settle();
    story.user(json!({"replicas": 6})).settle();
    assert_eq!(story.images(), "v1 v1 v1 v1 v2 v2");

    story.image("v3").user(json!({"replicas": 8})).settle();
    assert_eq!(story.images(), "v1 v1 v1 v1 v1 v1 v2 v2");
    story.user(json!({"updateStrategy": {"paused": false}})).settle();
    assert_eq!(story.images(), "v1 v1 v3 v3 v3 v3 v3 v3");
}

/// A step updates three of four pods, and a user pauses when one is updated.
fn stopped_in_a_partition_step() -> Story {
    let steps = json!([{"partition": 1}, {"pause": {}}]);
    let strategy = json!({"maxUnavailable": 1, "canary": {"steps": steps}});
    let mut story = story(4, json!({"updateStrategy": strategy}));
    story.settle();
    story.kubelets_run = false;
    story.image("v2").settle();
    story.user(json!({"updateStrategy": {"paused": true}})).settle();
    assert_eq!(story.images(), "v1 v1 v1 v2");
    story
}

#[test]
fn removing_the_steps_during_a_users_pause_updates_no_pod() {
    let mut story = stopped_in_a_partition_step();
    story.user(json!({"updateStrategy": {"canary": null}})).settle();
    story.kubelets_run = true;
    story.user(json!({"replicas": 6})).settle();
    assert_eq!(story.images(), "v1 v1 v1 v1 v1 v2");
}

/// A canary that paused with one of four pods updated, and whose status is lost.
fn canary_without_status() -> Story {
    let steps = json!([{"partition": 3}, {"pause": {}}]);
    let mut story = story(4, json!({"updateStrategy": {"canary": {"steps": steps}}}));
    story.settle();
    story.image("v2").settle();
    assert_eq!(story.images(), "v1 v1 v1 v2");
    story.object.status = None;
    story.object.metadata.annotations = None;
    story.user(json!({"updateStrategy": {"paused": false}}));
    story
}

#[test]
fn a_canary_whose_status_is_lost_repeats_its_steps() {
    let mut story = canary_without_status();
    let stable = story.pods()[0].revision().to_string();
    story.settle();
    assert_eq!(story.images(), "v1 v1 v1 v2");
    assert_eq!(story.status().canary.revision, stable);
    assert_eq!(story.status().current_step_index, Some(1));
    assert!(story.paused());
    resume(&mut story);
    assert_eq!(story.images(), "v2 v2 v2 v2");
}

#[test]
fn a_partition_holds_when_a_workload_without_status_adopts_its_pods() {
    let mut story = story(4, json!({"updateStrategy": {"partition": 3}}));
    story.settle();
    story.image("v2").settle();
    story.object.status = None;
    for pod in story.names() {
        story.edit_pod(&pod, |pod| pod.controller = None);
    }
    for revision in &mut story.world.revisions {
        Arc::make_mut(revision).controlled = false;
    }
    let before = story.names();
    story.settle();
    assert_eq!(story.images(), "v1 v1 v1 v2");
    assert_eq!(story.names(), before);
}

#[test]
fn pods_of_unknown_revisions_do_not_determine_the_stable_revision() {
    let mut story = canary_without_status();
    let update = story.world.revisions.iter().max_by_key(|it| it.number);
    let update = update.expect("a revision").name.clone();
    story.world.revisions.retain(|it| it.name == update);
    story.settle();
    assert_eq!(story.images(), "v2 v2 v2 v2");
}

/// A canary at its pause, which an apply of `paused: false` has not resumed.
fn applied() -> Story {
    let mut story = walkthrough();
    story.image("v2").settle();
    let annotations = story.object.metadata.annotations.get_or_insert_default();
    let applied = r#"{"spec":{"updateStrategy":{"paused":false}}}"#;
    annotations.insert(names::LAST_APPLIED.to_owned(), applied.to_owned());
    resume(&mut story);
    story
}

#[test]
fn an_apply_does_not_resume() {
    let mut story = applied();
    assert_eq!(story.images(), "v1 v1 v1 v2");
    assert!(story.paused(), "paused again, so that kubectl patch can resume");
    assert_eq!(story.condition("Progressing").expect("condition").0, "ResumeByApplyIgnored");
    story.object.metadata.managed_fields = serde_json::from_value(json!([{
        "manager": "kubectl-patch", "operation": "Update",
        "fieldsV1": {"f:spec": {"f:updateStrategy": {"f:paused": {}}}},
    }]))
    .expect("managed fields");
    resume(&mut story);
    assert_eq!(story.images(), "v1 v1 v2 v2");
}

#[test]
fn a_pause_ends_in_its_annotation_although_an_apply_has_set_paused_to_false() {
    let mut story = applied();
    story.user(json!({"updateStrategy": {"paused": false}}));
    let annotations = story.object.metadata.annotations.get_or_insert_default();
    let pause = OwnPause::of(annotations).expect("a pause");
    assert!(pause.apply_ignored);
    let ended = serde_json::to_string(&pause.ended()).expect("JSON");
    annotations.insert(names::PAUSE_ANNOTATION.to_owned(), ended);
    story.settle();
    assert_eq!(story.images(), "v1 v1 v2 v2");
}

#[test]
fn how_to_resume_says_more_than_that_applies_undo_the_pause() {
    let mut story = applied();
    story.user(json!({"updateStrategy": {"paused": false}}));
    story.refuses = Some(Attempt::SteerRollout);
    story.settle();
    assert!(!story.paused());
    assert_eq!(story.condition("Progressing").expect("condition").0, "ResumeByApplyIgnored");
    assert_eq!(story.images(), "v1 v1 v1 v2");
}

#[test]
fn a_successful_hook_continues_the_rollout() {
    let mut story = walkthrough();
    story.image("v2").settle();
    resume(&mut story);
    story.wait(60).settle();
    story.hooks_end("canary", HookPhase::Successful);
    story.settle();
    assert_eq!(story.images(), "v2 v2 v2 v2");
    assert!(!story.paused());
}

#[test]
fn a_missing_hook_template_of_a_step_is_reported_until_it_exists() {
    let mut story = walkthrough();
    story.world.templates.clear();
    story.image("v2").settle();
    resume(&mut story);
    story.wait(60).settle();
    let (reason, message) = story.condition("FailedUpdate").expect("condition");
    assert_eq!(reason, "HookTemplateNotFound");
    assert!(message.contains("\"test\""), "{message}");
    story.template("test").settle();
    assert_eq!(story.condition("FailedUpdate"), None);
    assert_eq!(story.runs().len(), 1);
}

#[test]
fn runs_of_an_earlier_rollout_are_deleted_before_the_steps_start_over() {
    let mut story = walkthrough();
    story.image("v2").settle();
    resume(&mut story);
    story.wait(60).settle();
    story.hooks_end("canary", HookPhase::Successful);
    // The user changes the steps before the operator observes the success.
    story.user(json!({"updateStrategy": {"canary": {"steps": [{"hook": {"templateName": "test"}}, {"pause": {}}]}}}));
    let first = story.plan();
    assert_eq!(first.status, None);
    assert!(
        matches!(first.writes[0].change(), Change::Delete { kind: Owned::HookRun, .. })
            && first.writes.len() == 1,
        "{first:#?}"
    );
}

#[test]
fn successful_pre_inplace_runs_of_an_earlier_rollout_are_deleted_together_with_its_step_runs() {
    let mut story = story(
        2,
        json!({
            "updateStrategy": {"type": "InplaceUpdate", "canary": {"steps": [
                {"hook": {"templateName": "test"}}, {"partition": 0}]}},
            "preInplaceUpdateStrategy": {"hook": {"templateName": "test"}},
        }),
    );
    story.settle();
    // Both revisions are known, so only the runs of the steps delay the next rollout.
    story.image("v3").settle();
    story.image("v2").settle();
    story.hooks_end("canary", HookPhase::Successful);
    story.settle();
    story.hooks_end("pre-inplace", HookPhase::Successful);
    let runs = story.runs();
    assert!(runs.len() > 1, "{runs:?}");
    story.image("v3");
    let deleted = story.plan().writes.into_iter().filter_map(|it| match it.change() {
        Change::Delete { kind: Owned::HookRun, name, .. } => Some(name.clone()),
        _ => None,
    });
    assert_eq!(deleted.collect::<BTreeSet<_>>(), runs.into_iter().collect());
}

#[test]
fn a_settled_rollout_plans_nothing() {
    let mut story = walkthrough();
    story.image("v2").settle();
    let plan = story.plan();
    assert_eq!((plan.writes, plan.status), (vec![], None));
}

/// A canary that paused with one pod updated, and the name of its stable revision, which was deleted.
fn paused_without_stable_revision(pods: i32) -> (Story, String) {
    let steps = json!([{"partition": pods - 1}, {"pause": {}}]);
    let mut story = story(pods, json!({"updateStrategy": {"canary": {"steps": steps}}}));
    story.settle();
    let stable = story.status().update_revision;
    story.image("v2").settle();
    story.world.revisions.retain(|it| it.name != stable);
    (story, stable)
}

#[test]
fn a_pause_holds_when_the_stable_revision_is_deleted() {
    let (mut story, stable) = paused_without_stable_revision(4);
    assert_eq!(story.images(), "v1 v1 v1 v2");
    let name = story.names().remove(0);
    story.edit_pod(&name, |pod| pod.terminating = true);
    story.end_terminating().settle();
    assert!(story.paused());
    assert_eq!(story.images(), "v1 v1 v2");
    let (reason, message) = story.condition("FailedScale").expect("a condition");
    assert_eq!(reason, "RevisionNotFound");
    assert!(message.contains(&stable), "{message}");

    story.image("v1").settle();
    assert_eq!(story.images(), "v1 v1 v1 v1");
    assert!(story.condition("FailedScale").is_none());
}

#[test]
fn a_rollout_without_its_stable_revision_completes_like_any_other() {
    let (mut story, _) = paused_without_stable_revision(2);
    story.settle();
    assert_eq!(story.images(), "v1 v2");
    resume(&mut story);
    let status = story.status();
    assert_eq!(story.images(), "v2 v2");
    assert_eq!(status.canary.revision, status.update_revision);
}

#[test]
fn a_scale_out_while_a_user_pauses_a_partition_step_adds_no_pod_of_the_new_build() {
    let mut story = stopped_in_a_partition_step();
    story.kubelets_run = true;
    story.user(json!({"replicas": 6})).settle();
    assert_eq!(story.images(), "v1 v1 v1 v1 v1 v2");
    story.user(json!({"updateStrategy": {"paused": false}})).settle();
    assert_eq!(story.images(), "v1 v1 v1 v2 v2 v2");
    assert!(story.paused());
}

/// Otherwise one resume would give all pods a build that no canary ran.
#[test]
fn a_step_is_not_done_while_there_are_no_pods() {
    let steps = json!([{"partition": "50%"}, {"pause": {}}]);
    let mut story = story(4, json!({"updateStrategy": {"canary": {"steps": steps}}}));
    story.settle();
    story.user(json!({"replicas": 0})).settle();
    story.image("v2").settle();
    assert_eq!(story.status().current_step_index, Some(0));
    let (reason, message) = story.condition("Progressing").expect("a condition");
    assert_eq!(reason, "NoPods");
    assert!(message.contains("spec.replicas is 0"), "{message}");
    story.user(json!({"replicas": 4})).settle();
    assert_eq!(story.images(), "v1 v1 v2 v2");
    assert_eq!(story.status().current_step_index, Some(1));
    // The canary of a step that is over comes back.
    story.user(json!({"replicas": 0})).settle();
    story.user(json!({"replicas": 4})).settle();
    assert_eq!(story.images(), "v1 v1 v2 v2");
    resume(&mut story);
    assert_eq!(story.images(), "v2 v2 v2 v2");
}

#[test]
fn a_pod_that_a_surge_pod_has_replaced_is_gone_when_the_step_is_done() {
    for step in [json!({"pause": {}}), json!({"hook": {"templateName": "test"}})] {
        let steps = json!([{"partition": 3}, step]);
        let strategy = json!({"maxSurge": 1, "maxUnavailable": 0, "canary": {"steps": steps}});
        let mut story = story(4, json!({"updateStrategy": strategy}));
        story.settle();
        story.image("v2").settle();
        assert_eq!(story.images(), "v1 v1 v1 v2");
        assert_eq!(story.status().current_step_index, Some(1));
    }
}
