//! The plan for a GameDeployment, told from top to bottom.

use std::collections::BTreeSet;

use kube::core::SelectorExt;

use super::acceptance::{Acceptance, acceptance};
use super::draft::Draft;
use super::follow::follow;
use super::guard::{self, may_touch};
use super::hooks::Hooks;
use super::in_place::is_under_way;
use super::pods::PodNames;
use super::revision::{self, Revisions};
use super::sizes::{Sizes, Sizing};
use super::status::{self, Outcome};
use super::update::{self, Blocked, Budget, Scene};
use super::workload::{InvalidWorkload, Progress, Workload};
use super::{
    Action, DeletionReason, Event, Plan, Pod, PodRef, WorkloadPatch, World, events, retry,
};
use crate::api::names::HookPoint;
use crate::api::{GameDeployment, GameDeploymentStatus};

/// What is to be done about a GameDeployment.
///
/// # Errors
/// When its spec cannot be planned for: nothing may be done then, because anything might be wrong.
pub fn plan(
    gd: &GameDeployment,
    world: &World,
) -> Result<Plan<GameDeploymentStatus>, InvalidWorkload> {
    if gd.metadata.deletion_timestamp.is_some() {
        return Ok(Plan::nothing());
    }
    let workload = Workload::of_game_deployment(gd)?;
    let mut draft = Draft::default();
    retry::begin(&workload, &mut draft);
    let own = own_pods(&workload, world, &mut draft);
    let mut hooks = Hooks::new(&workload, world);
    let mut collisions = workload.progress.collision_count;
    let Some(revisions) = revision::find(&workload, world, &mut collisions, &mut draft) else {
        // A revision that nobody has seen yet: hooks of updates to another one are called off now,
        // so that their success cannot count after a revert.
        hooks.keep_removals(&own);
        hooks.settle(&own, &mut draft);
        let old = gd.status.clone().unwrap_or_default();
        let collided = (old.collision_count != collisions).then_some(GameDeploymentStatus {
            collision_count: collisions,
            ..old
        });
        return Ok(finish(draft, gd, collided));
    };
    let active: Vec<&Pod> = own
        .iter()
        .copied()
        .filter(|pod| !pod.terminating && !pod.ended())
        .collect();
    let sizing = Sizing {
        workload: &workload,
        world,
        revisions: &revisions,
        active: &active,
    };
    let Some(sizes) = sizing.settle(&hooks, &mut draft) else {
        return Ok(finish(draft, gd, None));
    };
    let scene = Scene {
        workload: &workload,
        world,
        revisions: &revisions,
        rollout: &sizes.rollout,
        kept: &sizes.kept,
        order: &sizes.order,
    };

    remove(&own, &sizes, world, &mut hooks, &mut draft);
    let refused = create(&scene, &sizes, &mut draft);
    let mut budget = Budget::of(&scene);
    update::replace_named(&scene, &mut budget, &mut hooks, &mut draft);
    let not_moved = update::move_pods(&scene, &mut budget, &mut hooks, &mut draft);
    let not_finished = follow(world.now, &own, &mut hooks, &mut draft);
    hooks.settle(&own, &mut draft);
    prune_names(&workload, &own, &mut draft);
    prune_revisions(&workload, world, &revisions, &sizes, &mut draft);

    let failed_update = refused.or(not_moved).or(not_finished);
    let status = show(gd, &scene, &sizes, &hooks, failed_update, &mut draft);
    Ok(finish(draft, gd, Some(status)))
}

/// Pods that the workload controls. Orphans that its selector matches are taken over, and pods that
/// it no longer matches let go.
fn own_pods<'a>(workload: &Workload, world: &'a World, draft: &mut Draft) -> Vec<&'a Pod> {
    let mut own = Vec::new();
    for pod in world.pods.iter().map(AsRef::as_ref) {
        let matches = workload.selector.matches(&pod.labels);
        match &pod.controller {
            Some(uid) if *uid == workload.uid && matches => own.push(pod),
            Some(uid) if *uid == workload.uid && !pod.terminating => {
                draft.push(Action::ReleasePod(PodRef::of(pod)))
            }
            None if matches && !pod.terminating && !pod.ended() => {
                draft.push(Action::AdoptPod(PodRef::of(pod)))
            }
            _ => {}
        }
    }
    own
}

