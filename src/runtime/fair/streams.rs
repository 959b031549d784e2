//! The streams of the connection for writes, given out in rotation among namespaces.
//!
//! An API server serves a limited number of requests of one connection at a time (100, unless
//! `--http2-max-streams-per-connection` says otherwise), and further ones wait in order of arrival, whatever they rest
//! on. So they wait here instead: fewer than 100 are sent at a time, namespaces take turns, and one that has no request
//! in progress can always send one. What rests on a proof is not sent once the proof has expired ([`SendBefore`]).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::RoundRobin;

/// The most requests at a time.
const ALL: usize = 90;
/// The most requests at a time, except for namespaces that have none in progress.
const SHARED: usize = 80;
/// The most requests of one namespace at a time.
const PER_NAMESPACE: usize = 64;

/// The latest time at which a request may be sent. An extension of requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SendBefore(pub Instant);

impl SendBefore {
    /// Fails if it is too late.
    pub(crate) fn check(self) -> Result<(), TooLate> {
        match Instant::now() <= self.0 {
            true => Ok(()),
            false => Err(TooLate),
        }
    }
}

/// A request was not sent, because what it rests on may have changed while it waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the request waited too long for its turn; it was not sent")]
pub(crate) struct TooLate;

/// The streams.
#[derive(Debug, Default)]
pub(crate) struct Streams(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    waiting: RoundRobin<oneshot::Sender<Stream>>,
    /// Streams in use, by namespace.
    used: HashMap<String, usize>,
    all: usize,
}

/// A stream, which is given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Stream {
    streams: Arc<Streams>,
    namespace: String,
}

impl Streams {
    /// Waits for a stream. Within a namespace, the order is first in, first out.
    pub(crate) async fn take(self: &Arc<Self>, namespace: &str) -> Stream {
        let (sender, stream) = oneshot::channel();
        self.state().waiting.push(namespace, sender);
        self.serve();
        match stream.await {
            Ok(stream) => stream,
            // The queue keeps each sender until it has sent something.
            Err(_) => std::future::pending().await,
        }
    }

    /// Gives free streams to those that wait.
    fn serve(self: &Arc<Self>) {
        loop {
            let next = self.state().next();
            let Some((sender, namespace)) = next else {
                return;
            };
            let stream = Stream { streams: Arc::clone(self), namespace };
            // If the request was given up meanwhile, the stream is dropped here, and so goes to the next one.
            drop(sender.send(stream));
        }
    }

    fn give_back(self: &Arc<Self>, namespace: &str) {
        let mut state = self.state();
        state.all -= 1;
        if let Some(used) = state.used.get_mut(namespace) {
            *used -= 1;
            if *used == 0 {
                state.used.remove(namespace);
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Takes a stream for the next one that waits, if there is one for its namespace.
    fn next(&mut self) -> Option<(oneshot::Sender<Stream>, String)> {
        if self.all >= ALL {
            return None;
        }
        let (all, used) = (self.all, &self.used);
        let admit = |namespace: &str| {
            let is_free = match used.get(namespace) {
                None => all < ALL,
                Some(used) => all < SHARED && *used < PER_NAMESPACE,
            };
            is_free.then(|| namespace.to_owned())
        };
        let mut next = self.waiting.pop(admit)?;
        // Requests that were given up meanwhile need no stream.
        while next.0.is_closed() {
            next = self.waiting.pop(admit)?;
        }
        let (sender, namespace) = next;
        self.all += 1;
        *self.used.entry(namespace.clone()).or_default() += 1;
        Some((sender, namespace))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.streams.give_back(&self.namespace);
        self.streams.serve();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    async fn take_now(streams: &Arc<Streams>, namespace: &str) -> Option<Stream> {
        timeout(Duration::ZERO, streams.take(namespace)).await.ok()
    }

    async fn take_all(streams: &Arc<Streams>, namespace: &str) -> Vec<Stream> {
        let mut taken = Vec::new();
        while let Some(stream) = take_now(streams, namespace).await {
            taken.push(stream);
        }
        taken
    }

    #[tokio::test]
    async fn fewer_than_a_hundred_streams_are_used_and_each_namespace_gets_one() {
        let streams = Arc::default();
        let greedy = take_all(&streams, "greedy").await;
        assert_eq!(greedy.len(), PER_NAMESPACE);
        let second = take_all(&streams, "second").await;
        assert_eq!(second.len(), SHARED - PER_NAMESPACE);
        let mut others = Vec::new();
        for number in 0..ALL - SHARED {
            let taken = take_all(&streams, &number.to_string()).await;
            assert_eq!(taken.len(), 1);
            others.extend(taken);
        }
        assert!(take_now(&streams, "last").await.is_none());
        drop((greedy, second, others));
        assert_eq!(take_all(&streams, "greedy").await.len(), PER_NAMESPACE);
        let state = streams.state();
        assert_eq!((state.all, state.used.len()), (0, 0));
    }

    #[tokio::test]
    async fn namespaces_take_turns() {
        let streams: Arc<Streams> = Arc::default();
        let mut taken = take_all(&streams, "greedy").await;
        taken.extend(take_all(&streams, "other").await);
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = Vec::new();
        for number in 0..300 {
            let namespace = if number < 297 { "greedy" } else { "other" };
            let (streams, order) = (Arc::clone(&streams), Arc::clone(&order));
            tasks.push(tokio::spawn(async move {
                let stream = streams.take(namespace).await;
                order.lock().expect("the order").push(namespace);
                drop(stream);
            }));
            tokio::task::yield_now().await;
        }
        drop(taken);
        for task in tasks {
            task.await.expect("a stream");
        }
        let order = order.lock().expect("the order");
        let last = order.iter().rposition(|it| *it == "other");
        assert!(last.is_some_and(|last| last < 100), "{last:?}");
    }

    #[tokio::test]
    async fn a_request_that_was_given_up_keeps_no_stream() {
        let streams: Arc<Streams> = Arc::default();
        let taken = take_all(&streams, "greedy").await;
        for _ in 0..10 {
            assert!(take_now(&streams, "greedy").await.is_none());
        }
        drop(taken);
        assert_eq!(take_all(&streams, "greedy").await.len(), PER_NAMESPACE);
    }
}
