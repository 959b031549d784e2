//! An in-place update is done, and its pod gets traffic again, only when every container runs the
//! image that it should, and is ready.
//!
//! What a container runs is hard to tell from the outside of a real node; the simulated kubelet
//! tells it at the end of the containerID, after a `#`, for no other purpose than this.

use serde_json::Value;

use super::Found;
use crate::object::{gate_is_closed, gate_is_open, text};
use crate::replay::history::{Resource, Write};
use crate::replay::world::{LAG, World};

/// The rule.
pub(crate) fn done(world: &World, write: &Write) -> Option<Found> {
    if write.resource != Resource::Pod {
        return None;
    }
    let known = world.pods.get(&write.name)?;
    let pod = &known.object;
    let after = write.after.as_ref()?;
    if !gate_is_closed(pod) || !gate_is_open(after) {
        return None;
    }
    // Who crashes a moment before was ready when that was decided.
    let crashed = known.unready_since;
    let may_be_ready = crashed.is_none_or(|since| since + LAG >= write.received);
    let groups = [
        ("/spec/containers", "/status/containerStatuses"),
        ("/spec/initContainers", "/status/initContainerStatuses"),
    ];
    let unfinished = groups.iter().find_map(|(spec, status)| {
        let statuses = after.pointer(status)?.as_array()?;
        let mut containers = after.pointer(spec)?.as_array()?.iter();
        containers.find_map(|container| unfinished(container, statuses, may_be_ready))
    });
    Some(("done", unfinished?))
}

/// What a container lacks, if it keeps running at all.
fn unfinished(container: &Value, statuses: &[Value], may_be_ready: bool) -> Option<String> {
    let name = text(container, "/name");
    let status = statuses
        .iter()
        .find(|status| text(status, "/name") == name)?;
    let (_, runs) = text(status, "/containerID").split_once('#')?;
    let wanted = text(container, "/image");
    if runs != wanted {
        return Some(format!(
            "opens the gate while {name} runs {runs} and not {wanted}"
        ));
    }
    let is_ready = may_be_ready || status.get("ready") == Some(&Value::Bool(true));
    (!is_ready).then(|| format!("opens the gate while {name} is not ready"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::story::Story;

    fn updated() -> Story {
        let update = json!({"type": "InplaceUpdate", "maxUnavailable": 3});
        let mut story = Story::with(json!({"replicas": 3, "updateStrategy": update}));
        story.status(json!({"updateRevision": "v2"}));
        story.wait(2);
        story.close_gate("a");
        story.change("a", "v2");
        story
    }

    #[test]
    fn the_gate_opens_when_the_wanted_image_runs() {
        let mut story = updated();
        story.runs_image("a", "image-v2", true);
        story.open_gate("a");
        assert_eq!(story.verdict(), []);
    }

    #[test]
    fn the_gate_opens_neither_on_the_old_image_nor_before_it_is_ready() {
        for (image, ready) in [("image-v1", true), ("image-v2", false)] {
            let mut story = updated();
            story.runs_image("a", image, ready);
            story.wait(2);
            story.open_gate("a");
            assert_eq!(story.broken(), ["done"], "{image}");
        }
    }

    #[test]
    fn a_crash_is_missed_within_a_second() {
        for (seconds, broken) in [(0, vec![]), (2, vec!["done"])] {
            let mut story = updated();
            story.runs_image("a", "image-v2", true);
            story.runs_image("a", "image-v2", false);
            story.wait(seconds);
            story.open_gate("a");
            assert_eq!(story.broken(), broken, "{seconds} s");
        }
    }
}
