//! Scenes for tests.

use gamekeeper_core::api::HookRun;
use gamekeeper_core::api::names::{
    GUARDED_LABEL, REVISION_LABEL, RUN_POD_UID, RUN_TARGET, WorkloadKind,
};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::game::Game;
use crate::scene::Scene;

/// The current time in all tests.
pub fn now() -> Timestamp {
    "2026-11-21T10:05:00Z".parse().expect("a time")
}

/// Four pods, one of them updated, at the pause after the first partition step.
pub fn paused_canary() -> Scene {
    let object = json!({
        "apiVersion": "tkex.tencent.com/v1alpha1",
        "kind": "GameDeployment",
        "metadata": {
            "name": "game", "namespace": "prod", "uid": "uid-game", "generation": 3, "resourceVersion": "42",
            "creationTimestamp": "2026-11-21T09:00:00Z",
            "annotations": {"gamekeeper.tkex.tencent.com/pause": "{}"},
        },
        "spec": {
            "replicas": 4,
            "selector": {"matchLabels": {"app": "game"}},
            "template": template("game:v2"),
            "updateStrategy": {"type": "InplaceUpdate", "paused": true, "canary": {"steps": [
                {"partition": 3}, {"pause": {}}, {"partition": 2}, {"pause": {"duration": 60}},
                {"hook": {"templateName": "test"}},
            ]}},
        },
        "status": {
            "observedGeneration": 3, "replicas": 4, "readyReplicas": 4, "availableReplicas": 4,
            "updatedReplicas": 1, "updatedReadyReplicas": 1, "updateRevision": "game-new",
            "currentStepIndex": 1, "canary": {"revision": "game-old"},
            "pauseConditions": [{"reason": "PausedByCanaryPauseStep", "startTime": "2026-11-21T10:02:00Z"}],
        },
    });
    Scene::new(
        read(WorkloadKind::GameDeployment, object),
        vec![
            pod("game", "game-bbbbb", "game-old"),
            pod("game", "game-aaaaa", "game-new"),
            pod("game", "game-ccccc", "game-old"),
            pod("game", "game-ddddd", "game-old"),
        ],
        Vec::new(),
        vec![revision("game", "old", 1, "game:v1"), revision("game", "new", 2, "game:v2")],
    )
}

/// The canary of `paused_canary` at its last step, whose hook failed.
pub fn failed_step() -> Scene {
    let status = json!({
        "currentStepIndex": 4,
        "pauseConditions": [{"reason": "PausedByStepBasedHook", "startTime": "2026-11-21T10:04:00Z"}],
        "canary": {"currentStepHookRun": "canary-step-hook-game-new-4-test"},
    });
    let mut scene = patched(paused_canary(), json!({"status": status}));
    scene.runs = vec![typed(json!({
        "apiVersion": "tkex.tencent.com/v1alpha1",
        "kind": "HookRun",
        "metadata": {
            "name": "canary-step-hook-game-new-4-test", "ownerReferences": [owner("game")],
            "creationTimestamp": "2026-11-21T10:03:00Z",
            "labels": {"gamedeployment-type": "Step", "gamedeployment-revision": "game-new", "step-index": "4"},
        },
        "spec": {"metrics": []},
        "status": {
            "phase": "Failed",
            "metricResults": [
                {"name": "players", "phase": "Successful", "count": 1, "successful": 1,
                 "measurements": [{"phase": "Successful", "value": "0"}]},
                {"name": "errors", "phase": "Failed", "count": 3, "failed": 1,
                 "message": "measurement 3 of metric errors: failureCondition result > 5 holds: result is 17",
                 "measurements": [{"phase": "Successful", "value": "1"}, {"phase": "Failed", "value": "17",
                     "message": "failureCondition result > 5 holds: result is 17"}]},
            ],
        },
    }))];
    scene
}

/// The scene of `failed_step`, with escape sequences in strings that a tenant can write.
pub fn hostile() -> Scene {
    const EVIL: &str = "\x1b[2J\x1b]0;title\x07\u{9b}31m\r\nforged";
    let mut scene = failed_step();
    for run in &mut scene.runs {
        for metric in run.status.iter_mut().flat_map(|it| &mut it.metric_results) {
            metric.name = EVIL.to_owned();
            metric.message = Some(EVIL.to_owned());
            for measurement in &mut metric.measurements {
                measurement.value = Some(EVIL.to_owned());
                measurement.message = Some(EVIL.to_owned());
            }
        }
    }
    for revision in &mut scene.revisions {
        let annotations = revision.metadata.annotations.get_or_insert_default();
        annotations.insert("kubernetes.io/change-cause".to_owned(), EVIL.to_owned());
    }
    for pod in &mut scene.pods {
        pod.status.get_or_insert_default().reason = Some(EVIL.to_owned());
    }
    let blocked = json!([{"type": "FailedUpdate", "status": "True", "reason": EVIL, "message": EVIL,
        "lastTransitionTime": "2026-11-21T10:00:00Z"}]);
    let steps = json!([{"hook": {"templateName": EVIL}}]);
    patched(
        scene,
        json!({"status": {"conditions": blocked}, "spec": {"updateStrategy": {"canary": {"steps": steps}}}}),
    )
}

