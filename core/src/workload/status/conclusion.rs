//! The status to show at the end of a plan.

use jiff::Timestamp;

use crate::api::names::HookPoint;
use crate::api::{PodHookCondition, WorkloadStatus};
use crate::kstatus;
use crate::observed::RevisionName;
use crate::observed::time::earlier;
use crate::workload::hooks::Awaited;
use crate::workload::in_place::is_in_progress;
use crate::workload::protection;
use crate::workload::spec::UpdateType;
use crate::workload::spec::Workload;
use crate::workload::status;
use crate::workload::status::causes::{Facts, awaited_hooks, causes};
use crate::workload::status::troubles::Troubles;
use crate::workload::status::{Outcome, PodCounts, Reasons};
use crate::workload::update::Scene;

/// The maximum number of hook conditions that a status shows for one hook point.
const HOOK_CONDITIONS: usize = 100;
/// The number of earlier stable revisions that a status shows.
const EARLIER_STABLE: usize = 10;

/// The status to show, and when to plan again because it changes by the passage of time alone.
pub(crate) fn status(
    scene: &Scene,
    counts: PodCounts,
    active: i32,
    awaited: &Awaited,
    reasons: Reasons,
    old: Option<&WorkloadStatus>,
) -> (WorkloadStatus, Option<Timestamp>) {
    let Scene { workload, world, sizes, .. } = scene;
    let kept = sizes.kept.iter();
    let to_replace = kept.filter(|pod| workload.replacement_requested(pod)).count();
    let is_settled = to_replace == 0 && is_settled(scene, &counts);
    let troubles = Troubles::of(scene);
    let mut wake = earlier(sizes.proven_at, troubles.changes_at(workload));
    let outcome = Outcome {
        rollout: &sizes.rollout,
        complete: is_settled && sizes.proven_at.is_none() && reasons.obstacles.is_none(),
        unproven: is_settled && sizes.proven_at.is_some(),
        troubles: &troubles,
        hooks: awaited_hooks(scene, awaited),
        counts,
        victims: sizes.victims.len() + to_replace,
        reserved: reserved(scene),
        reasons,
    };
    let progress = sizes.rollout.progress.clone();
    let blocked = |point| longest_waiting(awaited.blocked.get(&point).cloned().unwrap_or_default());
    let shown = old;
    let old = old.map_or(&[][..], |old| &old.conditions);
    let mut conditions = status::conditions(workload, &outcome, old, world.now);
    conditions.extend(status::guard_condition(workload, world, scene.own, old));
    let state = status::state(outcome.complete, &conditions, awaited.refused.as_ref());
    let (progress_condition, due) = kstatus::condition(state, workload.generation, old, world.now);
    wake = earlier(wake, due);
    let facts = Facts { scene, outcome: &outcome, conditions: &conditions, old: shown };
    let causes = causes(&facts);
    conditions.extend(progress_condition);
    let status = WorkloadStatus {
        observed_generation: workload.generation,
        replicas: counts.replicas,
        active_replicas: active,
        ready_replicas: counts.ready,
        available_replicas: counts.available,
        updated_replicas: counts.updated,
        updated_ready_replicas: counts.updated_ready,
        update_revision: progress.update_revision,
        creating_in_batches: scene.batch.in_progress && !are_all_available(workload, &counts),
        surge_replicas: surge(scene),
        current_revision: progress.canary.revision.clone(),
        collision_count: progress.collision_count,
        label_selector: workload.selector.to_string(),
        current_step_index: progress.step_index,
        current_step_hash: progress.step_hash,
        canary: progress.canary,
        pause_conditions: progress.pause_conditions,
        pre_delete_hook_condition: blocked(HookPoint::PreDelete),
        pre_inplace_hook_condition: blocked(HookPoint::PreInplace),
        post_inplace_hook_condition: blocked(HookPoint::PostInplace),
        protection: protection::status(workload, awaited, scene.own),
        causes,
        earlier_stable_revisions: earlier_stable(scene, shown),
        conditions,
    };
    (status, wake)
}

/// The number of pods by which replicas may be exceeded. A refused revision has no surge pods.
fn surge(scene: &Scene) -> i32 {
    let surge = match scene.is_refused() && scene.workload.identity.is_none() {
        true => scene.sizes.replacement_surge,
        false => scene.sizes.surge,
    };
    i32::try_from(surge).unwrap_or(i32::MAX)
}

/// Revisions that were stable before the current one and still exist, the latest first.
fn earlier_stable(scene: &Scene, old: Option<&WorkloadStatus>) -> Vec<String> {
    let stable = scene.sizes.stable;
    let Some(old) = old else {
        return Vec::new();
    };
    let names = [&old.canary.revision].into_iter().chain(&old.earlier_stable_revisions);
    let mut earlier: Vec<String> = Vec::new();
    for name in names {
        let revision = RevisionName::of(name);
        let is_new = revision != stable && !earlier.contains(name);
        if is_new && scene.revisions.get(revision).is_some() {
            earlier.push(name.clone());
        }
    }
    earlier.truncate(EARLIER_STABLE);
    earlier
}

/// The number of pods that are to be deleted because their ordinal is reserved.
fn reserved(scene: &Scene) -> usize {
    let Scene { workload, sizes, .. } = scene;
    let active = sizes.active.iter();
    let victims = active.filter(|pod| sizes.victims.contains(&pod.uid()));
    victims.filter(|pod| workload.is_reserved(pod)).count()
}

/// The hook conditions of the pods that have waited longest. The status shows only these, because thousands of
/// conditions would make the object too large to be written.
pub(crate) fn longest_waiting(mut conditions: Vec<PodHookCondition>) -> Vec<PodHookCondition> {
    if conditions.len() > HOOK_CONDITIONS {
        conditions.sort_by_cached_key(|it| (it.start_time.0, it.pod_name.clone()));
        conditions.truncate(HOOK_CONDITIONS);
    }
    conditions
}

/// Whether all pods are available, and there is at least one.
fn are_all_available(workload: &Workload, counts: &PodCounts) -> bool {
    let available = i64::from(counts.available);
    available > 0 && available >= workload.replicas
}

/// Whether there are as many pods as desired, all available and none to be deleted, and the rollout is complete.
fn is_settled(scene: &Scene, counts: &PodCounts) -> bool {
    let Scene { workload, revisions, sizes, .. } = scene;
    let rollout = &sizes.rollout;
    let is_stopped = rollout.paused && sizes.stable != revisions.update.name();
    // With OnDelete, the user decides when a pod is updated. The number alone does not show whether a GameStatefulSet is
    // updated: a pod below the partition may have been updated before the partition was raised.
    let is_updated = workload.update == UpdateType::OnDelete
        || (i64::from(counts.updated) >= rollout.target && scene.to_update.count <= 0);
    rollout.progress.is_past(workload.steps.len())
        && !is_stopped
        && is_updated
        && sizes.victims.is_empty()
        && sizes.active.len() as i64 == workload.replicas
        && i64::from(counts.available) == workload.replicas
        && !sizes.kept.iter().any(|pod| is_in_progress(pod))
}
