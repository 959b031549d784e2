//! Invariant 11: no client ends a container of a guarded pod unless the pod's hook is Successful for that action, the
//! pod's deadline has passed, its node is lost, or a user has released the pod.
//!
//! Unlike the other rules, this one applies to all users except kubelets and the scheduler. The guard does not stop
//! these: docs/guard.md lists what cannot be guarded.

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::start::{Act, Start, name};
use super::{Found, wrong_under_all};
use crate::names;
use crate::object::{
    annotation, condition, controller, images, is_restarted_by_resize, is_terminating, is_true,
    label, phase, pod_hook, text, time, time_of,
};
use crate::replay::history::{Resource, Write};
use crate::replay::workload::Version;
use crate::replay::world::{LAG, World};

/// The rule for clients other than the operator.
pub(crate) fn guard(world: &World, write: &Write) -> Option<Found> {
    let pod = world.pods.get(&write.name)?;
    let exempt = ["system:node:", "system:kube-scheduler"];
    let is_exempt = exempt.iter().any(|user| write.user.starts_with(user));
    if write.resource != Resource::Pod || is_exempt || !is_guarded(&pod.object) || !pod.is_running()
    {
        return None;
    }
    let verb = verb_of_end(&pod.object, write)?;
    // The API server evicts Pending pods regardless of budgets. docs/guard.md mentions this.
    if verb == "evicts" && phase(&pod.object) == "Pending" {
        return None;
    }
    let (_, workload) = world.workload_of(&pod.object)?;
    let why = wrong_under_all(workload.seen_at(write.received), |version| {
        is_true(&version.object, "Guarded").then(|| format!("{} {verb} a guarded pod", write.user))
    });
    Some(("guard", why?))
}

/// The rule for the operator, in the case that the rule about hooks does not cover: the hook was removed from the
/// workload. The pod is then kept.
pub(crate) fn guard_without_hook(world: &World, write: &Write) -> Option<Found> {
    let start = Start::of_any(world, write).filter(|start| start.act == Act::Delete)?;
    if !is_guarded(&start.pod.object) || start.is_on_idle_pod(write) {
        return None;
    }
    let why = wrong_under_all(start.versions, |version| {
        let has_hook = pod_hook(&version.object, "preDelete").is_some();
        let is_wrong = protects(version) && !has_hook && !needs_no_hook(&start, version, write);
        is_wrong.then(|| "deletes a guarded pod whose hook was removed".to_owned())
    });
    Some(("guard", why?))
}

/// Whether a write to a pod needs no hook. This is so if a user has released the pod or, for a deletion, if the pod's
/// deadline has passed or its node is lost. Only workloads that guard their pods have these exceptions.
pub(crate) fn needs_no_hook(start: &Start, version: &Version, write: &Write) -> bool {
    let pod = &start.pod.object;
    if !protects(version) {
        return false;
    }
    if annotation(pod, names::RELEASED).is_some()
        || (start.act == Act::Delete && is_on_lost_node(pod))
    {
        return true;
    }
    let seconds =
        version.object.pointer("/spec/protection/deadlineSeconds").and_then(Value::as_i64);
    let since = waiting_since(version, pod);
    match (start.act, seconds, since) {
        (Act::Delete, Some(seconds), Some(since)) => {
            since + SignedDuration::from_secs(seconds) <= write.received + LAG
        }
        _ => false,
    }
}

/// Since when a pod waits for its deletion: as the workload's status records it or, if the status lists as many pods as
/// it may, as the pod shows it.
fn waiting_since(version: &Version, pod: &Value) -> Option<Timestamp> {
    const MAX_LISTED: usize = 100;
    let waiting = version.object.pointer("/status/protection/waiting");
    let waiting = waiting.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let listed = waiting.iter().find(|it| text(it, "/podName") == name(pod));
    match listed {
        Some(listed) => time(listed, "/since"),
        None if waiting.len() >= MAX_LISTED => {
            annotation(pod, names::WAITING_SINCE).and_then(time_of)
        }
        None => None,
    }
}

/// Whether Kubernetes tried to delete a pod because its node is lost, or has a taint. The log of a namespace does not
/// show nodes, so a node that is not lost but has a user's taint counts as lost.
pub(crate) fn is_on_lost_node(pod: &Value) -> bool {
    let target = condition(pod, "DisruptionTarget").filter(|it| text(it, "/status") == "True");
    let reason = target.map_or("", |it| text(it, "/reason"));
    ["DeletionByTaintManager", "DeletionByPodGC"].contains(&reason)
}

/// Whether the pods of a workload are to be guarded.
pub(crate) fn protects(version: &Version) -> bool {
    text(&version.object, "/spec/protection/pods") == "Guarded"
}

fn is_guarded(pod: &Value) -> bool {
    has_guard_label(pod) && !is_terminating(pod)
}

/// Whether a pod has the label of guarded pods, with the uid of the pod's own workload as its value.
pub(crate) fn has_guard_label(pod: &Value) -> bool {
    let guarded = label(pod, names::GUARDED);
    guarded.is_some() && guarded == controller(pod)
}

