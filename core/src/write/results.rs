//! What the API server's answers to the writes of a plan mean for the rest of the plan and for the next one.
//!
//! The loop knows no kind of object: each kind counts the results of a batch of its writes ([`Results`]), and remembers
//! what the next plan must know of them ([`Remember`]).

use std::time::Duration;

use jiff::Timestamp;

use super::{Refusal, Rehearsal, Write};
use crate::observed::{Kind, OtherBudget};

/// How a batch of writes ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All writes were made.
    Done,
    /// The rest is left to the next plan, for example because the decision is too old.
    Unfinished,
    /// A precondition does not hold.
    Conflict(String),
    /// A write failed. `after` is the value of the response's Retry-After header, if it has one.
    Failed {
        /// Why.
        message: String,
        /// How long the server asks to wait.
        after: Option<Duration>,
    },
}

impl Outcome {
    /// How a plan ended after one more batch of its writes. The first failure is kept, and an end that leaves nothing
    /// to do does not hide an earlier one.
    pub fn then(self, last: Self) -> Self {
        match (&self, &last) {
            (Self::Failed { .. }, _) | (_, Self::Done) => self,
            _ => last,
        }
    }
}

/// Why the rest of a plan is dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// A precondition does not hold.
    Conflict(String),
    /// A proof took too long.
    Late,
    /// A request failed: the message, and the value of the response's Retry-After header.
    Failed(String, Option<Duration>),
}

impl From<Stop> for Outcome {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Conflict(message) => Self::Conflict(message),
            Stop::Late => Self::Unfinished,
            Stop::Failed(message, after) => Self::Failed { message, after },
        }
    }
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Busy { message, after } | Refusal::Unavailable { message, after } => {
                Self::Failed(message, after)
            }
            Refusal::Rejected(message) | Refusal::NamespaceTerminating(message) => {
                Self::Failed(message, None)
            }
            Refusal::Late => Self::Late,
            Refusal::Conflict(message)
            | Refusal::AlreadyExists(message)
            | Refusal::NotFound(message) => Self::Conflict(message),
        }
    }
}

/// The same thing was done to each of these pods. Such events are merged into one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodsEvent {
    /// The reason, in CamelCase.
    pub reason: &'static str,
    /// What was done, such as "created". In the message, the pod's name or the number of pods follows.
    pub done: &'static str,
    /// The names of the pods.
    pub pods: Vec<String>,
}

/// What a kind of object remembers between plans.
pub trait Remember {
    /// The results of one batch of writes.
    type Results: Results;
    /// The maximum number of concurrent writes.
    const MAX_WRITES: usize;

    /// Before a batch of writes for an object of this kind.
    fn begin(&mut self, kind: Kind) -> Self::Results;

    /// After a batch: remembers the results, and returns how the batch ended.
    ///
    /// # Errors
    /// If the rest of the plan depends on a write that failed.
    fn settle(&mut self, results: Self::Results, now: Timestamp) -> Result<Outcome, Stop>;
}

/// The results of the writes of one batch.
pub trait Results {
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
    fn is_rehearsed(&self, _rehearsal: &Rehearsal, _now: Timestamp) -> bool {
        true
    }

    /// The result of these dry runs.
    fn count_rehearsal(
        &mut self,
        _rehearsal: &Rehearsal,
        _result: Result<(), Refusal>,
        _now: Timestamp,
    ) {
    }

    /// The result of a write.
    fn count(&mut self, write: &Write, result: Result<(), Refusal>, now: Timestamp);

    /// Something is left to the next plan.
    fn leave_rest(&mut self);

    /// The PodDisruptionBudgets of other clients, read after the guard was found to be in force.
    fn observe_budgets(&mut self, _others: Vec<OtherBudget>) {}

    /// What is published about the batch.
    fn events(&mut self) -> Vec<PodsEvent> {
        Vec::new()
    }
}
