//! Sorts the writes of a namespace into the order in which they took effect, each with the object before and
//! after it.
//!
//! The log is in the order of responses, which may differ from the order in etcd. The order in etcd is that of the
//! resourceVersions in the responses. The few writes whose response does not show their own version (such as
//! deletions of custom resources) are placed by time.

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
    pub(crate) fn is_by_hook(&self) -> bool {
        self.uri.contains("fieldManager=gamekeeper-hooks")
    }
}

/// The writes of a namespace in order, each with the object before and after it.
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

/// The successful writes in the order of their resourceVersions. The responses to four kinds of writes show a version
/// that the write did not make. The response to a write that removes the last finalizer shows the object's last
/// version, and may be complete before the response to the write that made it. So may the response to a write that
/// changes nothing. A second deletion of a Terminating pod changes nothing, and its response shows the version that an
/// earlier write made. The response to a deletecollection shows the version of the list with which it began, before any of its
/// deletions.
///
/// The response to an eviction shows no version. An eviction that overlaps with a deletion of the pod is placed after
/// the deletion, because the API server allows evictions of Terminating pods, and may respond to the eviction first.
fn in_order(events: &[Event]) -> Vec<&Event> {
    let mut by_time: Vec<&Event> =
        events.iter().filter(|event| event.is_write() && event.succeeded()).collect();
    by_time.sort_by_key(|event| event.done);
    let mut newest = 0;
    let mut returned = HashSet::new();
    let mut placed: Vec<(u64, bool, bool, &Event)> = Vec::new();
    for event in &by_time {
        let shown = event.response_object.as_ref();
        let shown_version = shown.and_then(resource_version);
        let is_finalizing = event.verb != "delete" && shown.is_some_and(is_finalized);
        let version = shown_version.filter(|_| !is_finalizing);
        let is_new = version.is_some_and(|version| returned.insert(version));
        let version = version.filter(|_| match event.verb.as_str() {
            "delete" => is_new,
            verb => verb != "deletecollection",
        });
        newest = newest.max(version.unwrap_or(0));
        let reference = event.object_ref.as_ref();
        let is_eviction = reference.is_some_and(|it| it.subresource == "eviction");
        let deleted = by_time
            .iter()
            .filter(|it| is_eviction && is_overlapping_deletion(it, event))
            .filter_map(|it| resource_version(it.response_object.as_ref()?))
            .max();
        let last = shown_version.filter(|_| is_finalizing);
        let version = version.unwrap_or(newest).max(deleted.max(last).unwrap_or(0));
        let is_after = is_eviction || is_finalizing;
        placed.push((version, is_after, !surely_made(event, version), event));
    }
    placed.sort_by_key(|(version, is_after, may_be_idle, _)| (*version, *is_after, *may_be_idle));
    placed.into_iter().map(|(.., event)| event).collect()
}

/// Whether it was surely this write that made the object's version: it was to replace another one.
fn surely_made(event: &Event, version: u64) -> bool {
    let replaced = event.request_object.as_ref().and_then(resource_version);
    replaced.is_some_and(|replaced| replaced != version)
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

/// The names of the objects that an event changes: one, or for a deletecollection all objects of the resource.
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
    let answer = event.response_object.as_ref();
    let name = answer.and_then(|object| object.pointer("/metadata/name")?.as_str());
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
    let as_terminating = |object: &Arc<Value>| match is_terminating(object) {
        true => Arc::clone(object),
        false => Arc::new(terminating(object, event.done)),
    };
    match (event.verb.as_str(), reference.subresource.as_str()) {
        // The response shows the objects as they were before.
        ("deletecollection", _) => {
            let is_pod = Resource::of(&reference.resource) == Resource::Pod;
            let kept = before.filter(|object| is_pod || has_finalizers(object));
            kept.map(as_terminating)
        }
        (_, "eviction") => before.map(as_terminating),
        (_, "binding") => before.cloned(),
        (_, "scale") => {
            before.map(|workload| Arc::new(scaled(workload, event.response_object.as_ref())))
        }
        ("delete", _) => {
            let object = object_in_response(event, before)?;
            (!is_removed(&object)).then(|| Arc::new(object))
        }
        _ => {
            let object = object_in_response(event, before).map(Arc::new);
            let object = object.or_else(|| before.cloned())?;
            (name == name_of(&object) && !is_finalized(&object)).then_some(object)
        }
    }
}

/// The object in a response, if there is one.
fn object_in_response(event: &Event, before: Option<&Arc<Value>>) -> Option<Value> {
    let answer = event.response_object.as_ref()?;
    if is_partial(answer) {
        return Some(rebuild(event, before.map(Arc::as_ref), answer));
    }
    (kind_of(answer) != Some("Status")).then(|| answer.clone())
}

fn kind_of(object: &Value) -> Option<&str> {
    object.get("kind")?.as_str()
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

/// Whether an object no longer exists, because a write removed its last finalizer while it was being deleted. A pod
/// exists until its grace period is over, too.
fn is_finalized(object: &Value) -> bool {
    let grace = object.pointer("/metadata/deletionGracePeriodSeconds");
    let is_over = kind_of(object) != Some("Pod") || grace == Some(&json!(0));
    is_terminating(object) && is_over && !has_finalizers(object)
}

fn has_finalizers(object: &Value) -> bool {
    let finalizers = object.pointer("/metadata/finalizers");
    finalizers.and_then(Value::as_array).is_some_and(|list| !list.is_empty())
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
mod tests;
