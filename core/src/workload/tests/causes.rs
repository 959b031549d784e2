//! Why nothing moves: the causes in the status, and what conditions and events say of them.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

use super::story::{Story, story};
use crate::api::names::RETRY_ANNOTATION;
use crate::api::{Actor, Cause, ConditionType, HookPhase};
use crate::observed::{LostNode, Trouble, TroubleKind};
use crate::workload::Retry;
use crate::write::Event;

fn one(story: &Story) -> Cause {
    let causes = story.status().causes;
    assert_eq!(causes.len(), 1, "{causes:#?}");
    causes.into_iter().next().expect("a cause")
}

/// Gives a pod a trouble that began now, and makes it unready.
fn trouble(story: &mut Story, pod: &str, kind: TroubleKind) {
    let since = story.world.now;
    story.kubelets_run = false;
    story.edit_pod(pod, |pod| {
        pod.ready_since = None;
        pod.trouble = Some(Box::new(Trouble { kind, since, over_at: None }));
    });
}

/// Carries out plans until nothing changes, and returns their events.
fn events(story: &mut Story) -> Vec<Event> {
    let mut events = Vec::new();
    for _ in 0..100 {
        events.extend(story.plan().events);
        if !story.reconcile() {
            return events;
        }
    }
    panic!("never settles");
}

/// One of each kind, with the reason, who acts, and words of the sentence.
fn kinds() -> Vec<(TroubleKind, &'static str, Actor, &'static str)> {
    let text = |text: &str| text.to_owned();
    let game = || text("game");
    vec![
        (TroubleKind::NotScheduled, "PodUnschedulable", Actor::User, "not been seen by any"),
        (
            TroubleKind::Unschedulable(text("0/5 nodes are available")),
            "PodUnschedulable",
            Actor::Node,
            "cannot be scheduled: 0/5 nodes",
        ),
        (TroubleKind::SchedulingGated, "PodUnschedulable", Actor::User, "schedulingGates"),
        (
            TroubleKind::ClaimNotBound(text("persistentvolumeclaim \"a\" not found")),
            "ClaimNotBound",
            Actor::User,
            "its volume claim: persistentvolumeclaim",
        ),
        (
            TroubleKind::Image { container: game(), image: text("game:typo"), why: text("no") },
            "ImageNotPulled",
            Actor::User,
            "cannot get its image game:typo: no",
        ),
        (
            TroubleKind::NotCreated { container: game(), why: text("configmap \"c\" not found") },
            "ContainerNotCreated",
            Actor::User,
            "cannot be started: configmap",
        ),
        (
            TroubleKind::Crashing { container: game(), ended: text("exit code 1") },
            "ContainerCrashing",
            Actor::User,
            "keeps ending, last with exit code 1",
        ),
        (
            TroubleKind::NotStarted { container: game(), node: text("node-1") },
            "ContainerNotStarted",
            Actor::Node,
            "node node-1 has not started container game",
        ),
        (
            TroubleKind::Initializing(text("init")),
            "ContainerNotStarted",
            Actor::Game,
            "init container init",
        ),
        (
            TroubleKind::ProbeFails { container: game(), startup: false },
            "ProbeNotSuccessful",
            Actor::Game,
            "readiness probe has not succeeded",
        ),
        (
            TroubleKind::ProbeFails { container: game(), startup: true },
            "ProbeNotSuccessful",
            Actor::Game,
            "startup probe",
        ),
        (
            TroubleKind::GateClosed(text("example.com/lb")),
            "ReadinessGateClosed",
            Actor::User,
            "readiness gate example.com/lb",
        ),
    ]
}

#[test]
fn a_pod_whose_node_does_not_respond_is_told_with_the_node() {
    let mut story = story(2, json!({}));
    story.settle();
    let pod = story.names()[0].clone();
    let since = story.world.now;
    let lost = LostNode { unreachable: true, since: Some(since), out_of_service: false };
    story.world.lost_nodes.insert("node-1".to_owned(), lost);
    story.kubelets_run = false;
    story.edit_pod(&pod, |pod| pod.node = Some("node-1".to_owned()));
    story.settle();
    assert_eq!(story.status().causes, [], "a pod that is ready has no trouble");
    story.edit_pod(&pod, |pod| pod.ready_since = None);
    story.settle();
    let cause = one(&story);
    assert_eq!(
        (&*cause.reason, cause.actor, &*cause.node),
        ("NodeUnreachable", Actor::Node, "node-1")
    );
    assert_eq!(cause.message, format!("node node-1, on which pod {pod} runs, does not respond"));
    let ready = story.condition("Ready").expect("a condition");
    assert!(ready.1.contains("node node-1"), "{ready:?}");
}

