//! A plan under construction.

use std::collections::{BTreeSet, HashSet};

use jiff::Timestamp;

use crate::observed::PodUid;
use crate::observed::time::earlier;
use crate::workload::decision::{Blocked, Concern, Decided, Failures, Obstacles};
use crate::write::{Attempt, Change, Event, Phase, WorkloadPatch, Write};

/// What the rules have decided so far.
#[derive(Debug, Default)]
pub(crate) struct Draft {
    writes: Vec<Write>,
    patch: Option<WorkloadPatch>,
    /// When to plan again even if no change is observed.
    pub wake: Option<Timestamp>,
    /// Events to publish.
    pub events: Vec<Event>,
    /// What blocks the workload.
    pub obstacles: Obstacles,
    /// What the creation of pods waits for, if the wait ends without action by a user.
    pub waits_for: Option<Blocked>,
}

impl Draft {
    /// What is blocked by refused writes that this plan attempts again, or holds.
    pub(crate) fn refusals(&self, failures: &Failures, now: Timestamp) -> Obstacles {
        let is_attempted = |attempt| {
            self.has(|it| it.serves(attempt)) || failures.held_until(attempt, now).is_some()
        };
        let refusal_of = |concern| failures.blocked(concern, is_attempted);
        Obstacles {
            update: refusal_of(Concern::Update),
            scale: refusal_of(Concern::Scale),
            upkeep: refusal_of(Concern::Upkeep),
        }
    }

    /// Adds writes.
    pub(crate) fn extend(&mut self, writes: impl IntoIterator<Item = Write>) {
        self.writes.extend(writes);
    }

    /// The number of orphans that are adopted.
    pub(crate) fn adoptions(&self) -> usize {
        let is_adoption = |it: &&Write| matches!(it.change(), Change::AdoptPod(_));
        self.writes.iter().filter(is_adoption).count()
    }

    /// Adds what was decided about updates of pods.
    pub(crate) fn add_updates(&mut self, decided: Decided) {
        self.extend(decided.writes);
        self.wake_at(decided.wake);
        self.block(Obstacles { update: decided.blocked, ..Obstacles::default() });
    }

    /// Adds everything in another draft except `waits_for`.
    pub(crate) fn merge(&mut self, other: Draft) {
        self.extend(other.writes);
        self.patch_workload(other.patch);
        self.wake_at(other.wake);
        self.events.extend(other.events);
        self.block(other.obstacles);
    }

    /// Adds obstacles. For each concern, the first one added is reported.
    pub(crate) fn block(&mut self, obstacles: Obstacles) {
        self.obstacles = std::mem::take(&mut self.obstacles).or(obstacles);
    }

    /// Plans again at this time at the latest.
    pub(crate) fn wake_at(&mut self, at: impl Into<Option<Timestamp>>) {
        self.wake = earlier(self.wake, at.into());
    }

    /// Adds a change of the workload itself; all such changes of a plan are one patch.
    pub(crate) fn patch_workload(&mut self, change: impl Into<Option<WorkloadPatch>>) {
        let Some(change) = change.into() else {
            return;
        };
        let patch = self.patch.get_or_insert_default();
        patch.paused = change.paused.or(patch.paused);
        patch.pods_to_delete = change.pods_to_delete.or(patch.pods_to_delete.take());
        patch.finalizers = change.finalizers.or(patch.finalizers.take());
        patch.template = change.template.or(patch.template.take());
        patch.retry_off.extend(change.retry_off);
        patch.annotations.retain(|(key, _)| !change.annotations.iter().any(|(new, _)| new == key));
        patch.annotations.extend(change.annotations);
    }

    /// Leaves the kinds of write that were refused a moment ago to a later plan.
    pub(crate) fn hold(&mut self, failures: &Failures, now: Timestamp) {
        for attempt in failures.held(now) {
            self.wake_at(failures.held_until(attempt, now));
            if matches!(attempt, Attempt::SteerRollout | Attempt::MarkWorkload) {
                self.patch = None;
            }
        }
    }

    /// Whether any write satisfies the predicate.
    pub(crate) fn has(&self, predicate: impl Fn(&Write) -> bool) -> bool {
        self.writes.iter().any(predicate)
    }

    /// The pods that are deleted.
    pub(crate) fn deleted_pods(&self) -> HashSet<PodUid<'_>> {
        let deletions = self.writes.iter().filter_map(|it| match it.change() {
            Change::DeletePod(deletion) => Some(PodUid::of(&deletion.pod.uid)),
            _ => None,
        });
        deletions.collect()
    }

    /// Whether the workload itself is changed.
    pub(crate) fn changes_workload(&self) -> bool {
        self.patch.is_some()
    }

    /// The writes. A plan that changes the workload does nothing else that depends on the workload, because
    /// everything else was decided for the workload as it was.
    pub(crate) fn into_writes(self) -> Vec<Write> {
        let mut writes = self.writes;
        if let Some(patch) = self.patch {
            writes.retain(|it| it.phase() == Phase::Before);
            writes.push(Write::patch_workload(patch));
        }
        drop_conflicting(&mut writes);
        debug_assert!(touch_each_pod_at_most_once(&writes), "{writes:?}");
        writes
    }
}

/// If a write requires its pod to be unchanged, drops all other writes of that pod: another write of the same plan would
/// make it fail.
fn drop_conflicting(writes: &mut Vec<Write>) {
    let needs_unchanged = |write: &Write| write.pod().is_some_and(|pod| pod.version.is_some());
    let exclusive = writes.iter().filter(|write| needs_unchanged(write));
    let pod_uids: BTreeSet<String> =
        exclusive.filter_map(|write| Some(write.pod()?.uid.clone())).collect();
    if !pod_uids.is_empty() {
        let is_on_other_pod =
            |write: &Write| write.pod().is_none_or(|pod| !pod_uids.contains(&pod.uid));
        writes.retain(|write| needs_unchanged(write) || is_on_other_pod(write));
    }
}

/// Whether each pod is deleted, or changed in place, by at most one write. Two such writes would each rely on the other
/// not having happened.
fn touch_each_pod_at_most_once(writes: &[Write]) -> bool {
    let mut touched = BTreeSet::new();
    let touching = writes.iter().filter(|it| match it.change() {
        Change::DeletePod(_) | Change::PatchInPlace(_) | Change::ResizePod { .. } => true,
        Change::SetGate { closed_for, .. } => closed_for.is_some(),
        _ => false,
    });
    touching.filter_map(Write::pod).all(|pod| touched.insert(&pod.uid))
}
