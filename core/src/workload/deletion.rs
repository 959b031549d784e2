//! The plan for a workload that is being deleted while its pods are guarded. The finalizer keeps the workload until the
//! last of its games is over.
//!
//! Without the finalizer there is nothing to do: the garbage collector deletes the pods.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::api::WorkloadStatus;
use crate::api::names::HookPoint;
use crate::observed::Pod;
use crate::workload::decision::Draft;
use crate::workload::hooks::{Awaited, Hooks, Intent, Needs, Settled, retry};
use crate::workload::protection::{
    Guarding, keep_in_force, status as protection_status, take_down,
};
use crate::workload::spec::Workload;
use crate::workload::status::causes::{hooks_of_pods, of_removals};
use crate::workload::status::conclusion::longest_waiting;
use crate::workload::status::{count, events, guard_condition, leaving};
use crate::workload::world::World;
use crate::write::{DeletionReason, Plan, Write};

/// The plan for a workload that is being deleted.
pub(super) fn plan<
    S: Clone + Default + PartialEq + AsRef<WorkloadStatus> + AsMut<WorkloadStatus>,
>(
    workload: &Workload,
    world: &World,
    old_status: Option<&S>,
) -> Plan<S> {
    if !workload.guard_marks.has_finalizer() {
        return Plan::nothing();
    }
    let pods = world.pods.iter().map(AsRef::as_ref);
    let own: Vec<&Pod> =
        pods.filter(|pod| pod.controller.as_ref() == Some(&workload.uid)).collect();
    let mut draft = Draft::default();
    // With `--cascade=orphan`, the pods are left to the user; without protection, to the garbage collector.
    if workload.guard_marks.is_orphaning() || workload.guarded.is_none() {
        add_guarding(&mut draft, take_down(workload, world, &own));
        let awaited = Awaited::default();
        let is_refused = !world.memory.failures.is_empty();
        let status =
            is_refused.then(|| status(workload, world, &own, &awaited, &draft, old_status));
        return finish(workload, world, &own, draft, status, old_status);
    }
    let hooks = Hooks::new(workload, world);
    let mut needs = Needs::default();
    draft.patch_workload(retry::begin(workload));
    let remaining: Vec<&Pod> = own.iter().copied().filter(|pod| !pod.terminating).collect();
    for pod in &remaining {
        // With `--cascade=orphan`, the garbage collector may have removed the pod's owner reference since the pod was
        // observed. Such a pod must not be deleted, so the deletion requires that the pod has not changed.
        let permit = hooks.may_touch(pod, &Intent::removal(world.now)).into_decision(&mut needs);
        draft.extend(
            permit.map(|it| Write::delete_unchanged_pod(it, DeletionReason::WorkloadDeleted)),
        );
    }
    let Settled { writes, awaited } = hooks.settle(needs, &own);
    draft.extend(writes);
    draft.patch_workload(hooks.end_retry());
    draft.wake_at(awaited.wake);
    let guarding = match remaining.is_empty() {
        true => take_down(workload, world, &own),
        false => keep_in_force(workload, world),
    };
    add_guarding(&mut draft, guarding);
    let status = status(workload, world, &own, &awaited, &draft, old_status);
    finish(workload, world, &own, draft, Some(status), old_status)
}

fn add_guarding(draft: &mut Draft, guarding: Guarding) {
    draft.extend(guarding.writes);
    draft.patch_workload(guarding.patch);
    draft.wake_at(guarding.wake);
}

fn finish<S: PartialEq + AsRef<WorkloadStatus>>(
    workload: &Workload,
    world: &World,
    own: &[&Pod],
    mut draft: Draft,
    status: Option<S>,
    old: Option<&S>,
) -> Plan<S> {
    draft.hold(&world.memory.failures, world.now);
    let changed = status.filter(|new| old != Some(new));
    let status = changed.filter(|_| !draft.changes_workload());
    let shown = status.as_ref().map(AsRef::as_ref);
    if let Some(new) = shown {
        let before = old.map_or_else(WorkloadStatus::default, |old| old.as_ref().clone());
        draft.events.extend(events::stuck_guard(&before, new));
        draft.events.extend(events::failures(&before, new));
    }
    let status_first = shown.is_some_and(|new| workload.waits.differ(new, own));
    Plan {
        wake: draft.wake,
        events: std::mem::take(&mut draft.events),
        writes: draft.into_writes(),
        status,
        status_first,
    }
}

/// The old status, with new values for the fields that change while pods wait for their hooks.
fn status<S: Clone + Default + AsMut<WorkloadStatus>>(
    workload: &Workload,
    world: &World,
    own: &[&Pod],
    awaited: &Awaited,
    draft: &Draft,
    old: Option<&S>,
) -> S {
    let active: Vec<&Pod> = own.iter().copied().filter(|pod| !pod.terminating).collect();
    let (counts, _) = count(workload, &active, workload.progress.update(), world.now);
    let mut whole = old.cloned().unwrap_or_default();
    let status = whole.as_mut();
    status.observed_generation = workload.generation;
    status.replicas = counts.replicas;
    // All pods are to be removed.
    status.active_replicas = 0;
    status.ready_replicas = counts.ready;
    status.available_replicas = counts.available;
    status.updated_replicas = counts.updated;
    status.updated_ready_replicas = counts.updated_ready;
    let blocked = awaited.blocked.get(&HookPoint::PreDelete);
    status.pre_delete_hook_condition = longest_waiting(blocked.cloned().unwrap_or_default());
    status.protection = protection_status(workload, awaited, own);
    let shown = status.clone();
    let old = std::mem::take(&mut status.conditions);
    let refusals = draft.refusals(&world.memory.failures, world.now);
    let waits = hooks_of_pods(awaited, world.now);
    let mut conditions = leaving(workload, counts.replicas, &waits, &refusals, &old, world.now);
    conditions.extend(guard_condition(workload, world, own, &old));
    let is_decided = |it: &Condition| conditions.iter().any(|new| new.type_ == it.type_);
    let is_failure = |it: &Condition| it.type_ == "Guarded" || it.type_.starts_with("Failed");
    let others: Vec<_> = old.into_iter().filter(|it| !is_decided(it) && !is_failure(it)).collect();
    status.conditions = others.into_iter().chain(conditions).collect();
    status.causes = of_removals(waits, &status.conditions, Some(&shown));
    whole
}