#[test]
fn each_trouble_of_a_pod_is_in_the_cause_the_conditions_and_an_event() {
    for (kind, reason, actor, words) in kinds() {
        let mut story = story(2, json!({}));
        story.settle();
        assert_eq!(story.status().causes, []);
        let pod = story.names()[0].clone();
        trouble(&mut story, &pod, kind.clone());
        let since = story.world.now;
        let mut seen = events(&mut story);
        let shown = kind_is_immediate(&kind);
        assert_eq!(one(&story).reason == reason, shown, "{kind:?}: {:?}", one(&story));
        let wake = story.plan().wake.expect("a time");
        assert!(shown || wake == since + SignedDuration::from_secs(5), "{kind:?}: {wake}");
        story.wait(5);
        seen.extend(events(&mut story));
        let cause = one(&story);
        assert_eq!((cause.reason.as_str(), cause.actor), (reason, actor), "{cause:?}");
        assert_eq!((cause.pods, cause.pod_count, cause.since.0), (vec![pod.clone()], 1, since));
        for type_ in ["Ready", "Progressing"] {
            let (_, message) = story.condition(type_).expect("a condition");
            assert!(message.contains(words) && message.contains(&pod), "{type_}: {message}");
        }
        let told = seen.iter().filter(|it| it.reason == reason).count();
        assert_eq!(told, 1, "{kind:?}: {seen:?}");
    }
}

fn kind_is_immediate(kind: &TroubleKind) -> bool {
    let trouble = Trouble { kind: kind.clone(), since: Timestamp::UNIX_EPOCH, over_at: None };
    trouble.is_shown(Timestamp::UNIX_EPOCH)
}

#[test]
fn pods_with_the_same_trouble_have_one_cause() {
    let mut story = story(20, json!({}));
    story.settle();
    let image = |image: &str| TroubleKind::Image {
        container: "game".to_owned(),
        image: image.to_owned(),
        why: String::new(),
    };
    for pod in story.names() {
        trouble(&mut story, &pod, image("game:typo"));
        story.wait(1);
    }
    story.settle();
    let cause = one(&story);
    assert_eq!((cause.pods.len(), cause.pod_count), (Cause::MAX_PODS, 20));
    assert!(cause.sentence().ends_with("(19 more pods too)"), "{}", cause.sentence());
    let first = story.names().remove(0);
    assert!(cause.message.contains(&first), "{}", cause.message);
}

#[test]
fn the_most_urgent_trouble_explains_a_condition() {
    let mut story = story(3, json!({}));
    story.settle();
    let pods = story.names();
    let game = || "game".to_owned();
    trouble(&mut story, &pods[0], TroubleKind::ProbeFails { container: game(), startup: false });
    story.wait(10);
    let why = String::new();
    trouble(&mut story, &pods[1], TroubleKind::NotCreated { container: game(), why });
    story.settle();
    let (_, message) = story.condition("Ready").expect("Ready");
    assert!(message.starts_with("1 of 3 pods are available: "), "{message}");
    assert!(message.contains(&pods[1]), "{message}");
    assert_eq!(story.status().causes.len(), 2);
}

#[test]
fn a_rollout_fails_when_a_pod_is_not_ready_for_too_long() {
    for (spec, seconds) in [(json!({}), 600), (json!({"progressDeadlineSeconds": 30}), 30)] {
        let mut story = story(2, spec);
        story.settle();
        let pod = story.names()[0].clone();
        let kind = TroubleKind::Unschedulable("no room".to_owned());
        trouble(&mut story, &pod, kind);
        story.settle().wait(seconds - 1).settle();
        assert_eq!(story.condition("Progressing").expect("it").0, "RollingOut");
        let wake = story.plan().wake.expect("a time");
        assert_eq!(wake, story.world.now + SignedDuration::from_secs(1));
        story.wait(1);
        let told = events(&mut story);
        let (reason, message) = story.condition("Progressing").expect("it");
        assert_eq!(reason, "ProgressDeadlineExceeded");
        assert!(message.contains(&format!("within {seconds} s")), "{message}");
        assert!(message.contains("no room"), "{message}");
        assert!(told.iter().any(|it| it.warning && it.reason == reason), "{told:?}");
        assert_eq!(one(&story).actor, Actor::User);
        story.wait(10).settle();
        assert_eq!(story.condition("Stalled").expect("it").0, reason);
        // The node that was missing has come.
        story.edit_pod(&pod, |pod| pod.trouble = None);
        story.kubelets_run = true;
        story.settle();
        assert_eq!(story.condition("Progressing").expect("it").0, "Complete");
        assert_eq!(story.status().causes, []);
    }
}

