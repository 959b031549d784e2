//! The conversion of pods to their slim form.

use serde_json::{Value, json};

use super::*;

/// A workload's pod with this generation, observedGeneration and container ID.
fn pod(generation: i64, observed: i64, container_id: &str) -> Value {
    json!({
        "metadata": {
            "namespace": "games", "name": "lobby-aaaaa", "uid": "pod-uid",
            "resourceVersion": "7", "generation": generation,
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"app": "lobby"},
            "ownerReferences": [{
                "apiVersion": "tkex.tencent.com/v1alpha1", "kind": "GameDeployment",
                "name": "lobby", "uid": "owner-uid", "controller": true,
            }],
        },
        "spec": {"containers": [{"name": "game", "image": "game:v1"}]},
        "status": {
            "phase": "Running", "observedGeneration": observed,
            "containerStatuses": [{
                "name": "game", "image": "game:v1", "imageID": "sha256:1", "ready": true,
                "restartCount": 0, "containerID": container_id,
            }],
        },
    })
}

fn slim_form(previous: Option<&Pod>, origin: Origin, pod: &Value) -> Option<Pod> {
    let pod = serde_json::from_value(pod.clone()).unwrap();
    slim(previous, origin, pod, &mut Interner::default())
}

/// The slim form of a pod after all these states were watched, in this order.
fn watched(states: &[Value]) -> Pod {
    let next =
        |previous: Option<Pod>, state: &Value| slim_form(previous.as_ref(), Origin::Watch, state);
    states.iter().fold(None, next).unwrap()
}

fn first(generation: i64, container_id: &str) -> Option<FirstStatus> {
    Some(FirstStatus { generation, container_ids: vec![container_id.to_owned()] })
}

#[test]
fn the_first_status_that_reaches_a_generation_is_remembered() {
    let states = [pod(1, 1, "old"), pod(2, 1, "old"), pod(2, 2, "old"), pod(2, 2, "new")];
    assert_eq!(watched(&states).first_status, first(2, "old"));
}

#[test]
fn a_status_of_an_older_generation_is_not_the_first_one() {
    let states = [pod(1, 1, "old"), pod(3, 2, "between")];
    assert_eq!(watched(&states).first_status, None);
}

#[test]
fn a_listed_status_is_not_assumed_to_be_the_first_one() {
    let before = watched(&[pod(1, 1, "old"), pod(2, 1, "old")]);
    let listed = slim_form(Some(&before), Origin::List, &pod(2, 2, "new")).unwrap();
    assert_eq!(listed.first_status, None);
    let later = slim_form(Some(&listed), Origin::Watch, &pod(2, 2, "newer")).unwrap();
    assert_eq!(later.first_status, None);
}

#[test]
fn a_known_first_status_stays_known_after_a_list() {
    let before = watched(&[pod(2, 1, "old"), pod(2, 2, "old")]);
    let listed = slim_form(Some(&before), Origin::List, &pod(2, 2, "new")).unwrap();
    assert_eq!(listed.first_status, first(2, "old"));
}

#[test]
fn a_first_status_is_forgotten_when_the_generation_or_the_pod_changes() {
    let before = watched(&[pod(2, 1, "old"), pod(2, 2, "old")]);
    let changed = slim_form(Some(&before), Origin::Watch, &pod(3, 2, "old")).unwrap();
    assert_eq!(changed.first_status, None);
    let mut successor = pod(2, 2, "old");
    successor["metadata"]["uid"] = json!("another");
    let successor = slim_form(Some(&before), Origin::Watch, &successor).unwrap();
    assert_eq!(successor.first_status, None);
}

#[test]
fn pods_of_other_controllers_are_not_kept_but_orphans_are() {
    let mut foreign = pod(1, 1, "c");
    foreign["metadata"]["ownerReferences"][0]["apiVersion"] = json!("apps/v1");
    assert_eq!(slim_form(None, Origin::Watch, &foreign), None);
    let mut orphan = pod(1, 1, "c");
    orphan["metadata"]["ownerReferences"] = json!([]);
    let orphan = slim_form(None, Origin::Watch, &orphan).unwrap();
    assert_eq!(orphan.controller, None);
    let ours = slim_form(None, Origin::Watch, &pod(1, 1, "c")).unwrap();
    assert_eq!(ours.controller.as_deref(), Some("owner-uid"));
}

