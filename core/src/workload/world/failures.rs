//! Refused writes: which condition shows them, and for how long.
//!
//! A refusal is shown for as long as plans contain a write of the same kind.

use std::collections::BTreeMap;

use crate::api::Reason;
use crate::workload::decision::{Blocked, Concern};
use crate::write::Attempt;

impl Attempt {
    /// What the write serves: scaling or an update; None if neither.
    fn concern(self) -> Option<Concern> {
        match self {
            Self::CreatePod
            | Self::AdoptPod
            | Self::PrepareClaim
            | Self::RemovePod
            | Self::StartRemovalHook => Some(Concern::Scale),
            Self::ChangePod | Self::RecreatePod | Self::StartUpdateHook => Some(Concern::Update),
            Self::DeleteBudget => None,
        }
    }

    /// Whether the write updates a pod, by recreating it or in place.
    pub fn updates(self) -> bool {
        matches!(self, Self::ChangePod | Self::RecreatePod)
    }

    /// The reason in the condition.
    fn reason(self) -> Reason {
        match self {
            Self::CreatePod => Reason::FailedCreate,
            Self::PrepareClaim => Reason::FailedClaim,
            Self::RemovePod | Self::RecreatePod => Reason::FailedDelete,
            Self::StartRemovalHook | Self::StartUpdateHook => Reason::FailedHookRun,
            Self::AdoptPod | Self::ChangePod => Reason::FailedUpdate,
            Self::DeleteBudget => Reason::BudgetNotDeleted,
        }
    }
}

/// The kinds of write that the API server refused last time, each with its message.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Failures(BTreeMap<Attempt, String>);

impl Failures {
    /// Records that an attempt was refused, with the message for the condition.
    pub fn record(&mut self, attempt: Attempt, message: String) {
        self.0.insert(attempt, message);
    }

    /// Forgets the refusals of attempts for which `is_kept` is false.
    pub fn retain(&mut self, is_kept: impl Fn(Attempt) -> bool) {
        self.0.retain(|attempt, _| is_kept(*attempt));
    }

    /// The API server's message if the last attempt of this kind was refused.
    pub fn of(&self, attempt: Attempt) -> Option<&str> {
        self.0.get(&attempt).map(String::as_str)
    }

    /// The refusal that blocks scaling or an update, if the refused kind of write is still attempted.
    pub fn blocked(
        &self,
        concern: Concern,
        is_attempted: impl Fn(Attempt) -> bool,
    ) -> Option<Blocked> {
        let applies =
            |attempt: Attempt| attempt.concern() == Some(concern) && is_attempted(attempt);
        let (attempt, message) = self.0.iter().find(|(attempt, _)| applies(**attempt))?;
        Some(Blocked { reason: attempt.reason(), message: message.clone() })
    }
}
