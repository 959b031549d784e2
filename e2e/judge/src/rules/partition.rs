//! Invariant 3: no more pods are updated than the partition allows.

use super::start::{count, is_victim, name, new_revision};
use super::{Found, wrong_under_all};
use crate::object::{controller, uid};
use crate::replay::history::{Resource, Write};
use crate::replay::workload::Version;
use crate::replay::world::{Pod, Workload, World};

/// Checks a write by the operator. `world` is the state before it.
pub(crate) fn partition(world: &World, write: &Write) -> Option<Found> {
    let after = write.after.as_ref().filter(|_| write.resource == Resource::Pod)?;
    let is_orphan = |before: &serde_json::Value| controller(before).is_none();
    if write.before.as_deref().is_some_and(is_orphan) {
        return None;
    }
    let revision = new_revision(write.before.as_deref(), after)?;
    let (owner, workload): (_, &Workload) = world.workload_of(after)?;
    let is_updated = |pod: &&Pod| {
        pod.is_active() && pod.revision() == revision && uid(&pod.object) != uid(after)
    };
    let updated: Vec<&Pod> = world.pods_of(owner).filter(is_updated).collect();
    let victims = updated.iter().filter(|pod| is_victim(world, pod)).count() as i64;
    let all = world.pods_seen_by(write, owner).count() as i64;
    let wrong = |version: &Version| {
        let update = version.update_revision();
        if update != revision {
            let known = [update, version.stable_revision()];
            let is_allowed = write.before.is_none() || known.contains(&revision);
            return (!is_allowed)
                .then(|| format!("updates a pod to {revision}, which is not one of {known:?}"));
        }
        if version.is_stateful_set() {
            return wrong_ordinal(version, &updated, name(after), revision);
        }
        let most = version.max_updated();
        // Pods that are scaled in do not count. A pod that is only replaced, because podsToDelete names it, does.
        let surplus = (all - version.replicas()).max(0);
        let updated = count(&updated) - victims.min(surplus) + 1;
        (updated > most)
            .then(|| format!("{updated} pods get {revision}, but step and partition allow {most}"))
    };
    Some(("partition", wrong_under_all(workload.seen_at(write.received), wrong)?))
}

/// Why a pod of a GameStatefulSet must not have the update revision: its ordinal is below the partition, or
/// it was added by a scale-out during a step.
fn wrong_ordinal(version: &Version, others: &[&Pod], pod: &str, revision: &str) -> Option<String> {
    let ordinal = version.ordinal(pod)?;
    let first = version.first_to_update();
    if first.is_none_or(|first| ordinal < first) {
        let allowed =
            first.map_or("none".to_owned(), |first| format!("only ordinals from {first}"));
        return Some(format!(
            "updates ordinal {ordinal} to {revision}, but step and partition allow {allowed}"
        ));
    }
    let is_capped = version.is_rolling() && version.replicas_capped_by_step() < version.replicas();
    if !is_capped || !version.is_regular(pod) {
        return None;
    }
    let is_regular = |pod: &&&Pod| version.is_regular(name(&pod.object));
    let updated = others.iter().filter(is_regular).count() as i64 + 1;
    let most = version.max_updated();
    (updated > most).then(|| format!("{updated} pods get {revision}, but the step allows {most}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::scenario::Scenario;

    fn update(scenario: &mut Scenario, pod: &str) {
        scenario.close_gate(pod);
        scenario.change(pod, "v2");
        scenario.open_gate(pod);
        scenario.wait(2);
    }

    #[test]
    fn the_partition_limits_updated_pods() {
        let strategy = json!({"type": "InplaceUpdate", "partition": 3, "maxUnavailable": 4});
        let mut scenario = Scenario::updating(strategy);
        update(&mut scenario, "a");
        assert_eq!(scenario.verdict(), []);
        update(&mut scenario, "b");
        assert_eq!(scenario.broken(), ["partition"]);
    }

    #[test]
    fn a_pod_to_be_replaced_counts_and_a_pod_to_be_scaled_in_does_not() {
        let strategy = json!({"type": "InplaceUpdate", "partition": 3, "maxUnavailable": 4});
        for (spec, broken) in [
            (json!({"scaleStrategy": {"podsToDelete": ["a"]}}), vec!["partition"]),
            (json!({"replicas": 3, "updateStrategy": {"partition": 2}}), vec![]),
        ] {
            let mut scenario = Scenario::updating(strategy.clone());
            update(&mut scenario, "a");
            scenario.spec("user", spec.clone());
            scenario.run("a", "PreDelete", "");
            scenario.wait(2);
            update(&mut scenario, "b");
            assert_eq!(scenario.broken(), broken, "{spec}");
        }
    }

    #[test]
    fn a_partition_step_limits_updated_pods() {
        let steps = json!([{"partition": 3}, {"pause": {}}]);
        let canary = json!({"steps": steps});
        let mut scenario = Scenario::updating(json!({"type": "InplaceUpdate", "canary": canary}));
        update(&mut scenario, "a");
        assert_eq!(scenario.verdict(), []);
        update(&mut scenario, "b");
        assert_eq!(scenario.broken(), ["partition"]);
    }

    #[test]
    fn a_scale_out_during_a_step_creates_pods_at_the_old_revision() {
        let canary = json!({"steps": [{"partition": 3}]});
        let strategy = json!({"type": "InplaceUpdate", "canary": canary});
        for (revision, broken) in [("v1", vec![]), ("v2", vec!["partition"])] {
            let mut scenario = Scenario::updating(strategy.clone());
            update(&mut scenario, "a");
            scenario.spec("user", json!({"replicas": 5}));
            scenario.wait(2);
            scenario.create("e", revision);
            assert_eq!(scenario.broken(), broken, "{revision}");
        }
    }

    #[test]
    fn a_pod_is_not_updated_to_an_unknown_revision() {
        let mut scenario =
            Scenario::updating(json!({"type": "InplaceUpdate", "maxUnavailable": 4}));
        scenario.close_gate("a");
        scenario.change("a", "v9");
        assert_eq!(scenario.broken(), ["partition"]);
    }

    #[test]
    fn a_rollback_reaches_every_pod() {
        let canary = json!({"steps": [{"partition": 3}, {"pause": {}}]});
        let mut scenario = Scenario::updating(json!({"type": "InplaceUpdate", "canary": canary}));
        update(&mut scenario, "a");
        scenario.status(json!({"updateRevision": "v1", "currentStepIndex": 2}));
        scenario.close_gate("a");
        scenario.change("a", "v1");
        assert_eq!(scenario.verdict(), []);
    }
}
