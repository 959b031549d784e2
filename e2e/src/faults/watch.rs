//! Forwards one watch, with the faults of the script.
//!
//! A watch is a stream of lines, each an event. Faults delay, drop or replace lines. When a fault that
//! dropped a line is over, the watch ends, because its client would never get that event. The client
//! then resumes or lists again, as after a broken connection.

use std::collections::VecDeque;
use std::sync::Arc;

use futures::stream::unfold;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

use super::proxy::{Broken, Outgoing, Playing};
use super::script::WatchFault;

/// How many lines are buffered for a client that is slow to read.
const BUFFERED: usize = 64;

/// Returns the body for the client: the lines of the server's body, changed by the faults of the script.
pub(super) fn follow(
    body: Incoming,
    resource: String,
    query: &str,
    playing: watch::Receiver<Arc<Playing>>,
    count: impl Fn(&'static str) + Send + 'static,
) -> Outgoing {
    let (sender, receiver) = mpsc::channel(BUFFERED);
    let watch = Watch {
        resource,
        start: Instant::now(),
        is_listing: query.contains("sendInitialEvents=true"),
        last_sent: start_bookmark(query).unwrap_or_default(),
        held: VecDeque::new(),
        dropped_by: None,
        end: None,
        counted: None,
        count,
    };
    tokio::spawn(watch.run(body, playing, sender));
    let frames = unfold(receiver, async |mut receiver: mpsc::Receiver<_>| {
        Some((receiver.recv().await?, receiver))
    });
    StreamBody::new(frames).boxed_unsync()
}

type Sender = mpsc::Sender<Result<Frame<Bytes>, Broken>>;

struct Watch<C> {
    resource: String,
    start: Instant,
    /// Whether the initial events are still incomplete.
    is_listing: bool,
    /// The last line that was sent or held. Its version is the one that the client has or will get.
    last_sent: Bytes,
    /// Lines that are yet to be sent, each with the time at which it is due.
    held: VecDeque<(Instant, Bytes)>,
    /// The fault that has dropped a line.
    dropped_by: Option<WatchFault>,
    /// How the watch ends after all held lines are sent; None while it continues.
    end: Option<Result<(), &'static str>>,
    /// The fault that was counted last, and when it started.
    counted: Option<(WatchFault, Instant)>,
    count: C,
}

impl<C: Fn(&'static str)> Watch<C> {
    async fn run(
        mut self,
        mut body: Incoming,
        mut playing: watch::Receiver<Arc<Playing>>,
        sender: Sender,
    ) {
        let mut unfinished = Vec::new();
        loop {
            let script = playing.borrow_and_update().clone();
            let fault_end = self.end_after_fault(&script);
            let Some(all_sent) = self.send_due(&sender).await else {
                return;
            };
            if all_sent && let Some(end) = self.end.take() {
                if let Err(why) = end {
                    let broken = Broken::after_flush(why).await;
                    // The client may have disconnected.
                    let _ = sender.send(Err(broken)).await;
                }
                return;
            }
            let next = self.held.front().map(|(due, _)| *due);
            let next = next.into_iter().chain(fault_end).min();
            tokio::select! {
                // A line that arrives together with a new script is subject to the new script.
                biased;
                () = sender.closed() => return,
                () = wait_until(next) => {}
                changed = playing.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    self.release();
                }
                frame = body.frame(), if self.end.is_none() => match frame {
                    Some(Ok(frame)) => {
                        unfinished.extend_from_slice(frame.data_ref().map_or(&[], |it| it));
                        for line in lines(&mut unfinished) {
                            self.receive(line, &script);
                        }
                    }
                    Some(Err(_)) => self.end = Some(Err("the server's response broke off")),
                    None => self.end = Some(Ok(())),
                },
            }
        }
    }

    /// If a fault has dropped a line: ends the watch once that fault is over, and until then returns the
    /// time at which the fault ends.
    fn end_after_fault(&mut self, script: &Playing) -> Option<Instant> {
        let dropped_by = self.dropped_by?;
        match script.watch_rule(&self.resource) {
            Some((rule, _, fault_end)) if rule.fault == dropped_by => Some(fault_end),
            _ => {
                self.dropped_by = None;
                self.end = Some(Ok(()));
                None
            }
        }
    }

    /// Sends the lines that are due. Returns whether all held lines are sent, or None if the client has
    /// disconnected.
    async fn send_due(&mut self, sender: &Sender) -> Option<bool> {
        while let Some((due, _)) = self.held.front() {
            if *due > Instant::now() {
                return Some(false);
            }
            if let Some((_, line)) = self.held.pop_front() {
                sender.send(Ok(Frame::data(line))).await.ok()?;
            }
        }
        Some(true)
    }

    /// Makes all held lines due now.
    fn release(&mut self) {
        let now = Instant::now();
        self.held.iter_mut().for_each(|(due, _)| *due = now);
    }

    /// Handles a line from the server.
    fn receive(&mut self, line: Bytes, script: &Playing) {
        if self.end.is_some() {
            return;
        }
        let now = Instant::now();
        let was_listing = self.is_listing;
        if was_listing {
            self.is_listing = !contains(&line, b"k8s.io/initial-events-end");
        }
        let rule = script.watch_rule(&self.resource);
        let fault = rule.map(|(rule, ..)| rule.fault);
        // No event is sent after a dropped one.
        if self.dropped_by.is_some() && self.dropped_by != fault {
            return;
        }
        let (Some((_, since, _)), Some(fault)) = (rule, fault) else {
            return self.hold(now, line);
        };
        let began_before_fault = self.start < since;
        match fault {
            WatchFault::Lag(time) => self.hold(now + time, line),
            WatchFault::Stall => self.dropped_by = Some(fault),
            WatchFault::BookmarksOnly if !was_listing => {
                self.dropped_by = Some(fault);
                let bookmark = bookmark(&self.last_sent);
                self.held.extend(bookmark.map(|line| (now, line)));
            }
            // A watch that began during the fault is not hit again.
            WatchFault::Expire if began_before_fault => {
                self.hold(now, gone());
                self.end = Some(Ok(()));
            }
            WatchFault::Truncate if began_before_fault => {
                self.hold(now, line.slice(..line.len() / 2));
                self.end = Some(Err("cut off in an event"));
            }
            WatchFault::BookmarksOnly | WatchFault::Expire | WatchFault::Truncate => {
                return self.hold(now, line);
            }
        }
        if self.counted != Some((fault, since)) {
            self.counted = Some((fault, since));
            (self.count)(fault.name());
        }
    }

    /// Holds a line until it is due and all earlier ones are sent.
    fn hold(&mut self, due: Instant, line: Bytes) {
        let last = self.held.back().map_or(due, |(due, _)| *due);
        self.last_sent = line.clone();
        self.held.push_back((due.max(last), line));
    }
}

