//! Whether the objects that guard pods are in force: the chart's policy, and the workload's PodDisruptionBudget. No
//! watch shows that, but a dry run of the budget's deletion does: the policy must refuse it. A policy is in force about
//! a second after it is created, and may be deleted at any time, so the dry run is repeated.

use jiff::{SignedDuration, Timestamp};

use crate::observed::OtherBudget;

/// How long a response is valid.
const VALIDITY: SignedDuration = SignedDuration::from_secs(300);
/// The longest pause between requests while the guard is not in force.
const LONGEST_PAUSE: SignedDuration = SignedDuration::from_secs(60);

/// The last response of the API server.
#[derive(Clone, Debug, PartialEq)]
pub enum GuardState {
    /// The server refused to delete the budget: budget and policy are in force.
    InForce {
        /// When it responded.
        at: Timestamp,
        /// The PodDisruptionBudgets in the namespace that other clients created.
        others: Vec<OtherBudget>,
    },
    /// The server did not refuse.
    NotInForce {
        /// Why, as a sentence.
        message: String,
        /// When it responded.
        at: Timestamp,
        /// The number of such responses in a row.
        times: u32,
    },
    /// The server found no budget.
    NoBudget {
        /// The number of consecutive earlier responses that did not refuse its deletion. It is kept so that pauses
        /// keep growing while the budget cannot be created.
        times: u32,
    },
}

impl GuardState {
    /// The state after one more response that was not a refusal by the policy.
    pub fn not_in_force(before: Option<&Self>, message: String, at: Timestamp) -> Self {
        Self::NotInForce { message, at, times: Self::times(before).saturating_add(1) }
    }

    /// The state after a response that there is no budget.
    pub fn no_budget(before: Option<&Self>) -> Self {
        Self::NoBudget { times: Self::times(before) }
    }

    fn times(state: Option<&Self>) -> u32 {
        match state {
            Some(Self::NotInForce { times, .. } | Self::NoBudget { times }) => *times,
            Some(Self::InForce { .. }) | None => 0,
        }
    }

    /// When to repeat the request.
    pub fn due(&self) -> Timestamp {
        match self {
            Self::InForce { at, .. } => at.checked_add(VALIDITY).unwrap_or(*at),
            Self::NotInForce { at, times, .. } => {
                let pause = SignedDuration::from_secs(1 << times.saturating_sub(1).min(6));
                at.checked_add(pause.min(LONGEST_PAUSE)).unwrap_or(*at)
            }
            Self::NoBudget { .. } => Timestamp::UNIX_EPOCH,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After each pause, a request shows that there is no budget, and the budget's creation is refused once more.
    #[test]
    fn pauses_grow_while_a_budget_cannot_be_created() {
        let mut now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let mut state = None;
        let mut pauses = Vec::new();
        for _ in 0..8 {
            let not_created = GuardState::not_in_force(state.as_ref(), "quota".to_owned(), now);
            pauses.push(not_created.due().duration_since(now).as_secs());
            now = not_created.due();
            let missing = GuardState::no_budget(Some(&not_created));
            assert!(missing.due() <= now, "the next request is due immediately");
            state = Some(missing);
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
        let in_force = GuardState::InForce { at: now, others: Vec::new() };
        let missing = GuardState::no_budget(Some(&in_force));
        assert_eq!(missing, GuardState::NoBudget { times: 0 });
    }
}