/// Deletes victims whose hook allows it, and pods that ended by themselves.
fn remove<'a>(
    own: &[&'a Pod],
    sizes: &Sizes<'a>,
    world: &World,
    hooks: &mut Hooks<'a>,
    draft: &mut Draft,
) {
    for pod in own {
        if let Some(cleared) = guard::ended(pod) {
            draft.push(cleared.delete(DeletionReason::Ended));
        } else if sizes.victims.contains(pod.uid.as_str()) {
            let intent = guard::removal(true, world.now);
            if let Some(cleared) = may_touch(pod, &intent, hooks, draft) {
                draft.push(cleared.delete(DeletionReason::ScaleIn));
            }
        }
    }
}

/// Creates the pods that are missing: at the update revision as many as the rollout allows and the
/// API server takes, the others at the stable one.
fn create(scene: &Scene, sizes: &Sizes, draft: &mut Draft) -> Option<Blocked> {
    let Scene {
        workload,
        revisions,
        rollout,
        kept,
        ..
    } = scene;
    let update = revisions.update;
    let stable = revisions.template(&sizes.stable);
    let is_rollout = sizes.stable != update.name && stable.is_some();
    let mut refused = if is_rollout {
        update::refused_in_place(workload, revisions, &sizes.stable)
    } else {
        None
    };
    let surge = if rollout.paused || refused.is_some() {
        0
    } else {
        sizes.surge
    };
    let missing = (workload.replicas + surge - kept.len() as i64).max(0);
    let updated = kept
        .iter()
        .filter(|pod| pod.revision() == update.name)
        .count() as i64;
    let mut of_update = if is_rollout {
        (rollout.target - updated).clamp(0, missing)
    } else {
        missing
    };
    let mut of_stable = missing - of_update;
    if is_rollout && of_update > 0 {
        if refused.is_none() {
            match acceptance(scene, draft) {
                Acceptance::Accepted => {}
                Acceptance::Asked => of_update = 0,
                Acceptance::Refused(why) => refused = Some(why),
            }
        }
        if refused.is_some() {
            of_stable = (workload.replicas - kept.len() as i64).max(0);
            of_update = 0;
        }
    }
    let mut names = PodNames::new(workload, scene.world);
    let of_both = [
        (of_update, Some(&update.template), update.name.as_str()),
        (of_stable, stable, &sizes.stable),
    ];
    for (count, template, revision) in of_both {
        let Some(template) = template else { continue };
        for _ in 0..count {
            draft.push(Action::CreatePod(names.new_pod(revision, template)));
        }
    }
    refused
}

/// Takes names that are gone out of podsToDelete, all in one write.
fn prune_names(workload: &Workload, own: &[&Pod], draft: &mut Draft) {
    let there = |name: &String| own.iter().any(|pod| pod.name == *name && !pod.terminating);
    let (left, gone): (Vec<_>, Vec<_>) = workload.pods_to_delete.iter().cloned().partition(there);
    if gone.is_empty() {
        return;
    }
    for name in gone
        .iter()
        .filter(|name| own.iter().all(|pod| pod.name != **name))
    {
        draft.events.push(Event {
            warning: true,
            reason: "PodNotFound".to_owned(),
            message: format!(
                "podsToDelete names {name}, which is not a pod of this workload; it is taken out"
            ),
        });
    }
    draft.patch_workload(WorkloadPatch {
        pods_to_delete: Some(left),
        ..WorkloadPatch::default()
    });
}

