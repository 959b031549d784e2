//! Invariant 3: no more pods than the partition allows are moved to the update revision.

use super::start::{count, is_victim, moved_to, name};
use super::{Found, right_under_one};
use crate::object::{controller, uid};
use crate::replay::history::{Resource, Write};
use crate::replay::workload::Version;
use crate::replay::world::{Pod, Workload, World};

/// The rule.
pub(crate) fn partition(world: &World, write: &Write) -> Option<Found> {
    let after = write
        .after
        .as_ref()
        .filter(|_| write.resource == Resource::Pod)?;
    let is_ours = |before: &serde_json::Value| controller(before).is_some();
    if write
        .before
        .as_deref()
        .is_some_and(|before| !is_ours(before))
    {
        return None;
    }
    let revision = moved_to(write.before.as_deref(), after)?;
    let (owner, workload): (_, &Workload) = world.workload_of(after)?;
    let is_updated = |pod: &&Pod| {
        pod.is_active()
            && pod.revision() == revision
            && uid(&pod.object) != uid(after)
            && !is_victim(world, pod)
    };
    let updated: Vec<&Pod> = world.pods_of(owner).filter(is_updated).collect();
    let wrong = |version: &Version| {
        let update = version.update_revision();
        if update != revision {
            let known = [update, version.stable_revision()];
            let is_known = write.before.is_none() || known.contains(&revision);
            return (!is_known).then(|| format!("moves a pod to {revision}, not one of {known:?}"));
        }
        if version.is_set() {
            return wrong_ordinal(version, &updated, name(after), revision);
        }
        let most = version.may_be_updated();
        let updated = count(&updated) + 1;
        (updated > most).then(|| {
            format!("makes {updated} pods of {revision}, where step and partition allow {most}")
        })
    };
    Some((
        "partition",
        right_under_one(workload.seen_at(write.received), wrong)?,
    ))
}

/// Why a pod of a GameStatefulSet must not be at the update revision: its ordinal is below the
/// partition, or a scale-out in a step would grow an unproven build.
fn wrong_ordinal(version: &Version, others: &[&Pod], pod: &str, revision: &str) -> Option<String> {
    let ordinal = version.ordinal(pod)?;
    let first = version.first_to_update();
    if first.is_none_or(|first| ordinal < first) {
        return Some(format!(
            "brings ordinal {ordinal} to {revision}, where step and partition allow {first:?} and up"
        ));
    }
    let is_held = version.is_rolling() && version.replicas_held() < version.replicas();
    if !is_held || !version.is_regular(pod) {
        return None;
    }
    let is_regular = |pod: &&&Pod| version.is_regular(name(&pod.object));
    let updated = others.iter().filter(is_regular).count() as i64 + 1;
    let most = version.may_be_updated();
    (updated > most)
        .then(|| format!("makes {updated} pods of {revision}, where the step began with {most}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::story::Story;

    fn update(story: &mut Story, pod: &str) {
        story.close_gate(pod);
        story.change(pod, "v2");
        story.open_gate(pod);
        story.wait(2);
    }

    #[test]
    fn the_partition_keeps_its_pods() {
        let strategy = json!({"type": "InplaceUpdate", "partition": 3, "maxUnavailable": 4});
        let mut story = Story::updating(strategy);
        update(&mut story, "a");
        assert_eq!(story.verdict(), []);
        update(&mut story, "b");
        assert_eq!(story.broken(), ["partition"]);
    }

    #[test]
    fn a_step_allows_what_its_partition_says() {
        let steps = json!([{"partition": 3}, {"pause": {}}]);
        let canary = json!({"steps": steps});
        let mut story = Story::updating(json!({"type": "InplaceUpdate", "canary": canary}));
        update(&mut story, "a");
        assert_eq!(story.verdict(), []);
        update(&mut story, "b");
        assert_eq!(story.broken(), ["partition"]);
    }

    #[test]
    fn a_scale_out_in_a_step_makes_old_pods() {
        let canary = json!({"steps": [{"partition": 3}]});
        let strategy = json!({"type": "InplaceUpdate", "canary": canary});
        for (revision, broken) in [("v1", vec![]), ("v2", vec!["partition"])] {
            let mut story = Story::updating(strategy.clone());
            update(&mut story, "a");
            story.spec("user", json!({"replicas": 5}));
            story.wait(2);
            story.create("e", revision);
            assert_eq!(story.broken(), broken, "{revision}");
        }
    }

    #[test]
    fn a_pod_goes_to_no_other_revision() {
        let mut story = Story::updating(json!({"type": "InplaceUpdate", "maxUnavailable": 4}));
        story.close_gate("a");
        story.change("a", "v9");
        assert_eq!(story.broken(), ["partition"]);
    }

    #[test]
    fn a_rollback_reaches_every_pod() {
        let canary = json!({"steps": [{"partition": 3}, {"pause": {}}]});
        let mut story = Story::updating(json!({"type": "InplaceUpdate", "canary": canary}));
        update(&mut story, "a");
        story.status(json!({"updateRevision": "v1", "currentStepIndex": 2}));
        story.close_gate("a");
        story.change("a", "v1");
        assert_eq!(story.verdict(), []);
    }
}
