//! Invariant 3, beyond a number in the spec: while a user pauses a rollout without steps, a scale-out
//! adds no pod of its revision; and a workload whose status was lost is not taken for one without a
//! rollout, which would let every pod be moved.

use std::collections::BTreeMap;

use super::start::count;
use super::{Found, is_held_by_a_user};
use crate::object::{controller, revision, uid};
use crate::replay::history::{Resource, Write};
use crate::replay::workload::Version;
use crate::replay::world::{Pod, World};

/// How many pods of a revision there were when the operator first showed a pause, by workload.
#[derive(Debug, Default)]
pub(crate) struct Holds(BTreeMap<String, (String, i64)>);

impl Holds {
    /// Judges a write after it took effect.
    pub(crate) fn check(
        &mut self,
        world: &World,
        write: &Write,
        is_operators: bool,
    ) -> Option<Found> {
        let why = match write.resource {
            _ if !is_operators => None,
            Resource::Workload if write.subresource == "status" => self.status(world, write),
            Resource::Pod => self.pod(world, write),
            _ => None,
        };
        Some(("partition", why?))
    }

    /// The operator shows what it takes for the stable revision, and that it has seen a pause.
    fn status(&mut self, world: &World, write: &Write) -> Option<String> {
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
        let is_taken_for_done = before.stable_revision().is_empty() && !after.is_rolling();
        let others = pods_at(world, owner, |it| !it.is_empty() && it != update);
        (is_taken_for_done && !others.is_empty()).then(|| {
            let others = count(&others);
            format!("takes {update} for stable while {others} pods are at other revisions")
        })
    }

    /// The operator makes a pod, or moves one.
    fn pod(&self, world: &World, write: &Write) -> Option<String> {
        let after = write.after.as_deref()?;
        let new = revision(after);
        let owner = controller(after)?;
        let (held, most) = self.0.get(owner)?;
        let is_moved = write.before.as_deref().map(revision) != Some(new);
        let newest = world.workloads.get(owner)?.versions.last()?;
        if !is_moved || held != new || !is_held_by_a_user(world, newest, write) {
            return None;
        }
        let updated = count(&pods_at(world, owner, |it| it == new));
        (updated > *most).then(|| {
            format!("makes {updated} pods of {new}, where a user's pause began with {most}")
        })
    }
}

/// Whether a user's pause holds a rollout that has no steps.
fn is_rollout_held(version: &Version) -> bool {
    let is_paused = version.is_paused() && !version.has_pause_annotation();
    is_paused && version.steps().is_empty() && version.is_rolling()
}

fn pods_at<'a>(world: &'a World, owner: &str, is_meant: impl Fn(&str) -> bool) -> Vec<&'a Pod> {
    let pods = world.pods.values();
    let is_its = |pod: &&Pod| controller(&pod.object) == Some(owner) && pod.is_active();
    let pods = pods.filter(is_its);
    pods.filter(|pod| is_meant(pod.revision())).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::story::Story;

    /// A rollout to `v2` that a user paused with one pod of it, and that knows of it.
    fn paused() -> Story {
        let mut story = Story::updating(json!({"type": "InplaceUpdate"}));
        story.close_gate("a");
        story.change("a", "v2");
        story.open_gate("a");
        story.spec("user", json!({"updateStrategy": {"paused": true}}));
        story.status(json!({"canary": {"heldReplicas": 1}}));
        story.wait(2);
        story
    }

    #[test]
    fn a_scale_out_in_a_users_pause_makes_old_pods() {
        for (revision, broken) in [("v1", vec![]), ("v2", vec!["partition"])] {
            let mut story = paused();
            story.spec("user", json!({"replicas": 5}));
            story.wait(2);
            story.create("e", revision);
            assert_eq!(story.broken(), broken, "{revision}");
        }
    }

    #[test]
    fn another_template_in_a_users_pause_gets_no_pod() {
        let mut story = paused();
        story.spec("user", json!({"replicas": 5, "template": {"image": "v3"}}));
        story.status(json!({"updateRevision": "v3"}));
        story.wait(2);
        story.create("e", "v3");
        assert_eq!(story.broken(), ["partition"]);
    }

    #[test]
    fn a_lost_status_is_no_end_of_a_rollout() {
        for (stable, broken) in [("v1", vec![]), ("v2", vec!["partition"])] {
            let mut story = paused();
            story.status(json!({"updateRevision": "", "canary": {"revision": ""}}));
            let found = json!({"updateRevision": "v2", "canary": {"revision": stable}});
            story.status(found);
            assert_eq!(story.broken(), broken, "{stable}");
        }
    }
}
