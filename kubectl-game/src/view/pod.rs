//! A pod as kubectl shows it, and what the operator is doing with it.

use gamekeeper_core::api::names::{
    DELETING_ANNOTATION, GUARDED_LABEL, IN_PLACE_GATE, INDEX_ID, MOVE_ANNOTATION,
    RELEASED_ANNOTATION,
};
use k8s_openapi::api::core::v1::{ContainerStateTerminated, ContainerStatus, Pod, PodStatus};
use kube::ResourceExt;

use crate::style::Tone;
use crate::table::Cell;

/// Whether the pod is ready, and neither being updated nor waiting for its deletion, update or replacement.
pub fn is_settled(pod: &Pod) -> bool {
    activity(pod) == Activity::Ready
}

/// What goes on with a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// It is being deleted, or waits for its deletion, update or replacement.
    Ending,
    /// It is being updated in place.
    Updating,
    NotReady,
    /// It is ready, and nothing else goes on.
    Ready,
}

pub fn activity(pod: &Pod) -> Activity {
    let is_terminating = pod.metadata.deletion_timestamp.is_some();
    if is_terminating || is_to_be_deleted_or_updated(pod) || is_to_be_moved(pod) {
        Activity::Ending
    } else if is_being_updated(pod) {
        Activity::Updating
    } else if status(pod) == "Running" && is_true(pod, "Ready") {
        Activity::Ready
    } else {
        Activity::NotReady
    }
}

/// Whether the pod is being updated in place.
fn is_being_updated(pod: &Pod) -> bool {
    condition(pod, IN_PLACE_GATE) == Some("False")
}

/// Whether the pod waits for its deletion or update.
fn is_to_be_deleted_or_updated(pod: &Pod) -> bool {
    pod.annotations().contains_key(DELETING_ANNOTATION)
}

/// Whether a user or the operator has requested the pod's replacement.
fn is_to_be_moved(pod: &Pod) -> bool {
    pod.annotations().contains_key(MOVE_ANNOTATION)
}

pub fn state(pod: &Pod) -> Cell {
    let status = status(pod);
    Cell::state(tone(&status, pod), status)
}

fn tone(status: &str, pod: &Pod) -> Tone {
    match status.strip_prefix(INIT).unwrap_or(status) {
        "Running" if is_true(pod, "Ready") => Tone::Good,
        "Running" | "Pending" | "Terminating" | "ContainerCreating" | "PodInitializing" => {
            Tone::Busy
        }
        "Succeeded" | "Completed" => Tone::Plain,
        progress if progress.contains('/') => Tone::Busy,
        _ => Tone::Bad,
    }
}

/// The pod's status, as in kubectl's column STATUS.
fn status(pod: &Pod) -> String {
    if pod.metadata.deletion_timestamp.is_some() {
        return "Terminating".to_owned();
    }
    let Some(status) = &pod.status else {
        return "Pending".to_owned();
    };
    if let Some(reason) = &status.reason {
        return reason.clone();
    }
    let initialization = initialization(pod, status);
    // A native sidecar can also fail later.
    let is_initialized = initialization.is_none() || is_true(pod, "Initialized");
    let mut containers = containers(status).filter(|_| is_initialized);
    let reason = containers.find_map(reason_not_running).or(initialization);
    reason.or_else(|| status.phase.clone()).unwrap_or_else(|| "Unknown".to_owned())
}

/// What precedes the state of an init container in the status of a pod.
const INIT: &str = "Init:";

/// The state of the first init container that has not completed, or, for a native sidecar, has not started; None if
/// there is no such container.
fn initialization(pod: &Pod, status: &PodStatus) -> Option<String> {
    let native = native_sidecars(pod);
    let is_done = |container: &ContainerStatus| {
        let state = container.state.as_ref();
        let ended = state.and_then(|state| state.terminated.as_ref());
        let is_native = native.contains(&container.name.as_str());
        ended.is_some_and(|it| it.exit_code == 0) || is_native && container.started == Some(true)
    };
    let mut containers = init_containers(status).enumerate();
    let (done, container) = containers.find(|(_, container)| !is_done(container))?;
    let reason = reason_not_running(container).filter(|it| it != "PodInitializing");
    let all = || pod.spec.as_ref()?.init_containers.as_ref().map(Vec::len);
    let state = reason.unwrap_or_else(|| format!("{done}/{}", all().unwrap_or_default()));
    Some(format!("{INIT}{state}"))
}

