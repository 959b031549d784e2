//! The wait of a guarded pod, its mark and its time are three things: other clients may change the annotations of a pod
//! at any time, and neither brings the deadline forward nor puts it off.

use crate::api::names;
use jiff::SignedDuration;
use serde_json::json;

use super::{grounds, with_deadline};
use crate::api::HookPhase;
use crate::guard::Ground;
use crate::observed::Pod;
use crate::workload::tests::story::{Story, set, story};
use crate::write::Write;

/// Two guarded pods with a deadline of an hour, one of which waits for its deletion. Returns the name of that pod.
fn one_waits() -> (Story, String) {
    let mut story = story(2, with_deadline(3600));
    story.settle();
    story.user(json!({"replicas": 1})).settle();
    let waiting = story.pods().into_iter().find(|pod| pod.marked_deleting);
    let name = waiting.expect("a pod waits").name.clone();
    (story, name)
}

fn pod<'s>(story: &'s Story, name: &str) -> &'s Pod {
    let mut pods = story.pods().into_iter();
    pods.find(|pod| pod.name == name).expect("a pod")
}

/// Since when the only waiting pod waits, in seconds before now, as the status shows it.
fn waited(story: &Story) -> i64 {
    let waiting = story.status().protection.expect("status").waiting;
    assert_eq!(waiting.len(), 1);
    let since = waiting[0].since.0;
    assert_eq!(pod(story, &waiting[0].pod_name).waiting_since, Some(since));
    story.world.now.duration_since(since).as_secs()
}

/// Takes a pod away from its workload and gives it back after two hours. Its annotations are those of its last wait.
fn leave_and_return(story: &mut Story, name: &str) {
    let before = pod(story, name).clone();
    story.wait(600);
    story.edit_pod(name, |pod| {
        pod.labels.remove("app");
    });
    story.settle();
    assert_eq!(pod(story, name).controller, None);
    story.wait(6600);
    story.edit_pod(name, |pod| {
        *pod = Pod { controller: None, resource_version: pod.resource_version, ..before.clone() };
    });
}

#[test]
fn the_time_before_a_release_does_not_count_for_the_deadline() {
    let (mut story, name) = one_waits();
    leave_and_return(&mut story, &name);
    story.settle();
    assert_eq!(grounds(&story), []);
    assert_eq!(waited(&story), 0);
    story.wait(3599).settle();
    assert_eq!(grounds(&story), []);
    story.wait(1).settle();
    assert_eq!(grounds(&story), [Ground::Deadline]);
}

#[test]
fn a_pod_that_returns_is_not_chosen_for_what_it_waited_for_earlier() {
    let (mut story, name) = one_waits();
    leave_and_return(&mut story, &name);
    story.user(json!({"replicas": 2})).settle();
    let pod = pod(&story, &name);
    assert_eq!((pod.marked_deleting, pod.waiting_since), (false, None));
}

/// `--cascade=orphan` and an apply, or a restore from a backup: the status is lost, and the pods are adopted.
#[test]
fn a_wait_ends_with_its_workload() {
    for new_pods in [false, true] {
        let (mut story, name) = one_waits();
        story.wait(7200);
        let now = story.world.now;
        story.object.status = None;
        story.object.metadata.uid = Some("uid-game-2".to_owned());
        story.world.runs.clear();
        for name in story.names() {
            story.edit_pod(&name, |pod| {
                // The first plan adopts no pod whose owner the cache shows.
                pod.controller = Some("uid-game-2".to_owned());
                pod.created = if new_pods { now } else { pod.created };
            });
        }
        story.settle();
        assert_eq!(grounds(&story), []);
        assert_eq!(waited(&story), 0);
        assert!(pod(&story, &name).marked_deleting);
    }
}

/// A pod may have the name of an earlier one that waited.
#[test]
fn a_wait_ends_with_its_pod() {
    let mut story = set(2, with_deadline(3600));
    story.settle();
    story.user(json!({"replicas": 1})).settle();
    let waiting = &story.status().protection.expect("status").waiting;
    assert_eq!(waiting[0].pod_name, "game-1");
    story.wait(7200);
    let now = story.world.now;
    story.edit_pod("game-1", |pod| {
        pod.uid = "uid-another".to_owned();
        pod.created = now;
    });
    story.settle();
    assert_eq!(grounds(&story), []);
    let waiting = &story.status().protection.expect("status").waiting;
    assert_eq!(waiting[0].since.0, now);
}

#[test]
fn no_annotation_brings_the_deadline_forward() {
    let (mut story, name) = one_waits();
    let since = story.world.now;
    for (marked, hours) in [(true, 24), (false, 24), (true, -24), (false, -24)] {
        story.wait(600);
        let at = story.world.now - SignedDuration::from_hours(hours);
        story.edit_pod(&name, |pod| {
            (pod.marked_deleting, pod.waiting_since) = (marked, Some(at));
        });
        story.settle();
        assert_eq!(grounds(&story), []);
        let pod = pod(&story, &name);
        assert_eq!((pod.marked_deleting, pod.waiting_since), (true, Some(since)));
    }
    story.wait(1200).settle();
    assert_eq!(grounds(&story), [Ground::Deadline]);
}

