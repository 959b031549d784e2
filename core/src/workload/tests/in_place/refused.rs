//! Changes that the API server refuses for one pod: no player is asked to leave for a change that a dry run refuses, and
//! a pod whose change is refused later serves again as it was.

use jiff::SignedDuration;
use serde_json::{Value, json};

use super::in_place;
use crate::api::HookPhase;
use crate::observed::{Gate, Pod};
use crate::workload::tests::story::{RefusedStep, Step, Story, story};
use crate::write::{Change, Write};

/// Lets the API server refuse a step of the pod at this position.
fn refuse(story: &mut Story, pod: usize, step: Step) {
    let pod = story.pods()[pod].uid.clone();
    story.refuses_change = Some(RefusedStep { pod, step });
}

/// The image and the gate of each pod.
fn pods(story: &Story) -> Vec<(String, Gate)> {
    let shown = |pod: &&Pod| (pod.containers[0].image.clone(), pod.gate);
    story.pods().iter().map(shown).collect()
}

fn closes_gate(write: &Write) -> bool {
    matches!(write.change(), Change::SetGate { closed_for: Some(_), .. })
}

fn starts_hook(write: &Write) -> bool {
    matches!(write.change(), Change::CreateHookRun(_))
}

/// A refusal is told, and when the change is tried again.
fn assert_told(story: &Story, again: &str) {
    let (reason, message) = story.condition("FailedUpdate").expect("a condition");
    let name = &story.pods()[0].name;
    assert_eq!(reason, "FailedUpdate");
    let expected =
        format!("pod {name} cannot be changed in place: not on this pod; tried again {again}");
    assert_eq!(message, expected);
}

/// The same, in this many seconds: the pod has left service in vain, so it is not asked to do so again soon.
fn assert_told_with_time(story: &Story, seconds: i64) {
    let at = story.world.now + SignedDuration::from_secs(seconds);
    assert_told(story, &format!("at {at}"));
}

#[test]
fn no_gate_closes_and_no_hook_starts_for_a_change_that_a_dry_run_refuses() {
    for spec in [json!({}), json!({"preInplaceUpdateStrategy": {"hook": {"templateName": "test"}}})]
    {
        let mut story = in_place(2, spec);
        refuse(&mut story, 0, Step::Rehearsal);
        let pod = story.pods()[0].uid.clone();
        story.image("v2").settle();
        story.hooks_end("pre", HookPhase::Successful);
        story.settle();
        let v1 = ("game:v1".to_owned(), Gate::Open);
        let v2 = ("game:v2".to_owned(), Gate::Open);
        assert_eq!(pods(&story), [v1, v2.clone()], "the slot goes to the next pod");
        let leaves = |it: &Write| {
            let concerns = it.rehearsal().is_some_and(|it| it.pod == pod);
            concerns && (closes_gate(it) || starts_hook(it))
        };
        assert_eq!(story.count(leaves), 0);
        assert_told(&story, "within 30 s");
        story.refuses_change = None;
        story.settle();
        assert_told(&story, "within 30 s");
        story.wait(30).settle();
        story.hooks_end("pre", HookPhase::Successful);
        story.settle();
        assert_eq!(pods(&story), [v2.clone(), v2]);
        assert_eq!(story.condition("FailedUpdate"), None);
    }
}

#[test]
fn a_refused_patch_opens_the_gate() {
    let grace = json!({"updateStrategy": {"inPlaceUpdateStrategy": {"gracePeriodSeconds": 30}}});
    let mut story = in_place(1, grace);
    story.image("v2").settle();
    assert!(matches!(story.pods()[0].gate, Gate::Closed(_)));
    refuse(&mut story, 0, Step::Patch { after: 0 });
    story.wait(31).settle();
    assert_eq!(pods(&story), [("game:v1".to_owned(), Gate::Open)]);
    assert_told_with_time(&story, 60);
}

