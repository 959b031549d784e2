//! Invariant 8 for the PodDisruptionBudgets of guarded pods, which the operator does not watch. The operator needs a
//! reason to apply a budget, and a reason to check whether the guard is in force. A check is a dry run of the budget's
//! deletion.
//!
//! A leader that knows nothing about a budget applies it, and checks it after that. A leader knows nothing when it has
//! just acquired the lease or, without leader election, when its process has just started. The log shows no process
//! starts, so they are passed in.
//!
//! While the guard is in force, the leader checks again after five minutes; while it is not, after 1, 2, 4, ..., and at
//! most 60 seconds. A budget that was deleted, or that other clients have been able to change, is applied again.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use crate::evidence::Event;
use crate::object::text;

/// How long a check is valid while the guard is in force.
const VALIDITY: SignedDuration = SignedDuration::from_secs(300);
/// The longest pause between two checks while the guard is not in force.
const LONGEST_PAUSE: SignedDuration = SignedDuration::from_secs(60);
/// How much too early a check may come, because the operator counts from the previous response, by its own clock.
const TOLERANCE: SignedDuration = SignedDuration::from_millis(200);

/// A request without a reason, and why it has none.
pub(crate) type NeedlessRequest<'a> = (&'a Event, String);

/// What the leader knows about a budget.
#[derive(Clone, Copy, Debug, Default)]
struct Budget {
    known: Known,
    /// Whether the budget has been applied but not checked since.
    is_unchecked: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Known {
    /// Nothing yet, or only that other clients have been able to change it.
    #[default]
    Nothing,
    /// There is no budget.
    Absent,
    /// The guard was in force at this time.
    InForce(Timestamp),
    /// The guard was not in force at this time. This number of checks and refused writes in a row have shown that.
    NotInForce(Timestamp, u32),
}

/// The operator's needless requests about budgets. `starts` are the times at which operators were started.
pub(crate) fn needless_requests<'a>(
    events: &'a [Event],
    starts: &[Timestamp],
    is_operator: impl Fn(&str) -> bool,
) -> Vec<NeedlessRequest<'a>> {
    let is_by_operator = |event: &&Event| is_operator(event.username());
    let mut requests: Vec<&Event> = events.iter().filter(is_by_operator).collect();
    requests.sort_by_key(|event| event.received);
    let mut budgets: BTreeMap<&str, Budget> = BTreeMap::new();
    let mut acquired = "";
    let mut started = 0;
    let mut found = Vec::new();
    for event in requests {
        let starts_before = starts.iter().filter(|start| **start <= event.received);
        let starts_before = starts_before.count();
        if starts_before != started {
            started = starts_before;
            budgets.clear();
        }
        match event.resource() {
            "leases" => {
                let time = acquire_time(event).filter(|time| *time != acquired);
                if let Some(time) = time {
                    acquired = time;
                    budgets.clear();
                }
            }
            "poddisruptionbudgets" => {
                let name = event.object_ref.as_ref().map_or("", |it| &it.name);
                let why = budgets.entry(name).or_default().check(event);
                found.extend(why.map(|why| (event, why)));
            }
            _ => {}
        }
    }
    found
}

/// When the leader acquired the lease, if this is a write of the lease.
fn acquire_time(event: &Event) -> Option<&str> {
    let lease = event.response_object.as_ref()?;
    Some(text(lease, "/spec/acquireTime")).filter(|it| !it.is_empty())
}

impl Budget {
    /// Returns why a request is needless, if it is, and learns from the response.
    fn check(&mut self, event: &Event) -> Option<String> {
        // From any other response, the operator learns nothing. It then repeats the request.
        let is_conclusive = event.succeeded() || matches!(event.code(), 403 | 404 | 422);
        if !is_conclusive {
            return None;
        }
        let why = match (event.is_dry_deletion(), event.verb.as_str()) {
            (true, _) => self.needless_check(event),
            (false, "delete") => {
                (self.known == Known::Absent).then(|| "deletes a missing budget".to_owned())
            }
            (false, _) => self.needless_write(),
        };
        self.learn(event);
        why
    }