/// What a write that ends containers does to the pod, as a verb such as "evicts". None if it ends no container.
fn verb_of_end(before: &Value, write: &Write) -> Option<&'static str> {
    let Some(after) = &write.after else {
        return Some("deletes");
    };
    let deadline = |pod: &Value| pod.pointer("/spec/activeDeadlineSeconds").cloned();
    if is_terminating(after) {
        return Some(match write.subresource.as_str() {
            "eviction" => "evicts",
            _ => "deletes",
        });
    }
    let is_changed = images(before) != images(after)
        || deadline(before) != deadline(after)
        || is_restarted_by_resize(before, after);
    is_changed.then_some("changes")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::names;
    use crate::scenario::Scenario;

    fn guarded(protection: Value) -> Scenario {
        let mut scenario = Scenario::with(json!({
            "replicas": 3,
            "preDeleteUpdateStrategy": {"hook": {"templateName": "test"}},
            "protection": protection,
        }));
        scenario.status(json!({"conditions": [{"type": "Guarded", "status": "True"}]}));
        for pod in ["a", "b", "c"] {
            scenario.label(pod, names::GUARDED, "game");
        }
        scenario.wait(5);
        scenario
    }

    fn without_deadline() -> Scenario {
        guarded(json!({"pods": "Guarded"}))
    }

    #[test]
    fn a_deletion_by_another_client_is_a_violation() {
        let mut scenario = without_deadline();
        scenario.delete_by("user", "a");
        assert_eq!(scenario.broken(), ["guard"]);
        for allowed in ["system:node:n1", "system:kube-scheduler"] {
            let mut scenario = without_deadline();
            scenario.delete_by(allowed, "a");
            assert_eq!(scenario.verdict(), []);
        }
    }

    #[test]
    fn a_resize_that_restarts_a_container_is_a_violation() {
        for (resource, broken) in [("cpu", vec![]), ("memory", vec!["guard"])] {
            let mut scenario = without_deadline();
            scenario.resize("a", resource, "1");
            assert_eq!(scenario.broken(), broken, "{resource}");
        }
        let mut scenario = without_deadline();
        scenario.report_phase("a", "Running", false);
        scenario.resize("a", "memory", "1");
        assert_eq!(scenario.verdict(), [], "no container runs");
    }

    #[test]
    fn a_pod_without_the_guard_label_or_without_a_running_container_may_be_deleted() {
        let mut scenario = without_deadline();
        scenario.label("a", names::GUARDED, "another");
        scenario.delete_by("user", "a");
        scenario.report_phase("b", "Failed", false);
        scenario.delete_by("user", "b");
        assert_eq!(scenario.verdict(), []);
    }

    #[test]
    fn deletions_are_allowed_while_the_guard_is_not_in_force() {
        let mut scenario = without_deadline();
        scenario.status(json!({"conditions": [{"type": "Guarded", "status": "False"}]}));
        scenario.wait(5);
        scenario.delete_by("user", "a");
        assert_eq!(scenario.verdict(), []);
    }

    #[test]
    fn the_operator_deletes_without_a_hook_only_after_the_deadline() {
        for (since, broken) in
            [("2026-01-01T00:00:00Z", vec![]), ("2027-01-01T00:00:00Z", vec!["hooks"])]
        {
            let mut scenario = guarded(json!({"pods": "Guarded", "deadlineSeconds": 1}));
            scenario.spec("user", json!({"replicas": 2}));
            // The annotation of the pod alone shows nothing.
            scenario.annotate("a", names::WAITING_SINCE, "2026-01-01T00:00:00Z");
            let waiting = json!([{"podName": "a", "since": since}]);
            scenario.status(json!({"protection": {"waiting": waiting}}));
            scenario.wait(5);
            scenario.delete("a");
            assert_eq!(scenario.broken(), broken, "{since}");
        }
    }

    #[test]
    fn a_released_pod_needs_no_hook() {
        let mut scenario = without_deadline();
        scenario.spec("user", json!({"replicas": 2}));
        scenario.annotate("a", names::RELEASED, "now");
        scenario.wait(5);
        scenario.delete("a");
        assert_eq!(scenario.verdict(), []);
    }

    #[test]
    fn a_pod_on_a_lost_node_needs_no_hook() {
        for (reason, broken) in [
            ("DeletionByPodGC", vec![]),
            ("DeletionByTaintManager", vec![]),
            ("EvictionByEvictionAPI", vec!["hooks"]),
        ] {
            let mut scenario = without_deadline();
            scenario.disrupt("a", reason);
            scenario.wait(5);
            scenario.delete("a");
            assert_eq!(scenario.broken(), broken, "{reason}");
        }
    }

    #[test]
    fn a_guarded_pod_whose_hook_was_removed_is_kept() {
        let mut scenario = without_deadline();
        let hook =
            json!({"replicas": 2, "preDeleteUpdateStrategy": {"hook": {"templateName": ""}}});
        scenario.spec("user", hook);
        scenario.wait(5);
        scenario.delete("a");
        assert_eq!(scenario.broken(), ["guard"]);
    }
}
