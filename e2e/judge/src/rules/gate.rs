//! A running pod that has the readiness gate is changed in place only while that is closed: no traffic
//! reaches a container that is restarted, and what is under way is followed to its end.

use super::Found;
use super::start::{Act, Start};
use crate::object::has_gate;
use crate::replay::history::Write;
use crate::replay::world::World;

/// The rule.
pub(crate) fn gate(world: &World, write: &Write) -> Option<Found> {
    let start = Start::of(world, write)?;
    let is_open = has_gate(&start.pod.object) && start.pod.ongoing_update.is_none();
    if start.act != Act::Change || !is_open || start.is_on_idle_pod(write) {
        return None;
    }
    let why = match start.pod.runs() {
        true => "changes a running pod with its gate open",
        false => "changes a pod with its gate open that may have started meanwhile",
    };
    Some(("gate", why.to_owned()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::story::Story;

    fn updating() -> Story {
        Story::updating(json!({"type": "InplaceUpdate", "maxUnavailable": 1}))
    }

    #[test]
    fn a_change_behind_the_gate_is_right() {
        let mut story = updating();
        story.close_gate("a");
        story.change("a", "v2");
        story.open_gate("a");
        assert_eq!(story.verdict(), []);
    }

    #[test]
    fn a_pod_that_has_not_started_is_changed_as_it_was_seen() {
        let mut story = updating();
        story.reports("a", "Pending", false);
        story.if_unchanged().change("a", "v2");
        assert_eq!(story.verdict(), []);
        let mut story = updating();
        story.reports("a", "Pending", false);
        story.change("a", "v2");
        assert_eq!(story.broken(), ["gate"]);
    }

    #[test]
    fn a_change_of_a_running_pod_with_its_gate_open_is_found() {
        let mut story = updating();
        story.change("a", "v2");
        assert_eq!(story.broken(), ["gate"]);
    }
}