#[test]
fn a_paused_rollout_has_no_deadline() {
    let mut story = story(2, json!({}));
    story.settle();
    story.user(json!({"updateStrategy": {"paused": true}})).image("v2").settle();
    let pod = story.names()[0].clone();
    trouble(&mut story, &pod, TroubleKind::Unschedulable(String::new()));
    story.settle().wait(10_000).settle();
    assert_eq!(story.condition("Progressing").expect("it").0, "Paused");
    let reasons: Vec<String> = story.status().causes.into_iter().map(|it| it.reason).collect();
    assert_eq!(reasons, ["Paused", "PodUnschedulable"]);
}

#[test]
fn a_container_that_crashes_counts_as_running_only_after_a_while() {
    let mut story = story(1, json!({}));
    story.settle();
    let pod = story.names()[0].clone();
    let over_at = story.world.now + SignedDuration::from_secs(20);
    story.edit_pod(&pod, |pod| {
        let kind =
            TroubleKind::Crashing { container: "game".to_owned(), ended: "exit code 1".to_owned() };
        let since = pod.created;
        pod.trouble = Some(Box::new(Trouble { kind, since, over_at: Some(over_at) }));
    });
    story.settle();
    let status = story.status();
    assert_eq!((status.ready_replicas, status.available_replicas), (1, 0));
    let cause = one(&story);
    assert_eq!((cause.reason.as_str(), cause.container.as_str()), ("ContainerCrashing", "game"));
    assert_eq!(cause.until.map(|it| it.0), Some(over_at));
    assert_eq!(story.plan().wake, Some(over_at));
    story.wait(20).settle();
    assert_eq!(story.condition("Ready").expect("Ready").0, "AllPodsAvailable");
    assert_eq!(story.status().causes, []);
}

#[test]
fn a_build_becomes_stable_only_when_its_containers_have_run_for_a_moment() {
    let mut story = story(1, json!({"updateStrategy": {"type": "InplaceUpdate"}}));
    story.settle();
    let stable = story.status().canary.revision;
    story.image("v2");
    for _ in 0..20 {
        story.reconcile();
        let pod = story.names()[0].clone();
        let now = story.world.now;
        story.edit_pod(&pod, |pod| {
            let status = pod.containers[0].status.as_mut().expect("a status");
            status.started_at = Some(now);
        });
    }
    assert_eq!(story.images(), "v2");
    assert_eq!(story.condition("Ready").expect("Ready").0, "RevisionNotProven");
    assert_eq!(one(&story).reason, "RevisionNotProven");
    assert_eq!(story.status().canary.revision, stable);
    assert_eq!(story.plan().wake, Some(story.world.now + SignedDuration::from_secs(3)));
    story.wait(3).settle();
    let status = story.status();
    assert_ne!(status.canary.revision, stable);
    assert_eq!(story.condition("Ready").expect("Ready").0, "AllPodsAvailable");
    assert_eq!(status.earlier_stable_revisions, [stable]);
}

#[test]
fn a_build_that_crashes_at_once_never_becomes_stable() {
    let mut story = story(1, json!({"updateStrategy": {"type": "InplaceUpdate"}}));
    story.settle();
    let stable = story.status().canary.revision;
    story.image("bad").settle();
    // It was ready for a moment: the story's containers have run for long. A second one is watched closely.
    let bad = story.status().canary.revision;
    assert_ne!(bad, stable);
    story.image("worse");
    for second in 0..30 {
        let pod = story.names()[0].clone();
        let now = story.world.now;
        story.reconcile();
        story.edit_pod(&pod, |pod| {
            let status = pod.containers[0].status.as_mut().expect("a status");
            status.started_at = Some(now - SignedDuration::from_secs(second % 3));
            let kind = TroubleKind::Crashing { container: "game".to_owned(), ended: String::new() };
            let over_at = (second % 3 != 2).then(|| now + SignedDuration::from_secs(10));
            pod.trouble = Some(Box::new(Trouble { kind, since: now, over_at }));
        });
        story.wait(1);
    }
    assert_eq!(story.status().canary.revision, bad);
    assert_eq!(story.status().earlier_stable_revisions, [stable]);
    assert_eq!(story.condition("Ready").expect("Ready").0, "PodsUnavailable");
}

