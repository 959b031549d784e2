//! In-place updates of sidecars: tokens, hooks, budgets, and simultaneous updates of the template.

use std::sync::Arc;

use serde_json::{Value, json};

use super::story::{Story, story};
use crate::api::{HookPhase, SidecarSet, names};
use crate::observed::*;
use crate::sidecar_set::Sidecars;
use crate::workload::*;
use crate::write::*;

/// A set with a container `log` and a native sidecar.
fn log_set(image: &str) -> Arc<Sidecars> {
    let set = json!({
        "metadata": {"name": "log"},
        "spec": {
            "selector": {"matchLabels": {"app": "game"}},
            "containers": [{"name": "log", "image": image}],
            "initContainers": [{"name": "mesh", "image": "mesh:1", "restartPolicy": "Always"}],
        },
    });
    let set: SidecarSet = serde_json::from_value(set).expect("a set");
    Arc::new(Sidecars::of(&set).expect("a selector"))
}

/// Pods with sidecars. A user has changed the SidecarSet since the pods were created.
fn with_sidecars(replicas: i32, spec: Value) -> Story {
    let strategy = json!({"updateStrategy": {"type": "InplaceUpdate", "maxUnavailable": 1}});
    let mut story = story(replicas, strategy);
    story.user(spec);
    story.world.sidecars = vec![log_set("log:1")];
    story.settle();
    story.world.sidecars = vec![log_set("log:2")];
    story.done.clear();
    story
}

/// Gives all pods a token for the SidecarSet's newest revision, or withdraws it if `given` is false.
fn set_tokens(story: &mut Story, given: bool) {
    let revision = story.world.sidecars[0].revision.clone();
    for name in story.names() {
        story.edit_pod(&name, |pod| {
            let mark = pod.sidecars.get_mut("log").expect("a mark");
            mark.token = given.then(|| revision.clone());
        });
    }
}

/// The image of a container in a pod.
fn image<'p>(pod: &'p Pod, container: &str) -> &'p str {
    let found = pod.containers.iter().find(|it| it.name == container);
    &found.expect("a container").image
}

/// The images of each pod: that of the game, and that of the sidecar that is not native.
fn images(story: &Story) -> Vec<String> {
    let images = |pod: &&Pod| format!("{} {}", image(pod, "game"), image(pod, "log"));
    story.pods().iter().map(images).collect()
}

fn target(story: &Story) -> String {
    let run = story.world.runs.first().expect("a run");
    let annotations = run.metadata.annotations.as_ref();
    annotations.expect("annotations")[names::RUN_TARGET].clone()
}

const PRE_INPLACE: &str = "preInplaceUpdateStrategy";

fn hooked() -> Value {
    json!({PRE_INPLACE: {"hook": {"templateName": "test"}}})
}

/// A sidecar is being updated: its hook has passed, the pod has the new image, and its kubelet does nothing.
fn in_progress() -> Story {
    let mut story = with_sidecars(1, hooked());
    story.kubelets_run = false;
    set_tokens(&mut story, true);
    story.settle();
    story.hooks_end("", HookPhase::Successful);
    story.settle();
    assert_eq!(images(&story), ["game:v1 log:2"]);
    story
}

#[test]
fn only_pods_with_a_token_are_updated_and_the_game_keeps_running() {
    let mut story = with_sidecars(2, json!({}));
    assert!(!story.reconcile(), "without tokens nothing happens");
    let before = story.pods()[0].clone();
    set_tokens(&mut story, true);
    story.settle();
    assert_eq!(images(&story), ["game:v1 log:2", "game:v1 log:2"]);
    let after = story.pods()[0];
    let id = |pod: &Pod| {
        let game = pod.containers.iter().find(|it| it.name == "game");
        let status = game.and_then(|it| it.status.as_ref());
        status.expect("a status").container_id.clone()
    };
    assert_eq!((id(&before), before.uid.as_str()), (id(after), after.uid.as_str()));
    let mark = &after.sidecars["log"];
    assert_eq!((mark.token.as_ref(), &mark.revision), (None, &story.world.sidecars[0].revision));
    assert_eq!(after.gate, Gate::Open);
    let gates = story
        .count(|action| matches!(action.change(), Change::SetGate { closed_for: Some(_), .. }));
    let patches = story.count(|action| matches!(action.change(), Change::PatchInPlace(_)));
    assert_eq!((gates, patches), (2, 2));
}

