//! The first pods of a workload, created in batches.

use serde::Serialize;
use serde_json::{Value, json};

use super::sets::{set_ready, shape};
use super::story::{Story, set, story};
use crate::workload::Planned;
use crate::write::{Change, Write};

fn batches(size: Value) -> Value {
    json!({"scaleStrategy": {"createBatch": size}})
}

/// Reconciles until nothing changes, and returns how many pods were created.
fn creations<K: Planned + Serialize>(story: &mut Story<K>) -> usize {
    story.done.clear();
    story.settle();
    story.count(|action| matches!(action.change(), Change::CreatePod(_)))
}

/// The kubelet starts the existing pods.
fn start<K: Planned + Serialize>(story: &mut Story<K>) {
    story.kubelets_act();
}

fn progressing<K: Planned + Serialize>(story: &Story<K>) -> (String, String) {
    story.condition("Progressing").expect("a condition")
}

#[test]
fn the_first_pods_are_created_in_batches_and_later_ones_are_not() {
    let mut story = story(7, batches(json!("40%")));
    story.kubelets_run = false;
    for batch in [3, 3, 1] {
        assert_eq!(creations(&mut story), batch);
        assert!(story.status().creating_in_batches);
        start(&mut story);
    }
    story.settle();
    assert_eq!(story.columns(), "7 7 7 7 7");
    assert!(!story.status().creating_in_batches);

    story.user(json!({"replicas": 20}));
    assert_eq!(creations(&mut story), 13, "a scale-out is not limited");
    start(&mut story);
    story.world.pods.truncate(5);
    assert_eq!(creations(&mut story), 15, "replacements are not limited");
}

#[test]
fn a_batch_of_one_names_its_pod() {
    let mut story = story(6, batches(json!(1)));
    story.user(json!({"template": {"metadata": {"labels": {"broken": "yes"}}}}));
    assert_eq!(creations(&mut story), 1);
    assert_eq!(creations(&mut story), 0);
    let named = format!("and {} is not available yet", story.names()[0]);
    let message = progressing(&story).1;
    assert!(message.ends_with(&named), "{message}");
}

#[test]
fn a_pod_that_is_never_ready_holds_back_the_rest_and_is_named() {
    let mut story = story(6, batches(json!(2)));
    story.user(json!({"template": {"metadata": {"labels": {"broken": "yes"}}}}));
    assert_eq!(creations(&mut story), 2);
    story.wait(600);
    assert_eq!(creations(&mut story), 0);
    let (reason, message) = progressing(&story);
    assert_eq!(reason, "CreatingInBatches");
    let oldest = story.names().into_iter().min().expect("a pod");
    let named = format!("2 of them are not available yet, the oldest of which is {oldest}");
    assert!(message.contains(&named), "{message}");
    assert!(message.contains("2 at a time"), "{message}");

    story.user(batches(json!(3)));
    assert_eq!(creations(&mut story), 1, "a higher limit continues the creation");
    story.user(json!({"template": {"metadata": {"labels": {"broken": null}}}}));
    story.settle();
    assert_eq!(story.columns(), "6 6 6 6 6", "a fixed template continues the creation");
    assert!(!story.status().creating_in_batches);
}

#[test]
fn a_workload_that_already_has_pods_or_a_status_has_no_batches() {
    // The status of the workload was lost, but its pods exist.
    let mut story = story(4, json!({}));
    story.settle();
    story.object.status = None;
    story.user(batches(json!(1)));
    story.user(json!({"replicas": 9}));
    assert_eq!(creations(&mut story), 5);
    assert!(!story.status().creating_in_batches);
    // The pods were lost, but the status exists.
    story.world.pods.clear();
    assert_eq!(creations(&mut story), 9);
}

#[test]
fn an_update_is_not_limited_to_batches() {
    let mut story = story(4, batches(json!(1)));
    story.settle();
    story.user(json!({"updateStrategy": {"maxUnavailable": 4}}));
    story.kubelets_run = false;
    story.image("v2");
    assert_eq!(creations(&mut story), 4);
}

#[test]
fn the_status_records_the_initial_creation_before_the_first_pod_is_created() {
    let mut story = story(4, batches(json!(1)));
    story.reconcile();
    let plan = story.plan();
    let is_creation = |action: &Write| matches!(action.change(), Change::CreatePod(_));
    assert!(plan.writes.iter().any(is_creation) && plan.status_first);
    let status = plan.status.expect("a status");
    assert!(status.creating_in_batches);
    // The operator crashes after that write.
    story.object.status = Some(status);
    assert_eq!(creations(&mut story), 4);
}

#[test]
fn a_parallel_set_creates_the_lowest_ordinals_first_and_an_ordered_one_has_no_batches() {
    let spec =
        |policy: &str| json!({"podManagementPolicy": policy, "scaleStrategy": {"createBatch": 2}});
    let mut story = set(5, spec("Parallel"));
    story.kubelets_run = false;
    assert_eq!(creations(&mut story), 2);
    assert_eq!(progressing(&story).0, "CreatingInBatches");
    let mut names = story.names();
    names.sort();
    assert_eq!(names, ["game-0", "game-1"]);
    story.kubelets_run = true;
    story.settle();
    assert_eq!(story.columns(), "5 5 5 5 5");
    story.kubelets_run = false;
    story.user(json!({"replicas": 9}));
    assert_eq!(creations(&mut story), 4);

    let mut story = set(3, spec("OrderedReady"));
    story.settle();
    assert!(!story.status().creating_in_batches);
    assert_eq!(story.columns(), "3 3 3 3 3");
}

#[test]
fn broken_pods_whose_ordinals_are_reserved_do_not_hold_up_the_batch() {
    let mut story =
        set(3, json!({"podManagementPolicy": "Parallel", "scaleStrategy": {"createBatch": 1}}));
    story.kubelets_run = false;
    assert_eq!(creations(&mut story), 1);
    set_ready(&mut story, "game-0", false);
    story.kubelets_run = true;
    assert_eq!(creations(&mut story), 0);
    story.user(json!({"reserveOrders": [0]}));
    story.settle();
    assert_eq!(shape(&story), "1:v1 2:v1 3:v1");
}
