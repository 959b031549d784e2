//! The state of a run in progress.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::kinds::CachedHookRun;
use crate::provider::Call;
use crate::runtime::request::to_bytes;
use crate::runtime::store::Cached;
use gamekeeper_core::api::{HookPhase, HookRunStatus, JobReference};
use gamekeeper_core::hook_run::{
    Measured, Rules, assess, job_in_progress, next_number, with_verdict,
};
use gamekeeper_core::write::Refused;

/// How long the write of phase Running is delayed, so that the first result can share the write.
const RESULT_GRACE: Duration = Duration::from_millis(300);
/// The least time between two writes, unless the second one is the end of the run.
const WRITE_INTERVAL: Duration = Duration::from_secs(1);

/// A run in progress.
pub(super) struct Live {
    uid: String,
    /// The newest known resourceVersion.
    version: u64,
    status: HookRunStatus,
    /// Whether the end of the run was counted, or the run had ended when it was resumed.
    end_is_counted: bool,
    /// The rules of the spec, and its generation.
    rules: (Option<i64>, Arc<Rules>),
    /// Hash of the status that is stored.
    saved: u64,
    /// Since when the status differs from the stored one.
    unsaved: Option<Instant>,
    /// Whether the unsaved status has a new result or the end of the run. If so, its write is not delayed.
    urgent: bool,
    /// When the last write was made.
    last_write: Option<Instant>,
    /// The size of the spec as JSON, in bytes: it is stored again with each status.
    spec_size: usize,
    /// Whether the last write failed. If so, no measurement starts, because it could not be recorded.
    failing: bool,
    /// The refusals of the last writes.
    refused: Option<Refused>,
    clock: Clock,
    running: Vec<(usize, AbortHandle)>,
    measured: Vec<Measured>,
    /// Measurements that may still be in progress although the run has ended.
    stopping: Vec<Call>,
}

/// What to do next for a run.
pub(super) enum RunAction {
    /// The run has ended.
    Over,
    /// Wait for a change, or until this time.
    Wait(Option<Instant>),
    /// Write the run's status, then wait as above.
    Write(Option<Instant>),
}

/// The write of a status.
pub(super) struct StatusPatch {
    pub uid: String,
    /// The status.
    pub status: HookRunStatus,
    /// The patch. It has a resourceVersion, and thus fails if the run has changed in the meantime, for example
    /// in `terminate`.
    pub body: Vec<u8>,
    /// Hash of the status.
    pub hash: u64,
}

impl Live {
    /// Resumes a run from its status.
    pub(super) fn resume(run: &CachedHookRun, rules: Arc<Rules>, now: Timestamp) -> Self {
        let status = run.object.status.clone().unwrap_or_default();
        Live {
            uid: run.uid().to_owned(),
            version: run.version(),
            rules: (run.object.metadata.generation, rules),
            saved: hash(&status),
            end_is_counted: status.phase.is_completed(),
            unsaved: None,
            urgent: false,
            last_write: None,
            spec_size: to_bytes(&run.object.spec).len(),
            failing: false,
            refused: None,
            clock: Clock::not_before(newest(&status), now),
            running: Vec::new(),
            measured: Vec::new(),
            stopping: Vec::new(),
            status,
        }
    }

    pub(super) fn uid(&self) -> &str {
        &self.uid
    }

    /// The known rules, if they are those of this run's current spec.
    pub(super) fn rules(&self, run: &CachedHookRun) -> Option<Arc<Rules>> {
        let (generation, rules) = &self.rules;
        let known = self.uid == run.uid() && *generation == run.object.metadata.generation;
        known.then(|| Arc::clone(rules))
    }

    /// Takes the rules, and also the status if the cache shows a newer version of the run.
    pub(super) fn observe(&mut self, run: &CachedHookRun, rules: Arc<Rules>) {
        self.rules = (run.object.metadata.generation, rules);
        if run.version() <= self.version {
            return;
        }
        self.version = run.version();
        self.failing = false;
        self.refused = None;
        let shown = run.object.status.clone().unwrap_or_default();
        let shown_hash = hash(&shown);
        if shown_hash == self.saved {
            return;
        }
        self.saved = shown_hash;
        if shown_hash != hash(&self.status) {
            // A write by another client takes precedence.
            self.status = shown;
        }
        // Otherwise it is our own write, whose response was lost.
        self.unsaved = None;
        self.urgent = false;
    }

