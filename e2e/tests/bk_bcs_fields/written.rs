//! The operator's writes, from the audit log.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use e2e::case::Case;
use e2e::checkout::repository;
use jiff::{SignedDuration, Timestamp};
use judge::Event;
use judge::object::{self, text};
use serde_json::{Value, json};

/// Checks that the operator has created a HookRun from this template, and that the argument with this name had this
/// value.
pub(super) fn ensure_run_with(case: &Case, template: &str, name: &str, value: &str) -> Result<()> {
    let mut found = BTreeSet::new();
    for event in case.events()? {
        let is_created = event.verb == "create" && event.resource() == "hookruns";
        let run = event.request_object.filter(|_| is_created);
        let Some(run) = run.filter(|run| text(run, "/metadata/name").contains(template)) else {
            continue;
        };
        for argument in run["spec"]["args"].as_array().into_iter().flatten() {
            let argument = (text(argument, "/name"), text(argument, "/value"));
            found.insert((argument.0.to_owned(), argument.1.to_owned()));
        }
    }
    let wanted = (name.to_owned(), value.to_owned());
    ensure!(found.contains(&wanted), "{template}: {found:?}");
    Ok(())
}

/// The images that the operator has set in each pod: one list per patch.
pub(super) fn images_by_pod(events: &[Event]) -> BTreeMap<String, Vec<Vec<String>>> {
    let mut by_pod: BTreeMap<String, Vec<Vec<String>>> = BTreeMap::new();
    for event in events {
        let images = images(event);
        if !images.is_empty() {
            by_pod.entry(pod(event).to_owned()).or_default().push(images);
        }
    }
    by_pod
}

/// The largest number of pods that were being updated in place at a time: from the start of the PreInplace hook until
/// the readiness gate is opened, or until a pod without the gate is recorded as done. Hooks of pods that may be updated
/// at the same time start together, but the later parts of these updates need not overlap.
pub(super) fn most_in_progress(events: &[Event]) -> usize {
    let mut in_progress = BTreeSet::new();
    let mut most = 0;
    for event in events {
        if let Some(uid) = pod_of_new_hook(event) {
            in_progress.insert(uid);
        } else if gate_time(event, "True").is_some() || records_end(event) {
            let pod = event.response_object.as_ref();
            in_progress.remove(pod.map_or("", object::uid));
        }
        most = most.max(in_progress.len());
    }
    most
}

/// The uid of the pod whose PreInplace hook is started by an event.
fn pod_of_new_hook(event: &Event) -> Option<&str> {
    const POD: &str = "gamekeeper.tkex.tencent.com/pod-uid";
    let is_created = event.verb == "create" && event.resource() == "hookruns";
    let run = body(event).filter(|run| is_created && object::point(run) == "PreInplace")?;
    object::annotation(run, POD)
}

/// The shortest time between the request that closes a pod's readiness gate and the one that changes its first image.
/// The time that the first request took is not subtracted: the operator counts the grace period from the request, too.
pub(super) fn shortest_grace(events: &[Event]) -> Option<SignedDuration> {
    let mut closed = BTreeMap::new();
    let mut shortest: Option<SignedDuration> = None;
    for event in events {
        if let Some(since) = gate_time(event, "False") {
            // The time is rounded down to whole seconds.
            closed.insert(pod(event), since + SignedDuration::from_secs(1));
        } else if !images(event).is_empty()
            && let Some(since) = closed.remove(pod(event))
        {
            let grace = event.received.duration_since(since);
            shortest = Some(shortest.map_or(grace, |it| it.min(grace)));
        }
    }
    shortest
}

/// The name of the pod that an event is about; empty for other resources.
fn pod(event: &Event) -> &str {
    let object = event.object_ref.as_ref();
    let object = object.filter(|it| it.resource == "pods");
    object.map_or("", |it| &it.name)
}

/// The body of a successful request. A request that failed may have been repeated.
fn body(event: &Event) -> Option<&Value> {
    event.request_object.as_ref().filter(|_| event.succeeded())
}

/// The images that a JSON patch of a pod replaces.
fn images(event: &Event) -> Vec<String> {
    let operations = body(event).and_then(Value::as_array);
    let operations = operations.into_iter().flatten();
    let images =
        operations.filter(|it| it["op"] == "replace" && text(it, "/path").ends_with("/image"));
    images.map(|it| text(it, "/value").to_owned()).collect()
}

/// The time that the operator writes when it sets the readiness gate to a status.
fn gate_time(event: &Event, status: &str) -> Option<Timestamp> {
    let conditions = body(event)?["status"]["conditions"].as_array()?;
    let is_gate = |it: &&Value| it["type"] == "InPlaceUpdateReady" && it["status"] == status;
    let condition = conditions.iter().find(is_gate)?;
    text(condition, "/lastTransitionTime").parse().ok()
}

/// Whether a patch records that an in-place update is done.
fn records_end(event: &Event) -> bool {
    const RECORD: &str = "/metadata/annotations/gamekeeper.tkex.tencent.com~1in-place-record";
    let record = body(event).map(|it| text(it, RECORD));
    let record = record.and_then(|record| serde_json::from_str::<Value>(record).ok());
    record.is_some_and(|record| record["done"] == true)
}

/// Checks that the operator has written every field that the status of a kind can have, except those that begin with
/// one of `exceptions`.
pub(super) fn ensure_status_is_complete(
    case: &Case,
    plural: &str,
    exceptions: &[&str],
) -> Result<()> {
    let crd = std::fs::read_to_string(repository().join(format!("crds/{plural}.yaml")))?;
    let crd: Value = serde_yaml_ng::from_str(&crd)?;
    let schema = crd.pointer("/spec/versions/0/schema/openAPIV3Schema/properties/status");
    let mut missing = BTreeSet::new();
    add_fields_of_schema(schema.context("no schema")?, "status", &mut missing);
    missing.retain(|field| !exceptions.iter().any(|it| field.starts_with(it)));
    for event in case.events()?.iter().filter(|it| it.resource() == plural) {
        let status = event.request_object.as_ref().map(|it| &it["status"]);
        let mut written_fields = BTreeSet::new();
        add_fields(status.unwrap_or(&json!(null)), "status", &mut written_fields);
        missing.retain(|field| !written_fields.contains(field));
    }
    ensure!(missing.is_empty(), "never written: {missing:#?}");
    Ok(())
}

/// Adds the fields of a schema that have no subfields, such as `status.conditions[].type`.
fn add_fields_of_schema(schema: &Value, field: &str, found: &mut BTreeSet<String>) {
    let (fields, name) = match schema["items"]["properties"].as_object() {
        Some(fields) => (Some(fields), format!("{field}[]")),
        None => (schema["properties"].as_object(), field.to_owned()),
    };
    let Some(fields) = fields else {
        found.insert(name);
        return;
    };
    for (inner, schema) in fields {
        add_fields_of_schema(schema, &format!("{name}.{inner}"), found);
    }
}

/// Adds the fields of an object that have no subfields.
fn add_fields(value: &Value, field: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (inner, value) in fields {
                add_fields(value, &format!("{field}.{inner}"), found);
            }
        }
        Value::Array(items) => {
            for item in items {
                add_fields(item, &format!("{field}[]"), found);
            }
        }
        Value::Null => {}
        _ => {
            found.insert(field.to_owned());
        }
    }
}
