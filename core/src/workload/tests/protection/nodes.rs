//! Pods that leave their nodes: users move them, and nodes are drained, removed or lost.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{grounds, guarded};
use crate::api::HookPhase;
use crate::guard::Ground;
use crate::observed::{Disruption, LostNode, MoveRequest, PodPhase, Taint};
use crate::workload::Planned;
use crate::workload::tests::story::{Story, set, story};
use crate::write::{Change, Write};

/// The node `goes` is cordoned.
fn going_nodes() -> BTreeMap<String, Arc<[Taint]>> {
    let taint = Taint {
        key: "node.kubernetes.io/unschedulable".to_owned(),
        value: String::new(),
        effect: "NoSchedule".to_owned(),
    };
    BTreeMap::from([("goes".to_owned(), Arc::from([taint]))])
}

/// Without `onNodeGoing: Move`, nobody moves the pods. The workload is complete, and says that the drain waits for them.
#[test]
fn a_drain_that_waits_for_guarded_pods_is_told() {
    let mut story = story(2, guarded());
    story.settle();
    let names = story.names();
    for name in &names {
        story.edit_pod(name, |pod| pod.node = Some("goes".to_owned()));
    }
    story.world.going_nodes = going_nodes();
    story.settle();
    let status = story.status();
    let [cause] = &status.causes[..] else {
        panic!("{:?}", status.causes);
    };
    assert_eq!((&*cause.reason, &*cause.node, cause.pod_count), ("DrainWaits", "goes", 2));
    assert_eq!(story.condition("Ready").expect("a condition").0, "AllPodsAvailable");
    for name in &names {
        story.edit_pod(name, |pod| pod.move_requested = Some(MoveRequest::User));
    }
    story.settle();
    let causes = story.status().causes;
    assert!(causes.iter().all(|it| it.reason != "DrainWaits"), "{causes:?}");
}

/// Moves two pods with `kubectl game move`. The budget allows one at a time, and both moves are canceled after the
/// first pod is replaced. Returns the names of the replaced pods.
fn move_two_of_three<K: Planned + serde::Serialize>(mut story: Story<K>) -> Vec<String> {
    story.settle();
    let mut names = story.names();
    names.sort();
    let uid = |story: &Story<K>, name: &str| {
        let mut pods = story.pods().into_iter();
        pods.find(|pod| pod.name == name).map(|pod| pod.uid.clone())
    };
    let old_uids: Vec<_> = names.iter().map(|name| uid(&story, name)).collect();
    for name in &names[..2] {
        story.edit_pod(name, |pod| pod.move_requested = Some(MoveRequest::User));
    }
    story.settle();
    let shown = story.status().protection.expect("status");
    assert_eq!((shown.moving, shown.waiting.len()), (2, 1));
    assert_eq!(story.condition("Ready").expect("condition").0, "PodsToDelete");
    assert_eq!(story.hooks_end("", HookPhase::Successful), 1);
    story.settle();
    let shown = story.status().protection.expect("status");
    assert_eq!((shown.moving, shown.waiting.len()), (1, 1));
    for pod in story.names() {
        story.edit_pod(&pod, |pod| pod.move_requested = None);
    }
    story.settle();
    let shown = story.status().protection.expect("status");
    assert_eq!((shown.moving, shown.waiting.len()), (0, 0));
    let old_uids = names.iter().zip(old_uids);
    let replaced = old_uids.filter(|(name, old_uid)| uid(&story, name) != *old_uid);
    let replaced: Vec<_> = replaced.map(|(name, _)| name.clone()).collect();
    assert_eq!((replaced.len(), story.pods().len()), (1, 3));
    assert_eq!(grounds(&story), [Ground::Hook]);
    replaced
}

/// The slot of a pod whose hook refuses goes to the next pod, even if that pod is to be updated.
#[test]
fn a_move_whose_hook_refuses_does_not_stop_a_rollout() {
    for guarded_pods in [true, false] {
        let mut spec = guarded();
        spec["updateStrategy"] = json!({"maxUnavailable": 1});
        if !guarded_pods {
            spec["protection"] = json!(null);
        }
        let mut story = story(3, spec);
        story.settle();
        let moved = story.names().remove(0);
        story.edit_pod(&moved, |pod| pod.move_requested = Some(MoveRequest::User));
        story.settle();
        assert_eq!(story.hooks_end("", HookPhase::Failed), 1);
        story.settle();
        story.image("v2").settle();
        while story.hooks_end("", HookPhase::Successful) > 0 {
            story.settle();
        }
        assert_eq!(story.images(), "v1 v2 v2", "{guarded_pods}");
        // The hook runs again when it is due.
        if guarded_pods {
            story.wait(600).settle();
            assert_eq!(story.hooks_end("", HookPhase::Successful), 1);
            story.settle();
            assert!(!story.names().contains(&moved));
        }
    }
}

