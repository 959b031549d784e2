//! A pod as kubectl shows it, and what the operator is doing with it.

use gamekeeper_core::api::names::{
    DELETING_ANNOTATION, GUARDED_LABEL, IN_PLACE_GATE, INDEX_ID, MOVE_ANNOTATION,
    RELEASED_ANNOTATION,
};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodStatus};
use kube::ResourceExt;

use crate::style::Tone;
use crate::table::Cell;

/// Whether the pod is ready, and neither being updated nor waiting for its deletion or update.
pub fn is_settled(pod: &Pod) -> bool {
    let is_ready = status(pod) == "Running" && is_true(pod, "Ready");
    is_ready && !is_being_updated(pod) && !is_to_be_deleted_or_updated(pod)
}

/// Whether the pod is being updated in place.
fn is_being_updated(pod: &Pod) -> bool {
    condition(pod, IN_PLACE_GATE) == Some("False")
}

/// Whether the pod waits for its deletion or update.
fn is_to_be_deleted_or_updated(pod: &Pod) -> bool {
    pod.annotations().contains_key(DELETING_ANNOTATION)
}

pub fn state(pod: &Pod) -> Cell {
    let status = status(pod);
    let tone = match status.as_str() {
        "Running" if is_true(pod, "Ready") => Tone::Good,
        "Running" | "Pending" | "Terminating" | "ContainerCreating" | "PodInitializing" => {
            Tone::Busy
        }
        "Succeeded" | "Completed" => Tone::Plain,
        _ => Tone::Bad,
    };
    Cell::state(tone, status)
}

/// The pod's status, as in kubectl's column STATUS, but without regard to init containers.
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
    let reason_not_running = containers(status).find_map(reason_not_running);
    reason_not_running
        .or_else(|| status.phase.clone())
        .unwrap_or_else(|| "Unknown".to_owned())
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

fn reason_not_running(container: &ContainerStatus) -> Option<String> {
    let state = container.state.as_ref()?;
    let waiting = state.waiting.as_ref().and_then(|it| it.reason.clone());
    let terminated = state.terminated.as_ref().and_then(|it| it.reason.clone());
    waiting.or(terminated)
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
    if pod.annotations().contains_key(MOVE_ANNOTATION) && !is_terminating {
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
    use serde_json::json;

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
        assert_eq!(
            shown(json!({INDEX_ID: "100"})),
            "1/1 ready, index 100, 1 restart"
        );
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
