//! createBatch: while the first pods of a workload are created, at most one batch of them is not yet available.
//!
//! The initial creation starts when a workload with createBatch is created, and ends when all pods of the workload are
//! available at the same time. After that, a scale-out, a replacement or an update creates as many pods as it needs.

use std::collections::BTreeSet;

use super::start::{count, is_victim, name};
use super::{Found, wrong_under_all};
use crate::object::{controller, uid};
use crate::replay::history::{Resource, Write};
use crate::replay::workload::Version;
use crate::replay::world::{Pod, World};

/// Uids of the workloads whose initial creation is not complete.
#[derive(Debug, Default)]
pub(crate) struct Batches(BTreeSet<String>);

impl Batches {
    /// Checks a write before it takes effect.
    pub(crate) fn check(
        &mut self,
        world: &World,
        write: &Write,
        by_operator: bool,
    ) -> Option<Found> {
        self.0.retain(|owner| !are_all_available(world, owner, write));
        match write.resource {
            Resource::Workload => self.track_workload(write),
            Resource::Pod => {
                let owner = controller(write.after.as_deref()?)?;
                if is_adoption(write) {
                    self.0.remove(owner);
                }
                if by_operator && write.verb == "create" && self.0.contains(owner) {
                    return Some(("batches", beyond_batch(world, owner, write)?));
                }
            }
            _ => {}
        }
        None
    }

    fn track_workload(&mut self, write: &Write) {
        let Some(after) = &write.after else {
            return;
        };
        let new = Version::of(after, write.done);
        match &write.before {
            None if new.create_batch().is_some() => {
                self.0.insert(uid(after).to_owned());
            }
            // The status was lost, so the operator treats the workload like one that another operator created.
            Some(before) if loses_status(&Version::of(before, write.done), &new) => {
                self.0.remove(uid(after));
            }
            _ => {}
        }
    }
}

fn loses_status(before: &Version, after: &Version) -> bool {
    !before.update_revision().is_empty() && after.update_revision().is_empty()
}

/// Whether a write adopts an orphan. A workload that adopts pods has no initial creation.
fn is_adoption(write: &Write) -> bool {
    let before = write.before.as_deref();
    before.is_some_and(|before| controller(before).is_none())
}

/// Whether all replicas of a workload may be available in the writer's view. If spec.replicas is 0, one pod must be
/// available.
fn are_all_available(world: &World, owner: &str, write: &Write) -> bool {
    let Some(workload) = world.workloads.get(owner) else {
        return false;
    };
    workload.seen_at(write.received).iter().any(|version| {
        let is_available = |pod: &&Pod| pod.may_be_available(write.received, version.min_ready());
        let available: Vec<&Pod> = world.pods_seen_by(write, owner).filter(is_available).collect();
        count(&available) >= version.replicas().max(1)
    })
}

