//! Invariant 3, for limits that are not in the spec: during a user's pause of a rollout without steps, a
//! scale-out adds no pods of the update revision; and a workload that has lost its status is not treated as if
//! its rollout were complete, which would allow every pod to be updated.

use std::collections::BTreeMap;

use super::start::count;
use super::{Found, is_held_by_a_user};
use crate::object::{controller, revision, uid};
use crate::replay::history::{Resource, Write};
use crate::replay::workload::Version;
use crate::replay::world::{Pod, World};

/// By workload: the update revision, and how many pods had it when the operator first reported a pause.
#[derive(Debug, Default)]
pub(crate) struct Holds(BTreeMap<String, (String, i64)>);

impl Holds {
    /// Checks a write after it took effect.
    pub(crate) fn check(
        &mut self,
        world: &World,
        write: &Write,
        by_operator: bool,
    ) -> Option<Found> {
        let why = match write.resource {
            _ if !by_operator => None,
            Resource::Workload if write.subresource == "status" => self.check_status(world, write),
            Resource::Pod => self.check_pod(world, write),
            _ => None,
        };
        Some(("partition", why?))
    }

    /// Checks that a status write does not complete a rollout without reason. Records the number of updated
    /// pods at a pause.
    fn check_status(&mut self, world: &World, write: &Write) -> Option<String> {
        let (before, after) = (write.before.as_ref()?, write.after.as_ref()?);
        let before = Version::of(before, write.done);
        let after = Version::of(after, write.done);
        let (owner, update) = (uid(&after.object), after.update_revision());
        if is_rollout_held(&after) {
            let updated = count(&pods_at(world, owner, |it| it == update));
            let held = self.0.entry(owner.to_owned());
            let held = held.or_insert_with(|| (update.to_owned(), updated));
            if held.0 != update {
                *held = (update.to_owned(), updated);
            }
        } else {
            self.0.remove(owner);
        }
        // The status was lost: otherwise it names no stable revision until one has worked.
        let is_lost = before.stable_revision().is_empty() && before.update_revision().is_empty();
        let is_treated_as_complete = is_lost && !after.is_rolling();
        let others = pods_at(world, owner, |it| !it.is_empty() && it != update);
        (is_treated_as_complete && !others.is_empty()).then(|| {
            let others = count(&others);
            format!("sets {update} as stable while {others} pods have other revisions")
        })
    }

    /// Checks a pod that is created, or updated to another revision.
    fn check_pod(&self, world: &World, write: &Write) -> Option<String> {
        let after = write.after.as_deref()?;
        let new = revision(after);
        let owner = controller(after)?;
        let (held_revision, held_count) = self.0.get(owner)?;
        let changes_revision = write.before.as_deref().map(revision) != Some(new);
        let newest = world.workloads.get(owner)?.versions.last()?;
        if !changes_revision || held_revision != new || !is_held_by_a_user(world, newest, write) {
            return None;
        }
        let updated = count(&pods_at(world, owner, |it| it == new));
        (updated > *held_count).then(|| {
            format!("{updated} pods have {new}, but a user's pause began with {held_count}")
        })
    }
}

/// Whether a user's pause holds a rollout that has no steps.
fn is_rollout_held(version: &Version) -> bool {
    let is_paused = version.is_paused() && !version.has_pause_annotation();
    is_paused && version.steps().is_empty() && version.is_rolling()
}

fn pods_at<'a>(world: &'a World, owner: &str, matches: impl Fn(&str) -> bool) -> Vec<&'a Pod> {
    let pods = world.pods.values();
    let is_owned = |pod: &&Pod| controller(&pod.object) == Some(owner) && pod.is_active();
    let pods = pods.filter(is_owned);
    pods.filter(|pod| matches(pod.revision())).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::scenario::Scenario;

    /// A rollout to `v2` that a user paused after one pod. The operator has observed the pause.
    fn paused() -> Scenario {
        let mut scenario = Scenario::updating(json!({"type": "InplaceUpdate"}));
        scenario.close_gate("a");
        scenario.change("a", "v2");
        scenario.open_gate("a");
        scenario.spec("user", json!({"updateStrategy": {"paused": true}}));
        scenario.status(json!({"canary": {"heldReplicas": 1}}));
        scenario.wait(2);
        scenario
    }

    #[test]
    fn a_scale_out_during_a_users_pause_creates_old_pods() {
        for (revision, broken) in [("v1", vec![]), ("v2", vec!["partition"])] {
            let mut scenario = paused();
            scenario.spec("user", json!({"replicas": 5}));
            scenario.wait(2);
            scenario.create("e", revision);
            assert_eq!(scenario.broken(), broken, "{revision}");
        }
    }

    #[test]
    fn a_new_template_during_a_users_pause_gets_no_pod() {
        let mut scenario = paused();
        scenario.spec("user", json!({"replicas": 5, "template": {"image": "v3"}}));
        scenario.status(json!({"updateRevision": "v3"}));
        scenario.wait(2);
        scenario.create("e", "v3");
        assert_eq!(scenario.broken(), ["partition"]);
    }

    #[test]
    fn a_lost_status_does_not_complete_a_rollout() {
        for (stable, broken) in [("v1", vec![]), ("v2", vec!["partition"])] {
            let mut scenario = paused();
            scenario.status(json!({"updateRevision": "", "canary": {"revision": ""}}));
            let reconstructed = json!({"updateRevision": "v2", "canary": {"revision": stable}});
            scenario.status(reconstructed);
            assert_eq!(scenario.broken(), broken, "{stable}");
        }
    }

    #[test]
    fn a_template_that_replaces_one_that_never_worked_may_become_stable_before_all_pods_have_it() {
        let mut scenario = paused();
        scenario.status(json!({"updateRevision": "v2", "canary": {"revision": ""}}));
        scenario.status(json!({"canary": {"revision": "v2"}}));
        assert_eq!(scenario.broken(), [""; 0]);
    }
}
