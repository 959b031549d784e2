//! Stories of failures: writes that the API server refuses, and pods that a kubelet rejects.

use jiff::SignedDuration;
use serde::Serialize;
use serde_json::json;

use super::story::{Story, set, story};
use crate::api::{HookPhase, WaitReason};
use crate::kstatus::{self, State, Why};
use crate::workload::Planned;
use crate::write::Attempt;
use crate::write::{Change, Write};

#[test]
fn a_failed_creation_is_no_longer_reported_when_the_pod_is_not_wanted_anymore() {
    let mut story = story(2, json!({}));
    story.settle();
    let is_reported = |story: &Story| {
        let conditions = story.status().conditions;
        conditions.iter().any(|it| it.type_ == "FailedScale")
    };
    story.user(json!({"replicas": 3}));
    story.refuse(Attempt::CreatePod, "exceeded quota");
    story.refuse(Attempt::ChangePod, "refused");
    let reported = story.plan().status.expect("a status").conditions;
    assert!(reported.iter().any(|it| it.reason == "FailedCreate"), "{reported:?}");
    story.user(json!({"replicas": 2})).settle();
    assert!(!is_reported(&story));
    let conditions = story.status().conditions;
    assert!(conditions.iter().any(|it| it.reason == "Complete"), "{conditions:?}");
}

/// Type and reason of the condition FailedScale or FailedUpdate after these attempts were refused.
fn failure_condition(story: &Story, attempts: &[Attempt]) -> Option<(String, String)> {
    let mut world = story.world.clone();
    for attempt in attempts {
        world.memory.failures.record(*attempt, "refused".into(), world.now);
    }
    let plan = story.object.plan(&world).expect("plan");
    let status = plan.status.unwrap_or_else(|| story.status());
    let mut conditions = status.conditions.into_iter();
    let failed = conditions.find(|it| it.type_.starts_with("Failed"))?;
    Some((failed.type_, failed.reason))
}

/// Covers a scale-in, and an update that recreates the pod.
#[test]
fn a_guarded_pod_whose_hook_run_is_refused_is_reported_as_waiting() {
    let spec = json!({
        "preDeleteUpdateStrategy": {"hook": {"templateName": "test"}}, "protection": {"pods": "Guarded"},
    });
    for change in
        [json!({"replicas": 0}), json!({"template": {"metadata": {"labels": {"v": "2"}}}})]
    {
        let mut story = story(1, spec.clone());
        story.settle();
        story.user(change);
        // The pod is marked before its hook starts. Each run is removed, as if the API server had refused it.
        for _ in 0..10 {
            story.world.runs.clear();
            story.reconcile();
        }
        story.world.runs.clear();
        story.refuse(Attempt::StartRemovalHook, "no CRD");
        story.refuse(Attempt::StartUpdateHook, "no CRD");
        let status = story.plan().status.expect("a status");
        let waiting = status.protection.expect("status").waiting;
        let shown: Vec<_> = waiting.iter().map(|it| (it.reason, it.message.as_str())).collect();
        assert_eq!(shown, [(WaitReason::HookCannotRun, "no CRD")]);
    }
}

#[test]
fn a_refusal_is_shown_with_its_reason_while_the_action_is_attempted() {
    let all = [
        Attempt::CreatePod,
        Attempt::PrepareClaim,
        Attempt::RemovePod,
        Attempt::StartRemovalHook,
        Attempt::ChangePod,
        Attempt::RecreatePod,
        Attempt::StartUpdateHook,
    ];
    let expected = |type_: &str, reason: &str| Some((type_.to_owned(), reason.to_owned()));
    let hook = json!({"hook": {"templateName": "test"}});
    for (spec, change, condition) in [
        (json!({}), json!({}), None),
        (json!({}), json!({"replicas": 4}), expected("FailedScale", "FailedCreate")),
        (json!({}), json!({"replicas": 2}), expected("FailedScale", "FailedDelete")),
        (
            json!({"preDeleteUpdateStrategy": hook}),
            json!({"replicas": 2}),
            expected("FailedScale", "FailedHookRun"),
        ),
        (
            json!({}),
            json!({"template": {"metadata": {"labels": {"v": "2"}}}}),
            expected("FailedUpdate", "FailedDelete"),
        ),
        (
            json!({"preDeleteUpdateStrategy": hook}),
            json!({"template": {"metadata": {"labels": {"v": "2"}}}}),
            expected("FailedUpdate", "FailedHookRun"),
        ),
        (
            json!({"updateStrategy": {"type": "InplaceUpdate"}}),
            json!({"template": {"metadata": {"labels": {"v": "2"}}}}),
            expected("FailedUpdate", "FailedUpdate"),
        ),
    ] {
        let mut story = story(3, spec.clone());
        story.settle();
        story.user(change.clone());
        // First the revision is created, and a dry run checks whether the API server accepts it.
        let attempted = |story: &Story| -> Vec<Attempt> {
            let writes = story.plan().writes;
            all.into_iter()
                .filter(|it| writes.iter().any(|write| write.attempt() == Some(*it)))
                .collect()
        };
        while attempted(&story).is_empty() && story.reconcile() {}
        let refused = attempted(&story);
        assert_eq!(failure_condition(&story, &refused), condition, "{spec} {change}");
        story.settle();
        story.hooks_end("pre-delete", HookPhase::Successful);
        story.settle();
        story.hooks_end("pre-delete", HookPhase::Successful);
        assert_eq!(failure_condition(story.settle(), &[]), None);
    }
}

