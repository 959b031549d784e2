//! Sidecars that are injected into the pods of a workload.

use std::sync::Arc;

use serde::Serialize;
use serde_json::{Value, json};

use super::story::{Story, merge, set, story};
use crate::api::{HookTemplate, SidecarSet};
use crate::observed::*;
use crate::sidecar_set::{Sidecars, UnreadableSet};
use crate::workload::Planned;
use crate::write::*;

/// A SidecarSet whose container is placed before the game.
fn log_set(image: &str) -> Arc<Sidecars> {
    let set = json!({
        "metadata": {"name": "log"},
        "spec": {
            "selector": {"matchLabels": {"app": "game"}},
            "containers": [{"name": "log", "image": image}],
            "volumes": [{"name": "data", "emptyDir": {}}],
            "patchPodMetadata": [{"annotations": {"logs": "on"}}],
        },
    });
    let set: SidecarSet = serde_json::from_value(set).expect("a set");
    Arc::new(Sidecars::of(&set).expect("a selector"))
}

fn images_of(pod: &Pod) -> Vec<&str> {
    pod.containers.iter().map(|it| it.image.as_str()).collect()
}

fn plans_dry_run_with_log(story: &Story) -> bool {
    let plan = story.plan();
    let mut actions = plan.writes.iter();
    actions.any(|action| matches!(action.change(), Change::DryRun { pod, .. } if has_log(pod)))
}

fn has_log(pod: &Value) -> bool {
    pod["spec"]["containers"][0]["name"] == "log" && pod["metadata"]["annotations"]["logs"] == "on"
}

#[test]
fn new_pods_get_sidecars_and_running_ones_are_left_alone() {
    let mut story = story(2, json!({"updateStrategy": {"type": "InplaceUpdate"}}));
    story.settle();
    story.world.sidecars = vec![log_set("log:1")];
    assert!(!story.reconcile(), "a new set does not affect running pods");
    story.user(json!({"replicas": 3})).settle();
    let pods_with_log = |story: &Story| {
        let has_log = |pod: &&Arc<Pod>| images_of(pod).contains(&"log:1");
        story.world.pods.iter().filter(has_log).count()
    };
    assert_eq!(pods_with_log(&story), 1);
    story.image("v2").settle();
    assert_eq!(pods_with_log(&story), 1);
    let mut pods = story.world.pods.iter();
    assert!(pods.all(|pod| images_of(pod).contains(&"game:v2")));
}

/// A SidecarSet for pods with this label that a newer version wrote.
fn unreadable_set(app: &str) -> Arc<UnreadableSet> {
    let head = json!({"metadata": {}, "spec": {"selector": {"matchLabels": {"app": app}}}});
    let head = serde_json::from_value(head).expect("a head");
    Arc::new(UnreadableSet::new("mesh", Some(&head)).expect("a selector"))
}

#[test]
fn no_pod_is_created_or_given_up_while_a_set_that_may_select_it_is_unreadable() {
    for strategy in ["RollingUpdate", "InplaceUpdate"] {
        let spec = || json!({"updateStrategy": {"type": strategy}});
        waits_for_the_unreadable_set(story(2, spec()));
        waits_for_the_unreadable_set(set(2, spec()));
    }
}

fn waits_for_the_unreadable_set<K: Planned + Serialize>(mut story: Story<K>) {
    story.settle();
    let uids = |story: &Story<K>| -> Vec<String> {
        story.world.pods.iter().map(|pod| pod.uid.clone()).collect()
    };
    let before = uids(&story);
    story.world.unreadable_sidecars = vec![unreadable_set("other"), unreadable_set("game")];
    assert!(!story.reconcile(), "running pods are not affected");
    story.user(json!({"replicas": 3})).settle();
    assert_eq!(uids(&story), before);
    let (reason, message) = story.condition("FailedScale").expect("a condition");
    assert_eq!(reason, "SidecarsUnreadable");
    assert!(message.contains("SidecarSet mesh"), "{message}");
    story.image("v2").settle();
    assert_eq!(uids(&story), before, "no pod is given up");
    assert_eq!(story.condition("FailedUpdate").expect("condition").0, "SidecarsUnreadable");
    story.world.unreadable_sidecars = vec![unreadable_set("other")];
    story.wait(60).settle();
    assert_eq!(story.world.pods.len(), 3);
    assert!(story.world.pods.iter().all(|pod| images_of(pod) == ["game:v2"]));
    assert_eq!(story.condition("FailedScale"), None);
}

