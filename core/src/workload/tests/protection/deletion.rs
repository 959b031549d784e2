//! The deletion of a guarded workload: it stays until its last match is over.

use serde_json::json;

use super::{delete_workload, grounds, guarded, has_finalizer, labeled};
use crate::api::HookPhase;
use crate::api::names::{GUARDED_LABEL, ORPHAN_FINALIZER};
use crate::guard::Ground;
use crate::observed::{Disruption, Pod, PodPhase};
use crate::workload::tests::story::{Story, set, story};
use crate::workload::{Ending, GuardedPlayers, Planned, ended_in_spite_of_the_guard};

/// Deletes the workload: each pod is deleted when its hook allows it, then the budget, then the workload.
fn assert_deleted_after_the_last_match<K: Planned + serde::Serialize>(
    mut story: Story<K>,
    finalizers: &[&str],
) {
    story.settle();
    delete_workload(&mut story, finalizers);
    // `kubectl delete -f FOLDER` deletes the HookTemplate, too.
    story.world.templates.clear();
    story.settle();
    assert_eq!((story.pods().len(), story.runs().len()), (2, 2));
    let status = story.status();
    assert_eq!((status.active_replicas, status.replicas), (0, 2));
    let block_owner_deletion = story.world.runs.iter().map(|run| {
        let owners = run.metadata.owner_references.as_ref().expect("owner");
        owners[0].block_owner_deletion
    });
    assert!(block_owner_deletion.into_iter().all(|it| it == Some(false)));
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
        assert_deleted_after_the_last_match(story(2, guarded()), finalizers);
        assert_deleted_after_the_last_match(set(2, guarded()), finalizers);
    }
}

#[test]
fn orphaned_pods_lose_their_label_and_no_hook_runs() {
    let mut story = story(2, guarded());
    story.settle();
    delete_workload(&mut story, &[ORPHAN_FINALIZER]);
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
    delete_workload(&mut story, &[]);
    story.settle();
    story.hooks_end("", HookPhase::Successful);
    let plan = story.plan();
    let names = story.names();
    story.edit_pod(&names[0], |pod| pod.controller = None);
    story.edit_pod(&names[1], |pod| pod.controller = None);
    for action in plan.writes {
        story.carry_out(action);
    }
    assert_eq!(story.pods().len(), 2);
    story.settle();
    assert_eq!((story.pods().len(), labeled(&story)), (2, 0));
    assert!(!has_finalizer(&story));
}

/// Matches that were ended without the hook's permission are counted; one that ends on its own is not.
#[test]
fn the_last_state_of_a_guarded_pod_shows_what_ended_its_match() {
    fn stop(pod: &mut Pod) {
        let statuses = pod.containers.iter_mut();
        for status in statuses.filter_map(|it| it.status.as_mut()) {
            status.running = false;
        }
        pod.phase = PodPhase::Failed;
    }
    let mut story = story(4, guarded());
    story.settle();
    let players = GuardedPlayers::of(&story.object, &story.world);
    assert_eq!(players.ended(&story.object, &story.world), []);
    let names = story.names();
    story.edit_pod(&names[0], |pod| {
        pod.terminating = true;
        pod.disruption = Some(Disruption::Eviction);
    });
    story.edit_pod(&names[1], |pod| {
        stop(pod);
        pod.disruption = Some(Disruption::Kubelet);
    });
    // The game ended on its own.
    story.edit_pod(&names[2], stop);
    story.world.pods.retain(|pod| pod.name != names[3]);
    let ended = players.ended(&story.object, &story.world);
    let mut by: Vec<Ending> = ended.iter().map(|it| it.by).collect();
    by.sort();
    let expected = [None, Some(Disruption::Eviction), Some(Disruption::Kubelet)];
    assert_eq!(by, expected.map(Ending::Unreleased));
    let event = ended_in_spite_of_the_guard(&ended).expect("an event");
    let words = ", without its hook (2 other matches too)";
    assert!(event.warning && event.message.ends_with(words), "{event:?}");
}

/// A user who releases a pod has ended its match, whichever client deletes the pod. The release is observed before the
/// deletion, or only together with it.
#[test]
fn a_released_pod_counts_as_ended_by_its_release() {
    fn release(pod: &mut Pod) {
        pod.labels.remove(GUARDED_LABEL);
        pod.released = true;
    }
    let mut story = story(3, guarded());
    story.settle();
    let names = story.names();
    story.edit_pod(&names[0], release);
    let players = GuardedPlayers::of(&story.object, &story.world);
    assert_eq!(players.ended(&story.object, &story.world), []);
    story.world.pods.retain(|pod| pod.name != names[0]);
    story.edit_pod(&names[1], |pod| {
        release(pod);
        pod.terminating = true;
        pod.disruption = Some(Disruption::Eviction);
    });
    // A released pod that stays.
    story.edit_pod(&names[2], release);
    let ended = players.ended(&story.object, &story.world);
    assert!(ended.len() == 2 && ended.iter().all(|it| it.by == Ending::Released), "{ended:?}");
    assert_eq!(ended_in_spite_of_the_guard(&ended), None, "a user wanted it");
    let remaining_players = GuardedPlayers::of(&story.object, &story.world);
    assert_eq!(remaining_players.ended(&story.object, &story.world), []);
}

#[test]
fn a_workload_that_is_not_guarded_is_left_to_the_garbage_collector() {
    let hook = json!({"preDeleteUpdateStrategy": {"hook": {"templateName": "test"}}});
    let mut story = story(2, hook);
    story.settle();
    delete_workload(&mut story, &[]);
    assert!(!story.reconcile());
}
