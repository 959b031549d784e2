//! Stories about volume claims.

use std::sync::Arc;

use serde_json::{Value, json};

use super::story::{Story, set};
use crate::api::{GameStatefulSet, HookPhase};
use crate::observed::ClaimOwner;
use crate::write::{Change, Write};

fn volumes(when_deleted: &str, when_scaled: &str) -> Value {
    json!({
        "podManagementPolicy": "Parallel",
        "volumeClaimTemplates": [{
            "metadata": {"name": "data", "labels": {"kind": "world"}},
            "spec": {"accessModes": ["ReadWriteOnce"]},
        }],
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": when_deleted, "whenScaled": when_scaled},
    })
}

fn settled(replicas: i32, when_deleted: &str, when_scaled: &str) -> Story<GameStatefulSet> {
    let mut story = set(replicas, volumes(when_deleted, when_scaled));
    story.settle();
    story
}

#[test]
fn a_claim_is_created_before_its_pod_and_has_the_labels_of_the_selector() {
    let story = settled(1, "Retain", "Retain");
    let mut created = story.done.iter().filter_map(|action| match action.change() {
        Change::CreateClaim(new) => Some((&new.name, new.claim.clone())),
        Change::CreatePod(new) => Some((&new.name, new.pod.parse())),
        _ => None,
    });
    let (name, claim) = created.next().expect("a claim");
    assert_eq!(name, "data-game-0");
    assert_eq!(claim["metadata"]["labels"], json!({"kind": "world", "app": "game"}));
    assert_eq!(claim["spec"]["accessModes"], json!(["ReadWriteOnce"]));
    let (_, pod) = created.next().expect("a pod");
    assert_eq!(
        pod["spec"]["volumes"],
        json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data-game-0"}}])
    );
}

#[test]
fn claims_are_deleted_as_the_policy_specifies() {
    for (when_deleted, when_scaled, claims, after_scale_in) in [
        ("Retain", "Retain", "data-game-0: data-game-1:", "data-game-0: data-game-1:"),
        ("Retain", "Delete", "data-game-0: data-game-1:", "data-game-0:"),
        (
            "Delete",
            "Retain",
            "data-game-0:GameStatefulSet data-game-1:GameStatefulSet",
            "data-game-0:GameStatefulSet data-game-1:GameStatefulSet",
        ),
        (
            "Delete",
            "Delete",
            "data-game-0:GameStatefulSet data-game-1:GameStatefulSet",
            "data-game-0:GameStatefulSet",
        ),
    ] {
        let mut story = settled(2, when_deleted, when_scaled);
        assert_eq!(story.claims(), claims, "{when_deleted} {when_scaled}");
        story.user(json!({"replicas": 1})).settle();
        assert_eq!(story.claims(), after_scale_in, "{when_deleted} {when_scaled}");
        story.user(json!({"replicas": 2})).settle();
        assert_eq!(story.claims(), claims, "{when_deleted} {when_scaled}");
    }
}

#[test]
fn a_change_of_the_policy_takes_effect() {
    let mut story = settled(2, "Delete", "Retain");
    story.user(json!({"replicas": 1})).settle();
    story.user(json!({"persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain"}})).settle();
    assert_eq!(story.claims(), "data-game-0: data-game-1:", "also for pods that no longer exist");
    story.user(json!({"persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete"}})).settle();
    assert_eq!(story.claims(), "data-game-0:GameStatefulSet data-game-1:");
}

#[test]
fn a_claim_is_transferred_only_after_the_hook_and_kept_if_the_scale_in_is_canceled() {
    let mut story = settled(2, "Delete", "Delete");
    story
        .user(json!({"preDeleteUpdateStrategy": {"hook": {"templateName": "test"}}, "replicas": 1}))
        .settle();
    assert_eq!(story.runs().len(), 1);
    assert!(story.claims().ends_with("data-game-1:GameStatefulSet"), "the hook has not passed yet");
    story.hooks_end("", HookPhase::Successful);
    story.reconcile();
    assert!(story.claims().ends_with("data-game-1:Pod"), "{}", story.claims());
    assert_eq!(story.pods().len(), 2, "the pod is deleted only once it owns its claim");
    story.user(json!({"replicas": 2})).settle();
    assert!(story.claims().ends_with("data-game-1:GameStatefulSet"), "{}", story.claims());
    assert_eq!(story.pods().len(), 2);
}

