//! Invariant 13: the containers of a SidecarSet change in a running pod only with a token of the set, and not together
//! with the template's containers, unless the pod's revision changes as well.
//!
//! SidecarSets are not in the log of a namespace, so how many tokens a set may allot is not checked here.

use serde_json::Value;

use super::Found;
use crate::object::{changed_images, controller, is_terminating, marks, revision};
use crate::replay::history::{Resource, Write};
use crate::replay::world::World;

/// Checks a write by the operator. `world` is the state before it.
pub(crate) fn sidecars(world: &World, write: &Write) -> Option<Found> {
    let before = &world.pods.get(&write.name)?.object;
    let after = write.after.as_deref()?;
    // Pods of other controllers have no workload that acts on tokens.
    let is_ours = controller(before).is_some_and(|uid| world.workloads.contains_key(uid));
    if write.resource != Resource::Pod || !is_ours || is_terminating(before) {
        return None;
    }
    wrong(before, after).map(|why| ("sidecars", why))
}

fn wrong(before: &Value, after: &Value) -> Option<String> {
    let (old, new) = (marks(before), marks(after));
    let changed = changed_images(before, after);
    let mut allowed: Vec<&String> = Vec::new();
    for (set, mark) in &old {
        let is_changed = mark.containers.iter().any(|it| changed.contains(it));
        let new_revision = new.get(set).map(|it| it.revision.as_str());
        let changes_revision = new_revision != Some(&mark.revision);
        if (is_changed || changes_revision) && mark.token.as_deref() != new_revision {
            return Some(format!(
                "updates the containers of SidecarSet {set} to {new_revision:?}, but its token is for {:?}",
                mark.token
            ));
        }
        if changes_revision {
            allowed.extend(&mark.containers);
        }
    }
    let is_sidecar_update = !allowed.is_empty() && revision(before) == revision(after);
    let other = changed.iter().find(|it| !allowed.contains(it));
    let other = other.filter(|_| is_sidecar_update)?;
    Some(format!("changes container {other} together with those of a SidecarSet"))
}

/// The revisions to which a write updates the containers of SidecarSets.
pub(crate) fn revisions_of_updated_sets(before: &Value, after: &Value) -> Vec<String> {
    let old = marks(before);
    let new = marks(after).into_iter();
    let changed = new.filter(|(set, mark)| {
        let old = old.get(set);
        old.is_some_and(|old| old.revision != mark.revision)
    });
    changed.map(|(_, mark)| mark.revision).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::scenario::Scenario;

    /// Two pods with a container `log` of a SidecarSet, at revision log-1.
    fn injected(hook: bool) -> Scenario {
        let mut spec = json!({
            "replicas": 2, "updateStrategy": {"type": "InplaceUpdate", "maxUnavailable": 2},
        });
        if hook {
            spec["preInplaceUpdateStrategy"] = json!({"hook": {"templateName": "test"}});
        }
        let mut scenario = Scenario::with(spec);
        for pod in ["a", "b"] {
            scenario.add_container(pod, "log");
            scenario.mark(pod, &json!({"at": "log-1", "in": ["log"]}));
        }
        scenario.wait(5);
        scenario
    }

    fn allot_token(scenario: &mut Scenario, pod: &str) {
        scenario.mark(pod, &json!({"at": "log-1", "in": ["log"], "to": "log-2"}));
        scenario.wait(2);
    }

    #[test]
    fn an_update_with_a_token_and_its_hook_is_allowed() {
        let mut scenario = injected(true);
        allot_token(&mut scenario, "a");
        scenario.pass("a", "PreInplace", "v1+log-2");
        scenario.close_gate("a");
        scenario.update_sidecar("a", "log-2");
        assert_eq!(scenario.verdict(), []);
    }

    #[test]
    fn an_update_without_a_token_is_a_violation() {
        let mut scenario = injected(false);
        scenario.close_gate("a");
        scenario.update_sidecar("a", "log-2");
        assert_eq!(scenario.broken(), ["sidecars"]);
        let mut scenario = injected(false);
        allot_token(&mut scenario, "a");
        scenario.close_gate("a");
        scenario.update_sidecar("a", "log-3");
        assert_eq!(scenario.broken(), ["sidecars"]);
    }

    #[test]
    fn an_update_whose_hook_ran_for_another_target_is_a_violation() {
        for target in ["v1", "v1+log-1", "v2+log-2"] {
            let mut scenario = injected(true);
            allot_token(&mut scenario, "a");
            scenario.pass("a", "PreInplace", target);
            scenario.close_gate("a");
            scenario.update_sidecar("a", "log-2");
            assert!(scenario.broken().contains(&"hooks"), "{target}");
        }
    }

    #[test]
    fn changing_the_game_together_with_a_sidecar_is_a_violation() {
        let mut scenario = injected(false);
        allot_token(&mut scenario, "a");
        scenario.close_gate("a");
        scenario.update_sidecar_and_game("a", "log-2");
        assert_eq!(scenario.broken(), ["sidecars"]);
    }

    #[test]
    fn the_hook_of_a_sidecar_does_not_cover_the_game() {
        let mut scenario = injected(true);
        allot_token(&mut scenario, "a");
        scenario.pass("a", "PreInplace", "v1+log-2");
        scenario.close_gate("a");
        scenario.update_sidecar("a", "log-2");
        scenario.status(json!({"updateRevision": "v2"}));
        scenario.wait(2);
        scenario.change("a", "v2");
        assert_eq!(scenario.broken(), ["hooks"]);
    }
}
