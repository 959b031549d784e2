//! The end of a plan: revisions that nobody needs any more, the status to show, and what is told.

use std::collections::HashSet;

use crate::api::names::HookPoint;
use crate::api::{PodHookCondition, WorkloadStatus};
use crate::plan::decision::{Concern, Draft, Obstacles, Plan};
use crate::plan::hooks::Hooks;
use crate::plan::hooks::run_maker::CannotMake;
use crate::plan::in_place::is_under_way;
use crate::plan::observed::RevisionName;
use crate::plan::revision::Revisions;
use crate::plan::scale::sizes::Sizes;
use crate::plan::status::{Outcome, events};
use crate::plan::update::Scene;
use crate::plan::workload::{Progress, UpdateType, Workload};
use crate::plan::world::{Attempt, World};
use crate::plan::{revision, status};

/// Hook conditions of a point that a status shows at most.
const HOOK_CONDITIONS: usize = 100;

/// Deletes revisions beyond the history limit that neither a pod nor the status names.
pub fn prune_revisions(
    workload: &Workload,
    world: &World,
    revisions: &Revisions,
    sizes: &Sizes,
    draft: &mut Draft,
) {
    let mut named: HashSet<RevisionName> = world.pods.iter().map(|pod| pod.revision()).collect();
    named.extend([revisions.update.name(), sizes.stable]);
    named.extend(workload.progress.stable());
    for action in revision::prune(workload, &world.revisions, &named) {
        draft.push(action);
    }
}

/// The status to show when all that was learned is that a revision's name is taken.
pub fn collided(old: Option<&WorkloadStatus>, collisions: i32) -> Option<WorkloadStatus> {
    let old = old.cloned().unwrap_or_default();
    (old.collision_count != collisions).then_some(WorkloadStatus {
        collision_count: collisions,
        ..old
    })
}

/// The status to show.
pub fn status(
    scene: &Scene,
    sizes: &Sizes,
    hooks: &Hooks,
    obstacles: Obstacles,
    old: Option<&WorkloadStatus>,
    draft: &mut Draft,
) -> WorkloadStatus {
    let Scene {
        workload,
        world,
        revisions,
        rollout,
        ..
    } = scene;
    let (counts, wake) = status::count(workload, sizes.active, revisions.update.name(), world.now);
    wake.into_iter().for_each(|at| draft.wake_at(at));
    let named = sizes.kept.iter().filter(|pod| workload.is_named(pod));
    let named = named.count();
    let has_arrived = named == 0 && has_arrived(scene, sizes, &counts);
    let obstacles = all_obstacles(obstacles, scene, hooks, draft);
    let outcome = Outcome {
        rollout,
        complete: has_arrived && obstacles.update.is_none() && obstacles.scale.is_none(),
        counts,
        victims: sizes.victims.len() + named,
        obstacles,
    };
    let progress = rollout.progress.clone();
    let blocked = |point| shown(hooks.blocked.get(&point).cloned().unwrap_or_default());
    let old = old.map_or(&[][..], |old| &old.conditions);
    let conditions = status::conditions(workload, &outcome, old, world.now);
    WorkloadStatus {
        observed_generation: workload.generation,
        replicas: counts.replicas,
        ready_replicas: counts.ready,
        available_replicas: counts.available,
        updated_replicas: counts.updated,
        updated_ready_replicas: counts.updated_ready,
        update_revision: progress.update_revision,
        collision_count: progress.collision_count,
        label_selector: workload.selector.to_string(),
        current_step_index: progress.step_index,
        current_step_hash: progress.step_hash,
        canary: progress.canary,
        pause_conditions: progress.pause_conditions,
        pre_delete_hook_condition: blocked(HookPoint::PreDelete),
        pre_inplace_hook_condition: blocked(HookPoint::PreInplace),
        post_inplace_hook_condition: blocked(HookPoint::PostInplace),
        conditions,
    }
}

/// Hook conditions as the status shows them: those that have waited longest, when thousands would
/// make the object too large to be written.
fn shown(mut conditions: Vec<PodHookCondition>) -> Vec<PodHookCondition> {
    if conditions.len() > HOOK_CONDITIONS {
        conditions.sort_by_cached_key(|it| (it.start_time.0, it.pod_name.clone()));
        conditions.truncate(HOOK_CONDITIONS);
    }
    conditions
}

/// Obstacles that this plan met, then those that hooks and refused writes tell of.
fn all_obstacles(met: Obstacles, scene: &Scene, hooks: &Hooks, draft: &Draft) -> Obstacles {
    let is_asked = |attempt| draft.has(|action| Attempt::of(action) == Some(attempt));
    let refused = |concern| scene.world.failures.blocked(concern, is_asked);
    let of_step = || scene.rollout.problem.as_ref().map(CannotMake::blocked);
    Obstacles {
        update: met
            .update
            .or_else(of_step)
            .or_else(|| status::hook_problem(hooks, Concern::Update))
            .or_else(|| refused(Concern::Update)),
        scale: met
            .scale
            .or_else(|| status::hook_problem(hooks, Concern::Scale))
            .or_else(|| refused(Concern::Scale)),
    }
}

/// Whether there are as many pods as wanted, all available, and the rollout is over.
fn has_arrived(scene: &Scene, sizes: &Sizes, counts: &status::PodCounts) -> bool {
    let Scene {
        workload,
        revisions,
        rollout,
        ..
    } = scene;
    let is_stopped = rollout.paused && sizes.stable != revisions.update.name();
    // With OnDelete it is for the user to say when a pod moves.
    let is_moved =
        workload.update == UpdateType::OnDelete || i64::from(counts.updated) >= rollout.target;
    rollout.progress.is_past(workload.steps.len())
        && !is_stopped
        && is_moved
        && sizes.active.len() as i64 == workload.replicas
        && i64::from(counts.available) == workload.replicas
        && !sizes.kept.iter().any(|pod| is_under_way(pod))
}

/// Closes the plan. Invariant 8: a status that is as it was is not written again, and one that was worked out
/// from a workload that is about to be another one is not shown at all.
pub fn close<S: Clone + Default + PartialEq + AsRef<WorkloadStatus>>(
    workload: &Workload,
    mut draft: Draft,
    shown: Option<&S>,
    status: Option<S>,
) -> Plan<S> {
    let old = shown.cloned().unwrap_or_default();
    let news = status.filter(|new| shown.is_none() || *new != old);
    let status = news.filter(|_| !draft.changes_workload());
    let mut status_first = false;
    if let Some(new) = &status {
        let (old, new) = (old.as_ref(), new.as_ref());
        let steps = workload.steps.len();
        draft.events.extend(events::of_change(old, new, steps));
        // A change by the user is acknowledged before the pods follow it: a pause shows at once.
        status_first = Progress::of(old) != Progress::of(new)
            || old.observed_generation != new.observed_generation;
    }
    Plan {
        wake: draft.wake,
        events: std::mem::take(&mut draft.events),
        actions: draft.into_actions(),
        status,
        status_first,
    }
}
