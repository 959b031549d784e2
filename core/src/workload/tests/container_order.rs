//! Containers that get their new images one after the other.

use crate::api::names;
use std::sync::Arc;

use serde_json::{Value, json};

use super::story::{Story, story};
use crate::api::HookPhase;
use crate::observed::Gate;
use crate::write::{Change, InPlacePatch, Write};

const ORDERED: [&str; 2] = ["OrderedReady", "OrderedUpdated"];

/// A change of the template that sets the images of a sidecar and two containers.
fn images(proxy: &str, game: &str, log: &str) -> Value {
    let sidecar =
        json!({"name": "proxy", "image": format!("proxy:{proxy}"), "restartPolicy": "Always"});
    json!({"template": {"spec": {
        "initContainers": [sidecar],
        "containers": [
            {"name": "game", "image": format!("game:{game}")},
            {"name": "log", "image": format!("log:{log}")},
        ],
    }}})
}

/// One pod with all images at v1. The kubelet acts only when a test makes it act.
fn with_policy(policy: &str) -> Story {
    let mut story = story(
        1,
        json!({"updateStrategy": {"type": "InplaceUpdate", "inPlaceUpdateStrategy": {"policy": policy}}}),
    );
    story.user(images("v1", "v1", "v1")).settle();
    story.kubelets_run = false;
    story
}

/// The images in the only pod's spec.
fn spec_images(story: &Story) -> String {
    let pods = story.pods();
    let image = |name: &str| {
        let mut containers = pods[0].containers.iter();
        let found = containers.find(|it| it.name == name);
        found.expect("a container").image.clone()
    };
    ["proxy", "game", "log"].map(image).join(" ")
}

/// The kubelet starts a container from the image of its spec, and everything settles.
fn start_and_settle(story: &mut Story, name: &str, ready: bool) {
    start(story, name, ready);
    story.settle();
}

/// The kubelet starts a container from the image of its spec.
fn start(story: &mut Story, name: &str, ready: bool) {
    let pod = story.names().remove(0);
    story.edit_pod(&pod, |pod| {
        pod.observed_generation = pod.generation;
        let mut containers = pod.containers.iter_mut();
        let container = containers.find(|it| it.name == name).expect("a container");
        let status = container.status.as_mut().expect("a status");
        status.image.clone_from(&container.image);
        status.restart_count += 1;
        status.container_id.push('+');
        status.ready = ready;
    });
}

fn patches(story: &Story) -> Vec<&InPlacePatch> {
    let patches = story.done.iter().filter_map(|action| match action.change() {
        Change::PatchInPlace(patch) => Some(patch),
        _ => None,
    });
    patches.collect()
}

#[test]
fn containers_get_their_images_one_after_the_other() {
    for policy in ORDERED {
        let mut story = with_policy(policy);
        story.user(images("v2", "v2", "v2")).settle();
        assert_eq!(spec_images(&story), "proxy:v2 game:v1 log:v1", "{policy}");
        start_and_settle(&mut story, "proxy", true);
        assert_eq!(spec_images(&story), "proxy:v2 game:v2 log:v1", "{policy}");
        start_and_settle(&mut story, "game", true);
        assert_eq!(spec_images(&story), "proxy:v2 game:v2 log:v2", "{policy}");
        assert!(matches!(story.pods()[0].gate, Gate::Closed(_)));
        start_and_settle(&mut story, "log", true);
        assert_eq!(story.pods()[0].gate, Gate::Open, "{policy}");
        assert_eq!(patches(&story).len(), 3);
    }
}

#[test]
fn without_an_order_all_images_change_in_one_write() {
    let mut story = with_policy("DisOrdered");
    story.user(images("v2", "v2", "v2")).settle();
    assert_eq!(spec_images(&story), "proxy:v2 game:v2 log:v2");
    assert_eq!(patches(&story).len(), 1);
}

#[test]
fn the_next_container_waits_for_readiness_only_with_ordered_ready() {
    for (policy, expected) in
        [("OrderedReady", "proxy:v2 game:v1 log:v1"), ("OrderedUpdated", "proxy:v2 game:v2 log:v1")]
    {
        let mut story = with_policy(policy);
        story.user(images("v2", "v2", "v2")).settle();
        start_and_settle(&mut story, "proxy", false);
        assert_eq!(spec_images(&story), expected);
    }
}