    /// Assesses the run; `start` starts a measurement.
    pub(super) fn advance(
        &mut self,
        run: &CachedHookRun,
        mut start: impl FnMut(Call, Timestamp) -> AbortHandle,
    ) -> RunAction {
        let now = self.clock.now();
        let spec = &run.object.spec;
        let measured = std::mem::take(&mut self.measured);
        self.running.retain(|(metric, _)| measured.iter().all(|ended| ended.metric != *metric));
        let running: BTreeSet<usize> = self.running.iter().map(|(metric, _)| *metric).collect();
        let (generation, rules) = &self.rules;
        let next = assess(spec, rules, &self.status, &measured, &running, now);
        let status = with_verdict(&self.status, next.status, *generation);
        if status != self.status {
            self.unsaved.get_or_insert_with(Instant::now);
            self.urgent |= !measured.is_empty() || status.phase.is_completed();
            self.status = status;
        }
        let call = |status: &HookRunStatus, metric: usize| Call {
            run: Arc::clone(&run.object),
            metric,
            number: next_number(status, &spec.metrics[metric]),
            job: job_in_progress(status, &spec.metrics[metric]).cloned(),
        };
        let stop = next.stop.into_iter();
        self.stopping.extend(stop.map(|metric| call(&self.status, metric)));
        if self.status.phase.is_completed() {
            self.end_calls();
            if self.unsaved.is_none() {
                // A stale cache would resume the run, so the run is kept until the cache has observed its end.
                return match run.version() >= self.version {
                    true => RunAction::Over,
                    false => RunAction::Wait(None),
                };
            }
        } else if !self.failing {
            for metric in next.start {
                let call = call(&self.status, metric);
                if call.job.is_some() && call.job.as_ref() != stored_job(run, metric) {
                    // The watch delivers the run once the Job is recorded in it.
                    continue;
                }
                self.running.push((metric, start(call, now)));
            }
        }
        self.write_or_wait(next.wake.map(|wake| self.clock.instant(wake)))
    }

    fn write_or_wait(&self, wake: Option<Instant>) -> RunAction {
        let Some(since) = self.unsaved else {
            return RunAction::Wait(wake);
        };
        let grace = (!self.urgent).then(|| since + RESULT_GRACE);
        let next = self.last_write.map(|at| at + WRITE_INTERVAL);
        let due = grace.max(next.filter(|_| !self.has_ended())).max(self.held_until());
        match due.filter(|due| *due > Instant::now()) {
            Some(due) => RunAction::Wait(Some(wake.map_or(due, |wake| wake.min(due)))),
            None => RunAction::Write(wake),
        }
    }

