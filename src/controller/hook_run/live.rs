//! The state of a run in progress.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::apply::to_bytes;
use crate::cache::{Cached, CachedHookRun};
use crate::provider::Call;
use gamekeeper_core::api::{HookPhase, HookRunStatus};
use gamekeeper_core::plan::hook_run::{Measured, Rules, assess, is_under_way, next_number};

/// How long a status that only says Running waits for the first result, to share its write.
const RESULT_GRACE: Duration = Duration::from_millis(300);

/// A run under way.
pub(super) struct Live {
    uid: String,
    /// resourceVersion of the newest state that is known.
    version: u64,
    status: HookRunStatus,
    /// What its spec says, and the spec's generation.
    rules: (Option<i64>, Arc<Rules>),
    /// Hash of the status that the API server has.
    saved: u64,
    /// Since when the status differs from that.
    unsaved: Option<Instant>,
    /// Whether that is more than the mark that the run goes on.
    urgent: bool,
    /// Whether the last write failed. Nothing is measured then that could not be recorded.
    failing: bool,
    clock: Clock,
    running: Vec<(usize, AbortHandle)>,
    measured: Vec<Measured>,
    /// Measurements that may still be under way although the run has ended.
    stopping: Vec<Call>,
}

/// What to do next for a run.
pub(super) enum RunAction {
    /// Nothing: the run has ended.
    Over,
    /// Wait for a change, or until this time.
    Wait(Option<Instant>),
    /// Write its status, then wait as above.
    Write(Option<Instant>),
}

/// A status on its way to the API server.
pub(super) struct StatusPatch {
    pub uid: String,
    /// The whole patch. Its resourceVersion makes it fail if anything about the run has changed
    /// that was not seen yet, a new `terminate` for example.
    pub body: Vec<u8>,
    /// Hash of the status in it.
    pub hash: u64,
}