#[test]
fn with_ordered_ready_the_next_container_is_not_changed_if_readiness_was_lost_after_the_plan() {
    for (policy, expected) in
        [("OrderedReady", "proxy:v2 game:v1 log:v1"), ("OrderedUpdated", "proxy:v2 game:v2 log:v1")]
    {
        let mut story = with_policy(policy);
        story.user(images("v2", "v2", "v2")).settle();
        let pod = story.names().remove(0);
        start(&mut story, "proxy", true);
        let plan = story.plan();
        // Before the plan is carried out, the proxy is no longer ready.
        story.edit_pod(&pod, |pod| {
            let mut containers = pod.containers.iter_mut();
            let proxy = containers.find(|it| it.name == "proxy");
            let status = proxy.and_then(|it| it.status.as_mut());
            status.expect("a status").ready = false;
        });
        for action in plan.writes {
            story.carry_out(action);
        }
        story.settle();
        assert_eq!(spec_images(&story), expected, "{policy}");
    }
}

#[test]
fn a_status_of_an_earlier_generation_does_not_start_the_next_container() {
    let mut story = with_policy("OrderedUpdated");
    let pod = story.names().remove(0);
    story.user(images("v2", "v2", "v2")).settle();
    story.edit_pod(&pod, |pod| {
        let status = pod.containers[2].status.as_mut().expect("a status");
        status.image = "proxy:v2".to_owned();
    });
    story.settle();
    assert_eq!(spec_images(&story), "proxy:v2 game:v1 log:v1");
}

#[test]
fn containers_that_keep_their_image_are_not_waited_for() {
    let mut story = with_policy("OrderedReady");
    let pod = story.names().remove(0);
    story.edit_pod(&pod, |pod| {
        pod.containers[2].status.as_mut().expect("a status").ready = false;
    });
    story.user(images("v1", "v2", "v2")).settle();
    assert_eq!(spec_images(&story), "proxy:v1 game:v2 log:v1");
    start_and_settle(&mut story, "game", true);
    assert_eq!(spec_images(&story), "proxy:v1 game:v2 log:v2");
}

#[test]
fn the_first_patch_contains_everything_but_the_later_images() {
    let mut story = with_policy("OrderedReady");
    let mut change = images("v1", "v2", "v2");
    change["template"]["metadata"] = json!({"labels": {"tier": "gold"}, "annotations": {"a": "b"}});
    let two_cpus = json!({"requests": {"cpu": "2"}});
    change["template"]["spec"]["containers"][1]["resources"] = two_cpus;
    let one_cpu = json!({"requests": {"cpu": "1"}});
    story.kubelets_run = true;
    let mut initial = images("v1", "v1", "v1");
    initial["template"]["spec"]["containers"][1]["resources"] = one_cpu;
    story
        .user(json!({"updateStrategy": {"inPlaceUpdateStrategy": {"whenImpossible": "Recreate"}}}))
        .user(initial)
        .settle();
    story.kubelets_run = false;
    story.done.clear();
    story.user(change).settle();
    let pods = story.pods();
    assert_eq!(pods[0].labels.get("tier").map(String::as_str), Some("gold"));
    assert!(pods[0].containers[1].resources.contains('2'), "resized");
    let [first] = patches(&story)[..] else {
        panic!("one patch");
    };
    assert!(first.annotations.iter().any(|(key, _)| key == "a"));
    assert_eq!(first.images.len(), 1);
    start_and_settle(&mut story, "game", true);
    let [_, second] = patches(&story)[..] else {
        panic!("two patches");
    };
    assert!(second.labels.is_empty() && second.annotations.is_empty());
    assert_eq!(second.from_revision, second.record.revision);
    assert_eq!(second.images[0].name, "log");
}

#[test]
fn one_hook_precedes_the_whole_update_and_one_follows_it() {
    let mut story = with_policy("OrderedUpdated");
    let hook = json!({"hook": {"templateName": "test"}});
    story.user(json!({"preInplaceUpdateStrategy": hook, "postInplaceUpdateStrategy": hook}));
    let test = story.world.templates.get_mut("test").expect("a template");
    let args = ["0", "1", "2"].map(|place| json!({"name": format!("ModifiedContainer[{place}]")}));
    Arc::make_mut(test).spec.args = serde_json::from_value(json!(args)).expect("arguments");
    story.user(images("v2", "v2", "v2")).settle();
    let args = &story.world.runs[0].spec.args;
    let mut modified: Vec<_> = args.iter().filter_map(|arg| arg.value.clone()).collect();
    modified.sort();
    assert_eq!(modified, ["game", "log", "proxy"]);
    story.hooks_end("pre-inplace", HookPhase::Successful);
    story.settle();
    for name in ["proxy", "game"] {
        assert!(story.runs().is_empty(), "no other hook before {name}");
        assert_eq!(story.status().available_replicas, 0);
        start_and_settle(&mut story, name, true);
    }
    assert!(story.runs().is_empty());
    start_and_settle(&mut story, "log", true);
    assert_eq!(story.runs().len(), 1);
    assert!(matches!(story.pods()[0].gate, Gate::Closed(_)));
    story.hooks_end("post-inplace", HookPhase::Successful);
    story.settle();
    assert_eq!(story.pods()[0].gate, Gate::Open);
}

