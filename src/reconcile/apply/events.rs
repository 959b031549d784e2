//! Kubernetes events.
//!
//! Publishing an event never blocks, so it never delays a reconcile. If there are too many events, some are dropped. Each event
//! is a write to the API server, so events for many pods are merged into one. A recent event is not repeated, but
//! continued: its series says how often it has happened, and when last.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use jiff::Timestamp;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tracing::debug;

use super::Target;
use crate::runtime::fair::RoundRobin;
use crate::runtime::request::{Content, Reads, Refusal, RequestResult, Requests, to_bytes};
use gamekeeper_core::api::API_VERSION;
use gamekeeper_core::api::names::FIELD_MANAGER;
use gamekeeper_core::write::{Event, PodsEvent};

/// The maximum number of events that wait to be read by the writer.
const QUEUE_CAPACITY: usize = 1024;
/// The maximum number of events of a namespace that wait to be written.
const PER_NAMESPACE: usize = 256;
/// How many events are written at a time: one of each namespace, so that an API server that is slow or busy with one
/// namespace delays no event of another.
const MAX_WRITES: usize = 8;
/// How long events for pods are collected before they are merged.
const MERGE_INTERVAL: Duration = Duration::from_secs(2);
/// Equal events within this time are one series.
const REPEAT_INTERVAL: Duration = Duration::from_secs(300);
/// The shortest time between two writes of a series.
const SERIES_INTERVAL: Duration = Duration::from_secs(10);
/// The most recent events that are remembered, so that they are not repeated.
const MAX_RECENT: usize = 8 * QUEUE_CAPACITY;
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
    Pods(PodsEvent),
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

    pub(crate) fn publish(&self, regarding: impl Into<Regarding>, mut pending: PendingEvent) {
        if let PendingEvent::Plain(Event { message, .. }) = &mut pending {
            message.truncate(message.floor_char_boundary(MAX_NOTE_BYTES));
        }
        if self.queue.try_send((regarding.into(), pending)).is_err() {
            debug!("too many events; dropping one");
        }
    }
}

impl EventWriter {
    /// Writes events until all recorders are dropped. `instance` names this process.
    pub(crate) async fn run(mut self, requests: Requests, instance: String) {
        let mut events = Events::default();
        let mut writes = FuturesUnordered::new();
        let (mut is_open, mut flush_at) = (true, Instant::now());
        loop {
            if events.pods.is_empty() {
                flush_at = Instant::now() + MERGE_INTERVAL;
            }
            while let Some(due) = events.next(Instant::now()) {
                let (requests, instance) = (&requests, &instance);
                writes.push(async move {
                    let result = write(requests, instance, &due).await;
                    (due, result)
                });
            }
            if !is_open && writes.is_empty() {
                return;
            }
            tokio::select! {
                pending = self.queue.recv(), if is_open => match pending {
                    Some((regarding, pending)) => events.add(regarding, pending),
                    None => is_open = false,
                },
                () = sleep_until(flush_at), if !events.pods.is_empty() => events.flush(),
                Some((due, result)) = writes.next() => events.wrote(due, &result, Instant::now()),
            }
        }
    }
}

/// The unwritten events, and those that were recently written or refused.
#[derive(Default)]
struct Events {
    /// Events for pods that have yet to be merged.
    pods: BTreeMap<(Regarding, &'static str, &'static str), Vec<String>>,
    /// The other ones. Namespaces take turns.
    waiting: RoundRobin<(Regarding, Event)>,
    /// How many wait, by namespace.
    counts: HashMap<String, usize>,
    /// The namespaces in which an event is being written: one at a time.
    writing: HashSet<String>,
    recent: HashMap<(Regarding, String, String), Recent>,
}

/// An event that is to be written.
struct Due {
    regarding: Regarding,
    event: Event,
    /// The name of the object.
    name: String,
    /// How often it has happened; more than once for an event that is continued.
    count: u32,
}

/// An event that was written, or refused.
struct Recent {
    /// When it was first written.
    since: Instant,
    name: String,
    count: u32,
    /// When its series was last written.
    told: Instant,
}

impl Recent {
    fn is_over(&self, now: Instant) -> bool {
        now.duration_since(self.since) >= REPEAT_INTERVAL
    }
}

impl Events {
    fn add(&mut self, regarding: Regarding, pending: PendingEvent) {
        match pending {
            PendingEvent::Pods(PodsEvent { reason, done, pods }) => {
                self.pods.entry((regarding, reason, done)).or_default().extend(pods);
            }
            PendingEvent::Plain(event) => self.push(regarding, event),
        }
    }

