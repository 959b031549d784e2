//! Invariant 6: at most one live HookRun per pod and point.

use super::Found;
use super::start::name;
use crate::names;
use crate::object::{annotation, point};
use crate::replay::history::{Resource, Write};
use crate::replay::world::World;

/// Checks a write by the operator. `world` is the state before it.
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
    Some(("runs", format!("a second {point} run for the same pod, in addition to {twin}")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::scenario::Scenario;

    #[test]
    fn a_pod_has_one_live_run_per_point() {
        let mut scenario = Scenario::with(json!({"replicas": 2}));
        scenario.run("a", "PreDelete", "");
        scenario.run("b", "PreDelete", "");
        scenario.run("a", "PreInplace", "v2");
        assert_eq!(scenario.verdict(), []);
        scenario.run("a", "PreDelete", "v2");
        assert_eq!(scenario.broken(), ["runs"]);
    }

    #[test]
    fn a_run_may_follow_one_that_was_deleted() {
        let mut scenario = Scenario::with(json!({"replicas": 1}));
        scenario.run("a", "PreDelete", "");
        scenario.delete_run("a", "PreDelete");
        scenario.run("a", "PreDelete", "");
        assert_eq!(scenario.verdict(), []);
    }
}
