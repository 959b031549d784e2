//! The readiness gate: it is closed before a pod is changed, and opened afterwards. Some pods have no gate.

use serde_json::json;

use super::{in_place, is_patch};
use crate::api::HookPhase;
use crate::observed::Gate;
use crate::workload::tests::story::story;
use crate::write::{Change, Write};

#[test]
fn a_running_pod_whose_gate_was_never_opened_is_still_changed_with_its_gate_closed() {
    let mut story = in_place(1, json!({}));
    // The API server has accepted both revisions.
    story.image("v2").settle();
    story.image("v1").settle();
    story.user(json!({"postInplaceUpdateStrategy": {"hook": {"templateName": "test"}}}));
    let name = story.names()[0].clone();
    // The operator crashed between the creation of the pod and the opening of its gate.
    story.edit_pod(&name, |pod| {
        pod.gate = Gate::Unset;
        pod.ready_since = None;
    });
    story.done.clear();
    story.image("v2").settle();
    assert!(matches!(story.pods()[0].gate, Gate::Closed(_)));
    assert_eq!(story.images(), "v2");
    assert_eq!(story.runs().len(), 1, "its PostInplace hook runs");
    let position = |is_wanted: fn(&Write) -> bool| story.done.iter().position(is_wanted);
    let opened =
        position(|action| matches!(action.change(), Change::SetGate { closed_for: None, .. }));
    let closed =
        position(|action| matches!(action.change(), Change::SetGate { closed_for: Some(_), .. }));
    assert!(opened < closed && closed < position(is_patch));
}

#[test]
fn a_pause_or_revert_opens_the_gate_of_a_pod_that_was_not_changed() {
    for change in [
        json!({"updateStrategy": {"paused": true}}),
        json!({"template": {"spec": {"containers": [{"name": "game", "image": "game:v1"}]}}}),
        json!({"updateStrategy": {"partition": 1}}),
    ] {
        let mut story = in_place(
            1,
            json!({"updateStrategy": {"inPlaceUpdateStrategy": {"gracePeriodSeconds": 30}}}),
        );
        story.image("v2").settle();
        story.user(change.clone()).settle();
        assert_eq!(story.pods()[0].gate, Gate::Open, "{change}");
        story.wait(60).settle();
        assert_eq!(story.images(), "v1", "{change}");
    }
}

#[test]
fn a_hooks_success_allows_only_one_update_of_a_pod_without_the_gate() {
    let mut story =
        story(1, json!({"preInplaceUpdateStrategy": {"hook": {"templateName": "test"}}}));
    story.settle();
    assert_eq!(story.pods()[0].gate, Gate::None);
    story.user(json!({"updateStrategy": {"type": "InplaceUpdate"}})).image("v2").settle();
    story.hooks_end("", HookPhase::Successful);
    story.settle();
    assert_eq!(story.images(), "v2");
    story.image("v3").settle();
    assert_eq!(story.images(), "v2", "the next change runs the hook again");
    assert_eq!(story.runs().len(), 1);
}

/// Without the gate, the pod gets players while its PostInplace hook is awaited.
#[test]
fn without_the_gate_a_template_that_supersedes_an_update_needs_the_pre_inplace_hook_again() {
    let hook = json!({"hook": {"templateName": "test"}});
    let spec = json!({
        "disableReadinessGate": true,
        "preInplaceUpdateStrategy": hook,
        "postInplaceUpdateStrategy": hook,
    });
    let mut story = in_place(1, spec);
    story.settle();
    story.image("v2").settle();
    story.hooks_end("pre", HookPhase::Successful);
    story.settle();
    assert_eq!(story.images(), "v2");
    story.hooks_end("post", HookPhase::Failed);
    story.settle();
    story.image("v3").settle();
    assert_eq!(story.images(), "v2");
    story.hooks_end("pre", HookPhase::Successful);
    story.settle();
    assert_eq!(story.images(), "v3");
}

#[test]
fn pods_without_the_readiness_gate_are_changed_immediately() {
    let mut story = in_place(2, json!({"disableReadinessGate": true}));
    story.user(json!({"updateStrategy": {"inPlaceUpdateStrategy": {"gracePeriodSeconds": 30}}}));
    story.settle();
    assert!(story.pods().iter().all(|pod| pod.gate == Gate::None));
    let names = story.names();
    story.image("v2").settle();
    assert_eq!(story.images(), "v2 v2");
    assert_eq!(story.names(), names);
    assert_eq!(story.condition("Ready").map(|it| it.0).as_deref(), Some("AllPodsAvailable"));
}

#[test]
fn a_change_of_disable_readiness_gate_affects_only_new_pods() {
    let mut story = in_place(2, json!({}));
    let revisions = story.world.revisions.len();
    story.done.clear();
    story.user(json!({"disableReadinessGate": true})).settle();
    assert_eq!(story.done, []);
    assert_eq!(story.world.revisions.len(), revisions);
    story.user(json!({"replicas": 3})).settle();
    let gates: Vec<Gate> = story.pods().iter().map(|pod| pod.gate).collect();
    assert_eq!(gates, [Gate::Open, Gate::Open, Gate::None]);
    story.image("v2").settle();
    assert_eq!(story.images(), "v2 v2 v2");
}
