//! Sorts the writes of a namespace into the order in which they took effect, each with the object before and
//! after it.
//!
//! The log is in the order of responses, which may differ from the order in etcd. The resourceVersion in a
//! response gives that order; the few responses without one (deletions of custom resources) are placed by time.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::rebuild::{is_partial, rebuild};
use crate::evidence::{Event, ObjectRef};
use crate::object::{is_terminating, resource_version};

/// The resource of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Resource {
    /// A pod.
    Pod,
    /// A GameDeployment or GameStatefulSet.
    Workload,
    /// A HookRun.
    HookRun,
    /// Any other resource, by its plural name.
    Other(String),
}

impl Resource {
    fn of(plural: &str) -> Self {
        match plural {
            "pods" => Resource::Pod,
            "gamedeployments" | "gamestatefulsets" => Resource::Workload,
            "hookruns" => Resource::HookRun,
            other => Resource::Other(other.to_owned()),
        }
    }
}

/// A write that took effect.
#[derive(Clone, Debug)]
pub(crate) struct Write {
    /// When the API server received it.
    pub(crate) received: Timestamp,
    /// When the response was complete.
    pub(crate) done: Timestamp,
    /// User of the client.
    pub(crate) user: String,
    /// Name and version of the client.
    pub(crate) user_agent: String,
    /// Verb.
    pub(crate) verb: String,
    /// Path and query.
    pub(crate) uri: String,
    /// The resource.
    pub(crate) resource: Resource,
    /// Plural name of the resource.
    pub(crate) plural: String,
    /// Name of the object.
    pub(crate) name: String,
    /// status, scale, resize, ... or empty.
    pub(crate) subresource: String,
    /// Whether it has a resourceVersion as a precondition, so that it fails after any other write to the object.
    pub(crate) has_version_precondition: bool,
    /// The object before; None if it did not exist.
    pub(crate) before: Option<Arc<Value>>,
    /// The object after; None if it no longer exists.
    pub(crate) after: Option<Arc<Value>>,
}

impl Write {
    /// Whether the object changed. A write whose content is not in the log counts as a change.
    pub(crate) fn changed(&self) -> bool {
        let version = |object: &Option<Arc<Value>>| {
            let object = object.as_ref()?;
            Some(object.pointer("/metadata/resourceVersion")?.clone())
        };
        match (version(&self.before), version(&self.after)) {
            (Some(before), Some(after)) => before != after,
            _ => true,
        }
    }

    /// Whether it was made by a metric of a hook.
    pub(crate) fn is_of_a_hook(&self) -> bool {
        self.uri.contains("fieldManager=gamekeeper-hooks")
    }
}

/// The writes of a namespace in order, with each object before and after.
pub(crate) fn history(events: &[Event]) -> Vec<Write> {
    let mut objects: HashMap<(String, String), Arc<Value>> = HashMap::new();
    let mut writes = Vec::new();
    for event in in_order(events) {
        let reference = event.object_ref.clone().unwrap_or_default();
        for name in names_of(event, &reference, &objects) {
            let key = (reference.resource.clone(), name.clone());
            let before = objects.get(&key).cloned();
            let after = after(event, &reference, &name, before.as_ref());
            match &after {
                Some(object) => objects.insert(key, object.clone()),
                None => objects.remove(&key),
            };
            writes.push(Write {
                received: event.received,
                done: event.done,
                user: event.username().to_owned(),
                user_agent: event.user_agent.clone(),
                verb: event.verb.clone(),
                uri: event.uri.clone(),
                resource: Resource::of(&reference.resource),
                plural: reference.resource.clone(),
                name,
                subresource: reference.subresource.clone(),
                has_version_precondition: event
                    .request_object
                    .as_ref()
                    .is_some_and(has_version_precondition),
                before,
                after,
            });
        }
    }
    writes
}

