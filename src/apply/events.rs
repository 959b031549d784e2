//! Kubernetes events: published from everywhere, written in one place.
//!
//! Publishing never waits, so it delays no plan: when too many events come at once, some are dropped.
//! Each event is a write to the API server, so those about many pods are merged into one, and one that
//! was written a short while ago is not repeated.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tracing::debug;

use super::{Refusal, Requests, ResponseMetadata, Target, to_bytes};
use gamekeeper_core::api::API_VERSION;
use gamekeeper_core::api::names::FIELD_MANAGER;
use gamekeeper_core::plan::Event;

/// Events that may wait to be written.
const QUEUE_CAPACITY: usize = 1024;
/// For how long events about pods are gathered.
const GATHER_INTERVAL: Duration = Duration::from_secs(2);
/// For how long the same event is not repeated.
const REPEAT_INTERVAL: Duration = Duration::from_secs(300);
/// Longest note that the API server takes.
const MAX_NOTE_BYTES: usize = 1024;

/// The object that an event is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Regarding {
    /// Kind, in our API group.
    pub kind: &'static str,
    pub namespace: String,
    pub name: String,
    /// Uid; empty when unknown.
    pub uid: String,
}

impl From<&Target> for Regarding {
    fn from(target: &Target) -> Self {
        Self {
            kind: target.kind.as_str(),
            namespace: target.namespace.clone(),
            name: target.name.clone(),
            uid: target.uid.clone(),
        }
    }
}

/// An event that is not written yet.
#[derive(Clone, Debug)]
pub(crate) enum PendingEvent {
    /// As it stands.
    Plain(Event),
    /// The same event about each of these pods.
    Pods {
        /// CamelCase reason.
        reason: &'static str,
        /// What was done to them, as in "created".
        done: &'static str,
        /// Their names.
        names: Vec<String>,
    },
}

/// Publishes events; they are written by the [`EventWriter`].
#[derive(Clone)]
pub(crate) struct EventRecorder {
    waiting: mpsc::Sender<(Regarding, PendingEvent)>,
}

/// Writes the events of all recorders.
pub(crate) struct EventWriter {
    pending: mpsc::Receiver<(Regarding, PendingEvent)>,
}

impl EventRecorder {
    /// A recorder, and its writer, which must be run.
    pub(crate) fn new() -> (Self, EventWriter) {
        let (waiting, pending) = mpsc::channel(QUEUE_CAPACITY);
        (Self { waiting }, EventWriter { pending })
    }

    /// Publishes an event about an object.
    pub(crate) fn publish(&self, regarding: impl Into<Regarding>, pending: PendingEvent) {
        if self.waiting.try_send((regarding.into(), pending)).is_err() {
            debug!("too many events; dropping one");
        }
    }
}

impl EventWriter {
    /// Writes events until all recorders are dropped. `instance` names this process.
    pub(crate) async fn run(mut self, requests: Requests, instance: String) {
        let mut gathered = Gathered::default();
        let mut flush_at = Instant::now();
        loop {
            if gathered.pods.is_empty() {
                flush_at = Instant::now() + GATHER_INTERVAL;
            }
            let due = tokio::select! {
                pending = self.pending.recv() => match pending {
                    Some((regarding, pending)) => gathered.take_in(regarding, pending, Instant::now()),
                    None => return,
                },
                () = sleep_until(flush_at), if !gathered.pods.is_empty() => gathered.flush(),
            };
            for (regarding, event) in due {
                match write(&requests, &instance, &regarding, &event).await {
                    // It was not written, so it may be published again.
                    Err(Refusal::Busy { .. } | Refusal::Unavailable { .. }) => {}
                    _ => gathered.written(regarding, event, Instant::now()),
                }
            }
        }
    }
}

/// Events about pods that are not written yet, and the events written lately.
#[derive(Default)]
struct Gathered {
    pods: BTreeMap<(Regarding, &'static str, &'static str), Vec<String>>,
    lately: HashMap<(Regarding, String, String), Instant>,
}

impl Gathered {
    /// Takes an event in; gives those to write at once.
    fn take_in(
        &mut self,
        about: Regarding,
        pending: PendingEvent,
        now: Instant,
    ) -> Vec<(Regarding, Event)> {
        match pending {
            PendingEvent::Pods {
                reason,
                done,
                names,
            } => {
                let gathered = self.pods.entry((about, reason, done)).or_default();
                gathered.extend(names);
                Vec::new()
            }
            PendingEvent::Plain(event) => {
                let same = (about.clone(), event.reason.clone(), event.message.clone());
                match self.lately.get(&same) {
                    Some(at) if now.duration_since(*at) < REPEAT_INTERVAL => Vec::new(),
                    _ => vec![(about, event)],
                }
            }
        }
    }

