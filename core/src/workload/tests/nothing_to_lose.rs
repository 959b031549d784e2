//! A pod without running containers has nothing to lose. An action that relies on this applies to the
//! pod exactly as it was observed, or fails.

use crate::api::names;
use serde_json::{Value, json};

use super::story::{Story, merge, story};
use crate::api::HookPhase;
use crate::guard::Ground;
use crate::observed::{Gate, Pod, PodPhase};
use crate::write::{Change, DeletionReason, Proof, Write};

/// A settled workload with a hook at this point, and with these settings.
fn with_hook(point: &str, spec: Value) -> Story {
    let mut full_spec = json!({});
    full_spec[format!("{point}UpdateStrategy")] = json!({"hook": {"templateName": "test"}});
    merge(&mut full_spec, spec);
    let mut story = story(2, full_spec);
    story.settle();
    story
}

fn two_containers() -> Value {
    let container = |name: &str| json!({"name": name, "image": "game:v1"});
    let containers = [container("game"), container("sidecar")];
    json!({"template": {"spec": {"containers": containers}}})
}

/// Stops the kubelets, and returns the name of the pod that will be deleted or changed first.
fn first_in_line(story: &mut Story) -> String {
    story.kubelets_run = false;
    let name = story.names()[0].clone();
    story.edit_pod(&name, |pod| pod.deletion_cost = -1);
    name
}

/// The pods that were written to, and the resourceVersion that each write requires. Deletion marks do not count.
fn pods_written(story: &Story) -> Vec<(&str, Option<u64>)> {
    let is_deletion_mark =
        |it: &Write| it.change().annotation(names::DELETING_ANNOTATION).is_some();
    let writes = story.done.iter().filter(|it| !is_deletion_mark(it));
    let pods = writes.filter_map(Write::pod);
    pods.map(|pod| (pod.name.as_str(), pod.version)).collect()
}

fn version_of(story: &Story, name: &str) -> Option<u64> {
    let pods = story.pods();
    let pod = pods.iter().find(|pod| pod.name == name)?;
    Some(pod.resource_version)
}

#[test]
fn the_hook_is_run_for_a_pending_pod_whose_game_runs() {
    let mut story = with_hook("preDelete", two_containers());
    let name = first_in_line(&mut story);
    // The sidecar waits for its image.
    story.edit_pod(&name, |pod| {
        pod.phase = PodPhase::Pending;
        let status = pod.containers[1].status.as_mut().expect("a status");
        (status.running, status.ready) = (false, false);
    });
    story.user(json!({"replicas": 1})).settle();
    assert_eq!(story.pods().len(), 2);
    assert_eq!(story.runs().len(), 1);
    assert!(story.pods()[0].marked_deleting);
}

#[test]
fn a_native_sidecar_that_runs_is_something_to_lose() {
    let mut story = with_hook("preDelete", two_containers());
    let name = first_in_line(&mut story);
    story.stop_containers(&name);
    story.edit_pod(&name, |pod| {
        pod.containers[1].init = true;
        pod.containers[1].status.as_mut().expect("a status").running = true;
    });
    story.user(json!({"replicas": 1})).settle();
    assert_eq!(story.pods().len(), 2);
    assert_eq!(story.runs().len(), 1);
}

#[test]
fn the_hook_is_run_for_a_pod_that_is_reported_as_ended_while_its_game_runs() {
    let mut story = with_hook("preDelete", json!({}));
    let name = first_in_line(&mut story);
    // The garbage collector does this to a pod whose Node is deleted.
    story.edit_pod(&name, |pod| pod.phase = PodPhase::Failed);
    story.settle();
    assert!(story.names().contains(&name));
    assert_eq!(story.runs().len(), 1);
    assert_eq!(story.pods().len(), 3, "it is replaced meanwhile");
    story.stop_containers(&name);
    story.settle();
    assert!(!story.names().contains(&name));
    assert!(story.runs().is_empty());
}

type Edit = fn(&mut Pod);
type Step = fn(&mut Story);

/// States of a pod that has no running containers.
const IDLE: [(&str, Edit); 3] = [
    ("never started", |pod| pod.phase = PodPhase::Pending),
    ("not reported", |pod| {
        pod.phase = PodPhase::Pending;
        pod.containers[0].status = None;
    }),
    ("crashed", |pod| pod.phase = PodPhase::Running),
];