/// A GameDeployment with twelve pods: one that its hook keeps, one that is not ready, and ten that are settled.
pub fn many_pods() -> Scene {
    let change = json!({
        "spec": {"replicas": 11},
        "status": {
            "replicas": 12, "readyReplicas": 11, "availableReplicas": 11,
            "updatedReplicas": 12, "updatedReadyReplicas": 11,
        },
    });
    let mut scene = patched(failed_pod_hook(), change);
    let names = (0..8).map(|number| format!("game-{number}0000"));
    let mut pods: Vec<Pod> = names.map(|name| pod("game", &name, "game-old")).collect();
    if let Some(status) = pods.last_mut().and_then(|pod| pod.status.as_mut()) {
        status.conditions = None;
    }
    pods.extend(scene.pods);
    scene.pods = pods;
    scene
}

/// A GameDeployment without steps that is being scaled in, with a pod that its hook keeps.
pub fn failed_pod_hook() -> Scene {
    let change = json!({
        "spec": {
            "replicas": 3, "template": template("game:v1"),
            "updateStrategy": {"type": "RollingUpdate", "paused": false, "canary": null},
            "preDeleteUpdateStrategy": {"hook": {"templateName": "empty"}},
        },
        "status": {
            "updateRevision": "game-old", "pauseConditions": null, "currentStepIndex": null,
            "updatedReplicas": 4, "updatedReadyReplicas": 4,
            "preDeleteHookCondition": [{"podName": "game-bbbbb", "phase": "Error",
                "startTime": "2026-11-21T10:04:00Z", "message": "metric players: Error"}],
        },
    });
    let mut scene = patched(paused_canary(), change);
    for pod in &mut scene.pods {
        pod.labels_mut().insert(REVISION_LABEL.to_owned(), "game-old".to_owned());
    }
    let status = json!({
        "phase": "Error",
        "metricResults": [{"name": "players", "phase": "Error", "error": 5, "consecutiveError": 5,
            "message": "5 errors in a row, 4 allowed",
            "measurements": [{"phase": "Error", "message": "connection refused"}]}],
    });
    scene.runs = vec![pre_delete_run("gamedeployment-type", "game-old", "bbbbb", status)];
    scene
}

/// The GameDeployment of `failed_pod_hook`, with guarded pods.
pub fn guarded() -> Scene {
    let waiting = json!([{"podName": "game-bbbbb", "since": "2026-11-21T10:04:00Z",
        "reason": "HookNotSuccessful", "message": "its PreDelete hook ended Error"}]);
    let condition = json!({"type": "Guarded", "status": "True", "reason": "PodsGuarded",
        "message": "4 pods are guarded", "lastTransitionTime": "2026-11-21T10:00:00Z"});
    let change = json!({
        "spec": {"protection": {"pods": "Guarded"}},
        "status": {
            "protection": {"guarded": 4, "moving": 0, "waiting": waiting},
            "conditions": [condition],
        },
    });
    let mut scene = patched(failed_pod_hook(), change);
    for pod in &mut scene.pods {
        pod.labels_mut().insert(GUARDED_LABEL.to_owned(), scene.game.uid.clone());
    }
    scene
}

/// The GameDeployment of `guarded`, without a policy that guards its pods.
pub fn unenforced() -> Scene {
    let condition = json!({"type": "Guarded", "status": "False", "reason": "GuardNotInForce",
        "message": "the policy was removed", "lastTransitionTime": "2026-11-21T10:00:00Z"});
    patched(guarded(), json!({"status": {"conditions": [condition]}}))
}

/// A GameStatefulSet whose rollout is complete, with one-digit and two-digit ordinals.
pub fn stateful_set() -> Scene {
    let object = json!({
        "apiVersion": "tkex.tencent.com/v1alpha1",
        "kind": "GameStatefulSet",
        "metadata": {"name": "world", "namespace": "prod", "uid": "uid-world", "generation": 1,
            "resourceVersion": "7", "creationTimestamp": "2026-11-18T10:00:00Z"},
        "spec": {
            "replicas": 3,
            "selector": {"matchLabels": {"app": "world"}},
            "template": template("world:v1"),
            "ordinals": {"start": 9},
            "updateStrategy": {"type": "RollingUpdate"},
        },
        "status": {
            "observedGeneration": 1, "replicas": 3, "readyReplicas": 3, "availableReplicas": 3,
            "updatedReplicas": 3, "updatedReadyReplicas": 3, "updateRevision": "world-only",
            "canary": {"revision": "world-only"},
            "conditions": [{"type": "Ready", "status": "True", "reason": "AllPodsAvailable", "message": "",
                "lastTransitionTime": "2026-11-18T10:01:00Z"}],
        },
    });
    let pods = ["world-10", "world-9", "world-11"].map(|name| pod("world", name, "world-only"));
    Scene::new(
        read(WorkloadKind::GameStatefulSet, object),
        pods.into(),
        Vec::new(),
        vec![revision("world", "only", 1, "world:v1")],
    )
}

