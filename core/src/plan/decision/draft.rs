//! A plan in the making.

use std::collections::{BTreeSet, HashSet};

use jiff::Timestamp;

use crate::plan::decision::{Action, Event, Phase, WorkloadPatch};
use crate::plan::observed::Pod;
use crate::plan::time::earlier;

/// Pods that one plan creates at most: a few more zeros in `replicas` must not fill the memory of
/// the operator, which other workloads share. The next plan goes on.
const CREATIONS: usize = 1_000;
/// Hooks that one plan starts at most: each run is a copy of its template, and no more are begun in
/// the half second for which a plan is acted on. The next plan goes on.
const HOOK_STARTS: usize = 500;

/// Collects what a plan asks for.
#[derive(Debug, Default)]
pub struct Draft {
    actions: Vec<Action>,
    patch: Option<WorkloadPatch>,
    kept_closed: HashSet<String>,
    creations: usize,
    hook_starts: usize,
    patches_pods: bool,
    /// When to plan again though nothing is seen to change.
    pub wake: Option<Timestamp>,
    /// What to tell the user.
    pub events: Vec<Event>,
}

impl Draft {
    /// Asks for an action.
    pub fn push(&mut self, action: Action) {
        match action {
            Action::CreatePod(_) => self.creations += 1,
            Action::CreateHookRun(_) => self.hook_starts += 1,
            Action::PatchInPlace(_) => self.patches_pods = true,
            _ => {}
        }
        self.actions.push(action);
    }

    /// Asks for some actions.
    pub fn extend(&mut self, actions: impl IntoIterator<Item = Action>) {
        actions.into_iter().for_each(|action| self.push(action));
    }

    /// Asks for all that another draft asks for.
    pub fn merge(&mut self, other: Draft) {
        self.extend(other.actions);
        if let Some(patch) = other.patch {
            self.patch_workload(patch);
        }
        self.kept_closed.extend(other.kept_closed);
        self.events.extend(other.events);
        self.wake = earlier(self.wake, other.wake);
    }

    /// Takes back what was asked for of creations.
    pub fn create_no_pods(&mut self) {
        let is_creation = |action: &Action| matches!(action, Action::CreatePod(_));
        self.actions.retain(|action| !is_creation(action));
    }

    /// How many more pods may be created.
    pub fn room(&self) -> usize {
        CREATIONS.saturating_sub(self.creations)
    }

    /// Whether one more hook may be started.
    pub fn may_start_hook(&self) -> bool {
        self.hook_starts < HOOK_STARTS
    }

    /// Whether a running pod is changed.
    pub fn patches_pods(&self) -> bool {
        self.patches_pods
    }

    /// Whether an action like that is asked for already.
    pub fn has(&self, like: impl Fn(&Action) -> bool) -> bool {
        self.actions.iter().any(like)
    }

    /// Notes that a pod's gate is to stay closed, because an update of it goes on.
    pub fn keep_closed(&mut self, pod: &Pod) {
        self.kept_closed.insert(pod.uid.clone());
    }

    /// Whether a pod's gate is to stay closed.
    pub fn is_kept_closed(&self, pod: &Pod) -> bool {
        self.kept_closed.contains(&pod.uid)
    }

    /// Asks to be called again at that moment at the latest.
    pub fn wake_at(&mut self, at: Timestamp) {
        self.wake = earlier(self.wake, Some(at));
    }

    /// Asks for a change of the workload itself; all such changes of a plan are one patch.
    pub fn patch_workload(&mut self, change: WorkloadPatch) {
        let patch = self.patch.get_or_insert_default();
        patch.paused = change.paused.or(patch.paused);
        patch.pods_to_delete = change.pods_to_delete.or(patch.pods_to_delete.take());
        patch.retry_off.extend(change.retry_off);
        patch
            .annotations
            .retain(|(key, _)| !change.annotations.iter().any(|(new, _)| new == key));
        patch.annotations.extend(change.annotations);
    }

    /// Whether the workload itself is to be changed.
    pub fn changes_workload(&self) -> bool {
        self.patch.is_some()
    }

    /// The actions. A plan that changes the workload does nothing else that rests on it: what it
    /// decided, it decided on a workload that is about to be another one.
    pub fn into_actions(self) -> Vec<Action> {
        let mut actions = self.actions;
        if let Some(patch) = self.patch {
            actions.retain(|action| action.phase() == Phase::Before);
            actions.push(Action::PatchWorkload(patch));
        }
        alone(&mut actions);
        debug_assert!(touch_each_pod_once(&actions), "{actions:?}");
        actions
    }
}

/// What rests on nothing having happened to a pod is all that a plan does to it: another write of our
/// own would be enough to make it fail.
fn alone(actions: &mut Vec<Action>) {
    let unchanged = |action: &Action| action.pod().is_some_and(|pod| pod.version.is_some());
    let pods = actions.iter().filter(|action| unchanged(action));
    let pods: BTreeSet<String> = pods
        .filter_map(|action| Some(action.pod()?.uid.clone()))
        .collect();
    if !pods.is_empty() {
        let is_other = |action: &Action| action.pod().is_none_or(|pod| !pods.contains(&pod.uid));
        actions.retain(|action| unchanged(action) || is_other(action));
    }
}

/// Whether no pod is deleted or changed by two actions of one plan, each of which would rest on the other
/// not having happened.
fn touch_each_pod_once(actions: &[Action]) -> bool {
    let mut touched = BTreeSet::new();
    let mut touching = actions.iter().filter_map(|action| match action {
        Action::DeletePod(it) => Some(&it.pod.uid),
        Action::PatchInPlace(it) => Some(&it.pod.uid),
        Action::CloseGate { pod, .. } | Action::ResizePod { pod, .. } => Some(&pod.uid),
        _ => None,
    });
    touching.all(|uid| touched.insert(uid))
}
