//! Stories about GameStatefulSets: how they differ from GameDeployments.

use serde_json::{Value, json};

use super::story::{Story, set};
use crate::api::{GameStatefulSet, HookPhase};
use crate::observed::{LostNode, PodPhase};
use crate::write::{Change, Phase, Write};

pub(super) type Set = Story<GameStatefulSet>;

pub(super) fn parallel() -> Value {
    json!({"podManagementPolicy": "Parallel"})
}

/// The pods as `ordinal:image`, in the order of their ordinals.
pub(super) fn shape(story: &Set) -> String {
    let mut pods: Vec<(i64, String)> = story
        .pods()
        .iter()
        .map(|pod| {
            let ordinal = pod.name.trim_start_matches("game-").parse().expect("ordinal");
            (ordinal, pod.containers[0].image.replace("game:", ""))
        })
        .collect();
    pods.sort();
    let pods = pods.iter().map(|(ordinal, image)| format!("{ordinal}:{image}"));
    pods.collect::<Vec<_>>().join(" ")
}

/// Names of the pods that a plan creates and deletes.
pub(super) fn created_and_deleted(story: &Set) -> (Vec<String>, Vec<String>) {
    let (mut created, mut deleted) = (Vec::new(), Vec::new());
    for action in story.plan().writes {
        match action.change() {
            Change::CreatePod(new) => created.push(new.name.clone()),
            Change::DeletePod(deletion) => deleted.push(deletion.pod.name.clone()),
            _ => {}
        }
    }
    created.sort();
    deleted.sort();
    (created, deleted)
}

/// Breaks a pod, or fixes it.
pub(super) fn set_ready(story: &mut Set, name: &str, ready: bool) {
    story.edit_pod(name, |pod| {
        if ready {
            pod.labels.remove("broken");
        } else {
            pod.labels.insert("broken".to_owned(), String::new());
            pod.ready_since = None;
        }
    });
}

pub(super) fn hooked() -> Value {
    json!({"preDeleteUpdateStrategy": {"hook": {"templateName": "test"}}})
}

#[test]
fn pods_are_created_upward_each_after_its_predecessor_is_available() {
    let mut story = set(3, json!({"minReadySeconds": 10}));
    story.reconcile();
    for ordinal in 0..3 {
        assert_eq!(created_and_deleted(&story), (vec![format!("game-{ordinal}")], vec![]));
        story.reconcile();
        assert_eq!(
            created_and_deleted(&story),
            (vec![], vec![]),
            "the next pod waits until this one is available"
        );
        story.wait(10);
    }
    story.settle();
    assert_eq!(shape(&story), "0:v1 1:v1 2:v1");
    assert_eq!(story.columns(), "3 3 3 3 3");
}

#[test]
fn parallel_creates_and_deletes_all_pods_together() {
    let mut story = set(5, parallel());
    story.reconcile();
    assert_eq!(created_and_deleted(&story).0.len(), 5);
    story.settle();
    story.user(json!({"replicas": 1}));
    assert_eq!(created_and_deleted(&story).1, ["game-1", "game-2", "game-3", "game-4"]);
}

#[test]
fn a_pod_has_the_identity_of_its_ordinal() {
    let mut story = set(1, json!({"ordinals": {"start": 7}, "serviceName": "games"}));
    story.settle();
    let pod = story
        .done
        .iter()
        .find_map(|action| match action.change() {
            Change::CreatePod(new) => Some(new.pod.parse()),
            _ => None,
        })
        .expect("a pod");
    assert_eq!(pod["metadata"]["name"], "game-7");
    let labels = &pod["metadata"]["labels"];
    assert_eq!(labels["gamestatefulset.kubernetes.io/pod-name"], "game-7");
    assert_eq!(labels["gamestatefulset.kubernetes.io/pod-ordinal"], "7");
    assert_eq!(labels["apps.kubernetes.io/pod-index"], "7");
    assert_eq!(pod["spec"]["hostname"], "game-7");
    assert_eq!(pod["spec"]["subdomain"], "games");
    story.edit_pod("game-7", |pod| {
        pod.labels.remove("apps.kubernetes.io/pod-index");
    });
    story.settle();
    assert_eq!(story.pods()[0].labels["apps.kubernetes.io/pod-index"], "7");
}

/// Checks that these pods are deleted in this order, each after the previous one is gone.
pub fn assert_deleted_in_turn(story: &mut Set, pods: &[&str]) {
    for deleted in pods {
        assert_eq!(created_and_deleted(story), (vec![], vec![(*deleted).to_owned()]));
        story.settle();
        assert_eq!(
            created_and_deleted(story),
            (vec![], vec![]),
            "the next deletion waits until this pod is gone"
        );
        story.end_terminating();
    }
}