    fn push(&mut self, regarding: Regarding, event: Event) {
        let count = self.counts.entry(regarding.namespace.clone()).or_default();
        if *count >= PER_NAMESPACE {
            debug!(namespace = regarding.namespace, "too many events; dropping one");
            return;
        }
        *count += 1;
        self.waiting.push(&regarding.namespace.clone(), (regarding, event));
    }

    /// The next event to write, or to continue if it was written a short time ago; [`Self::wrote`] must follow.
    fn next(&mut self, now: Instant) -> Option<Due> {
        while self.writing.len() < MAX_WRITES {
            let admit = |namespace: &str| (!self.writing.contains(namespace)).then_some(());
            let ((regarding, event), ()) = self.waiting.pop(admit)?;
            let namespace = &regarding.namespace;
            match self.counts.get_mut(namespace) {
                Some(count) if *count > 1 => *count -= 1,
                _ => drop(self.counts.remove(namespace)),
            }
            let key = (regarding.clone(), event.reason.clone(), event.message.clone());
            let recent = self.recent.get_mut(&key).filter(|recent| !recent.is_over(now));
            let (name, count) = match recent {
                None => {
                    let now = Timestamp::now().as_nanosecond();
                    (format!("{}.{now:x}", regarding.name), 1)
                }
                Some(recent) => {
                    recent.count = recent.count.saturating_add(1);
                    if now.duration_since(recent.told) < SERIES_INTERVAL {
                        continue;
                    }
                    (recent.name.clone(), recent.count)
                }
            };
            self.writing.insert(namespace.clone());
            return Some(Due { regarding, event, name, count });
        }
        None
    }

    /// Equal events during the next [`REPEAT_INTERVAL`] continue this one, unless it may not have been written.
    fn wrote(&mut self, due: Due, result: &RequestResult, now: Instant) {
        let Due { regarding, event, name, count } = due;
        self.writing.remove(&regarding.namespace);
        let key = (regarding, event.reason, event.message);
        match result {
            Err(Refusal::Busy { .. } | Refusal::Unavailable { .. }) => return,
            // The event to continue has expired.
            Err(Refusal::NotFound(_)) if count > 1 => {
                self.recent.remove(&key);
                return;
            }
            _ => {}
        }
        if let Some(recent) = self.recent.get_mut(&key).filter(|_| count > 1) {
            recent.told = now;
            return;
        }
        if self.recent.len() > QUEUE_CAPACITY {
            self.recent.retain(|_, recent| !recent.is_over(now));
        }
        if self.recent.len() >= MAX_RECENT {
            self.recent.clear();
        }
        self.recent.insert(key, Recent { since: now, name, count, told: now });
    }

    /// Merges the events for pods.
    fn flush(&mut self) {
        for ((regarding, reason, done), names) in std::mem::take(&mut self.pods) {
            let message = match names.as_slice() {
                [name] => format!("{done} pod {name}"),
                names => format!("{done} {} pods", names.len()),
            };
            self.push(regarding, Event { warning: false, reason: reason.to_owned(), message });
        }
    }
}

