//! Invariant 7: no two pods have the same ordinal, and no pod is created with a reserved ordinal. OrderedReady creates
//! pods upward, each after all below it are available. It deletes pods downward, each after all above it are gone and
//! all that remain are available. A pod with a reserved ordinal is deleted after its substitute is available. A claim
//! is released for deletion (the pod becomes its owner) only if the retention policy requires it, and after the pod's
//! hook.

use serde_json::Value;

use super::start::{Act, Purpose, Start, name};
use super::{Found, wrong_under_all};
use crate::names;
use crate::object::{annotation, controller, label, phase, pod_hook, point, text, uid};
use crate::replay::history::{Resource, Write};
use crate::replay::workload::Version;
use crate::replay::world::{LAG, Pod, Workload, World};

/// Checks a write by the operator. `world` is the state before it.
pub(crate) fn ordinals(world: &World, write: &Write) -> Option<Found> {
    let is_claim = matches!(&write.resource, Resource::Other(it) if it == "persistentvolumeclaims");
    let why = match (&write.resource, write.verb.as_str()) {
        (Resource::Pod, "create") => creation(world, write),
        (Resource::Pod, "delete") => removal(world, write),
        (_, "delete" | "deletecollection") if is_claim => {
            Some("deletes a claim, which only the garbage collector may do".to_owned())
        }
        _ if is_claim => claim(world, write),
        _ => None,
    };
    Some(("ordinals", why?))
}

fn creation(world: &World, write: &Write) -> Option<String> {
    let new = write.after.as_ref()?;
    let (owner, workload): (_, &Workload) = world.workload_of(new)?;
    let index = label(new, names::IDENTITY[2])?;
    let is_twin = |pod: &&Pod| label(&pod.object, names::IDENTITY[2]) == Some(index);
    if let Some(twin) = world.pods_of(owner).find(is_twin) {
        let (name, twin) = (name(new), uid(&twin.object));
        return Some(format!("creates {name} although {twin} has the same ordinal"));
    }
    wrong_under_all(workload.seen_at(write.received), |version| {
        let ordinal = version.ordinal(name(new));
        let Some(ordinal) = ordinal.filter(|it| *it >= version.first_ordinal()) else {
            return Some(format!("creates {} outside the range of ordinals", name(new)));
        };
        if version.is_reserved(ordinal) {
            return Some(format!("creates {}, whose ordinal is reserved", name(new)));
        }
        let lower = version.first_ordinal()..ordinal;
        let lower = lower.filter(|it| !version.is_reserved(*it)).collect();
        let missing = first_unavailable(world, owner, version, lower, write)?;
        version
            .is_ordered()
            .then(|| format!("creates {} although {missing} is not available", name(new)))
    })
}

fn removal(world: &World, write: &Write) -> Option<String> {
    let start = Start::of(world, write).filter(|start| start.act == Act::Delete)?;
    wrong_under_all(start.versions, |version| {
        if !version.is_stateful_set() || start.purpose(world, version) != Purpose::ScaleIn {
            return None;
        }
        let ordinal = version.ordinal(name(&start.pod.object))?;
        if !version.is_ordered() {
            return missing_substitute(world, start.owner, version, ordinal, write);
        }
        let is_surplus_above = |pod: &&Pod| {
            let name = name(&pod.object);
            !version.is_regular(name) && version.ordinal(name).is_some_and(|it| it > ordinal)
        };
        if let Some(higher) = world.pods_of(start.owner).find(is_surplus_above) {
            return Some(format!("deletes ordinal {ordinal} before {}", name(&higher.object)));
        }
        let all = version.ordinals();
        let missing = first_unavailable(world, start.owner, version, all, write)?;
        Some(format!("deletes ordinal {ordinal} although {missing} is not available"))
    })
}

/// Why a pod with a reserved ordinal must not be deleted yet: too few of the ordinals that replace reserved ones
/// have an available pod.
fn missing_substitute(
    world: &World,
    owner: &str,
    version: &Version,
    ordinal: i64,
    write: &Write,
) -> Option<String> {
    let mut wanted = version.ordinals();
    let last = *wanted.last()?;
    let is_replaced = |ordinal: i64| {
        version.first_ordinal() <= ordinal && ordinal < last && version.is_reserved(ordinal)
    };
    if !is_replaced(ordinal) {
        return None;
    }
    let ordinals = world.pods_of(owner).filter(|pod| pod.is_active());
    let ordinals = ordinals.filter_map(|pod| version.ordinal(name(&pod.object)));
    let replaced = ordinals.filter(|ordinal| is_replaced(*ordinal)).count();
    let end = version.first_ordinal() + version.replicas();
    wanted.retain(|ordinal| *ordinal >= end);
    let is_missing =
        |it: &&i64| first_unavailable(world, owner, version, vec![**it], write).is_some();
    let missing = wanted.iter().filter(is_missing).count();
    (missing >= replaced).then(|| {
        format!("deletes reserved ordinal {ordinal} although its substitute is not available")
    })
}

