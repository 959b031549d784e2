//! Kubernetes events.
//!
//! Publishing an event never blocks, so it never delays a reconcile. If there are too many events, some are dropped. Each event
//! is a write to the API server, so events for many pods are merged into one, and a recent event is not
//! repeated.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tracing::debug;

use super::Target;
use crate::runtime::request::{Reads, Refusal, RequestResult, Requests, to_bytes};
use gamekeeper_core::api::API_VERSION;
use gamekeeper_core::api::names::FIELD_MANAGER;
use gamekeeper_core::write::Event;

/// The maximum number of events that wait to be written.
const QUEUE_CAPACITY: usize = 1024;
/// How long events for pods are collected before they are merged.
const MERGE_INTERVAL: Duration = Duration::from_secs(2);
/// The shortest time between two equal events.
const REPEAT_INTERVAL: Duration = Duration::from_secs(300);
/// The longest note that the API server accepts.
const MAX_NOTE_BYTES: usize = 1024;

/// The object that an event is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Regarding {
    /// A kind of our API group.
    pub kind: &'static str,
    pub namespace: String,
    pub name: String,
    /// Empty if unknown.
    pub uid: String,
}

impl From<&Target> for Regarding {
    fn from(target: &Target) -> Self {
        Self {
            kind: target.owner.kind.name(),
            namespace: target.owner.namespace.clone(),
            name: target.owner.name.clone(),
            uid: target.owner.uid.clone(),
        }
    }
}

/// An event that has not been written yet.
#[derive(Clone, Debug)]
pub(crate) enum PendingEvent {
    Plain(Event),
    /// The same thing was done to each of these pods. Such events are merged into one.
    Pods {
        reason: &'static str,
        /// What was done, such as "created". In the message, the pod's name or the number of pods follows.
        done: &'static str,
        names: Vec<String>,
    },
}

/// Queues events for the [`EventWriter`].
#[derive(Clone)]
pub(crate) struct EventRecorder {
    queue: mpsc::Sender<(Regarding, PendingEvent)>,
}

/// Writes the events of all recorders.
pub(crate) struct EventWriter {
    queue: mpsc::Receiver<(Regarding, PendingEvent)>,
}

impl EventRecorder {
    /// Returns a recorder, and the writer whose [`EventWriter::run`] writes the recorder's events.
    pub(crate) fn new() -> (Self, EventWriter) {
        let (sender, receiver) = mpsc::channel(QUEUE_CAPACITY);
        (Self { queue: sender }, EventWriter { queue: receiver })
    }

    pub(crate) fn publish(&self, regarding: impl Into<Regarding>, pending: PendingEvent) {
        if self.queue.try_send((regarding.into(), pending)).is_err() {
            debug!("too many events; dropping one");
        }
    }
}

impl EventWriter {
    /// Writes events until all recorders are dropped. `instance` names this process.
    pub(crate) async fn run(mut self, requests: Requests, instance: String) {
        let mut events = Events::default();
        let mut flush_at = Instant::now();
        loop {
            if events.pods.is_empty() {
                flush_at = Instant::now() + MERGE_INTERVAL;
            }
            let due = tokio::select! {
                pending = self.queue.recv() => match pending {
                    Some((regarding, pending)) => events.add(regarding, pending, Instant::now()),
                    None => return,
                },
                () = sleep_until(flush_at), if !events.pods.is_empty() => events.flush(),
            };
            for (regarding, event) in due {
                match write(&requests, &instance, &regarding, &event).await {
                    // The event may not have been written, so it may be published again.
                    Err(Refusal::Busy { .. } | Refusal::Unavailable { .. }) => {}
                    _ => events.suppress_repeats(regarding, event, Instant::now()),
                }
            }
        }
    }
}

/// The unwritten events for pods, and the events that were recently written or refused.
#[derive(Default)]
struct Events {
    pods: BTreeMap<(Regarding, &'static str, &'static str), Vec<String>>,
    recent: HashMap<(Regarding, String, String), Instant>,
}

impl Events {
    /// Adds an event, and returns those to write now.
    fn add(
        &mut self,
        regarding: Regarding,
        pending: PendingEvent,
        now: Instant,
    ) -> Vec<(Regarding, Event)> {
        match pending {
            PendingEvent::Pods { reason, done, names } => {
                let pods = self.pods.entry((regarding, reason, done)).or_default();
                pods.extend(names);
                Vec::new()
            }
            PendingEvent::Plain(event) => {
                let key = (regarding.clone(), event.reason.clone(), event.message.clone());
                match self.recent.get(&key) {
                    Some(at) if now.duration_since(*at) < REPEAT_INTERVAL => Vec::new(),
                    _ => vec![(regarding, event)],
                }
            }
        }
    }

    /// Drops equal events during the next [`REPEAT_INTERVAL`].
    fn suppress_repeats(&mut self, regarding: Regarding, event: Event, now: Instant) {
        if self.recent.len() > QUEUE_CAPACITY {
            self.recent.retain(|_, at| now.duration_since(*at) < REPEAT_INTERVAL);
        }
        self.recent.insert((regarding, event.reason, event.message), now);
    }