async fn write(requests: &Requests, instance: &str, due: &Due) -> RequestResult {
    let Due { regarding, event, name: event_name, count } = due;
    let now = Timestamp::now();
    let Regarding { kind, namespace, name, uid } = regarding;
    // By convention of the API server, events of cluster-scoped objects are in the namespace default.
    let event_namespace = if namespace.is_empty() { "default" } else { namespace };
    let path = format!("/apis/events.k8s.io/v1/namespaces/{event_namespace}/events");
    if *count > 1 {
        let series = json!({"count": count, "lastObservedTime": format!("{now:.6}")});
        let body = to_bytes(&json!({"series": series}));
        let path = format!("{path}/{event_name}");
        let result = requests.patch(&path, Content::MergePatch, body).await;
        if let Err(refusal) = &result {
            debug!(%refusal, reason = event.reason, "an event was not continued");
        }
        return result;
    }
    let body = json!({
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {
            "name": event_name,
            "namespace": event_namespace,
        },
        "eventTime": format!("{now:.6}"),
        "reportingController": FIELD_MANAGER,
        "reportingInstance": instance,
        "action": event.reason,
        "reason": event.reason,
        "type": if event.warning { "Warning" } else { "Normal" },
        "note": event.message,
        "regarding": {
            "apiVersion": API_VERSION,
            "kind": kind,
            "namespace": namespace,
            "name": name,
            "uid": uid,
        },
    });
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
    use crate::runtime::request::ResponseMetadata;

    fn regarding() -> Regarding {
        Regarding {
            kind: "GameDeployment",
            namespace: "games".into(),
            name: "lobby".into(),
            uid: "u".into(),
        }
    }

    fn created(names: &[&str]) -> PendingEvent {
        PendingEvent::Pods(PodsEvent {
            reason: "SuccessfulCreate",
            done: "created",
            pods: names.iter().map(|name| (*name).to_owned()).collect(),
        })
    }

    fn plain(message: &str) -> PendingEvent {
        PendingEvent::Plain(Event {
            warning: true,
            reason: "FailedCreate".into(),
            message: message.into(),
        })
    }

    /// Writes all events that are due, and returns their messages.
    fn written(events: &mut Events, now: Instant) -> Vec<String> {
        let mut messages = Vec::new();
        while let Some(due) = events.next(now) {
            messages.push(due.event.message.clone());
            events.wrote(due, &Ok(ResponseMetadata::default()), now);
        }
        messages
    }

    #[test]
    fn the_events_for_many_pods_are_merged() {
        let mut events = Events::default();
        let now = Instant::now();
        events.add(regarding(), created(&["a", "b"]));
        events.add(regarding(), created(&["c"]));
        assert!(written(&mut events, now).is_empty());
        events.flush();
        assert_eq!(written(&mut events, now), ["created 3 pods"]);
        events.flush();
        assert!(written(&mut events, now).is_empty());
    }

    #[test]
    fn an_event_for_a_single_pod_names_it() {
        let mut events = Events::default();
        events.add(regarding(), created(&["a"]));
        events.flush();
        assert_eq!(written(&mut events, Instant::now()), ["created pod a"]);
    }

    #[test]
    fn the_same_event_is_not_repeated_for_a_while() {
        let mut events = Events::default();
        let now = Instant::now();
        let mut publish = |message: &str, now: Instant| {
            events.add(regarding(), plain(message));
            written(&mut events, now).len()
        };
        assert_eq!(publish("quota", now), 1);
        assert_eq!(publish("quota", now), 0);
        assert_eq!(publish("typo", now), 1);
        assert_eq!(publish("quota", now + REPEAT_INTERVAL), 1);
    }

    #[test]
    fn an_event_that_happens_again_is_continued() {
        let mut events = Events::default();
        let start = Instant::now();
        let mut happen = |after: Duration| {
            events.add(regarding(), plain("quota"));
            let due = events.next(start + after)?;
            let told = (due.name.clone(), due.count);
            events.wrote(due, &Ok(ResponseMetadata::default()), start + after);
            Some(told)
        };
        let (name, count) = happen(Duration::ZERO).expect("an event");
        assert_eq!(count, 1);
        assert_eq!(happen(Duration::from_secs(1)), None);
        assert_eq!(happen(SERIES_INTERVAL), Some((name.clone(), 3)));
        assert_eq!(happen(SERIES_INTERVAL), None);
        let (other, count) = happen(REPEAT_INTERVAL).expect("an event");
        assert!(other != name && count == 1);
    }

    /// Each message may be as long as an event allows.
    #[test]
    fn few_events_are_remembered_and_long_messages_are_cut() {
        let mut events = Events::default();
        let now = Instant::now();
        for number in 0..3 * MAX_RECENT {
            events.add(regarding(), plain(&number.to_string()));
            assert_eq!(written(&mut events, now).len(), 1);
            assert!(events.recent.len() <= MAX_RECENT);
        }
        let (recorder, mut writer) = EventRecorder::new();
        recorder.publish(regarding(), plain(&"é".repeat(1 << 20)));
        let (_, pending) = writer.queue.try_recv().expect("an event");
        let PendingEvent::Plain(event) = pending else {
            panic!("a plain event");
        };
        assert_eq!(event.message.len(), MAX_NOTE_BYTES);
    }

    /// A namespace whose events are not accepted, or are many, takes no event from another one.
    #[test]
    fn the_events_of_a_namespace_delay_no_other() {
        let mut events = Events::default();
        let now = Instant::now();
        let of = |namespace: &str| Regarding { namespace: namespace.to_owned(), ..regarding() };
        for number in 0..10 * PER_NAMESPACE {
            events.add(of("greedy"), plain(&number.to_string()));
        }
        events.add(of("other"), plain("quota"));
        let greedy = events.next(now).expect("an event");
        let other = events.next(now).expect("an event");
        let namespaces = (&*greedy.regarding.namespace, &*other.regarding.namespace);
        assert_eq!(namespaces, ("greedy", "other"));
        assert!(events.next(now).is_none(), "one write of a namespace at a time");
        events.wrote(other, &Ok(ResponseMetadata::default()), now);
        events.wrote(greedy, &Ok(ResponseMetadata::default()), now);
        assert_eq!(written(&mut events, now).len(), PER_NAMESPACE - 1);
        assert!(events.counts.is_empty());
        for number in 0..2 * MAX_WRITES {
            events.add(of(&number.to_string()), plain("quota"));
        }
        let writes = std::iter::from_fn(|| events.next(now)).count();
        assert_eq!(writes, MAX_WRITES);
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