/// The first of these ordinals that has no available pod.
fn first_unavailable(
    world: &World,
    owner: &str,
    version: &Version,
    ordinals: Vec<i64>,
    write: &Write,
) -> Option<i64> {
    ordinals.into_iter().find(|ordinal| {
        let is_available = |pod: &Pod| {
            version.ordinal(name(&pod.object)) == Some(*ordinal)
                && pod.may_be_available(write.received, version.min_ready())
        };
        !world.pods_seen_by(write, owner).any(is_available)
    })
}

fn claim(world: &World, write: &Write) -> Option<String> {
    let (before, after) = (write.before.as_deref(), write.after.as_deref()?);
    let owning_pod = |claim: &Value| {
        let owners = claim.pointer("/metadata/ownerReferences")?.as_array()?;
        let pod = owners.iter().find(|owner| text(owner, "/kind") == "Pod")?;
        Some(text(pod, "/uid").to_owned())
    };
    let uid_of_pod = owning_pod(after)?;
    if before.and_then(owning_pod).as_deref() == Some(&uid_of_pod) {
        return None;
    }
    let is_owner = |pod: &&Pod| uid(&pod.object) == uid_of_pod;
    let Some(pod) = world.pods.values().find(is_owner) else {
        return Some(format!("makes a deleted pod the owner of {}", write.name));
    };
    let (owner, workload) = world.workload_of(&pod.object)?;
    wrong_under_all(workload.seen_at(write.received), |version| {
        let ordinal = version.ordinal(name(&pod.object));
        let is_kept = version.is_regular(name(&pod.object))
            || ordinal.is_some_and(|it| version.is_reserved(it));
        if !version.deletes_claims_when_scaled() || is_kept {
            return Some("releases a claim against the retention policy".to_owned());
        }
        let has_hook = pod_hook(&version.object, "preDelete").is_some();
        // A pod that does not run needs no hook. When the operator observes that the pod runs after all, it removes
        // the owner again.
        let since = pod.running_since;
        let is_running = since.is_some_and(|since| since + LAG <= write.received);
        (has_hook && is_running && !has_passed(world, owner, &uid_of_pod))
            .then(|| "releases a claim before the pod's hook is Successful".to_owned())
    })
}

