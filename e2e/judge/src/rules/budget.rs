//! Invariant 2: neither the start of an update nor the deletion of a surge pod takes the available pods below
//! replicas - maxUnavailable, and there are never more pods than replicas + maxSurge.

use jiff::SignedDuration;

use super::guard::is_on_lost_node;
use super::start::{Act, Purpose, Start, count, is_victim, moved_victims, name};
use super::{Found, wrong_under_all};
use crate::object::uid;
use crate::replay::history::{Resource, Write};
use crate::replay::workload::Version;
use crate::replay::world::{Pod, Workload, World};

/// Checks a write by the operator. `world` is the state before it.
pub(crate) fn budget(world: &World, write: &Write) -> Option<Found> {
    let why = if write.verb == "create" { surge(world, write) } else { availability(world, write) };
    Some(("budget", why?))
}

fn availability(world: &World, write: &Write) -> Option<String> {
    let start = Start::of(world, write)?;
    if start.act == Act::HotPatch || start.pod.ongoing_update.is_some() {
        return None;
    }
    wrong_under_all(start.versions, |version| {
        let removals = [Purpose::ScaleIn, Purpose::Removal];
        let is_scale_in = start.act == Act::Delete
            && removals.contains(&start.purpose(world, version))
            && !is_surge(world, &start, version);
        // A pod that is ready may have players, even if it is not available yet.
        let was_ready = start.pod.is_surely_available(write.received, SignedDuration::ZERO);
        let is_lost = start.act == Act::Delete && is_on_lost_node(&start.pod.object);
        if is_scale_in || is_lost || !was_ready {
            return None;
        }
        let left = others_available(world, &start, version, write);
        let floor = version.replicas() - version.max_unavailable();
        (left < floor).then(|| {
            format!(
                "{} leaves {left} pods available, fewer than {} replicas - {} maxUnavailable",
                start.act,
                version.replicas(),
                version.max_unavailable()
            )
        })
    })
}

/// Whether a pod of a GameStatefulSet was created as a surge pod, and still is one. A pod that waits for its
/// PreDelete hook does not count: the operator chose it before the hook started, and other pods may have become
/// unavailable since.
fn is_surge(world: &World, start: &Start, version: &Version) -> bool {
    let pod = start.pod;
    let name = name(&pod.object);
    let workload = world.workload_of(&pod.object);
    let at_creation = workload.map_or(&[][..], |(_, workload)| workload.seen_at(pod.created));
    let max_pods = version.replicas() + version.max_surge();
    let ordinal = version.ordinal(name);
    version.is_stateful_set()
        && ordinal.is_some_and(|it| version.is_among(it, max_pods))
        && !at_creation.iter().any(|version| version.is_regular(name))
        && !is_victim(world, pod)
}

fn others_available(world: &World, start: &Start, version: &Version, write: &Write) -> i64 {
    let is_other = |pod: &&Pod| uid(&pod.object) != uid(&start.pod.object);
    let others: Vec<&Pod> = world
        .pods_seen_by(write, start.owner)
        .filter(is_other)
        .filter(|pod| !is_victim(world, pod))
        .filter(|pod| pod.ongoing_update.is_none())
        .filter(|pod| pod.may_be_available(write.received, version.min_ready()))
        .collect();
    count(&others) - moved_victims(world, write, start.owner, version, &others)
}

