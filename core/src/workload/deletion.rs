//! The plan for a workload that is being deleted while its pods are guarded. The finalizer keeps the workload until the
//! last of its games is over.
//!
//! Without the finalizer there is nothing to do: the garbage collector deletes the pods.

use crate::api::WorkloadStatus;
use crate::api::names::HookPoint;
use crate::observed::Pod;
use crate::workload::decision::Draft;
use crate::workload::hooks::{Hooks, Intent, retry};
use crate::workload::protection::{
    Guarding, keep_in_force, status as protection_status, take_down,
};
use crate::workload::spec::Workload;
use crate::workload::status::conclusion::longest_waiting;
use crate::workload::status::{count, events, guard_condition};
use crate::workload::world::World;
use crate::write::{Attempt, DeletionReason, Plan, Write};

/// The plan for a workload that is being deleted.
pub fn plan<S: Clone + Default + PartialEq + AsRef<WorkloadStatus> + AsMut<WorkloadStatus>>(
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
        let is_refused = world.failures.of(Attempt::DeleteBudget).is_some();
        let hooks = Hooks::new(workload, world);
        let status = is_refused.then(|| status(workload, world, &own, &hooks, old_status));
        return finish(workload, &own, draft, status, old_status);
    }
    let mut hooks = Hooks::new(workload, world);
    draft.patch_workload(retry::begin(workload));
    let remaining: Vec<&Pod> = own.iter().copied().filter(|pod| !pod.terminating).collect();
    for pod in &remaining {
        // With `--cascade=orphan`, the garbage collector may have removed the pod's owner reference since the pod was
        // observed. Such a pod must not be deleted, so the deletion requires that the pod has not changed.
        let permit = hooks.may_touch(pod, &Intent::removal(world.now));
        draft.extend(
            permit.map(|it| Write::delete_unchanged_pod(it, DeletionReason::WorkloadDeleted)),
        );
    }
    draft.extend(hooks.settle(&own));
    draft.patch_workload(hooks.end_retry());
    draft.wake_at(hooks.wake);
    let guarding = match remaining.is_empty() {
        true => take_down(workload, world, &own),
        false => keep_in_force(workload, world),
    };
    add_guarding(&mut draft, guarding);
    let status = status(workload, world, &own, &hooks, old_status);
    finish(workload, &own, draft, Some(status), old_status)
}

fn add_guarding(draft: &mut Draft, guarding: Guarding) {
    draft.extend(guarding.writes);
    draft.patch_workload(guarding.patch);
    draft.wake_at(guarding.wake);
}

fn finish<S: PartialEq + AsRef<WorkloadStatus>>(
    workload: &Workload,
    own: &[&Pod],
    mut draft: Draft,
    status: Option<S>,
    old: Option<&S>,
) -> Plan<S> {
    let changed = status.filter(|new| old != Some(new));
    let status = changed.filter(|_| !draft.changes_workload());
    let shown = status.as_ref().map(AsRef::as_ref);
    draft.events.extend(shown.and_then(|new| events::stuck_guard(old.map(AsRef::as_ref), new)));
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
    hooks: &Hooks,
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
    let blocked = hooks.blocked.get(&HookPoint::PreDelete);
    status.pre_delete_hook_condition = longest_waiting(blocked.cloned().unwrap_or_default());
    status.protection = protection_status(workload, hooks, own);
    let guarded = guard_condition(workload, world, own, &status.conditions);
    status.conditions.retain(|it| it.type_ != "Guarded");
    status.conditions.extend(guarded);
    whole
}