#[test]
fn the_gate_is_read_from_spec_and_condition() {
    let gate = |gates: Value, conditions: Value| {
        let mut pod = pod(1, 1, "c");
        pod["spec"]["readinessGates"] = gates;
        pod["status"]["conditions"] = conditions;
        slim_form(None, Origin::Watch, &pod).unwrap().gate
    };
    let gates = json!([{"conditionType": "InPlaceUpdateReady"}]);
    let condition = |status: &str| {
        json!([{
            "type": "InPlaceUpdateReady", "status": status,
            "lastTransitionTime": "2026-01-01T00:00:05Z",
        }])
    };
    assert_eq!(gate(json!([]), condition("False")), Gate::None);
    assert_eq!(gate(gates.clone(), json!([])), Gate::Unset);
    assert_eq!(gate(gates.clone(), condition("True")), Gate::Open);
    let closed = "2026-01-01T00:00:05Z".parse().unwrap();
    assert_eq!(gate(gates, condition("False")), Gate::Closed(closed));
}

#[test]
fn a_resize_is_deferred_or_infeasible_or_in_progress_or_settled() {
    let resize = |type_: &str, reason: &str| {
        let mut pod = pod(1, 1, "c");
        pod["status"]["conditions"] =
            json!([{"type": type_, "status": "True", "reason": reason, "message": "m"}]);
        slim_form(None, Origin::Watch, &pod).unwrap().resize
    };
    let message = "m".to_owned();
    let cases = [
        ("PodResizePending", "Deferred", Resize::Deferred(message.clone())),
        ("PodResizePending", "Infeasible", Resize::Infeasible(message)),
        ("PodResizeInProgress", "", Resize::InProgress),
        ("Ready", "", Resize::Settled),
    ];
    for (type_, reason, expected) in cases {
        assert_eq!(resize(type_, reason), expected);
    }
}

#[test]
fn init_containers_are_kept_only_if_they_are_native_sidecars() {
    let mut pod = pod(1, 1, "c");
    pod["spec"]["initContainers"] = json!([
        {"name": "setup", "image": "setup:v1"},
        {"name": "proxy", "image": "proxy:v1", "restartPolicy": "Always"},
    ]);
    pod["status"]["initContainerStatuses"] = json!([{
        "name": "proxy", "image": "proxy:v1", "imageID": "", "ready": true, "restartCount": 2,
        "state": {"running": {"startedAt": "2026-01-01T00:00:09Z"}},
    }]);
    let slim = slim_form(None, Origin::Watch, &pod).unwrap();
    let summary = |container: &Container| (container.name.clone(), container.init, container.index);
    let found: Vec<_> = slim.containers.iter().map(summary).collect();
    assert_eq!(found, [("game".into(), false, 0), ("proxy".into(), true, 1)]);
    let status = slim.containers[1].status.as_ref().unwrap();
    assert_eq!(status.restart_count, 2);
    assert!(status.started_at.is_some());
}

#[test]
fn a_container_runs_unless_it_waits_or_has_terminated() {
    let running = |state: Value, ready: bool| {
        let mut pod = pod(1, 1, "c");
        pod["status"]["containerStatuses"][0]["state"] = state;
        pod["status"]["containerStatuses"][0]["ready"] = json!(ready);
        let slim = slim_form(None, Origin::Watch, &pod).unwrap();
        slim.containers[0].status.as_ref().unwrap().running
    };
    assert!(running(json!({"running": {"startedAt": "2026-01-01T00:00:09Z"}}), false));
    assert!(running(json!({"running": {}}), false));
    assert!(!running(json!({"waiting": {"reason": "CrashLoopBackOff"}}), false));
    assert!(!running(json!({"terminated": {"exitCode": 1}}), false));
    // Virtual kubelets may report no state.
    assert!(running(json!(null), true));
    assert!(!running(json!(null), false));
}

#[test]
fn invalid_annotations_are_ignored() {
    let mut pod = pod(1, 1, "c");
    pod["metadata"]["annotations"] = json!({
        names::POD_DELETION_COST: "much",
        names::IN_PLACE_RECORD: "{",
    });
    let slim = slim_form(None, Origin::Watch, &pod).unwrap();
    assert_eq!((slim.deletion_cost, slim.record.is_some()), (0, false));
}