#[test]
fn the_pre_inplace_hook_guards_sidecar_updates() {
    let mut story = with_sidecars(1, hooked());
    let test = story.world.templates.get_mut("test").expect("a template");
    let args = ["0", "1"].map(|place| json!({"name": format!("ModifiedContainer[{place}]")}));
    Arc::make_mut(test).spec.args = serde_json::from_value(json!(args)).expect("arguments");
    set_tokens(&mut story, true);
    story.settle();
    let args = story.world.runs[0].spec.args.iter();
    let modified: Vec<_> = args.filter_map(|it| it.value.as_deref()).collect();
    assert_eq!(modified, ["log"]);
    let revision = story.pods()[0].revision().to_string();
    assert_eq!(target(&story), format!("{revision}+{}", story.world.sidecars[0].revision));
    assert_eq!(images(&story), ["game:v1 log:1"]);
    story.hooks_end("", HookPhase::Failed);
    story.settle();
    assert_eq!(images(&story), ["game:v1 log:1"]);
    // Without its token, the pod no longer needs this hook.
    set_tokens(&mut story, false);
    story.settle();
    assert!(story.world.runs.is_empty());
    set_tokens(&mut story, true);
    story.settle();
    story.hooks_end("", HookPhase::Successful);
    story.settle();
    assert_eq!(images(&story), ["game:v1 log:2"]);
}

#[test]
fn a_success_for_sidecars_does_not_allow_an_update_of_the_game() {
    let mut story = with_sidecars(1, hooked());
    set_tokens(&mut story, true);
    story.settle();
    story.hooks_end("", HookPhase::Successful);
    story.image("v2").settle();
    assert_eq!(images(&story), ["game:v1 log:1"], "the hook is run again, for both");
    let both = target(&story);
    assert!(both.ends_with(&story.world.sidecars[0].revision), "{both}");
    story.hooks_end("", HookPhase::Successful);
    story.settle();
    assert_eq!(images(&story), ["game:v2 log:2"]);
    let patches = story.count(|action| matches!(action.change(), Change::PatchInPlace(_)));
    assert_eq!(patches, 1, "one restart for both");
}

#[test]
fn an_update_of_the_game_while_a_sidecar_is_updated_needs_its_own_hook() {
    let mut story = in_progress();
    assert!(matches!(story.pods()[0].gate, Gate::Closed(_)), "the sidecar's update is in progress");
    story.image("v2").settle();
    assert_eq!(images(&story), ["game:v1 log:2"], "the game's hook has not passed");
    story.hooks_end("", HookPhase::Successful);
    story.settle();
    assert_eq!(images(&story), ["game:v2 log:2"]);
}

#[test]
fn a_fixed_image_replaces_a_bad_one_without_another_hook() {
    let mut story = in_progress();
    story.world.sidecars = vec![log_set("log:3")];
    set_tokens(&mut story, true);
    story.settle();
    assert_eq!(images(&story), ["game:v1 log:3"]);
}

#[test]
fn the_workloads_budget_limits_sidecar_updates_too() {
    let mut story = with_sidecars(3, json!({}));
    story.kubelets_run = false;
    set_tokens(&mut story, true);
    story.settle();
    let closed = story.pods().into_iter();
    let closed = closed.filter(|pod| matches!(pod.gate, Gate::Closed(_)));
    assert_eq!(closed.count(), 1);
}

#[test]
fn sidecars_are_updated_only_if_the_strategy_is_rolling_or_in_place_and_not_paused() {
    for (spec, is_updated) in [
        (json!({}), true),
        (json!({"updateStrategy": {"paused": true}}), false),
        (json!({"updateStrategy": {"type": "OnDelete"}}), false),
        (json!({"updateStrategy": {"type": "HotPatchUpdate"}}), false),
        (json!({"updateStrategy": {"type": "RollingUpdate"}}), true),
    ] {
        let mut story = with_sidecars(1, spec.clone());
        set_tokens(&mut story, true);
        story.settle();
        let expected = if is_updated { "game:v1 log:2" } else { "game:v1 log:1" };
        assert_eq!(images(&story), [expected], "{spec}");
    }
}

#[test]
fn withdrawing_a_token_opens_the_gate_again() {
    let grace = json!({"updateStrategy": {"inPlaceUpdateStrategy": {"gracePeriodSeconds": 30}}});
    let mut story = with_sidecars(1, grace);
    set_tokens(&mut story, true);
    story.settle();
    assert!(matches!(story.pods()[0].gate, Gate::Closed(_)));
    set_tokens(&mut story, false);
    story.settle();
    assert_eq!(story.pods()[0].gate, Gate::Open);
    assert_eq!(images(&story), ["game:v1 log:1"]);
}