fn has_passed(world: &World, workload: &str, pod: &str) -> bool {
    world.runs.values().any(|run| {
        let object = &run.object;
        controller(object) == Some(workload)
            && annotation(object, names::RUN_POD_UID) == Some(pod)
            && point(object) == "PreDelete"
            && phase(object) == "Successful"
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::scenario::Scenario;

    fn set(policy: &str, replicas: i64) -> Scenario {
        Scenario::stateful_set(json!({
            "replicas": replicas, "podManagementPolicy": policy,
            "persistentVolumeClaimRetentionPolicy": {"whenScaled": "Delete"},
            "updateStrategy": {"type": "RollingUpdate"},
        }))
    }

    fn scale(scenario: &mut Scenario, replicas: i64) {
        scenario.spec("user", json!({"replicas": replicas}));
        scenario.wait(2);
    }

    #[test]
    fn ordered_pods_are_created_upward_after_those_below_are_available() {
        let mut scenario = set("OrderedReady", 2);
        scale(&mut scenario, 4);
        scenario.create("game-2", "v1");
        scenario.wait(2);
        scenario.create("game-3", "v1");
        assert_eq!(scenario.verdict(), []);
        for (policy, broken) in [("OrderedReady", vec!["ordinals"]), ("Parallel", vec![])] {
            let mut scenario = set(policy, 2);
            scale(&mut scenario, 4);
            scenario.create("game-3", "v1");
            assert_eq!(scenario.broken(), broken);
            let mut scenario = set(policy, 2);
            scale(&mut scenario, 3);
            scenario.set_ready("game-0", false);
            scenario.wait(2);
            scenario.create("game-2", "v1");
            assert_eq!(scenario.broken(), broken);
        }
    }

    #[test]
    fn ordered_pods_are_deleted_downward_after_those_above_are_deleted() {
        for (policy, broken) in [("OrderedReady", vec!["ordinals"]), ("Parallel", vec![])] {
            let mut scenario = set(policy, 3);
            scale(&mut scenario, 1);
            scenario.delete("game-1");
            assert_eq!(scenario.broken(), broken);
            let mut scenario = set(policy, 3);
            scale(&mut scenario, 2);
            scenario.set_ready("game-0", false);
            scenario.wait(2);
            scenario.delete("game-2");
            assert_eq!(scenario.broken(), broken);
        }
        let mut scenario = set("OrderedReady", 3);
        scale(&mut scenario, 2);
        scenario.delete("game-2");
        assert_eq!(scenario.verdict(), []);
    }

    fn reserve(scenario: &mut Scenario, ordinals: &[i64]) {
        scenario.spec("user", json!({"reserveOrders": ordinals}));
    }

    #[test]
    fn a_reserved_ordinal_gets_no_pod() {
        for (ordinal, broken) in [(3, vec!["ordinals"]), (4, vec![])] {
            let mut scenario = set("Parallel", 3);
            reserve(&mut scenario, &[3]);
            scale(&mut scenario, 4);
            scenario.create(&format!("game-{ordinal}"), "v1");
            assert_eq!(scenario.broken(), broken, "{ordinal}");
        }
        let mut scenario = set("Parallel", 3);
        scale(&mut scenario, 4);
        reserve(&mut scenario, &[3]);
        scenario.create("game-3", "v1");
        assert_eq!(
            scenario.verdict(),
            [],
            "the creation was decided before the ordinal was reserved"
        );
    }

    #[test]
    fn a_pod_with_a_reserved_ordinal_is_deleted_after_its_substitute_is_available() {
        for policy in ["OrderedReady", "Parallel"] {
            let mut scenario = set(policy, 3);
            reserve(&mut scenario, &[1]);
            scenario.wait(2);
            scenario.create("game-3", "v1");
            scenario.wait(2);
            scenario.delete("game-1");
            assert_eq!(scenario.verdict(), [], "{policy}");
            let mut scenario = set(policy, 3);
            reserve(&mut scenario, &[1]);
            scenario.wait(2);
            scenario.create_unready("game-3", "v1");
            scenario.wait(2);
            scenario.delete("game-1");
            assert_eq!(scenario.broken(), ["ordinals"], "{policy}");
        }
        // With two reserved ordinals, one pod may be deleted when one substitute is available.
        let mut scenario = set("Parallel", 3);
        reserve(&mut scenario, &[0, 1]);
        scenario.wait(2);
        scenario.create("game-4", "v1");
        scenario.wait(2);
        scenario.delete("game-1");
        assert_eq!(scenario.verdict(), []);
        scenario.delete("game-0");
        assert_eq!(scenario.broken(), ["ordinals"]);
    }

    #[test]
    fn the_partition_counts_ordinals_that_are_not_reserved() {
        let mut scenario = set("Parallel", 3);
        reserve(&mut scenario, &[1]);
        scenario.wait(2);
        scenario.create("game-3", "v1");
        scenario.wait(2);
        scenario.spec("user", json!({"updateStrategy": {"partition": 2, "maxUnavailable": 4}}));
        scenario.status(json!({"updateRevision": "v2"}));
        scenario.wait(2);
        scenario.close_gate("game-3");
        scenario.change("game-3", "v2");
        assert_eq!(scenario.verdict(), []);
        scenario.close_gate("game-2");
        scenario.change("game-2", "v2");
        assert_eq!(scenario.broken(), ["partition"]);
    }

    #[test]
    fn the_partition_is_an_ordinal() {
        let mut scenario = set("Parallel", 4);
        scenario.spec("user", json!({"updateStrategy": {"partition": 2, "maxUnavailable": 4}}));
        scenario.status(json!({"updateRevision": "v2"}));
        scenario.wait(2);
        scenario.close_gate("game-2");
        scenario.change("game-2", "v2");
        assert_eq!(scenario.verdict(), []);
        scenario.close_gate("game-1");
        scenario.change("game-1", "v2");
        assert_eq!(scenario.broken(), ["partition"]);
    }

    #[test]
    fn a_claim_is_released_only_as_the_policy_requires_and_after_the_hook() {
        let release =
            |scenario: &mut Scenario| scenario.own_claim("data-game-1", "Pod", "uid-game-1");
        let mut scenario = set("Parallel", 2);
        release(&mut scenario);
        assert_eq!(scenario.broken(), ["ordinals"], "its pod is kept");
        let mut scenario = set("Parallel", 2);
        scale(&mut scenario, 1);
        reserve(&mut scenario, &[1]);
        scenario.wait(2);
        release(&mut scenario);
        assert_eq!(scenario.broken(), ["ordinals"], "its ordinal is reserved");
        let mut scenario = set("Parallel", 2);
        scale(&mut scenario, 1);
        release(&mut scenario);
        assert_eq!(scenario.verdict(), []);
        let retain: Value =
            json!({"persistentVolumeClaimRetentionPolicy": {"whenScaled": "Retain"}});
        let mut scenario = set("Parallel", 2);
        scenario.spec("user", retain);
        scale(&mut scenario, 1);
        release(&mut scenario);
        assert_eq!(scenario.broken(), ["ordinals"], "the policy is Retain");
        let hook = json!({"preDeleteUpdateStrategy": {"hook": {"templateName": "test"}}});
        for passes in [true, false] {
            let mut scenario = set("Parallel", 2);
            scenario.spec("user", hook.clone());
            scale(&mut scenario, 1);
            if passes {
                scenario.pass("game-1", "PreDelete", "");
            }
            release(&mut scenario);
            assert_eq!(scenario.verdict().is_empty(), passes);
        }
    }

    #[test]
    fn a_claim_is_never_deleted() {
        let mut scenario = set("Parallel", 1);
        scenario.delete_claim("data-game-0");
        assert_eq!(scenario.broken(), ["ordinals"]);
    }
}