    fn needless_check(&self, event: &Event) -> Option<String> {
        let (since, pause) = match self.known {
            _ if self.is_unchecked => return None,
            Known::Nothing | Known::Absent => {
                return Some("checks a budget that it has not applied".to_owned());
            }
            Known::InForce(at) => (at, VALIDITY),
            Known::NotInForce(at, times) => (at, pause_after(times)),
        };
        let passed = event.received.duration_since(since);
        (passed + TOLERANCE < pause)
            .then(|| format!("checks the guard again after {passed:#} instead of {pause:#}"))
    }

    fn needless_write(&self) -> Option<String> {
        match self.known {
            Known::Nothing | Known::Absent => None,
            Known::InForce(_) | Known::NotInForce(..) => {
                Some("applies a budget that it has already applied and checked".to_owned())
            }
        }
    }

    fn learn(&mut self, event: &Event) {
        let times = match self.known {
            Known::NotInForce(_, times) => times,
            _ => 0,
        };
        let is_refused = event.code() == 403 && event.missing_permission().is_none();
        match (event.is_dry_deletion(), event.verb.as_str()) {
            (true, _) => {
                self.is_unchecked = false;
                self.known = match event.code() {
                    404 => Known::Absent,
                    // Until now, other clients have been able to change the budget.
                    _ if is_refused && times > 0 => Known::Nothing,
                    _ if is_refused => Known::InForce(event.done),
                    _ => Known::NotInForce(event.done, times + 1),
                };
            }
            (false, "delete") => self.known = Known::Absent,
            (false, _) if event.succeeded() => self.is_unchecked = true,
            (false, _) => self.known = Known::NotInForce(event.done, times + 1),
        }
    }
}

/// The pause after the guard was found not to be in force this number of times in a row.
fn pause_after(times: u32) -> SignedDuration {
    SignedDuration::from_secs(1 << times.saturating_sub(1).min(6)).min(LONGEST_PAUSE)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::scenario::Scenario;

    /// A budget that was applied and checked by a leader.
    fn checked(is_in_force: bool) -> Scenario {
        let mut scenario = Scenario::with(json!({
            "replicas": 1, "protection": {"pods": "Guarded"},
        }));
        scenario.acquire_lease();
        scenario.apply_budget();
        scenario.check_guard(is_in_force);
        scenario
    }

    #[test]
    fn a_guard_in_force_is_checked_every_five_minutes() {
        for (seconds, broken) in [(299, vec!["settled"]), (300, vec![])] {
            let mut scenario = checked(true);
            scenario.wait(seconds);
            scenario.check_guard(true);
            assert_eq!(scenario.broken(), broken, "{seconds} s");
        }
    }

    #[test]
    fn a_guard_that_is_not_in_force_is_checked_with_growing_pauses() {
        let mut scenario = checked(false);
        for seconds in [1, 2, 4, 8, 16, 32, 60, 60] {
            scenario.wait(seconds);
            scenario.check_guard(false);
        }
        assert_eq!(scenario.verdict(), []);
        scenario.wait(58);
        scenario.check_guard(false);
        assert_eq!(scenario.broken(), ["settled"]);
    }

    #[test]
    fn a_budget_that_others_could_change_is_applied_once_more() {
        let mut scenario = checked(false);
        scenario.wait(1);
        scenario.check_guard(true);
        scenario.apply_budget();
        scenario.check_guard(true);
        assert_eq!(scenario.verdict(), []);
        scenario.apply_budget();
        assert_eq!(scenario.broken(), ["settled"]);
    }

    #[test]
    fn each_leader_applies_and_checks_once() {
        let mut scenario = checked(true);
        scenario.wait(1);
        scenario.acquire_lease();
        scenario.apply_budget();
        scenario.check_guard(true);
        scenario.start_operator();
        scenario.apply_budget();
        scenario.check_guard(true);
        assert_eq!(scenario.verdict(), []);
        scenario.acquire_lease();
        scenario.check_guard(true);
        assert_eq!(scenario.broken(), ["settled"], "checked without being applied");
    }

    #[test]
    fn a_deleted_budget_is_not_deleted_again() {
        let mut scenario = checked(true);
        scenario.spec("user", json!({"protection": {"pods": "None"}}));
        scenario.delete_budget();
        assert_eq!(scenario.verdict(), []);
        scenario.delete_budget();
        assert_eq!(scenario.broken(), ["settled"]);
    }
}