/// The number of pods that are created while a kubelet rejects all of them for this many seconds.
fn created_while_rejected<K: Planned + Serialize>(story: &mut Story<K>, seconds: i64) -> usize {
    let is_creation = |action: &Write| matches!(action.change(), Change::CreatePod(_));
    let before = story.count(is_creation);
    story.rejection = Some("OutOfcpu: Pod was rejected".into());
    story.settle();
    for _ in 0..seconds {
        story.wait(1).settle();
    }
    story.count(is_creation) - before
}

#[test]
fn pods_that_a_kubelet_rejects_are_replaced_more_and_more_slowly() {
    fn check<K: Planned + Serialize>(mut story: Story<K>) {
        story.settle();
        let running = story.names();
        story.user(json!({"replicas": 5}));
        // Two pods are created first. Both are replaced immediately, again after 10 s, and again after 30 s. The next
        // replacement is due after 70 s.
        assert_eq!(created_while_rejected(&mut story, 69), 8);
        assert!(running.iter().all(|name| story.names().contains(name)));
        let (reason, message) = story.condition("FailedScale").expect("condition");
        assert_eq!(reason, "PodsEndAtOnce");
        assert!(message.contains("OutOfcpu"), "{message}");
        assert_eq!(story.plan().wake, Some(story.world.now + SignedDuration::from_secs(1)));
        story.rejection = None;
        story.wait(1).settle();
        assert_eq!(story.columns(), "5 5 5 5 5");
        assert_eq!(story.condition("FailedScale"), None);
    }
    check(story(3, json!({})));
    check(set(3, json!({"podManagementPolicy": "Parallel"})));
    let mut ordered = set(3, json!({}));
    ordered.settle();
    ordered.user(json!({"replicas": 5}));
    assert_eq!(created_while_rejected(&mut ordered, 69), 4);
}

#[test]
fn pods_that_a_kubelet_rejects_are_deleted_immediately_if_they_need_no_replacement() {
    let mut story = story(3, json!({}));
    story.settle();
    story.user(json!({"replicas": 5}));
    created_while_rejected(&mut story, 5);
    assert_eq!(story.pods().len(), 5);
    story.user(json!({"replicas": 4})).settle();
    assert_eq!(story.pods().len(), 4);
    story.user(json!({"replicas": 3})).settle();
    assert_eq!(story.columns(), "3 3 3 3 3");
    assert_eq!(story.condition("FailedScale"), None);
}

#[test]
fn a_rollout_reports_that_its_pods_end_as_soon_as_they_start() {
    let mut story = story(3, json!({"updateStrategy": {"maxUnavailable": 1}}));
    story.settle();
    story.image("v2");
    created_while_rejected(&mut story, 5);
    assert_eq!(story.images(), "v1 v1 v2");
    let (reason, _) = story.condition("FailedUpdate").expect("condition");
    assert_eq!(reason, "PodsEndAtOnce");
    assert_eq!(story.condition("FailedScale"), None);
    story.rejection = None;
    story.image("v1").settle();
    assert_eq!(story.images(), "v1 v1 v1", "pods of an abandoned revision need not wait");
}

/// Refusals quote what was refused, and the status of a workload must fit into its object.
#[test]
fn a_long_message_of_a_condition_is_cut() {
    let mut story = story(2, json!({}));
    story.settle();
    story.user(json!({"replicas": 3}));
    let now = story.world.now;
    story.world.memory.failures.record(Attempt::CreatePod, "x".repeat(1 << 20), now);
    let status = story.plan().status.expect("a status");
    let shown = status.conditions.iter().filter(|it| it.message.contains("xxx"));
    assert!(shown.count() > 0, "{:?}", status.conditions);
    for condition in &status.conditions {
        assert!(condition.message.len() <= 4_003, "{}", condition.type_);
    }
    let why = Why { reason: "FailedCreate".to_owned(), message: "x".repeat(1 << 20) };
    let (stalled, _) =
        kstatus::condition(State::Blocked { why, since: None }, 1, &[], story.world.now);
    assert_eq!(stalled.map(|it| it.message.len()), Some(4_003));
}