#[test]
fn moved_pods_are_replaced_as_their_hooks_allow() {
    let mut spec = guarded();
    spec["updateStrategy"] = json!({"type": "InplaceUpdate", "maxUnavailable": 1});
    move_two_of_three(story(3, spec));
    for policy in ["OrderedReady", "Parallel"] {
        let mut spec = guarded();
        spec["podManagementPolicy"] = json!(policy);
        spec["updateStrategy"] = json!({"type": "InplaceUpdate", "maxUnavailable": 1});
        // As in an update, the pod with the highest ordinal is replaced first. The new pod has the same name.
        assert_eq!(move_two_of_three(set(3, spec)), ["game-1"]);
    }
}

/// A pod whose hook failed leaves its slot in the budget to the next pod, so idle pods are moved first.
#[test]
fn idle_pods_are_moved_first() {
    let mut spec = guarded();
    spec["updateStrategy"] = json!({"type": "InplaceUpdate", "maxUnavailable": 1});
    let mut story = story(3, spec);
    story.settle();
    for name in story.names() {
        story.edit_pod(&name, |pod| pod.move_requested = Some(MoveRequest::User));
    }
    story.settle();
    let busy_runs = story.runs();
    assert_eq!(story.hooks_end("", HookPhase::Failed), 1);
    story.settle();
    assert_eq!(story.runs().len(), 2, "the hook of the next pod runs");
    assert!(grounds(&story).is_empty());
    assert_eq!(story.hooks_end("", HookPhase::Successful), 1);
    story.settle();
    assert_eq!(grounds(&story), [Ground::Hook]);
    assert!(story.runs().contains(&busy_runs[0]), "the busy pod is kept");
}

/// With maxUnavailable 0, the replacement of a moved pod is created first.
#[test]
fn a_move_uses_surge_pods() {
    let mut spec = guarded();
    spec["updateStrategy"] = json!({"type": "RollingUpdate", "maxUnavailable": 0, "maxSurge": 1});
    let mut story = story(3, spec);
    story.settle();
    let names = story.names();
    for name in &names[..2] {
        story.edit_pod(name, |pod| pod.move_requested = Some(MoveRequest::User));
    }
    story.settle();
    assert_eq!(story.pods().len(), 4);
    assert_eq!(story.hooks_end("", HookPhase::Successful), 1);
    story.settle();
    assert_eq!((story.pods().len(), grounds(&story).len()), (4, 1));
    assert_eq!(story.hooks_end("", HookPhase::Successful), 1);
    story.settle();
    assert_eq!((story.pods().len(), grounds(&story).len()), (3, 2));
    assert!(!names[..2].iter().any(|name| story.names().contains(name)));
    // Once the move is canceled, the surplus pod is deleted as in any scale-in.
    let name = story.names()[0].clone();
    story.edit_pod(&name, |pod| pod.move_requested = Some(MoveRequest::User));
    story.settle();
    assert_eq!(story.pods().len(), 4);
    story.edit_pod(&name, |pod| pod.move_requested = None);
    story.settle();
    story.hooks_end("", HookPhase::Successful);
    story.settle();
    assert_eq!(story.pods().len(), 3);
}

/// A pause holds back the surge pods of an update, but not those of a move.
#[test]
fn a_move_uses_surge_pods_while_the_workload_is_paused() {
    let mut spec = guarded();
    spec["updateStrategy"] = json!({"maxUnavailable": 0, "maxSurge": 1, "paused": true});
    let mut story = story(3, spec);
    story.settle();
    story.image("v2").settle();
    assert_eq!(story.images(), "v1 v1 v1");
    let name = story.names()[0].clone();
    story.edit_pod(&name, |pod| pod.move_requested = Some(MoveRequest::User));
    story.settle();
    assert_eq!(story.images(), "v1 v1 v1 v1");
    assert_eq!(story.hooks_end("", HookPhase::Successful), 1);
    story.settle();
    assert_eq!(story.images(), "v1 v1 v1");
    assert!(!story.names().contains(&name));
}

