//! The controller of HookRuns: many runs at the same time, each with its own timers and calls.
//!
//! A run is reconciled when it changes, when one of its measurements ends, and when a timer is due; nothing
//! is polled. The run's state in memory ([`Live`]) is ahead of the cache by our own last write and by unwritten
//! measurements, so no measurement is repeated because of a stale cache. A run that has no `Live` is resumed from its
//! status, as after a restart.

mod live;
mod live_runs;
mod metrics;
#[cfg(test)]
mod tests;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use jiff::Timestamp;
use kube::ResourceExt;
use serde_json::json;
use tokio::time::Instant;
use tracing::debug;

use self::live::{Live, RunAction, StatusPatch};
use self::live_runs::LiveRuns;
pub(crate) use self::metrics::{HookMetrics, RunOwner, point};
use super::UnreadableReporter;
use super::refused::requeue_after;
use crate::kinds::{Cache, CachedHookRun};
use crate::provider::{Call, Probe};
use crate::runtime::fair::{ByteRate, Capacity, NamespaceLimiter};
use crate::runtime::log_limiter::log_limited;
use crate::runtime::objects::{Kind, ObjectKey};
use crate::runtime::queue::{Queue, Requeue};
use crate::runtime::request::{
    Content, Refusal, RequestResult, Requests, ResponseMetadata, to_bytes,
};
use crate::runtime::store::Cached;
use gamekeeper_core::api::{HookRun, HookRunStatus, names};
use gamekeeper_core::hook_run::{Measured, Outcome, Rules, expires_at};

pub(crate) struct HookRuns {
    cache: Arc<Cache>,
    requests: Requests,
    unreadable: UnreadableReporter,
    probe: Probe,
    /// The queue of this controller. A run is added when one of its measurements ends.
    queue: Arc<Queue>,
    metrics: HookMetrics,
    runs: LiveRuns,
    /// Limits status writes. The limit on reconciles is much higher, so the start of a measurement does
    /// not wait for writes of other runs.
    writes: NamespaceLimiter,
    /// Limits what status writes add to etcd. The end of a run is counted, but not delayed.
    written_bytes: ByteRate,
}

/// The limits on concurrent status writes.
const WRITE_CAPACITY: Capacity = Capacity { shared: 64, per_namespace: 48, reserved: 4 };
/// How many bytes of HookRuns are written per second and namespace, and how many at once. With each status, etcd stores
/// the whole object again, and keeps all versions for up to ten minutes.
const BYTES_PER_SECOND: u64 = 1 << 20;
const BURST_BYTES: u64 = 16 << 20;
/// The longest wait for a run to expire. Then the run is reconciled again.
const MAX_WAIT: Duration = Duration::from_secs(86_400);

impl HookRuns {
    pub(crate) fn new(
        cache: Arc<Cache>,
        requests: Requests,
        unreadable: UnreadableReporter,
        probe: Probe,
        queue: Arc<Queue>,
        metrics: HookMetrics,
    ) -> Self {
        Self {
            cache,
            requests,
            unreadable,
            probe,
            queue,
            metrics,
            runs: LiveRuns::default(),
            writes: NamespaceLimiter::new(WRITE_CAPACITY),
            written_bytes: ByteRate::new(BYTES_PER_SECOND, BURST_BYTES),
        }
    }

    /// Reconciles one run: starts the measurements that are due, and writes the status if it has changed.
    pub(crate) async fn reconcile(self: Arc<Self>, key: ObjectKey) -> Requeue {
        let start = Instant::now();
        if let Some(unreadable) = self.cache.hook_runs.unreadable(&key) {
            self.runs.remove(&key);
            let _permit = self.writes.take(&key.namespace).await;
            return self.unreadable.report(Kind::HookRun, &key, &unreadable).await;
        }
        let run = self.cache.hook_run(&key);
        let next = match self.advance(&key) {
            RunAction::Over => self.expire(&key).await,
            RunAction::Wait(wake) => Requeue::Settled(wake),
            RunAction::Write(_) => {
                self.wait_for_bytes(&key).await;
                let _permit = self.writes.take(&key.namespace).await;
                // Results that arrived during the wait share this write.
                match self.advance(&key) {
                    RunAction::Over => Requeue::Settled(None),
                    RunAction::Wait(wake) => Requeue::Settled(wake),
                    RunAction::Write(wake) => Box::pin(self.write(&key, wake)).await,
                }
            }
        };
        if let Some(run) = run {
            let is_success = !matches!(next, Requeue::Retry(_));
            self.metrics.reconciled(self.owner(&run.object), is_success, start.elapsed());
        }
        next
    }

