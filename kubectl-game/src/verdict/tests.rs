//! The verdicts on rollouts in all states.

use serde_json::{Value, json};

use super::*;
use crate::fixture::{
    failed_pod_hook, failed_step, guarded, now, patched, paused_canary, reserved, stateful_set,
    unenforced,
};

fn judged(scene: &Scene) -> (u8, String) {
    let verdict = judge(scene, now());
    let lines = [verdict.word.to_owned(), verdict.sentence];
    let lines = lines.into_iter().chain(verdict.also).chain(verdict.fix);
    (verdict.end as u8, lines.collect::<Vec<_>>().join("\n"))
}

#[test]
fn each_reason_in_a_sentence() {
    let not_ready = json!([{"type": "Ready", "status": "False", "reason": "RolloutUnderWay",
        "message": "1 of 4 pods are at the update revision", "lastTransitionTime": "2026-11-21T10:00:00Z"}]);
    let refused = json!([{"type": "FailedUpdate", "status": "True", "reason": "TemplateRefused",
        "message": "pods \"x\" is forbidden: exceeded quota", "lastTransitionTime": "2026-11-21T10:00:00Z"}]);
    let scenes = [
        ("pause step", paused_canary()),
        ("failed step hook", failed_step()),
        ("failed pod hook", failed_pod_hook()),
        ("failed hook of a guarded pod", guarded()),
        ("complete", stateful_set()),
        (
            "pause of 60 s",
            patched(
                paused_canary(),
                json!({"spec": {"updateStrategy": {"canary": {"steps": [
                {"partition": 3}, {"pause": {"duration": "60s"}}]}}}}),
            ),
        ),
        ("user", patched(paused_canary(), json!({"status": {"pauseConditions": []}}))),
        (
            "user's pause after a complete rollout",
            patched(stateful_set(), json!({"spec": {"updateStrategy": {"paused": true}}})),
        ),
        (
            "apply",
            patched(
                paused_canary(),
                json!({"status": {"conditions": [{"type": "Progressing", "status": "False",
                "reason": "ResumeByApplyIgnored", "message": "", "lastTransitionTime": "2026-11-21T10:00:00Z"}]}}),
            ),
        ),
        (
            "refused template",
            patched(
                paused_canary(),
                json!({"spec": {"updateStrategy": {"paused": false}},
                "status": {"pauseConditions": [], "conditions": refused}}),
            ),
        ),
        (
            "under way",
            patched(
                paused_canary(),
                json!({"spec": {"updateStrategy": {"paused": false}},
                "status": {"pauseConditions": [], "currentStepIndex": 0, "conditions": not_ready}}),
            ),
        ),
        (
            "running hook",
            patched(
                failed_step(),
                json!({"spec": {"updateStrategy": {"paused": false}},
                "status": {"pauseConditions": []}, "runs": "Running"}),
            ),
        ),
        ("reserved ordinal", reserved()),
        (
            "reserved ordinal whose hook failed",
            patched(
                reserved(),
                json!({"runs": "Failed", "status": {"preDeleteHookCondition": [{
                    "podName": "world-10", "phase": "Failed", "startTime": "2026-11-21T10:04:00Z",
                    "message": "metric players: Failed",
                }]}}),
            ),
        ),
        ("unseen", patched(paused_canary(), json!({"metadata": {"generation": 9}}))),
        (
            "deleted",
            patched(
                paused_canary(),
                json!({"metadata": {"deletionTimestamp": "2026-11-21T10:00:00Z"}}),
            ),
        ),
        (
            "partition",
            patched(
                stateful_set(),
                json!({"spec": {"updateStrategy": {"partition": 1}},
            "status": {"updatedReplicas": 2}}),
            ),
        ),
    ];
    let verdicts = scenes.map(|(name, scene)| {
        let (end, words) = judged(&scene);
        format!("{name} -> {end}\n{words}\n")
    });
    insta::assert_snapshot!(verdicts.join("\n"));
}

#[test]
fn blocked_pods_and_hooks_are_counted_in_the_singular_and_the_plural() {
    let failed = |pods: usize| {
        let blocked = ["game-bbbbb", "game-ccccc", "game-ddddd"].map(|pod| {
            json!({"podName": pod, "phase": "Error", "startTime": "2026-11-21T10:04:00Z", "message": ""})
        });
        let blocked = json!({"status": {"preDeleteHookCondition": blocked[..pods]}});
        judged(&patched(failed_pod_hook(), blocked)).1
    };
    assert!(!failed(1).contains("blocked too"), "{}", failed(1));
    for (pods, expected) in
        [(2, "; 1 more pod is blocked too"), (3, "; 2 more pods are blocked too")]
    {
        assert!(failed(pods).contains(expected), "{}", failed(pods));
    }
    let two = json!({"status": {"preDeleteHookCondition": [
        {"podName": "game-bbbbb", "phase": "Failed", "startTime": "2026-11-21T10:04:00Z", "message": ""},
        {"podName": "game-ccccc", "phase": "Failed", "startTime": "2026-11-21T10:04:00Z", "message": ""},
    ]}});
    let two = judged(&patched(guarded(), two)).1;
    assert!(two.contains("; 1 more pod waits too"), "{two}");
    let mut waiting = reserved();
    let expected = "waits for PreDelete hook of pod world-10 ";
    assert!(judged(&waiting).1.contains(expected), "{}", judged(&waiting).1);
    waiting.runs.push(waiting.runs[0].clone());
    let expected = "waits for PreDelete hooks of pods world-10 ";
    assert!(judged(&waiting).1.contains(expected), "{}", judged(&waiting).1);
}

#[test]
fn a_deletion_waits_for_the_pods_that_the_status_lists_and_maybe_for_more() {
    let deleting = |count: usize| {
        let waiting = (0..count).map(|number| {
            json!({"podName": format!("game-{number}"), "since": "2026-11-21T10:04:00Z", "reason": "HookRunning"})
        });
        let waiting: Vec<Value> = waiting.collect();
        let change = json!({
            "metadata": {"deletionTimestamp": "2026-11-21T10:04:00Z"},
            "status": {"protection": {"waiting": waiting}},
        });
        judge(&patched(guarded(), change), now()).sentence
    };
    for (count, expected) in [
        (0, "0 guarded pods wait for their hooks"),
        (1, "1 guarded pod waits for its hook"),
        (99, "99 guarded pods wait for their hooks"),
        (100, "100+ guarded pods wait for their hooks"),
    ] {
        let expected = format!("will be deleted once its pods are; {expected}");
        assert_eq!(deleting(count), expected);
    }
}

#[test]
fn only_the_hook_before_a_deletion_is_run_again_automatically() {
    let failed = json!([{"podName": "game-bbbbb", "phase": "Failed",
        "startTime": "2026-11-21T10:04:00Z", "message": ""}]);
    let hooks = json!({"preDeleteHookCondition": [], "preInplaceHookCondition": failed});
    let scene = patched(guarded(), json!({"status": hooks}));
    assert_eq!(judge(&scene, now()).word, "Blocked");
    assert_eq!(judge(&guarded(), now()).word, "Waiting");
    assert_eq!(judge(&unenforced(), now()).word, "Waiting");
}