fn prune_revisions(
    workload: &Workload,
    world: &World,
    revisions: &Revisions,
    sizes: &Sizes,
    draft: &mut Draft,
) {
    let mut named: BTreeSet<&str> = world.pods.iter().map(|pod| pod.revision()).collect();
    named.extend([
        revisions.update.name.as_str(),
        &sizes.stable,
        &workload.progress.canary.revision,
    ]);
    for action in revision::prune(workload, &world.revisions, &named) {
        draft.push(action);
    }
}

/// The status to show.
fn show(
    gd: &GameDeployment,
    scene: &Scene,
    sizes: &Sizes,
    hooks: &Hooks,
    failed_update: Option<Blocked>,
    draft: &mut Draft,
) -> GameDeploymentStatus {
    let Scene {
        workload,
        world,
        revisions,
        rollout,
        kept,
        ..
    } = scene;
    let (counts, wake) = status::count(workload, sizes.active, &revisions.update.name, world.now);
    wake.into_iter().for_each(|at| draft.wake_at(at));
    let told = |message: &Option<String>, reason| {
        message.clone().map(|message| Blocked { reason, message })
    };
    let step_hook = rollout.problem.as_ref();
    let failed_update = failed_update
        .or_else(|| {
            step_hook.map(|it| Blocked {
                reason: it.reason(),
                message: it.to_string(),
            })
        })
        .or_else(|| status::hook_problem(hooks, false))
        .or_else(|| told(&world.failures.update, "FailedUpdate"));
    let failed_scale =
        status::hook_problem(hooks, true).or_else(|| told(&world.failures.scale, "FailedCreate"));
    let steps_over = rollout
        .progress
        .step_index
        .is_none_or(|index| index as usize >= workload.steps.len());
    let is_named = |pod: &&&Pod| workload.pods_to_delete.contains(&pod.name);
    let named = kept.iter().filter(is_named).count();
    let outcome = Outcome {
        rollout,
        complete: named == 0
            && failed_update.is_none()
            && failed_scale.is_none()
            && steps_over
            && !(rollout.paused && sizes.stable != revisions.update.name)
            && sizes.active.len() as i64 == workload.replicas
            && i64::from(counts.available) == workload.replicas
            && i64::from(counts.updated) >= rollout.target
            && !kept.iter().any(|pod| is_under_way(pod)),
        counts,
        victims: sizes.victims.len() + named,
        failed_scale,
        failed_update,
    };
    let old = gd.status.clone().unwrap_or_default();
    let progress = rollout.progress.clone();
    let blocked = |point| hooks.blocked.get(&point).cloned().unwrap_or_default();
    let conditions = status::conditions(workload, &outcome, &old.conditions, world.now);
    GameDeploymentStatus {
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

/// Closes the plan: a status that is as it was is not shown again, and one that was worked out
/// from a workload that is about to be another one is not shown at all.
fn finish(
    mut draft: Draft,
    gd: &GameDeployment,
    status: Option<GameDeploymentStatus>,
) -> Plan<GameDeploymentStatus> {
    let old = gd.status.clone().unwrap_or_default();
    let news = status.filter(|new| gd.status.is_none() || *new != old);
    let status = news.filter(|_| !draft.changes_workload());
    let mut status_first = false;
    if let Some(new) = &status {
        draft.events.extend(events::of_change(&old, new));
        status_first = progress_of(&old) != progress_of(new);
    }
    Plan {
        wake: draft.wake,
        events: std::mem::take(&mut draft.events),
        actions: draft.into_actions(),
        status,
        status_first,
    }
}

/// The part of a status that decisions rest on.
fn progress_of(status: &GameDeploymentStatus) -> Progress {
    Progress {
        update_revision: status.update_revision.clone(),
        collision_count: status.collision_count,
        step_index: status.current_step_index,
        step_hash: status.current_step_hash.clone(),
        canary: status.canary.clone(),
        pause_conditions: status.pause_conditions.clone(),
    }
}