#[test]
fn pods_are_deleted_downward_each_after_its_successor_is_gone() {
    let mut story = set(4, json!({}));
    story.settle();
    story.slow_to_end = true;
    story.user(json!({"replicas": 1}));
    assert_deleted_in_turn(&mut story, &["game-3", "game-2", "game-1"]);
    story.settle();
    assert_eq!(shape(&story), "0:v1");
}

#[test]
fn scaling_halts_at_an_unhealthy_pod_only_when_ordered() {
    for (policy, continues) in [("OrderedReady", false), ("Parallel", true)] {
        let mut story = set(3, json!({"podManagementPolicy": policy}));
        story.settle();
        set_ready(&mut story, "game-1", false);
        story.user(json!({"replicas": 5})).settle();
        assert_eq!(story.pods().len() == 5, continues, "scale-out, {policy}");
        story.user(json!({"replicas": 3})).settle();
        story.user(json!({"replicas": 2})).settle();
        assert_eq!(story.pods().len() == 2, continues, "scale-in, {policy}");
        set_ready(&mut story, "game-1", true);
        story.settle();
        assert_eq!(story.pods().len(), 2);
    }
}

#[test]
fn an_ordinal_is_not_used_again_before_its_pod_is_gone() {
    for policy in ["OrderedReady", "Parallel"] {
        let mut story = set(2, json!({"podManagementPolicy": policy}));
        story.settle();
        story.slow_to_end = true;
        story.image("v2").settle();
        assert!(story.pods().iter().any(|pod| pod.terminating));
        assert_eq!(created_and_deleted(&story), (vec![], vec![]));
        while story.pods().iter().any(|pod| pod.terminating) {
            story.end_terminating().settle();
        }
        assert_eq!(shape(&story), "0:v2 1:v2");
    }
}

#[test]
fn an_ended_orphan_frees_its_ordinal() {
    for policy in ["OrderedReady", "Parallel"] {
        let mut story = set(3, json!({"podManagementPolicy": policy}));
        story.settle();
        let evicted = story.pods()[1].clone();
        story.edit_pod(&evicted.name, |pod| {
            pod.controller = None;
            pod.phase = PodPhase::Failed;
            pod.ready_since = None;
        });
        story.settle();
        assert_eq!(shape(&story), "0:v1 1:v1 2:v1", "{policy}");
        assert!(story.pods().iter().all(|pod| pod.uid != evicted.uid));
    }
}

#[test]
fn a_released_pod_is_not_duplicated_and_is_adopted_when_it_matches_again() {
    let mut story = set(1, json!({}));
    story.settle();
    story.edit_pod("game-0", |pod| {
        pod.labels.remove("app");
    });
    story.settle();
    assert_eq!(story.pods()[0].controller, None, "the pod is released");
    assert_eq!(created_and_deleted(&story), (vec![], vec![]));
    story.edit_pod("game-0", |pod| {
        pod.labels.insert("app".to_owned(), "game".to_owned());
    });
    story.settle();
    assert_eq!(story.pods()[0].controller.as_deref(), Some("uid-game"));
}

#[test]
fn an_orphan_without_an_ordinal_is_left_alone() {
    let mut story = set(1, json!({}));
    story.settle();
    let mut orphan = story.pods()[0].clone();
    orphan.name = "game-01".to_owned();
    orphan.uid = "uid-orphan".to_owned();
    orphan.controller = None;
    story.world.pods.push(orphan.into());
    story.settle();
    assert_eq!(story.pods()[1].controller, None);
}

#[test]
fn a_pod_that_waits_for_its_removal_hook_blocks_no_other_pod() {
    let mut story = set(3, hooked());
    story.settle();
    story.user(json!({"replicas": 2})).settle();
    assert_eq!(story.runs().len(), 1);
    set_ready(&mut story, "game-0", false);
    // The fix for game-0 does not wait for the players of game-2.
    story.image("v2").settle();
    assert_eq!(story.runs().len(), 2);
    story.hooks_end("-0-test", HookPhase::Successful);
    story.settle();
    assert!(shape(&story).starts_with("0:v2"), "{}", shape(&story));
    assert!(shape(&story).ends_with("2:v1"));
}

#[test]
fn with_ordered_ready_the_hooks_of_victims_start_one_after_the_other() {
    let mut story = set(4, hooked());
    story.settle();
    story.user(json!({"replicas": 2})).settle();
    assert_eq!(story.runs().len(), 1);
    assert!(story.runs()[0].contains("-3-test"), "{:?}", story.runs());
    story.hooks_end("", HookPhase::Successful);
    story.settle();
    assert!(story.runs()[0].contains("-2-test"), "{:?}", story.runs());
    story.user(json!({"replicas": 3})).settle();
    assert!(story.runs().is_empty(), "the hook is canceled");
    assert!(story.pods().iter().all(|pod| !pod.marked_deleting));
}

