//! Writes that took effect although the client did not get the response, because it was killed or
//! disconnected.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::event::{Event, ResponseStatus};
use super::witness::Observation;
use crate::object::resource_version;

/// A resource and a name.
type Key = (String, String);

/// The writes that took effect although they have no response. Each gets the response that it should have had: a
/// version that was observed but is in no response.
pub(crate) fn unanswered(events: &[Event], observations: &[Observation]) -> Vec<Event> {
    let is_unknown = |event: &&Event| is_lost(event) || has_no_version(event);
    let mut unknown: Vec<&Event> = events.iter().filter(is_unknown).collect();
    // Writes that certainly took effect come first.
    unknown.sort_by_key(|event| (is_lost(event), event.received));
    let mut unexplained = unexplained(events, observations);
    let found = unknown.into_iter().filter_map(|event| {
        let observations = unexplained.get_mut(&key(event)?)?;
        let index = observations.iter().position(|observation| explains(event, observation))?;
        let observation = observations.remove(index);
        is_lost(event).then(|| answered(event, observation.observation))
    });
    found.collect()
}

/// An observation that no response explains.
struct Unexplained<'a> {
    observation: &'a Observation,
    /// Whether it is the first observation of its object.
    is_first: bool,
}

/// Whether a write has no response. A write without a body (other than a deletion, which needs none) was
/// aborted before the API server had read it.
fn is_lost(event: &Event) -> bool {
    event.is_write()
        && event.code() >= 500
        && (event.request_object.is_some() || event.verb == "delete")
}

/// Whether a write succeeded with a response that lacks the resulting version, as the scheduler's bindings do.
fn has_no_version(event: &Event) -> bool {
    let reference = event.object_ref.as_ref();
    event.is_write() && event.succeeded() && reference.is_some_and(|it| it.subresource == "binding")
}

/// The observed versions of each object that are in no response, oldest first.
fn unexplained<'a>(
    events: &[Event],
    observations: &'a [Observation],
) -> HashMap<Key, Vec<Unexplained<'a>>> {
    let responses = || {
        let done = events.iter().filter(|event| event.is_write() && event.succeeded());
        done.filter_map(|event| Some((event, event.response_object.as_ref()?)))
    };
    let mut explained: HashSet<u64> =
        responses().filter_map(|(_, it)| resource_version(it)).collect();
    let deleted: HashSet<&str> = responses()
        .filter(|(event, _)| event.verb.starts_with("delete"))
        .filter_map(|(_, it)| text(it, "/details/uid").or(text(it, "/metadata/uid")))
        .collect();
    let mut observations: Vec<&Observation> = observations.iter().collect();
    observations.sort_by_key(|observation| resource_version(&observation.object));
    let mut known: HashSet<&str> = HashSet::new();
    let mut by_object: HashMap<Key, Vec<Unexplained>> = HashMap::new();
    for observation in observations {
        let uid = text(&observation.object, "/metadata/uid").unwrap_or_default();
        let is_first = known.insert(uid);
        let is_new =
            resource_version(&observation.object).is_some_and(|version| explained.insert(version));
        if is_new && !(observation.is_deleted && deleted.contains(uid)) {
            let name = text(&observation.object, "/metadata/name").unwrap_or_default();
            let key = (observation.resource.clone(), name.to_owned());
            let unexplained = Unexplained { observation, is_first };
            by_object.entry(key).or_default().push(unexplained);
        }
    }
    by_object
}

/// Whether a write can be the cause of an observation.
fn explains(event: &Event, Unexplained { observation, is_first }: &Unexplained) -> bool {
    let is_deletion = observation.is_deleted
        || observation.object.pointer("/metadata/deletionTimestamp").is_some();
    let has_right_verb = match event.verb.as_str() {
        "delete" => is_deletion,
        "create" if !has_no_version(event) => *is_first,
        _ => !observation.is_deleted,
    };
    has_right_verb && observation.at >= event.received
}

/// The write with the response that it should have had. Its time `done` is that of the observation, which may be long
/// after the API server aborted the request. `history` needs it to place writes without a version, which it orders by
/// time.
fn answered(event: &Event, observation: &Observation) -> Event {
    Event {
        done: observation.at,
        response_object: Some(observation.object.clone()),
        response_status: Some(ResponseStatus { code: 200, ..ResponseStatus::default() }),
        ..event.clone()
    }
}

/// The object of a write. For a create, the body contains the name.
fn key(event: &Event) -> Option<Key> {
    let reference = event.object_ref.as_ref()?;
    let name_in_body = || text(event.request_object.as_ref()?, "/metadata/name");
    let name = Some(reference.name.as_str()).filter(|name| !name.is_empty());
    Some((reference.resource.clone(), name.or_else(name_in_body)?.to_owned()))
}

