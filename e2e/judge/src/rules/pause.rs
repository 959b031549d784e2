//! Invariant 5: while paused, no pod update starts.

use super::start::{Act, Purpose, Start};
use super::{Found, right_under_one};
use crate::replay::history::Write;
use crate::replay::workload::Version;
use crate::replay::world::{OngoingUpdate, World};

/// The rule.
pub(crate) fn pause(world: &World, write: &Write) -> Option<Found> {
    let start = Start::of(world, write)?;
    let is_begun = match start.pod.ongoing_update {
        Some(OngoingUpdate::Gate { changed }) => changed,
        Some(OngoingUpdate::Restart { .. }) => true,
        None => false,
    };
    // A pod that was patched gets the resources of that patch through a request of its own.
    if is_begun && write.subresource == "resize" {
        return None;
    }
    let wrong = |version: &Version| {
        let is_update =
            start.act != Act::Delete || start.purpose(world, version) == Purpose::Update;
        (is_update && version.is_paused())
            .then(|| format!("{:?} of a pod for an update while paused", start.act))
    };
    Some(("pause", right_under_one(start.versions, wrong)?))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::story::Story;

    fn updating(strategy: &str) -> Story {
        let update = json!({"type": strategy, "maxUnavailable": 3});
        let mut story = Story::with(json!({"replicas": 3, "updateStrategy": update}));
        story.status(json!({"updateRevision": "v2"}));
        story.wait(2);
        story
    }

    fn paused(strategy: &str) -> Story {
        let mut story = updating(strategy);
        story.spec("user", json!({"updateStrategy": {"paused": true}}));
        story.wait(2);
        story
    }

    #[test]
    fn no_update_starts_while_paused() {
        let mut story = paused("InplaceUpdate");
        story.close_gate("a");
        assert_eq!(story.broken(), ["pause"]);
        let mut story = paused("RollingUpdate");
        story.delete("a");
        assert_eq!(story.broken(), ["pause"]);
        let mut story = paused("HotPatchUpdate");
        story.hot_patch("a", "v2");
        assert_eq!(story.broken(), ["pause"]);
    }

    #[test]
    fn a_gate_that_was_closed_before_the_pause_lets_no_change_follow() {
        let mut story = updating("InplaceUpdate");
        story.close_gate("a");
        story.spec("user", json!({"updateStrategy": {"paused": true}}));
        story.wait(2);
        story.change("a", "v2");
        assert_eq!(story.broken(), ["pause"]);
    }

    #[test]
    fn what_was_on_its_way_when_the_pause_came_is_forgiven() {
        let mut story = updating("InplaceUpdate");
        story.spec("user", json!({"updateStrategy": {"paused": true}}));
        story.close_gate("a");
        assert_eq!(story.verdict(), []);
    }

    #[test]
    fn a_pod_that_an_update_has_made_above_replicas_may_go_while_paused() {
        let surging = json!({"type": "RollingUpdate", "maxUnavailable": 0, "maxSurge": 1});
        let mut story = Story::with(json!({"replicas": 3, "updateStrategy": surging}));
        story.status(json!({"updateRevision": "v2"}));
        story.wait(2);
        story.create("d", "v2");
        story.spec("user", json!({"updateStrategy": {"paused": true}}));
        story.wait(2);
        story.delete("d");
        assert_eq!(story.verdict(), []);
        story.delete("a");
        assert!(story.broken().contains(&"pause"));
    }

    #[test]
    fn scaling_goes_on_while_paused() {
        let mut story = paused("InplaceUpdate");
        story.spec("user", json!({"replicas": 2}));
        story.wait(2);
        story.delete("a");
        assert_eq!(story.verdict(), []);
    }
}
