//! The stream of server-sent events that keeps a page current.

use std::convert::Infallible;
use std::time::Duration;

use axum::response::sse::{Event, Sse};
use futures::stream::{self, BoxStream, StreamExt};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::delta::{Sent, Snapshot};
use crate::error::Error;
use crate::page::sanitize;
use crate::watch::{Outage, Update, Watch, Watched};

/// How often a page is sent something even if nothing changes: sentences contain ages, and a page that receives nothing
/// for longer knows that its connection is lost.
const BEAT: Duration = Duration::from_secs(5);
/// When a browser connects again after the stream has ended.
const RETRY: Duration = Duration::from_secs(2);

/// The response to a page.
pub type Response = Sse<BoxStream<'static, Result<Event, Infallible>>>;

/// Sends what `show` makes of the observed state, whenever that changes.
pub fn follow<W>(
    watch: Watch<W>,
    show: impl FnMut(&W::State, Timestamp) -> Snapshot + Send + 'static,
) -> Response
where
    W: Watched + Send + 'static,
    W::State: Send + Sync,
{
    let mut beats = interval(BEAT);
    beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (sent, state, outage) = (Sent::default(), None, None);
    let feed = Feed { watch, show, sent, state, outage, beats, has_ended: false };
    let messages = stream::unfold(feed, |mut feed| async move {
        let message = feed.next().await?;
        Some((Ok(event(&message)), feed))
    });
    Sse::new(messages.boxed())
}

/// Tells the page why there is nothing to show. The browser tries again.
pub fn failure(error: &Error) -> Response {
    let message = json!({"error": sanitize(&error.to_string())});
    Sse::new(stream::iter([Ok(event(&message))]).boxed())
}

fn event(message: &Value) -> Event {
    Event::default().retry(RETRY).data(message.to_string())
}

struct Feed<W: Watched, F> {
    watch: Watch<W>,
    show: F,
    sent: Sent,
    /// The last observed state.
    state: Option<Box<W::State>>,
    outage: Option<Outage>,
    beats: Interval,
    has_ended: bool,
}

impl<W: Watched, F: FnMut(&W::State, Timestamp) -> Snapshot> Feed<W, F> {
    /// The next message; None at the end.
    async fn next(&mut self) -> Option<Value> {
        if self.has_ended {
            return None;
        }
        loop {
            tokio::select! {
                update = self.watch.next() => match update {
                    Ok(Update::State(state)) => {
                        self.state = Some(state);
                        let was_lost = self.outage.take().is_some();
                        let delta = self.delta();
                        match was_lost {
                            false if delta.is_none() => {}
                            false => return delta,
                            true => return Some(restored(delta)),
                        }
                    }
                    Ok(Update::Disconnected(outage)) => {
                        let (since, why) = (outage.since.as_second(), outage.why.clone());
                        self.outage = Some(outage);
                        return Some(json!({"outage": {"since": since, "why": sanitize(&why)}}));
                    }
                    Ok(Update::Deleted) => return Some(self.end(json!({"deleted": true}))),
                    Err(error) => {
                        let why = sanitize(&error.to_string()).into_owned();
                        return Some(self.end(json!({"error": why})));
                    }
                },
                _ = self.beats.tick() => return Some(self.delta().unwrap_or_else(|| json!({}))),
            }
        }
    }

    fn end(&mut self, message: Value) -> Value {
        self.has_ended = true;
        message
    }

    /// What has changed since the last message. Ages stop while the connection is lost.
    fn delta(&mut self) -> Option<Value> {
        let state = self.state.as_ref()?;
        let now = self.outage.as_ref().map_or_else(Timestamp::now, |outage| outage.since);
        self.sent.delta((self.show)(state, now))
    }
}

/// A message that also says that the connection is restored.
fn restored(delta: Option<Value>) -> Value {
    let mut message = delta.unwrap_or_else(|| json!({}));
    message["outage"] = Value::Null;
    message
}
