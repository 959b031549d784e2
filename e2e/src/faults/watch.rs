//! One watch, as far as the script lets it through.
//!
//! A watch is a stream of lines, each an event. Faults hold lines back, swallow them, or put others in
//! their place. A watch that has swallowed something cannot go on when the fault is over, or it would
//! lie for ever: it ends, as that of a broken connection does, and its client resumes or lists again.

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

/// Lines that may wait for a client that is slow to read.
const WAITING: usize = 64;

/// The body that a client is given instead of the server's, for a watch of a resource that was asked for
/// with this query.
pub(super) fn follow(
    body: Incoming,
    resource: String,
    query: &str,
    playing: watch::Receiver<Arc<Playing>>,
    count: impl Fn(&'static str) + Send + 'static,
) -> Outgoing {
    let (tell, told) = mpsc::channel(WAITING);
    let watch = Watch {
        resource,
        begun: Instant::now(),
        is_listing: query.contains("sendInitialEvents=true"),
        told_last: asked_from(query).unwrap_or_default(),
        held: VecDeque::new(),
        swallowed: None,
        end: None,
        counted: None,
        count,
    };
    tokio::spawn(watch.run(body, playing, tell));
    let frames = unfold(told, async |mut told: mpsc::Receiver<_>| {
        Some((told.recv().await?, told))
    });
    StreamBody::new(frames).boxed_unsync()
}

type Tell = mpsc::Sender<Result<Frame<Bytes>, Broken>>;

struct Watch<C> {
    resource: String,
    begun: Instant,
    /// Whether it has not told all yet that there was when it began.
    is_listing: bool,
    /// The last line, unless a bookmark was put in its place: its version is where the client stands.
    told_last: Bytes,
    /// Lines that are not told yet, and when they are to be.
    held: VecDeque<(Instant, Bytes)>,
    /// The fault that kept something back for good.
    swallowed: Option<WatchFault>,
    /// How it ends once all that is held is told; None while it goes on.
    end: Option<Result<(), &'static str>>,
    /// The fault that was counted last, and since when it holds.
    counted: Option<(WatchFault, Instant)>,
    count: C,
}

impl<C: Fn(&'static str)> Watch<C> {
    async fn run(
        mut self,
        mut body: Incoming,
        mut playing: watch::Receiver<Arc<Playing>>,
        tell: Tell,
    ) {
        let mut unfinished = Vec::new();
        loop {
            let script = playing.borrow_and_update().clone();
            let until = self.look_at(&script);
            let Some(is_told) = self.tell(&tell).await else {
                return;
            };
            if is_told && let Some(end) = self.end.take() {
                if let Err(why) = end {
                    let broken = Broken::after_what_was_sent(why).await;
                    // A client that is gone has no use for it.
                    let _ = tell.send(Err(broken)).await;
                }
                return;
            }
            let next = self.held.front().map(|(due, _)| *due);
            let next = next.into_iter().chain(until).min();
            tokio::select! {
                () = tell.closed() => return,
                () = at(next) => {}
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
                            self.hear(line, &script);
                        }
                    }
                    Some(Err(_)) => self.end = Some(Err("the server's")),
                    None => self.end = Some(Ok(())),
                },
            }
        }
    }

    /// Ends it when the fault is over that swallowed something, and says when it will be.
    fn look_at(&mut self, script: &Playing) -> Option<Instant> {
        let swallowed = self.swallowed?;
        match script.watch_rule(&self.resource) {
            Some((rule, _, until)) if rule.fault == swallowed => Some(until),
            _ => {
                self.swallowed = None;
                self.end = Some(Ok(()));
                None
            }
        }
    }

    /// Tells what is due; whether that was all. None when the client is gone.
    async fn tell(&mut self, tell: &Tell) -> Option<bool> {
        while let Some((due, _)) = self.held.front() {
            if *due > Instant::now() {
                return Some(false);
            }
            if let Some((_, line)) = self.held.pop_front() {
                tell.send(Ok(Frame::data(line))).await.ok()?;
            }
        }
        Some(true)
    }

    /// What is held is due now.
    fn release(&mut self) {
        let now = Instant::now();
        self.held.iter_mut().for_each(|(due, _)| *due = now);
    }

    /// A line came from the server.
    fn hear(&mut self, line: Bytes, script: &Playing) {
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
        // After the gap nothing more is told.
        if self.swallowed.is_some() && self.swallowed != fault {
            return;
        }
        let (Some((_, since, _)), Some(fault)) = (rule, fault) else {
            return self.hold(now, line);
        };
        let is_older = self.begun < since;
        match fault {
            WatchFault::Lag(time) => self.hold(now + time, line),
            WatchFault::Stop => self.swallowed = Some(fault),
            WatchFault::Hollow if !was_listing => {
                self.swallowed = Some(fault);
                let bookmark = bookmark(&self.told_last);
                self.held.extend(bookmark.map(|line| (now, line)));
            }
            // A watch that began under the fault is the next one.
            WatchFault::Gone if is_older => {
                self.hold(now, gone());
                self.end = Some(Ok(()));
            }
            WatchFault::Cut if is_older => {
                self.hold(now, line.slice(..line.len() / 2));
                self.end = Some(Err("cut in an event"));
            }
            WatchFault::Hollow | WatchFault::Gone | WatchFault::Cut => {
                return self.hold(now, line);
            }
        }
        if self.counted != Some((fault, since)) {
            self.counted = Some((fault, since));
            (self.count)(fault.name());
        }
    }

    /// Keeps a line until then, and until after those before it.
    fn hold(&mut self, due: Instant, line: Bytes) {
        let last = self.held.back().map_or(due, |(due, _)| *due);
        self.told_last = line.clone();
        self.held.push_back((due.max(last), line));
    }
}

async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// Takes the lines that are complete.
fn lines(unfinished: &mut Vec<u8>) -> Vec<Bytes> {
    let Some(end) = unfinished.iter().rposition(|byte| *byte == b'\n') else {
        return Vec::new();
    };
    let rest = unfinished.split_off(end + 1);
    let whole = Bytes::from(std::mem::replace(unfinished, rest));
    let mut begin = 0;
    let ends = (0..whole.len()).filter(|at| whole[*at] == b'\n');
    ends.map(|at| whole.slice(std::mem::replace(&mut begin, at + 1)..=at))
        .collect()
}

fn contains(line: &[u8], word: &[u8]) -> bool {
    line.windows(word.len()).any(|part| part == word)
}

/// A bookmark with the version that a watch is asked to begin after.
fn asked_from(query: &str) -> Option<Bytes> {
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let (_, version) = pairs.find(|(name, _)| *name == "resourceVersion")?;
    let metadata = json!({"resourceVersion": version});
    Some(line_of(
        &json!({"type": "BOOKMARK", "object": {"metadata": metadata}}),
    ))
}

/// A bookmark that says no more than what an event has said already: that its version is reached.
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

/// What the server says when it has forgotten where a watch stood.
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
