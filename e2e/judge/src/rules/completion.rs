//! A pod's gate opens after an in-place update only when every container runs its new image and is
//! ready.
//!
//! A real kubelet does not report reliably which image a container runs. For the judge, the simulated kubelet
//! appends the image to the containerID, after a `#`.

use serde_json::Value;

use super::Found;
use crate::object::{gate_is_closed, gate_is_open, image_in_id, text};
use crate::replay::history::{Resource, Write};
use crate::replay::world::{LAG, World};

/// Checks a write by the operator. `world` is the state before it.
pub(crate) fn completion(world: &World, write: &Write) -> Option<Found> {
    if write.resource != Resource::Pod {
        return None;
    }
    let known = world.pods.get(&write.name)?;
    let pod = &known.object;
    let after = write.after.as_ref()?;
    if !gate_is_closed(pod) || !gate_is_open(after) {
        return None;
    }
    // A pod that crashed just before the write may have been ready when the operator decided.
    let unready_since = known.unready_since;
    let may_be_ready = unready_since.is_none_or(|since| since + LAG >= write.received);
    let groups = [
        ("/spec/containers", "/status/containerStatuses"),
        ("/spec/initContainers", "/status/initContainerStatuses"),
    ];
    let unfinished = groups.iter().find_map(|(spec, status)| {
        let statuses = after.pointer(status)?.as_array()?;
        let mut containers = after.pointer(spec)?.as_array()?.iter();
        containers.find_map(|container| unfinished(container, statuses, may_be_ready))
    });
    Some(("completion", unfinished?))
}

/// Why the update of a container is not complete. None if it is complete, or if the containerID contains no image.
fn unfinished(container: &Value, statuses: &[Value], may_be_ready: bool) -> Option<String> {
    let name = text(container, "/name");
    let status = statuses.iter().find(|status| text(status, "/name") == name)?;
    let running = image_in_id(status)?;
    let wanted = text(container, "/image");
    if running != wanted {
        return Some(format!("opens the gate while {name} runs {running} instead of {wanted}"));
    }
    let is_ready = may_be_ready || status.get("ready") == Some(&Value::Bool(true));
    (!is_ready).then(|| format!("opens the gate while {name} is not ready"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::scenario::Scenario;

    fn updated() -> Scenario {
        let update = json!({"type": "InplaceUpdate", "maxUnavailable": 3});
        let mut scenario = Scenario::with(json!({"replicas": 3, "updateStrategy": update}));
        scenario.status(json!({"updateRevision": "v2"}));
        scenario.wait(2);
        scenario.close_gate("a");
        scenario.change("a", "v2");
        scenario
    }

    #[test]
    fn the_gate_may_open_when_the_wanted_image_runs() {
        let mut scenario = updated();
        scenario.report_image("a", "image-v2", true);
        scenario.open_gate("a");
        assert_eq!(scenario.verdict(), []);
    }

    #[test]
    fn opening_the_gate_with_the_old_image_or_an_unready_container_is_a_violation() {
        for (image, ready) in [("image-v1", true), ("image-v2", false)] {
            let mut scenario = updated();
            scenario.report_image("a", image, ready);
            scenario.wait(2);
            scenario.open_gate("a");
            assert_eq!(scenario.broken(), ["completion"], "{image}");
        }
    }

    #[test]
    fn a_crash_may_be_unseen_for_a_second() {
        for (seconds, broken) in [(0, vec![]), (2, vec!["completion"])] {
            let mut scenario = updated();
            scenario.report_image("a", "image-v2", true);
            scenario.report_image("a", "image-v2", false);
            scenario.wait(seconds);
            scenario.open_gate("a");
            assert_eq!(scenario.broken(), broken, "{seconds} s");
        }
    }
}
