//! Invariant 11: while `spec.protection.pods` is Guarded, no client ends a pod before its hook allows it.
//!
//! The API server enforces it, even while no operator runs: the chart's ValidatingAdmissionPolicy refuses deletions
//! and changes of pods with the label of guarded pods, and a PodDisruptionBudget of the workload refuses evictions,
//! to which the policy does not apply. This module decides on the budget, the labels and the finalizer.
//!
//! The order makes a crash at any point safe. To switch the guard on, the finalizer is added, the budget is created,
//! and existing pods are labeled once budget and policy are in force; new pods have the label from the start. To
//! switch it off, the labels, the budget and the finalizer are removed, in that order. A workload without the
//! finalizer therefore has no budget and no labeled pods, and the operator need not watch budgets.

mod budget;
mod node_going;
mod players;
mod status;
mod vacated;

pub use node_going::delays_removal;
pub(super) use node_going::{is_request_outdated, move_off_nodes};
pub use players::{EndedMatch, Ending, ended_in_spite_of_the_guard};
pub(super) use status::{status, verdict};
pub(super) use vacated::Vacated;

use jiff::Timestamp;

use crate::api::names::{GUARD_FINALIZER, HookPoint, KEPT_HOOK_ANNOTATION};
use crate::observed::{Pod, PodRef};
use crate::workload::protection::budget::budget;
use crate::workload::spec::Workload;
use crate::workload::spec::guarded::{KeptTemplate, guard_annotations};
use crate::workload::world::{GuardState, World};
use crate::write::{WorkloadPatch, Write};

/// The longest template that is kept with its workload: annotations have room for 256 KiB in total.
const MAX_KEPT_BYTES: usize = 64 << 10;

/// The part of a plan that guards the pods of a workload.
#[derive(Debug, Default)]
pub(super) struct Guarding {
    /// A change of the workload's finalizers and annotations.
    pub patch: Option<WorkloadPatch>,
    /// Labels and budget.
    pub writes: Vec<Write>,
    /// When to plan again.
    pub wake: Option<Timestamp>,
}

/// The next step of setting up the guard of a workload's pods, or of taking it down.
pub(super) fn protect(workload: &Workload, world: &World, own: &[&Pod]) -> Guarding {
    if should_guard(workload, own) {
        set_up(workload, world, own)
    } else {
        take_down(workload, world, own)
    }
}

/// Whether pods should be guarded. If the hook was removed from the workload, the guard stays until the pods are
/// released.
fn should_guard(workload: &Workload, own: &[&Pod]) -> bool {
    workload.guarded.is_some()
        && (workload.hooks.hook(HookPoint::PreDelete).is_some()
            || own.iter().any(|pod| workload.guards(pod)))
}

fn set_up(workload: &Workload, world: &World, own: &[&Pod]) -> Guarding {
    let patch = marks_to_set(workload, world);
    if !workload.guard_marks.has_finalizer() {
        return Guarding { patch, ..Guarding::default() };
    }
    let mut guarding = keep_in_force(workload, world);
    guarding.patch = patch;
    if matches!(world.memory.guard, Some(GuardState::InForce { .. })) {
        let unlabeled = unlabeled(workload, own);
        let label = || Some(workload.uid.clone());
        guarding.writes.extend(unlabeled.map(|pod| set_guard(workload, pod, label())));
    }
    guarding
}

/// Creates the budget, or restores it if another client may have changed it, and checks again whether the guard is in
/// force.
pub(super) fn keep_in_force(workload: &Workload, world: &World) -> Guarding {
    let due = world.memory.guard.as_ref().map(GuardState::due);
    if let Some(due) = due.filter(|due| *due > world.now) {
        return Guarding { wake: Some(due), ..Guarding::default() };
    }
    let budget = budget(workload);
    let write = match world.memory.guard {
        Some(GuardState::InForce { .. } | GuardState::NotInForce { .. }) => {
            Write::probe_guard(budget.name)
        }
        Some(GuardState::NoBudget { .. }) | None => Write::apply_budget(budget),
    };
    Guarding { writes: vec![write], ..Guarding::default() }
}

