//! Applies plans: every write to the cluster that a workload causes is made here.
//!
//! A plan is a decision on what was seen. So each write carries what was decided on as a precondition.
//! An answer that says that an object has changed means "plan again", never "try harder". Start at
//! [`Applier::carry_out`].

mod act;
mod body;
pub(crate) mod events;
mod go_json;
mod metrics;
mod proof;
mod request;
mod run;
mod tally;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use tokio::time::Instant;

use crate::objects::Kind;
use gamekeeper_core::api::names::WorkloadKind;
use gamekeeper_core::plan::{Action, Attempt, Backoff, Failures, Verdict};

pub(crate) use metrics::{BUCKETS, Metrics, ResultLabel, WorkloadLabels};
pub(crate) use proof::AdaptiveTimeout;
pub(crate) use request::{Content, Refusal, Requests, ResponseMetadata, to_bytes};

/// The workload that a plan is about, as it was decided on.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub kind: WorkloadKind,
    pub namespace: String,
    pub name: String,
    pub uid: String,
    /// metadata.generation; when it moves, the plan is void.
    pub generation: i64,
    /// resourceVersion; moves with our own writes.
    pub resource_version: String,
    /// Labels that its selector asks for; its revisions carry them.
    pub selector_labels: BTreeMap<String, String>,
    /// Whether it has a hook before its pods are deleted or updated.
    pub hooked: bool,
    /// When it was read for the plan, with its pods.
    pub seen: Instant,
}

impl Target {
    fn of(&self) -> WorkloadLabels {
        WorkloadLabels {
            kind: self.kind,
            namespace: self.namespace.clone(),
            name: self.name.clone(),
        }
    }

    fn path(&self) -> String {
        Kind::from(self.kind).path(&self.namespace, &self.name)
    }

    /// The owner reference on everything that the workload controls.
    fn owner_reference(&self) -> OwnerReference {
        self.kind.owner_reference(&self.name, &self.uid)
    }
}

/// What is remembered of one workload between plans: above all the API server's answers.
#[derive(Debug)]
pub(crate) struct Memory {
    /// What it said of pods of each revision.
    pub verdicts: BTreeMap<String, Verdict>,
    /// Revisions of which it refused the last pod: the next one is tried alone.
    pub refused: BTreeSet<String>,
    /// Names of pods and revisions that turned out to belong to another owner.
    pub taken: BTreeSet<String>,
    /// Which of the last actions were refused.
    pub failures: Failures,
    /// How often in a row pods that ended at once were replaced.
    pub backoff: Option<Backoff>,
    /// When the status was last written.
    pub status_written: Option<Instant>,
    /// How long a proof may take.
    pub proof_timeout: AdaptiveTimeout,
    /// How long planning may take.
    pub planning_timeout: AdaptiveTimeout,
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            verdicts: BTreeMap::new(),
            refused: BTreeSet::new(),
            taken: BTreeSet::new(),
            failures: Failures::default(),
            backoff: None,
            status_written: None,
            proof_timeout: AdaptiveTimeout::new(proof::PROOF_LIFETIME),
            planning_timeout: AdaptiveTimeout::new(proof::PLAN_LIFETIME),
        }
    }
}

impl Memory {
    /// Forgets what was said of revisions that are gone.
    pub(crate) fn retain_revisions(&mut self, is_there: impl Fn(&str) -> bool) {
        self.verdicts.retain(|revision, _| is_there(revision));
        self.refused.retain(|revision| is_there(revision));
    }

    /// Forgets refusals of what is no longer asked for: the next one is then news again.
    pub(crate) fn retain_failures(&mut self, actions: &[Action]) {
        let is_asked = |attempt| actions.iter().any(|it| Attempt::of(it) == Some(attempt));
        self.failures.retain(is_asked);
    }
}

/// How applying a plan ended.
#[derive(Debug, PartialEq)]
pub(crate) enum ApplyOutcome {
    Done,
    /// All went well, but there is more: a decision that is no longer fresh is not acted on.
    Unfinished,
    /// The world is not as it was decided on.
    Moved(String),
    /// Something was refused; ask again later.
    Failed {
        /// Why.
        message: String,
        /// When the server wants to be asked again.
        after: Option<Duration>,
    },
}

/// What is left after a plan was applied.
#[derive(Debug)]
pub(crate) struct Report {
    pub outcome: ApplyOutcome,
    /// When a status that was held back may be written.
    pub status_due: Option<Instant>,
}

/// Applies plans.
#[derive(Clone)]
pub(crate) struct Applier {
    requests: Requests,
    events: events::EventRecorder,
    metrics: Metrics,
}

impl Applier {
    /// An applier that writes through these requests, and tells and counts what it does.
    pub(crate) fn new(requests: Requests, events: events::EventRecorder, metrics: Metrics) -> Self {
        Self {
            requests,
            events,
            metrics,
        }
    }
}

#[cfg(test)]
mod tests;