/// A PreDelete hook may write `game-pod-deleting: "false"` each time it runs.
#[test]
fn no_annotation_puts_the_deadline_off() {
    let (mut story, name) = one_waits();
    let edits: [fn(&mut Pod); 4] = [
        |pod| pod.marked_deleting = false,
        |pod| pod.waiting_since = None,
        |pod| (pod.marked_deleting, pod.waiting_since) = (false, None),
        |pod| pod.waiting_since = Some(jiff::Timestamp::UNIX_EPOCH),
    ];
    for edit in edits {
        story.wait(600);
        story.edit_pod(&name, edit);
        story.hooks_end("", HookPhase::Failed);
        story.settle();
        assert_eq!(waited(&story) % 600, 0);
    }
    assert_eq!(waited(&story), 2400);
    story.wait(1200).settle();
    assert_eq!(grounds(&story), [Ground::Deadline]);
}

#[test]
fn the_annotations_of_a_pod_that_does_not_wait_are_removed() {
    let mut story = story(2, with_deadline(3600));
    story.settle();
    let name = story.names()[0].clone();
    for marked in [true, false] {
        let now = story.world.now;
        story.edit_pod(&name, |pod| {
            (pod.marked_deleting, pod.waiting_since) = (marked, Some(now));
        });
        story.settle();
        let pod = pod(&story, &name);
        assert_eq!((pod.marked_deleting, pod.waiting_since), (false, None));
    }
    assert_eq!(grounds(&story), []);
}

/// The time of an update in place does not count, no matter which client records it.
#[test]
fn a_pod_that_waits_for_its_update_keeps_no_time() {
    let mut spec = with_deadline(3600);
    spec["updateStrategy"] = json!({"type": "InplaceUpdate", "maxUnavailable": 1});
    let mut story = story(1, spec);
    story.settle();
    story.image("v2").settle();
    let name = story.names()[0].clone();
    let now = story.world.now;
    story.wait(7200);
    story.edit_pod(&name, |pod| pod.waiting_since = Some(now));
    story.user(json!({"replicas": 0})).settle();
    assert_eq!(grounds(&story), []);
    assert_eq!(waited(&story), 0);
}

#[test]
fn a_canceled_wait_does_not_count_for_the_next_one() {
    let (mut story, name) = one_waits();
    let at = story.world.now;
    story.wait(7200).user(json!({"replicas": 2}));
    // The pod keeps its annotations, because another client writes them again.
    while story.reconcile() {
        story.edit_pod(&name, |pod| {
            (pod.marked_deleting, pod.waiting_since) = (true, Some(at));
        });
        let shows_none = story.status().protection.is_some_and(|it| it.waiting.is_empty());
        if story.runs().is_empty() && shows_none {
            break;
        }
    }
    story.user(json!({"replicas": 1})).settle();
    assert_eq!(grounds(&story), []);
    assert_eq!(waited(&story), 0);
}

#[test]
fn a_clock_that_was_ahead_does_not_put_the_deadline_off() {
    let mut story = story(2, with_deadline(3600));
    story.settle().wait(86_400);
    story.user(json!({"replicas": 1})).settle();
    story.wait(-86_400).settle();
    assert_eq!(waited(&story), 0);
    story.wait(3600).settle();
    assert_eq!(grounds(&story), [Ground::Deadline]);
}

/// A leader whose clock is behind must not write a time again and again, and must not delete the pod early.
#[test]
fn a_clock_that_is_behind_does_not_restart_the_wait() {
    let mut story = story(2, with_deadline(3600));
    story.settle().wait(-60);
    story.user(json!({"replicas": 1})).settle();
    story.wait(10).settle();
    let waiting = &story.status().protection.expect("status").waiting;
    assert_eq!(waiting[0].since.0, story.pods()[0].created);
    story.wait(3649).settle();
    assert_eq!(grounds(&story), []);
    story.wait(1).settle();
    assert_eq!(grounds(&story), [Ground::Deadline]);
}

/// The status lists a hundred pods. For the others their annotations count, but for no more than the last one listed.
#[test]
fn pods_beyond_the_list_keep_their_deadline_and_bring_none_forward() {
    let mut story = story(150, with_deadline(3600));
    story.settle();
    story.user(json!({"replicas": 0})).settle();
    let listed = story.status().protection.expect("status").waiting;
    assert_eq!(listed.len(), 100);
    let is_listed = |name: &str| listed.iter().any(|it| it.pod_name == name);
    let unlisted = story.names().into_iter().find(|name| !is_listed(name));
    let unlisted = unlisted.expect("a pod that is not listed");
    story.wait(1800);
    let early = story.world.now - SignedDuration::from_hours(24);
    story.edit_pod(&unlisted, |pod| pod.waiting_since = Some(early));
    story.settle();
    assert_eq!(grounds(&story), []);
    story.wait(1799).settle();
    assert_eq!(grounds(&story), []);
    story.wait(1).settle();
    assert_eq!(grounds(&story), [Ground::Deadline; 150]);
}

#[test]
fn a_wait_is_recorded_before_its_pod_is_marked() {
    let mut story = story(2, with_deadline(3600));
    story.settle();
    story.user(json!({"replicas": 1}));
    let plan = story.plan();
    let is_mark = |it: &Write| it.change().annotation(names::DELETING_ANNOTATION).is_some();
    assert!(plan.writes.iter().any(is_mark));
    assert!(plan.status_first);
    let status = plan.status.expect("a status");
    assert_eq!(status.protection.expect("protection").waiting.len(), 1);
}
