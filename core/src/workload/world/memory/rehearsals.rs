//! What the API server said about changes of single pods: dry runs before they left service, and writes that were refused
//! after that.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use crate::text::truncate;
use crate::workload::world::RefusedChange;
use crate::write::Rehearsal;

/// How long the success of dry runs counts: as long as the success of a hook.
const VALIDITY: SignedDuration = SignedDuration::from_secs(60);
/// How long after a refusal a change is tried again.
const RETRY_AFTER: SignedDuration = SignedDuration::from_secs(30);
/// The longest such time. A change that passes its dry runs and is refused all the same takes the pod out of service each
/// time, so this time doubles.
const MAX_RETRY_AFTER: SignedDuration = SignedDuration::from_hours(1);

/// The longest message that is remembered, in characters: there may be one for each pod.
const MAX_MESSAGE: usize = 300;

/// The last word of the API server about one pod.
#[derive(Clone, Debug)]
struct Word {
    goal: String,
    at: Timestamp,
    /// The message of a refusal.
    refused: Option<String>,
    /// How often in a row the change was refused although its dry runs had succeeded.
    surprises: u32,
}

impl Word {
    /// When a refused change is tried again.
    fn again_at(&self) -> Timestamp {
        let doubled =
            RETRY_AFTER.checked_mul(1_i32.checked_shl(self.surprises).unwrap_or(i32::MAX));
        let wait = doubled.unwrap_or(MAX_RETRY_AFTER).min(MAX_RETRY_AFTER);
        self.at.checked_add(wait).unwrap_or(self.at)
    }
}

/// The last word about each pod, by uid.
#[derive(Clone, Debug, Default)]
pub struct Rehearsals(BTreeMap<String, Word>);

impl Rehearsals {
    /// Whether dry runs of the change have succeeded a moment ago.
    pub fn has_passed(&self, rehearsal: &Rehearsal, now: Timestamp) -> bool {
        self.0.get(&rehearsal.pod).is_some_and(|word| {
            // If the clock was set back, the success counts as old.
            let is_recent = word.at <= now && now.duration_since(word.at) <= VALIDITY;
            word.goal == rehearsal.goal && word.refused.is_none() && is_recent
        })
    }

    /// Records the result of dry runs.
    pub fn record(&mut self, rehearsal: &Rehearsal, refused: Option<String>, now: Timestamp) {
        let surprises = self.surprises(&rehearsal.pod, &rehearsal.goal);
        let refused = refused.map(|why| truncate(&why, MAX_MESSAGE));
        let word = Word { goal: rehearsal.goal.clone(), at: now, refused, surprises };
        self.0.insert(rehearsal.pod.clone(), word);
    }

    /// Records that a write was refused after its pod had left service.
    pub fn record_surprise(&mut self, pod: &str, goal: String, why: String, now: Timestamp) {
        let surprises = self.surprises(pod, &goal).saturating_add(1);
        let refused = Some(truncate(&why, MAX_MESSAGE));
        self.0.insert(pod.to_owned(), Word { goal, at: now, refused, surprises });
    }

    fn surprises(&self, pod: &str, goal: &str) -> u32 {
        self.0.get(pod).filter(|word| word.goal == goal).map_or(0, |word| word.surprises)
    }

    /// Forgets what no longer matters.
    pub fn forget_old(&mut self, now: Timestamp) {
        self.0.retain(|_, word| {
            let memory = if word.surprises > 0 { MAX_RETRY_AFTER * 2 } else { VALIDITY };
            word.at <= now && now.duration_since(word.at) <= memory
        });
    }

    /// The change of a pod that is not tried at present.
    pub fn refused(&self, pod: &str, now: Timestamp) -> Option<RefusedChange> {
        let word = self.0.get(pod)?;
        let message = word.refused.clone()?;
        let again_at = word.again_at();
        let is_waiting = again_at > now && word.at <= now;
        let left_service = word.surprises > 0;
        is_waiting.then(|| RefusedChange {
            goal: word.goal.clone(),
            message,
            again_at,
            left_service,
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::observed::PodRef;
    use crate::write::Attempt;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    fn deletion(pod: &str) -> Rehearsal {
        let pod = PodRef {
            namespace: "games".to_owned(),
            name: pod.to_owned(),
            uid: pod.to_owned(),
            version: None,
            allowed_until: None,
        };
        Rehearsal::of_deletion(Attempt::RemovePod, &pod)
    }

    #[test]
    fn a_success_counts_for_a_minute_and_for_one_pod_and_goal() {
        let mut all = Rehearsals::default();
        all.record(&deletion("a"), None, at(100));
        assert!(all.has_passed(&deletion("a"), at(160)));
        assert!(!all.has_passed(&deletion("a"), at(161)));
        assert!(!all.has_passed(&deletion("a"), at(99)), "the clock was set back");
        assert!(!all.has_passed(&deletion("b"), at(100)));
        let mut other = deletion("a");
        other.goal = "lobby-2".to_owned();
        assert!(!all.has_passed(&other, at(100)));
        all.record(&deletion("a"), Some("no".to_owned()), at(120));
        assert!(!all.has_passed(&deletion("a"), at(120)));
    }

    #[test]
    fn a_refused_change_is_tried_again_and_ever_later_if_it_passes_its_dry_runs() {
        let mut all = Rehearsals::default();
        let waits = |all: &Rehearsals, now: i64| {
            all.refused("a", at(now)).map(|it| it.again_at.as_second() - now)
        };
        all.record(&deletion("a"), Some("no".to_owned()), at(0));
        assert_eq!(waits(&all, 0), Some(30));
        all.record(&deletion("a"), Some("no".to_owned()), at(30));
        assert_eq!((waits(&all, 30), waits(&all, 60)), (Some(30), None));
        let mut times = Vec::new();
        for round in 1..=9 {
            all.record(&deletion("a"), None, at(round * 10_000));
            let goal = Rehearsal::DELETION.to_owned();
            all.record_surprise("a", goal, "no".to_owned(), at(round * 10_000));
            times.extend(waits(&all, round * 10_000));
        }
        assert_eq!(times, [60, 120, 240, 480, 960, 1920, 3600, 3600, 3600]);
        assert_eq!(waits(&all, 0), None, "the clock was set back");
    }

    #[test]
    fn the_message_about_each_pod_is_cut() {
        let mut all = Rehearsals::default();
        all.record(&deletion("a"), Some("x".repeat(2_000)), at(0));
        all.record_surprise("b", "lobby-2".to_owned(), "x".repeat(2_000), at(0));
        for pod in ["a", "b"] {
            let refused = all.refused(pod, at(0)).expect("a refusal");
            assert!(refused.message.chars().count() < MAX_MESSAGE + 10);
        }
    }

    #[test]
    fn what_no_longer_matters_is_forgotten() {
        let mut all = Rehearsals::default();
        all.record(&deletion("a"), None, at(0));
        all.record_surprise("b", "lobby-2".to_owned(), "no".to_owned(), at(0));
        all.forget_old(at(61));
        assert_eq!(all.0.keys().collect::<Vec<_>>(), ["b"]);
        all.forget_old(at(7_201));
        assert!(all.0.is_empty());
    }
}
