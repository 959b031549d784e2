//! The verdicts on rollouts in all states.

use gamekeeper_core::api::names::{MOVE_ANNOTATION, PAUSE_ANNOTATION};
use serde_json::{Value, json};

use super::*;
use crate::fixture::{
    failed_pod_hook, failed_step, guarded, now, patched, paused_canary, reserved, stateful_set,
    unenforced,
};

fn judged(scene: &Scene) -> (u8, String) {
    let verdict = judge(scene, now());
    let fix = verdict.fix();
    let lines = [verdict.word.to_owned(), verdict.sentence];
    let lines = lines.into_iter().chain(verdict.also).chain(fix);
    (verdict.end as u8, lines.collect::<Vec<_>>().join("\n"))
}

/// A canary whose pause condition has ended, although the operator has yet to remove its own pause from the spec.
fn ending_pause() -> Scene {
    let pause = json!({
        "revision": "game-new", "stepHash": "steps", "index": 1,
        "reason": "PausedByCanaryPauseStep", "time": "2026-11-21T10:00:00Z",
    });
    let annotations = json!({PAUSE_ANNOTATION: pause.to_string()});
    let status = json!({"pauseConditions": []});
    patched(paused_canary(), json!({"metadata": {"annotations": annotations}, "status": status}))
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
        ("the operator's own pause that ends", ending_pause()),
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
    let scenes = scenes.into_iter().chain(troubles(&not_ready));
    let verdicts = scenes.map(|(name, scene)| {
        let (end, words) = judged(&scene);
        format!("{name} -> {end}\n{words}\n")
    });
    insta::assert_snapshot!(verdicts.collect::<Vec<String>>().join("\n"));
}

/// A cause in a status.
fn cause(reason: &str, message: &str, fields: Value) -> Value {
    let mut cause = json!({
        "reason": reason, "message": message, "actor": "User", "since": "2026-11-21T10:00:00Z",
        "pods": ["game-aaaaa"], "podCount": 1,
    });
    for (key, value) in fields.as_object().into_iter().flatten() {
        cause[key] = value.clone();
    }
    cause
}

/// Workloads whose pods do not start, run or end as they should.
fn troubles(not_ready: &Value) -> Vec<(&'static str, Scene)> {
    let image = cause(
        "ImageNotPulled",
        "container game of pod game-aaaaa cannot get its image game:typo: not found",
        json!({"container": "game", "podCount": 3}),
    );
    let crash = cause(
        "ContainerCrashing",
        "container game of pod game-aaaaa keeps ending, last with exit code 1",
        json!({"container": "game"}),
    );
    let finalizer = cause(
        "PodHeldByFinalizer",
        "pod world-1 is Terminating, and finalizer example.com/keep keeps it",
        json!({"pods": ["world-1"]}),
    );
    let hook = cause(
        "HookTemplateNotFound",
        "the PreDelete hook cannot run when it is needed: HookTemplate \"idle\" does not exist",
        json!({"pods": [], "podCount": 0, "hookPoint": "PreDelete"}),
    );
    let overdue = json!([{"type": "Progressing", "status": "False",
        "reason": "ProgressDeadlineExceeded", "lastTransitionTime": "2026-11-21T10:00:00Z",
        "message": "pod game-aaaaa has not become available within 600 s (spec.progressDeadlineSeconds): no"}]);
    let unpaused = |status: Value| {
        let spec = json!({"updateStrategy": {"paused": false}});
        let mut status = status;
        status["pauseConditions"] = json!([]);
        patched(paused_canary(), json!({"spec": spec, "status": status}))
    };
    vec![
        ("image", unpaused(json!({"conditions": not_ready, "causes": [image]}))),
        ("deadline", unpaused(json!({"conditions": overdue, "causes": [image]}))),
        ("crashing canary", patched(paused_canary(), json!({"status": {"causes": [crash]}}))),
        ("finalizer", patched(stateful_set(), json!({"status": {"causes": [finalizer]}}))),
        ("broken hook", patched(stateful_set(), json!({"status": {"causes": [hook]}}))),
    ]
}

#[test]
fn a_workload_whose_pod_is_to_be_moved_is_not_complete() {
    let mut scene = stateful_set();
    let annotation = (MOVE_ANNOTATION.to_owned(), "2026-11-21T10:04:00Z".to_owned());
    scene.pods[1].annotations_mut().extend([annotation]);
    let verdict = judge(&scene, now());
    assert_eq!((verdict.word, verdict.exit_code()), ("Waiting", 3));
    let name = scene.pods[1].name_any();
    assert_eq!(verdict.sentence, format!("pod {name} is to be moved"));
    assert_eq!(
        verdict.commands[0].command,
        format!("kubectl game move pod/{name} --cancel -n {}", scene.game.namespace)
    );
}

#[test]
fn commands_reach_the_cluster_that_was_asked() {
    let mut scene = paused_canary();
    scene.game.options.push_str(" --context live");
    let verdict = judge(&scene, now());
    let fix = "continue with: kubectl game resume gd/game -n prod --context live";
    assert_eq!(verdict.fix().as_deref(), Some(fix));
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
        assert!(deleting(count).starts_with(&expected), "{}", deleting(count));
    }
    assert!(deleting(5).ends_with("hooks: game-0, game-1, game-2 and 2 more"), "{}", deleting(5));
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