    /// Returns the merged events for pods.
    fn flush(&mut self) -> Vec<(Regarding, Event)> {
        let pods = std::mem::take(&mut self.pods);
        let event = |((regarding, reason, done), names): ((_, &str, _), Vec<String>)| {
            let message = match names.as_slice() {
                [name] => format!("{done} pod {name}"),
                names => format!("{done} {} pods", names.len()),
            };
            let event = Event { warning: false, reason: reason.to_owned(), message };
            (regarding, event)
        };
        pods.into_iter().map(event).collect()
    }
}

async fn write(
    requests: &Requests,
    instance: &str,
    regarding: &Regarding,
    event: &Event,
) -> RequestResult {
    let now = Timestamp::now();
    let Regarding { kind, namespace, name, uid } = regarding;
    // By convention of the API server, events of cluster-scoped objects are in the namespace default.
    let event_namespace = if namespace.is_empty() { "default" } else { namespace };
    let mut note = event.message.clone();
    note.truncate(note.floor_char_boundary(MAX_NOTE_BYTES));
    let body = json!({
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {
            "name": format!("{name}.{:x}", now.as_nanosecond()),
            "namespace": event_namespace,
        },
        "eventTime": format!("{now:.6}"),
        "reportingController": FIELD_MANAGER,
        "reportingInstance": instance,
        "action": event.reason,
        "reason": event.reason,
        "type": if event.warning { "Warning" } else { "Normal" },
        "note": note,
        "regarding": {
            "apiVersion": API_VERSION,
            "kind": kind,
            "namespace": namespace,
            "name": name,
            "uid": uid,
        },
    });
    let path = format!("/apis/events.k8s.io/v1/namespaces/{event_namespace}/events");
    let created = requests.create(&path, to_bytes(&body), Reads::Metadata).await;
    let result = created.map(|event| event.metadata);
    if let Err(refusal) = &result {
        debug!(%refusal, reason = event.reason, "an event was not written");
    }
    result
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http::{Request, Response};
    use kube::Client;
    use kube::client::Body;
    use tower::service_fn;

    use super::*;

    fn regarding() -> Regarding {
        Regarding {
            kind: "GameDeployment",
            namespace: "games".into(),
            name: "lobby".into(),
            uid: "u".into(),
        }
    }

    fn created(names: &[&str]) -> PendingEvent {
        PendingEvent::Pods {
            reason: "SuccessfulCreate",
            done: "created",
            names: names.iter().map(|name| (*name).to_owned()).collect(),
        }
    }

    fn plain(message: &str) -> PendingEvent {
        PendingEvent::Plain(Event {
            warning: true,
            reason: "FailedCreate".into(),
            message: message.into(),
        })
    }

    #[test]
    fn the_events_for_many_pods_are_merged() {
        let mut events = Events::default();
        let now = Instant::now();
        assert!(events.add(regarding(), created(&["a", "b"]), now).is_empty());
        assert!(events.add(regarding(), created(&["c"]), now).is_empty());
        let merged = events.flush();
        assert_eq!(merged.len(), 1);
        assert_eq!(merged[0].1.message, "created 3 pods");
        assert!(events.flush().is_empty());
    }

    #[test]
    fn an_event_for_a_single_pod_names_it() {
        let mut events = Events::default();
        events.add(regarding(), created(&["a"]), Instant::now());
        assert_eq!(events.flush()[0].1.message, "created pod a");
    }

    #[test]
    fn the_same_event_is_not_repeated_for_a_while() {
        let mut events = Events::default();
        let now = Instant::now();
        let mut publish = |message: &str, now: Instant| {
            let due = events.add(regarding(), plain(message), now);
            let count = due.len();
            for (regarding, event) in due {
                events.suppress_repeats(regarding, event, now);
            }
            count
        };
        assert_eq!(publish("quota", now), 1);
        assert_eq!(publish("quota", now), 0);
        assert_eq!(publish("typo", now), 1);
        assert_eq!(publish("quota", now + REPEAT_INTERVAL), 1);
    }

    /// The number of requests for these events, if the API server responds with these codes.
    async fn requests(codes: &'static [u16], pending: &[&str]) -> usize {
        let sent = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&sent);
        let server = service_fn(move |_: Request<Body>| {
            let code = codes.get(counted.fetch_add(1, Ordering::SeqCst));
            let response = Response::builder().status(*code.expect("a code for each request"));
            std::future::ready(response.body(Body::empty()))
        });
        let (events, writer) = EventRecorder::new();
        for message in pending {
            events.publish(regarding(), plain(message));
        }
        drop(events);
        let requests = Requests::new(Client::new(server, "games"));
        writer.run(requests, "instance".to_owned()).await;
        sent.load(Ordering::SeqCst)
    }

    #[tokio::test]
    async fn an_event_that_was_not_written_may_be_published_again() {
        assert_eq!(requests(&[503, 429, 201], &["a", "a", "a", "a"]).await, 3);
        assert_eq!(requests(&[403], &["a", "a"]).await, 1, "refused for good");
    }
}
