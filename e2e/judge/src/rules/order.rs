//! If the containers of a pod are updated in order, a container is changed only when those before it run the
//! images in their spec, and with OrderedReady only when the one that was changed last is ready. The simulated
//! kubelet reports which image a container runs: see `completion`.

use serde_json::Value;

use super::start::{Act, Start};
use super::{Found, wrong_under_all};
use crate::object::{changed_images, container_is_ready, containers, running_image};
use crate::replay::history::Write;
use crate::replay::world::{OngoingUpdate, Pod, World};

/// Checks a write by the operator. `world` is the state before it.
pub(crate) fn order(world: &World, write: &Write) -> Option<Found> {
    let start = Start::of(world, write)?;
    if start.act != Act::Change || start.is_on_idle_pod(write) {
        return None;
    }
    let after = write.after.as_deref()?;
    let premature = premature_change(&start.pod.object, after);
    let unready = unready_predecessor(start.pod, after);
    let wrong = wrong_under_all(start.versions, |version| {
        let unready = unready.as_ref().filter(|_| version.awaits_readiness());
        let premature = premature.as_ref().filter(|_| version.updates_in_order());
        premature.or(unready).cloned()
    });
    Some(("order", wrong?))
}

/// What is wrong with a change of images; None if nothing is.
fn premature_change(before: &Value, after: &Value) -> Option<String> {
    let changed = changed_images(before, after);
    let first = changed.first()?;
    if changed.len() > 1 {
        return Some(format!("changes {} in one write", changed.join(" and ")));
    }
    let containers = containers(before);
    let mut preceding = containers.iter().take_while(|(name, ..)| name != first);
    preceding.find_map(|(name, wanted, _)| {
        let running = running_image(before, name)?;
        let why = || format!("changes {first} while {name} runs {running} instead of {wanted}");
        (running != wanted).then(why)
    })
}

/// Why the next container must not be changed yet: a preceding one, which was changed last, is not ready. No lag is
/// tolerated here, because the write fails on any version of the pod other than the one that the operator observed.
fn unready_predecessor(pod: &Pod, after: &Value) -> Option<String> {
    if pod.ongoing_update != Some(OngoingUpdate::Gate { changed: true }) {
        return None;
    }
    let changed = changed_images(&pod.object, after);
    let first = changed.first()?;
    let containers = containers(&pod.object);
    let preceding = containers.iter().take_while(|(name, ..)| name != first);
    let mut changed_last = preceding.filter(|(name, ..)| pod.last_changed.contains(name));
    let (name, ..) = changed_last.find(|(name, ..)| !container_is_ready(&pod.object, name))?;
    Some(format!("changes {first} while {name} is not ready"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::scenario::Scenario;

    fn updating(policy: &str) -> Scenario {
        let strategy = json!({"type": "InplaceUpdate", "maxUnavailable": 1,
            "inPlaceUpdateStrategy": {"policy": policy}});
        let mut scenario = Scenario::updating(strategy);
        scenario.add_container("a", "log");
        scenario.report_images("a", ["image-v1", "image-v1"]);
        scenario.close_gate("a");
        scenario
    }

    #[test]
    fn containers_may_be_changed_in_order_even_while_paused() {
        let mut scenario = updating("OrderedUpdated");
        scenario.change("a", "v2");
        scenario.spec("user", json!({"updateStrategy": {"paused": true}}));
        scenario.wait(2);
        scenario.report_images("a", ["image-v2", "image-v1"]);
        scenario.change_container("a", 1, "v2");
        scenario.report_images("a", ["image-v2", "image-v2"]);
        scenario.open_gate("a");
        assert_eq!(scenario.verdict(), []);
    }

    #[test]
    fn changing_a_container_before_the_previous_one_runs_its_image_is_a_violation() {
        for (policy, broken) in [("OrderedReady", vec!["order"]), ("DisOrdered", vec![])] {
            let mut scenario = updating(policy);
            scenario.change("a", "v2");
            scenario.change_container("a", 1, "v2");
            assert_eq!(scenario.broken(), broken, "{policy}");
        }
    }

    #[test]
    fn changing_a_container_before_the_previous_one_is_ready_is_a_violation() {
        for (policy, broken) in [("OrderedReady", vec!["order"]), ("OrderedUpdated", vec![])] {
            let mut scenario = updating(policy);
            scenario.change("a", "v2");
            scenario.report_images("a", ["image-v2", "image-v1"]);
            scenario.report_unready_container("a", 0);
            scenario.change_container("a", 1, "v2");
            assert_eq!(scenario.broken(), broken, "{policy}");
        }
        // A container that this update does not change need not be ready.
        let mut scenario = updating("OrderedReady");
        scenario.report_unready_container("a", 0);
        scenario.change_container("a", 1, "v2");
        assert_eq!(scenario.verdict(), []);
    }

    #[test]
    fn changing_two_containers_in_one_write_is_a_violation() {
        for (policy, broken) in [("OrderedReady", vec!["order"]), ("DisOrdered", vec![])] {
            let mut scenario = updating(policy);
            scenario.change_two_containers("a", "v2");
            assert_eq!(scenario.broken(), broken, "{policy}");
        }
    }
}