fn template(image: &str, cpu: &str) -> Value {
    let container = |name: &str| {
        let resources = json!({"requests": {"cpu": cpu}});
        json!({"name": name, "image": format!("game:{image}"), "resources": resources})
    };
    let metadata = json!({"labels": {"app": "game", "build": image}});
    json!({"template": {"metadata": metadata, "spec": {"containers": [container("game"), container("log")]}}})
}

/// A pod of two containers at v1. `spec` is merged into its workload's spec.
fn two_containers(spec: Value) -> Story {
    let mut story = story(1, json!({"updateStrategy": {"type": "InplaceUpdate"}}));
    story.user(template("v1", "1")).user(spec).settle();
    story.done.clear();
    story
}

#[test]
fn a_refused_resize_takes_the_pod_back_to_its_revision() {
    for gate in [true, false] {
        let mut story = two_containers(json!({"disableReadinessGate": !gate}));
        let before = story.pods()[0].clone();
        refuse(&mut story, 0, Step::Resize);
        story.user(template("v2", "2")).settle();
        let after = story.pods()[0].clone();
        assert_eq!(after.labels, before.labels);
        assert_eq!(after.gate, before.gate);
        let spec = |pod: &Pod| {
            let containers = pod.containers.iter();
            containers.map(|it| (it.image.clone(), it.resources.clone())).collect::<Vec<_>>()
        };
        assert_eq!(spec(&after), spec(&before));
        assert!(after.is_ready());
        assert_told_with_time(&story, 60);
        // Its players are not asked to leave again before it is tried again.
        let closed = story.count(closes_gate);
        story.wait(10).settle();
        assert_eq!(story.count(closes_gate), closed);
        story.refuses_change = None;
        story.wait(50).settle();
        assert_eq!(pods(&story)[0].0, "game:v2");
        assert_eq!(story.columns(), "1 1 1 1 1");
        assert_eq!(story.condition("FailedUpdate"), None);
    }
}

#[test]
fn a_pod_is_taken_back_if_a_later_container_is_refused() {
    let ordered = json!({"policy": "OrderedReady"});
    let mut story = two_containers(json!({"updateStrategy": {"inPlaceUpdateStrategy": ordered}}));
    refuse(&mut story, 0, Step::Patch { after: 1 });
    story.user(template("v2", "1"));
    for _ in 0..20 {
        story.reconcile();
        if !story.refused.is_empty() {
            break;
        }
    }
    assert_eq!(story.refused.len(), 1);
    story.refuses_change = None;
    story.settle();
    let images = story.pods()[0].containers.iter().map(|it| it.image.clone());
    assert_eq!(images.collect::<Vec<_>>(), ["game:v1"; 2]);
    assert_eq!(story.pods()[0].gate, Gate::Open);
    assert_told_with_time(&story, 60);
}

#[test]
fn a_revert_or_another_template_is_tried_at_once() {
    let mut story = in_place(1, json!({}));
    refuse(&mut story, 0, Step::Rehearsal);
    story.image("v2").settle();
    assert_told(&story, "within 30 s");
    story.refuses_change = None;
    story.image("v3").settle();
    assert_eq!(story.images(), "v3");
    assert_eq!(story.condition("FailedUpdate"), None);
}

#[test]
fn no_hook_starts_for_a_deletion_that_a_dry_run_refuses() {
    let hook = json!({"preDeleteUpdateStrategy": {"hook": {"templateName": "test"}}});
    let mut story = story(1, hook);
    story.settle();
    refuse(&mut story, 0, Step::Rehearsal);
    story.user(json!({"replicas": 0}));
    for _ in 0..5 {
        story.reconcile();
    }
    assert_eq!((story.runs().len(), story.pods().len()), (0, 1));
    let (reason, message) = story.condition("FailedScale").expect("a condition");
    assert_eq!(
        (reason.as_str(), message.as_str()),
        ("FailedDelete", "not on this pod; tried again within 5 minutes")
    );
    story.refuses_change = None;
    story.settle();
    story.hooks_end("", HookPhase::Successful);
    story.settle();
    assert_eq!(story.pods().len(), 0);
}
