//! How long each workload has made no progress towards its spec, which no single scrape can tell.
//!
//! A pod that is ready, breaks, and is ready again is no progress, or a build that crashes again and
//! again would pass for one that comes up. So only what was never reached before counts. Each replica
//! remembers, also while another one leads: a change of leaders begins nothing again.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;

use crate::apply::WorkloadLabels;

/// How far a workload is at one scrape.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Snapshot {
    /// The workload, and the revision and step that it is on its way to.
    pub aim: (String, String, Option<i32>),
    pub paused: bool,
    /// Pods that are wanted.
    pub desired: i32,
    pub existing: i32,
    /// Pods that are updated, updated and ready, available.
    pub reached: [i32; 3],
}

/// The best that was seen of each workload, and when it was new.
#[derive(Debug, Default)]
pub(super) struct Progress(Mutex<BTreeMap<WorkloadLabels, Best>>);

#[derive(Clone, Debug)]
struct Best {
    seen: Snapshot,
    at: Timestamp,
}

impl Progress {
    /// Looks at all workloads, forgets those that are gone, and tells for how many seconds each has
    /// made no progress.
    pub(super) fn update(
        &self,
        snapshots: BTreeMap<WorkloadLabels, Snapshot>,
        now: Timestamp,
    ) -> BTreeMap<WorkloadLabels, f64> {
        let mut best = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let next = snapshots.into_iter().map(|(of, snapshot)| {
            let next = match best.remove(&of) {
                Some(known) => known.after(snapshot, now),
                None => Best::new(snapshot, now),
            };
            (of, next)
        });
        *best = next.collect();
        best.iter()
            .map(|(of, best)| {
                let since = now.duration_since(best.at).as_secs_f64();
                (of.clone(), since.max(0.0))
            })
            .collect()
    }
}

impl Best {
    fn new(seen: Snapshot, at: Timestamp) -> Self {
        Self { seen, at }
    }

    /// What is more than wanted is no achievement: scaling in and out again would be none, either.
    fn after(self, snapshot: Snapshot, now: Timestamp) -> Self {
        let best = self.seen;
        if best.aim != snapshot.aim {
            return Self::new(snapshot, now);
        }
        let most = best.reached.map(|count| count.min(snapshot.desired));
        let reached = snapshot.reached.map(|count| count.min(snapshot.desired));
        let gained = reached.iter().zip(&most).any(|(now, most)| now > most);
        let fewest = match best.desired == snapshot.desired {
            true => best.existing.max(snapshot.desired),
            false => snapshot.existing.max(snapshot.desired),
        };
        let is_rid_of_one = (snapshot.desired..fewest).contains(&snapshot.existing);
        let goes_on = best.paused && !snapshot.paused;
        let is_progress = gained || is_rid_of_one || goes_on;
        let [updated, ready, available] = snapshot.reached;
        Self {
            at: if is_progress { now } else { self.at },
            seen: Snapshot {
                existing: snapshot.existing.min(fewest),
                reached: [
                    updated.max(most[0]),
                    ready.max(most[1]),
                    available.max(most[2]),
                ],
                ..snapshot
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gamekeeper_core::api::names::WorkloadKind;

    /// Minute by minute, how many minutes of no progress are told.
    fn told(snapshots: impl IntoIterator<Item = Snapshot>) -> Vec<i64> {
        let progress = Progress::default();
        let of = WorkloadLabels {
            kind: WorkloadKind::GameDeployment,
            namespace: "games".to_owned(),
            name: "lobby".to_owned(),
        };
        let mut now = Timestamp::UNIX_EPOCH;
        let mut told = Vec::new();
        for snapshot in snapshots {
            let ages = progress.update(BTreeMap::from([(of.clone(), snapshot)]), now);
            told.push((ages[&of] / 60.0) as i64);
            now += jiff::SignedDuration::from_mins(1);
        }
        told
    }

    fn snapshot(existing: i32, reached: [i32; 3]) -> Snapshot {
        Snapshot {
            desired: 10,
            existing,
            reached,
            ..Snapshot::default()
        }
    }

    fn aim(snapshot: Snapshot, revision: &str, step: i32) -> Snapshot {
        let aim = ("u-1".to_owned(), revision.to_owned(), Some(step));
        Snapshot { aim, ..snapshot }
    }

    #[test]
    fn a_pod_that_is_ready_again_and_again_is_no_progress() {
        let up = snapshot(10, [1, 1, 10]);
        let down = snapshot(10, [1, 0, 9]);
        let flips = [down.clone(), up.clone(), down.clone(), up, down];
        assert_eq!(told(flips), [0, 0, 1, 2, 3]);
    }

    #[test]
    fn a_pod_recreated_for_the_update_is_progress_when_it_is_updated() {
        let snapshots = [
            snapshot(9, [1, 1, 9]),
            snapshot(10, [1, 1, 10]),
            snapshot(9, [1, 1, 9]),
            snapshot(10, [2, 1, 9]),
            snapshot(10, [2, 2, 10]),
        ];
        assert_eq!(told(snapshots), [0, 0, 1, 0, 0]);
    }

    #[test]
    fn another_revision_another_step_and_the_end_of_a_pause_are_progress() {
        let done = || snapshot(10, [10, 10, 10]);
        let paused = || Snapshot {
            paused: true,
            ..aim(snapshot(10, [0, 0, 10]), "b", 1)
        };
        let snapshots = [
            aim(done(), "a", 0),
            aim(done(), "a", 0),
            aim(snapshot(10, [0, 0, 10]), "b", 0),
            aim(snapshot(10, [0, 0, 10]), "b", 1),
            paused(),
            paused(),
            aim(snapshot(10, [0, 0, 10]), "b", 1),
            aim(snapshot(10, [0, 0, 10]), "b", 1),
        ];
        assert_eq!(told(snapshots), [0, 1, 0, 0, 1, 2, 0, 1]);
    }

    #[test]
    fn scaling_is_progress_with_each_pod_and_not_by_what_is_wanted() {
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
        assert_eq!(told(snapshots), [0, 1, 2, 0, 1, 0, 1, 2, 0]);
    }

    #[test]
    fn a_workload_that_is_gone_is_forgotten() {
        let progress = Progress::default();
        assert!(
            progress
                .update(BTreeMap::new(), Timestamp::UNIX_EPOCH)
                .is_empty()
        );
    }
}