#[test]
fn a_new_pod_does_not_inherit_the_success_of_its_predecessor() {
    let mut story = set(2, hooked());
    story.settle();
    story.image("v2").settle();
    story.hooks_end("-1-test", HookPhase::Successful);
    // Before the success is used, a user deletes the pod, and a new one gets its ordinal.
    story.world.pods.retain(|pod| pod.name != "game-1");
    story.image("v1").settle();
    assert_eq!(shape(&story), "0:v1 1:v1");
    story.image("v2").settle();
    assert_eq!(shape(&story), "0:v1 1:v1");
    assert_eq!(story.runs().len(), 1);
}

#[test]
fn a_pod_on_a_lost_node_is_force_deleted_only_with_the_annotation() {
    for allowed in [false, true] {
        let mut story = set(1, json!({}));
        story.settle();
        story.edit_pod("game-0", |pod| pod.terminating = true);
        let lost_node = LostNode { unreachable: true, ..LostNode::default() };
        story.world.lost_nodes.insert("node".to_owned(), lost_node);
        if allowed {
            let key = crate::api::names::FORCE_DELETE_ON_LOST_NODES;
            story.user(json!({"template": {"metadata": {"annotations": {key: "true"}}}}));
        }
        story.settle();
        let is_forced = |action: &Write| matches!(action.change(), Change::ForceDeletePod(_));
        assert_eq!(story.count(is_forced) > 0, allowed);
        assert_eq!(story.pods()[0].terminating, !allowed);
    }
}

#[test]
fn the_plan_of_a_settled_set_is_empty() {
    let mut story = set(
        3,
        json!({
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {}}],
            "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete", "whenScaled": "Delete"},
        }),
    );
    story.settle();
    let plan = story.plan();
    assert_eq!((plan.writes, plan.status), (vec![], None));
}

#[test]
fn a_new_start_ordinal_moves_the_pods_to_the_new_range() {
    for policy in ["OrderedReady", "Parallel"] {
        let mut story = set(3, json!({"podManagementPolicy": policy}));
        story.settle();
        story.user(json!({"ordinals": {"start": 2}})).settle();
        assert_eq!(shape(&story), "2:v1 3:v1 4:v1", "{policy}");
    }
}

#[test]
fn missing_labels_are_restored_in_the_first_phase() {
    let mut story = set(1, json!({}));
    story.settle();
    story.edit_pod("game-0", |pod| {
        let kept = pod.labels.iter().filter(|(key, _)| !key.contains("pod-"));
        pod.labels = kept.map(|(key, value)| (key.clone(), value.clone())).collect();
    });
    let actions = story.plan().writes;
    let phases: Vec<Phase> = actions.iter().map(Write::phase).collect();
    assert_eq!(phases, [Phase::Before], "{actions:?}");
    story.settle();
    let pods = story.pods();
    assert!(pods[0].labels.keys().any(|key| key.contains("pod-")), "{pods:?}");
}

/// With room for a part of the pods only, there must be no gap below the pods that exist.
#[test]
fn a_parallel_set_creates_its_lowest_ordinals_first() {
    let mut story = set(3, json!({"podManagementPolicy": "Parallel"}));
    story.settle();
    story.user(json!({"replicas": 10}));
    story.quota = Some(5);
    story.world.pods.retain(|pod| pod.name != "game-1");
    for _ in 0..10 {
        story.reconcile();
    }
    assert_eq!(shape(&story), "0:v1 1:v1 2:v1 3:v1 4:v1");
}

/// A step that began with fewer pods updates the highest ordinals, wherever pods are missing.
#[test]
fn new_pods_of_a_held_step_get_the_update_revision_at_the_highest_ordinals() {
    let strategy =
        json!({"maxUnavailable": 4, "canary": {"steps": [{"partition": "50%"}, {"pause": {}}]}});
    let mut story = set(4, json!({"podManagementPolicy": "Parallel", "updateStrategy": strategy}));
    story.settle();
    story.image("v2").settle();
    assert_eq!(shape(&story), "0:v1 1:v1 2:v2 3:v2");
    story.world.pods.retain(|pod| pod.name == "game-0");
    story.user(json!({"replicas": 8})).settle();
    assert_eq!(shape(&story), "0:v1 1:v1 2:v1 3:v1 4:v1 5:v1 6:v2 7:v2");
}
