//! Refused writes: which condition shows them, and for how long.
//!
//! A refusal is shown for as long as plans contain an action of the same kind.

use std::collections::BTreeMap;

use crate::api::Reason;
use crate::workload::decision::{Blocked, Concern};
use crate::write::{Action, DeletionReason};

/// A kind of action that the API server may refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Attempt {
    /// Creating a pod.
    CreatePod,
    /// Adopting an orphan, which is not replaced in the meantime.
    AdoptPod,
    /// Creating a volume claim, or changing its owners.
    PrepareClaim,
    /// Deleting a pod for a reason other than an update.
    RemovePod,
    /// Starting the hook for a deletion other than an update's.
    StartRemovalHook,
    /// Changing a pod in place.
    ChangePod,
    /// Deleting a pod for an update.
    RecreatePod,
    /// Starting the hook of an update, or of a canary step.
    StartUpdateHook,
    /// Deleting the budget of pods that are no longer guarded.
    DeleteBudget,
}

impl Attempt {
    /// The kind of an action; None if no condition shows that such an action was refused.
    pub fn of(action: &Action) -> Option<Self> {
        match action {
            Action::CreatePod(_) => Some(Self::CreatePod),
            Action::AdoptPod(_) => Some(Self::AdoptPod),
            Action::CreateClaim(_) | Action::OwnClaim(_) => Some(Self::PrepareClaim),
            Action::DeletePod(deletion) if deletion.reason == DeletionReason::Update => {
                Some(Self::RecreatePod)
            }
            Action::DeletePod(_) | Action::ForceDeletePod(_) => Some(Self::RemovePod),
            Action::CreateHookRun(run) if run.is_for_removal() => Some(Self::StartRemovalHook),
            Action::CreateHookRun(_) => Some(Self::StartUpdateHook),
            Action::PatchInPlace(_) | Action::ResizePod { .. } | Action::CloseGate { .. } => {
                Some(Self::ChangePod)
            }
            Action::PatchWorkload(_)
            | Action::CreateRevision(_)
            | Action::RenumberRevision { .. }
            | Action::DeleteRevision { .. }
            | Action::AdoptRevision { .. }
            | Action::ReleasePod(_)
            | Action::DryRun { .. }
            | Action::LabelPod { .. }
            | Action::GuardPod { .. }
            | Action::RequestMove { .. }
            | Action::MarkDeleting { .. }
            | Action::UnmarkDeleting(_)
            | Action::DeleteHookRun { .. }
            | Action::OpenGate(_)
            | Action::FinishInPlace { .. }
            | Action::ApplyBudget(_)
            | Action::ProbeGuard { .. } => None,
            Action::DeleteBudget { .. } => Some(Self::DeleteBudget),
        }
    }

    /// What the action serves: scaling or an update; None if neither.
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

    /// Whether the action updates a pod, by recreating it or in place.
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

/// The kinds of action that the API server refused last time, each with its message.
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

    /// The refusal that blocks scaling or an update, if the refused kind of action is still attempted.
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
