//! A running pod with the readiness gate is changed in place only while the gate is closed, so that no traffic
//! reaches a container that restarts.

use super::Found;
use super::start::{Act, Start};
use crate::object::has_gate;
use crate::replay::history::Write;
use crate::replay::world::World;

/// Checks a write by the operator. `world` is the state before it.
pub(crate) fn gate(world: &World, write: &Write) -> Option<Found> {
    let start = Start::of(world, write)?;
    let is_open = has_gate(&start.pod.object) && start.pod.ongoing_update.is_none();
    if start.act != Act::Change || !is_open || start.is_on_idle_pod(write) {
        return None;
    }
    let why = match start.pod.is_running() {
        true => "changes a running pod with its gate open",
        false => "changes a pod that may have started in the meantime, with its gate open",
    };
    Some(("gate", why.to_owned()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::scenario::Scenario;

    fn updating() -> Scenario {
        Scenario::updating(json!({"type": "InplaceUpdate", "maxUnavailable": 1}))
    }

    #[test]
    fn a_change_with_a_closed_gate_is_allowed() {
        let mut scenario = updating();
        scenario.close_gate("a");
        scenario.change("a", "v2");
        scenario.open_gate("a");
        assert_eq!(scenario.verdict(), []);
    }

    #[test]
    fn a_change_of_a_pod_that_has_not_started_needs_a_precondition() {
        let mut scenario = updating();
        scenario.report_phase("a", "Pending", false);
        scenario.if_unchanged().change("a", "v2");
        assert_eq!(scenario.verdict(), []);
        let mut scenario = updating();
        scenario.report_phase("a", "Pending", false);
        scenario.change("a", "v2");
        assert_eq!(scenario.broken(), ["gate"]);
    }

    #[test]
    fn a_change_of_a_running_pod_with_its_gate_open_is_a_violation() {
        let mut scenario = updating();
        scenario.change("a", "v2");
        assert_eq!(scenario.broken(), ["gate"]);
    }
}
