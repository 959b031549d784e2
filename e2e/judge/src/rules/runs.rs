//! Invariant 6: at most one live HookRun per pod and point.

use super::Found;
use super::start::name;
use crate::names;
use crate::object::{annotation, point};
use crate::replay::history::{Resource, Write};
use crate::replay::world::World;

/// The rule.
pub(crate) fn runs(world: &World, write: &Write) -> Option<Found> {
    let is_new = write.resource == Resource::HookRun && write.verb == "create";
    let new = write.after.as_ref().filter(|_| is_new)?;
    let pod = annotation(new, names::RUN_POD_UID).filter(|uid| !uid.is_empty())?;
    let twin = world.runs.values().find(|run| {
        run.end.is_none()
            && annotation(&run.object, names::RUN_POD_UID) == Some(pod)
            && point(&run.object) == point(new)
    })?;
    let (point, twin) = (point(new), name(&twin.object));
    Some((
        "runs",
        format!("a second {point} run for its pod, beside {twin}"),
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::story::Story;

    #[test]
    fn a_pod_has_one_live_run_per_point() {
        let mut story = Story::with(json!({"replicas": 2}));
        story.run("a", "PreDelete", "");
        story.run("b", "PreDelete", "");
        story.run("a", "PreInplace", "v2");
        assert_eq!(story.verdict(), []);
        story.run("a", "PreDelete", "v2");
        assert_eq!(story.broken(), ["runs"]);
    }

    #[test]
    fn a_run_may_follow_one_that_was_deleted() {
        let mut story = Story::with(json!({"replicas": 1}));
        story.run("a", "PreDelete", "");
        story.drop_run("a", "PreDelete");
        story.run("a", "PreDelete", "");
        assert_eq!(story.verdict(), []);
    }
}