    /// Deletes a run when its time to live has passed.
    async fn expire(&self, key: &ObjectKey) -> Requeue {
        let run = self.cache.hook_runs.get(key).filter(|it| !it.terminating());
        let expiring = run.and_then(|run| Some((expires_at(&run.object)?, run)));
        let Some((at, run)) = expiring else {
            return Requeue::Settled(None);
        };
        let left = at.duration_since(Timestamp::now());
        if left.is_positive() {
            let left = Duration::try_from(left).unwrap_or_default().min(MAX_WAIT);
            return Requeue::Settled(Some(Instant::now() + left));
        }
        let _permit = self.writes.take(&key.namespace).await;
        match self.requests.delete(&path(key), run.uid(), None).await {
            Ok(_) | Err(Refusal::NotFound(_) | Refusal::Conflict(_)) => Requeue::Settled(None),
            Err(refusal) => {
                log_limited!(warn, run = %key, %refusal, "cannot delete the HookRun; retrying");
                requeue_after(&refusal)
            }
        }
    }

    /// Forgets all runs and ends their calls, because another process may be leading.
    pub(crate) fn abandon(&self) {
        self.runs.clear();
    }

    /// Waits until the namespace may write the status of this run.
    async fn wait_for_bytes(&self, key: &ObjectKey) {
        let written = self.runs.visit(key, |live| (live.write_size(), live.has_ended()));
        let Some((bytes, has_ended)) = written else {
            return;
        };
        match has_ended {
            true => self.written_bytes.count(&key.namespace, bytes),
            false => self.written_bytes.take(&key.namespace, bytes).await,
        }
    }

    /// Updates the state of a run, and starts the measurements that are due.
    fn advance(self: &Arc<Self>, key: &ObjectKey) -> RunAction {
        let run = self.cache.hook_run(key);
        let Some(run) = run.filter(|run| !run.terminating()) else {
            self.runs.remove(key);
            return RunAction::Over;
        };
        let known = self.runs.visit(key, |live| live.rules(&run)).flatten();
        let rules = known.unwrap_or_else(|| Arc::new(Rules::of(&run.object.spec)));
        let is_other = |live: &mut Live| live.uid() != run.uid();
        if self.runs.visit(key, is_other) == Some(true) {
            // A new run with the same name: the measurements of the old one are void.
            self.runs.remove(key);
        }
        let resume = || Live::resume(&run, Arc::clone(&rules), Timestamp::now());
        let action = self.runs.visit_or_add(key, resume, |live| {
            live.observe(&run, Arc::clone(&rules));
            live.advance(&run, |call, started| {
                let measuring = Arc::clone(self).measure(key.clone(), call, started);
                tokio::spawn(measuring).abort_handle()
            })
        });
        if matches!(action, RunAction::Over) {
            self.runs.remove(key);
        }
        action
    }

    /// Makes a measurement, then adds its run to the queue.
    async fn measure(self: Arc<Self>, key: ObjectKey, call: Call, started: Timestamp) {
        let start = Instant::now();
        let measured = AssertUnwindSafe(self.probe.measure(&call)).catch_unwind().await;
        let outcome =
            measured.unwrap_or_else(|_| Outcome::error("internal error (bug in gamekeeper)"));
        debug!(run = %key, call.number, ?outcome, "measured");
        let metric = &call.run.spec.metrics[call.metric].name;
        let took = start.elapsed();
        self.metrics.measured(self.owner(&call.run), metric, outcome.phase, took);
        self.runs.visit(&key, |live| {
            live.record_measurement(call.run.metadata.uid.as_deref(), |finished| Measured {
                metric: call.metric,
                started,
                finished,
                outcome,
            });
        });
        self.queue.add(key);
    }

