//! Reads the fields of pods, workloads and HookRuns that the rules need.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::names;

/// A string in an object; empty if it is not set.
pub fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    let found = object.pointer(pointer).and_then(Value::as_str);
    found.unwrap_or_default()
}

/// A time in an object.
pub(crate) fn time(object: &Value, pointer: &str) -> Option<Timestamp> {
    time_of(text(object, pointer))
}

/// Parses a time.
pub(crate) fn time_of(text: &str) -> Option<Timestamp> {
    text.parse().ok()
}

/// A label.
pub fn label<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object.pointer("/metadata/labels")?.get(key)?.as_str()
}

/// An annotation.
pub fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object.pointer("/metadata/annotations")?.get(key)?.as_str()
}

/// Uid.
pub fn uid(object: &Value) -> &str {
    text(object, "/metadata/uid")
}

/// The resourceVersion of an object, or of a list such as the response to a deletecollection.
pub(crate) fn resource_version(object: &Value) -> Option<u64> {
    let text = object.pointer("/metadata/resourceVersion")?.as_str()?;
    text.parse().ok()
}

/// Uid of an object's controller.
pub fn controller(object: &Value) -> Option<&str> {
    let owners = object.pointer("/metadata/ownerReferences")?.as_array()?;
    let controls = |owner: &&Value| owner.get("controller") == Some(&Value::Bool(true));
    owners.iter().find(controls)?.get("uid")?.as_str()
}

/// Whether an object is being deleted.
pub fn is_terminating(object: &Value) -> bool {
    object.pointer("/metadata/deletionTimestamp").is_some()
}

/// A condition in an object's status.
pub(crate) fn condition<'a>(object: &'a Value, type_: &str) -> Option<&'a Value> {
    let conditions = object.pointer("/status/conditions")?.as_array()?;
    conditions.iter().find(|c| text(c, "/type") == type_)
}

/// Whether a condition in an object's status is True.
pub fn is_true(object: &Value, type_: &str) -> bool {
    condition(object, type_).is_some_and(|c| text(c, "/status") == "True")
}

/// When a pod became ready. The kubelet truncates the time to seconds.
pub(crate) fn ready_since(pod: &Value) -> Option<Timestamp> {
    let ready = condition(pod, "Ready").filter(|c| text(c, "/status") == "True")?;
    time(ready, "/lastTransitionTime")
}

/// Whether the readiness gate of in-place updates is closed.
pub(crate) fn gate_is_closed(pod: &Value) -> bool {
    condition(pod, names::GATE).is_some_and(|c| text(c, "/status") == "False")
}

/// Whether the readiness gate of in-place updates is open.
pub(crate) fn gate_is_open(pod: &Value) -> bool {
    is_true(pod, names::GATE)
}

/// Whether a pod has the readiness gate of in-place updates.
pub(crate) fn has_gate(pod: &Value) -> bool {
    let gates = pod.pointer("/spec/readinessGates").and_then(Value::as_array);
    gates.is_some_and(|gates| gates.iter().any(|gate| text(gate, "/conditionType") == names::GATE))
}

/// A pod's revision.
pub fn revision(pod: &Value) -> &str {
    label(pod, names::REVISION).unwrap_or_default()
}

/// status.phase.
pub fn phase(object: &Value) -> &str {
    text(object, "/status/phase")
}

/// Whether a pod is Failed or Succeeded.
pub(crate) fn has_ended(pod: &Value) -> bool {
    matches!(phase(pod), "Failed" | "Succeeded")
}

/// Whether a container or native sidecar of a pod is running. For a container without a status, the phase decides.
pub fn is_running(pod: &Value) -> bool {
    let lists = ["/status/initContainerStatuses", "/status/containerStatuses"];
    let is_running = |container: &Value| {
        let mut statuses = items_of(pod, lists);
        let name = text(container, "/name");
        match statuses.find(|status| text(status, "/name") == name) {
            Some(status) => status.pointer("/state/running").is_some(),
            None => phase(pod) == "Running",
        }
    };
    let is_sidecar = |container: &&Value| text(container, "/restartPolicy") == "Always";
    let sidecars = items_of(pod, ["/spec/initContainers"]).filter(is_sidecar);
    items_of(pod, ["/spec/containers"]).chain(sidecars).any(is_running)
}

