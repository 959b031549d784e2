//! What players see of pods while they change: every few milliseconds, each pod is asked for its version. Afterwards the
//! answers are compared with the pods' gates.
//!
//! The times at which a gate was open come from the audit log, which contains every write of a pod, with the times
//! before and after it. A watch would report a write only some time later. An answer counts if the gate was open from
//! before the question until after the answer.
//!
//! What this cannot see: a gate that opens too early or closes too late by less than the time between two questions.
//! Therefore the versions answer only some time after their start, and pulls are held back. That a gate is closed before
//! the write that changes the pod, which takes effect a moment later, is checked by the judge (rule gate).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::case::Case;
use e2e::workload::view::Pod;
use jiff::Timestamp;
use judge::Event;
use judge::object::{is_terminating, is_true, text};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// The time between an answer and the next question.
const PAUSE: Duration = Duration::from_millis(5);
/// How long to wait for an answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// The readiness gate.
pub const GATE: &str = "InPlaceUpdateReady";

/// An answer of a pod.
#[derive(Clone, Debug)]
struct Answer {
    asked: Timestamp,
    answered: Timestamp,
    /// None if nothing answered.
    version: Option<String>,
}

/// Pods that are being asked.
pub struct Observation {
    pods: Vec<Asked>,
}

struct Asked {
    name: String,
    answers: Arc<Mutex<Vec<Answer>>>,
    task: JoinHandle<()>,
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What was observed.
#[derive(Debug, Default)]
pub struct Findings {
    /// Wrong answers while the gate was open.
    pub wrong: Vec<String>,
    /// How often each version answered while the gate was open.
    pub open: BTreeMap<String, usize>,
    /// How often each version, or nothing (the empty name), answered at another time.
    pub closed: BTreeMap<String, usize>,
}

impl Observation {
    /// Begins to ask these pods.
    pub fn start(pods: &[Pod]) -> Result<Self> {
        let ask = |pod: &Pod| {
            let answers = Arc::default();
            Ok(Asked {
                name: pod.name().to_owned(),
                task: tokio::spawn(ask(format!("{}:8080", pod.ip()?), Arc::clone(&answers))),
                answers,
            })
        };
        let pods = pods.iter().map(ask).collect::<Result<_>>()?;
        Ok(Observation { pods })
    }

    /// Compares all answers so far with the times at which a condition of the pods was True: the gate, or
    /// Ready. `versions` has what an image answers.
    pub fn compare(
        &self,
        case: &Case,
        condition: &str,
        versions: &BTreeMap<String, String>,
    ) -> Result<Findings> {
        let mut findings = Findings::default();
        for pod in &self.pods {
            let answers = locked(&pod.answers).clone();
            let writes = case.plane().audit.writes(&case.namespace)?;
            let spans = spans(&writes, &pod.name, condition);
            for answer in &answers {
                findings.add(pod, answer, &spans, versions);
            }
        }
        Ok(findings)
    }

    /// Fails if a pod whose gate was open did not answer with the version of its image, or if one of these
    /// versions was not observed at all behind an open gate.
    pub fn check(
        &self,
        case: &Case,
        versions: &BTreeMap<String, String>,
        expected: &[&str],
    ) -> Result<Findings> {
        let findings = self.compare(case, GATE, versions)?;
        findings.ensure_right()?;
        for version in expected {
            ensure!(
                findings.open.contains_key(*version),
                "{version} did not answer: {findings:?}"
            );
        }
        // Every change in place restarts a container. If no gap was observed, the pods were not asked.
        ensure!(findings.closed.contains_key(""), "no gap: {findings:?}");
        Ok(findings)
    }
}

impl Findings {
    /// Fails if there were wrong answers.
    pub fn ensure_right(&self) -> Result<()> {
        let first: Vec<_> = self.wrong.iter().take(5).collect();
        ensure!(
            first.is_empty(),
            "{} wrong answers: {first:#?}",
            self.wrong.len()
        );
        Ok(())
    }

    fn add(
        &mut self,
        pod: &Asked,
        answer: &Answer,
        spans: &[Span],
        versions: &BTreeMap<String, String>,
    ) {
        let version = answer.version.clone().unwrap_or_default();
        let Some(span) = spans.iter().find(|span| span.contains(answer)) else {
            *self.closed.entry(version).or_default() += 1;
            return;
        };
        if versions.get(&span.image) == Some(&version) {
            *self.open.entry(version).or_default() += 1;
        } else {
            let (name, image) = (&pod.name, &span.image);
            self.wrong.push(format!(
                "{name} with {image}, open from {}: {answer:?}",
                span.from
            ));
        }
    }
}

/// A time during which a pod certainly had this image in its spec, and the condition.
#[derive(Debug)]
struct Span {
    from: Timestamp,
    /// None if it has not ended.
    to: Option<Timestamp>,
    image: String,
}

impl Span {
    fn contains(&self, answer: &Answer) -> bool {
        self.from <= answer.asked && self.to.is_none_or(|to| answer.answered <= to)
    }
}

/// The times at which a pod had a condition. A version of the pod certainly exists from when the response to its write
/// was complete until the request for the next one arrived.
fn spans(writes: &[Event], name: &str, condition: &str) -> Vec<Span> {
    let version = |event: &Event| {
        let pod = event.response_object.clone()?;
        let is_meant = text(&pod, "/kind") == "Pod" && text(&pod, "/metadata/name") == name;
        let number: u64 = text(&pod, "/metadata/resourceVersion").parse().ok()?;
        is_meant.then_some((number, event.done, event.received, pod))
    };
    let mut versions: Vec<_> = writes.iter().filter_map(version).collect();
    versions.sort_by_key(|(number, done, ..)| (*number, *done));
    // A write that changes nothing is answered with the version that exists.
    versions.dedup_by_key(|(number, ..)| *number);
    let mut spans: Vec<Span> = Vec::new();
    let mut current: Option<Span> = None;
    for (_, done, received, pod) in versions {
        let image = open_image(&pod, condition);
        if current.as_ref().map(|span| span.image.as_str()) == image {
            continue;
        }
        spans.extend(current.take().map(|span| Span {
            to: Some(received),
            ..span
        }));
        current = image.map(|image| Span {
            from: done,
            to: None,
            image: image.to_owned(),
        });
    }
    spans.extend(current);
    spans
}

/// The image in the spec of a pod that has the condition and is not Terminating.
fn open_image<'a>(pod: &'a Value, condition: &str) -> Option<&'a str> {
    let is_open = is_true(pod, condition) && !is_terminating(pod);
    is_open.then(|| text(pod, "/spec/containers/0/image"))
}

fn locked(answers: &Mutex<Vec<Answer>>) -> MutexGuard<'_, Vec<Answer>> {
    answers.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Asks until the task is aborted.
async fn ask(address: String, answers: Arc<Mutex<Vec<Answer>>>) {
    loop {
        let asked = Timestamp::now();
        let version = timeout(PATIENCE, version_at(&address)).await;
        let answer = Answer {
            asked,
            answered: Timestamp::now(),
            version: version.ok().and_then(Result::ok),
        };
        locked(&answers).push(answer);
        sleep(PAUSE).await;
    }
}

async fn version_at(address: &str) -> Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let request = "GET / HTTP/1.1\r\nhost: game\r\nconnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let (_, body) = answer.split_once("\r\n\r\n").context("an HTTP answer")?;
    Ok(body.to_owned())
}
