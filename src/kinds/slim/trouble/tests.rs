//! What pods as kubelets and schedulers report them are in trouble with.

use serde_json::{Value, json};

use super::*;

fn at(time: &str) -> Timestamp {
    time.parse().expect("a time")
}

/// A pod on a node. `patch` is merged into it.
fn pod(patch: Value) -> core::Pod {
    let mut pod = json!({
        "metadata": {"name": "game-x", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"nodeName": "node-1", "containers": [{"name": "game", "image": "game:v1"}]},
        "status": {"phase": "Pending"},
    });
    merge(&mut pod, patch);
    serde_json::from_value(pod).expect("a pod")
}

fn merge(target: &mut Value, patch: Value) {
    match (target, patch) {
        (Value::Object(target), Value::Object(patch)) => {
            for (key, value) in patch {
                merge(target.entry(key).or_insert(Value::Null), value);
            }
        }
        (target, patch) => *target = patch,
    }
}

fn of(pod: &core::Pod, record: Option<&InPlaceRecord>) -> Option<Box<Trouble>> {
    let seen = Seen {
        created: at("2026-01-01T00:00:00Z"),
        deletion: pod.metadata.deletion_timestamp.as_ref().map(|it| it.0),
        finalizers: pod.metadata.finalizers.as_deref().unwrap_or_default(),
        spec: pod.spec.as_ref().expect("a spec"),
        status: pod.status.as_ref().expect("a status"),
        record,
    };
    trouble(&seen, None)
}

fn sentence(patch: Value) -> Option<String> {
    of(&pod(patch), None).map(|it| it.kind.sentence("game-x"))
}

/// A status with one container in this state.
fn container(state: Value) -> Value {
    let status = json!({"name": "game", "image": "", "imageID": "", "ready": false, "restartCount": 0,
        "state": state});
    json!({"status": {"containerStatuses": [status]}})
}

fn waiting(reason: &str, message: &str) -> Value {
    container(json!({"waiting": {"reason": reason, "message": message}}))
}

