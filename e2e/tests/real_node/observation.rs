//! What players see of pods that are being changed: each pod is polled for its version every few milliseconds.
//! Afterward, the responses are compared with the pods' gates.
//!
//! The times at which a gate was open come from the audit log, which contains every write to a pod, with the times at
//! which it was received and completed. A watch would report a write only some time later. A response counts if the
//! gate was open from before the request until after the response.
//!
//! What this cannot see: a gate that opens too early or closes too late by less than the time between two requests.
//! To make such errors visible, game servers respond only some time after their start, and image pulls are held back.
//! The judge's rule `gate` checks that a gate is closed before the write that changes the pod, which takes effect a
//! moment later.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::case::Case;
use e2e::workload::view::Pod;
use jiff::Timestamp;
use judge::object::{is_terminating, is_true, text};
use judge::{Event, is_partial, rebuild};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// The time between a response and the next request.
const PAUSE: Duration = Duration::from_millis(5);
/// How long to wait for a response. Without a server, a request fails at once; under load, a server responds late.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);
/// The readiness gate.
pub const GATE: &str = "InPlaceUpdateReady";

/// The response of a pod.
#[derive(Clone, Debug)]
struct Response {
    requested: Timestamp,
    received: Timestamp,
    /// None if nothing responded.
    version: Option<String>,
}

/// Pods that are being polled.
pub struct Observation {
    pods: Vec<PolledPod>,
}

struct PolledPod {
    name: String,
    responses: Arc<Mutex<Vec<Response>>>,
    task: JoinHandle<()>,
}

impl Drop for PolledPod {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What was observed.
#[derive(Debug, Default)]
pub struct Findings {
    /// Wrong responses while the gate was open.
    pub wrong: Vec<String>,
    /// How often each version responded while the gate was open.
    pub open: BTreeMap<String, usize>,
    /// How often each version responded while the gate was not open. The key "" counts requests without a response.
    pub closed: BTreeMap<String, usize>,
}

impl Observation {
    /// Begins to poll these pods.
    pub fn start(pods: &[Pod]) -> Result<Self> {
        let poll_pod = |pod: &Pod| {
            let responses = Arc::default();
            Ok(PolledPod {
                name: pod.name().to_owned(),
                task: tokio::spawn(poll(format!("{}:8080", pod.ip()?), Arc::clone(&responses))),
                responses,
            })
        };
        let pods = pods.iter().map(poll_pod).collect::<Result<_>>()?;
        Ok(Observation { pods })
    }

    /// Compares all responses with the times at which a condition of the pods (the gate or Ready) was True. `versions`
    /// maps each image to its response.
    pub fn compare(
        &self,
        case: &Case,
        condition: &str,
        versions: &BTreeMap<String, String>,
    ) -> Result<Findings> {
        let mut findings = Findings::default();
        for pod in &self.pods {
            let responses = locked(&pod.responses).clone();
            let writes = case.plane().audit.writes(&case.namespace)?;
            let spans = spans(&writes, &pod.name, condition);
            for response in &responses {
                findings.add(pod, response, &spans, versions);
            }
        }
        Ok(findings)
    }

    /// Fails if a pod whose gate was open did not respond with the version of its image, or if one of the
    /// `expected` versions was never observed while the gate was open.
    pub fn check(
        &self,
        case: &Case,
        versions: &BTreeMap<String, String>,
        expected: &[&str],
    ) -> Result<Findings> {
        let findings = self.compare(case, GATE, versions)?;
        findings.ensure_no_wrong_response()?;
        for version in expected {
            ensure!(
                findings.open.contains_key(*version),
                "{version} did not respond: {findings:?}"
            );
        }
        // Every in-place change restarts a container. If no gap was observed, the pods were not polled.
        ensure!(findings.closed.contains_key(""), "no gap: {findings:?}");
        Ok(findings)
    }
}

impl Findings {
    /// Fails if there were wrong responses.
    pub fn ensure_no_wrong_response(&self) -> Result<()> {
        let first: Vec<_> = self.wrong.iter().take(5).collect();
        ensure!(first.is_empty(), "{} wrong responses: {first:#?}", self.wrong.len());
        Ok(())
    }

