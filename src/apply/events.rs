//! Kubernetes events about workloads: told from everywhere, written in one place.
//!
//! Telling never waits, so that no plan is held up by it: when too much is told at once, some of
//! it is dropped. What is said of many pods within a moment becomes one event, and what was said
//! a short while ago is not repeated, for each event is a write to the API server.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tracing::debug;

use super::{Answer, Refusal, Requests, Target, to_bytes};
use gamekeeper_core::api::API_VERSION;
use gamekeeper_core::api::names::FIELD_MANAGER;
use gamekeeper_core::plan::Event;

/// What may wait to be written.
const WAITING: usize = 1024;
/// For how long things said of pods are gathered.
const GATHER: Duration = Duration::from_secs(2);
/// For how long the same thing is not said again.
const QUIET: Duration = Duration::from_secs(300);
/// Longest note that the API server takes.
const LONGEST: usize = 1024;

/// The object that an event is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Regarding {
    /// Kind, in our API group.
    pub kind: &'static str,
    /// Namespace.
    pub namespace: String,
    /// Name.
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

/// What is told.
#[derive(Clone, Debug)]
pub enum Told {
    /// As it stands.
    Plain(Event),
    /// The same of each of these pods.
    Pods {
        /// CamelCase reason.
        reason: &'static str,
        /// What was done to them, as in "created".
        done: &'static str,
        /// Their names.
        names: Vec<String>,
    },
}

/// Where events are told.
#[derive(Clone)]
pub struct Events {
    waiting: mpsc::Sender<(Regarding, Told)>,
}

/// Writes what is told.
pub struct Writer {
    told: mpsc::Receiver<(Regarding, Told)>,
}

impl Events {
    /// A place to tell events, and the writer to run.
    pub fn new() -> (Self, Writer) {
        let (waiting, told) = mpsc::channel(WAITING);
        (Self { waiting }, Writer { told })
    }

    /// Tells something about an object.
    pub fn tell(&self, regarding: impl Into<Regarding>, told: Told) {
        if self.waiting.try_send((regarding.into(), told)).is_err() {
            debug!("too many events; dropping one");
        }
    }
}

impl Writer {
    /// Writes events until nobody is left to tell any. `instance` names this process.
    pub async fn run(mut self, requests: Requests, instance: String) {
        let mut gathered = Gathered::default();
        let mut flush_at = Instant::now();
        loop {
            if gathered.pods.is_empty() {
                flush_at = Instant::now() + GATHER;
            }
            let due = tokio::select! {
                told = self.told.recv() => match told {
                    Some((regarding, told)) => gathered.take_in(regarding, told, Instant::now()),
                    None => return,
                },
                () = sleep_until(flush_at), if !gathered.pods.is_empty() => gathered.flush(),
            };
            for (regarding, event) in due {
                match write(&requests, &instance, &regarding, &event).await {
                    // It is news as long as nobody could read it.
                    Err(Refusal::Busy { .. } | Refusal::Unavailable { .. }) => {}
                    _ => gathered.said(regarding, event, Instant::now()),
                }
            }
        }
    }
}

/// What was told and is not written yet, and what was written lately.
#[derive(Default)]
struct Gathered {
    pods: BTreeMap<(Regarding, &'static str, &'static str), Vec<String>>,
    lately: HashMap<(Regarding, String, String), Instant>,
}

impl Gathered {
    /// Gives what is to be written at once.
    fn take_in(&mut self, about: Regarding, told: Told, now: Instant) -> Vec<(Regarding, Event)> {
        match told {
            Told::Pods {
                reason,
                done,
                names,
            } => {
                let gathered = self.pods.entry((about, reason, done)).or_default();
                gathered.extend(names);
                Vec::new()
            }
            Told::Plain(event) => {
                let same = (about.clone(), event.reason.clone(), event.message.clone());
                match self.lately.get(&same) {
                    Some(at) if now.duration_since(*at) < QUIET => Vec::new(),
                    _ => vec![(about, event)],
                }
            }
        }
    }

    /// Notes that this was written, and need not be for a while.
    fn said(&mut self, about: Regarding, event: Event, now: Instant) {
        if self.lately.len() > WAITING {
            self.lately.retain(|_, at| now.duration_since(*at) < QUIET);
        }
        self.lately
            .insert((about, event.reason, event.message), now);
    }

    /// Gives what was gathered of pods.
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
) -> Result<Answer, Refusal> {
    let now = Timestamp::now();
    let Regarding {
        kind,
        namespace,
        name,
        uid,
    } = about;
    let mut note = event.message.clone();
    note.truncate(note.floor_char_boundary(LONGEST));
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

    fn created(names: &[&str]) -> Told {
        Told::Pods {
            reason: "SuccessfulCreate",
            done: "created",
            names: names.iter().map(|name| (*name).to_owned()).collect(),
        }
    }

    fn plain(message: &str) -> Told {
        Told::Plain(Event {
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
    fn the_same_is_not_said_again_for_a_while() {
        let mut gathered = Gathered::default();
        let now = Instant::now();
        let mut say = |message: &str, now: Instant| {
            let due = gathered.take_in(about(), plain(message), now);
            let count = due.len();
            for (about, event) in due {
                gathered.said(about, event, now);
            }
            count
        };
        assert_eq!(say("quota", now), 1);
        assert_eq!(say("quota", now), 0);
        assert_eq!(say("typo", now), 1);
        assert_eq!(say("quota", now + QUIET), 1);
    }

    /// What becomes of events, told one after the other, when the API server answers so.
    async fn answers(codes: &'static [u16], told: &[&str]) -> usize {
        let sent = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&sent);
        let server = service_fn(move |_: Request<Body>| {
            let code = codes.get(counted.fetch_add(1, Ordering::SeqCst));
            let answer = Response::builder().status(*code.expect("no more are sent"));
            std::future::ready(answer.body(Body::empty()))
        });
        let (events, writer) = Events::new();
        for message in told {
            events.tell(about(), plain(message));
        }
        drop(events);
        let requests = Requests::new(Client::new(server, "games"));
        writer.run(requests, "instance".to_owned()).await;
        sent.load(Ordering::SeqCst)
    }

    #[tokio::test]
    async fn what_was_not_written_is_said_again() {
        assert_eq!(answers(&[503, 429, 201], &["a", "a", "a", "a"]).await, 3);
        assert_eq!(answers(&[403], &["a", "a"]).await, 1, "refused for good");
    }
}