#[test]
fn a_pod_without_running_containers_needs_no_hook_but_must_be_unchanged() {
    let named = |name: &str| json!({"scaleStrategy": {"podsToDelete": [name]}});
    let changes: [(Step, DeletionReason); 2] = [
        (
            |story| {
                story.user(json!({"replicas": 1}));
            },
            DeletionReason::ScaleIn,
        ),
        (
            |story| {
                story.image("v2").reconcile();
                story.reconcile();
            },
            DeletionReason::Update,
        ),
    ];
    for (state, edit) in IDLE {
        for (change, reason) in changes {
            let mut story =
                with_hook("preDelete", json!({"updateStrategy": {"maxUnavailable": 1}}));
            let name = first_in_line(&mut story);
            story.stop_containers(&name);
            story.edit_pod(&name, edit);
            story.done.clear();
            let observed = version_of(&story, &name);
            change(&mut story);
            story.reconcile();
            assert_eq!(pods_written(&story), [(name.as_str(), observed)], "{state}, {reason:?}");
            assert_eq!(story.runs(), [""; 0]);
            let is_deletion = |it: &Write| matches!(it.change(), Change::DeletePod(it) if it.reason == reason && it.ground != Ground::NoHook);
            assert_eq!(story.count(is_deletion), 1, "{state}, {reason:?}");
            assert!(story.done.iter().all(|it| it.proof() == Proof::Owner || !is_deletion(it)));
        }
        let mut story = with_hook("preDelete", json!({}));
        let name = first_in_line(&mut story);
        story.stop_containers(&name);
        story.edit_pod(&name, edit);
        story.done.clear();
        let observed = version_of(&story, &name);
        story.user(named(&name)).reconcile();
        assert_eq!(pods_written(&story), [(name.as_str(), observed)], "{state}, podsToDelete");
    }
}

#[test]
fn a_pod_that_started_meanwhile_is_kept_and_its_hook_is_run() {
    let mut story = with_hook("preDelete", json!({}));
    let name = first_in_line(&mut story);
    story.stop_containers(&name);
    story.user(json!({"replicas": 1}));
    let plan = story.plan();
    assert_eq!(plan.writes.len(), 1);
    // The pod starts after the plan was made.
    story.kubelets_run = true;
    story.kubelets_act();
    story.refused.clear();
    plan.writes.into_iter().for_each(|it| story.carry_out(it));
    assert_eq!(story.refused.len(), 1);
    story.settle();
    assert_eq!(story.pods().len(), 2);
    assert_eq!(story.runs().len(), 1);
    story.hooks_end("", HookPhase::Failed);
    // The game is dead, so its hook does not respond.
    story.kubelets_run = false;
    story.stop_containers(&name);
    story.refused.clear();
    story.settle();
    assert_eq!(story.pods().len(), 1);
    assert!(story.refused.is_empty(), "nothing else is written to the pod first");
    assert!(story.runs().is_empty());
}

#[test]
fn a_pod_that_has_no_hook_is_deleted_even_if_it_has_changed() {
    let mut story = story(2, json!({}));
    story.settle();
    story.done.clear();
    story.user(json!({"replicas": 1})).reconcile();
    assert_eq!(pods_written(&story)[0].1, None);
    assert_eq!(story.done[0].proof(), Proof::OwnerAlone);
}

/// A story in which pods are updated in place, and the name of the first pod in line, whose containers are stopped.
fn in_place(point: &str) -> (Story, String) {
    let strategy = json!({"type": "InplaceUpdate", "maxUnavailable": 1});
    let mut story = with_hook(point, json!({"updateStrategy": strategy}));
    story.user(json!({"updateStrategy": {"partition": 0}}));
    // Each image is rolled out once, so the API server has accepted both revisions.
    for tag in ["v2", "v1"] {
        story.image(tag).settle();
        while story.hooks_end("", HookPhase::Successful) > 0 {
            story.settle();
        }
    }
    assert_eq!(story.images(), "v1 v1");
    let name = first_in_line(&mut story);
    story.stop_containers(&name);
    story.done.clear();
    (story, name)
}

#[test]
fn a_pod_that_has_not_started_is_changed_only_in_the_version_that_was_observed() {
    for point in ["preDelete", "preInplace", "postInplace"] {
        let (mut story, name) = in_place(point);
        story.edit_pod(&name, |pod| pod.phase = PodPhase::Pending);
        let observed = version_of(&story, &name);
        story.image("v2");
        while story.done.is_empty() {
            story.reconcile();
        }
        assert_eq!(pods_written(&story)[0], (name.as_str(), observed), "{point}");
        assert_eq!(story.images(), "v1 v2");
        assert_eq!(story.pods()[0].gate, Gate::Open);
    }
}

#[test]
fn a_crashed_server_is_changed_with_its_gate_closed() {
    for (point, has_precondition) in
        [("preDelete", true), ("preInplace", true), ("postInplace", false)]
    {
        let (mut story, name) = in_place(point);
        let observed = version_of(&story, &name);
        story.image("v2");
        while story.done.is_empty() {
            story.reconcile();
        }
        let first_write = story.done.iter().find(|it| it.pod().is_some()).map(Write::change);
        let Some(Change::SetGate { pod, closed_for: Some(_), then }) = first_write else {
            panic!("{first_write:?}");
        };
        let change = then.as_ref().expect("the change follows");
        assert_eq!(pod.version, observed.filter(|_| has_precondition), "{point}");
        assert_eq!(change.pod.version, pod.version);
        // The change itself is made. A PostInplace hook waits until the containers run.
        story.reconcile();
        assert_eq!(story.images(), "v1 v2", "{point}");
        assert!(story.refused.is_empty());
        assert!(matches!(story.pods()[0].gate, Gate::Closed(_)));
        story.settle();
        assert_eq!(story.runs(), [""; 0], "{point}");
    }
}
