//! Invariant 8: nothing is written about a workload that has all it wants.

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::Found;
use crate::names;
use crate::object::{annotation, controller, is_terminating, label};
use crate::replay::history::{Resource, Write};
use crate::replay::workload::Version;
use crate::replay::world::World;

/// How long a last status or event may take after everything is as wanted.
const AFTERMATH: SignedDuration = SignedDuration::from_secs(3);

/// Since when nothing was left to do.
#[derive(Debug, Default)]
pub(crate) struct Calm {
    since: Option<Timestamp>,
}

impl Calm {
    /// Judges a write after it took effect.
    pub(crate) fn check(
        &mut self,
        world: &World,
        write: &Write,
        is_operators: bool,
    ) -> Option<Found> {
        // The lease and the webhook's certificates are the operator's own, and about no workload.
        let own = ["leases", "secrets"];
        if matches!(&write.resource, Resource::Other(plural) if own.contains(&plural.as_str())) {
            return None;
        }
        let is_status = write.resource == Resource::Workload && write.subresource == "status";
        if is_operators && is_status && !write.changed() {
            return Some(("calm", "a status write that changes nothing".to_owned()));
        }
        let since = self.since;
        // What the operator writes does not make it busy again, or it could excuse itself.
        if since.is_none() || !is_operators {
            self.since = is_settled(world).then_some(write.done);
        }
        let since = since.filter(|since| is_operators && *since + AFTERMATH < write.received)?;
        Some((
            "calm",
            format!("all was as wanted since {since}, and no other client wrote"),
        ))
    }
}

/// Whether every workload of the namespace has all it wants.
fn is_settled(world: &World) -> bool {
    let mut living = world.workloads.iter().filter(|(_, w)| w.gone.is_none());
    let has_some = living.clone().next().is_some();
    has_some
        && living.all(|(uid, workload)| {
            let newest = workload.versions.last();
            newest.is_some_and(|newest| has_all(world, uid, newest))
        })
}

fn has_all(world: &World, uid: &str, workload: &Version) -> bool {
    let object = &workload.object;
    let number = |pointer: &str| object.pointer(pointer).and_then(Value::as_i64).unwrap_or(0);
    let replicas = workload.replicas();
    let counts = [
        "replicas",
        "readyReplicas",
        "availableReplicas",
        "updatedReplicas",
        "updatedReadyReplicas",
    ];
    let counts_are_full = counts
        .iter()
        .all(|name| number(&format!("/status/{name}")) == replicas);
    let is_annotated =
        annotation(object, names::PAUSE).is_some() || annotation(object, names::RETRY).is_some();
    let retries = ["preDelete", "preInplace", "postInplace"]
        .iter()
        .any(|point| {
            object.pointer(&format!("/spec/{point}UpdateStrategy/retry"))
                == Some(&Value::Bool(true))
        });
    let mut runs = world.runs.values();
    let has_runs = runs.any(|run| run.end.is_none() && controller(&run.object) == Some(uid));
    let pods: Vec<_> = world.pods_of(uid).collect();
    let pods_are_right = pods.len() as i64 == replicas
        && pods.iter().all(|pod| {
            pod.is_active()
                && pod.ongoing_update.is_none()
                && annotation(&pod.object, names::DELETING).is_none()
                && label(&pod.object, names::REVISION) == Some(workload.update_revision())
        });
    counts_are_full
        && pods_are_right
        && !(is_annotated || retries || has_runs)
        && !is_terminating(object)
        && number("/status/observedGeneration") == number("/metadata/generation")
        && !workload.is_rolling()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::story::Story;

    fn settled() -> Story {
        let mut story = Story::with(json!({"replicas": 2}));
        story.settle();
        story
    }

    #[test]
    fn a_settled_workload_gets_no_writes() {
        let mut story = settled();
        story.wait(1);
        story.status(json!({"conditions": []}));
        assert_eq!(story.verdict(), [], "a last status may follow");
        story.wait(10);
        story.status(json!({"conditions": [1]}));
        assert_eq!(story.broken(), ["calm"]);
    }

    #[test]
    fn what_another_client_did_is_a_reason_to_write() {
        let mut story = settled();
        story.wait(10);
        story.spec("user", json!({"replicas": 3}));
        story.wait(10);
        story.create("c", "v1");
        assert_eq!(story.verdict(), []);
    }

    #[test]
    fn a_workload_with_a_live_run_is_not_settled() {
        let mut story = Story::with(json!({"replicas": 2}));
        story.run("a", "PreDelete", "");
        story.settle();
        story.wait(10);
        story.drop_run("a", "PreDelete");
        assert_eq!(story.verdict(), []);
    }

    #[test]
    fn a_status_write_that_changes_nothing_is_found() {
        let mut story = settled();
        story.repeat_status();
        assert_eq!(story.broken(), ["calm"]);
    }
}