fn containers(status: &PodStatus) -> impl Iterator<Item = &ContainerStatus> {
    status.container_statuses.iter().flatten()
}

fn init_containers(status: &PodStatus) -> impl Iterator<Item = &ContainerStatus> {
    status.init_container_statuses.iter().flatten()
}

/// The names of the native sidecars. `kubectl get pods` counts them, but no other init containers, under READY.
fn native_sidecars(pod: &Pod) -> Vec<&str> {
    let spec = pod.spec.iter();
    let containers = spec.flat_map(|spec| spec.init_containers.iter().flatten());
    let native = containers.filter(|it| it.restart_policy.as_deref() == Some("Always"));
    native.map(|it| it.name.as_str()).collect()
}

/// What a container waits for, or how it ended.
fn reason_not_running(container: &ContainerStatus) -> Option<String> {
    let state = container.state.as_ref()?;
    let waiting = state.waiting.as_ref().and_then(|it| it.reason.clone());
    waiting.or_else(|| state.terminated.as_ref().map(how_it_ended))
}

fn how_it_ended(container: &ContainerStateTerminated) -> String {
    match (&container.reason, container.signal) {
        (Some(reason), _) => reason.clone(),
        (None, Some(signal)) if signal != 0 => format!("Signal:{signal}"),
        _ => format!("ExitCode:{}", container.exit_code),
    }
}

fn is_true(pod: &Pod, type_: &str) -> bool {
    condition(pod, type_) == Some("True")
}

fn condition<'a>(pod: &'a Pod, type_: &str) -> Option<&'a str> {
    let mut conditions = pod.status.as_ref()?.conditions.iter().flatten();
    let found = conditions.find(|condition| condition.type_ == type_)?;
    Some(&found.status)
}