/// Whether a body (delete options, patch or object) has a resourceVersion as a precondition.
fn has_version_precondition(body: &Value) -> bool {
    const VERSION: &str = "/metadata/resourceVersion";
    let is_test = |operation: &Value| operation["op"] == "test" && operation["path"] == VERSION;
    match body.as_array() {
        Some(operations) => operations.iter().any(is_test),
        None => [VERSION, "/preconditions/resourceVersion"]
            .iter()
            .any(|pointer| body.pointer(pointer).is_some_and(|it| !it.is_null())),
    }
}

/// Successful writes by resourceVersion. Three kinds of writes have no version of their own. The response to a write
/// that removes the last finalizer shows the object's last version. Another deletion of a Terminating pod changes
/// nothing, and its response shows a version that another write has made. The response to a deletecollection shows the
/// version of the list that it began with; the deletions followed later.
///
/// The response to an eviction has no version either. An eviction that overlaps with a deletion of the pod is placed
/// after it, because the API server lets evictions of Terminating pods pass, and may respond to them first.
fn in_order(events: &[Event]) -> Vec<&Event> {
    let mut by_time: Vec<&Event> = events
        .iter()
        .filter(|event| event.is_write() && event.succeeded())
        .collect();
    by_time.sort_by_key(|event| event.done);
    let mut newest = 0;
    let mut returned = HashSet::new();
    let mut placed: Vec<(u64, bool, &Event)> = Vec::new();
    for event in &by_time {
        let answer = event.response_object.as_ref();
        let answer = answer.filter(|it| event.resource() == "pods" || !is_finalized(it));
        let version = answer.and_then(resource_version);
        let is_new = version.is_some_and(|version| returned.insert(version));
        let version = version.filter(|_| match event.verb.as_str() {
            "delete" => is_new,
            verb => verb != "deletecollection",
        });
        newest = newest.max(version.unwrap_or(0));
        let about = event.object_ref.as_ref();
        let is_eviction = about.is_some_and(|it| it.subresource == "eviction");
        let deleted = by_time
            .iter()
            .filter(|it| is_eviction && is_overlapping_deletion(it, event))
            .filter_map(|it| resource_version(it.response_object.as_ref()?))
            .max();
        let version = version.unwrap_or(newest).max(deleted.unwrap_or(0));
        placed.push((version, is_eviction, event));
    }
    placed.sort_by_key(|(version, is_eviction, _)| (*version, *is_eviction));
    placed.into_iter().map(|(_, _, event)| event).collect()
}

/// Whether an event is the deletion of a pod during its eviction.
fn is_overlapping_deletion(event: &Event, eviction: &Event) -> bool {
    let name = |event: &Event| event.object_ref.as_ref().map(|it| it.name.clone());
    event.verb == "delete"
        && event.resource() == "pods"
        && event.received <= eviction.done
        && eviction.received <= event.done
        && name(event) == name(eviction)
}

/// The names of the objects that an event changes: one, or all of the resource for a deletecollection.
fn names_of(
    event: &Event,
    reference: &ObjectRef,
    objects: &HashMap<(String, String), Arc<Value>>,
) -> Vec<String> {
    if event.verb == "deletecollection" {
        let mut names: Vec<String> = objects
            .keys()
            .filter(|(resource, _)| *resource == reference.resource)
            .map(|(_, name)| name.clone())
            .collect();
        names.sort();
        return names;
    }
    let answered = event.response_object.as_ref();
    let name = answered.and_then(|object| object.pointer("/metadata/name")?.as_str());
    match name {
        Some(name) if reference.name.is_empty() => vec![name.to_owned()],
        _ => vec![reference.name.clone()],
    }
}

