//! Backoff for pods that end as soon as they are started, because their kubelet rejects them (no CPU left, an
//! affinity that no longer holds) or their build exits immediately. Replaced without delay, they would be created
//! and deleted as fast as the API server allows.
//!
//! The first ones are replaced immediately: another pod may just have taken the resources of their node. If their
//! replacements end the same way, they are kept for inspection and replaced together after 10 s, then after 20 s,
//! and so on up to five minutes, until no pod has ended this way for twice the current pause. The rounds are counted
//! in the operator's memory: a new leader begins with an immediate round.

use jiff::{SignedDuration, Timestamp};

use crate::observed::time::rounded_up;

const FIRST: SignedDuration = SignedDuration::from_secs(10);
const LONGEST: SignedDuration = SignedDuration::from_secs(300);

/// How many rounds of replacements there were in a row, and when the last one was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    rounds: u32,
    last: Timestamp,
}

impl Backoff {
    /// The backoff after one more round.
    pub fn after_round(before: Option<Self>, now: Timestamp) -> Self {
        let before = before.filter(|it| !it.is_over(now));
        Self { rounds: before.map_or(0, |it| it.rounds) + 1, last: rounded_up(now) }
    }

    /// When the next round is due.
    pub fn due(&self) -> Timestamp {
        self.last.checked_add(self.pause()).unwrap_or(self.last)
    }

    fn pause(&self) -> SignedDuration {
        let doubled = (1..self.rounds.min(8)).fold(FIRST, |pause, _| pause * 2);
        doubled.min(LONGEST)
    }

    /// Whether the next round is the first of a new series.
    fn is_over(&self, now: Timestamp) -> bool {
        let end = self.last.checked_add(self.pause() * 2);
        end.is_ok_and(|end| end <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_five_minutes_and_start_over_after_a_quiet_period() {
        let mut now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let mut backoff = None;
        let mut pauses = Vec::new();
        for _ in 0..7 {
            let next = Backoff::after_round(backoff, now);
            pauses.push(next.due().duration_since(now).as_secs());
            now = next.due();
            backoff = Some(next);
        }
        assert_eq!(pauses, [10, 20, 40, 80, 160, 300, 300]);
        now += LONGEST;
        assert_eq!(Backoff::after_round(backoff, now).rounds, 1);
    }
}
