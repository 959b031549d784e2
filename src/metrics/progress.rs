//! How long each workload has gone without progress toward its spec, which a single scrape cannot show.
//!
//! Progress means that a count is better than ever before. A pod that becomes ready a second time is not progress:
//! otherwise a build that crashes repeatedly would look like one that comes up. Each replica keeps this history, even
//! while another one leads, so that a change of leader does not reset it.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;

use crate::reconcile::apply::WorkloadLabels;

/// A workload at one scrape.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Snapshot {
    /// Its uid, and the revision and step of its rollout.
    pub target: (String, String, Option<i32>),
    pub paused: bool,
    pub desired: i32,
    pub existing: i32,
    /// The numbers of pods that are updated, that are updated and ready, and that are available.
    pub counts: [i32; 3],
}

/// The best counts of each workload.
#[derive(Debug, Default)]
pub(super) struct Progress(Mutex<BTreeMap<WorkloadLabels, Best>>);

#[derive(Clone, Debug)]
struct Best {
    snapshot: Snapshot,
    /// When the workload last made progress.
    since: Timestamp,
}

impl Progress {
    /// Records all workloads; returns how many seconds each has been without progress.
    pub(super) fn update(
        &self,
        snapshots: BTreeMap<WorkloadLabels, Snapshot>,
        now: Timestamp,
    ) -> BTreeMap<WorkloadLabels, f64> {
        let mut best = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let next = snapshots.into_iter().map(|(labels, snapshot)| {
            let next = match best.remove(&labels) {
                Some(known) => known.updated(snapshot, now),
                None => Best::new(snapshot, now),
            };
            (labels, next)
        });
        *best = next.collect();
        best.iter()
            .map(|(labels, best)| {
                let idle = now.duration_since(best.since).as_secs_f64();
                (labels.clone(), idle.max(0.0))
            })
            .collect()
    }
}

impl Best {
    fn new(snapshot: Snapshot, since: Timestamp) -> Self {
        Self { snapshot, since }
    }

    /// Updates the best counts. Pods beyond the desired number do not count, so that scaling in and out again is not
    /// progress.
    fn updated(self, snapshot: Snapshot, now: Timestamp) -> Self {
        let best = self.snapshot;
        if best.target != snapshot.target {
            return Self::new(snapshot, now);
        }
        let most = best.counts.map(|count| count.min(snapshot.desired));
        let counts = snapshot.counts.map(|count| count.min(snapshot.desired));
        let has_more = counts.iter().zip(&most).any(|(count, most)| count > most);
        let fewest = match best.desired == snapshot.desired {
            true => best.existing.max(snapshot.desired),
            false => snapshot.existing.max(snapshot.desired),
        };
        let has_less_surplus = (snapshot.desired..fewest).contains(&snapshot.existing);
        let was_resumed = best.paused && !snapshot.paused;
        let is_progress = has_more || has_less_surplus || was_resumed;
        let [updated, ready, available] = snapshot.counts;
        Self {
            since: if is_progress { now } else { self.since },
            snapshot: Snapshot {
                existing: snapshot.existing.min(fewest),
                counts: [updated.max(most[0]), ready.max(most[1]), available.max(most[2])],
                ..snapshot
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gamekeeper_core::api::names::WorkloadKind;

    /// The minutes without progress at each scrape, with one scrape a minute.
    fn idle_minutes(snapshots: impl IntoIterator<Item = Snapshot>) -> Vec<i64> {
        let progress = Progress::default();
        let lobby = WorkloadLabels {
            kind: WorkloadKind::GameDeployment,
            namespace: "games".to_owned(),
            name: "lobby".to_owned(),
        };
        let mut now = Timestamp::UNIX_EPOCH;
        let mut minutes = Vec::new();
        for snapshot in snapshots {
            let idle = progress.update(BTreeMap::from([(lobby.clone(), snapshot)]), now);
            minutes.push((idle[&lobby] / 60.0) as i64);
            now += jiff::SignedDuration::from_mins(1);
        }
        minutes
    }

    fn snapshot(existing: i32, counts: [i32; 3]) -> Snapshot {
        Snapshot { desired: 10, existing, counts, ..Snapshot::default() }
    }

    fn target(snapshot: Snapshot, revision: &str, step: i32) -> Snapshot {
        let target = ("u-1".to_owned(), revision.to_owned(), Some(step));
        Snapshot { target, ..snapshot }
    }

    #[test]
    fn a_pod_that_becomes_ready_repeatedly_is_not_progress() {
        let up = snapshot(10, [1, 1, 10]);
        let down = snapshot(10, [1, 0, 9]);
        let flips = [down.clone(), up.clone(), down.clone(), up, down];
        assert_eq!(idle_minutes(flips), [0, 0, 1, 2, 3]);
    }

    #[test]
    fn a_pod_recreated_for_the_update_counts_as_progress_once_it_is_updated() {
        let snapshots = [
            snapshot(9, [1, 1, 9]),
            snapshot(10, [1, 1, 10]),
            snapshot(9, [1, 1, 9]),
            snapshot(10, [2, 1, 9]),
            snapshot(10, [2, 2, 10]),
        ];
        assert_eq!(idle_minutes(snapshots), [0, 0, 1, 0, 0]);
    }

    #[test]
    fn a_new_revision_a_new_step_and_the_end_of_a_pause_are_progress() {
        let done = || snapshot(10, [10, 10, 10]);
        let paused = || Snapshot { paused: true, ..target(snapshot(10, [0, 0, 10]), "b", 1) };
        let snapshots = [
            target(done(), "a", 0),
            target(done(), "a", 0),
            target(snapshot(10, [0, 0, 10]), "b", 0),
            target(snapshot(10, [0, 0, 10]), "b", 1),
            paused(),
            paused(),
            target(snapshot(10, [0, 0, 10]), "b", 1),
            target(snapshot(10, [0, 0, 10]), "b", 1),
        ];
        assert_eq!(idle_minutes(snapshots), [0, 1, 0, 0, 1, 2, 0, 1]);
    }

    #[test]
    fn each_pod_that_scaling_creates_or_deletes_is_progress_but_a_change_of_replicas_is_not() {
        let scaled = |desired, existing| Snapshot {
            desired,
            ..snapshot(existing, [existing, existing, existing])
        };
        let snapshots = [
            scaled(10, 10),
            scaled(12, 10),
            scaled(13, 10),
            scaled(13, 11),
            scaled(8, 11),
            scaled(8, 10),
            scaled(8, 10),
            scaled(12, 10),
            scaled(12, 11),
        ];
        assert_eq!(idle_minutes(snapshots), [0, 1, 2, 0, 1, 0, 1, 2, 0]);
    }

    #[test]
    fn a_deleted_workload_is_removed() {
        let progress = Progress::default();
        let lobby = WorkloadLabels {
            kind: WorkloadKind::GameDeployment,
            namespace: "games".to_owned(),
            name: "lobby".to_owned(),
        };
        let snapshots = BTreeMap::from([(lobby, snapshot(10, [10, 10, 10]))]);
        progress.update(snapshots, Timestamp::UNIX_EPOCH);
        let idle = progress.update(BTreeMap::new(), Timestamp::UNIX_EPOCH);
        assert!(idle.is_empty());
    }
}