    async fn write(&self, key: &ObjectKey, wake: Option<Instant>) -> Requeue {
        if !self.stop_measurements(key).await {
            return Requeue::Retry(None);
        }
        let Some(status_patch) = self.runs.visit(key, |live| live.status_patch()) else {
            return Requeue::Settled(None);
        };
        let StatusPatch { uid, status, body, hash } = status_patch;
        // Another run may have this name by now. The status must not be written to that run.
        let unstored = self.cache.unstored_runs.get(key);
        let unstored = unstored.filter(|run| run.uid() == uid);
        let written = match unstored {
            Some(run) => self.store_in_memory(&run, status).await,
            None => {
                let path = format!("{}/status", path(key));
                self.requests.patch(&path, Content::MergePatch, body).await
            }
        };
        let of_this_run = |live: &mut Live| live.uid() == uid;
        if self.runs.visit(key, of_this_run) != Some(true) {
            return Requeue::Settled(None);
        }
        match written {
            Ok(written) => {
                let recorded = self.runs.visit(key, |live| {
                    (live.record_write(written.version(), hash), live.take_end())
                });
                let (measurements_wait, ended) = recorded.unwrap_or_default();
                if let Some((phase, took)) = ended
                    && let Some(run) = self.cache.hook_run(key)
                {
                    let run_owner = self.owner(&run.object);
                    self.metrics.ended(run_owner, &run.object, phase, took);
                }
                match measurements_wait {
                    true => Requeue::Now,
                    false => Requeue::Settled(wake),
                }
            }
            Err(Refusal::NotFound(_)) => {
                self.runs.remove(key);
                Requeue::Settled(None)
            }
            Err(Refusal::Conflict(message)) => {
                debug!(run = %key, message, "the object has changed; reconciling again");
                Requeue::Conflict
            }
            Err(refusal) => {
                log_limited!(warn, run = %key, %refusal, "cannot write the status; retrying");
                self.runs.visit(key, Live::record_failed_write);
                match refusal {
                    Refusal::Busy { after, .. } | Refusal::Unavailable { after, .. } => {
                        Requeue::Retry(after)
                    }
                    Refusal::Late => Requeue::Conflict,
                    refusal => {
                        self.runs.visit(key, |live| live.record_refusal(refusal.to_string()));
                        Requeue::Now
                    }
                }
            }
        }
    }

    /// Sets the status of a run that the API server does not store. If the run has ended, its result is first written
    /// to its pod, for users and the audit log.
    async fn store_in_memory(&self, run: &CachedHookRun, status: HookRunStatus) -> RequestResult {
        let namespace = run.namespace();
        let pod_uid = run.object.annotations().get(names::RUN_POD_UID);
        if let (true, Some(uid)) = (status.phase.is_completed(), pod_uid) {
            let pods = self.cache.pods.store().controlled_by(namespace, run.controller());
            if let Some(pod) = pods.iter().find(|pod| pod.uid() == uid) {
                let path = Kind::Pod.path(namespace, pod.name());
                let result = json!({
                    "hookRun": run.name(),
                    "phase": status.phase,
                    "message": status.message,
                    "finishedAt": status.finished_at,
                });
                let body = json!({"metadata": {
                    "uid": uid,
                    "annotations": {names::HOOK_RESULT_ANNOTATION: result.to_string()},
                }});
                let content = Content::StrategicPatch;
                match self.requests.patch(&path, content, to_bytes(&body)).await {
                    // The pod is gone, and so is the reason for the run.
                    Ok(_) | Err(Refusal::NotFound(_) | Refusal::Conflict(_)) => {}
                    Err(refusal) => return Err(refusal),
                }
            }
        }
        let runs = &self.cache.unstored_runs;
        runs.set_status(&run.key(), run.uid(), status);
        Ok(ResponseMetadata::default())
    }

    /// Stops the remaining measurements of a run; false if one cannot be stopped. They must be
    /// stopped before the run's end is written: afterwards, a restarted operator would not know of them.
    async fn stop_measurements(&self, key: &ObjectKey) -> bool {
        let Some(mut calls) = self.runs.visit(key, Live::take_stopping) else {
            return true;
        };
        while let Some(call) = calls.last() {
            if let Err(why) = self.probe.stop(call).await {
                log_limited!(warn, run = %key, why, "cannot stop a measurement; retrying");
                self.runs.visit(key, |live| live.stop_later(calls));
                return false;
            }
            calls.pop();
        }
        true
    }

    fn owner(&self, run: &HookRun) -> RunOwner {
        RunOwner::of(run, |kind, namespace, owner| {
            self.cache.has_workload(kind, namespace, &owner.name, &owner.uid)
        })
    }
}

fn path(key: &ObjectKey) -> String {
    Kind::HookRun.path(&key.namespace, &key.name)
}
