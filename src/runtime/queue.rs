//! The work queue of a controller: which objects must be reconciled, and when.
//!
//! Guarantees:
//! - An object is reconciled by one worker at a time. Events in the meantime cause one more reconcile.
//! - An object waits once, however often it is added. The events of a burst share a reconcile.
//! - A failed reconcile is repeated after a backoff that grows with each failure in a row.
//! - A namespace never delays another, however many objects it has and however long they take.
//!
//! kube's Controller is not used, because a panic ends it, its backoff has no memory, and deletions never reach it.

mod stats;

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tracing::{Instrument, error_span};

use self::stats::QueueStats;
use crate::runtime::fair::{Capacity, NamespaceLimiter, Permit, RoundRobin};
use crate::runtime::jitter::jittered;
use crate::runtime::log_limiter::log_limited;
use crate::runtime::objects::ObjectKey;

pub(crate) use stats::Queues;

const MIN_BACKOFF: Duration = Duration::from_millis(5);
const MAX_BACKOFF: Duration = Duration::from_secs(30);
/// When an event arrives for a failed object, its retry waits at most this long after the failure, unless the
/// server sent a Retry-After.
const MAX_BACKOFF_ON_EVENT: Duration = Duration::from_secs(1);

/// A server's Retry-After is limited to this.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(300);

/// After a successful reconcile, an event does not cause the next one before this time has passed: a thousand pods
/// that change in a second must not cause a thousand reconciles.
const MIN_REST: Duration = Duration::from_millis(20);
/// An object rests for this many times as long as its last plan took: ten thousand pods that change all
/// the time take at most a fifth of a core for planning.
const REST_PER_PLANNING: u32 = 4;
const MAX_REST: Duration = Duration::from_secs(1);

/// When to reconcile an object again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Requeue {
    /// At the next event, or at this time.
    Settled(Option<Instant>),
    /// Immediately, because there is more to do.
    Now,
    /// After a backoff, because something failed; not before the server's Retry-After.
    Retry(Option<Duration>),
    /// After the same backoff, because an object has changed meanwhile. This is not a failure.
    Conflict,
}

/// The result of a reconcile.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reconciled {
    pub requeue: Requeue,
    /// How long planning took.
    pub planning: Duration,
}

impl From<Requeue> for Reconciled {
    fn from(requeue: Requeue) -> Self {
        Self { requeue, planning: Duration::ZERO }
    }
}

impl Reconciled {
    /// How long the object rests after this reconcile; at least `min`.
    fn rest(&self, min: Duration) -> Duration {
        let share = self.planning.saturating_mul(REST_PER_PLANNING);
        share.clamp(min, MAX_REST)
    }
}

/// Keys of the objects to reconcile.
pub(crate) struct Queue {
    state: Mutex<State>,
    changed: Notify,
    /// Limits the reconciles in progress.
    limiter: NamespaceLimiter,
}

#[derive(Default)]
struct State {
    is_open: bool,
    ready: RoundRobin<ObjectKey>,
    /// The keys in `ready`, and since when they have been ready.
    waiting: HashMap<ObjectKey, Instant>,
    running: HashMap<ObjectKey, InProgress>,
    timers: BTreeSet<(Instant, ObjectKey)>,
    /// The times of `timers`, by key.
    due: HashMap<ObjectKey, Instant>,
    failed: HashMap<ObjectKey, Failed>,
    /// Keys that were just reconciled, and until when they rest.
    resting: HashMap<ObjectKey, Instant>,
    stats: QueueStats,
}

/// A reconcile in progress.
struct InProgress {
    since: Instant,
    /// Whether an event for the object has arrived since the reconcile began.
    is_dirty: bool,
    #[expect(dead_code, reason = "held, never read")]
    permit: Permit,
}

#[derive(Clone, Copy)]
struct Failed {
    in_a_row: u32,
    not_before: Instant,
}

impl Queue {
    /// A queue that is not open yet. `reconciles` limits the concurrent reconciles.
    pub(crate) fn new(reconciles: Capacity) -> Self {
        Self {
            state: Mutex::default(),
            changed: Notify::new(),
            limiter: NamespaceLimiter::new(reconciles),
        }
    }

    /// From now on, added keys are kept. Until then nothing drains the queue: it would only grow.
    pub(crate) fn open(&self) {
        self.lock().is_open = true;
    }

    /// Adds a key, unless the queue is not open yet.
    pub(crate) fn add(&self, key: ObjectKey) {
        let mut state = self.lock();
        if !state.is_open {
            return;
        }
        if let Some(in_progress) = state.running.get_mut(&key) {
            in_progress.is_dirty = true;
            return;
        }
        let failed = state.failed.get(&key).map(|failed| failed.not_before);
        match failed.or(state.resting.get(&key).copied()) {
            Some(at) if at > Instant::now() => state.set_timer(key, at),
            _ => state.make_ready(key),
        }
        drop(state);
        self.changed.notify_one();
    }

