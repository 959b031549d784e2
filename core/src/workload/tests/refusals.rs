//! Stories of refused writes that other writes depend on: what does not depend on them goes on, conditions say why the
//! rest does not, and they are attempted again.

use kube::Resource;
use serde::Serialize;
use serde_json::json;

use super::story::{Story, set, story};
use crate::workload::Planned;
use crate::write::{Attempt, Change, Write};

/// How often a refused kind of write was attempted.
fn attempts<K>(story: &Story<K>, attempt: Attempt) -> usize {
    story.refused.iter().filter(|it| it.attempt() == Some(attempt)).count()
}

fn set_image<K: Planned + Serialize>(story: &mut Story<K>, image: &str) {
    story.user(json!({"template": {"spec": {"containers": [{"name": "game", "image": image}]}}}));
}

#[test]
fn pods_are_replaced_and_scaled_at_the_revision_that_exists_while_the_new_one_is_refused() {
    fn check<K: Planned + Serialize>(mut story: Story<K>) {
        story.settle();
        story.refuses = Some(Attempt::RecordRevision);
        // The partition is for the new template alone.
        story.user(json!({"replicas": 4, "updateStrategy": {"partition": 0}}));
        set_image(&mut story, "game:v2");
        story.world.pods.pop();
        story.settle();
        assert_eq!(story.columns(), "4 4 4 4 4");
        assert_eq!(story.world.revisions.len(), 1);
        let (reason, message) = story.condition("FailedUpdate").expect("a condition");
        assert_eq!(reason, "FailedRevision");
        assert!(
            message.ends_with("so no pod is updated: not allowed; tried again within 30 s"),
            "{message}"
        );
        assert_eq!(story.condition("Progressing"), Some((reason, message)));
        let generation = story.object.meta().generation;
        assert_eq!(story.status().observed_generation, generation.expect("a generation"));
        // Once, and after one second, two, and four.
        story.wait(8).settle();
        let before = attempts(&story, Attempt::RecordRevision);
        assert_eq!(before, 2, "settled twice");
        story.refuses = None;
        story.wait(30).settle();
        assert_eq!(story.condition("FailedUpdate"), None);
        assert_eq!(story.world.revisions.len(), 2);
        let images = story.pods().into_iter().map(|pod| pod.containers[0].image.clone());
        assert_eq!(images.collect::<Vec<_>>(), ["game:v2"; 4]);
    }
    check(story(3, json!({})));
    check(set(3, json!({"podManagementPolicy": "Parallel"})));
}

#[test]
fn a_workload_whose_first_revision_is_refused_says_so() {
    let mut story = story(3, json!({}));
    story.refuses = Some(Attempt::RecordRevision);
    story.settle();
    for type_ in ["FailedUpdate", "Ready", "Progressing"] {
        assert_eq!(story.condition(type_).expect("a condition").0, "FailedRevision", "{type_}");
    }
    assert_eq!(story.status().observed_generation, 1);
    story.wait(30).settle();
    assert_eq!(story.condition("Stalled").expect("a condition").0, "FailedRevision");
    story.refuses = None;
    story.wait(30).settle();
    assert_eq!(story.columns(), "3 3 3 3 3");
    assert_eq!(story.condition("FailedUpdate"), None);
}

#[test]
fn a_rollout_whose_pause_cannot_be_written_stays_at_its_step_and_scaling_goes_on() {
    let steps = json!([{"partition": 2}, {"pause": {}}, {"partition": 0}]);
    let mut story = story(3, json!({"updateStrategy": {"canary": {"steps": steps}}}));
    story.settle();
    story.refuses = Some(Attempt::SteerRollout);
    set_image(&mut story, "game:v2");
    story.settle();
    for _ in 0..3 {
        story.wait(30).settle();
    }
    let updated = |story: &Story| {
        story.pods().iter().filter(|pod| pod.containers[0].image == "game:v2").count()
    };
    assert_eq!(updated(&story), 1);
    assert_eq!(story.status().current_step_index, Some(1));
    assert_eq!(story.condition("FailedUpdate").expect("a condition").0, "FailedPatch");
    story.user(json!({"replicas": 5})).settle();
    assert_eq!((story.pods().len(), updated(&story)), (5, 1));
    // Nobody has resumed the rollout, although `paused` is not true.
    story.refuses = None;
    story.wait(30).settle();
    assert_eq!(story.condition("Progressing").expect("it").0, "PausedByCanaryPauseStep");
    assert_eq!(story.condition("FailedUpdate"), None);
    story.user(json!({"updateStrategy": {"paused": false}})).settle();
    assert_eq!(updated(&story), 5);
}

#[test]
fn pods_are_created_without_the_label_of_guarded_pods_while_the_finalizer_is_refused() {
    let spec = json!({
        "preDeleteUpdateStrategy": {"hook": {"templateName": "test"}}, "protection": {"pods": "Guarded"},
    });
    let mut story = story(3, spec);
    story.refuses = Some(Attempt::MarkWorkload);
    story.settle();
    let labeled =
        |story: &Story| story.pods().iter().filter(|pod| pod.guarded_by().is_some()).count();
    assert_eq!((story.pods().len(), labeled(&story)), (3, 0));
    let (reason, message) = story.condition("FailedUpkeep").expect("a condition");
    assert_eq!(reason, "FailedPatch");
    assert_eq!(
        message,
        "the operator cannot write to this object: not allowed; tried again within 30 s"
    );
    story.refuses = None;
    story.wait(30).settle();
    assert_eq!(labeled(&story), 3);
    assert_eq!(story.condition("FailedUpkeep"), None);
}

#[test]
fn a_refused_clean_up_is_told_and_does_not_keep_the_workload_from_being_complete() {
    let mut story = story(1, json!({"revisionHistoryLimit": 0}));
    story.settle();
    story.refuses = Some(Attempt::CleanUp);
    set_image(&mut story, "game:v2");
    // The deletion of the old revision is attempted in each plan; the work queue delays it.
    for _ in 0..20 {
        story.reconcile();
    }
    assert_eq!(story.condition("FailedUpkeep").expect("a condition").0, "FailedCleanUp");
    assert_eq!(story.condition("Ready").expect("a condition").0, "AllPodsAvailable");
    let deletes = |it: &Write| matches!(it.change(), Change::Delete { .. });
    assert!(story.plan().writes.iter().any(deletes));
}

#[test]
fn the_deletion_of_a_guarded_workload_says_which_write_is_refused() {
    for (refused, reason) in
        [(Attempt::StartRemovalHook, "FailedHookRun"), (Attempt::RemovePod, "FailedDelete")]
    {
        let spec = json!({
            "preDeleteUpdateStrategy": {"hook": {"templateName": "test"}}, "protection": {"pods": "Guarded"},
        });
        let mut story = story(1, spec);
        story.settle();
        let now = story.world.now;
        story.object.meta_mut().deletion_timestamp =
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now));
        story.refuses = Some(refused);
        let mut events = Vec::new();
        for _ in 0..5 {
            events.extend(story.plan().events);
            story.reconcile();
            story.hooks_end("", crate::api::HookPhase::Successful);
        }
        let expected = (reason.to_owned(), "not allowed; tried again within 5 minutes".to_owned());
        assert_eq!(story.condition("FailedScale"), Some(expected.clone()));
        assert_eq!(story.condition("Progressing"), Some(expected));
        assert_eq!(story.condition("Ready").expect("a condition").0, "PodsToDelete");
        assert!(events.iter().any(|it| it.warning && it.reason == reason), "{events:?}");
        assert_eq!(story.pods().len(), 1);
    }
}