/// The items of all these lists in an object.
fn items_of<'a, const N: usize>(
    object: &'a Value,
    lists: [&str; N],
) -> impl Iterator<Item = &'a Value> {
    let lists = lists.map(|list| object.pointer(list).and_then(Value::as_array));
    lists.into_iter().flatten().flatten()
}

/// Whether every container that has a status is ready.
pub(crate) fn containers_are_ready(pod: &Value) -> bool {
    let lists = ["/status/initContainerStatuses", "/status/containerStatuses"];
    items_of(pod, lists).all(|status| status.get("ready") == Some(&Value::Bool(true)))
}

/// The total number of restarts of a pod's containers, without init containers.
pub fn restarts(pod: &Value) -> i64 {
    let statuses = pod.pointer("/status/containerStatuses");
    let statuses = statuses.and_then(Value::as_array);
    let restarts = |status: &Value| status.get("restartCount").and_then(Value::as_i64);
    statuses.map_or(0, |all| all.iter().filter_map(restarts).sum())
}

/// Name, image and resources of each container.
pub(crate) fn containers(pod: &Value) -> Vec<(String, String, Value)> {
    items_of(pod, ["/spec/initContainers", "/spec/containers"])
        .map(|container| {
            let resources = container.get("resources").cloned().unwrap_or_default();
            let (name, image) = (text(container, "/name"), text(container, "/image"));
            (name.to_owned(), image.to_owned(), resources)
        })
        .collect()
}

/// The names of the containers whose image differs between two versions of a pod.
pub(crate) fn changed_images(before: &Value, after: &Value) -> Vec<String> {
    let (before, after) = (containers(before), containers(after));
    let pairs = before.into_iter().zip(after);
    let changed = pairs.filter(|(old, new)| old.1 != new.1);
    changed.map(|((name, ..), _)| name).collect()
}

/// Whether a resize restarts a container, because it changes a resource whose resizePolicy is RestartContainer. The
/// policy is immutable.
pub(crate) fn is_restarted_by_resize(before: &Value, after: &Value) -> bool {
    let lists = ["/spec/initContainers", "/spec/containers"];
    let restarts = |new: &Value| {
        let name = text(new, "/name");
        let old = items_of(before, lists).find(|old| text(old, "/name") == name);
        old.is_some_and(|old| {
            let mut policies = items_of(new, ["/resizePolicy"]);
            policies.any(|policy| {
                let resource = text(policy, "/resourceName");
                text(policy, "/restartPolicy") == "RestartContainer"
                    && resource_of(old, resource) != resource_of(new, resource)
            })
        })
    };
    items_of(after, lists).any(restarts)
}

/// A container's request and limit of a resource.
fn resource_of<'a>(container: &'a Value, resource: &str) -> [Option<&'a Value>; 2] {
    ["/resources/requests", "/resources/limits"]
        .map(|amounts| container.pointer(amounts)?.get(resource))
}

/// The image that a container was started from; None if the kubelet does not report it.
pub(crate) fn running_image<'a>(pod: &'a Value, container: &str) -> Option<&'a str> {
    image_in_id(container_status(pod, container)?)
}

/// Whether a container is ready.
pub(crate) fn container_is_ready(pod: &Value, container: &str) -> bool {
    let status = container_status(pod, container);
    status.is_some_and(|status| status.get("ready") == Some(&Value::Bool(true)))
}

fn container_status<'a>(pod: &'a Value, container: &str) -> Option<&'a Value> {
    let lists = ["/status/initContainerStatuses", "/status/containerStatuses"];
    items_of(pod, lists).find(|status| text(status, "/name") == container)
}

/// The image at the end of a containerID, where the simulated kubelet appends it.
pub(crate) fn image_in_id(status: &Value) -> Option<&str> {
    let (_, image) = text(status, "/containerID").split_once('#')?;
    Some(image)
}

/// Name and image of each container.
pub(crate) fn images(pod: &Value) -> Vec<(String, String)> {
    let containers = containers(pod).into_iter();
    containers.map(|(name, image, _)| (name, image)).collect()
}