#[test]
fn a_revert_undoes_what_was_changed_and_nothing_else() {
    let mut story = with_policy("OrderedReady");
    story.user(images("v2", "v2", "v2")).settle();
    start_and_settle(&mut story, "proxy", true);
    // The game does not start, because its new image does not exist.
    assert_eq!(spec_images(&story), "proxy:v2 game:v2 log:v1");
    story.user(images("v1", "v1", "v1")).settle();
    assert_eq!(spec_images(&story), "proxy:v1 game:v2 log:v1", "immediately");
    start_and_settle(&mut story, "proxy", true);
    assert_eq!(spec_images(&story), "proxy:v1 game:v1 log:v1");
    start_and_settle(&mut story, "game", true);
    assert_eq!(story.pods()[0].gate, Gate::Open);
    let images = patches(&story).into_iter().flat_map(|it| &it.images);
    assert!(images.into_iter().all(|image| image.name != "log"));
}

#[test]
fn a_container_whose_revert_is_canceled_is_waited_for() {
    let mut story = with_policy("OrderedUpdated");
    story.user(images("v1", "v2", "v2")).settle();
    start_and_settle(&mut story, "game", true);
    assert_eq!(spec_images(&story), "proxy:v1 game:v2 log:v2");
    // Before the log runs its new image, the user changes the target twice.
    story.user(images("v1", "v1", "v1")).settle();
    assert_eq!(spec_images(&story), "proxy:v1 game:v1 log:v2");
    story.user(images("v1", "v2", "v2")).settle();
    start_and_settle(&mut story, "game", true);
    assert!(matches!(story.pods()[0].gate, Gate::Closed(_)));
    start_and_settle(&mut story, "log", true);
    assert_eq!(story.pods()[0].gate, Gate::Open);
}

#[test]
fn a_new_target_does_not_wait_for_a_container_that_changes_again() {
    let mut story = with_policy("OrderedReady");
    story.user(images("missing", "v2", "v2")).settle();
    assert_eq!(spec_images(&story), "proxy:missing game:v1 log:v1");
    story.user(images("v3", "v2", "v3")).settle();
    assert_eq!(spec_images(&story), "proxy:v3 game:v1 log:v1");
    start_and_settle(&mut story, "proxy", true);
    assert_eq!(spec_images(&story), "proxy:v3 game:v2 log:v1", "the log waits");
    start_and_settle(&mut story, "game", true);
    assert_eq!(spec_images(&story), "proxy:v3 game:v2 log:v3", "the log is last");
}

#[test]
fn a_new_target_waits_for_a_container_that_is_being_updated_to_it() {
    let mut story = with_policy("OrderedUpdated");
    story.user(images("v2", "v2", "v2")).settle();
    story.user(images("v2", "v3", "v2")).settle();
    assert_eq!(spec_images(&story), "proxy:v2 game:v1 log:v1");
    assert_eq!(patches(&story).len(), 2, "the revision changes immediately");
    start_and_settle(&mut story, "proxy", true);
    assert_eq!(spec_images(&story), "proxy:v2 game:v3 log:v1");
}

#[test]
fn a_pause_does_not_stop_an_update_in_progress() {
    let mut story = with_policy("OrderedUpdated");
    story.user(images("v2", "v2", "v2")).settle();
    story.user(json!({"updateStrategy": {"paused": true}}));
    start_and_settle(&mut story, "proxy", true);
    assert_eq!(spec_images(&story), "proxy:v2 game:v2 log:v1");
}

#[test]
fn when_the_order_is_lifted_no_container_waits_any_longer() {
    let mut story = with_policy("OrderedUpdated");
    story.user(images("v2", "v2", "v2")).settle();
    story.user(json!({"updateStrategy": {"inPlaceUpdateStrategy": {"policy": "DisOrdered"}}}));
    story.settle();
    assert_eq!(spec_images(&story), "proxy:v2 game:v2 log:v2");
}

#[test]
fn a_pod_without_running_containers_is_changed_in_one_write() {
    let mut story = with_policy("OrderedReady");
    let pod = story.names().remove(0);
    story.stop_containers(&pod);
    story.edit_pod(&pod, |pod| pod.phase = crate::observed::PodPhase::Pending);
    story.user(images("v2", "v2", "v2")).settle();
    assert_eq!(spec_images(&story), "proxy:v2 game:v2 log:v2");
}