/// Ready containers, restarts, and what the operator is doing with the pod. `is_for_update`: the pod's hook runs
/// for an update, not for a deletion.
pub fn info(pod: &Pod, is_for_update: bool, is_reserved: bool) -> String {
    let native = native_sidecars(pod);
    let all = pod.spec.as_ref().map_or(0, |spec| spec.containers.len()) + native.len();
    let sidecars = pod.status.iter().flat_map(init_containers);
    let sidecars = sidecars.filter(|it| native.contains(&it.name.as_str()));
    let statuses = pod.status.iter().flat_map(containers).chain(sidecars);
    let statuses: Vec<&ContainerStatus> = statuses.collect();
    let ready = statuses.iter().filter(|it| it.ready).count();
    let restarts: i32 = statuses.iter().map(|it| it.restart_count).sum();
    let mut words = vec![format!("{ready}/{all} ready")];
    if let Some(index) = pod.annotations().get(INDEX_ID) {
        words.push(format!("index {index}"));
    }
    match restarts {
        0 => {}
        1 => words.push("1 restart".to_owned()),
        more => words.push(format!("{more} restarts")),
    }
    let is_terminating = pod.metadata.deletion_timestamp.is_some();
    if is_being_updated(pod) && !is_terminating {
        words.push("being updated in place".to_owned());
    }
    if is_to_be_deleted_or_updated(pod) && !is_terminating {
        let action = if is_for_update { "updated" } else { "deleted" };
        words.push(format!("to be {action}"));
    }
    if is_to_be_moved(pod) && !is_terminating {
        words.push("to be moved".to_owned());
    }
    if is_reserved {
        words.push("ordinal reserved".to_owned());
    }
    if pod.labels().contains_key(GUARDED_LABEL) {
        words.push("guarded".to_owned());
    } else if pod.annotations().contains_key(RELEASED_ANNOTATION) {
        words.push("released".to_owned());
    }
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn the_index_of_a_pod_is_shown() {
        let shown = |annotations| {
            let pod = json!({
                "metadata": {"name": "a", "annotations": annotations},
                "spec": {"containers": [{"name": "game"}]},
                "status": {"containerStatuses": [
                    {"name": "game", "ready": true, "restartCount": 1, "image": "", "imageID": ""},
                ]},
            });
            info(&serde_json::from_value(pod).expect("a pod"), false, false)
        };
        assert_eq!(shown(json!({})), "1/1 ready, 1 restart");
        assert_eq!(shown(json!({INDEX_ID: "100"})), "1/1 ready, index 100, 1 restart");
    }

    #[test]
    fn the_state_of_init_containers_is_shown_until_all_have_completed() {
        let waiting = |reason: &str| json!({"waiting": {"reason": reason}});
        let ended = |code: i32| json!({"terminated": {"exitCode": code}});
        let failed = json!({"terminated": {"exitCode": 1, "reason": "Error"}});
        let running = json!({"running": {}});
        let shown = |states: [&Value; 2], is_started: bool| {
            let names = ["mesh", "init"].into_iter().zip(states);
            let statuses = names.map(|(name, state)| {
                json!({"name": name, "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state,
                    "started": is_started && name == "mesh"})
            });
            let pod = json!({
                "metadata": {"name": "a"},
                "spec": {
                    "initContainers": [{"name": "mesh", "restartPolicy": "Always"}, {"name": "init"}],
                    "containers": [{"name": "game"}],
                },
                "status": {
                    "phase": "Pending", "initContainerStatuses": statuses.collect::<Vec<_>>(),
                    "containerStatuses": [{"name": "game", "image": "", "imageID": "", "ready": false,
                        "restartCount": 0, "state": waiting("PodInitializing")}],
                },
            });
            let pod: Pod = serde_json::from_value(pod).expect("a pod");
            let status = status(&pod);
            (status.clone(), tone(&status, &pod))
        };
        let next = waiting("PodInitializing");
        for (states, is_started, expected, tone) in [
            ([&next, &next], false, "Init:0/2", Tone::Busy),
            ([&running, &next], false, "Init:0/2", Tone::Busy),
            ([&running, &next], true, "Init:1/2", Tone::Busy),
            ([&running, &running], true, "Init:1/2", Tone::Busy),
            ([&waiting("CrashLoopBackOff"), &next], false, "Init:CrashLoopBackOff", Tone::Bad),
            ([&running, &waiting("ImagePullBackOff")], true, "Init:ImagePullBackOff", Tone::Bad),
            ([&running, &failed], true, "Init:Error", Tone::Bad),
            ([&running, &ended(3)], true, "Init:ExitCode:3", Tone::Bad),
            ([&running, &ended(0)], true, "PodInitializing", Tone::Busy),
        ] {
            let expected = (expected.to_owned(), tone);
            assert_eq!(shown(states, is_started), expected);
        }
    }

    #[test]
    fn a_native_sidecar_that_fails_later_does_not_hide_the_state_of_other_containers() {
        let crashing = json!({"waiting": {"reason": "CrashLoopBackOff"}});
        let ended = json!({"terminated": {"exitCode": 1, "reason": "OOMKilled"}});
        let shown = |game: Value| {
            let status = |name: &str, state: &Value| json!({"name": name, "ready": false, "restartCount": 1, "image": "", "imageID": "", "state": state});
            let pod = json!({
                "metadata": {"name": "a"},
                "spec": {
                    "initContainers": [{"name": "mesh", "restartPolicy": "Always"}],
                    "containers": [{"name": "game"}],
                },
                "status": {
                    "phase": "Running", "conditions": [{"type": "Initialized", "status": "True"}],
                    "initContainerStatuses": [status("mesh", &crashing)],
                    "containerStatuses": [status("game", &game)],
                },
            });
            super::status(&serde_json::from_value(pod).expect("a pod"))
        };
        assert_eq!(shown(json!({"running": {}})), "Init:CrashLoopBackOff");
        assert_eq!(shown(ended), "OOMKilled");
    }

    #[test]
    fn native_sidecars_are_counted_and_other_init_containers_are_not() {
        let status = |name: &str, ready: bool, restarts: i32| json!({"name": name, "ready": ready, "restartCount": restarts, "image": "", "imageID": ""});
        let shown = |is_ready: bool| {
            let pod = json!({
                "metadata": {"name": "a"},
                "spec": {
                    "initContainers": [{"name": "init"}, {"name": "mesh", "restartPolicy": "Always"}],
                    "containers": [{"name": "game"}],
                },
                "status": {
                    "initContainerStatuses": [status("init", true, 3), status("mesh", is_ready, 1)],
                    "containerStatuses": [status("game", true, 0)],
                },
            });
            info(&serde_json::from_value(pod).expect("a pod"), false, false)
        };
        assert_eq!(shown(true), "2/2 ready, 1 restart");
        assert_eq!(shown(false), "1/2 ready, 1 restart");
    }
}