fn text<'a>(object: &'a Value, path: &str) -> Option<&'a str> {
    object.pointer(path)?.as_str()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::replay::history::history;

    fn object(version: u64, status: &str) -> Value {
        let metadata = json!({"name": "x", "uid": "u", "resourceVersion": version.to_string()});
        json!({"kind": "HookRun", "metadata": metadata, "status": status})
    }

    fn event(verb: &str, code: u16, second: u32, answer: Value) -> Event {
        let event = json!({
            "stage": "ResponseComplete", "requestURI": "/x", "verb": verb,
            "user": {"username": "u"}, "responseStatus": {"code": code},
            "objectRef": {"resource": "hookruns", "subresource": "", "name": "x"},
            "requestReceivedTimestamp": format!("2026-01-01T00:00:{second:02}Z"),
            "stageTimestamp": format!("2026-01-01T00:00:{second:02}.1Z"),
            "requestObject": {}, "responseObject": answer,
        });
        serde_json::from_value(event).expect("an event")
    }

    fn observation(second: u32, object: Value, is_deleted: bool) -> Observation {
        let at = format!("2026-01-01T00:00:{second:02}Z");
        Observation {
            at: at.parse().expect("a time"),
            resource: "hookruns".to_owned(),
            object,
            is_deleted,
        }
    }

    /// The result for a write that was lost at second 2, after one that resulted in version 5.
    fn found(verb: &str, later: &[Event], observations: &[&Observation]) -> Vec<Value> {
        let observations: Vec<Observation> = observations.iter().copied().cloned().collect();
        let made = event("patch", 200, 1, object(5, "Running"));
        let lost = event(verb, 504, 2, Value::Null);
        let events = [&[made, lost], later].concat();
        let found = unanswered(&events, &observations).into_iter();
        found.filter_map(|event| event.response_object).collect()
    }

    #[test]
    fn a_lost_write_took_effect_if_its_version_was_observed() {
        let (old, new) = (object(5, "Running"), object(6, "Successful"));
        let before = observation(1, old.clone(), false);
        let after = observation(2, new.clone(), false);
        let answers = found("patch", &[], &[&before, &after]);
        assert_eq!(answers.as_slice(), std::slice::from_ref(&new));
        assert!(found("patch", &[], &[&before]).is_empty(), "no new version was observed");
        let other = event("patch", 200, 3, new.clone());
        assert!(
            found("patch", &[other], &[&after]).is_empty(),
            "another client wrote this version"
        );
        assert!(found("delete", &[], &[&after]).is_empty(), "the object still exists");
        assert!(
            found("patch", &[], &[&observation(1, new, false)]).is_empty(),
            "the version was observed before the write"
        );
    }

    #[test]
    fn a_lost_write_does_not_change_the_order_of_other_writes() {
        let lost = event("patch", 504, 2, Value::Null);
        let seen = observation(9, object(20, "Running"), false);
        let answered = unanswered(std::slice::from_ref(&lost), std::slice::from_ref(&seen));
        let mut other = event("delete", 200, 3, json!({"kind": "Status"}));
        other.object_ref.as_mut().expect("a reference").name = "y".to_owned();
        let events =
            [answered, vec![other, event("patch", 200, 4, object(12, "Running"))]].concat();
        let names: Vec<String> = history(&events).into_iter().map(|it| it.name).collect();
        assert_eq!(names, ["y", "x", "x"]);
    }

    #[test]
    fn a_binding_is_not_a_lost_write() {
        let mut bound = event("create", 201, 2, json!({"kind": "Status"}));
        let reference = bound.object_ref.as_mut().expect("a reference");
        reference.subresource = "binding".to_owned();
        let created = observation(1, object(5, "Running"), false);
        let scheduled = observation(2, object(6, "Running"), false);
        let seen = [&created, &scheduled];
        assert!(found("create", &[], &seen).is_empty(), "the object already existed");
        assert!(found("patch", &[bound], &seen).is_empty(), "the binding explains this version");
    }

    #[test]
    fn a_lost_deletion_took_effect_if_it_was_observed_and_no_other_write_explains_it() {
        let end = observation(2, object(7, "Running"), true);
        assert_eq!(found("delete", &[], &[&end]).len(), 1);
        assert!(found("patch", &[], &[&end]).is_empty());
        let done = json!({"kind": "Status", "details": {"uid": "u"}});
        let other = event("delete", 200, 3, done);
        assert!(found("delete", &[other], &[&end]).is_empty());
    }
}
