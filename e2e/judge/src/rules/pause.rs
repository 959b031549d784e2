//! Invariant 5: while paused, no pod update starts.

use super::start::{Act, Purpose, Start};
use super::{Found, wrong_under_all};
use crate::object::revision;
use crate::replay::history::Write;
use crate::replay::workload::Version;
use crate::replay::world::{OngoingUpdate, World};

/// Checks a write by the operator. `world` is the state before it.
pub(crate) fn pause(world: &World, write: &Write) -> Option<Found> {
    let start = Start::of(world, write)?;
    let has_begun = match start.pod.ongoing_update {
        Some(OngoingUpdate::Gate { changed }) => changed,
        Some(OngoingUpdate::Restart { .. }) => true,
        None => false,
    };
    // A change of resources takes a request of its own. So does each further container if containers are updated in
    // order.
    let new_revision = write.after.as_deref().map(revision);
    let is_further_change = start.act == Act::Change && new_revision == Some(start.pod.revision());
    if has_begun && (write.subresource == "resize" || is_further_change) {
        return None;
    }
    let wrong = |version: &Version| {
        let is_update =
            start.act != Act::Delete || start.purpose(world, version) == Purpose::Update;
        (is_update && version.is_paused() && !start.continues(write, version))
            .then(|| format!("{} of a pod for an update while paused", start.act))
    };
    Some(("pause", wrong_under_all(start.versions, wrong)?))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::scenario::Scenario;

    fn updating(strategy: &str) -> Scenario {
        let update = json!({"type": strategy, "maxUnavailable": 3});
        let mut scenario = Scenario::with(json!({"replicas": 3, "updateStrategy": update}));
        scenario.status(json!({"updateRevision": "v2"}));
        scenario.wait(2);
        scenario
    }

    fn paused(strategy: &str) -> Scenario {
        let mut scenario = updating(strategy);
        scenario.spec("user", json!({"updateStrategy": {"paused": true}}));
        scenario.wait(2);
        scenario
    }

    #[test]
    fn no_update_starts_while_paused() {
        let mut scenario = paused("InplaceUpdate");
        scenario.close_gate("a");
        assert_eq!(scenario.broken(), ["pause"]);
        let mut scenario = paused("RollingUpdate");
        scenario.delete("a");
        assert_eq!(scenario.broken(), ["pause"]);
        let mut scenario = paused("HotPatchUpdate");
        scenario.hot_patch("a", "v2");
        assert_eq!(scenario.broken(), ["pause"]);
    }

    #[test]
    fn a_gate_closed_before_the_pause_does_not_permit_a_change() {
        let mut scenario = updating("InplaceUpdate");
        scenario.close_gate("a");
        scenario.spec("user", json!({"updateStrategy": {"paused": true}}));
        scenario.wait(2);
        scenario.change("a", "v2");
        assert_eq!(scenario.broken(), ["pause"]);
    }

    #[test]
    fn a_write_in_flight_at_the_pause_is_allowed() {
        let mut scenario = updating("InplaceUpdate");
        scenario.spec("user", json!({"updateStrategy": {"paused": true}}));
        scenario.close_gate("a");
        assert_eq!(scenario.verdict(), []);
    }

    #[test]
    fn a_surge_pod_may_be_deleted_while_paused() {
        let surging = json!({"type": "RollingUpdate", "maxUnavailable": 0, "maxSurge": 1});
        let mut scenario = Scenario::with(json!({"replicas": 3, "updateStrategy": surging}));
        scenario.status(json!({"updateRevision": "v2"}));
        scenario.wait(2);
        scenario.create("d", "v2");
        scenario.spec("user", json!({"updateStrategy": {"paused": true}}));
        scenario.wait(2);
        scenario.delete("d");
        assert_eq!(scenario.verdict(), []);
        scenario.delete("a");
        assert!(scenario.broken().contains(&"pause"));
    }

    #[test]
    fn scaling_continues_while_paused() {
        let mut scenario = paused("InplaceUpdate");
        scenario.spec("user", json!({"replicas": 2}));
        scenario.wait(2);
        scenario.delete("a");
        assert_eq!(scenario.verdict(), []);
    }
}