/// While a canary step is paused, a moved pod of the stable revision is replaced by another pod of that revision. The
/// first move creates no surge pod, because the surge pod of the step still exists.
#[test]
fn a_move_uses_surge_pods_at_a_canary_step() {
    let mut spec = guarded();
    spec["updateStrategy"] = json!({
        "maxUnavailable": 0, "maxSurge": 1, "canary": {"steps": [{"partition": 2}, {"pause": {}}]},
    });
    let mut story = story(3, spec);
    story.settle();
    story.image("v2").settle();
    assert_eq!(story.images(), "v1 v1 v1 v2");
    for moved in ["first", "second"] {
        let mut pods = story.pods().into_iter();
        let old = pods.find(|pod| pod.containers[0].image == "game:v1");
        let name = old.expect("old pod").name.clone();
        story.edit_pod(&name, |pod| pod.move_requested = Some(MoveRequest::User));
        story.settle();
        assert_eq!(story.images(), "v1 v1 v1 v2", "{moved}");
        assert_eq!(story.hooks_end("", HookPhase::Successful), 1, "{moved}");
        story.settle();
        assert_eq!(story.images(), "v1 v1 v2", "{moved}");
        assert!(!story.names().contains(&name), "{moved}");
    }
}

/// Kubernetes gives up a pod when its toleration of the lost node ends, or at once if the node is out of service. The
/// guard refuses the deletion by Kubernetes, so the operator deletes the pod.
#[test]
fn guarded_pods_are_deleted_when_kubernetes_gives_them_up_with_their_node() {
    let tolerations = |seconds: Value| {
        let mut spec = guarded();
        let toleration = json!({
            "key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute",
            "tolerationSeconds": seconds,
        });
        spec["template"] = json!({"spec": {"tolerations": [toleration]}});
        spec
    };
    let unprotected = json!({"preDeleteUpdateStrategy": {"hook": {"templateName": "test"}}});
    let taint = Some(Disruption::Taint);
    let lost = |unreachable, out_of_service| LostNode {
        unreachable,
        since: unreachable.then_some(Timestamp::UNIX_EPOCH),
        out_of_service,
    };
    for (spec, disruption, node, deleted_after) in [
        (guarded(), taint, lost(true, false), Some(300)),
        (tolerations(json!(20)), taint, lost(true, false), Some(20)),
        (tolerations(Value::Null), taint, lost(true, false), None),
        (tolerations(Value::Null), taint, lost(false, true), Some(0)),
        (guarded(), None, lost(true, true), None),
        (guarded(), taint, lost(false, false), None),
        (guarded(), Some(Disruption::Eviction), lost(true, true), None),
        (unprotected, taint, lost(true, true), None),
    ] {
        let case = format!("{spec} {disruption:?} {node:?}");
        let mut story = story(2, spec);
        story.settle();
        let since = node.since.map(|_| story.world.now);
        let name = story.names()[0].clone();
        story.edit_pod(&name, |pod| {
            (pod.node, pod.disruption) = (Some("lost".to_owned()), disruption);
            pod.ready_since = None;
        });
        story.world.lost_nodes.insert("lost".to_owned(), LostNode { since, ..node });
        story.settle();
        if let Some(seconds) = deleted_after.filter(|seconds| *seconds > 0) {
            assert!(grounds(&story).is_empty(), "{case}");
            story.wait(seconds - 1).settle();
            assert!(grounds(&story).is_empty(), "{case}");
            story.wait(1);
        } else {
            story.wait(i64::from(deleted_after.is_none()) * 1000);
        }
        story.settle();
        let expected: &[Ground] = if deleted_after.is_some() { &[Ground::NodeLost] } else { &[] };
        assert_eq!(grounds(&story), expected, "{case}");
        // The precondition makes the deletion fail if the node has come back and its kubelet has changed the pod.
        let has_precondition = |action: &Write| match action.change() {
            Change::DeletePod(deletion) => deletion.pod.version.is_some(),
            _ => true,
        };
        assert!(story.done.iter().all(has_precondition), "{case}");
        assert_eq!(story.names().contains(&name), deleted_after.is_none(), "{case}");
    }
}