#[test]
fn the_dry_run_checks_the_template_together_with_its_sidecars() {
    let mut story = story(2, json!({}));
    story.world.sidecars = vec![log_set("log:1")];
    story.settle();
    story.image("v2");
    assert!(story.reconcile() && plans_dry_run_with_log(&story));
    story.settle();
    // The next pods get a new image of the sidecar as well as of the game.
    story.world.sidecars = vec![log_set("log:2")];
    story.world.memory.verdicts.clear();
    story.dry_run_refusal = Some("no such image".to_owned());
    let before: Vec<String> = story.world.pods.iter().map(|pod| pod.uid.clone()).collect();
    story.image("v3").settle();
    let after: Vec<String> = story.world.pods.iter().map(|pod| pod.uid.clone()).collect();
    assert_eq!(before, after, "no pod is deleted if its replacement is refused");
    story.dry_run_refusal = None;
    story.wait(60).settle();
    let mut pods = story.world.pods.iter();
    assert!(pods.all(|pod| images_of(pod) == ["log:2", "game:v3"]));
}

#[test]
fn a_sidecars_volume_with_the_name_of_a_claim_is_a_conflict() {
    let claims = json!([{"metadata": {"name": "data"}, "spec": {}}]);
    let mut story = set(1, json!({"volumeClaimTemplates": claims}));
    story.world.sidecars = vec![log_set("log:1")];
    story.settle();
    let pod = &story.world.pods[0];
    assert_eq!(images_of(pod), ["game:v1"]);
    let why = pod.sidecars["log"].left_out.as_deref();
    assert_eq!(why, Some("the pod has another volume \"data\"; rename one of the two"));
}

/// Adds the HookTemplate `named`, with so many names of containers as its arguments.
fn add_named_template(story: &mut Story, containers: usize) {
    let names = (0..containers).map(|index| json!({"name": format!("PodContainer[{index}]")}));
    let template = json!({
        "metadata": {"name": "named"},
        "spec": {"args": names.collect::<Vec<_>>(), "metrics": [
            {"name": "a", "provider": {"web": {"url": "http://127.0.0.1"}}},
        ]},
    });
    let template: HookTemplate = serde_json::from_value(template).expect("a template");
    story.world.templates.insert("named".to_owned(), Arc::new(template));
}

#[test]
fn hooks_get_the_templates_containers_first_and_in_its_order() {
    let hook = json!({"hook": {"templateName": "named"}});
    let names = ["game", "admin"].map(|name| json!({"name": name, "image": "game:v1"}));
    let mut story = story(
        1,
        json!({"preDeleteUpdateStrategy": hook, "template": {"spec": {"containers": names}}}),
    );
    add_named_template(&mut story, 4);
    story.world.sidecars = vec![log_set("log:1")];
    story.settle();
    // Webhooks of other projects have put a proxy before the game, and sorted the containers by name.
    let containers = &mut Arc::make_mut(&mut story.world.pods[0]).containers;
    let proxy = Container { name: "a-mesh".to_owned(), ..containers[0].clone() };
    containers.push(proxy);
    containers.sort_by_key(|container| container.name.clone());
    story.user(json!({"replicas": 0})).settle();
    let args = &story.world.runs[0].spec.args;
    let values: Vec<_> = args.iter().filter_map(|it| it.value.as_deref()).collect();
    assert_eq!(values, ["game", "admin", "a-mesh", "log"]);
}