#[test]
fn pods_that_ended_as_soon_as_they_started_are_recognized() {
    let why = |status: Value| {
        let mut pod = pod(1, 1, "");
        pod["status"] = status;
        let pod = slim_form(None, Origin::List, &pod).unwrap();
        pod.ended_at_once.map(|why| why.to_string())
    };
    let container = |state: Value| {
        json!([{
            "name": "game", "image": "game:v1", "imageID": "", "ready": false, "restartCount": 0, "state": state,
        }])
    };
    let ran = |from: &str, to: &str| {
        let [from, to] = [from, to].map(|at| format!("2026-01-01T00:{at}Z"));
        json!({"terminated": {"exitCode": 1, "startedAt": from, "finishedAt": to}})
    };
    let rejected = "OutOfcpu: Pod was rejected: no cpu";
    for (status, expected) in [
        (
            json!({"phase": "Failed", "reason": "OutOfcpu", "message": "Pod was rejected: no cpu"}),
            Some(rejected),
        ),
        (json!({"phase": "Running"}), None),
        (
            json!({"phase": "Failed", "containerStatuses": container(json!({"waiting": {}}))}),
            Some(""),
        ),
        (
            json!({"phase": "Failed", "containerStatuses": container(ran("00:00", "00:09"))}),
            Some("container game ended with exit code 1"),
        ),
        (json!({"phase": "Failed", "containerStatuses": container(ran("00:00", "00:10"))}), None),
        (
            json!({"phase": "Failed", "initContainerStatuses": container(ran("00:00", "05:00"))}),
            None,
        ),
        (
            // As reported by a kubelet that was restarted.
            json!({"phase": "Failed", "containerStatuses": container(json!({"terminated": {"exitCode": 137}}))}),
            None,
        ),
        (
            // Set to Failed by the pod garbage collector.
            json!({"phase": "Failed", "containerStatuses": container(json!({"running": {}}))}),
            None,
        ),
    ] {
        assert_eq!(why(status.clone()).as_deref(), expected, "{status}");
    }
}

/// The paths of all strings in some JSON.
fn strings(value: &Value, path: &str, found: &mut Vec<String>) {
    match value {
        Value::String(_) => found.push(path.to_owned()),
        Value::Array(items) => {
            items
                .iter()
                .enumerate()
                .for_each(|(it, item)| strings(item, &format!("{path}/{it}"), found));
        }
        Value::Object(fields) => {
            for (name, field) in fields {
                let name = name.replace('~', "~0").replace('/', "~1");
                strings(field, &format!("{path}/{name}"), found);
            }
        }
        _ => {}
    }
}

/// Clients that may write a pod or its status choose the length of most texts.
#[test]
fn each_text_of_a_pod_that_is_kept_is_counted() {
    let mut long = pod(2, 2, "containerd://1");
    long["metadata"]["annotations"] = json!({
        "gamekeeper.tkex.tencent.com/in-place-record": "{}",
        "gamekeeper.tkex.tencent.com/sidecars": "{}",
    });
    long["spec"]["nodeName"] = json!("node-1");
    long["spec"]["containers"][0]["resources"] = json!({"limits": {"cpu": "1"}});
    long["spec"]["readinessGates"] = json!([{"conditionType": "InPlaceUpdateReady"}]);
    long["status"]["podIP"] = json!("127.9.0.4");
    long["status"]["hostIP"] = json!("127.0.0.1");
    let mut resizing = long.clone();
    resizing["status"]["conditions"] = json!([{
        "type": "PodResizePending", "status": "True", "reason": "Infeasible", "message": "no room",
    }]);
    let mut rejected = long.clone();
    rejected["status"] = json!({"phase": "Failed", "reason": "OutOfcpu", "message": "full"});
    let mut kept = 0;
    for pod in [resizing, rejected] {
        let mut paths = Vec::new();
        strings(&pod, "", &mut paths);
        let size = |pod: &Value| {
            let pod = serde_json::from_value(pod.clone()).ok()?;
            let slim = slim(None, Origin::Watch, pod, &mut Interner::default())?;
            Some((format!("{slim:?}").len(), crate::runtime::memory::of_pod(&slim)))
        };
        let (shown, counted) = size(&pod).expect("a pod");
        for path in paths {
            let mut longer = pod.clone();
            *longer.pointer_mut(&path).expect("a path") = json!("x".repeat(100_000));
            // Some texts cannot be that long.
            let Some((longer_shown, longer_counted)) = size(&longer) else {
                continue;
            };
            let growth = longer_shown.saturating_sub(shown);
            kept += usize::from(growth > 90_000);
            let is_counted = growth < 500 || longer_counted >= counted + growth / 2;
            assert!(is_counted, "{path}: {growth} more, {} counted", longer_counted - counted);
        }
    }
    assert!(kept > 10, "{kept}");
}

#[test]
fn a_reason_in_a_pods_status_is_cut() {
    let long = "x".repeat(100_000);
    let mut resizing = pod(2, 2, "c");
    resizing["status"]["conditions"] = json!([{
        "type": "PodResizePending", "status": "True", "reason": "Deferred", "message": long,
    }]);
    let Resize::Deferred(message) = watched(&[resizing]).resize else {
        panic!("it is deferred");
    };
    assert_eq!(message.len(), MAX_REASON + 3);
    let mut rejected = pod(2, 2, "c");
    rejected["status"] = json!({"phase": "Failed", "reason": "OutOfcpu", "message": long});
    let reason = watched(&[rejected]).ended_at_once.expect("a reason");
    assert_eq!(reason.len(), MAX_REASON + 3);
}
