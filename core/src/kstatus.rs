//! Conditions for tools that wait for an object of any kind, such as Flux, Helm 4 and kpt.
//!
//! They follow kstatus: an object is in progress while Reconciling is True, and has failed while Stalled is True. An
//! object with neither, which the operator has observed at its present generation, is what its condition Ready says.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use crate::api::ConditionType;
use crate::observed::time::rounded_down;
use crate::text::truncate;

/// How long a problem must last until the object is Stalled: longer than a client needs to apply the other objects of
/// the same manifest, such as the HookTemplate that is missing.
const GRACE: SignedDuration = SignedDuration::from_secs(10);

/// The longest message of a condition, in characters: it may quote what users wrote.
pub const MAX_MESSAGE: usize = 4_000;

/// A reason for a condition, and its message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Why {
    /// In CamelCase.
    pub reason: String,
    /// For users.
    pub message: String,
}

impl Why {
    /// What a condition says.
    pub fn of(condition: &Condition) -> Self {
        Self { reason: condition.reason.clone(), message: condition.message.clone() }
    }
}

/// How far an object is from what its spec describes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// It is there, or waits only for what the spec does not ask for.
    Done,
    /// It is getting there, or is paused.
    Underway(Why),
    /// It does not get there unless a person acts.
    Blocked {
        /// What is to be corrected.
        why: Why,
        /// Since when; None if no time can change it.
        since: Option<Timestamp>,
    },
}

impl State {
    /// Blocked by what a condition says, since the condition has shown it.
    pub fn blocked_by(condition: &Condition) -> Self {
        Self::Blocked { why: Why::of(condition), since: Some(condition.last_transition_time.0) }
    }
}

/// Reconciling or Stalled, or neither; and when to look again although nothing changes.
pub fn condition(
    state: State,
    generation: i64,
    old: &[Condition],
    now: Timestamp,
) -> (Option<Condition>, Option<Timestamp>) {
    let shown = |type_: ConditionType| {
        let mut old = old.iter();
        old.find(|it| it.type_ == type_.as_str() && it.observed_generation == Some(generation))
    };
    // The API server stores whole seconds.
    let now = rounded_down(now);
    let stalled = shown(ConditionType::Stalled).map(|it| it.last_transition_time.0);
    let reconciling = shown(ConditionType::Reconciling).map(|it| it.last_transition_time.0);
    let begun = reconciling.or(stalled).unwrap_or(now);
    let (type_, since, why, wake) = match state {
        State::Done => return (None, None),
        State::Underway(why) => (ConditionType::Reconciling, begun, why, None),
        State::Blocked { why, since } => {
            let due = since.map(|since| since.max(begun) + GRACE);
            match due.filter(|due| stalled.is_none() && now < *due) {
                Some(due) => (ConditionType::Reconciling, begun, why, Some(due)),
                None => (ConditionType::Stalled, stalled.unwrap_or(now), why, None),
            }
        }
    };
    let condition = Condition {
        type_: type_.as_str().to_owned(),
        status: "True".to_owned(),
        reason: why.reason,
        message: truncate(&why.message, MAX_MESSAGE),
        observed_generation: Some(generation),
        last_transition_time: Time(since),
    };
    (Some(condition), wake)
}

/// Whether this is one of the conditions of kstatus, which are absent when they do not hold.
pub fn is_of_kstatus(type_: &str) -> bool {
    [ConditionType::Reconciling, ConditionType::Stalled].iter().any(|it| it.as_str() == type_)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    fn why(reason: &str) -> Why {
        Why { reason: reason.to_owned(), message: format!("because of {reason}") }
    }

    fn blocked_since(second: i64) -> State {
        State::Blocked { why: why("Refused"), since: Some(at(second)) }
    }

    /// Type, time and next look, at each time of a history of states and generations.
    fn history(steps: &[(i64, i64, State)]) -> Vec<(String, i64, Option<i64>)> {
        let mut old = Vec::new();
        let mut shown = Vec::new();
        for (second, generation, state) in steps {
            let (new, wake) = condition(state.clone(), *generation, &old, at(*second));
            let type_ = new.as_ref().map(|it| it.type_.clone()).unwrap_or_default();
            let since = new.as_ref().map(|it| it.last_transition_time.0.as_second());
            shown.push((type_, since.unwrap_or(0), wake.map(|it| it.as_second())));
            old = new.into_iter().collect();
        }
        shown
    }

    #[test]
    fn an_object_without_a_problem_is_reconciling_until_it_is_done() {
        let states = [
            (100, 1, State::Underway(why("PodsUnavailable"))),
            (105, 1, State::Underway(why("RolloutUnderWay"))),
            (110, 1, State::Done),
        ];
        let reconciling = |since| ("Reconciling".to_owned(), since, None);
        let done = (String::new(), 0, None);
        assert_eq!(history(&states), [reconciling(100), reconciling(100), done]);
    }

    #[test]
    fn a_problem_stalls_the_object_after_a_while() {
        let states = [
            (100, 1, blocked_since(100)),
            (109, 1, blocked_since(100)),
            (110, 1, blocked_since(100)),
            (150, 1, blocked_since(100)),
        ];
        let shown = [
            ("Reconciling".to_owned(), 100, Some(110)),
            ("Reconciling".to_owned(), 100, Some(110)),
            ("Stalled".to_owned(), 110, None),
            ("Stalled".to_owned(), 110, None),
        ];
        assert_eq!(history(&states), shown);
    }

    #[test]
    fn a_new_generation_gets_its_own_time_although_the_problem_is_old() {
        let states = [(100, 1, blocked_since(50)), (200, 2, blocked_since(50))];
        let shown = [
            ("Reconciling".to_owned(), 100, Some(110)),
            ("Reconciling".to_owned(), 200, Some(210)),
        ];
        assert_eq!(history(&states), shown);
    }

    #[test]
    fn a_problem_in_a_long_rollout_gets_its_own_time() {
        let underway = (100, 1, State::Underway(why("RolloutUnderWay")));
        let states = [underway, (500, 1, blocked_since(500)), (510, 1, blocked_since(500))];
        let shown = history(&states);
        assert_eq!(shown[1], ("Reconciling".to_owned(), 100, Some(510)));
        assert_eq!(shown[2], ("Stalled".to_owned(), 510, None));
    }

    #[test]
    fn what_no_time_can_change_stalls_at_once() {
        let state = State::Blocked { why: why("Failed"), since: None };
        let shown = history(&[(100, 1, state)]);
        assert_eq!(shown, [("Stalled".to_owned(), 100, None)]);
    }
}
