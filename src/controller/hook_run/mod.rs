//! The controller of HookRuns: many runs at once, each with its own timers and calls.
//!
//! A run is looked at when it changes, when one of its measurements ends and when its time comes;
//! nothing is polled. What is known of it ([`Live`]) is ahead of the cache by our own last write
//! and by measurements that are not written yet, so no measurement is repeated because of a cache
//! that lags. A run without a `Live` is taken up from its status, which is how a restart goes on.

mod live;
mod metrics;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use jiff::Timestamp;
use tokio::time::Instant;
use tracing::{debug, warn};

use self::live::{Draft, Live, Step};
pub use self::metrics::{HookMetrics, Owner, point};
use super::queue::{Next, Queue};
use crate::apply::{Content, Refusal, Requests};
use crate::cache::{Cache, Cached, ObjectKey};
use crate::fair::{Capacity, NamespaceLimiter};
use crate::provider::{Call, Probe};
use gamekeeper_core::api::{GROUP, HookRun, VERSION};
use gamekeeper_core::plan::hook_run::{Measured, Outcome, Rules, expires};

/// Looks at HookRuns.
pub struct HookRuns {
    cache: Arc<Cache>,
    requests: Requests,
    probe: Probe,
    /// Where runs are put whose measurement has ended.
    queue: Arc<Queue>,
    metrics: HookMetrics,
    runs: Mutex<HashMap<ObjectKey, Live>>,
    /// Status writes under way. Looks are many more, so that the start of a measurement does not
    /// wait for other runs' writes.
    writes: NamespaceLimiter,
}

/// Status writes at a time.
const WRITE_CAPACITY: Capacity = Capacity {
    shared: 64,
    per_namespace: 48,
    reserved: 4,
};
/// After so long at the latest, a run that will expire is looked at again.
const LONGEST_WAIT: Duration = Duration::from_secs(86_400);

impl HookRuns {
    /// A controller that knows of no run yet.
    pub fn new(
        cache: Arc<Cache>,
        requests: Requests,
        probe: Probe,
        queue: Arc<Queue>,
        metrics: HookMetrics,
    ) -> Self {
        Self {
            cache,
            requests,
            probe,
            queue,
            metrics,
            runs: Mutex::default(),
            writes: NamespaceLimiter::new(WRITE_CAPACITY),
        }
    }

    /// Looks at one run: starts what is due, and writes its status if it changed.
    pub async fn look(self: Arc<Self>, key: ObjectKey) -> Next {
        let begun = Instant::now();
        let run = self.cache.hook_runs.get(&key);
        let next = match self.step(&key) {
            Step::Over => self.expire(&key).await,
            Step::Wait(wake) => Next::Settled(wake),
            Step::Write(_) => {
                let _permit = self.writes.take(&key.namespace).await;
                // While others wrote, more may have happened: it shares the write.
                match self.step(&key) {
                    Step::Over => Next::Settled(None),
                    Step::Wait(wake) => Next::Settled(wake),
                    Step::Write(wake) => Box::pin(self.write(&key, wake)).await,
                }
            }
        };
        if let Some(run) = run {
            let well = !matches!(next, Next::Retry(_));
            self.metrics
                .looked(self.owner(&run.object), well, begun.elapsed());
        }
        next
    }

    /// Deletes a run that has ended once it has been kept long enough.
    async fn expire(&self, key: &ObjectKey) -> Next {
        let run = self.cache.hook_runs.get(key).filter(|it| !it.terminating());
        let expiring = run.and_then(|run| Some((expires(&run.object)?, run)));
        let Some((at, run)) = expiring else {
            return Next::Settled(None);
        };
        let left = at.duration_since(Timestamp::now());
        if left.is_positive() {
            let left = Duration::try_from(left)
                .unwrap_or_default()
                .min(LONGEST_WAIT);
            return Next::Settled(Some(Instant::now() + left));
        }
        let _permit = self.writes.take(&key.namespace).await;
        match self.requests.delete(&path(key), run.uid()).await {
            Ok(_) | Err(Refusal::NotFound(_) | Refusal::Conflict(_)) => Next::Settled(None),
            Err(refusal) => {
                warn!(run = %key, %refusal, "it is not deleted; trying again later");
                later(refusal)
            }
        }
    }

    /// Gives up all runs and ends their calls: another process may have taken over.
    pub fn abandon(&self) {
        self.runs().clear();
    }

