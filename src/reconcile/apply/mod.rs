//! Applies plans: makes every write for a workload.
//!
//! A plan is based on observed objects, so each write has preconditions on these objects. After a conflict the
//! workload is planned again; the write itself is never retried. Start at [`Applier::carry_out`].

mod act;
mod batch;
mod budgets;
pub(crate) mod events;
mod metrics;
mod proof;
mod repeats;
mod run;
mod trial;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;
use tracing::debug;

use self::events::PendingEvent;
use crate::runtime::log_limiter::log_limited;
use crate::runtime::queue::Requeue;
use crate::runtime::request::Requests;
use gamekeeper_core::api::HookRun;
use gamekeeper_core::write::{Event, Outcome, Owner};

pub(crate) use metrics::{BUCKETS, Metrics, ResultLabel, WorkloadLabels};
use proof::AdaptiveTimeout;
#[cfg(test)]
pub(crate) use proof::PROOF_LIFETIME;
use repeats::Repeats;

/// The object of a plan, as it was when the plan was made.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// Its resourceVersion is updated after each of our own writes to the object.
    pub owner: Owner,
    /// If it changes, the plan is void.
    pub generation: i64,
    /// Whether the object is being deleted. Its finalizer keeps it until the operator has finished.
    pub deleting: bool,
    /// Whether a hook runs before the workload's pods are deleted or updated.
    pub hooked: bool,
    /// When the cache was read for the plan.
    pub read_at: Instant,
}

/// What the loop remembers about an object between its plans, whatever its kind: how often it is written, and how long
/// the API server takes.
#[derive(Debug)]
pub(crate) struct Pace {
    /// When a status that no decision depends on may be written again.
    pub status_due: Option<Instant>,
    pub proof_timeout: AdaptiveTimeout,
    pub planning_timeout: AdaptiveTimeout,
    /// The last writes, so that none is repeated without end.
    pub repeats: Repeats,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            status_due: None,
            proof_timeout: AdaptiveTimeout::new(proof::PROOF_LIFETIME),
            planning_timeout: AdaptiveTimeout::new(proof::PLAN_LIFETIME),
            repeats: Repeats::default(),
        }
    }
}

/// The result of applying a plan.
#[derive(Debug)]
pub(crate) struct Report {
    pub outcome: Outcome,
    /// When a delayed status may be written.
    pub status_due: Option<Instant>,
}

impl Report {
    /// When the object is reconciled again, at `wake` at the latest.
    pub(crate) fn requeue(self, wake: Option<Instant>) -> Requeue {
        match self.outcome {
            Outcome::Done => Requeue::Settled([wake, self.status_due].into_iter().flatten().min()),
            Outcome::Unfinished => Requeue::Now,
            Outcome::Conflict(message) => {
                debug!(message, "the object has changed; planning again");
                Requeue::Conflict
            }
            Outcome::Failed { message, after } => {
                log_limited!(warn, message, "request failed; retrying");
                Requeue::Retry(after)
            }
        }
    }
}

/// Converts a time of the wall clock to the monotonic clock.
pub(crate) fn instant(at: Timestamp, now: Timestamp) -> Instant {
    let ahead = Duration::try_from(at.duration_since(now)).unwrap_or_default();
    // It is better to wake a little late than too early, when there would be nothing to do yet.
    Instant::now() + ahead.max(Duration::from_millis(10))
}

/// Receives HookRuns that the API server does not store, because their namespace is being deleted. Returns whether a run is
/// kept.
pub(crate) type KeepUnstored = Arc<dyn Fn(HookRun) -> bool + Send + Sync>;

#[derive(Clone)]
pub(crate) struct Applier {
    requests: Requests,
    events: events::EventRecorder,
    metrics: Metrics,
    keep_unstored: KeepUnstored,
}

impl Applier {
    pub(crate) fn new(
        requests: Requests,
        events: events::EventRecorder,
        metrics: Metrics,
        keep_unstored: KeepUnstored,
    ) -> Self {
        Self { requests, events, metrics, keep_unstored }
    }

    /// Publishes an event that no write causes.
    pub(crate) fn tell(&self, target: &Target, event: Event) {
        self.events.publish(target, PendingEvent::Plain(event));
    }
}

#[cfg(test)]
mod tests;