/// An object after an event.
fn after(
    event: &Event,
    reference: &ObjectRef,
    name: &str,
    before: Option<&Arc<Value>>,
) -> Option<Arc<Value>> {
    let terminating = |object: &Arc<Value>| match is_terminating(object) {
        true => Arc::clone(object),
        false => Arc::new(terminating(object, event.done)),
    };
    match (event.verb.as_str(), reference.subresource.as_str()) {
        // The response shows the objects as they were before.
        ("deletecollection", _) => {
            let is_pod = Resource::of(&reference.resource) == Resource::Pod;
            let kept = before.filter(|object| is_pod || has_finalizers(object));
            kept.map(terminating)
        }
        (_, "eviction") => before.map(terminating),
        (_, "binding") => before.cloned(),
        (_, "scale") => {
            before.map(|workload| Arc::new(scaled(workload, event.response_object.as_ref())))
        }
        ("delete", _) => {
            let object = answered(event, reference, before)?;
            (!is_removed(&object)).then(|| Arc::new(object))
        }
        _ => {
            let object = answered(event, reference, before).map(Arc::new);
            let object = object.or_else(|| before.cloned())?;
            (name == name_of(&object) && !is_finalized(&object)).then_some(object)
        }
    }
}

/// The object in a response, if there is one.
fn answered(event: &Event, reference: &ObjectRef, before: Option<&Arc<Value>>) -> Option<Value> {
    let answer = event.response_object.as_ref()?;
    if is_partial(answer) {
        let is_status = reference.subresource == "status";
        return Some(rebuild(event, is_status, before.map(Arc::as_ref), answer));
    }
    (answered_kind(Some(answer)) != Some("Status")).then(|| answer.clone())
}

fn answered_kind(answer: Option<&Value>) -> Option<&str> {
    answer?.get("kind")?.as_str()
}

fn name_of(object: &Value) -> &str {
    let name = object.pointer("/metadata/name");
    name.and_then(Value::as_str).unwrap_or_default()
}

/// Whether the object in the response to a deletion no longer exists.
fn is_removed(object: &Value) -> bool {
    let grace = object.pointer("/metadata/deletionGracePeriodSeconds");
    grace.and_then(Value::as_i64).unwrap_or(0) == 0 && !has_finalizers(object)
}

/// Whether a write removed the last finalizer of an object that is being deleted.
fn is_finalized(object: &Value) -> bool {
    let is_pod = answered_kind(Some(object)) == Some("Pod");
    !is_pod && is_terminating(object) && !has_finalizers(object)
}

fn has_finalizers(object: &Value) -> bool {
    let finalizers = object.pointer("/metadata/finalizers");
    finalizers
        .and_then(Value::as_array)
        .is_some_and(|list| !list.is_empty())
}

fn terminating(object: &Value, since: Timestamp) -> Value {
    let mut object = object.clone();
    object["metadata"]["deletionTimestamp"] = json!(since.to_string());
    object
}