/// The GameStatefulSet of `stateful_set` with ordinal 10 reserved: the substitute for pod 10 exists, and the hook
/// of pod 10 is running.
pub fn reserved() -> Scene {
    let change = json!({
        "spec": {
            "reserveOrders": [10, 3],
            "preDeleteUpdateStrategy": {"hook": {"templateName": "empty"}},
        },
        "status": {
            "replicas": 4, "readyReplicas": 4, "updatedReplicas": 4, "updatedReadyReplicas": 4,
            "conditions": [{"type": "Ready", "status": "False", "reason": "PodsToDelete", "message": "",
                "lastTransitionTime": "2026-11-21T10:04:00Z"}],
        },
    });
    let mut scene = patched(stateful_set(), change);
    scene.pods.push(pod("world", "world-12", "world-only"));
    let status = json!({"phase": "Running", "metricResults": [{"name": "players", "phase": "Running",
        "count": 1, "failed": 1, "measurements": [{"phase": "Failed", "value": "4",
            "message": "result is 4"}]}]});
    scene.runs = vec![pre_delete_run("gamestatefulset-type", "world-only", "10", status)];
    scene
}

/// The HookRun of a pod's PreDelete hook. Its revision is `WORKLOAD-HASH`, and the pod is `WORKLOAD-INSTANCE`.
fn pre_delete_run(type_label: &str, revision: &str, instance: &str, status: Value) -> HookRun {
    let (workload, _) = revision.split_once('-').expect("a revision");
    typed(json!({
        "apiVersion": "tkex.tencent.com/v1alpha1",
        "kind": "HookRun",
        "metadata": {
            "name": format!("pre-delete-hook-{revision}-{instance}-empty"),
            "ownerReferences": [owner(workload)],
            "creationTimestamp": "2026-11-21T10:04:00Z",
            "labels": {type_label: "PreDelete", "InstanceID": instance},
            "annotations": {RUN_POD_UID: format!("uid-{workload}-{instance}"), RUN_TARGET: ""},
        },
        "spec": {"metrics": []},
        "status": status,
    }))
}

/// A scene after a merge patch of its workload. The patch's field `runs` is the new phase of the HookRuns.
pub fn patched(mut scene: Scene, mut patch: Value) -> Scene {
    let phase = patch.as_object_mut().and_then(|patch| patch.remove("runs"));
    if let Some(phase) = phase {
        let phase = serde_json::from_value(phase).expect("a phase");
        for run in &mut scene.runs {
            if let Some(status) = &mut run.status {
                status.phase = phase;
            }
        }
    }
    let mut object = scene.game.object.clone();
    json_patch::merge(&mut object, &patch);
    Scene { game: read(scene.game.kind, object), ..scene }
}

fn read(kind: WorkloadKind, object: Value) -> Game {
    Game::read(kind, object).expect("a workload")
}

fn typed<T: DeserializeOwned>(object: Value) -> T {
    serde_json::from_value(object).expect("an object")
}

fn template(image: &str) -> Value {
    json!({
        "metadata": {"labels": {"app": "game"}},
        "spec": {"containers": [{"name": "game", "image": image}, {"name": "log", "image": "log:v1"}]},
    })
}

fn owner(workload: &str) -> Value {
    json!({"apiVersion": "tkex.tencent.com/v1alpha1", "kind": "Game", "name": workload,
        "uid": format!("uid-{workload}"), "controller": true})
}

fn pod(workload: &str, name: &str, revision: &str) -> Pod {
    typed(json!({
        "metadata": {
            "name": name, "uid": format!("uid-{name}"), "ownerReferences": [owner(workload)],
            "labels": {"controller-revision-hash": revision}, "creationTimestamp": "2026-11-21T09:00:00Z",
        },
        "spec": {"containers": [{"name": "game"}, {"name": "log"}]},
        "status": {
            "phase": "Running", "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [
                {"name": "game", "image": "", "imageID": "", "ready": true, "restartCount": 1},
                {"name": "log", "image": "", "imageID": "", "ready": true, "restartCount": 0},
            ],
        },
    }))
}

fn revision(workload: &str, hash: &str, number: i64, image: &str) -> ControllerRevision {
    let mut template = template(image);
    template["$patch"] = json!("replace");
    template["metadata"]["annotations"] = match number {
        2 => json!({"kubernetes.io/change-cause": "winter event"}),
        _ => json!({}),
    };
    typed(json!({
        "metadata": {
            "name": format!("{workload}-{hash}"), "ownerReferences": [owner(workload)],
            "creationTimestamp": format!("2026-11-21T09:0{number}:00Z"),
        },
        "data": {"spec": {"template": template}},
        "revision": number,
    }))
}

/// A scene without its HookRuns.
pub fn without_runs(scene: Scene) -> Scene {
    Scene { runs: Vec::<HookRun>::new(), ..scene }
}