#[test]
fn a_pod_without_the_gate_is_done_when_the_last_container_is() {
    let mut story = story(1, images("v1", "v1", "v1"));
    story.settle();
    story.kubelets_run = false;
    let strategy =
        json!({"type": "InplaceUpdate", "inPlaceUpdateStrategy": {"policy": "OrderedReady"}});
    story.user(json!({"updateStrategy": strategy})).user(images("v2", "v2", "v1")).settle();
    let is_finish = |it: &Write| it.change().annotation(names::IN_PLACE_RECORD).is_some();
    start_and_settle(&mut story, "proxy", true);
    assert_eq!(spec_images(&story), "proxy:v2 game:v2 log:v1");
    assert_eq!(story.count(is_finish), 0);
    start_and_settle(&mut story, "game", true);
    assert_eq!(story.count(is_finish), 1);
}

#[test]
fn an_update_superseded_before_the_resize_does_not_lose_the_new_resources() {
    let mut story = with_policy("DisOrdered");
    let template = |game: &str, cpu: &str| {
        let mut change = images("v1", game, "v1");
        change["template"]["spec"]["containers"][0]["resources"] =
            json!({"requests": {"cpu": cpu}});
        change
    };
    let rolling = json!({"updateStrategy": {"type": "RollingUpdate"}});
    story.kubelets_run = true;
    story.user(rolling).user(template("v1", "1")).settle();
    story
        .user(json!({"updateStrategy": {"type": "InplaceUpdate"}}))
        .user(template("v2", "1"))
        .settle();
    story.kubelets_run = false;
    story.user(template("v3", "2"));
    let count = patches(&story).len();
    while patches(&story).len() == count {
        story.reconcile();
    }
    // Before the resources are set, the user sets another image.
    story.user(template("v4", "2")).settle();
    assert!(story.pods()[0].containers[0].resources.contains("\"2\""));
}

#[test]
fn a_pod_whose_gate_is_opened_by_hand_during_an_update_counts_as_not_updated() {
    let mut story = with_policy("OrderedReady");
    let hook = json!({"hook": {"templateName": "test"}});
    story.user(json!({"preInplaceUpdateStrategy": hook}));
    story.user(images("v2", "v2", "v1")).settle();
    story.hooks_end("pre-inplace", HookPhase::Successful);
    story.settle();
    assert_eq!(spec_images(&story), "proxy:v2 game:v1 log:v1");
    assert_eq!(story.status().updated_replicas, 1);
    let (pod, now) = (story.names().remove(0), story.world.now);
    story.edit_pod(&pod, |pod| {
        pod.gate = Gate::Open;
        pod.ready_since = Some(now);
    });
    story.settle();
    assert_eq!(story.status().updated_replicas, 0);
    assert_eq!(spec_images(&story), "proxy:v2 game:v1 log:v1");
    assert_eq!(story.hooks_end("pre-inplace", HookPhase::Successful), 1);
    story.wait(1).settle();
    assert_eq!(spec_images(&story), "proxy:v2 game:v2 log:v1");
    start_and_settle(&mut story, "game", true);
    assert_eq!(story.pods()[0].gate, Gate::Open);
    assert_eq!(story.status().updated_replicas, 1);
}

/// A hot patch would lose the rest of an update that has begun in place.
#[test]
fn an_update_that_has_begun_continues_in_place_when_the_type_becomes_hot_patch() {
    let mut story = with_policy("OrderedReady");
    story.user(images("v2", "v2", "v2")).settle();
    assert_eq!(spec_images(&story), "proxy:v2 game:v1 log:v1");
    story.user(json!({"updateStrategy": {"type": "HotPatchUpdate"}}));
    story.user(images("v3", "v2", "v2")).settle();
    for name in ["proxy", "game", "log"] {
        start_and_settle(&mut story, name, true);
    }
    assert_eq!(spec_images(&story), "proxy:v3 game:v2 log:v2");
}

#[test]
fn the_gate_stays_closed_for_the_postinplace_hook_when_the_type_becomes_hot_patch() {
    let mut story = with_policy("OrderedReady");
    story.user(json!({"postInplaceUpdateStrategy": {"hook": {"templateName": "test"}}}));
    story.user(images("v2", "v1", "v1")).settle();
    start_and_settle(&mut story, "proxy", true);
    story.hooks_end("", HookPhase::Failed);
    story.user(json!({"updateStrategy": {"type": "HotPatchUpdate"}}));
    story.user(images("v3", "v1", "v1")).settle();
    start_and_settle(&mut story, "proxy", true);
    assert!(matches!(story.pods()[0].gate, Gate::Closed(_)));
    story.hooks_end("", HookPhase::Successful);
    story.settle();
    assert_eq!(story.pods()[0].gate, Gate::Open);
}