impl Live {
    /// Takes a run up from its status.
    pub(super) fn take_up(run: &CachedHookRun, rules: Arc<Rules>, now: Timestamp) -> Self {
        let status = run.object.status.clone().unwrap_or_default();
        Live {
            uid: run.uid().to_owned(),
            version: run.version(),
            rules: (run.object.metadata.generation, rules),
            saved: hash(&status),
            unsaved: None,
            urgent: false,
            failing: false,
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

    /// The rules of a run, where they are known for its spec as it is now.
    pub(super) fn rules(&self, run: &CachedHookRun) -> Option<Arc<Rules>> {
        let (generation, rules) = &self.rules;
        let known = self.uid == run.uid() && *generation == run.object.metadata.generation;
        known.then(|| Arc::clone(rules))
    }

    /// Takes in what the cache shows, if it is newer than what is known.
    pub(super) fn observe(&mut self, run: &CachedHookRun, rules: Arc<Rules>) {
        self.rules = (run.object.metadata.generation, rules);
        if run.version() <= self.version {
            return;
        }
        self.version = run.version();
        self.failing = false;
        let shown = run.object.status.clone().unwrap_or_default();
        let shown_hash = hash(&shown);
        if shown_hash == self.saved {
            return;
        }
        self.saved = shown_hash;
        if shown_hash != hash(&self.status) {
            // Another client has written it; that status counts.
            self.status = shown;
        }
        // Else it is our own write, whose answer was lost.
        self.unsaved = None;
        self.urgent = false;
    }

    /// Assesses the run; `start` starts a measurement at a time.
    pub(super) fn advance(
        &mut self,
        run: &CachedHookRun,
        mut start: impl FnMut(Call, Timestamp) -> AbortHandle,
    ) -> RunAction {
        let now = self.clock.now();
        let spec = &run.object.spec;
        let measured = std::mem::take(&mut self.measured);
        self.running
            .retain(|(metric, _)| measured.iter().all(|ended| ended.metric != *metric));
        let running: BTreeSet<usize> = self.running.iter().map(|(metric, _)| *metric).collect();
        let next = assess(spec, &self.rules.1, &self.status, &measured, &running, now);
        if next.status != self.status {
            self.unsaved.get_or_insert_with(Instant::now);
            self.urgent |= !measured.is_empty() || next.status.phase.is_completed();
            self.status = next.status;
        }
        let call = |status: &HookRunStatus, metric: usize| Call {
            run: Arc::clone(&run.object),
            metric,
            number: next_number(status, &spec.metrics[metric]),
            resumed: is_under_way(status, &spec.metrics[metric]),
        };
        let left = next
            .stop
            .into_iter()
            .map(|metric| call(&self.status, metric));
        self.stopping.extend(left);
        if self.status.phase.is_completed() {
            self.end_calls();
            if self.unsaved.is_none() {
                // A cache that lags would have the run taken up again, so it is waited for.
                let seen = run.version() >= self.version;
                return if seen {
                    RunAction::Over
                } else {
                    RunAction::Wait(None)
                };
            }
        } else if !self.failing {
            for metric in next.start {
                let handle = start(call(&self.status, metric), now);
                self.running.push((metric, handle));
            }
        }
        self.write_or_wait(next.wake.map(|wake| self.clock.instant(wake)))
    }

    fn write_or_wait(&self, wake: Option<Instant>) -> RunAction {
        match self.unsaved {
            None => RunAction::Wait(wake),
            Some(since) if !self.urgent && since.elapsed() < RESULT_GRACE => {
                let due = since + RESULT_GRACE;
                RunAction::Wait(Some(wake.map_or(due, |wake| wake.min(due))))
            }
            Some(_) => RunAction::Write(wake),
        }
    }

    /// Takes what is to be stopped before the run's end is written.
    pub(super) fn take_stopping(&mut self) -> Vec<Call> {
        std::mem::take(&mut self.stopping)
    }

    /// Puts back what could not be stopped.
    pub(super) fn stop_later(&mut self, calls: Vec<Call>) {
        self.stopping.extend(calls);
    }

    /// The status as it is to be written.
    pub(super) fn status_patch(&self) -> StatusPatch {
        let body = to_bytes(&json!({
            "metadata": {"uid": self.uid, "resourceVersion": self.version.to_string()},
            "status": self.status,
        }));
        StatusPatch {
            uid: self.uid.clone(),
            body,
            hash: hash(&self.status),
        }
    }

    /// Notes a measurement that has ended, unless it was made for another run of the same name.
    pub(super) fn measured(
        &mut self,
        uid: Option<&str>,
        measured: impl FnOnce(Timestamp) -> Measured,
    ) {
        if uid == Some(&self.uid) {
            self.measured.push(measured(self.clock.now()));
        }
    }

    /// Notes that a status was written; tells whether measurements were held up until then.
    pub(super) fn written(&mut self, version: u64, hash: u64) -> bool {
        self.version = self.version.max(version);
        self.saved = hash;
        self.unsaved = None;
        self.urgent = false;
        std::mem::take(&mut self.failing)
    }

    /// How the run ended, and how long it took, once it has.
    pub(super) fn end(&self) -> Option<(HookPhase, Duration)> {
        let HookRunStatus {
            phase,
            started_at,
            finished_at,
            ..
        } = &self.status;
        let took = match (started_at, finished_at) {
            (Some(started), Some(finished)) => finished.0.duration_since(started.0),
            _ => SignedDuration::ZERO,
        };
        phase
            .is_completed()
            .then(|| (*phase, Duration::try_from(took).unwrap_or_default()))
    }

    /// Notes that the API server did not take, or perhaps not even get, a status.
    pub(super) fn not_written(&mut self) {
        self.failing = true;
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

/// Hash of a status as it is written, which leaves out what only memory holds.
fn hash(status: &HookRunStatus) -> u64 {
    let mut hasher = DefaultHasher::new();
    to_bytes(status).hash(&mut hasher);
    hasher.finish()
}

/// The latest time that a status names.
fn newest(status: &HookRunStatus) -> Option<Timestamp> {
    let measurements = status
        .metric_results
        .iter()
        .flat_map(|result| &result.measurements);
    measurements
        .filter_map(|measurement| measurement.finished_at.as_ref())
        .chain(&status.started_at)
        .map(|time| time.0)
        .max()
}

/// The time within one run: the wall clock where it is taken up, then as much later as has really
/// passed. So a step of the wall clock neither skips an interval nor stretches one, and times in a
/// status never run backwards.
struct Clock {
    base: Timestamp,
    since: Instant,
}

impl Clock {
    fn not_before(earliest: Option<Timestamp>, now: Timestamp) -> Self {
        Clock {
            base: earliest.map_or(now, |earliest| earliest.max(now)),
            since: Instant::now(),
        }
    }

    fn now(&self) -> Timestamp {
        let passed = SignedDuration::try_from(self.since.elapsed()).unwrap_or_default();
        self.base.checked_add(passed).unwrap_or(Timestamp::MAX)
    }

    /// When this clock shows a time.
    fn instant(&self, at: Timestamp) -> Instant {
        let ahead = Duration::try_from(at.duration_since(self.base)).unwrap_or_default();
        self.since
            .checked_add(ahead)
            .unwrap_or_else(|| self.since + Duration::from_secs(86_400))
    }
}
