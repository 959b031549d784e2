//! Invariant 2: no start of an update takes the available pods below replicas - maxUnavailable,
//! and there are never more pods than replicas + maxSurge.

use jiff::SignedDuration;

use super::start::{Act, Purpose, Start, count, is_victim, name};
use super::{Found, right_under_one};
use crate::object::uid;
use crate::replay::history::{Resource, Write};
use crate::replay::workload::Version;
use crate::replay::world::{Pod, Workload, World};

/// The rule.
pub(crate) fn budget(world: &World, write: &Write) -> Option<Found> {
    let why = if write.verb == "create" {
        surge(world, write)
    } else {
        availability(world, write)
    };
    Some(("budget", why?))
}

fn availability(world: &World, write: &Write) -> Option<String> {
    let start = Start::of(world, write)?;
    if start.act == Act::HotPatch || start.pod.ongoing_update.is_some() {
        return None;
    }
    right_under_one(start.versions, |version| {
        let is_scale_in =
            start.act == Act::Delete && start.purpose(world, version) == Purpose::ScaleIn;
        // Ready for however short a time, it may have players.
        let was_ready = start
            .pod
            .is_surely_available(write.received, SignedDuration::ZERO);
        if is_scale_in || !was_ready {
            return None;
        }
        let left = others_available(world, &start, version, write);
        let floor = version.replicas() - version.max_unavailable();
        (left < floor).then(|| {
            format!(
                "{:?} leaves {left} pods available, fewer than {} replicas - {} maxUnavailable",
                start.act,
                version.replicas(),
                version.max_unavailable()
            )
        })
    })
}

fn others_available(world: &World, start: &Start, version: &Version, write: &Write) -> i64 {
    let is_other = |pod: &&Pod| uid(&pod.object) != uid(&start.pod.object);
    let others: Vec<&Pod> = world
        .pods_seen_by(write, start.owner)
        .filter(is_other)
        .filter(|pod| pod.ongoing_update.is_none() && !is_victim(world, pod))
        .filter(|pod| pod.may_be_available(write.received, version.min_ready()))
        .collect();
    count(&others)
}

fn surge(world: &World, write: &Write) -> Option<String> {
    let new = write
        .after
        .as_ref()
        .filter(|_| write.resource == Resource::Pod)?;
    let (owner, workload): (_, &Workload) = world.workload_of(new)?;
    let counts = |pod: &&Pod| pod.is_active() && !is_victim(world, pod);
    let pods: Vec<&Pod> = world.pods_of(owner).filter(counts).collect();
    right_under_one(workload.seen_at(write.received), |version| {
        let most = version.replicas() + version.max_surge();
        let ordinals = version.ordinals();
        let wanted = ordinals.start..ordinals.end + version.max_surge();
        let is_wanted = |pod: &&&Pod| {
            let ordinal = version.ordinal(name(&pod.object));
            !version.is_set() || ordinal.is_some_and(|it| wanted.contains(&it))
        };
        let pods = pods.iter().filter(is_wanted).count() as i64 + 1;
        (pods > most).then(|| {
            format!(
                "makes {pods} pods, more than {} replicas + {} maxSurge",
                version.replicas(),
                version.max_surge()
            )
        })
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::story::Story;

    #[test]
    fn as_many_as_max_unavailable_may_start() {
        let strategy = json!({"type": "InplaceUpdate", "maxUnavailable": 2});
        let mut story = Story::updating(strategy);
        story.close_gate("a");
        story.close_gate("b");
        assert_eq!(story.verdict(), []);
        story.close_gate("c");
        assert_eq!(story.broken(), ["budget"]);
    }

    #[test]
    fn pods_that_broke_by_themselves_use_the_budget_up() {
        let mut story = Story::updating(json!({"type": "InplaceUpdate", "maxUnavailable": 1}));
        story.set_ready("d", false);
        story.wait(2);
        story.close_gate("a");
        assert_eq!(story.broken(), ["budget"]);
    }

    #[test]
    fn a_pod_that_is_not_available_may_always_be_updated() {
        let mut story = Story::updating(json!({"type": "InplaceUpdate", "maxUnavailable": 1}));
        story.set_ready("d", false);
        story.set_ready("c", false);
        story.wait(2);
        story.close_gate("d");
        assert_eq!(story.verdict(), []);
    }

    #[test]
    fn pods_that_another_client_deletes_are_missed_within_a_second() {
        for (seconds, broken) in [(0, vec![]), (2, vec!["budget"])] {
            let mut story = Story::updating(json!({"type": "InplaceUpdate", "maxUnavailable": 1}));
            story.delete_by("garbage collector", "c");
            story.delete_by("garbage collector", "d");
            story.end("d");
            story.wait(seconds);
            story.close_gate("a");
            assert_eq!(story.broken(), broken, "{seconds} s");
        }
    }

    #[test]
    fn min_ready_seconds_count() {
        let mut story = Story::updating(json!({"type": "InplaceUpdate", "maxUnavailable": 1}));
        story.spec("user", json!({"minReadySeconds": 30}));
        story.wait(30);
        story.close_gate("a");
        assert_eq!(story.verdict(), []);
        story.open_gate("a");
        story.wait(12);
        story.close_gate("b");
        assert_eq!(
            story.broken(),
            ["budget"],
            "a is ready, but not for 30 seconds"
        );
    }

    #[test]
    fn a_pod_that_is_not_available_yet_is_one_of_those_that_may_be_unavailable() {
        for (restarted, broken) in [(&["d"][..], vec![]), (&["c", "d"], vec!["budget"])] {
            let mut story = Story::updating(json!({"type": "InplaceUpdate", "maxUnavailable": 1}));
            story.spec("user", json!({"minReadySeconds": 30}));
            story.wait(30);
            for pod in restarted {
                story.set_ready(pod, false);
                story.set_ready(pod, true);
            }
            story.wait(5);
            story.close_gate("d");
            assert_eq!(story.broken(), broken, "{restarted:?}");
        }
    }

    #[test]
    fn deletions_for_an_update_need_budget_and_scaling_in_does_not() {
        let rolling = json!({"type": "RollingUpdate", "maxUnavailable": 1});
        let mut story = Story::updating(rolling.clone());
        story.delete("a");
        story.delete("b");
        assert_eq!(story.broken(), ["budget"]);
        let mut story = Story::updating(rolling);
        story.spec("user", json!({"replicas": 2}));
        story.wait(2);
        story.delete("a");
        story.delete("b");
        assert_eq!(story.verdict(), []);
    }

    #[test]
    fn no_more_pods_than_replicas_and_surge() {
        let mut story = Story::updating(json!({"type": "RollingUpdate", "maxSurge": 1}));
        story.create("e", "v2");
        assert_eq!(story.verdict(), []);
        story.create("f", "v2");
        assert_eq!(story.broken(), ["budget"]);
    }

    #[test]
    fn with_surge_a_pod_goes_only_when_its_successor_is_available() {
        let strategy = json!({"type": "RollingUpdate", "maxUnavailable": 0, "maxSurge": 1});
        let mut story = Story::updating(strategy.clone());
        story.create("e", "v2");
        story.wait(2);
        story.delete("a");
        assert_eq!(story.verdict(), []);
        let mut story = Story::updating(strategy);
        story.create("e", "v2");
        story.set_ready("e", false);
        story.wait(2);
        story.delete("a");
        assert_eq!(story.broken(), ["budget"]);
    }
}