/// The labels and annotations that come from the template. This excludes the operator's annotations; those for
/// autoscalers, which have a rule of their own (`rules/autoscalers.rs`); and the identity labels and the guard's label,
/// which the operator restores.
pub(crate) fn template_metadata(pod: &Value) -> (Map<String, Value>, Map<String, Value>) {
    let map = |pointer| {
        let found = pod.pointer(pointer).and_then(Value::as_object);
        found.cloned().unwrap_or_default()
    };
    let mut annotations = map("/metadata/annotations");
    let operator_annotations =
        [names::DELETING, names::RECORD, names::WAITING_SINCE, names::MOVE, names::HOOK_RESULT];
    let autoscaler_annotations = names::AUTOSCALER_ANNOTATIONS.map(|(key, _)| key);
    for annotation in operator_annotations.into_iter().chain(autoscaler_annotations) {
        annotations.remove(annotation);
    }
    annotations.retain(|key, _| !key.starts_with(names::SIDECARS));
    let mut labels = map("/metadata/labels");
    for label in names::IDENTITY.into_iter().chain([names::GUARDED]) {
        labels.remove(label);
    }
    (labels, annotations)
}

/// The mark of a SidecarSet on a pod.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Mark {
    /// The revision of the containers.
    #[serde(rename = "at")]
    pub(crate) revision: String,
    /// The revision to which they may be updated.
    #[serde(rename = "to")]
    pub(crate) token: Option<String>,
    /// The containers.
    #[serde(rename = "in")]
    pub(crate) containers: Vec<String>,
}

/// The marks of a pod, by the name of the SidecarSet.
pub(crate) fn marks(pod: &Value) -> BTreeMap<String, Mark> {
    let annotations = pod.pointer("/metadata/annotations");
    let annotations = annotations.and_then(Value::as_object).into_iter().flatten();
    let marks = annotations.filter_map(|(key, mark)| {
        let set = key.strip_prefix(names::SIDECARS)?;
        Some((set.to_owned(), serde_json::from_str(mark.as_str()?).ok()?))
    });
    marks.collect()
}

/// A hook of a workload.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Hook<'a> {
    /// Name of the HookTemplate.
    pub(crate) template: &'a str,
    /// Arguments.
    pub(crate) args: Vec<(&'a str, &'a str)>,
}

/// Names and values of a list of arguments.
pub fn arguments<'a>(object: &'a Value, pointer: &str) -> Vec<(&'a str, &'a str)> {
    let args = object.pointer(pointer).and_then(Value::as_array);
    let pair = |arg: &'a Value| (text(arg, "/name"), text(arg, "/value"));
    args.map_or_else(Vec::new, |args| args.iter().map(pair).collect())
}

/// The hook of a workload at a point (`preDelete`, `preInplace`, `postInplace`).
pub(crate) fn pod_hook<'a>(workload: &'a Value, point: &str) -> Option<Hook<'a>> {
    let base = format!("/spec/{point}UpdateStrategy/hook");
    hook_at(workload, &base)
}

fn hook_at<'a>(workload: &'a Value, base: &str) -> Option<Hook<'a>> {
    let template = text(workload, &format!("{base}/templateName"));
    let args = arguments(workload, &format!("{base}/args"));
    (!template.is_empty()).then_some(Hook { template, args })
}

/// The hook point of a HookRun: PreDelete, PreInplace, PostInplace or Step.
pub fn point(run: &Value) -> &str {
    let labels = names::RUN_TYPE.iter();
    labels.filter_map(|key| label(run, key)).next().unwrap_or("")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_runs_while_a_container_or_native_sidecar_runs() {
        let state = |name: &str, state: &str| json!({"name": name, "state": {state: {}}});
        let pod = |phase: &str, game: Value, sidecar: &str, setup: &str| {
            let init = [state("sidecar", sidecar), state("setup", setup)];
            json!({
                "spec": {
                    "containers": [{"name": "game"}],
                    "initContainers": [
                        {"name": "sidecar", "restartPolicy": "Always"}, {"name": "setup"},
                    ],
                },
                "status": {
                    "phase": phase, "containerStatuses": [game], "initContainerStatuses": init,
                },
            })
        };
        let game = |it| state("game", it);
        assert!(is_running(&pod("Pending", game("running"), "waiting", "waiting")));
        assert!(is_running(&pod("Pending", game("waiting"), "running", "waiting")));
        assert!(!is_running(&pod("Pending", game("waiting"), "waiting", "running")));
        assert!(!is_running(&pod("Running", game("terminated"), "waiting", "terminated")));
        let without_status = state("other", "running");
        let pod = |phase| pod(phase, without_status.clone(), "waiting", "waiting");
        assert!(is_running(&pod("Running")));
        assert!(!is_running(&pod("Pending")));
    }
}