    /// Brings what is known of a run up to date, and starts the measurements that are due.
    fn step(self: &Arc<Self>, key: &ObjectKey) -> Step {
        let run = self.cache.hook_runs.get(key);
        let Some(run) = run.filter(|run| !run.terminating()) else {
            self.runs().remove(key);
            return Step::Over;
        };
        let known = self.runs().get(key).and_then(|live| live.rules(&run));
        // They may take a while to read, and nobody else's run waits for that.
        let rules = known.unwrap_or_else(|| Arc::new(Rules::of(&run.object.spec)));
        let mut runs = self.runs();
        if runs.get(key).is_some_and(|live| live.uid() != run.uid()) {
            // Another run of the same name: what was measured for the old one is void.
            runs.remove(key);
        }
        let live = runs
            .entry(key.clone())
            .or_insert_with(|| Live::take_up(&run, Arc::clone(&rules), Timestamp::now()));
        live.observe(&run, rules);
        let step = live.step(&run, |call, started| {
            let measuring = Arc::clone(self).measure(key.clone(), call, started);
            tokio::spawn(measuring).abort_handle()
        });
        if matches!(step, Step::Over) {
            runs.remove(key);
        }
        step
    }

    /// Makes a measurement, and has its run looked at.
    async fn measure(self: Arc<Self>, key: ObjectKey, call: Call, started: Timestamp) {
        let begun = Instant::now();
        let measured = AssertUnwindSafe(self.probe.measure(&call))
            .catch_unwind()
            .await;
        let outcome = measured.unwrap_or_else(|_| {
            Outcome::error("the measurement failed inside: this is a mistake in gamekeeper")
        });
        debug!(run = %key, call.number, ?outcome, "measured");
        let metric = &call.run.spec.metrics[call.metric].name;
        let took = begun.elapsed();
        self.metrics
            .measured(self.owner(&call.run), metric, outcome.phase, took);
        if let Some(live) = self.runs().get_mut(&key) {
            live.measured(call.run.metadata.uid.as_deref(), |finished| Measured {
                metric: call.metric,
                started,
                finished,
                outcome,
            });
        }
        self.queue.add(key);
    }

    /// Writes the status.
    async fn write(&self, key: &ObjectKey, wake: Option<Instant>) -> Next {
        if !self.stop_what_is_left(key).await {
            return Next::Retry(None);
        }
        let Some(draft) = self.runs().get(key).map(Live::draft) else {
            return Next::Settled(None);
        };
        let path = format!("{}/status", path(key));
        let Draft { uid, body, hash } = draft;
        let answer = self.requests.patch(&path, Content::MergePatch, body).await;
        let mut runs = self.runs();
        let Some(live) = runs.get_mut(key).filter(|live| live.uid() == uid) else {
            return Next::Settled(None);
        };
        match answer {
            Ok(answer) => {
                let held_up = live.written(answer.version(), hash);
                if let Some((phase, took)) = live.end()
                    && let Some(run) = self.cache.hook_runs.get(key)
                {
                    let of = self.owner(&run.object);
                    self.metrics.ended(of, &run.object, phase, took);
                }
                match held_up {
                    true => Next::Now,
                    false => Next::Settled(wake),
                }
            }
            Err(Refusal::NotFound(_)) => {
                runs.remove(key);
                Next::Settled(None)
            }
            Err(Refusal::Conflict(message)) => {
                debug!(run = %key, message, "changed meanwhile; looking again");
                Next::Again
            }
            Err(refusal) => {
                warn!(run = %key, %refusal, "the status is not written; trying again later");
                live.not_written();
                later(refusal)
            }
        }
    }

    /// Ends measurements that a run has left under way, before its end is written: after that nobody
    /// would remember them.
    async fn stop_what_is_left(&self, key: &ObjectKey) -> bool {
        let mut calls = match self.runs().get_mut(key) {
            Some(live) => live.take_stopping(),
            None => return true,
        };
        while let Some(call) = calls.last() {
            if let Err(why) = self.probe.stop(call).await {
                warn!(run = %key, why, "a measurement is not stopped; trying again later");
                if let Some(live) = self.runs().get_mut(key) {
                    live.stop_later(calls);
                }
                return false;
            }
            calls.pop();
        }
        true
    }

    fn owner(&self, run: &HookRun) -> Owner {
        Owner::of(run, |kind, namespace, owner| {
            self.cache
                .has_workload(kind, namespace, &owner.name, &owner.uid)
        })
    }

    fn runs(&self) -> MutexGuard<'_, HashMap<ObjectKey, Live>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn path(key: &ObjectKey) -> String {
    let ObjectKey { namespace, name } = key;
    format!("/apis/{GROUP}/{VERSION}/namespaces/{namespace}/hookruns/{name}")
}

/// When to try again what was refused.
fn later(refusal: Refusal) -> Next {
    match refusal {
        Refusal::Busy { after, .. } | Refusal::Unavailable { after, .. } => Next::Retry(after),
        _ => Next::Retry(None),
    }
}