#[test]
fn hooks_get_the_containers_of_an_old_pod_in_the_order_of_its_own_template() {
    let hook = json!({"hook": {"templateName": "named"}});
    let containers = |names: [&str; 2]| names.map(|name| json!({"name": name, "image": "game:v1"}));
    let mut story = story(
        1,
        json!({
            "preDeleteUpdateStrategy": hook, "updateStrategy": {"type": "OnDelete"},
            "template": {"spec": {"containers": containers(["game", "admin"])}},
        }),
    );
    add_named_template(&mut story, 2);
    story.settle();
    let turned = json!({"template": {"spec": {"containers": containers(["admin", "game"])}}});
    story.user(turned).settle();
    story.user(json!({"replicas": 0})).settle();
    let args = &story.world.runs[0].spec.args;
    let values: Vec<_> = args.iter().filter_map(|it| it.value.as_deref()).collect();
    assert_eq!(values, ["game", "admin"]);
}

/// A set that adds a container with this CPU request to `list`: `containers` or `initContainers`.
fn requesting_set(cpu: &str, list: &str, fields: Value) -> Arc<Sidecars> {
    let mut container = json!({
        "name": "log", "image": "log:1", "resources": {"requests": {"cpu": cpu}},
        "podInjectPolicy": "AfterAppContainer",
    });
    merge(&mut container, fields);
    let set = json!({
        "metadata": {"name": "log"},
        "spec": {"selector": {"matchLabels": {"app": "game"}}, list: [container]},
    });
    let set: SidecarSet = serde_json::from_value(set).expect("a set");
    Arc::new(Sidecars::of(&set).expect("a selector"))
}

/// A workload with three pods. Each has a game container that requests one CPU, and these sidecars.
fn with_requests(sidecars: Vec<Arc<Sidecars>>) -> Story {
    let game = json!({
        "name": "game", "image": "game:v1", "resources": {"requests": {"cpu": "1"}},
    });
    let template = json!({"spec": {"containers": [game]}});
    let mut story = story(3, json!({"template": template}));
    story.world.sidecars = sidecars;
    story.settle();
    story
}

/// Makes dry runs fail as if a full quota refused an additional pod with this request.
fn refuse_additional(story: &mut Story, requested: &str, limit: &str) {
    story.dry_run_refusal = Some(format!(
        "exceeded quota: team, requested: requests.cpu={requested}, used: requests.cpu={limit}, \
         limited: requests.cpu={limit}"
    ));
}

#[test]
fn pods_with_sidecars_are_replaced_under_a_full_quota() {
    for (list, fields) in
        [("containers", json!({})), ("initContainers", json!({"restartPolicy": "Always"}))]
    {
        let mut story = with_requests(vec![requesting_set("100m", list, fields)]);
        refuse_additional(&mut story, "1100m", "3300m");
        story.image("v2").settle();
        assert_eq!(story.images(), "v2 v2 v2", "{list}");
    }
}

#[test]
fn under_a_full_quota_pods_that_request_less_than_their_replacements_are_kept() {
    let mut story = with_requests(Vec::new());
    // The set is new, so the running pods do not have its container.
    story.world.sidecars = vec![requesting_set("100m", "containers", json!({}))];
    refuse_additional(&mut story, "1100m", "3");
    story.image("v2").settle();
    assert_eq!(story.images(), "v1 v1 v1");
    let (reason, _) = story.condition("FailedUpdate").expect("a condition");
    assert_eq!(reason, "TemplateRefused");
}

#[test]
fn a_full_quota_lets_the_last_pod_with_sidecars_be_replaced() {
    let mut story = with_requests(vec![requesting_set("100m", "containers", json!({}))]);
    story.user(json!({"replicas": 1})).settle();
    refuse_additional(&mut story, "1100m", "1100m");
    story.image("v2").settle();
    assert_eq!(story.images(), "v2");
}