/// The workload after a write to its scale subresource, whose response is a Scale.
fn scaled(workload: &Value, scale: Option<&Value>) -> Value {
    let mut workload = workload.clone();
    let Some(scale) = scale else { return workload };
    let replicas = scale.pointer("/spec/replicas").cloned().unwrap_or(json!(0));
    if workload.pointer("/spec/replicas") != Some(&replicas) {
        let generation = workload.pointer("/metadata/generation");
        let generation = generation.and_then(Value::as_i64).unwrap_or(0) + 1;
        workload["metadata"]["generation"] = json!(generation);
        workload["spec"]["replicas"] = replicas;
    }
    if let Some(version) = scale.pointer("/metadata/resourceVersion") {
        workload["metadata"]["resourceVersion"] = version.clone();
    }
    workload
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(verb: &str, path: &str, second: u32, answer: Value) -> Event {
        let (resource, subresource) = path.split_once('/').unwrap_or((path, ""));
        let event = json!({
            "stage": "ResponseComplete", "requestURI": "/x", "verb": verb,
            "user": {"username": "u"}, "responseStatus": {"code": 200},
            "objectRef": {"resource": resource, "subresource": subresource, "name": "x"},
            "requestReceivedTimestamp": format!("2026-01-01T00:00:{second:02}Z"),
            "stageTimestamp": format!("2026-01-01T00:00:{second:02}.1Z"),
            "responseObject": answer,
        });
        serde_json::from_value(event).expect("an event")
    }

    fn object(kind: &str, version: u64, spec: Value) -> Value {
        let metadata = json!({"name": "x", "resourceVersion": version.to_string()});
        json!({"kind": kind, "metadata": metadata, "spec": spec})
    }

    #[test]
    fn writes_are_ordered_by_version_and_follow_their_object() {
        let events = [
            event("patch", "pods", 3, object("Pod", 12, json!(2))),
            event("create", "pods", 1, object("Pod", 10, json!(1))),
            event("patch", "pods/status", 2, object("Pod", 11, json!(1))),
        ];
        let writes = history(&events);
        let specs = |object: &Option<Arc<Value>>| object.as_ref().map(|o| o["spec"].clone());
        let steps: Vec<_> = writes
            .iter()
            .map(|write| (specs(&write.before), specs(&write.after)))
            .collect();
        let (one, two) = (Some(json!(1)), Some(json!(2)));
        assert_eq!(
            steps,
            [(None, one.clone()), (one.clone(), one.clone()), (one, two)]
        );
    }

    #[test]
    fn every_form_of_version_precondition_is_recognized() {
        let test = |path: &str| json!([{"op": "test", "path": path, "value": "7"}]);
        for (body, expected) in [
            (
                json!({"preconditions": {"uid": "u", "resourceVersion": "7"}}),
                true,
            ),
            (
                json!({"preconditions": {"uid": "u", "resourceVersion": null}}),
                false,
            ),
            (test("/metadata/resourceVersion"), true),
            (test("/metadata/uid"), false),
            (
                json!({"metadata": {"uid": "u", "resourceVersion": "7"}}),
                true,
            ),
            (json!({"metadata": {"uid": "u"}}), false),
        ] {
            assert_eq!(has_version_precondition(&body), expected, "{body}");
        }
    }

    #[test]
    fn a_deletion_without_an_object_is_placed_by_its_time() {
        let status = json!({"kind": "Status", "metadata": {}});
        let events = [
            event("create", "hookruns", 1, object("HookRun", 10, json!(1))),
            event("create", "hookruns", 3, object("HookRun", 11, json!(2))),
            event("delete", "hookruns", 2, status),
        ];
        let gone: Vec<bool> = history(&events).iter().map(|w| w.after.is_none()).collect();
        assert_eq!(gone, [false, true, false]);
    }

    #[test]
    fn another_deletion_of_a_terminating_pod_changes_nothing() {
        let mut deleted = object("Pod", 11, json!(1));
        deleted["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:02Z");
        deleted["metadata"]["deletionGracePeriodSeconds"] = json!(30);
        let mut reported = deleted.clone();
        reported["metadata"]["resourceVersion"] = json!("12");
        let events = [
            event("create", "pods", 1, object("Pod", 10, json!(1))),
            event("delete", "pods", 2, deleted.clone()),
            event("patch", "pods/status", 3, reported),
            event("delete", "pods", 4, deleted),
        ];
        let verbs: Vec<String> = history(&events).into_iter().map(|it| it.verb).collect();
        assert_eq!(verbs, ["create", "delete", "patch", "delete"]);
    }

    /// Only if they overlap: otherwise the eviction itself ended the pod.
    #[test]
    fn an_eviction_during_a_deletion_is_placed_after_it() {
        let mut deleted = object("Pod", 11, json!(1));
        deleted["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:03Z");
        deleted["metadata"]["deletionGracePeriodSeconds"] = json!(30);
        let status = json!({"kind": "Status", "metadata": {}});
        let mut events = [
            event("create", "pods", 1, object("Pod", 10, json!(1))),
            event("create", "pods/eviction", 2, status),
            event("delete", "pods", 3, deleted),
        ];
        let order = |events: &[Event]| -> Vec<String> {
            let writes = history(events).into_iter();
            writes.map(|it| it.verb + &it.subresource).collect()
        };
        assert_eq!(order(&events), ["create", "createeviction", "delete"]);
        events[2].received = events[1].received;
        assert_eq!(order(&events), ["create", "delete", "createeviction"]);
    }

    #[test]
    fn a_deletion_of_a_collection_is_placed_after_the_writes_during_it() {
        let list = json!({"kind": "PodList", "metadata": {"resourceVersion": "10"}, "items": []});
        let events = [
            event("create", "pods", 1, object("Pod", 10, json!(1))),
            event("patch", "pods", 2, object("Pod", 11, json!(1))),
            event("deletecollection", "pods", 3, list),
        ];
        let verbs: Vec<String> = history(&events).into_iter().map(|it| it.verb).collect();
        assert_eq!(verbs, ["create", "patch", "deletecollection"]);
    }

    #[test]
    fn a_deletion_of_a_collection_keeps_objects_with_finalizers() {
        let list = json!({"kind": "GameDeploymentList", "metadata": {"resourceVersion": "10"}});
        let mut guarded = object("GameDeployment", 10, json!(1));
        guarded["metadata"]["finalizers"] = json!(["guard"]);
        for (created, is_kept) in [
            (object("GameDeployment", 10, json!(1)), false),
            (guarded, true),
        ] {
            let events = [
                event("create", "gamedeployments", 1, created),
                event("deletecollection", "gamedeployments", 2, list.clone()),
                event("deletecollection", "gamedeployments", 3, list.clone()),
            ];
            let writes = history(&events);
            let after = |number: usize| writes.get(number)?.after.clone();
            assert_eq!(after(1).is_some_and(|it| is_terminating(&it)), is_kept);
            assert_eq!(after(2), after(1));
        }
    }

    #[test]
    fn a_removal_of_the_last_finalizer_is_placed_after_earlier_writes() {
        let mut ended = object("Cluster", 10, json!(1));
        ended["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:01Z");
        let events = [
            event("delete", "clusters", 1, object("Cluster", 10, json!(1))),
            event("patch", "nodes", 2, object("Node", 11, json!(1))),
            event("patch", "clusters", 3, ended),
        ];
        let order: Vec<String> = history(&events)
            .into_iter()
            .map(|it| it.verb + &it.plural)
            .collect();
        assert_eq!(order, ["deleteclusters", "patchnodes", "patchclusters"]);
    }

    #[test]
    fn scaling_shows_in_the_workload() {
        let events = [
            event(
                "create",
                "gamedeployments",
                1,
                object("GameDeployment", 10, json!({"replicas": 1})),
            ),
            event(
                "patch",
                "gamedeployments/scale",
                2,
                object("Scale", 11, json!({"replicas": 5})),
            ),
        ];
        let writes = history(&events);
        let after = writes[1].after.as_ref().expect("a workload");
        assert_eq!(after["spec"]["replicas"], 5);
        assert_eq!(after["metadata"]["generation"], 1);
    }

    #[test]
    fn a_pod_lives_until_its_grace_period_is_over() {
        let mut deleted = object("Pod", 11, json!(1));
        deleted["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:02Z");
        deleted["metadata"]["deletionGracePeriodSeconds"] = json!(30);
        let mut gone = deleted.clone();
        gone["metadata"]["deletionGracePeriodSeconds"] = json!(0);
        let events = [
            event("create", "pods", 1, object("Pod", 10, json!(1))),
            event("delete", "pods", 2, deleted),
            event("delete", "pods", 3, gone),
        ];
        let lives: Vec<bool> = history(&events).iter().map(|w| w.after.is_some()).collect();
        assert_eq!(lives, [true, true, false]);
    }
}
