//! A plan under construction.

use std::collections::BTreeSet;

use jiff::Timestamp;

use crate::observed::time::earlier;
use crate::workload::decision::{Blocked, Decided, Obstacles};
use crate::write::{Action, Event, Phase, WorkloadPatch};

/// What the rules have decided so far.
#[derive(Debug, Default)]
pub struct Draft {
    actions: Vec<Action>,
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
    /// Adds actions.
    pub fn extend(&mut self, actions: impl IntoIterator<Item = Action>) {
        self.actions.extend(actions);
    }

    /// The number of orphans that are adopted.
    pub fn adoptions(&self) -> usize {
        let is_adoption = |action: &&Action| matches!(action, Action::AdoptPod(_));
        self.actions.iter().filter(is_adoption).count()
    }

    /// Adds what was decided about updates of pods.
    pub fn add_updates(&mut self, decided: Decided) {
        self.extend(decided.actions);
        self.wake_at(decided.wake);
        self.block(Obstacles { update: decided.blocked, scale: None });
    }

    /// Adds everything in another draft except `waits_for`.
    pub fn merge(&mut self, other: Draft) {
        self.extend(other.actions);
        self.patch_workload(other.patch);
        self.wake_at(other.wake);
        self.events.extend(other.events);
        self.block(other.obstacles);
    }

    /// Adds obstacles. For each concern, the first one added is reported.
    pub fn block(&mut self, obstacles: Obstacles) {
        self.obstacles = std::mem::take(&mut self.obstacles).or(obstacles);
    }

    /// Plans again at this time at the latest.
    pub fn wake_at(&mut self, at: impl Into<Option<Timestamp>>) {
        self.wake = earlier(self.wake, at.into());
    }

    /// Adds a change of the workload itself; all such changes of a plan are one patch.
    pub fn patch_workload(&mut self, change: impl Into<Option<WorkloadPatch>>) {
        let Some(change) = change.into() else {
            return;
        };
        let patch = self.patch.get_or_insert_default();
        patch.paused = change.paused.or(patch.paused);
        patch.pods_to_delete = change.pods_to_delete.or(patch.pods_to_delete.take());
        patch.finalizers = change.finalizers.or(patch.finalizers.take());
        patch.retry_off.extend(change.retry_off);
        patch.annotations.retain(|(key, _)| !change.annotations.iter().any(|(new, _)| new == key));
        patch.annotations.extend(change.annotations);
    }

    /// Whether any action satisfies the predicate.
    pub fn has(&self, predicate: impl Fn(&Action) -> bool) -> bool {
        self.actions.iter().any(predicate)
    }

    /// Whether the workload itself is changed.
    pub fn changes_workload(&self) -> bool {
        self.patch.is_some()
    }

    /// The actions. A plan that changes the workload does nothing else that depends on the workload, because
    /// everything else was decided for the workload as it was.
    pub fn into_actions(self) -> Vec<Action> {
        let mut actions = self.actions;
        if let Some(patch) = self.patch {
            actions.retain(|action| action.phase() == Phase::Before);
            actions.push(Action::PatchWorkload(patch));
        }
        drop_conflicting(&mut actions);
        debug_assert!(touch_each_pod_at_most_once(&actions), "{actions:?}");
        actions
    }
}

/// If an action requires its pod to be unchanged, drops all other actions on that pod: another write of the same plan
/// would make it fail.
fn drop_conflicting(actions: &mut Vec<Action>) {
    let needs_unchanged = |action: &Action| action.pod().is_some_and(|pod| pod.version.is_some());
    let exclusive = actions.iter().filter(|action| needs_unchanged(action));
    let pod_uids: BTreeSet<String> =
        exclusive.filter_map(|action| Some(action.pod()?.uid.clone())).collect();
    if !pod_uids.is_empty() {
        let is_on_other_pod =
            |action: &Action| action.pod().is_none_or(|pod| !pod_uids.contains(&pod.uid));
        actions.retain(|action| needs_unchanged(action) || is_on_other_pod(action));
    }
}

/// Whether each pod is deleted, or changed in place, by at most one action. Two such actions would each rely on the
/// other not having happened.
fn touch_each_pod_at_most_once(actions: &[Action]) -> bool {
    let mut touched = BTreeSet::new();
    let mut touching = actions.iter().filter_map(|action| match action {
        Action::DeletePod(it) => Some(&it.pod.uid),
        Action::PatchInPlace(it) => Some(&it.pod.uid),
        Action::CloseGate { pod, .. } | Action::ResizePod { pod, .. } => Some(&pod.uid),
        _ => None,
    });
    touching.all(|uid| touched.insert(uid))
}
