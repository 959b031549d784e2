//! Events, as pages show them.

use gamekeeper_core::api::names::WorkloadKind;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use kube::ResourceExt;
use serde_json::{Value, json};

use crate::view::cut;

/// The maximum number of events on a page.
const MAX_EVENTS: usize = 50;
/// The maximum length of an event's message.
const MAX_MESSAGE: usize = 400;

/// The latest events, newest first.
pub fn latest(events: &[Event]) -> Value {
    let time = |event: &Event| {
        let series = event.series.as_ref().and_then(|series| series.last_observed_time.as_ref());
        let micro = series.or(event.event_time.as_ref()).map(|time| time.0);
        event.last_timestamp.as_ref().map(|time| time.0).or(micro)
    };
    let mut latest: Vec<(Option<Timestamp>, &Event)> =
        events.iter().map(|event| (time(event), event)).collect();
    latest.sort_by_key(|(at, event)| std::cmp::Reverse((*at, event.name_any())));
    let event = |(at, event): &(Option<Timestamp>, &Event)| {
        let series = event.series.as_ref().and_then(|series| series.count);
        let about = event.involved_object.kind.as_deref();
        let kind = WorkloadKind::ALL.into_iter().find(|it| about == Some(it.as_str()));
        json!({
            "type": event.type_, "reason": event.reason,
            "message": event.message.as_ref().map(|message| cut(message, MAX_MESSAGE)),
            "count": event.count.or(series).unwrap_or(1),
            "at": at.map(Timestamp::as_second),
            "namespace": event.involved_object.namespace, "name": event.involved_object.name,
            "kind": kind.map(WorkloadKind::short),
        })
    };
    latest.iter().take(MAX_EVENTS).map(event).collect()
}