    /// Whether the run has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.status.phase.is_completed()
    }

    /// How many bytes a write of the status adds to etcd.
    pub(super) fn write_size(&self) -> usize {
        self.spec_size + to_bytes(&self.status).len()
    }

    /// The measurements to stop before the run's end is written.
    pub(super) fn take_stopping(&mut self) -> Vec<Call> {
        std::mem::take(&mut self.stopping)
    }

    /// Keeps the measurements that could not be stopped.
    pub(super) fn stop_later(&mut self, calls: Vec<Call>) {
        self.stopping.extend(calls);
    }

    pub(super) fn status_patch(&self) -> StatusPatch {
        let mut body = json!({
            "metadata": {"uid": self.uid, "resourceVersion": self.version.to_string()},
            "status": self.status,
        });
        if self.status.conditions.is_empty() {
            // Removes conditions that were written while the run could not be decoded.
            body["status"]["conditions"] = Value::Null;
        }
        let body = to_bytes(&body);
        StatusPatch {
            uid: self.uid.clone(),
            status: self.status.clone(),
            body,
            hash: hash(&self.status),
        }
    }

    /// Records a measurement, unless it belongs to another run with the same name.
    pub(super) fn record_measurement(
        &mut self,
        uid: Option<&str>,
        measured: impl FnOnce(Timestamp) -> Measured,
    ) {
        if uid == Some(&self.uid) {
            self.measured.push(measured(self.clock.now()));
        }
    }

    /// Records a successful write. Returns whether measurements were waiting for it.
    pub(super) fn record_write(&mut self, version: u64, hash: u64) -> bool {
        self.version = self.version.max(version);
        self.saved = hash;
        self.unsaved = None;
        self.urgent = false;
        self.last_write = Some(Instant::now());
        self.refused = None;
        std::mem::take(&mut self.failing)
    }

    /// The phase in which the run ended, and how long it took; None if it has not ended, or had ended before it was
    /// resumed. Returned once: the status is written again if another client changes it.
    pub(super) fn take_end(&mut self) -> Option<(HookPhase, Duration)> {
        let HookRunStatus { phase, started_at, finished_at, .. } = &self.status;
        let took = match (started_at, finished_at) {
            (Some(started), Some(finished)) => finished.0.duration_since(started.0),
            _ => SignedDuration::ZERO,
        };
        let ended = (*phase, Duration::try_from(took).unwrap_or_default());
        let is_new = phase.is_completed() && !self.end_is_counted;
        self.end_is_counted |= is_new;
        is_new.then_some(ended)
    }

    /// Records a failed write.
    pub(super) fn record_failed_write(&mut self) {
        self.failing = true;
        self.last_write = Some(Instant::now());
    }

    /// Records that the API server refused a write. It is made again after one second, two, four, and so on, or when the
    /// run has changed.
    pub(super) fn record_refusal(&mut self, message: String) {
        self.refused = Some(Refused::after(self.refused.as_ref(), message, self.clock.now()));
    }

    fn held_until(&self) -> Option<Instant> {
        let until = self.refused.as_ref()?.held_until(self.clock.now())?;
        Some(self.clock.instant(until))
    }

    fn end_calls(&mut self) {
        for (_, call) in self.running.drain(..) {
            call.abort();
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.end_calls();
    }
}

/// The Job in progress that the stored status records for a metric.
fn stored_job(run: &CachedHookRun, metric: usize) -> Option<&JobReference> {
    let status = run.object.status.as_ref()?;
    job_in_progress(status, run.object.spec.metrics.get(metric)?)
}

/// Hash of the serialized status.
fn hash(status: &HookRunStatus) -> u64 {
    let mut hasher = DefaultHasher::new();
    to_bytes(status).hash(&mut hasher);
    hasher.finish()
}

/// The latest time in a status.
fn newest(status: &HookRunStatus) -> Option<Timestamp> {
    let measurements = status.metric_results.iter().flat_map(|result| &result.measurements);
    measurements
        .filter_map(|measurement| measurement.finished_at.as_ref())
        .chain(&status.started_at)
        .map(|time| time.0)
        .max()
}

/// The time within one run: the wall clock when the run was started or resumed, plus the monotonic time since then. So
/// the intervals do not change when the wall clock is set, and times in a status never go backward.
struct Clock {
    base: Timestamp,
    since: Instant,
}

impl Clock {
    fn not_before(earliest: Option<Timestamp>, now: Timestamp) -> Self {
        Clock { base: earliest.map_or(now, |earliest| earliest.max(now)), since: Instant::now() }
    }

    fn now(&self) -> Timestamp {
        let passed = SignedDuration::try_from(self.since.elapsed()).unwrap_or_default();
        self.base.checked_add(passed).unwrap_or(Timestamp::MAX)
    }

    /// The instant at which this clock shows the given time.
    fn instant(&self, at: Timestamp) -> Instant {
        let ahead = Duration::try_from(at.duration_since(self.base)).unwrap_or_default();
        self.since.checked_add(ahead).unwrap_or_else(|| self.since + Duration::from_secs(86_400))
    }
}
