//! Carries out plans: every write to the cluster that a workload causes is made here.
//!
//! A plan is a decision on what was seen. Here it meets what is: each write carries what was
//! decided on as a precondition, and an answer that says the world has moved on means "plan again",
//! never "try harder". Start at [`Applier::carry_out`].

mod act;
mod body;
pub mod events;
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

use gamekeeper_core::api::names::WorkloadKind;
use gamekeeper_core::api::{GROUP, VERSION};
use gamekeeper_core::plan::{Action, Attempt, Backoff, Failures, Verdict};

pub use metrics::{BUCKETS, Ended, Metrics, Of};
pub use proof::Patience;
pub use request::{Answer, Content, Refusal, Requests, to_bytes};

/// The workload that a plan is about, as it was decided on.
#[derive(Clone, Debug)]
pub struct Target {
    /// Its kind.
    pub kind: WorkloadKind,
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Uid.
    pub uid: String,
    /// metadata.generation; when it moves, the plan is void.
    pub generation: i64,
    /// resourceVersion; moves with our own writes.
    pub resource_version: String,
    /// Labels that its selector asks for; its revisions carry them.
    pub selector_labels: BTreeMap<String, String>,
    /// Whether a hook stands before its pods are deleted or updated.
    pub hooked: bool,
    /// When it was looked at, with its pods, to decide.
    pub seen: Instant,
}

impl Target {
    fn of(&self) -> Of {
        Of {
            kind: self.kind,
            namespace: self.namespace.clone(),
            name: self.name.clone(),
        }
    }

    fn path(&self) -> String {
        let plural = match self.kind {
            WorkloadKind::GameDeployment => "gamedeployments",
            WorkloadKind::GameStatefulSet => "gamestatefulsets",
        };
        let Self {
            namespace, name, ..
        } = self;
        format!("/apis/{GROUP}/{VERSION}/namespaces/{namespace}/{plural}/{name}")
    }

    fn pods(&self) -> String {
        format!("/api/v1/namespaces/{}/pods", self.namespace)
    }

    fn claims(&self) -> String {
        let namespace = &self.namespace;
        format!("/api/v1/namespaces/{namespace}/persistentvolumeclaims")
    }

    fn hook_runs(&self) -> String {
        let namespace = &self.namespace;
        format!("/apis/{GROUP}/{VERSION}/namespaces/{namespace}/hookruns")
    }

    fn revisions(&self) -> String {
        let namespace = &self.namespace;
        format!("/apis/apps/v1/namespaces/{namespace}/controllerrevisions")
    }

    /// The owner reference on everything that the workload controls.
    fn owner_reference(&self) -> OwnerReference {
        self.kind.owner_reference(&self.name, &self.uid)
    }
}

/// A kind of object that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Thing {
    /// The workload itself.
    Workload,
    /// A pod.
    Pod,
    /// A HookRun.
    HookRun,
    /// A ControllerRevision.
    Revision,
    /// A volume claim.
    Claim,
}

/// A write that was answered; the next plan must not be made before the cache shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Written {
    /// Some object of this kind has this resourceVersion now.
    Version(Thing, u64),
    /// The object with this name and uid is gone, or going.
    Deleted(Thing, String, String),
    /// A write of this kind was not answered: it may have been made.
    Unknown(Thing),
}

/// What is remembered of one workload between plans: above all the API server's answers.
#[derive(Debug)]
pub struct Memory {
    /// What it said of pods of each revision.
    pub verdicts: BTreeMap<String, Verdict>,
    /// Revisions of which it refused the last pod: the next one is tried alone.
    pub refused: BTreeSet<String>,
    /// Names of pods and revisions that turned out to be somebody else's.
    pub taken: BTreeSet<String>,
    /// Which of the last actions were refused.
    pub failures: Failures,
    /// How often in a row pods that ended at once were replaced.
    pub backoff: Option<Backoff>,
    /// When the status was last written.
    pub status_written: Option<Instant>,
    /// How long a proof may take.
    pub patience: Patience,
    /// How long a plan may take.
    pub planning: Patience,
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
            patience: Patience::with(proof::PROOF),
            planning: Patience::with(proof::PRELUDE),
        }
    }
}

impl Memory {
    /// Forgets what was said of revisions that are gone.
    pub fn retain_revisions(&mut self, is_there: impl Fn(&str) -> bool) {
        self.verdicts.retain(|revision, _| is_there(revision));
        self.refused.retain(|revision| is_there(revision));
    }

    /// Forgets refusals of what is no longer asked for: the next one is then news again.
    pub fn retain_failures(&mut self, actions: &[Action]) {
        let is_asked = |attempt| actions.iter().any(|it| Attempt::of(it) == Some(attempt));
        self.failures.retain(is_asked);
    }
}

/// How carrying out a plan ended.
#[derive(Debug, PartialEq)]
pub enum Outcome {
    /// Everything was done.
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

/// What is left after a plan was carried out.
#[derive(Debug)]
pub struct Report {
    /// How it ended.
    pub outcome: Outcome,
    /// When a status that was held back may be written.
    pub status_due: Option<Instant>,
}

/// Carries out plans.
#[derive(Clone)]
pub struct Applier {
    requests: Requests,
    events: events::Events,
    metrics: Metrics,
}

impl Applier {
    /// An applier that writes through these requests, and tells and counts what it does.
    pub fn new(requests: Requests, events: events::Events, metrics: Metrics) -> Self {
        Self {
            requests,
            events,
            metrics,
        }
    }
}

#[cfg(test)]
mod tests;
