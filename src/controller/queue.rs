//! The queue of a controller: which objects must be looked at, and when.
//!
//! What it promises: an object is looked at by one worker at a time; whatever happens to it while
//! it is looked at makes it be looked at once more; however often it is added, it waits once; what
//! happens in a burst is looked at together; a failed look is repeated after a pause that grows with
//! each failure in a row; and the objects of one namespace keep those of no other one waiting, however
//! many they are and however long a look at them takes.
//!
//! Why not kube's Controller: a panic ends it, its backoff has no memory, and deletions never
//! reach it.

mod figures;

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
use tracing::{Instrument, error, error_span};

use self::figures::Figures;
use crate::cache::ObjectKey;
use crate::fair::{Capacity, NamespaceLimiter, Permit, RoundRobin};

pub use figures::Queues;

const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// A failed object is looked at again after this long at the latest when something happens to it.
const PATIENCE: Duration = Duration::from_secs(1);

/// However late a server wants to be asked again.
const LATEST: Duration = Duration::from_secs(300);

/// From the end of a look to the next one that something happening causes, at least: a thousand pods
/// that change in a second are no thousand looks.
const REST: Duration = Duration::from_millis(20);
/// How many times as long as its last plan took to make an object rests: ten thousand pods that change
/// all the time take at most a fifth of a core for planning.
const REST_BY_PLANNING: u32 = 4;
/// However long that took.
const LONGEST_REST: Duration = Duration::from_secs(1);

/// When an object is to be looked at next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// When something happens to it, or at this moment.
    Settled(Option<Instant>),
    /// At once: there is more to do.
    Now,
    /// After a pause, because something failed; when the server named a pause, not before it is over.
    Retry(Option<Duration>),
    /// After the same pause, because the world had moved on, which is no failure.
    Again,
}

/// How a look ended.
#[derive(Clone, Copy, Debug)]
pub struct Looked {
    /// When to look next.
    pub next: Next,
    /// How much processor time went into deciding what to do.
    pub planning: Duration,
}

impl From<Next> for Looked {
    /// A look that took no time to speak of.
    fn from(next: Next) -> Self {
        Self {
            next,
            planning: Duration::ZERO,
        }
    }
}

impl Looked {
    /// How long its object is left alone after it.
    fn rest(&self, least: Duration) -> Duration {
        let share = self.planning.saturating_mul(REST_BY_PLANNING);
        share.clamp(least, LONGEST_REST)
    }
}

/// Keys to look at.
pub struct Queue {
    state: Mutex<State>,
    changed: Notify,
    /// Looks under way.
    limiter: NamespaceLimiter,
}

/// Looks of a queue of which nothing else is said.
const DEFAULT_CAPACITY: Capacity = Capacity {
    shared: 64,
    per_namespace: 48,
    reserved: 4,
};

impl Default for Queue {
    fn default() -> Self {
        Self::new(DEFAULT_CAPACITY)
    }
}

#[derive(Default)]
struct State {
    ready: RoundRobin<ObjectKey>,
    /// The same keys, and since when they wait.
    waiting: HashMap<ObjectKey, Instant>,
    running: HashMap<ObjectKey, Look>,
    timers: BTreeSet<(Instant, ObjectKey)>,
    due: HashMap<ObjectKey, Instant>,
    failed: HashMap<ObjectKey, Failed>,
    /// Keys that were just looked at, and until when they rest.
    resting: HashMap<ObjectKey, Instant>,
    figures: Figures,
}

/// A look under way.
struct Look {
    since: Instant,
    /// Whether something happened to its object meanwhile.
    touched: bool,
    #[expect(dead_code, reason = "held, never read")]
    permit: Permit,
}

#[derive(Clone, Copy)]
struct Failed {
    in_a_row: u32,
    not_before: Instant,
}

impl Queue {
    /// An empty queue with so many looks at a time.
    pub fn new(looks: Capacity) -> Self {
        Self {
            state: Mutex::default(),
            changed: Notify::new(),
            limiter: NamespaceLimiter::new(looks),
        }
    }