/// What is wrong with the creation of a pod; None if nothing is.
fn beyond_batch(world: &World, owner: &str, write: &Write) -> Option<String> {
    let workload = world.workloads.get(owner)?;
    wrong_under_all(workload.seen_at(write.received), |version| {
        let batch = version.create_batch()?;
        let stays = |pod: &&Pod| {
            let is_wanted = !version.is_stateful_set() || version.is_regular(name(&pod.object));
            is_wanted && pod.is_active() && !is_victim(world, pod)
        };
        let is_unavailable =
            |pod: &&Pod| !pod.may_be_available(write.received, version.min_ready());
        let pods = world.pods_of(owner).filter(stays);
        let awaited: Vec<&Pod> = pods.filter(is_unavailable).collect();
        let awaited = count(&awaited);
        (awaited >= batch)
            .then(|| format!("creates a pod while {awaited} are not available; a batch is {batch}"))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::scenario::Scenario;

    fn batches(size: Value) -> Value {
        json!({"replicas": 4, "scaleStrategy": {"createBatch": size}})
    }

    /// A workload with four replicas, before its first pod is created.
    fn workload_with(batch: Value) -> Scenario {
        Scenario::without_pods("GameDeployment", batches(batch))
    }

    fn create_all(scenario: &mut Scenario, names: &[&str]) {
        for name in names {
            scenario.create_unready(name, "v1");
        }
        scenario.wait(2);
    }

    #[test]
    fn the_next_batch_is_created_when_the_previous_one_is_available() {
        let mut scenario = workload_with(json!("30%"));
        create_all(&mut scenario, &["a", "b"]);
        let mut half_available = scenario.clone();
        half_available.set_ready("a", true);
        half_available.wait(2);
        create_all(&mut half_available, &["c"]);
        assert_eq!(
            half_available.verdict(),
            [],
            "one pod is available, so one more may be created"
        );
        create_all(&mut half_available, &["d"]);
        assert_eq!(half_available.broken(), ["batches"]);
        for pod in ["a", "b"] {
            scenario.set_ready(pod, true);
        }
        scenario.wait(2);
        create_all(&mut scenario, &["c", "d"]);
        assert_eq!(scenario.verdict(), []);
    }

    #[test]
    fn pods_that_are_ready_but_not_yet_available_count_as_unavailable() {
        let mut scenario = workload_with(json!(1));
        scenario.spec("user", json!({"minReadySeconds": 30}));
        scenario.wait(2);
        scenario.create("a", "v1");
        scenario.wait(10);
        scenario.create("b", "v1");
        assert_eq!(scenario.broken(), ["batches"]);
    }

    #[test]
    fn a_smaller_batch_applies_after_one_second() {
        for (seconds, broken) in [(0, vec![]), (2, vec!["batches"])] {
            let mut scenario = workload_with(json!(2));
            create_all(&mut scenario, &["a"]);
            scenario.spec("user", batches(json!(1)));
            scenario.wait(seconds);
            create_all(&mut scenario, &["b"]);
            assert_eq!(scenario.broken(), broken, "{seconds} s");
        }
    }

    #[test]
    fn later_creations_are_not_limited() {
        let mut scenario = Scenario::with(batches(json!(1)));
        scenario.spec("user", json!({"replicas": 6}));
        scenario.wait(2);
        create_all(&mut scenario, &["e", "f"]);
        assert_eq!(scenario.verdict(), []);
    }

    #[test]
    fn a_workload_that_was_not_created_with_batches_is_not_limited() {
        let mut scenario = Scenario::without_pods("GameDeployment", json!({"replicas": 4}));
        scenario.spec("user", batches(json!(1)));
        scenario.wait(2);
        create_all(&mut scenario, &["a", "b"]);
        assert_eq!(scenario.verdict(), []);
        let mut scenario = workload_with(json!(1));
        scenario.status(json!({"updateRevision": ""}));
        scenario.status(json!({"updateRevision": "v1"}));
        create_all(&mut scenario, &["a", "b"]);
        assert!(
            !scenario.broken().contains(&"batches"),
            "a workload that has lost its status is not limited"
        );
    }

    #[test]
    fn only_parallel_sets_have_batches_and_pods_with_reserved_ordinals_do_not_count() {
        let set = |policy: &str| {
            let mut spec = batches(json!(1));
            spec["podManagementPolicy"] = json!(policy);
            let mut scenario = Scenario::without_pods("GameStatefulSet", spec);
            create_all(&mut scenario, &["game-0"]);
            scenario
        };
        for (policy, is_broken) in [("Parallel", true), ("OrderedReady", false)] {
            let mut scenario = set(policy);
            create_all(&mut scenario, &["game-1"]);
            assert_eq!(scenario.broken().contains(&"batches"), is_broken, "{policy}");
        }
        let mut scenario = set("Parallel");
        scenario.spec("user", json!({"reserveOrders": [0]}));
        scenario.wait(2);
        create_all(&mut scenario, &["game-1"]);
        assert_eq!(scenario.verdict(), []);
    }
}