#[test]
fn a_terminating_pod_that_does_not_go_is_told() {
    for (kind, patience, reason) in [
        (TroubleKind::Finalizer("example.com/keep".to_owned()), 0, "PodHeldByFinalizer"),
        (TroubleKind::NotEnded("node-1".to_owned()), 30, "PodNotEnded"),
    ] {
        let mut story = story(2, json!({}));
        story.slow_to_end = true;
        story.settle();
        let pod = story.names()[0].clone();
        let since = story.world.now;
        story.edit_pod(&pod, |pod| {
            pod.terminating = true;
            pod.trouble = Some(Box::new(Trouble { kind, since, over_at: None }));
        });
        story.settle().wait(patience).settle();
        let cause = one(&story);
        assert_eq!((cause.reason.as_str(), &cause.pods[..]), (reason, &[pod][..]));
    }
}

#[test]
fn hooks_that_run_or_refuse_are_causes() {
    let hook = json!({"hook": {"templateName": "test"}});
    for (protection, actor) in
        [(json!(null), Actor::User), (json!({"pods": "Guarded"}), Actor::Game)]
    {
        let guarded = protection.is_object();
        let mut story =
            story(3, json!({"preDeleteUpdateStrategy": hook, "protection": protection}));
        story.settle();
        story.user(json!({"replicas": 1})).settle();
        let cause = one(&story);
        assert_eq!((cause.reason.as_str(), cause.actor), ("HookRunning", Actor::Game));
        assert_eq!((cause.pod_count, cause.hook_point.as_str()), (2, "PreDelete"));
        let since = cause.since.clone();
        story.wait(2).settle();
        assert_eq!(one(&story).since, since);
        story.hooks_end("", HookPhase::Failed);
        story.settle();
        let cause = one(&story);
        assert_eq!((cause.reason.as_str(), cause.actor), ("HookNotSuccessful", actor));
        assert_eq!((cause.pod_count, cause.until.is_some()), (2, guarded), "{cause:?}");
    }
}

#[test]
fn a_hook_that_cannot_be_measured_is_a_cause_before_it_ends() {
    let hook = json!({"hook": {"templateName": "test"}});
    let steps = json!([{"hook": {"templateName": "test"}}]);
    let strategy = json!({"type": "InplaceUpdate", "canary": {"steps": steps}});
    let image =
        json!({"template": {"spec": {"containers": [{"name": "game", "image": "game:v2"}]}}});
    for (spec, change, waits) in [
        (
            json!({"preDeleteUpdateStrategy": hook}),
            json!({"replicas": 1}),
            "waits for its PreDelete hook",
        ),
        (json!({"updateStrategy": strategy}), image, "waits for its hook"),
    ] {
        let mut story = story(2, spec);
        story.settle();
        story.user(change).settle();
        let since = one(&story).since.clone();
        story.hooks_measure(Some("connection refused"));
        story.settle();
        let cause = one(&story);
        assert_eq!((cause.reason.as_str(), cause.actor), ("HookNotMeasured", Actor::User));
        assert_eq!(cause.since, since);
        let is_told = |it: &str| it.contains(waits) && it.ends_with("connection refused");
        assert!(is_told(&cause.message), "{}", cause.message);
        let status = story.status();
        let ready = status.condition(ConditionType::Ready).expect("a condition");
        assert!(ready.message.contains("connection refused"), "{}", ready.message);
        story.hooks_measure(None);
        story.settle();
        assert_eq!((one(&story).reason.as_str(), one(&story).actor), ("HookRunning", Actor::Game));
    }
}

/// A workload that is paused at a step because its hook failed.
fn paused_by_hook() -> Story {
    let steps = json!([{"partition": 1}, {"hook": {"templateName": "test"}}, {"pause": {}}]);
    let strategy = json!({"type": "InplaceUpdate", "canary": {"steps": steps}});
    let mut story = story(2, json!({"updateStrategy": strategy}));
    story.settle();
    story.image("v2").settle();
    let cause = one(&story);
    assert_eq!((cause.reason.as_str(), cause.hook_point.as_str()), ("HookRunning", "Step"));
    assert_eq!(story.hooks_end("", HookPhase::Failed), 1);
    story.settle();
    story
}

