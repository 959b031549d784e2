//! Guarded pods have the annotations that keep autoscalers from removing their node. Where the template sets one of
//! them itself, the template's value stays.
//!
//! The template is that of the pod's own revision, as its ControllerRevision records it.

use super::Found;
use super::guard::{has_guard_label, protects};
use crate::names::AUTOSCALER_ANNOTATIONS;
use crate::object::{annotation, is_terminating, revision};
use crate::replay::history::{Resource, Write};
use crate::replay::world::World;

/// Checks a write by the operator. `world` is the state before it.
pub(crate) fn autoscalers(world: &World, write: &Write) -> Option<Found> {
    let pod = write.after.as_deref()?;
    if write.resource != Resource::Pod || is_terminating(pod) {
        return None;
    }
    let before = write.before.as_deref();
    let template = world.templates.get(revision(pod))?;
    let (_, workload) = world.workload_of(pod)?;
    // A webhook may remove the label and leave the annotations.
    let may_be_guarded = workload.seen_at(write.received).iter().any(protects);
    let why = AUTOSCALER_ANNOTATIONS.into_iter().find_map(|(key, kept)| {
        let now = annotation(pod, key);
        let is_as_before = before.is_some_and(|before| annotation(before, key) == now);
        let becomes_guarded = has_guard_label(pod) && !before.is_some_and(has_guard_label);
        let is_right = match annotation(template, key) {
            Some(value) => is_as_before || now == Some(value),
            // What a user has set stays.
            None if is_as_before && !becomes_guarded => true,
            None if has_guard_label(pod) => now == Some(kept),
            None => now.is_none() || (may_be_guarded && now == Some(kept)),
        };
        (!is_right).then(|| format!("sets {key} to {now:?}"))
    });
    Some(("autoscalers", why?))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::names::{AUTOSCALER_ANNOTATIONS, GUARDED, REVISION};
    use crate::scenario::Scenario;

    const SAFE_TO_EVICT: &str = AUTOSCALER_ANNOTATIONS[0].0;
    const FALSE: &str = AUTOSCALER_ANNOTATIONS[0].1;
    const DO_NOT_DISRUPT: &str = AUTOSCALER_ANNOTATIONS[1].0;
    const TRUE: &str = AUTOSCALER_ANNOTATIONS[1].1;

    /// Two pods created from a template with these annotations.
    fn pods(template: Value) -> Scenario {
        let mut scenario = Scenario::without_pods("GameDeployment", json!({"replicas": 3}));
        scenario.record_template("v1", template.clone());
        for pod in ["a", "b"] {
            scenario.create_annotated(pod, "v1", template.clone());
        }
        scenario
    }

    fn guard_annotations() -> Value {
        json!({SAFE_TO_EVICT: FALSE, DO_NOT_DISRUPT: TRUE})
    }

    #[test]
    fn guarded_pods_get_the_annotations_that_their_template_does_not_set() {
        let own = json!({SAFE_TO_EVICT: "true"});
        let mut scenario = pods(own.clone());
        let guarded = json!({SAFE_TO_EVICT: "true", DO_NOT_DISRUPT: TRUE});
        scenario.change_metadata("a", json!({GUARDED: "game"}), guarded.clone());
        assert_eq!(scenario.verdict(), []);
        scenario.change_metadata("a", json!({GUARDED: null}), own);
        assert_eq!(scenario.verdict(), []);
        for wrong in
            [guard_annotations(), json!({DO_NOT_DISRUPT: TRUE}), json!({SAFE_TO_EVICT: "true"})]
        {
            let mut scenario = scenario.clone();
            scenario.change_metadata("b", json!({GUARDED: "game"}), wrong.clone());
            assert_eq!(scenario.broken(), ["autoscalers"], "{wrong}");
        }
    }

    #[test]
    fn pods_are_created_with_the_annotations_of_their_template() {
        let mut scenario = pods(json!({SAFE_TO_EVICT: "true"}));
        scenario.create_annotated("c", "v1", json!({SAFE_TO_EVICT: FALSE}));
        assert_eq!(scenario.broken(), ["autoscalers"]);
    }

    #[test]
    fn the_guard_sets_an_annotation_that_the_updated_template_no_longer_sets() {
        for (after, broken) in
            [(guard_annotations(), vec![]), (json!({DO_NOT_DISRUPT: TRUE}), vec!["autoscalers"])]
        {
            let mut scenario = pods(json!({SAFE_TO_EVICT: "true"}));
            let guarded = json!({SAFE_TO_EVICT: "true", DO_NOT_DISRUPT: TRUE});
            scenario.change_metadata("a", json!({GUARDED: "game"}), guarded);
            scenario.record_template("v2", json!({}));
            scenario.status(json!({"updateRevision": "v2"}));
            scenario.wait(2);
            scenario.close_gate("a");
            let labels = json!({GUARDED: "game", REVISION: "v2"});
            scenario.change_metadata("a", labels, after);
            assert_eq!(scenario.broken(), broken);
        }
    }

    #[test]
    fn an_annotation_that_a_user_sets_may_stay() {
        let mut scenario = pods(json!({}));
        scenario.change_metadata("a", json!({GUARDED: "game"}), guard_annotations());
        scenario.annotate("a", SAFE_TO_EVICT, "true");
        scenario.change_metadata(
            "a",
            json!({GUARDED: "game", "x": "y"}),
            json!({SAFE_TO_EVICT: "true", DO_NOT_DISRUPT: TRUE}),
        );
        assert!(!scenario.broken().contains(&"autoscalers"));
    }
}