async fn wait_until(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// Takes the complete lines out of the buffer.
fn lines(unfinished: &mut Vec<u8>) -> Vec<Bytes> {
    let Some(end) = unfinished.iter().rposition(|byte| *byte == b'\n') else {
        return Vec::new();
    };
    let rest = unfinished.split_off(end + 1);
    let whole = Bytes::from(std::mem::replace(unfinished, rest));
    let mut begin = 0;
    let ends = (0..whole.len()).filter(|index| whole[*index] == b'\n');
    ends.map(|end| whole.slice(std::mem::replace(&mut begin, end + 1)..=end)).collect()
}

fn contains(line: &[u8], word: &[u8]) -> bool {
    line.windows(word.len()).any(|part| part == word)
}

/// A bookmark with the version at which a watch starts.
fn start_bookmark(query: &str) -> Option<Bytes> {
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let (_, version) = pairs.find(|(name, _)| *name == "resourceVersion")?;
    let metadata = json!({"resourceVersion": version});
    Some(line_of(&json!({"type": "BOOKMARK", "object": {"metadata": metadata}})))
}

/// A bookmark with the version of an event.
fn bookmark(event: &[u8]) -> Option<Bytes> {
    let event: Value = serde_json::from_slice(event).ok()?;
    let object = &event["object"];
    let version = object["metadata"]["resourceVersion"].as_str()?;
    Some(line_of(&json!({
        "type": "BOOKMARK",
        "object": {
            "kind": object["kind"],
            "apiVersion": object["apiVersion"],
            "metadata": {"resourceVersion": version, "creationTimestamp": null},
        },
    })))
}

/// The event with which the server ends a watch whose version is too old.
fn gone() -> Bytes {
    line_of(&json!({
        "type": "ERROR",
        "object": {
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": "too old resource version", "reason": "Expired", "code": 410,
        },
    }))
}

fn line_of(event: &Value) -> Bytes {
    Bytes::from(format!("{event}\n"))
}
