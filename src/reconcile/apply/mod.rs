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
mod rehearsals;
mod repeats;
mod run;
mod tally;
mod trial;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;
use tracing::debug;

use self::events::PendingEvent;
use self::tally::Tally;
use crate::runtime::log_limiter::log_limited;
use crate::runtime::queue::Requeue;
use crate::runtime::request::{Refusal, RequestResult, Requests, ResponseMetadata};
use gamekeeper_core::api::HookRun;
use gamekeeper_core::workload::{
    Backoff, Failures, GuardState, GuardedPlayers, OtherBudget, Verdict,
};
use gamekeeper_core::write::{Attempt, Event, Owner, Rehearsal, Write};

pub(crate) use metrics::{BUCKETS, Metrics, ResultLabel, WorkloadLabels};
use proof::AdaptiveTimeout;
#[cfg(test)]
pub(crate) use proof::PROOF_LIFETIME;
pub(crate) use rehearsals::Rehearsals;
use repeats::Repeats;

/// How many taken names are remembered. Those that are forgotten would be refused again.
const MAX_TAKEN: usize = 1_000;

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

/// What a kind of object remembers between plans, and how it takes the results of writes.
pub(crate) trait Remember {
    /// The results of one batch of writes.
    type Tally: Results;
    /// The maximum number of concurrent writes.
    const MAX_WRITES: usize;

    fn pace(&mut self) -> &mut Pace;

    /// Before a batch.
    fn begin(&mut self, target: &Target) -> Self::Tally;

    /// After a batch: remembers the results, and returns the outcome.
    ///
    /// # Errors
    /// If the rest of the plan depends on a write that failed.
    fn settle(&mut self, tally: Self::Tally) -> Result<ApplyOutcome, Stop>;
}

/// The results of the writes of one batch.
pub(crate) trait Results {
    /// Whether a write may start, given the results so far.
    fn may_begin(&mut self, write: &Write) -> bool;

    /// Whether a dry run precedes the write, because the last one of its kind was refused, or none is known to be stored
    /// as asked. If it is a pod, the others wait for it.
    fn tries_first(&self, _write: &Write) -> bool {
        false
    }

    /// The dry run that preceded a write has succeeded. Until another one is refused, none is needed.
    fn passed_dry_run(&mut self, _write: &Write) {}

    /// Whether the dry runs of what a write begins have succeeded a moment ago.
    fn is_rehearsed(&self, _rehearsal: &Rehearsal) -> bool {
        true
    }

    /// The result of these dry runs.
    fn count_rehearsal(&mut self, _rehearsal: &Rehearsal, _result: Result<(), Refusal>) {}

    fn count(&mut self, write: &Write, result: RequestResult);

    /// Something is left to the next plan.
    fn leave_rest(&mut self);

    /// The PodDisruptionBudgets of other clients, read after the guard was found to be in force.
    fn observe_budgets(&mut self, _others: Vec<OtherBudget>) {}

    /// The response to a patch of the object itself.
    fn take_owner(&mut self) -> Option<ResponseMetadata> {
        None
    }

    /// What is published about the batch.
    fn events(&mut self) -> Vec<PendingEvent> {
        Vec::new()
    }
}

/// What is remembered about one workload between plans, mainly responses of the API server.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// The API server's verdicts on pods, by revision.
    pub verdicts: BTreeMap<String, Verdict>,
    /// The revisions of the SidecarSets that applied to these pods when the verdicts were given.
    pub sidecars: Vec<String>,
    /// Revisions whose last pod was refused. The next plan tries to create only one pod of each.
    pub refused: BTreeSet<String>,
    /// Names that new pods and revisions cannot get, because objects of other owners have them.
    pub taken: BTreeSet<String>,
    /// The kinds of write that the API server refused last time.
    pub failures: Failures,
    /// What the API server said about changes of single pods.
    pub rehearsals: Rehearsals,
    /// The delay before pods that ended as soon as they started are replaced.
    pub backoff: Option<Backoff>,
    /// Whether the policy and the budget that guard the workload's pods are in force.
    pub guard: Option<GuardState>,
    /// Guarded pods that may have players and that the operator has not deleted.
    pub players: GuardedPlayers,
    pub pace: Pace,
}

