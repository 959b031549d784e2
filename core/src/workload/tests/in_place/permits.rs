//! What the success of a hook allows: the change of the very containers that it was run for, in place or by a deletion,
//! whichever it was run for.

use serde_json::{Value, json};

use crate::api::{HookPhase, names};
use crate::observed::Gate;
use crate::workload::tests::story::{Story, story};

/// A change of the template that sets the images of both containers.
fn images(game: &str, log: &str) -> Value {
    json!({"template": {"spec": {"containers": [
        {"name": "game", "image": format!("game:{game}")},
        {"name": "log", "image": format!("log:{log}")},
    ]}}})
}

/// A pod with two containers. Kubelets do not act from now on.
fn two_containers(hook_of: &str, in_place: Value) -> Story {
    let mut story = story(
        1,
        json!({
            hook_of: {"hook": {"templateName": "test"}},
            "updateStrategy": {"type": "InplaceUpdate", "inPlaceUpdateStrategy": in_place},
        }),
    );
    story.user(images("v1", "v1")).settle();
    story.kubelets_run = false;
    story
}

/// The images in the spec of the only pod, or none if it was deleted.
fn spec(story: &Story) -> String {
    let pods = story.pods();
    let containers = pods.iter().flat_map(|pod| &pod.containers);
    let images: Vec<_> = containers.map(|it| it.image.clone()).collect();
    images.join(" ")
}

/// What the only HookRun allows.
fn changes(story: &Story) -> Option<String> {
    assert_eq!(story.runs().len(), 1);
    let annotations = story.world.runs[0].metadata.annotations.as_ref();
    annotations.expect("annotations").get(names::RUN_CHANGES).cloned()
}

const HOOKS: [&str; 2] = ["preInplaceUpdateStrategy", "preDeleteUpdateStrategy"];

#[test]
fn a_success_for_one_container_does_not_allow_to_restart_another() {
    for hook in HOOKS {
        for policy in ["DisOrdered", "OrderedReady", "OrderedUpdated"] {
            let mut story = two_containers(hook, json!({"policy": policy}));
            story.user(images("v1", "v2")).settle();
            assert_eq!(changes(&story).as_deref(), Some("log"));
            story.hooks_end("", HookPhase::Successful);
            story.settle();
            assert_eq!(spec(&story), "game:v1 log:v2");
            // The image of the container is bad, so the gate stays closed.
            story.user(images("v2", "v3")).settle();
            assert_eq!(spec(&story), "game:v1 log:v2", "{hook} {policy}");
            assert!(matches!(story.pods()[0].gate, Gate::Closed(_)));
            assert_eq!(changes(&story).as_deref(), Some("game,log"));
            story.hooks_end("", HookPhase::Successful);
            story.settle();
            story.kubelets_run = true;
            story.settle();
            assert_eq!(spec(&story), "game:v2 log:v3");
        }
    }
}

/// The permit of an update covers its containers, to whatever images.
#[test]
fn a_success_allows_several_images_of_its_containers() {
    let mut story = two_containers(HOOKS[0], json!({}));
    story.user(images("v1", "v2")).settle();
    story.hooks_end("", HookPhase::Successful);
    story.settle();
    for tag in ["v3", "v1", "v4"] {
        story.user(images("v1", tag)).settle();
        assert_eq!(spec(&story), format!("game:v1 log:{tag}"));
    }
    let mut story = two_containers(HOOKS[0], json!({"policy": "OrderedReady"}));
    story.user(images("v2", "v2")).settle();
    story.hooks_end("", HookPhase::Successful);
    story.settle();
    assert_eq!(spec(&story), "game:v2 log:v1");
    // The turn of the second container has not come yet.
    story.user(images("v2", "v3")).settle();
    story.kubelets_run = true;
    story.settle();
    assert_eq!(spec(&story), "game:v2 log:v3");
    assert!(story.runs().is_empty());
}

#[test]
fn a_success_for_a_resize_does_not_allow_a_restart() {
    let template = |cpu: &str, game: &str, log: &str| {
        let mut template = images(game, log);
        let resources = json!({"requests": {"cpu": cpu}});
        template["template"]["spec"]["containers"][0]["resources"] = resources;
        template
    };
    let hook = json!({"hook": {"templateName": "test"}});
    let mut story = story(1, json!({HOOKS[0]: hook, "updateStrategy": {"type": "InplaceUpdate"}}));
    story.user(template("2", "v1", "v1")).settle();
    story.kubelets_run = false;
    story.user(template("1", "v1", "v2")).settle();
    assert_eq!(changes(&story).as_deref(), Some("game,log"));
    story.hooks_end("", HookPhase::Successful);
    story.settle();
    assert_eq!(spec(&story), "game:v1 log:v2");
    story.user(template("1", "v2", "v2")).settle();
    assert_eq!(spec(&story), "game:v1 log:v2");
    assert_eq!(changes(&story).as_deref(), Some("game"));
}

/// During the grace period, users change how the pod is to be updated.
#[test]
fn a_success_for_a_change_in_place_does_not_allow_a_deletion() {
    let later: [(&str, Value); 3] = [
        ("RollingUpdate", json!({"updateStrategy": {"type": "RollingUpdate"}})),
        (
            "Recreate",
            json!({
                "updateStrategy": {"inPlaceUpdateStrategy": {"whenImpossible": "Recreate"}},
                "template": {"spec": {"hostNetwork": true}},
            }),
        ),
        ("scale-in", json!({"replicas": 0})),
    ];
    for hook in HOOKS {
        for (name, change) in &later {
            let is_removal = *name == "scale-in";
            if is_removal && hook == HOOKS[0] {
                continue; // A removal needs no PreInplace hook.
            }
            let mut story = two_containers(hook, json!({"gracePeriodSeconds": 30}));
            story.user(images("v1", "v2")).settle();
            story.hooks_end("", HookPhase::Successful);
            story.settle();
            assert!(matches!(story.pods()[0].gate, Gate::Closed(_)));
            story.user(change.clone()).settle();
            story.wait(31).settle();
            assert_eq!(spec(&story), "game:v1 log:v1", "{hook} {name}");
            assert_eq!(changes(&story), None, "{hook} {name}");
            assert_eq!(story.pods()[0].gate, Gate::Open);
            story.hooks_end("", HookPhase::Successful);
            story.settle();
            let left = if is_removal { "" } else { "game:v1 log:v2" };
            assert_eq!(spec(&story), left, "{hook} {name}");
        }
    }
}

#[test]
fn a_success_for_a_deletion_does_not_allow_a_change_in_place() {
    for hook in HOOKS {
        let mut story = two_containers(hook, json!({}));
        story.user(json!({"updateStrategy": {"type": "RollingUpdate", "maxUnavailable": 1}}));
        story.user(images("v1", "v2")).settle();
        assert_eq!(changes(&story), None);
        story.hooks_end("", HookPhase::Successful);
        story.user(json!({"updateStrategy": {"type": "InplaceUpdate"}})).settle();
        assert_eq!(spec(&story), "game:v1 log:v1", "{hook}");
        assert_eq!(changes(&story).as_deref(), Some("log"));
    }
}