#[test]
fn a_token_for_a_revision_that_is_no_longer_the_newest_allows_nothing() {
    let mut story = with_sidecars(1, json!({}));
    set_tokens(&mut story, true);
    story.world.sidecars = vec![log_set("log:3")];
    assert!(!story.reconcile());
}

#[test]
fn a_token_of_a_set_that_no_longer_selects_the_pod_allows_nothing() {
    let mut story = with_sidecars(1, json!({}));
    set_tokens(&mut story, true);
    let set = json!({
        "metadata": {"name": "log"},
        "spec": {
            "selector": {"matchLabels": {"app": "another"}},
            "containers": [{"name": "log", "image": "log:2"}],
            "initContainers": [{"name": "mesh", "image": "mesh:1", "restartPolicy": "Always"}],
        },
    });
    let set: SidecarSet = serde_json::from_value(set).expect("a set");
    story.world.sidecars = vec![Arc::new(Sidecars::of(&set).expect("a selector"))];
    let mark = &story.pods()[0].sidecars["log"];
    assert_eq!(mark.token.as_ref(), Some(&story.world.sidecars[0].revision));
    assert!(!story.reconcile());
}

/// Why the workload holds sidecar updates back, as its SidecarSets see it.
fn why_held(story: &Story) -> String {
    why_sidecars_are_held(&story.object).map_or_else(String::new, |held| held.to_string())
}

#[test]
fn sidecars_wait_until_the_canary_steps_are_completed() {
    let hook = json!({"hook": {"templateName": "test"}});
    let steps = json!([{"partition": 1}, hook, {"partition": 0}]);
    let spec = json!({"updateStrategy": {"canary": {"steps": steps}}});
    let mut story = with_sidecars(2, spec);
    assert_eq!(why_held(&story), "", "no rollout is running");
    story.image("v2").settle();
    set_tokens(&mut story, true);
    assert!(!story.reconcile());
    assert!(why_held(&story).ends_with("/game is at a canary step"));
    assert_eq!(images(&story).concat().matches("log:1").count(), 2);
    story.hooks_end("", HookPhase::Successful);
    story.settle();
    assert_eq!(images(&story), ["game:v2 log:2", "game:v2 log:2"]);
    assert_eq!(why_held(&story), "");
}

#[test]
fn at_a_canary_step_a_pod_that_is_not_ready_gets_a_sidecar_fix() {
    let steps = json!([{"partition": 1}, {"hook": {"templateName": "test"}}]);
    let spec = json!({"updateStrategy": {"canary": {"steps": steps}}});
    let mut story = with_sidecars(2, spec);
    story.image("v2").settle();
    story.kubelets_run = false;
    let name = story.names().remove(0);
    story.edit_pod(&name, |pod| pod.ready_since = None);
    set_tokens(&mut story, true);
    story.settle();
    let pods = story.pods().into_iter();
    let updated = pods.filter(|pod| pod.containers.iter().any(|it| it.image == "log:2"));
    assert_eq!(updated.map(|pod| &pod.name).collect::<Vec<_>>(), [&name]);
}

#[test]
fn a_workload_reports_why_it_holds_back_sidecar_updates() {
    for (strategy, why) in [
        (json!({}), ""),
        (json!({"paused": true}), "/game is paused"),
        (json!({"type": "OnDelete", "paused": true}), "/game has updateStrategy.type OnDelete"),
        (json!({"type": "HotPatchUpdate"}), "/game has updateStrategy.type HotPatchUpdate"),
        (json!({"type": "RollingUpdate"}), ""),
    ] {
        let story = with_sidecars(1, json!({"updateStrategy": strategy}));
        let why_held = why_held(&story);
        assert!(why_held.ends_with(why) && why_held.is_empty() == why.is_empty(), "{why_held}");
    }
}

#[test]
fn native_sidecars_are_not_updated_on_old_kubelets() {
    let mut story = with_sidecars(1, json!({}));
    let set = json!({
        "metadata": {"name": "log"},
        "spec": {
            "selector": {"matchLabels": {"app": "game"}},
            "containers": [{"name": "log", "image": "log:2"}],
            "initContainers": [{"name": "mesh", "image": "mesh:2", "restartPolicy": "Always"}],
        },
    });
    let set: SidecarSet = serde_json::from_value(set).expect("a set");
    story.world.sidecars = vec![Arc::new(Sidecars::of(&set).expect("a selector"))];
    set_tokens(&mut story, true);
    let name = story.names().remove(0);
    story.edit_pod(&name, |pod| pod.node = Some("old".to_owned()));
    let kubelet = OldKubelet::of("v1.31.4").expect("an old kubelet");
    story.world.old_kubelets.insert("old".to_owned(), kubelet);
    assert!(!story.reconcile());
    assert_eq!(image(story.pods()[0], "mesh"), "mesh:1");
    story.world.old_kubelets.clear();
    story.settle();
    assert_eq!(images(&story), ["game:v1 log:2"]);
    assert_eq!(image(story.pods()[0], "mesh"), "mesh:2");
}

