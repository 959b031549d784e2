//! Pods that ended as soon as they were started: rejected by their kubelet (no cpu left, an affinity
//! that no longer holds), or of a build that ends at once. Replaced without delay, they would be created
//! and deleted as fast as the API server allows.
//!
//! The first ones are replaced at once: another pod may just have taken the resources of their node.
//! Pods that end so soon after that are left for inspection, and replaced together after 10 s, then
//! 20 s, up to five minutes, until none has ended like that for twice as long. The rounds are counted in
//! the operator's memory: a new leader begins with an immediate round.

use jiff::{SignedDuration, Timestamp};

use crate::plan::time::whole_seconds;

const FIRST: SignedDuration = SignedDuration::from_secs(10);
const LONGEST: SignedDuration = SignedDuration::from_secs(300);

/// How many times in a row pods that ended at once were replaced, and when they were last replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    rounds: u32,
    last: Timestamp,
}

impl Backoff {
    /// The backoff after one more round.
    pub fn after(before: Option<Self>, now: Timestamp) -> Self {
        let before = before.filter(|it| !it.is_over(now));
        Self {
            rounds: before.map_or(0, |it| it.rounds) + 1,
            last: whole_seconds(now),
        }
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
    fn pauses_double_up_to_five_minutes_and_begin_again_after_a_calm() {
        let mut now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let mut backoff = None;
        let mut pauses = Vec::new();
        for _ in 0..7 {
            let next = Backoff::after(backoff, now);
            pauses.push(next.due().duration_since(now).as_secs());
            now = next.due();
            backoff = Some(next);
        }
        assert_eq!(pauses, [10, 20, 40, 80, 160, 300, 300]);
        now += LONGEST;
        assert_eq!(Backoff::after(backoff, now).rounds, 1);
    }
}
