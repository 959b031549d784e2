//! Invariant 7: never two pods with one ordinal; OrderedReady makes pods upward and removes them
//! downward, one at a time, each after the others are available; a claim is given up only as the
//! retention policy says, and after the pod's hook.

use serde_json::Value;

use super::start::{Act, Purpose, Start, name};
use super::{Found, right_under_one};
use crate::names;
use crate::object::{annotation, controller, label, phase, pod_hook, point, text, uid};
use crate::replay::history::{Resource, Write};
use crate::replay::workload::Version;
use crate::replay::world::{LAG, Pod, Workload, World};

/// The rule.
pub(crate) fn ordinals(world: &World, write: &Write) -> Option<Found> {
    let is_claim = matches!(&write.resource, Resource::Other(it) if it == "persistentvolumeclaims");
    let why = match (&write.resource, write.verb.as_str()) {
        (Resource::Pod, "create") => creation(world, write),
        (Resource::Pod, "delete") => removal(world, write),
        (_, "delete" | "deletecollection") if is_claim => {
            Some("deletes a claim, which is the garbage collector's".to_owned())
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
        return Some(format!("makes {name} beside {twin} with the same ordinal"));
    }
    right_under_one(workload.seen_at(write.received), |version| {
        let ordinal = version.ordinal(name(new));
        let Some(ordinal) = ordinal.filter(|it| *it >= version.ordinals().start) else {
            return Some(format!("makes {}, which is no ordinal of it", name(new)));
        };
        let below = version.ordinals().start..ordinal;
        let missing = missing_of(world, owner, version, below, write)?;
        version
            .is_ordered()
            .then(|| format!("makes {} although {missing} is not available", name(new)))
    })
}

fn removal(world: &World, write: &Write) -> Option<String> {
    let start = Start::of(world, write).filter(|start| start.act == Act::Delete)?;
    right_under_one(start.versions, |version| {
        if !version.is_ordered() || start.purpose(world, version) != Purpose::ScaleIn {
            return None;
        }
        let own = version.ordinal(name(&start.pod.object))?;
        let is_above = |pod: &&Pod| {
            let name = name(&pod.object);
            !version.is_regular(name) && version.ordinal(name).is_some_and(|it| it > own)
        };
        if let Some(above) = world.pods_of(start.owner).find(is_above) {
            return Some(format!("removes {own} before {}", name(&above.object)));
        }
        let all = version.ordinals();
        let missing = missing_of(world, start.owner, version, all, write)?;
        Some(format!("removes {own} although {missing} is not available"))
    })
}

/// An ordinal of a range without an available pod.
fn missing_of(
    world: &World,
    owner: &str,
    version: &Version,
    mut range: std::ops::Range<i64>,
    write: &Write,
) -> Option<i64> {
    range.find(|ordinal| {
        let is_there = |pod: &Pod| {
            version.ordinal(name(&pod.object)) == Some(*ordinal)
                && pod.may_be_available(write.received, version.min_ready())
        };
        !world.pods_seen_by(write, owner).any(is_there)
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
    let given_to = |pod: &&Pod| uid(&pod.object) == uid_of_pod;
    let Some(pod) = world.pods.values().find(given_to) else {
        return Some(format!("gives {} to a pod that is gone", write.name));
    };
    let (owner, workload) = world.workload_of(&pod.object)?;
    right_under_one(workload.seen_at(write.received), |version| {
        if !version.deletes_claims_when_scaled() || version.is_regular(name(&pod.object)) {
            return Some("gives a claim up against the retention policy".to_owned());
        }
        let is_guarded = pod_hook(&version.object, "preDelete").is_some();
        // It is taken off again once that is seen, so a moment is no harm.
        let since = pod.running_since;
        let has_players = since.is_some_and(|since| since + LAG <= write.received);
        (is_guarded && has_players && !has_passed(world, owner, &uid_of_pod))
            .then(|| "gives a claim up before the pod's hook was Successful".to_owned())
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

    use crate::story::Story;

    fn set(policy: &str, replicas: i64) -> Story {
        Story::of_set(json!({
            "replicas": replicas, "podManagementPolicy": policy,
            "persistentVolumeClaimRetentionPolicy": {"whenScaled": "Delete"},
            "updateStrategy": {"type": "RollingUpdate"},
        }))
    }

    fn scale(story: &mut Story, replicas: i64) {
        story.spec("user", json!({"replicas": replicas}));
        story.wait(2);
    }

    #[test]
    fn ordered_pods_come_upward_after_those_below_are_available() {
        let mut story = set("OrderedReady", 2);
        scale(&mut story, 4);
        story.create("game-2", "v1");
        story.wait(2);
        story.create("game-3", "v1");
        assert_eq!(story.verdict(), []);
        for (policy, broken) in [("OrderedReady", vec!["ordinals"]), ("Parallel", vec![])] {
            let mut story = set(policy, 2);
            scale(&mut story, 4);
            story.create("game-3", "v1");
            assert_eq!(story.broken(), broken);
            let mut story = set(policy, 2);
            scale(&mut story, 3);
            story.set_ready("game-0", false);
            story.wait(2);
            story.create("game-2", "v1");
            assert_eq!(story.broken(), broken);
        }
    }

    #[test]
    fn ordered_pods_go_downward_after_those_above_are_gone() {
        for (policy, broken) in [("OrderedReady", vec!["ordinals"]), ("Parallel", vec![])] {
            let mut story = set(policy, 3);
            scale(&mut story, 1);
            story.delete("game-1");
            assert_eq!(story.broken(), broken);
            let mut story = set(policy, 3);
            scale(&mut story, 2);
            story.set_ready("game-0", false);
            story.wait(2);
            story.delete("game-2");
            assert_eq!(story.broken(), broken);
        }
        let mut story = set("OrderedReady", 3);
        scale(&mut story, 2);
        story.delete("game-2");
        assert_eq!(story.verdict(), []);
    }

    #[test]
    fn the_partition_is_an_ordinal() {
        let mut story = set("Parallel", 4);
        story.spec(
            "user",
            json!({"updateStrategy": {"partition": 2, "maxUnavailable": 4}}),
        );
        story.status(json!({"updateRevision": "v2"}));
        story.wait(2);
        story.close_gate("game-2");
        story.change("game-2", "v2");
        assert_eq!(story.verdict(), []);
        story.close_gate("game-1");
        story.change("game-1", "v2");
        assert_eq!(story.broken(), ["partition"]);
    }

    #[test]
    fn a_claim_is_given_up_as_the_policy_says_and_after_the_hook() {
        let given = |story: &mut Story| story.own_claim("data-game-1", "Pod", "uid-game-1");
        let mut story = set("Parallel", 2);
        given(&mut story);
        assert_eq!(story.broken(), ["ordinals"], "its pod stays");
        let mut story = set("Parallel", 2);
        scale(&mut story, 1);
        given(&mut story);
        assert_eq!(story.verdict(), []);
        let retain: Value =
            json!({"persistentVolumeClaimRetentionPolicy": {"whenScaled": "Retain"}});
        let mut story = set("Parallel", 2);
        story.spec("user", retain);
        scale(&mut story, 1);
        given(&mut story);
        assert_eq!(story.broken(), ["ordinals"], "the policy says no");
        let hook = json!({"preDeleteUpdateStrategy": {"hook": {"templateName": "test"}}});
        for passes in [true, false] {
            let mut story = set("Parallel", 2);
            story.spec("user", hook.clone());
            scale(&mut story, 1);
            if passes {
                story.pass("game-1", "PreDelete", "");
            }
            given(&mut story);
            assert_eq!(story.verdict().is_empty(), passes);
        }
    }

    #[test]
    fn a_claim_is_never_deleted() {
        let mut story = set("Parallel", 1);
        story.delete_claim("data-game-0");
        assert_eq!(story.broken(), ["ordinals"]);
    }
}
