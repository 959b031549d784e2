//! With OnDelete, the operator starts no update of a pod: users decide when a pod is deleted.

use super::start::{Act, Purpose, Start};
use super::{Found, wrong_under_all};
use crate::replay::history::Write;
use crate::replay::world::World;

/// Checks a write by the operator. `world` is the state before it.
pub(crate) fn on_delete(world: &World, write: &Write) -> Option<Found> {
    let start = Start::of(world, write)?;
    let is_ongoing = start.pod.ongoing_update.is_some();
    let why = wrong_under_all(start.versions, |version| {
        let is_update =
            start.act != Act::Delete || start.purpose(world, version) == Purpose::Update;
        let is_continued = is_ongoing || start.continues(write, version);
        let is_wrong = version.strategy() == "OnDelete" && is_update && !is_continued;
        is_wrong.then(|| format!("{} that starts an update with OnDelete", start.act))
    })?;
    Some(("on delete", why))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::scenario::Scenario;

    #[test]
    fn with_on_delete_no_pod_is_deleted_or_changed_for_an_update() {
        for type_ in ["OnDelete", "InplaceUpdate"] {
            let strategy = json!({"type": type_, "maxUnavailable": 4});
            let mut scenario = Scenario::updating(strategy.clone());
            scenario.delete("a");
            let is_wrong = type_ == "OnDelete";
            assert_eq!(scenario.broken().contains(&"on delete"), is_wrong, "{type_}");
            let mut scenario = Scenario::updating(strategy);
            scenario.close_gate("a");
            assert_eq!(scenario.broken().contains(&"on delete"), is_wrong, "{type_}");
        }
    }

    #[test]
    fn with_on_delete_listed_pods_are_replaced_and_surplus_pods_are_deleted() {
        let mut scenario = Scenario::updating(json!({"type": "OnDelete", "maxUnavailable": 4}));
        scenario.spec("user", json!({"scaleStrategy": {"podsToDelete": ["a"]}}));
        scenario.wait(2);
        scenario.delete("a");
        assert_eq!(scenario.verdict(), []);
        let mut scenario = Scenario::updating(json!({"type": "OnDelete", "maxUnavailable": 4}));
        scenario.spec("user", json!({"replicas": 3}));
        scenario.wait(2);
        scenario.delete("b");
        assert_eq!(scenario.verdict(), []);
    }
}