    fn add(
        &mut self,
        pod: &PolledPod,
        response: &Response,
        spans: &[Span],
        versions: &BTreeMap<String, String>,
    ) {
        let version = response.version.clone().unwrap_or_default();
        let Some(span) = spans.iter().find(|span| span.contains(response)) else {
            *self.closed.entry(version).or_default() += 1;
            return;
        };
        if versions.get(&span.image) == Some(&version) {
            *self.open.entry(version).or_default() += 1;
        } else {
            let (name, image) = (&pod.name, &span.image);
            self.wrong.push(format!("{name} with {image}, open from {}: {response:?}", span.from));
        }
    }
}

/// A period during which a pod certainly had the condition, and this image in its spec.
#[derive(Debug)]
struct Span {
    from: Timestamp,
    /// None if the period has not ended.
    to: Option<Timestamp>,
    image: String,
}

impl Span {
    fn contains(&self, response: &Response) -> bool {
        self.from <= response.requested && self.to.is_none_or(|to| response.received <= to)
    }
}

/// The periods during which a pod had a condition. A stored state of the pod is certain to exist from the moment
/// when the write that created it is completed until the request for the next write arrives.
fn spans(writes: &[Event], name: &str, condition: &str) -> Vec<Span> {
    let answered = writes.iter().filter_map(|event| {
        let (pod, written) = (event.response_object.as_ref()?, event.object_ref.as_ref()?);
        let is_this_pod = written.resource == "pods" && text(pod, "/metadata/name") == name;
        let number: u64 = text(pod, "/metadata/resourceVersion").parse().ok()?;
        is_this_pod.then_some((number, event, pod))
    });
    let mut answered: Vec<_> = answered.collect();
    answered.sort_by_key(|(number, event, _)| (*number, event.done));
    // The response to a write that changes nothing contains the state that exists.
    answered.dedup_by_key(|(number, ..)| *number);
    let mut spans: Vec<Span> = Vec::new();
    let mut current: Option<Span> = None;
    let mut pod = Value::Null;
    for (_, event, answer) in answered {
        // The operator requests only metadata in responses.
        pod = match is_partial(answer) {
            true => rebuild(event, Some(&pod), answer),
            false => answer.clone(),
        };
        let image = open_image(&pod, condition);
        if current.as_ref().map(|span| span.image.as_str()) == image {
            continue;
        }
        spans.extend(current.take().map(|span| Span { to: Some(event.received), ..span }));
        current = image.map(|image| Span { from: event.done, to: None, image: image.to_owned() });
    }
    spans.extend(current);
    spans
}

/// The image in the spec of a pod that has the condition and is not Terminating.
fn open_image<'a>(pod: &'a Value, condition: &str) -> Option<&'a str> {
    let is_open = is_true(pod, condition) && !is_terminating(pod);
    is_open.then(|| text(pod, "/spec/containers/0/image"))
}

fn locked(responses: &Mutex<Vec<Response>>) -> MutexGuard<'_, Vec<Response>> {
    responses.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Polls until the task is aborted.
async fn poll(address: String, responses: Arc<Mutex<Vec<Response>>>) {
    loop {
        let requested = Timestamp::now();
        let version = timeout(RESPONSE_TIMEOUT, version_at(&address)).await;
        let response = Response {
            requested,
            received: Timestamp::now(),
            version: version.ok().and_then(Result::ok),
        };
        locked(&responses).push(response);
        sleep(PAUSE).await;
    }
}

async fn version_at(address: &str) -> Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let request = "GET / HTTP/1.1\r\nhost: game\r\nconnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).await?;
    let mut response = String::new();
    stream.read_to_string(&mut response).await?;
    let (_, body) = response.split_once("\r\n\r\n").context("not an HTTP response")?;
    Ok(body.to_owned())
}
