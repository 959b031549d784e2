//! Invariant 8: nothing is written for a settled workload.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::Found;
use super::guard::{is_on_lost_node, protects};
use super::start::name;
use crate::names;
use crate::object::{
    annotation, condition, containers, controller, is_terminating, label, marks, text,
};
use crate::replay::history::{Resource, Write};
use crate::replay::workload::Version;
use crate::replay::world::World;

/// For how long a settled workload may still get a last status write.
const GRACE: SignedDuration = SignedDuration::from_secs(3);
/// For how long it may still get events. The operator merges events about pods for two seconds before it writes them.
const EVENT_GRACE: SignedDuration = SignedDuration::from_secs(10);
/// The resource of budgets.
const BUDGETS: &str = "poddisruptionbudgets";

/// Remembers since when all workloads have been settled.
#[derive(Debug, Default)]
pub(crate) struct Settled {
    since: Option<Timestamp>,
}

impl Settled {
    /// Checks a write after it took effect.
    pub(crate) fn check(
        &mut self,
        world: &World,
        write: &Write,
        by_operator: bool,
    ) -> Option<Found> {
        // The lease and the webhook's certificates do not belong to a workload.
        if ["leases", "secrets"].contains(&write.plural.as_str()) {
            return None;
        }
        // After a start, the operator applies budgets again. `guard_checks` judges these writes. The status of a budget
        // is written by Kubernetes.
        let is_budget = write.plural == BUDGETS;
        if is_budget && (write.subresource == "status" || !write.changed()) {
            return None;
        }
        let is_status = write.resource == Resource::Workload && write.subresource == "status";
        if by_operator && is_status && !write.changed() {
            return Some(("settled", "a status write that changes nothing".to_owned()));
        }
        // The log of a namespace shows no changes to nodes or SidecarSets. The operator's requests to move a pod,
        // tokens that let sidecars be updated, and revisions of sets are taken as evidence of such a change. A budget
        // that an administrator has deleted or changed is restored after the operator's next check.
        let has_other_cause =
            requests_move(write) || allots_token(write) || is_revision_of_set(world, write);
        let has_other_cause = has_other_cause || shows_deletion(write) || tells_drain(write);
        let by_operator = by_operator && !has_other_cause && !restores_budget(world, write);
        let since = self.since;
        // The operator's own writes do not end the settled state; otherwise they would excuse later ones.
        if since.is_none() || !by_operator {
            self.since = is_settled(world).then_some(write.done);
        }
        let grace = match write.plural.as_str() {
            "events" => EVENT_GRACE,
            _ => GRACE,
        };
        let since = since.filter(|since| by_operator && *since + grace < write.received)?;
        Some((
            "settled",
            format!(
                "all workloads have been settled since {since}, and no other client has written"
            ),
        ))
    }
}

/// Whether the response to a write shows that another client has deleted the object. A deletion of many objects is placed
/// at its end.
fn shows_deletion(write: &Write) -> bool {
    let is_deleted = |it: &Option<Arc<Value>>| it.as_deref().is_some_and(is_terminating);
    !is_deleted(&write.before) && is_deleted(&write.after)
}

/// Whether a status shows that a drain waits for guarded pods, or no longer waits.
fn tells_drain(write: &Write) -> bool {
    let drains = |object: &Option<Arc<Value>>| -> Vec<Value> {
        let causes = object.as_deref().and_then(|it| it["status"]["causes"].as_array());
        let causes = causes.into_iter().flatten();
        causes.filter(|it| it["reason"] == "DrainWaits").cloned().collect()
    };
    write.resource == Resource::Workload && drains(&write.before) != drains(&write.after)
}

/// Whether a write requests that a pod be moved, or withdraws such a request.
fn requests_move(write: &Write) -> bool {
    let request = |pod: &Option<Arc<Value>>| {
        let pod = pod.as_ref()?;
        Some(annotation(pod, names::MOVE)?.to_owned())
    };
    write.resource == Resource::Pod
        && write.after.is_some()
        && request(&write.before) != request(&write.after)
}

/// Whether a write gives a pod a token of a SidecarSet, or withdraws it.
fn allots_token(write: &Write) -> bool {
    let (Some(before), Some(after)) = (&write.before, &write.after) else {
        return false;
    };
    write.resource == Resource::Pod
        && containers(before) == containers(after)
        && marks(before) != marks(after)
}