/// The pod garbage collector has detected that the node does not exist.
#[test]
fn guarded_pods_of_deleted_nodes_are_deleted() {
    let mut story = story(2, guarded());
    story.settle();
    let name = story.names()[0].clone();
    story.edit_pod(&name, |pod| {
        (pod.phase, pod.disruption) = (PodPhase::Failed, Some(Disruption::LostNode));
    });
    story.settle();
    assert_eq!(grounds(&story), [Ground::NodeLost]);
    assert!(!story.names().contains(&name));
}

/// Pods on a node that is going to be removed get move requests, which are withdrawn if the node stays. A taint that
/// the template tolerates causes no requests.
#[test]
fn pods_leave_a_node_that_is_going_to_be_removed() {
    let mut spec = guarded();
    spec["protection"]["onNodeGoing"] = json!("Move");
    spec["updateStrategy"] = json!({"type": "InplaceUpdate", "maxUnavailable": 2});
    let mut story = story(3, spec);
    story.settle();
    let names = story.names();
    for name in &names {
        story.edit_pod(name, |pod| pod.node = Some("stays".to_owned()));
    }
    for name in &names[..2] {
        story.edit_pod(name, |pod| pod.node = Some("goes".to_owned()));
    }
    let going = going_nodes();
    let moving = |story: &Story| story.status().protection.expect("status").moving;
    story.world.going_nodes.clone_from(&going);
    story.settle();
    assert_eq!(moving(&story), 2);
    // The node stays after all.
    story.world.going_nodes.clear();
    story.settle();
    assert_eq!(moving(&story), 0);
    let tolerations = json!([{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]);
    let spec_of_pods = json!({"template": {"spec": {"tolerations": tolerations}}});
    story.user(spec_of_pods).settle();
    story.world.going_nodes.clone_from(&going);
    story.settle();
    assert_eq!(moving(&story), 0);
    let spec_of_pods = json!({"template": {"spec": {"tolerations": null}}});
    story.user(spec_of_pods).settle();
    assert_eq!(moving(&story), 2);
    // While a pod cannot be scheduled, no other pod is moved.
    story.edit_pod(&names[2], |pod| pod.node = None);
    assert_eq!(story.hooks_end("", HookPhase::Successful), 2);
    story.settle();
    assert_eq!(grounds(&story), []);
    story.edit_pod(&names[2], |pod| pod.node = Some("stays".to_owned()));
    story.settle();
    story.hooks_end("", HookPhase::Successful);
    story.settle();
    assert_eq!(grounds(&story), [Ground::Hook, Ground::Hook]);
    assert_eq!((moving(&story), story.pods().len()), (0, 3));
}

/// The node stays after all, and the hook allows the deletion before the move request is withdrawn.
#[test]
fn a_pod_is_not_replaced_if_its_node_stays() {
    let mut spec = guarded();
    spec["protection"]["onNodeGoing"] = json!("Move");
    let mut story = story(2, spec);
    story.settle();
    let names = story.names();
    story.edit_pod(&names[0], |pod| pod.node = Some("goes".to_owned()));
    story.world.going_nodes = going_nodes();
    story.settle();
    assert_eq!(story.hooks_end("", HookPhase::Successful), 1);
    story.world.going_nodes.clear();
    story.settle();
    assert_eq!(story.names(), names);
    assert_eq!(grounds(&story), []);
}

/// A move or an update that is also due causes no second deletion.
#[test]
fn a_pod_on_a_lost_node_is_deleted_once() {
    for (is_moved, image, strategy) in [
        (true, "v1", "RollingUpdate"),
        (false, "v2", "RollingUpdate"),
        (false, "v2", "InplaceUpdate"),
    ] {
        let mut spec = guarded();
        spec["updateStrategy"] = json!({"type": strategy, "maxUnavailable": 1});
        let mut story = story(2, spec);
        story.settle();
        let name = story.names()[0].clone();
        story.edit_pod(&name, |pod| {
            (pod.node, pod.disruption) = (Some("lost".to_owned()), Some(Disruption::Taint));
            pod.move_requested = is_moved.then_some(MoveRequest::User);
            pod.ready_since = None;
        });
        let lost = LostNode { out_of_service: true, ..LostNode::default() };
        story.world.lost_nodes.insert("lost".to_owned(), lost);
        story.image(image).settle();
        assert_eq!(grounds(&story), [Ground::NodeLost], "{is_moved} {strategy}");
        assert!(!story.names().contains(&name));
    }
}