    /// The next object to reconcile; [`Queue::done`] must follow.
    pub(crate) async fn next(&self) -> ObjectKey {
        loop {
            let next_timer = {
                let mut state = self.lock();
                let now = Instant::now();
                state.make_due_ready(now);
                if let Some(key) = state.start(now, &self.limiter) {
                    return key;
                }
                state.timers.first().map(|(at, _)| *at)
            };
            let timer = async {
                match next_timer {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = timer => {}
                () = self.changed.notified() => {}
            }
        }
    }

    /// Records the result of a reconcile.
    pub(crate) fn done(&self, key: ObjectKey, reconciled: impl Into<Reconciled>) {
        let reconciled = reconciled.into();
        let requeue = reconciled.requeue;
        let mut state = self.lock();
        let now = Instant::now();
        let in_progress = state.running.remove(&key);
        if let Some(in_progress) = &in_progress {
            state.stats.finished(in_progress.since, now, requeue);
        }
        let is_dirty = in_progress.is_some_and(|in_progress| in_progress.is_dirty);
        state.clear_timer(&key);
        match requeue {
            Requeue::Retry(_) | Requeue::Conflict => {
                let retry_after = match requeue {
                    Requeue::Retry(retry_after) => retry_after,
                    _ => None,
                };
                let in_a_row = state.failed.get(&key).map_or(0, |failed| failed.in_a_row);
                let backoff = backoff(in_a_row).max(reconciled.rest(Duration::ZERO));
                let failed = Failed {
                    in_a_row: in_a_row.saturating_add(1),
                    not_before: now
                        + retry_after.map_or(backoff.min(MAX_BACKOFF_ON_EVENT), |it| {
                            it.min(MAX_RETRY_AFTER)
                        }),
                };
                state.failed.insert(key.clone(), failed);
                let at = match is_dirty {
                    true => failed.not_before,
                    false => failed.not_before.max(now + backoff),
                };
                state.set_timer(key, at);
            }
            Requeue::Now => {
                state.failed.remove(&key);
                state.make_ready(key);
            }
            Requeue::Settled(wake) => {
                let rest = reconciled.rest(MIN_REST);
                state.failed.remove(&key);
                state.resting.retain(|_, until| *until > now);
                state.resting.insert(key.clone(), now + rest);
                let event = is_dirty.then_some(now + rest);
                if let Some(at) = [event, wake].into_iter().flatten().min() {
                    state.set_timer(key, at);
                }
            }
        }
        drop(state);
        self.changed.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn backoff(failures_in_a_row: u32) -> Duration {
    let factor = 2_u32.saturating_pow(failures_in_a_row);
    jittered(MIN_BACKOFF.saturating_mul(factor).min(MAX_BACKOFF))
}

impl State {
    fn make_ready(&mut self, key: ObjectKey) {
        self.clear_timer(&key);
        if let Entry::Vacant(entry) = self.waiting.entry(key.clone()) {
            entry.insert(Instant::now());
            self.stats.added();
            self.ready.push(&key.namespace.clone(), key);
        }
    }

    /// Starts the next reconcile that the limiter admits.
    fn start(&mut self, now: Instant, limiter: &NamespaceLimiter) -> Option<ObjectKey> {
        let (key, permit) = self.ready.pop(|namespace| limiter.try_take(namespace))?;
        let since = self.waiting.remove(&key).unwrap_or(now);
        self.stats.started(since, now);
        let in_progress = InProgress { since: now, is_dirty: false, permit };
        self.running.insert(key.clone(), in_progress);
        Some(key)
    }

    fn set_timer(&mut self, key: ObjectKey, at: Instant) {
        if self.due.get(&key).is_some_and(|due| *due <= at) {
            return;
        }
        self.clear_timer(&key);
        self.due.insert(key.clone(), at);
        self.timers.insert((at, key));
    }

    fn clear_timer(&mut self, key: &ObjectKey) {
        if let Some(at) = self.due.remove(key) {
            self.timers.remove(&(at, key.clone()));
        }
    }

    fn make_due_ready(&mut self, now: Instant) {
        while let Some((at, _)) = self.timers.first()
            && *at <= now
            && let Some((_, key)) = self.timers.pop_first()
        {
            self.due.remove(&key);
            self.make_ready(key);
        }
    }
}

/// Reports a reconcile to the queue when dropped, so that an aborted one is reported too.
struct Completion {
    queue: Arc<Queue>,
    key: ObjectKey,
    reconciled: Reconciled,
}

impl Completion {
    fn set(&mut self, reconciled: Reconciled) {
        self.reconciled = reconciled;
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        self.queue.done(self.key.clone(), self.reconciled);
    }
}

/// Reconciles the objects of the queue until `stop`, then waits for the reconciles in progress.
///
/// A reconcile that panics is retried; the others go on.
pub(crate) async fn work<F, L>(queue: Arc<Queue>, mut stop: watch::Receiver<bool>, reconcile: F)
where
    F: Fn(ObjectKey) -> L,
    L: Future<Output: Into<Reconciled>> + Send + 'static,
{
    let mut reconciles = JoinSet::new();
    loop {
        while reconciles.try_join_next().is_some() {}
        let key = tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => break,
            key = queue.next() => key,
        };
        let span = error_span!("reconcile", object = %key);
        let reconciling = AssertUnwindSafe(reconcile(key.clone())).catch_unwind();
        let mut completion =
            Completion { queue: Arc::clone(&queue), key, reconciled: Requeue::Retry(None).into() };
        let reconcile = async move {
            match reconciling.await {
                Ok(reconciled) => completion.set(reconciled.into()),
                Err(_) => log_limited!(error, "reconcile panicked; retrying"),
            }
        };
        reconciles.spawn(reconcile.instrument(span));
    }
    while reconciles.join_next().await.is_some() {}
}

#[cfg(test)]
mod tests;