impl Remember for Memory {
    type Tally = Tally;
    const MAX_WRITES: usize = 64;

    fn pace(&mut self) -> &mut Pace {
        &mut self.pace
    }

    fn begin(&mut self, target: &Target) -> Tally {
        Tally::begin(target.owner.kind, self)
    }

    fn settle(&mut self, tally: Tally) -> Result<ApplyOutcome, Stop> {
        tally.settle(self)
    }
}

impl Memory {
    /// Records names that objects of other owners have. A client that may create pods can take one name after another.
    fn record_taken(&mut self, names: BTreeSet<String>) {
        if self.taken.len() >= MAX_TAKEN {
            self.taken.clear();
        }
        self.taken.extend(names);
    }

    /// Records the SidecarSets that apply to the pods, and forgets the verdicts if these sets have changed.
    pub(crate) fn record_sidecars(&mut self, revisions: Vec<String>) {
        if self.sidecars != revisions {
            self.verdicts.clear();
            self.refused.clear();
            self.sidecars = revisions;
        }
    }

    /// Forgets revisions that no longer exist.
    pub(crate) fn retain_revisions(&mut self, exists: impl Fn(&str) -> bool) {
        self.verdicts.retain(|revision, _| exists(revision));
        self.refused.retain(|revision| exists(revision));
    }

    /// Forgets refusals of writes that are no longer planned, so that a later refusal is reported again.
    pub(crate) fn retain_failures(&mut self, writes: &[Write], now: Timestamp) {
        let held: BTreeSet<Attempt> = self.failures.held(now).collect();
        let is_planned = |attempt| writes.iter().any(|it| it.serves(attempt));
        self.failures.retain(|attempt| held.contains(&attempt) || is_planned(attempt));
    }
}

#[derive(Debug, PartialEq)]
pub(crate) enum ApplyOutcome {
    Done,
    /// The rest is left to the next plan, for example because the decision is too old.
    Unfinished,
    /// A precondition does not hold.
    Conflict(String),
    /// A write failed. `after` is the value of the response's Retry-After header, if it has one.
    Failed {
        message: String,
        after: Option<Duration>,
    },
}

/// Why the rest of a plan is dropped.
#[derive(Debug)]
pub(crate) enum Stop {
    /// A precondition does not hold.
    Conflict(String),
    /// A proof took too long.
    Late,
    /// A request failed: the message, and the value of the response's Retry-After header.
    Failed(String, Option<Duration>),
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Busy { message, after } | Refusal::Unavailable { message, after } => {
                Stop::Failed(message, after)
            }
            Refusal::Rejected(message) | Refusal::NamespaceTerminating(message) => {
                Stop::Failed(message, None)
            }
            Refusal::Late(_) => Stop::Late,
            Refusal::Conflict(message)
            | Refusal::AlreadyExists(message)
            | Refusal::NotFound(message) => Stop::Conflict(message),
        }
    }
}

/// The result of applying a plan.
#[derive(Debug)]
pub(crate) struct Report {
    pub outcome: ApplyOutcome,
    /// When a delayed status may be written.
    pub status_due: Option<Instant>,
}

impl Report {
    /// When the object is reconciled again, at `wake` at the latest.
    pub(crate) fn requeue(self, wake: Option<Instant>) -> Requeue {
        match self.outcome {
            ApplyOutcome::Done => {
                Requeue::Settled([wake, self.status_due].into_iter().flatten().min())
            }
            ApplyOutcome::Unfinished => Requeue::Now,
            ApplyOutcome::Conflict(message) => {
                debug!(message, "the object has changed; planning again");
                Requeue::Conflict
            }
            ApplyOutcome::Failed { message, after } => {
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