#[test]
fn the_pre_delete_hook_guards_sidecar_updates_if_there_is_no_pre_inplace_hook() {
    let hook = json!({"preDeleteUpdateStrategy": {"hook": {"templateName": "test"}}});
    let mut story = with_sidecars(1, hook);
    set_tokens(&mut story, true);
    story.settle();
    assert!(target(&story).contains('+'));
    assert_eq!(images(&story), ["game:v1 log:1"]);
    story.hooks_end("", HookPhase::Successful);
    story.settle();
    assert_eq!(images(&story), ["game:v1 log:2"]);
    let deletions = story.count(|action| matches!(action.change(), Change::DeletePod(_)));
    assert_eq!(deletions, 0);
}

#[test]
fn a_pod_whose_sidecar_revision_no_longer_exists_is_updated_in_place() {
    let mut story = with_sidecars(1, json!({}));
    let name = story.names().remove(0);
    story.edit_pod(&name, |pod| {
        let mark = pod.sidecars.get_mut("log").expect("a mark");
        "log-lost".clone_into(&mut mark.revision);
    });
    set_tokens(&mut story, true);
    story.settle();
    assert_eq!(images(&story), ["game:v1 log:2"]);
    let mark = &story.pods()[0].sidecars["log"];
    assert_eq!(mark.revision, story.world.sidecars[0].revision);
    assert_eq!(story.count(|action| matches!(action.change(), Change::DeletePod(_))), 0);
}

#[test]
fn the_post_inplace_hook_checks_updated_sidecars() {
    let hook = json!({"postInplaceUpdateStrategy": {"hook": {"templateName": "test"}}});
    let mut story = with_sidecars(1, hook);
    set_tokens(&mut story, true);
    story.settle();
    assert!(matches!(story.pods()[0].gate, Gate::Closed(_)));
    assert!(target(&story).contains('+'));
    story.hooks_end("", HookPhase::Successful);
    story.settle();
    assert_eq!(story.pods()[0].gate, Gate::Open);
}

/// The pod whose hook runs for its sidecars alone.
fn pod_with_hook_for_sidecars_alone(story: &Story) -> Pod {
    let runs = story.world.runs.iter();
    let targets: Vec<_> = runs
        .filter_map(|run| run.metadata.annotations.as_ref())
        .map(|it| (&it[names::RUN_POD_UID], &it[names::RUN_TARGET]))
        .collect();
    let pods = story.pods().into_iter();
    let mut found = pods.filter(|pod| {
        let prefix = format!("{}+", pod.revision());
        let mut targets = targets.iter();
        targets.any(|(uid, target)| **uid == pod.uid && target.starts_with(&prefix))
    });
    found.next().expect("a pod").clone()
}

#[test]
fn an_update_of_the_game_does_not_move_to_a_pod_whose_sidecars_are_about_to_change() {
    let strategy = json!({
        "partition": 1, "maxUnavailable": 2,
        "inPlaceUpdateStrategy": {"gracePeriodSeconds": 30},
    });
    let mut story =
        with_sidecars(2, json!({"updateStrategy": strategy, PRE_INPLACE: hooked()[PRE_INPLACE]}));
    story.image("v2").settle();
    set_tokens(&mut story, true);
    story.settle();
    let pod = pod_with_hook_for_sidecars_alone(&story);
    assert_eq!(story.hooks_end(pod.instance(), HookPhase::Successful), 1);
    story.settle();
    let closed = |story: &Story| {
        let pods = story.pods().into_iter();
        let closed = pods.filter(|pod| matches!(pod.gate, Gate::Closed(_)));
        closed.map(|pod| pod.uid.clone()).collect::<Vec<_>>()
    };
    assert_eq!(closed(&story), [pod.uid]);
    story.wait(31).settle();
    let images = images(&story);
    assert!(images.contains(&"game:v1 log:2".to_owned()), "{images:?}");
}