#[test]
fn what_a_pod_waits_for_is_read_from_its_status() {
    let scheduled = |reason: &str, message: &str| {
        let condition = json!({"type": "PodScheduled", "status": "False", "reason": reason,
            "message": message, "lastTransitionTime": "2026-01-01T00:00:01Z"});
        json!({"spec": {"nodeName": null}, "status": {"conditions": [condition]}})
    };
    let running = container(json!({"running": {"startedAt": "2026-01-01T00:00:05Z"}}));
    let with_probe = |probe: &str, started: bool| {
        let mut pod = running.clone();
        pod["status"]["containerStatuses"][0]["started"] = json!(started);
        pod["spec"] = json!({"containers": [{"name": "game", probe: {"periodSeconds": 1}}]});
        pod
    };
    let mut gated = running.clone();
    gated["status"]["containerStatuses"][0]["ready"] = json!(true);
    gated["spec"] = json!({"readinessGates": [
        {"conditionType": "InPlaceUpdateReady"}, {"conditionType": "example.com/lb"},
    ]});
    let mut ready = gated.clone();
    ready["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}]);
    let init = |state: Value| {
        let status = json!({"name": "init", "image": "", "imageID": "", "ready": false,
            "restartCount": 0, "state": state});
        let mut pod = waiting("PodInitializing", "");
        pod["status"]["initContainerStatuses"] = json!([status]);
        pod["spec"] = json!({"initContainers": [{"name": "init", "image": "init:v1"}]});
        pod
    };
    for (patch, expected) in [
        (json!({"spec": {"nodeName": null}}), "pod game-x has not been seen by any scheduler"),
        (
            scheduled("Unschedulable", "0/5 nodes are available: 5 Insufficient cpu."),
            "pod game-x cannot be scheduled: 0/5 nodes are available: 5 Insufficient cpu.",
        ),
        (
            scheduled("Unschedulable", "pod has unbound immediate PersistentVolumeClaims"),
            "pod game-x waits for its volume claim: pod has unbound immediate PersistentVolumeClaims",
        ),
        (
            scheduled("SchedulingGated", ""),
            "pod game-x is not scheduled until its schedulingGates are removed",
        ),
        (json!({}), "node node-1 has not started pod game-x"),
        (
            waiting("ContainerCreating", ""),
            "node node-1 has not started container game of pod game-x",
        ),
        (
            waiting("ErrImagePull", "not found"),
            "container game of pod game-x cannot get its image game:v1: not found",
        ),
        (
            waiting(
                "ImagePullBackOff",
                "Back-off pulling image \"game:v1\": ErrImagePull: not found",
            ),
            "container game of pod game-x cannot get its image game:v1: ErrImagePull: not found",
        ),
        (
            waiting("ImagePullBackOff", "Back-off pulling image \"game:v1\""),
            "container game of pod game-x cannot get its image game:v1",
        ),
        (
            waiting("CreateContainerConfigError", "configmap \"c\" not found"),
            "container game of pod game-x cannot be started: configmap \"c\" not found",
        ),
        (
            with_probe("readinessProbe", true),
            "container game of pod game-x runs, but its readiness probe has not succeeded",
        ),
        (
            with_probe("startupProbe", false),
            "container game of pod game-x runs, but its startup probe has not succeeded",
        ),
        (gated, "readiness gate example.com/lb of pod game-x is not True"),
        (
            init(json!({"running": {"startedAt": "2026-01-01T00:00:05Z"}})),
            "init container init of pod game-x has not completed",
        ),
        (
            init(json!({"waiting": {"reason": "ErrImagePull", "message": "no"}})),
            "container init of pod game-x cannot get its image init:v1: no",
        ),
        (
            json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:30Z", "finalizers": ["a/b"]}}),
            "pod game-x is Terminating, and finalizer a/b keeps it",
        ),
        (
            json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:30Z"}}),
            "pod game-x is Terminating, and node node-1 has not ended it",
        ),
    ] {
        assert_eq!(sentence(patch.clone()).as_deref(), Some(expected), "{patch:#}");
    }
    for patch in [ready, json!({"status": {"phase": "Failed"}})] {
        assert_eq!(sentence(patch), None);
    }
}

/// A container that ran from second 0 for this long, and runs again from second 100.
fn restarted(run: i64, exit_code: i32) -> Value {
    let end = at("2026-01-01T00:00:00Z") + SignedDuration::from_secs(run);
    let ended = json!({"terminated": {"exitCode": exit_code, "reason": "Error",
        "startedAt": "2026-01-01T00:00:00Z", "finishedAt": end, "containerID": "old"}});
    let mut pod = container(json!({"running": {"startedAt": "2026-01-01T00:20:00Z"}}));
    pod["status"]["containerStatuses"][0]["lastState"] = ended;
    pod["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}]);
    pod
}

#[test]
fn a_container_that_ended_early_must_run_for_twice_as_long() {
    for (run, needed) in [(1, 10), (5, 10), (40, 80), (599, 600)] {
        let found = of(&pod(restarted(run, 1)), None).expect("trouble");
        let over_at = at("2026-01-01T00:20:00Z") + SignedDuration::from_secs(needed);
        assert_eq!(found.over_at, Some(over_at), "{run}");
        let ended =
            TroubleKind::Crashing { container: "game".to_owned(), ended: "exit code 1".to_owned() };
        assert_eq!(found.kind, ended);
    }
    assert_eq!(of(&pod(restarted(600, 1)), None), None);
    // A server that ends without an error does not work either.
    assert!(of(&pod(restarted(5, 0)), None).is_some());
}

#[test]
fn an_in_place_update_is_no_crash() {
    let change = gamekeeper_core::observed::ContainerChange {
        from_container_id: "old".to_owned(),
        ..Default::default()
    };
    let containers = [("game".to_owned(), Box::new(change))];
    let record = InPlaceRecord { containers: containers.into(), ..InPlaceRecord::default() };
    assert_eq!(of(&pod(restarted(5, 137)), Some(&record)), None);
    let mut crashed_since = restarted(5, 1);
    crashed_since["status"]["containerStatuses"][0]["lastState"]["terminated"]["containerID"] =
        json!("new");
    assert!(of(&pod(crashed_since), Some(&record)).is_some());
}

#[test]
fn a_container_that_waits_after_a_crash_is_in_trouble_until_it_runs() {
    let mut patch = restarted(5, 1);
    patch["status"]["containerStatuses"][0]["state"] =
        json!({"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}});
    let found = of(&pod(patch), None).expect("trouble");
    assert_eq!((found.over_at, found.since), (None, at("2026-01-01T00:00:05Z")));
}

#[test]
fn a_trouble_keeps_its_time_and_the_words_about_the_last_attempt() {
    let states = [
        waiting("ErrImagePull", "not found"),
        waiting("ImagePullBackOff", "Back-off pulling image \"game:v1\""),
    ];
    let mut previous: Option<Pod> = None;
    let mut found = Vec::new();
    for (second, state) in states.into_iter().enumerate() {
        let mut pod = pod(state);
        pod.metadata.namespace = Some("games".to_owned());
        let time = at("2026-01-01T00:00:00Z") + SignedDuration::from_secs(second as i64);
        let status = pod.status.as_mut().expect("a status");
        let ready = json!([{"type": "Ready", "status": "False", "lastTransitionTime": time}]);
        status.conditions = serde_json::from_value(ready).expect("conditions");
        let slim = super::super::slim_with_controller(
            previous.as_ref(),
            crate::runtime::reflector::Origin::Watch,
            None,
            pod,
            &mut super::super::Interner::default(),
        );
        found.push(slim.trouble.clone());
        previous = Some(slim);
    }
    assert_eq!(found[0], found[1]);
}

#[test]
fn texts_of_any_length_are_cut() {
    let long = "x".repeat(1 << 20);
    let found = of(&pod(waiting("ErrImagePull", &long)), None).expect("trouble");
    assert!(found.kind.text_bytes() < 2_000, "{}", found.kind.text_bytes());
    let deleted = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:30Z",
        "finalizers": [long]}});
    let found = of(&pod(deleted), None).expect("trouble");
    assert!(found.kind.text_bytes() < 2_000);
}