#[test]
fn scaling_back_out_saves_the_claim_of_a_terminating_pod() {
    let mut story = settled(2, "Retain", "Delete");
    story.slow_to_end = true;
    story.user(json!({"replicas": 1})).settle();
    assert!(story.claims().ends_with("data-game-1:Pod"));
    story.user(json!({"replicas": 2})).settle();
    story.end_terminating().settle();
    assert_eq!(story.claims(), "data-game-0: data-game-1:");
    assert_eq!(story.count(|action| matches!(action.change(), Change::CreateClaim(_))), 2);
}

#[test]
fn an_update_never_transfers_a_claim() {
    let mut story = settled(2, "Delete", "Delete");
    story.image("v2").settle();
    let transfers = |action: &Write| matches!(action.change(), Change::OwnClaim(_));
    assert_eq!(story.count(transfers), 0);
    assert_eq!(story.images(), "v2 v2");
}

#[test]
fn a_claim_that_cannot_be_used_is_waited_for_and_reported() {
    let mut story = settled(2, "Retain", "Retain");
    story.user(json!({"replicas": 1})).settle();
    let claim = Arc::make_mut(story.world.claims.get_mut("data-game-1").expect("claim"));
    claim.terminating = true;
    story.user(json!({"replicas": 2})).settle();
    assert_eq!(story.pods().len(), 1);
    let (reason, message) = story.condition("FailedScale").expect("condition");
    assert_eq!(reason, "ClaimTerminating");
    assert!(message.contains("data-game-1"), "{message}");

    let claim = Arc::make_mut(story.world.claims.get_mut("data-game-1").expect("claim"));
    claim.terminating = false;
    claim.owners = vec![ClaimOwner {
        kind: "Database".to_owned(),
        name: "scores".to_owned(),
        uid: "uid-scores".to_owned(),
        controller: true,
    }];
    story.settle();
    let (reason, message) = story.condition("FailedScale").expect("condition");
    assert_eq!(reason, "ClaimNotOurs");
    assert!(message.contains("Database scores"), "{message}");

    story.world.claims.remove("data-game-1");
    story.settle();
    assert_eq!(story.pods().len(), 2);
    assert_eq!(story.condition("FailedScale"), None);
}

#[test]
fn a_claim_that_still_belongs_to_an_earlier_pod_is_waited_for() {
    let mut story = settled(1, "Retain", "Delete");
    story.user(json!({"replicas": 0})).settle();
    story.user(json!({"replicas": 1})).settle();
    // The garbage collector is late: the claim still exists, owned by a pod that no longer exists.
    story.world.pods.clear();
    let claim = Arc::make_mut(story.world.claims.get_mut("data-game-0").expect("claim"));
    claim.owners = vec![ClaimOwner {
        kind: "Pod".to_owned(),
        name: "game-0".to_owned(),
        uid: "uid-earlier".to_owned(),
        controller: true,
    }];
    story.settle();
    assert!(story.pods().is_empty());
    assert_eq!(story.condition("FailedScale").expect("condition").0, "ClaimTerminating");
    story.world.claims.clear();
    story.settle();
    assert_eq!(story.claims(), "data-game-0:");
    assert_eq!(story.pods().len(), 1);
}

#[test]
fn a_missing_claim_of_a_pod_that_never_started_is_recreated() {
    let mut story = settled(1, "Retain", "Retain");
    story.kubelets_run = false;
    story.edit_pod("game-0", |pod| {
        pod.phase = crate::observed::PodPhase::Pending;
        pod.node = None;
        pod.ready_since = None;
    });
    story.world.claims.clear();
    story.settle();
    assert_eq!(story.claims(), "data-game-0:");
}