/// Whether a write creates the budget of a guarded workload, or changes it back.
fn restores_budget(world: &World, write: &Write) -> bool {
    let Some(budget) = write.after.as_deref().filter(|_| write.plural == BUDGETS) else {
        return false;
    };
    let content = |it: &Value| (it["spec"].clone(), it["metadata"]["labels"].clone());
    let before = write.before.as_deref().map(content);
    let owner = label(budget, names::GUARDED).and_then(|uid| world.workloads.get(uid));
    let owner = owner.filter(|it| it.deleted.is_none());
    let newest = owner.and_then(|it| it.versions.last());
    newest.is_some_and(protects) && before != Some(content(budget))
}

/// Whether a write concerns a ControllerRevision that is not named after a workload of the namespace.
fn is_revision_of_set(world: &World, write: &Write) -> bool {
    let owner = write.name.rsplit_once('-').map(|(owner, _)| owner);
    let workloads = world.workloads.values();
    let mut newest = workloads.filter_map(|it| it.versions.last());
    write.resource == Resource::Other("controllerrevisions".to_owned())
        && owner.is_some()
        && !newest.any(|it| owner == Some(name(&it.object)))
}

/// Whether every workload of the namespace is settled.
fn is_settled(world: &World) -> bool {
    let mut living = world.workloads.iter().filter(|(_, w)| w.deleted.is_none());
    let has_some = living.clone().next().is_some();
    has_some
        && living.all(|(uid, workload)| {
            let newest = workload.versions.last();
            newest.is_some_and(|newest| has_reached_spec(world, uid, newest))
        })
}

