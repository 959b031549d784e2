//! Pods that ended as soon as they were started: rejected by their kubelet (no cpu left, an affinity
//! that no longer holds), or of a build that ends at once. Replaced without a pause, they would come
//! and go as fast as the API server lets them.
//!
//! The first are replaced at once: their node may just have been overtaken by another pod. What ends
//! so soon after that is left where it is, to be looked at, and replaced together after 10 s, then
//! 20 s, up to five minutes, until none has ended so for twice as long. The rounds are counted in the
//! operator's memory: a new leader begins with one at once.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::conclusion::Obstacles;
use super::draft::Draft;
use super::pause::whole_seconds;
use super::update::Blocked;
use super::{Pod, World};

const FIRST: SignedDuration = SignedDuration::from_secs(10);
const LONGEST: SignedDuration = SignedDuration::from_secs(300);

/// How often in a row pods that ended at once were replaced, and when last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    rounds: u32,
    last: Timestamp,
}

impl Backoff {
    /// After one more round.
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

    /// Whether the next pod that ends at once is the first of a new row.
    fn is_over(&self, now: Timestamp) -> bool {
        let end = self.last.checked_add(self.pause() * 2);
        end.is_ok_and(|end| end <= now)
    }
}

/// Pods that ended at once and keep their place until their next round is due.
#[derive(Default)]
pub struct Held<'a> {
    pods: BTreeMap<&'a str, &'a Pod>,
    due: Timestamp,
}

impl<'a> Held<'a> {
    /// So many at most of the workload's pods that ended at once and are to be replaced, unless that
    /// is due. Those of a revision that none is made of any more do not wait: the next build may do.
    pub fn of(
        own: &[&'a Pod],
        is_replaced: impl Fn(&Pod) -> bool,
        most: i64,
        world: &World,
        draft: &mut Draft,
    ) -> Self {
        let is_early = |it: &Backoff| it.due() > world.now;
        let Some(backoff) = world.backoff.filter(is_early) else {
            return Self::default();
        };
        let ended = own
            .iter()
            .filter(|pod| !pod.terminating && pod.ended_at_once.is_some());
        let pods = ended.filter(|pod| is_replaced(pod));
        let pods = pods.take(usize::try_from(most).unwrap_or(0));
        let pods: BTreeMap<_, _> = pods.map(|pod| (pod.uid.as_str(), *pod)).collect();
        let due = backoff.due();
        if !pods.is_empty() {
            draft.wake_at(due);
        }
        Self { pods, due }
    }

    /// How many these are.
    pub fn count(&self) -> i64 {
        self.pods.len() as i64
    }

    /// Those of these pods that are not held.
    pub fn others(&self, pods: &[&'a Pod]) -> Vec<&'a Pod> {
        let is_free = |pod: &&&Pod| !self.pods.contains_key(pod.uid.as_str());
        pods.iter().filter(is_free).copied().collect()
    }

    /// Says why pods are not replaced: those of a revision that is being rolled out belong to the
    /// update.
    pub fn tell(&self, update: &str, stable: &str, obstacles: &mut Obstacles) {
        let is_updated = |pod: &&Pod| pod.revision() == update && stable != update;
        let (updated, others): (Vec<&Pod>, Vec<_>) =
            self.pods.values().copied().partition(is_updated);
        let Obstacles {
            update: of_update,
            scale: of_scale,
        } = obstacles;
        for (pods, told) in [(updated, of_update), (others, of_scale)] {
            let first = pods.into_iter().min_by_key(|pod| (pod.created, &pod.name));
            if told.is_none() {
                *told = first.map(|pod| self.blocked(pod));
            }
        }
    }

    fn blocked(&self, pod: &Pod) -> Blocked {
        let why = pod.ended_at_once.as_deref().unwrap_or_default();
        Blocked {
            reason: "PodsEndAtOnce",
            message: format!(
                "pod {} ended before it had run for ten seconds, and so did one before it; the next is made at {}: {why}",
                pod.name, self.due
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_five_minutes_and_begin_anew_after_a_calm() {
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