    /// Notes that an event was written, so that it is not repeated for a while.
    fn written(&mut self, about: Regarding, event: Event, now: Instant) {
        if self.lately.len() > QUEUE_CAPACITY {
            self.lately
                .retain(|_, at| now.duration_since(*at) < REPEAT_INTERVAL);
        }
        self.lately
            .insert((about, event.reason, event.message), now);
    }

    /// Gives the merged events about pods.
    fn flush(&mut self) -> Vec<(Regarding, Event)> {
        let gathered = std::mem::take(&mut self.pods);
        let event = |((about, reason, done), names): ((_, &str, _), Vec<String>)| {
            let message = match names.as_slice() {
                [name] => format!("{done} pod {name}"),
                names => format!("{done} {} pods", names.len()),
            };
            let event = Event {
                warning: false,
                reason: reason.to_owned(),
                message,
            };
            (about, event)
        };
        gathered.into_iter().map(event).collect()
    }
}

async fn write(
    requests: &Requests,
    instance: &str,
    about: &Regarding,
    event: &Event,
) -> Result<ResponseMetadata, Refusal> {
    let now = Timestamp::now();
    let Regarding {
        kind,
        namespace,
        name,
        uid,
    } = about;
    let mut note = event.message.clone();
    note.truncate(note.floor_char_boundary(MAX_NOTE_BYTES));
    let body = json!({
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {
            "name": format!("{name}.{:x}", now.as_nanosecond()),
            "namespace": namespace,
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
    let path = format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events");
    let written = requests.create(&path, to_bytes(&body)).await;
    if let Err(refusal) = &written {
        debug!(%refusal, reason = event.reason, "an event was rejected");
    }
    written
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

    fn about() -> Regarding {
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
    fn many_pods_are_one_event() {
        let mut gathered = Gathered::default();
        let now = Instant::now();
        assert!(
            gathered
                .take_in(about(), created(&["a", "b"]), now)
                .is_empty()
        );
        assert!(gathered.take_in(about(), created(&["c"]), now).is_empty());
        let events = gathered.flush();
        assert_eq!(events.len(), 1);
        assert_eq!(events[0].1.message, "created 3 pods");
        assert!(gathered.flush().is_empty());
    }

    #[test]
    fn a_single_pod_is_named() {
        let mut gathered = Gathered::default();
        gathered.take_in(about(), created(&["a"]), Instant::now());
        assert_eq!(gathered.flush()[0].1.message, "created pod a");
    }

    #[test]
    fn the_same_event_is_not_repeated_for_a_while() {
        let mut gathered = Gathered::default();
        let now = Instant::now();
        let mut say = |message: &str, now: Instant| {
            let due = gathered.take_in(about(), plain(message), now);
            let count = due.len();
            for (about, event) in due {
                gathered.written(about, event, now);
            }
            count
        };
        assert_eq!(say("quota", now), 1);
        assert_eq!(say("quota", now), 0);
        assert_eq!(say("typo", now), 1);
        assert_eq!(say("quota", now + REPEAT_INTERVAL), 1);
    }

    /// How many requests these events cause when the API server answers like this.
    async fn answers(codes: &'static [u16], pending: &[&str]) -> usize {
        let sent = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&sent);
        let server = service_fn(move |_: Request<Body>| {
            let code = codes.get(counted.fetch_add(1, Ordering::SeqCst));
            let answer = Response::builder().status(*code.expect("no more are sent"));
            std::future::ready(answer.body(Body::empty()))
        });
        let (events, writer) = EventRecorder::new();
        for message in pending {
            events.publish(about(), plain(message));
        }
        drop(events);
        let requests = Requests::new(Client::new(server, "games"));
        writer.run(requests, "instance".to_owned()).await;
        sent.load(Ordering::SeqCst)
    }

    #[tokio::test]
    async fn an_event_that_was_not_written_is_tried_again() {
        assert_eq!(answers(&[503, 429, 201], &["a", "a", "a", "a"]).await, 3);
        assert_eq!(answers(&[403], &["a", "a"]).await, 1, "refused for good");
    }
}