#[test]
fn the_hook_of_a_step_is_run_again_on_request() {
    let mut story = paused_by_hook();
    let cause = one(&story);
    assert_eq!((cause.reason.as_str(), cause.actor), ("PausedByStepBasedHook", Actor::User));
    assert!(cause.message.contains("ended Failed"), "{}", cause.message);
    assert!(story.paused());
    let retry = Retry::of_step(story.object.metadata.generation.unwrap_or(0), None);
    story.annotate(RETRY_ANNOTATION, &retry);
    story.settle();
    assert!(!story.paused());
    assert_eq!(story.annotation(RETRY_ANNOTATION), None);
    assert_eq!(story.runs().len(), 1);
    assert_eq!(one(&story).reason, "HookRunning");
    assert_eq!(story.status().current_step_index, Some(1));
    // It may fail again, and is then run again only on request.
    story.hooks_end("", HookPhase::Failed);
    story.settle();
    assert_eq!(one(&story).reason, "PausedByStepBasedHook");
    story.annotate(RETRY_ANNOTATION, &Retry::of_step(99, None));
    story.settle();
    story.hooks_end("", HookPhase::Successful);
    story.settle();
    assert_eq!(one(&story).reason, "PausedByCanaryPauseStep");
    assert_eq!(story.status().current_step_index, Some(2));
}

#[test]
fn a_step_is_retried_although_its_run_is_deleted_slowly() {
    let mut story = paused_by_hook();
    let deleted_at = Some(Time(story.world.now));
    Arc::make_mut(&mut story.world.runs[0]).metadata.deletion_timestamp = deleted_at;
    story.annotate(RETRY_ANNOTATION, &Retry::of_step(99, None));
    for _ in 0..4 {
        story.reconcile();
        assert!(story.paused() && story.annotation(RETRY_ANNOTATION).is_some());
    }
    story.world.runs.clear();
    story.settle();
    assert!(!story.paused());
    assert_eq!(story.annotation(RETRY_ANNOTATION), None);
    assert_eq!(one(&story).reason, "HookRunning");
}

#[test]
fn a_request_to_retry_a_step_that_is_not_paused_is_forgotten() {
    let mut story = story(1, json!({}));
    story.settle();
    story.annotate(RETRY_ANNOTATION, &Retry::of_step(1, None));
    story.settle();
    assert_eq!(story.annotation(RETRY_ANNOTATION), None);
}

#[test]
fn a_hook_that_cannot_run_is_told_before_it_is_needed() {
    let hook = json!({"hook": {"templateName": "missing"}});
    let mut story = story(2, json!({"preDeleteUpdateStrategy": hook}));
    let told = events(&mut story);
    let cause = one(&story);
    assert_eq!((cause.reason.as_str(), cause.actor), ("HookTemplateNotFound", Actor::User));
    assert!(told.iter().any(|it| it.warning && it.reason == cause.reason), "{told:?}");
    assert_eq!(story.condition("Ready").expect("Ready").0, "AllPodsAvailable");
    // When it is needed, the condition says so, and there are not two causes.
    story.user(json!({"replicas": 1})).settle();
    let reasons: Vec<String> = story.status().causes.into_iter().map(|it| it.reason).collect();
    assert_eq!(reasons, ["HookTemplateNotFound"]);
    assert_eq!(story.condition("FailedScale").expect("it").0, "HookTemplateNotFound");
    story.template("missing").settle();
    assert_eq!(one(&story).reason, "HookRunning");
    story.hooks_end("", HookPhase::Successful);
    story.settle();
    assert_eq!(story.status().causes, []);
}

#[test]
fn a_pause_says_who_acts_and_until_when() {
    for (pause, actor) in [(json!({}), Actor::User), (json!({"duration": 60}), Actor::Nobody)] {
        let strategy = json!({"type": "InplaceUpdate", "canary": {"steps": [{"partition": 1}, {"pause": pause}]}});
        let mut story = story(2, json!({"updateStrategy": strategy}));
        story.settle();
        story.image("v2").settle();
        let cause = one(&story);
        assert_eq!((cause.reason.as_str(), cause.actor), ("PausedByCanaryPauseStep", actor));
        let length = cause.until.map(|until| until.0.duration_since(cause.since.0).as_secs());
        assert_eq!(length, (actor == Actor::Nobody).then_some(60));
    }
}