/// Removes the labels, then deletes the budget, then removes the finalizer.
pub(super) fn take_down(workload: &Workload, world: &World, own: &[&Pod]) -> Guarding {
    let pods = world.pods.iter().map(AsRef::as_ref);
    let orphans = pods.filter(|pod| pod.controller.is_none() && workload.guards(pod));
    let own = own.iter().copied();
    let labeled = own.filter(|pod| pod.guarded_by().is_some()).chain(orphans);
    let labeled = labeled.filter(|pod| !pod.terminating);
    let writes: Vec<Write> = labeled.map(|pod| set_guard(workload, pod, None)).collect();
    if !writes.is_empty() || !workload.guard_marks.has_finalizer() {
        return Guarding { writes, ..Guarding::default() };
    }
    match world.memory.guard {
        Some(GuardState::NoBudget { .. }) => {
            Guarding { patch: Some(without_marks(workload)), ..Guarding::default() }
        }
        _ => Guarding {
            writes: vec![Write::delete_budget(budget(workload).name)],
            ..Guarding::default()
        },
    }
}

/// Pods that should get the label.
fn unlabeled<'a>(
    workload: &'a Workload,
    own: &'a [&'a Pod],
) -> impl Iterator<Item = &'a Pod> + use<'a> {
    let is_unlabeled = |pod: &&Pod| {
        !workload.guards(pod) && !pod.terminating && !pod.ended() && !workload.is_released(pod)
    };
    let has_hook = workload.hooks.hook(HookPoint::PreDelete).is_some();
    own.iter().copied().filter(move |pod| has_hook && is_unlabeled(pod))
}

/// Sets the label of a pod, or removes it, together with the annotations for autoscalers. Annotations that the
/// template sets itself are left alone.
fn set_guard(workload: &Workload, pod: &Pod, label: Option<String>) -> Write {
    let unless_removed = |value: &str| label.is_some().then(|| value.to_owned());
    let annotations = guard_annotations(&workload.template);
    let annotations = annotations.map(|(key, value)| (key, unless_removed(value))).collect();
    Write::guard_pod(PodRef::of(pod), label, annotations)
}

/// Sets the finalizer, and keeps the current template of the PreDelete hook. None if nothing changes.
fn marks_to_set(workload: &Workload, world: &World) -> Option<WorkloadPatch> {
    let mut patch = WorkloadPatch::default();
    let marks = &workload.guard_marks;
    if !marks.has_finalizer() {
        let ours = [GUARD_FINALIZER.to_owned()];
        patch.finalizers = Some(marks.finalizers.iter().cloned().chain(ours).collect());
    }
    if let Some(kept) = template_to_keep(workload, world)
        && workload.annotations.get(KEPT_HOOK_ANNOTATION) != kept.as_ref()
    {
        patch.annotations.push((KEPT_HOOK_ANNOTATION.to_owned(), kept));
    }
    (patch != WorkloadPatch::default()).then_some(patch)
}

/// The PreDelete hook's template as a string; `Some(None)` if it is too long. If the template does not exist now, this
/// is None, and the copy that was kept earlier stays.
fn template_to_keep(workload: &Workload, world: &World) -> Option<Option<String>> {
    let name = &workload.hooks.hook(HookPoint::PreDelete)?.template_name;
    let kept =
        KeptTemplate { template_name: name.clone(), spec: world.templates.get(name)?.spec.clone() };
    let text = serde_json::to_string(&kept).ok();
    Some(text.filter(|text| text.len() <= MAX_KEPT_BYTES))
}

fn without_marks(workload: &Workload) -> WorkloadPatch {
    let finalizers = workload.guard_marks.finalizers.iter();
    let others = finalizers.filter(|it| *it != GUARD_FINALIZER).cloned();
    let is_kept = workload.annotations.contains_key(KEPT_HOOK_ANNOTATION);
    let kept = is_kept.then(|| (KEPT_HOOK_ANNOTATION.to_owned(), None));
    WorkloadPatch {
        finalizers: Some(others.collect()),
        annotations: kept.into_iter().collect(),
        ..WorkloadPatch::default()
    }
}