fn has_reached_spec(world: &World, uid: &str, workload: &Version) -> bool {
    let object = &workload.object;
    let number = |pointer: &str| object.pointer(pointer).and_then(Value::as_i64).unwrap_or(0);
    let replicas = workload.replicas();
    let counts = [
        "replicas",
        "readyReplicas",
        "availableReplicas",
        "updatedReplicas",
        "updatedReadyReplicas",
    ];
    let counts_match = counts.iter().all(|name| number(&format!("/status/{name}")) == replicas);
    let is_annotated =
        annotation(object, names::PAUSE).is_some() || annotation(object, names::RETRY).is_some();
    let has_retry = ["preDelete", "preInplace", "postInplace"].iter().any(|point| {
        object.pointer(&format!("/spec/{point}UpdateStrategy/retry")) == Some(&Value::Bool(true))
    });
    let mut runs = world.runs.values();
    let has_runs = runs.any(|run| run.end.is_none() && controller(&run.object) == Some(uid));
    let pods: Vec<_> = world.pods_of(uid).collect();
    let pods_match = pods.len() as i64 == replicas
        && pods.iter().all(|pod| {
            pod.is_active()
                && !workload.is_in_pods_to_delete(name(&pod.object))
                && pod.ongoing_update.is_none()
                && marks(&pod.object).values().all(|it| it.token.is_none())
                && !is_on_lost_node(&pod.object)
                && [names::DELETING, names::MOVE]
                    .iter()
                    .all(|it| annotation(&pod.object, it).is_none())
                && label(&pod.object, names::REVISION) == Some(workload.update_revision())
        });
    // Until the workload's guard is in force, the operator keeps checking it.
    let guard = condition(object, "Guarded").map(|it| text(it, "/status"));
    counts_match
        && guard.is_none_or(|status| status == "True")
        && pods_match
        && !(is_annotated || has_retry || has_runs)
        && !is_terminating(object)
        && number("/status/observedGeneration") == number("/metadata/generation")
        && !workload.is_rolling()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::names;
    use crate::scenario::Scenario;

    fn settled() -> Scenario {
        let mut scenario = Scenario::with(json!({"replicas": 2}));
        scenario.settle();
        scenario
    }

    #[test]
    fn a_settled_workload_gets_no_writes() {
        let mut scenario = settled();
        scenario.wait(1);
        scenario.status(json!({"conditions": []}));
        assert_eq!(scenario.verdict(), [], "a last status write may follow");
        scenario.wait(10);
        scenario.status(json!({"conditions": [1]}));
        assert_eq!(scenario.broken(), ["settled"]);
    }

    #[test]
    fn a_settled_workload_may_get_last_events() {
        let mut scenario = settled();
        scenario.wait(5);
        scenario.write_event();
        assert_eq!(scenario.verdict(), []);
        scenario.wait(6);
        scenario.write_event();
        assert_eq!(scenario.broken(), ["settled"]);
    }

    #[test]
    fn a_change_by_another_client_allows_writes() {
        let mut scenario = settled();
        scenario.wait(10);
        scenario.spec("user", json!({"replicas": 3}));
        scenario.wait(10);
        scenario.create("c", "v1");
        assert_eq!(scenario.verdict(), []);
    }

    #[test]
    fn a_status_may_follow_a_deletion_whose_response_comes_later() {
        let mut scenario = settled();
        scenario.wait(10);
        scenario.show_deletion();
        scenario.status(json!({"conditions": [1]}));
        assert_eq!(scenario.verdict(), []);
    }

    #[test]
    fn a_workload_with_a_live_run_is_not_settled() {
        let mut scenario = Scenario::with(json!({"replicas": 2}));
        scenario.run("a", "PreDelete", "");
        scenario.settle();
        scenario.wait(10);
        scenario.delete_run("a", "PreDelete");
        assert_eq!(scenario.verdict(), []);
    }

    #[test]
    fn a_workload_with_a_pod_to_be_moved_is_not_settled() {
        let mut scenario = settled();
        scenario.annotate("a", names::MOVE, "2026-01-01T00:00:00Z");
        scenario.wait(10);
        scenario.status(json!({"conditions": [1]}));
        assert_eq!(scenario.verdict(), []);
    }

    #[test]
    fn a_workload_with_a_pod_named_for_deletion_is_not_settled() {
        let mut scenario = settled();
        let named = json!({"scaleStrategy": {"podsToDelete": ["a"]}});
        scenario.spec("user", named);
        scenario.settle();
        scenario.run("a", "PreDelete", "");
        scenario.wait(10);
        scenario.finish("a", "PreDelete", "Successful");
        scenario.delete("a");
        assert_eq!(scenario.verdict(), []);
    }

    #[test]
    fn a_budget_is_restored_but_not_changed_otherwise() {
        let guarded = || {
            let mut scenario = Scenario::with(json!({
                "replicas": 2, "protection": {"pods": "Guarded"},
            }));
            scenario.apply_budget();
            scenario.check_guard(true);
            scenario.settle();
            scenario.wait(10);
            scenario
        };
        let mut deleted = guarded();
        deleted.delete_budget();
        assert_eq!(deleted.broken(), ["settled"]);
        let mut reapplied = guarded();
        reapplied.acquire_lease();
        reapplied.apply_budget();
        reapplied.check_guard(true);
        assert_eq!(reapplied.verdict(), [], "the budget stays the same");
        reapplied.delete_budget_by("administrator");
        reapplied.wait(10);
        reapplied.acquire_lease();
        reapplied.apply_budget();
        reapplied.check_guard(true);
        assert_eq!(reapplied.verdict(), [], "the budget is restored");
        let mut annotated = guarded();
        annotated.acquire_lease();
        annotated.annotate_budget();
        assert_eq!(annotated.broken(), ["settled"]);
        let mut unguarded = settled();
        unguarded.wait(10);
        unguarded.apply_budget();
        assert_eq!(unguarded.broken(), ["settled"], "there are no guarded pods");
    }

    #[test]
    fn revisions_of_a_workload_are_kept_and_those_of_sidecar_sets_are_not_judged() {
        let mut scenario = settled();
        scenario.wait(10);
        scenario.delete_revision("log-agent-5c7d9");
        assert_eq!(scenario.verdict(), []);
        scenario.wait(10);
        scenario.delete_revision("game-5c7d9");
        assert_eq!(scenario.broken(), ["settled"]);
    }

    #[test]
    fn a_status_write_that_changes_nothing_is_a_violation() {
        let mut scenario = settled();
        scenario.repeat_status();
        assert_eq!(scenario.broken(), ["settled"]);
    }
}
