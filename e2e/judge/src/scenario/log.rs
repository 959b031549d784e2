//! The audit log of a scenario.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::Event;

/// An audit log that grows by one write at a time.
#[derive(Clone)]
pub(crate) struct Log {
    /// The writes.
    pub(crate) events: Vec<Event>,
    /// The current time.
    pub(crate) now: Timestamp,
    /// The last resourceVersion.
    pub(crate) version: u64,
    /// The body of the next request.
    pub(crate) request: Value,
}

impl Log {
    /// An empty log.
    pub(crate) fn new() -> Self {
        Log {
            events: Vec::new(),
            now: "2026-01-01T00:00:00Z".parse().expect("a time"),
            version: 100,
            request: Value::Null,
        }
    }

    /// Lets time pass.
    pub(crate) fn wait(&mut self, seconds: i64) {
        self.now += SignedDuration::from_secs(seconds);
    }

    /// Logs a write with this response, and returns the response with its resourceVersion.
    pub(crate) fn write(
        &mut self,
        user: &str,
        verb: &str,
        resource: &str,
        subresource: &str,
        name: &str,
        mut answer: Value,
    ) -> Value {
        self.now += SignedDuration::from_millis(20);
        self.version += 1;
        if answer.get("metadata").is_some() {
            answer["metadata"]["resourceVersion"] = json!(self.version.to_string());
        }
        let event = json!({
            "stage": "ResponseComplete",
            "requestURI": "/x",
            "verb": verb,
            "user": {"username": user},
            "objectRef": {"resource": resource, "subresource": subresource, "name": name},
            "responseStatus": {"code": 200},
            "requestObject": self.request.take(),
            "responseObject": answer,
            "requestReceivedTimestamp": self.now - SignedDuration::from_millis(5),
            "stageTimestamp": self.now,
        });
        self.events.push(serde_json::from_value(event).expect("an event"));
        answer
    }
}

/// JSON merge patch, without removals.
pub(crate) fn merge(object: &mut Value, patch: &Value) {
    match (object.as_object_mut(), patch.as_object()) {
        (Some(object), Some(patch)) => {
            for (key, value) in patch {
                merge(object.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        _ => *object = patch.clone(),
    }
}