fn surge(world: &World, write: &Write) -> Option<String> {
    let new = write.after.as_ref().filter(|_| write.resource == Resource::Pod)?;
    let (owner, workload): (_, &Workload) = world.workload_of(new)?;
    // Pods that wait for their removal count as well: no pod is created while there are victims.
    let pods: Vec<&Pod> = world.pods_of(owner).filter(|it| it.is_active()).collect();
    wrong_under_all(workload.seen_at(write.received), |version| {
        let max_pods = version.replicas() + version.max_surge();
        let is_wanted = |pod: &&&Pod| {
            let ordinal = version.ordinal(name(&pod.object));
            !version.is_stateful_set() || ordinal.is_some_and(|it| version.is_among(it, max_pods))
        };
        let pods = pods.iter().filter(is_wanted).count() as i64 + 1;
        (pods > max_pods).then(|| {
            format!(
                "leads to {pods} pods, more than {} replicas + {} maxSurge",
                version.replicas(),
                version.max_surge()
            )
        })
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::names;
    use crate::scenario::{OPERATOR, Scenario};

    #[test]
    fn no_more_updates_start_than_max_unavailable_allows() {
        let strategy = json!({"type": "InplaceUpdate", "maxUnavailable": 2});
        let mut scenario = Scenario::updating(strategy);
        scenario.close_gate("a");
        scenario.close_gate("b");
        assert_eq!(scenario.verdict(), []);
        scenario.close_gate("c");
        assert_eq!(scenario.broken(), ["budget"]);
    }

    #[test]
    fn pods_that_fail_on_their_own_count_against_the_budget() {
        let mut scenario =
            Scenario::updating(json!({"type": "InplaceUpdate", "maxUnavailable": 1}));
        scenario.set_ready("d", false);
        scenario.wait(2);
        scenario.close_gate("a");
        assert_eq!(scenario.broken(), ["budget"]);
    }

    #[test]
    fn a_ready_pod_that_waits_to_be_moved_counts_as_available() {
        for (is_ready, broken) in [(true, vec![]), (false, vec!["budget"])] {
            let strategy = json!({"type": "RollingUpdate", "maxUnavailable": 1});
            let mut scenario = Scenario::with(json!({"replicas": 2, "updateStrategy": strategy}));
            for pod in ["a", "b"] {
                scenario.annotate(pod, names::MOVE, "cluster/xa");
                scenario.run(pod, "PreDelete", "");
            }
            scenario.finish("a", "PreDelete", "Failed");
            scenario.set_ready("a", is_ready);
            scenario.wait(2);
            scenario.delete("b");
            assert_eq!(scenario.broken(), broken);
        }
    }

    #[test]
    fn a_pod_to_be_moved_is_a_victim_if_there_are_too_many_pods() {
        for (replicas, broken) in [(4, vec![]), (3, vec!["budget"])] {
            let mut scenario =
                Scenario::updating(json!({"type": "InplaceUpdate", "maxUnavailable": 2}));
            scenario.annotate("a", names::MOVE, "cluster/xa");
            scenario.spec(
                "user",
                json!({
                    "replicas": replicas, "updateStrategy": {"maxUnavailable": replicas - 2},
                }),
            );
            scenario.run("a", "PreDelete", "");
            scenario.wait(2);
            scenario.close_gate("b");
            scenario.close_gate("c");
            assert_eq!(scenario.broken(), broken, "{replicas} replicas");
        }
    }

    #[test]
    fn no_replacement_is_created_for_a_pod_that_waits_for_its_hook() {
        let strategy = json!({"type": "RollingUpdate", "maxUnavailable": 1});
        let mut scenario = Scenario::with(json!({
            "replicas": 2, "updateStrategy": strategy, "scaleStrategy": {"podsToDelete": ["a"]},
        }));
        scenario.run("a", "PreDelete", "");
        scenario.wait(2);
        scenario.create("c", "v1");
        assert_eq!(scenario.broken(), ["budget"]);
    }

    #[test]
    fn an_unready_pod_may_always_be_updated() {
        let mut scenario =
            Scenario::updating(json!({"type": "InplaceUpdate", "maxUnavailable": 1}));
        scenario.set_ready("d", false);
        scenario.set_ready("c", false);
        scenario.wait(2);
        scenario.close_gate("d");
        assert_eq!(scenario.verdict(), []);
    }

    #[test]
    fn a_deletion_by_another_client_may_be_unseen_for_a_second() {
        for (seconds, broken) in [(0, vec![]), (2, vec!["budget"])] {
            let mut scenario =
                Scenario::updating(json!({"type": "InplaceUpdate", "maxUnavailable": 1}));
            scenario.delete_by("garbage collector", "c");
            scenario.delete_by("garbage collector", "d");
            scenario.end("d");
            scenario.wait(seconds);
            scenario.close_gate("a");
            assert_eq!(scenario.broken(), broken, "{seconds} s");
        }
    }

    #[test]
    fn pods_that_another_client_makes_orphans_may_still_be_counted_for_a_second() {
        for (user, seconds, broken) in [
            ("garbage collector", 0, vec![]),
            ("garbage collector", 2, vec!["budget"]),
            (OPERATOR, 0, vec!["budget"]),
        ] {
            let mut scenario =
                Scenario::updating(json!({"type": "InplaceUpdate", "maxUnavailable": 1}));
            scenario.orphan(user, "d");
            scenario.wait(seconds);
            scenario.close_gate("a");
            assert_eq!(scenario.broken(), broken, "{user}, {seconds} s");
        }
    }

    #[test]
    fn a_pod_is_available_only_after_min_ready_seconds() {
        let mut scenario =
            Scenario::updating(json!({"type": "InplaceUpdate", "maxUnavailable": 1}));
        scenario.spec("user", json!({"minReadySeconds": 30}));
        scenario.wait(30);
        scenario.close_gate("a");
        assert_eq!(scenario.verdict(), []);
        scenario.open_gate("a");
        scenario.wait(12);
        scenario.close_gate("b");
        assert_eq!(scenario.broken(), ["budget"], "a has been ready for less than 30 seconds");
    }

    #[test]
    fn an_update_of_a_ready_pod_that_is_not_yet_available_needs_budget() {
        for (restarted, broken) in [(&["d"][..], vec![]), (&["c", "d"], vec!["budget"])] {
            let mut scenario =
                Scenario::updating(json!({"type": "InplaceUpdate", "maxUnavailable": 1}));
            scenario.spec("user", json!({"minReadySeconds": 30}));
            scenario.wait(30);
            for pod in restarted {
                scenario.set_ready(pod, false);
                scenario.set_ready(pod, true);
            }
            scenario.wait(5);
            scenario.close_gate("d");
            assert_eq!(scenario.broken(), broken, "{restarted:?}");
        }
    }

    #[test]
    fn updates_need_budget_but_scale_in_does_not() {
        let rolling = json!({"type": "RollingUpdate", "maxUnavailable": 1});
        let mut scenario = Scenario::updating(rolling.clone());
        scenario.delete("a");
        scenario.delete("b");
        assert_eq!(scenario.broken(), ["budget"]);
        let mut scenario = Scenario::updating(rolling);
        scenario.spec("user", json!({"replicas": 2}));
        scenario.wait(2);
        scenario.delete("a");
        scenario.delete("b");
        assert_eq!(scenario.verdict(), []);
    }

    #[test]
    fn no_more_pods_are_created_than_replicas_plus_max_surge() {
        let mut scenario = Scenario::updating(json!({"type": "RollingUpdate", "maxSurge": 1}));
        scenario.create("e", "v2");
        assert_eq!(scenario.verdict(), []);
        scenario.create("f", "v2");
        assert_eq!(scenario.broken(), ["budget"]);
    }

    #[test]
    fn a_surge_pod_is_deleted_only_when_the_others_are_available() {
        for (is_ready, broken) in [(true, vec![]), (false, vec!["budget"])] {
            let mut scenario = Scenario::stateful_set(json!({
                "replicas": 2, "podManagementPolicy": "Parallel",
                "updateStrategy": {"type": "RollingUpdate", "maxUnavailable": 0, "maxSurge": 1},
            }));
            scenario.create("game-2", "v2");
            scenario.set_ready("game-0", is_ready);
            scenario.wait(2);
            scenario.delete("game-2");
            assert_eq!(scenario.broken(), broken);
        }
    }

    #[test]
    fn a_scale_in_with_surge_does_not_wait_for_other_pods() {
        let mut scenario = Scenario::stateful_set(json!({
            "replicas": 3, "podManagementPolicy": "Parallel",
            "updateStrategy": {"type": "RollingUpdate", "maxUnavailable": 0, "maxSurge": 1},
        }));
        scenario.set_ready("game-0", false);
        scenario.spec("user", json!({"replicas": 2}));
        scenario.wait(2);
        scenario.delete("game-2");
        assert_eq!(scenario.verdict(), []);
    }

    #[test]
    fn with_surge_a_pod_is_deleted_only_when_its_successor_is_available() {
        let strategy = json!({"type": "RollingUpdate", "maxUnavailable": 0, "maxSurge": 1});
        let mut scenario = Scenario::updating(strategy.clone());
        scenario.create("e", "v2");
        scenario.wait(2);
        scenario.delete("a");
        assert_eq!(scenario.verdict(), []);
        let mut scenario = Scenario::updating(strategy);
        scenario.create("e", "v2");
        scenario.set_ready("e", false);
        scenario.wait(2);
        scenario.delete("a");
        assert_eq!(scenario.broken(), ["budget"]);
    }
}
