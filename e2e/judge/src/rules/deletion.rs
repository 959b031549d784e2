//! After a workload was deleted, nothing starts for it: no deletion, change or creation of a pod, no hook, and no
//! revision. While the guards of its pods or the garbage collector delay its deletion, pods are only deleted.

use jiff::SignedDuration;

use super::start::{Act, Start};
use super::{Found, wrong_under_all};
use crate::object::is_terminating;
use crate::replay::history::{Resource, Write};
use crate::replay::world::{Workload, World};

/// For how long the operator may act for a workload that was deleted. While the API server or the machine is slow, the
/// operator accepts an older proof that the workload is unchanged (`src/apply/proof.rs`), and many tests delete
/// workloads on a busy machine. An operator that acts without a proof is found if its watch is later than this.
const TOLERANCE: SignedDuration = SignedDuration::from_secs(3);

/// What a write starts.
struct Action<'a> {
    /// In words.
    what: String,
    /// Whether it may be done while the workload is being deleted.
    is_allowed_until_deleted: bool,
    /// The workload that it is done for.
    workload: &'a Workload,
}

/// Checks a write by the operator. `world` is the state before it.
pub(crate) fn deletion(world: &World, write: &Write) -> Option<Found> {
    let Action { what, is_allowed_until_deleted, workload } = Action::of(world, write)?;
    let is_known = |deleted: &_| *deleted + TOLERANCE < write.received;
    let why = match workload.deleted.filter(is_known) {
        Some(deleted) => format!("{what} for a workload that was deleted at {deleted}"),
        None => wrong_under_all(workload.seen_at(write.received), |version| {
            let is_wrong = is_terminating(&version.object) && !is_allowed_until_deleted;
            is_wrong.then(|| format!("{what} for a workload that is being deleted"))
        })?,
    };
    Some(("deletion", why))
}

impl<'a> Action<'a> {
    fn of(world: &'a World, write: &Write) -> Option<Self> {
        if let Some(start) = Start::of_any(world, write) {
            return Some(Action {
                what: format!("{} of a pod", start.act),
                is_allowed_until_deleted: start.act == Act::Delete,
                workload: world.workloads.get(start.owner)?,
            });
        }
        let is_creation = write.verb == "create" && write.subresource.is_empty();
        let new = write.after.as_ref().filter(|_| is_creation)?;
        let (_, workload) = world.workload_of(new)?;
        let kind = match &write.resource {
            Resource::Pod => "pod",
            Resource::HookRun => "HookRun",
            Resource::Other(plural) if plural == "controllerrevisions" => "ControllerRevision",
            _ => return None,
        };
        Some(Action {
            what: format!("creation of a {kind}"),
            is_allowed_until_deleted: write.resource != Resource::Pod,
            workload,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::scenario::Scenario;

    fn updating() -> Scenario {
        Scenario::updating(json!({"type": "InplaceUpdate", "maxUnavailable": 4}))
    }

    type Write = fn(&mut Scenario);

    /// Actions of the operator, each with the first words of the violation that it can be.
    const ACTIONS: [(&str, Write); 7] = [
        ("deletion of a pod", |it| it.delete("a")),
        ("closing of the readiness gate", |it| it.close_gate("a")),
        ("change of a pod", |it| it.change("a", "v2")),
        ("hot patch of a pod", |it| it.hot_patch("a", "v2")),
        ("creation of a pod", |it| it.create("e", "v2")),
        ("creation of a HookRun", |it| it.run("a", "PreDelete", "")),
        ("creation of a ControllerRevision", |it| it.record_template("v3", json!({}))),
    ];

    /// Whether the rule finds exactly this action.
    fn finds(scenario: &Scenario, what: &str) -> bool {
        let mut found = scenario.verdict();
        found.retain(|it| it.rule == "deletion");
        match found.as_slice() {
            [found] => found.why.starts_with(what),
            _ => false,
        }
    }

    #[test]
    fn nothing_starts_for_a_workload_that_was_deleted() {
        for (what, act) in ACTIONS {
            let mut scenario = updating();
            act(&mut scenario);
            assert!(!finds(&scenario, what), "{what} before the deletion");
            let mut scenario = updating();
            scenario.remove_workload();
            scenario.wait(4);
            act(&mut scenario);
            assert!(finds(&scenario, what), "{what} after the deletion");
        }
    }

    #[test]
    fn writes_in_flight_at_the_deletion_are_allowed() {
        for (what, act) in ACTIONS {
            let mut scenario = updating();
            scenario.remove_workload();
            act(&mut scenario);
            assert!(!scenario.broken().contains(&"deletion"), "{what}");
        }
    }

    #[test]
    fn while_a_finalizer_delays_the_deletion_pods_are_only_deleted() {
        for (what, act) in ACTIONS {
            let mut scenario = updating();
            scenario.delete_workload();
            scenario.wait(2);
            act(&mut scenario);
            let is_refused = what != "deletion of a pod" && what.contains("pod");
            let is_refused = is_refused || what == "closing of the readiness gate";
            assert_eq!(finds(&scenario, what), is_refused, "{what}");
        }
    }

    #[test]
    fn a_gate_closed_before_the_deletion_does_not_permit_a_change_but_may_be_opened() {
        let mut scenario = updating();
        scenario.close_gate("a");
        scenario.remove_workload();
        scenario.wait(4);
        let mut changed = scenario.clone();
        changed.change("a", "v2");
        assert!(finds(&changed, "change of a pod"));
        scenario.open_gate("a");
        assert!(!scenario.broken().contains(&"deletion"));
    }
}
