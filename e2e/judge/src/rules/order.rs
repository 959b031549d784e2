//! If the containers of a pod are updated in order, a container is changed only when those before it run the
//! images in their spec. The simulated kubelet reports which image a container runs: see `completion`.

use serde_json::Value;

use super::start::{Act, Start};
use super::{Found, wrong_under_all};
use crate::object::{containers, running_image};
use crate::replay::history::Write;
use crate::replay::world::World;

/// The rule.
pub(crate) fn order(world: &World, write: &Write) -> Option<Found> {
    let start = Start::of(world, write)?;
    if start.act != Act::Change || start.is_on_idle_pod(write) {
        return None;
    }
    let why = early_change(&start.pod.object, write.after.as_deref()?)?;
    let wrong = wrong_under_all(start.versions, |version| {
        version.updates_in_order().then(|| why.clone())
    });
    Some(("order", wrong?))
}

/// What is wrong with a change of images; None if nothing is.
fn early_change(before: &Value, after: &Value) -> Option<String> {
    let (before_it, after_it) = (containers(before), containers(after));
    let pairs = before_it.iter().zip(&after_it).enumerate();
    let changed = pairs.filter(|(_, (old, new))| old.1 != new.1);
    let changed: Vec<usize> = changed.map(|(place, _)| place).collect();
    let first = *changed.first()?;
    let name = |place: usize| before_it[place].0.as_str();
    if changed.len() > 1 {
        let names: Vec<&str> = changed.into_iter().map(name).collect();
        return Some(format!("changes {} at once", names.join(" and ")));
    }
    before_it[..first].iter().find_map(|(ahead, wanted, _)| {
        let runs = running_image(before, ahead)?;
        (runs != wanted).then(|| {
            let name = name(first);
            format!("changes {name} while {ahead} runs {runs} and not {wanted}")
        })
    })
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
        scenario.run_images("a", ["image-v1", "image-v1"]);
        scenario.close_gate("a");
        scenario
    }

    #[test]
    fn containers_may_be_changed_in_order_even_while_paused() {
        let mut scenario = updating("OrderedUpdated");
        scenario.change("a", "v2");
        scenario.spec("user", json!({"updateStrategy": {"paused": true}}));
        scenario.wait(2);
        scenario.run_images("a", ["image-v2", "image-v1"]);
        scenario.change_container("a", 1, "v2");
        scenario.run_images("a", ["image-v2", "image-v2"]);
        scenario.open_gate("a");
        assert_eq!(scenario.verdict(), []);
    }

    #[test]
    fn a_container_that_is_changed_too_early_is_found() {
        for (policy, broken) in [("OrderedReady", vec!["order"]), ("DisOrdered", vec![])] {
            let mut scenario = updating(policy);
            scenario.change("a", "v2");
            scenario.change_container("a", 1, "v2");
            assert_eq!(scenario.broken(), broken, "{policy}");
        }
    }

    #[test]
    fn a_change_of_two_containers_at_once_is_found() {
        for (policy, broken) in [("OrderedReady", vec!["order"]), ("DisOrdered", vec![])] {
            let mut scenario = updating(policy);
            scenario.change_all("a", "v2");
            assert_eq!(scenario.broken(), broken, "{policy}");
        }
    }
}
