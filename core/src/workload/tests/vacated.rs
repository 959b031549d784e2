//! When pods leave a node that is going to be removed, their names stay free for ten seconds, so that a drain of the
//! node can notice the deletions.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::story::{Story, set};
use crate::api::{GameStatefulSet, HookPhase};
use crate::observed::{MoveRequest, Taint};
use crate::write::Change;

/// A GameStatefulSet whose pods are guarded and are all on one node.
fn on_one_node(replicas: i32, spec: Value) -> Story<GameStatefulSet> {
    let mut full_spec = json!({
        "podManagementPolicy": "Parallel",
        "preDeleteUpdateStrategy": {"hook": {"templateName": "test"}},
        "protection": {"pods": "Guarded", "onNodeGoing": "Move"},
        "updateStrategy": {"type": "RollingUpdate", "maxUnavailable": 2},
    });
    super::story::merge(&mut full_spec, spec);
    let mut story = set(replicas, full_spec);
    story.settle();
    for name in story.names() {
        story.edit_pod(&name, |pod| pod.node = Some("drained".to_owned()));
    }
    story
}

fn cordon(story: &mut Story<GameStatefulSet>) {
    let taint = Taint {
        key: "node.kubernetes.io/unschedulable".to_owned(),
        value: String::new(),
        effect: "NoSchedule".to_owned(),
    };
    story.world.going_nodes = BTreeMap::from([("drained".to_owned(), Arc::from([taint]))]);
}

/// Lets all hooks succeed.
fn allow(story: &mut Story<GameStatefulSet>) {
    story.settle();
    story.hooks_end("", HookPhase::Successful);
    story.settle();
}

/// The number of pods on other nodes.
fn count_moved(story: &Story<GameStatefulSet>) -> usize {
    let pods = story.pods().into_iter();
    pods.filter(|pod| pod.node.as_deref() != Some("drained")).count()
}

fn progressing(story: &Story<GameStatefulSet>) -> (String, String) {
    story.condition("Progressing").expect("condition")
}

#[test]
fn names_of_pods_that_left_their_node_stay_free_for_ten_seconds() {
    let mut story = on_one_node(2, json!({}));
    cordon(&mut story);
    allow(&mut story);
    assert_eq!(story.names(), Vec::<String>::new());
    let vacated = story.status().protection.expect("status").vacated;
    let names: Vec<_> = vacated.iter().map(|it| it.pod_name.as_str()).collect();
    assert_eq!(names, ["game-0", "game-1"]);
    let (reason, message) = progressing(&story);
    assert_eq!(reason, "NodeDraining");
    assert_eq!(
        message,
        "pod game-0 was deleted because its node is going to be removed, and is created again at \
         2026-01-01T00:00:10Z, so that a drain of the node can notice the deletion"
    );
    let wake = story.plan().wake.expect("a time");
    assert_eq!(wake.to_string(), "2026-01-01T00:00:10Z");
    story.wait(9).settle();
    assert_eq!(story.names(), Vec::<String>::new());
    story.wait(1).settle();
    assert_eq!(story.names().len(), 2);
    assert_eq!(story.status().protection.expect("status").vacated, []);
    assert_eq!(progressing(&story).0, "Complete");
}

/// The record is in the status, which is written first, so a new leader keeps the names free as well.
#[test]
fn names_are_recorded_before_their_pods_are_deleted() {
    let mut story = on_one_node(1, json!({}));
    cordon(&mut story);
    story.settle();
    story.hooks_end("", HookPhase::Successful);
    let plan = story.plan();
    let deletes = plan.writes.iter().any(|it| matches!(it.change(), Change::DeletePod(_)));
    assert!(deletes && plan.status_first, "{plan:?}");
}

#[test]
fn pods_that_leave_other_nodes_are_created_again_immediately() {
    // A user moves a pod away from a node that is not going to be removed.
    let mut story = on_one_node(1, json!({}));
    story.edit_pod("game-0", |pod| pod.move_requested = Some(MoveRequest::User));
    allow(&mut story);
    assert_eq!(story.names(), ["game-0"]);
    assert_eq!(count_moved(&story), 1);
    // The node's taint is tolerated.
    let tolerations = json!([{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]);
    let mut story = on_one_node(1, json!({"template": {"spec": {"tolerations": tolerations}}}));
    cordon(&mut story);
    story.edit_pod("game-0", |pod| pod.move_requested = Some(MoveRequest::User));
    allow(&mut story);
    assert_eq!(count_moved(&story), 1);
    // A drain evicts unguarded pods itself.
    let mut story = on_one_node(1, json!({"protection": {"pods": "None"}}));
    cordon(&mut story);
    allow(&mut story);
    assert_eq!(count_moved(&story), 1);
}

/// A drain looks the pod up by its name, whatever the reason for its deletion.
#[test]
fn an_update_on_a_draining_node_keeps_names_free_too() {
    let mut story = on_one_node(1, json!({"protection": {"onNodeGoing": "Wait"}}));
    cordon(&mut story);
    story.image("v2");
    allow(&mut story);
    assert_eq!(story.names(), Vec::<String>::new());
    story.wait(10).settle();
    assert_eq!(story.names(), ["game-0"]);
}

#[test]
fn with_ordered_ready_all_pods_move_to_other_nodes() {
    let mut story = on_one_node(2, json!({"podManagementPolicy": "OrderedReady"}));
    cordon(&mut story);
    allow(&mut story);
    story.wait(10);
    allow(&mut story);
    story.wait(10).settle();
    assert_eq!(story.names(), ["game-0", "game-1"]);
    assert_eq!(count_moved(&story), 2);
}
