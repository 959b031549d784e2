//! Stories of what tools that wait are told: conditions Reconciling and Stalled.

use serde_json::json;

use super::story::{Story, story};
use crate::api::HookPhase;

/// The reasons of Reconciling and Stalled.
fn shown(story: &Story) -> (Option<String>, Option<String>) {
    let reason = |type_| story.condition(type_).map(|(reason, _)| reason);
    (reason("Reconciling"), reason("Stalled"))
}

fn reconciling(reason: &str) -> (Option<String>, Option<String>) {
    (Some(reason.to_owned()), None)
}

fn stalled(reason: &str) -> (Option<String>, Option<String>) {
    (None, Some(reason.to_owned()))
}

#[test]
fn a_problem_stalls_a_workload_after_a_while_and_the_plan_wakes_up_for_it() {
    let hook = json!({"hook": {"templateName": "missing"}});
    let mut story = story(
        2,
        json!({"updateStrategy": {"type": "InplaceUpdate"}, "preInplaceUpdateStrategy": hook}),
    );
    story.settle();
    assert_eq!(shown(&story), (None, None));
    story.image("v2").settle();
    assert_eq!(shown(&story), reconciling("HookTemplateNotFound"));
    let wake = story.plan().wake.expect("a time");
    let seconds = wake.duration_since(story.world.now).as_secs();
    assert!((1..=10).contains(&seconds), "{seconds}");
    story.wait(seconds - 1).settle();
    assert_eq!(shown(&story), reconciling("HookTemplateNotFound"));
    story.wait(1).settle();
    assert_eq!(shown(&story), stalled("HookTemplateNotFound"));
    // What else the user changes gets its own time.
    story.user(json!({"minReadySeconds": 1})).settle();
    assert_eq!(shown(&story), reconciling("HookTemplateNotFound"));
    story.template("missing").settle();
    story.hooks_end("", HookPhase::Successful);
    story.settle();
    assert_eq!(shown(&story).1, None);
}

#[test]
fn a_hook_that_is_not_successful_stalls_a_workload_unless_it_is_run_again() {
    let hook = json!({"hook": {"templateName": "test"}});
    for (protection, expected) in [
        (json!(null), stalled("HookNotSuccessful")),
        (json!({"pods": "Guarded"}), reconciling("PodsToDelete")),
    ] {
        let mut story =
            story(2, json!({"preDeleteUpdateStrategy": hook, "protection": protection}));
        story.settle();
        story.user(json!({"replicas": 1})).settle();
        assert_eq!(shown(&story), reconciling("PodsToDelete"));
        assert_eq!(story.hooks_end("", HookPhase::Failed), 1);
        story.settle().wait(11).settle();
        assert_eq!(shown(&story), expected);
    }
}

#[test]
fn a_pause_is_no_problem() {
    let steps = json!([{"partition": 1}, {"pause": {}}]);
    let strategy = json!({"type": "InplaceUpdate", "canary": {"steps": steps}});
    let mut story = story(2, json!({"updateStrategy": strategy}));
    story.settle();
    story.image("v2").settle().wait(60).settle();
    assert!(story.paused());
    assert_eq!(shown(&story), reconciling("RolloutUnderWay"));
}
