//! Refused writes: which condition shows them, for how long, and when those that other writes depend on are attempted
//! again.
//!
//! A refusal is shown for as long as plans contain a write of the same kind.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::api::Reason;
use crate::workload::decision::{Blocked, Concern};
use crate::write::{Attempt, Refused};

impl Attempt {
    /// What the write serves; None if another condition shows its refusal.
    fn concern(self) -> Option<Concern> {
        match self {
            Self::CreatePod
            | Self::AdoptPod
            | Self::PrepareClaim
            | Self::RemovePod
            | Self::StartRemovalHook => Some(Concern::Scale),
            Self::ChangePod
            | Self::RecreatePod
            | Self::StartUpdateHook
            | Self::RecordRevision
            | Self::SteerRollout => Some(Concern::Update),
            Self::MarkWorkload | Self::MarkPod | Self::CleanUp => Some(Concern::Upkeep),
            Self::DeleteBudget => None,
        }
    }

    /// Whether the write updates a pod, by recreating it or in place.
    pub fn updates(self) -> bool {
        matches!(self, Self::ChangePod | Self::RecreatePod)
    }

    /// Whether plans leave the write out for a moment after it was refused: other writes of the same plan would depend on
    /// it, or would not be made.
    pub fn is_held(self) -> bool {
        matches!(self, Self::SteerRollout | Self::MarkWorkload | Self::RecordRevision)
    }

    /// The reason in the condition.
    fn reason(self) -> Reason {
        match self {
            Self::CreatePod => Reason::FailedCreate,
            Self::PrepareClaim => Reason::FailedClaim,
            Self::RemovePod | Self::RecreatePod => Reason::FailedDelete,
            Self::StartRemovalHook | Self::StartUpdateHook => Reason::FailedHookRun,
            Self::AdoptPod | Self::ChangePod | Self::MarkPod => Reason::FailedUpdate,
            Self::RecordRevision => Reason::FailedRevision,
            Self::SteerRollout | Self::MarkWorkload => Reason::FailedPatch,
            Self::CleanUp => Reason::FailedCleanUp,
            Self::DeleteBudget => Reason::BudgetNotDeleted,
        }
    }

    /// What was attempted, if the API server's message does not say it.
    fn attempted(self) -> &'static str {
        match self {
            Self::RecordRevision => {
                "the template cannot be recorded in a ControllerRevision, so no pod is updated: "
            }
            Self::SteerRollout => {
                "the operator cannot write to this object, so the rollout stays where it is: "
            }
            Self::MarkWorkload => "the operator cannot write to this object: ",
            _ => "",
        }
    }
}

/// The kinds of write that the API server refused last time, each with its message.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Failures(BTreeMap<Attempt, Refused>);

impl Failures {
    /// Records that an attempt was refused, with the API server's message.
    pub fn record(&mut self, attempt: Attempt, message: String, at: Timestamp) {
        let refused = Refused::after(self.0.get(&attempt), message, at);
        self.0.insert(attempt, refused);
    }

    /// Forgets the refusals of attempts for which `is_kept` is false.
    pub fn retain(&mut self, is_kept: impl Fn(Attempt) -> bool) {
        self.0.retain(|attempt, _| is_kept(*attempt));
    }

    /// The kinds of write that were refused last time.
    pub fn attempts(&self) -> impl Iterator<Item = Attempt> + '_ {
        self.0.keys().copied()
    }

    /// Whether nothing was refused.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The API server's message if the last attempt of this kind was refused.
    pub fn of(&self, attempt: Attempt) -> Option<&str> {
        self.0.get(&attempt).map(|it| it.message.as_str())
    }

    /// Until when a refused kind of write that other writes depend on is not attempted, so that what does not depend on
    /// it goes on; None if it may be attempted now.
    pub fn held_until(&self, attempt: Attempt, now: Timestamp) -> Option<Timestamp> {
        self.0.get(&attempt).filter(|_| attempt.is_held())?.held_until(now)
    }

    /// The kinds of write that are held now.
    pub fn held(&self, now: Timestamp) -> impl Iterator<Item = Attempt> + '_ {
        self.0.keys().copied().filter(move |attempt| self.held_until(*attempt, now).is_some())
    }

    /// What blocks the workload while this kind of write is held.
    pub fn holds(&self, attempt: Attempt, now: Timestamp) -> Option<Blocked> {
        self.held_until(attempt, now)?;
        Some(blocked_by(attempt, self.of(attempt)?))
    }

    /// The refusal that concerns scaling, updates or upkeep, if the refused kind of write is still attempted.
    pub fn blocked(
        &self,
        concern: Concern,
        is_attempted: impl Fn(Attempt) -> bool,
    ) -> Option<Blocked> {
        let applies =
            |attempt: Attempt| attempt.concern() == Some(concern) && is_attempted(attempt);
        let (attempt, failure) = self.0.iter().find(|(attempt, _)| applies(**attempt))?;
        Some(blocked_by(*attempt, &failure.message))
    }
}

fn blocked_by(attempt: Attempt, message: &str) -> Blocked {
    let again = if attempt.is_held() { Refused::RETRY } else { Refused::LATE_RETRY };
    let message = format!("{}{message}; {again}", attempt.attempted());
    Blocked { reason: attempt.reason(), message }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_write_is_held_longer_each_time_and_never_after_the_clock_was_set_back() {
        let at = |second: i64| Timestamp::from_second(second).expect("a time");
        let mut failures = Failures::default();
        let mut held = |refused_at: i64| {
            failures.record(Attempt::RecordRevision, "no".to_owned(), at(refused_at));
            let until = failures.held_until(Attempt::RecordRevision, at(refused_at));
            (until.map(|it| it.as_second() - refused_at), failures.clone())
        };
        let holds: Vec<_> = [0, 10, 20, 30, 40, 50, 60].map(|it| held(it).0).into();
        assert_eq!(holds, [1, 2, 4, 8, 16, 30, 30].map(Some));
        let (_, failures) = held(100);
        assert_eq!(failures.held_until(Attempt::RecordRevision, at(130)), None);
        assert_eq!(failures.held_until(Attempt::RecordRevision, at(99)), None);
        assert_eq!(failures.held_until(Attempt::MarkWorkload, at(100)), None);
    }
}
