//! Applies plans: makes every write for a workload.
//!
//! A plan is based on observed objects, so each write has preconditions on these objects. After a conflict the
//! workload is planned again; the write itself is never retried. Start at [`Applier::carry_out`].

mod act;
pub(crate) mod events;
mod metrics;
mod proof;
mod run;
mod tally;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::runtime::request::Requests;
use gamekeeper_core::api::HookRun;
use gamekeeper_core::workload::{Backoff, Failures, GuardState, GuardedPlayers, Verdict};
use gamekeeper_core::write::{Owner, Write};

pub(crate) use metrics::{BUCKETS, Metrics, ResultLabel, WorkloadLabels};
pub(crate) use proof::{AdaptiveTimeout, PROOF_LIFETIME, valid_until};

/// The workload of a plan, as it was when the plan was made.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// Its resourceVersion is updated after each of our own writes to the workload.
    pub owner: Owner,
    /// If it changes, the plan is void.
    pub generation: i64,
    /// Whether the workload is being deleted. Its finalizer keeps it until its pods are deleted.
    pub deleting: bool,
    /// Whether a hook runs before the workload's pods are deleted or updated.
    pub hooked: bool,
    /// When the cache was read for the plan.
    pub read_at: Instant,
}

impl Target {
    pub(crate) fn labels(&self) -> WorkloadLabels {
        WorkloadLabels {
            kind: self.owner.kind,
            namespace: self.owner.namespace.clone(),
            name: self.owner.name.clone(),
        }
    }
}

/// What is remembered about one workload between plans, mainly responses of the API server.
#[derive(Debug)]
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
    /// The delay before pods that ended as soon as they started are replaced.
    pub backoff: Option<Backoff>,
    /// Whether the policy and the budget that guard the workload's pods are in force.
    pub guard: Option<GuardState>,
    /// Guarded pods that may have players and that the operator has not deleted.
    pub players: GuardedPlayers,
    /// When the status was last written.
    pub status_written: Option<Instant>,
    pub proof_timeout: AdaptiveTimeout,
    pub planning_timeout: AdaptiveTimeout,
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            verdicts: BTreeMap::new(),
            sidecars: Vec::new(),
            refused: BTreeSet::new(),
            taken: BTreeSet::new(),
            failures: Failures::default(),
            backoff: None,
            guard: None,
            players: GuardedPlayers::default(),
            status_written: None,
            proof_timeout: AdaptiveTimeout::new(proof::PROOF_LIFETIME),
            planning_timeout: AdaptiveTimeout::new(proof::PLAN_LIFETIME),
        }
    }
}

impl Memory {
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
    pub(crate) fn retain_failures(&mut self, writes: &[Write]) {
        let is_planned = |attempt| writes.iter().any(|it| it.attempt() == Some(attempt));
        self.failures.retain(is_planned);
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

/// The result of applying a plan.
#[derive(Debug)]
pub(crate) struct Report {
    pub outcome: ApplyOutcome,
    /// When a delayed status may be written.
    pub status_due: Option<Instant>,
}

/// Receives HookRuns that the API server does not store, because their namespace is being deleted.
pub(crate) type KeepUnstored = Arc<dyn Fn(HookRun) + Send + Sync>;

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
}

#[cfg(test)]
mod tests;