    /// Asks that an object be looked at.
    pub fn add(&self, key: ObjectKey) {
        let mut state = self.lock();
        if let Some(look) = state.running.get_mut(&key) {
            look.touched = true;
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

    /// The next object to look at; [`Queue::done`] must follow.
    pub async fn next(&self) -> ObjectKey {
        loop {
            let next_timer = {
                let mut state = self.lock();
                let now = Instant::now();
                state.ring(now);
                if let Some(key) = state.begin(now, &self.limiter) {
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

    /// Tells how the look at an object ended.
    pub fn done(&self, key: ObjectKey, looked: impl Into<Looked>) {
        let looked = looked.into();
        let next = looked.next;
        let mut state = self.lock();
        let now = Instant::now();
        let look = state.running.remove(&key);
        if let Some(look) = &look {
            state.figures.ended(look.since, now, next);
        }
        let touched = look.is_some_and(|look| look.touched);
        state.clear_timer(&key);
        match next {
            Next::Retry(_) | Next::Again => {
                let after = match next {
                    Next::Retry(after) => after,
                    _ => None,
                };
                let in_a_row = state.failed.get(&key).map_or(0, |failed| failed.in_a_row);
                let pause = pause(in_a_row).max(looked.rest(Duration::ZERO));
                let failed = Failed {
                    in_a_row: in_a_row.saturating_add(1),
                    not_before: now + after.map_or(pause.min(PATIENCE), |it| it.min(LATEST)),
                };
                state.failed.insert(key.clone(), failed);
                let at = match touched {
                    true => failed.not_before,
                    false => failed.not_before.max(now + pause),
                };
                state.set_timer(key, at);
            }
            Next::Now => {
                state.failed.remove(&key);
                state.make_ready(key);
            }
            Next::Settled(wake) => {
                let rest = looked.rest(REST);
                state.failed.remove(&key);
                state.resting.retain(|_, until| *until > now);
                state.resting.insert(key.clone(), now + rest);
                let touched = touched.then_some(now + rest);
                if let Some(at) = [touched, wake].into_iter().flatten().min() {
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

/// The pause after so many failures in a row.
fn pause(in_a_row: u32) -> Duration {
    let factor = 2_u32.saturating_pow(in_a_row);
    FIRST_PAUSE.saturating_mul(factor).min(LONGEST_PAUSE)
}

impl State {
    fn make_ready(&mut self, key: ObjectKey) {
        self.clear_timer(&key);
        if let Entry::Vacant(place) = self.waiting.entry(key.clone()) {
            place.insert(Instant::now());
            self.figures.added();
            self.ready.push(&key.namespace.clone(), key);
        }
    }

    /// Begins the look whose turn it is.
    fn begin(&mut self, now: Instant, limiter: &NamespaceLimiter) -> Option<ObjectKey> {
        let (key, permit) = self.ready.pop(|namespace| limiter.try_take(namespace))?;
        let since = self.waiting.remove(&key).unwrap_or(now);
        self.figures.begun(since, now);
        let look = Look {
            since: now,
            touched: false,
            permit,
        };
        self.running.insert(key.clone(), look);
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

    /// Makes ready whose time has come.
    fn ring(&mut self, now: Instant) {
        while let Some((at, _)) = self.timers.first()
            && *at <= now
            && let Some((_, key)) = self.timers.pop_first()
        {
            self.due.remove(&key);
            self.make_ready(key);
        }
    }
}

/// A look under way. However it ends, also when it is aborted, the queue is told.
struct UnderWay {
    queue: Arc<Queue>,
    key: ObjectKey,
    looked: Looked,
}

impl UnderWay {
    fn ended(&mut self, looked: Looked) {
        self.looked = looked;
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.queue.done(self.key.clone(), self.looked);
    }
}

/// Looks at what the queue names until told to stop; then lets those at work finish.
///
/// A panic in one look is a failure of that object alone.
pub async fn work<F, L>(queue: Arc<Queue>, mut stop: watch::Receiver<bool>, look: F)
where
    F: Fn(ObjectKey) -> L,
    L: Future<Output: Into<Looked>> + Send + 'static,
{
    let mut looks = JoinSet::new();
    loop {
        while looks.try_join_next().is_some() {}
        let key = tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => break,
            key = queue.next() => key,
        };
        let span = error_span!("sync", object = %key);
        let looking = AssertUnwindSafe(look(key.clone())).catch_unwind();
        let mut under_way = UnderWay {
            queue: Arc::clone(&queue),
            key,
            looked: Next::Retry(None).into(),
        };
        let look = async move {
            match looking.await {
                Ok(looked) => under_way.ended(looked.into()),
                Err(_) => error!("a sync broke down; it is tried again"),
            }
        };
        looks.spawn(look.instrument(span));
    }
    while looks.join_next().await.is_some() {}
}

#[cfg(test)]
mod tests;
