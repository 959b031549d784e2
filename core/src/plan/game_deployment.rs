//! The plan for a GameDeployment, told from top to bottom.

use std::cell::OnceCell;
use std::collections::HashMap;

use crate::api::{GameDeployment, GameDeploymentStatus};
use crate::plan::decision::{Action, DeletionReason, Draft, Event, Obstacles, Plan, WorkloadPatch};
use crate::plan::hooks::guard::may_touch;
use crate::plan::hooks::{Hooks, guard, retry};
use crate::plan::observed::Pod;
use crate::plan::pods::creation::PodNames;
use crate::plan::pods::{active, own_pods};
use crate::plan::revision::Revisions;
use crate::plan::rollout::Rollout;
use crate::plan::scale::moves::Moves;
use crate::plan::scale::scale_in;
use crate::plan::scale::scale_in::{ScaleIn, Waiting};
use crate::plan::scale::sizes::{Settled, Sizes, Sizing};
use crate::plan::status::conclusion;
use crate::plan::status::conclusion::{close, prune_revisions};
use crate::plan::update::Scene;
use crate::plan::update::budget::Budget;
use crate::plan::update::follow::follow;
use crate::plan::update::held::Held;
use crate::plan::update::new_pods::{NewPods, Place};
use crate::plan::workload::{InvalidWorkload, Workload};
use crate::plan::world::World;
use crate::plan::{revision, update};

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
    let shown = gd.status.as_ref();
    let mut draft = Draft::default();
    retry::begin(&workload, &mut draft);
    let own = own_pods(&workload, world, &mut draft);
    let mut hooks = Hooks::new(&workload, world);
    let mut collisions = workload.progress.collision_count;
    let Some(revisions) = revision::find(&workload, world, &mut collisions, &mut draft) else {
        hooks.keep_only_removals(&own, &mut draft);
        let collided = conclusion::collided(shown, collisions);
        return Ok(close(&workload, draft, shown, collided));
    };
    let active = active(&own);
    let sizing = Sizing {
        workload: &workload,
        world,
        revisions: &revisions,
        active: &active,
        counted: &active,
    };
    let order = ScaleIn::new(&workload, world, &active);
    let choose = |rollout: &Rollout| scale_in::choose(&sizing, &order, &hooks, rollout);
    let Settled {
        sizes,
        draft: asked,
    } = sizing.settle(choose);
    draft.merge(asked);
    let Some(mut sizes) = sizes else {
        hooks.keep_only_removals(&own, &mut draft);
        return Ok(close(&workload, draft, shown, None));
    };
    sizes
        .kept
        .sort_by_cached_key(|pod| order.rank(pod, Waiting::No));
    let scene = Scene {
        workload: &workload,
        world,
        revisions: &revisions,
        rollout: &sizes.rollout,
        kept: &sizes.kept,
        moves: moves(&workload, &revisions, &sizes),
        acceptance: OnceCell::new(),
    };

    let missing = workload.replicas + sizes.surge - sizes.kept.len() as i64;
    let held = Held::of(&own, |pod| sizes.makes(pod), missing, world, &mut draft);
    let others = held.others(&own);
    remove(&others, &sizes, world, &mut hooks, &mut draft);
    let mut obstacles = create(&scene, &sizes, &held, &mut draft);
    let mut budget = Budget::of(&scene);
    update::replace_named(&scene, &mut budget, &mut hooks, &mut draft);
    let not_moved = update::move_pods(&scene, &mut budget, &mut hooks, &mut draft);
    let not_finished = follow(world.now, &own, &mut hooks, &mut draft);
    hooks.settle(&own, &mut draft);
    prune_names(&workload, &own, &mut draft);
    prune_revisions(&workload, world, &revisions, &sizes, &mut draft);

    obstacles.update = obstacles.update.or(not_moved).or(not_finished);
    held.tell(revisions.update.name(), sizes.stable, &mut obstacles);
    let status = conclusion::status(&scene, &sizes, &hooks, obstacles, shown, &mut draft);
    Ok(close(&workload, draft, shown, Some(status)))
}

/// Old pods beyond those that the partition keeps. Surge pods that have taken the places of others
/// let those go.
fn moves<'a>(workload: &Workload, revisions: &Revisions, sizes: &Sizes<'a>) -> Moves<'a> {
    let update = revisions.update.name();
    let is_old = |pod: &&&Pod| pod.revision() != update;
    let old: Vec<&Pod> = sizes.kept.iter().filter(is_old).copied().collect();
    let target = sizes.rollout.target;
    Moves {
        count: old.len() as i64 - (workload.replicas - target),
        in_place: target - (sizes.kept.len() - old.len()) as i64,
        old,
    }
}

/// Deletes victims and pods that ended by themselves, where that is allowed.
fn remove<'a>(
    own: &[&'a Pod],
    sizes: &Sizes<'a>,
    world: &World,
    hooks: &mut Hooks<'a>,
    draft: &mut Draft,
) {
    for pod in own {
        let reason = if pod.ended() {
            DeletionReason::of_end(pod)
        } else if sizes.victims.contains(&pod.uid()) {
            DeletionReason::ScaleIn
        } else {
            continue;
        };
        let intent = guard::removal(world.now);
        if let Some(cleared) = may_touch(pod, &intent, hooks, draft) {
            draft.push(cleared.delete(reason));
        }
    }
}

/// Creates the pods that are missing: at the update revision as many as the rollout allows and the
/// API server takes, the others at the stable one.
fn create(scene: &Scene, sizes: &Sizes, held: &Held, draft: &mut Draft) -> Obstacles {
    let mut new_pods = NewPods::new(scene, sizes.stable);
    let there = scene.kept.len() as i64 + held.count();
    let regular = scene.workload.replicas - there;
    let missing = (regular + new_pods.surge(sizes.surge)).max(0);
    if missing == 0 {
        return new_pods.obstacles;
    }
    let update = scene.revisions.update.name();
    let updated = scene.kept.iter().filter(|pod| pod.revision() == update);
    let reached = (scene.rollout.target - updated.count() as i64).clamp(0, missing);
    let surge = missing - regular.max(missing - reached).max(0);
    let place = |number: i64| match number {
        number if number < reached - surge => Place::Reached,
        number if number < missing - surge => Place::Kept,
        _ => Place::Surge,
    };
    let mut names = PodNames::new(scene.workload, scene.world);
    for number in (0..missing).take(draft.room()) {
        if let Some(revision) = new_pods.made_at(place(number), draft) {
            draft.push(Action::CreatePod(names.new_pod(revision)));
        }
    }
    new_pods.obstacles
}

/// Takes names that are gone out of podsToDelete, all in one write.
fn prune_names(workload: &Workload, own: &[&Pod], draft: &mut Draft) {
    if workload.pods_to_delete.is_empty() {
        return;
    }
    let own: HashMap<&str, &Pod> = own.iter().map(|pod| (pod.name.as_str(), *pod)).collect();
    let is_there = |name: &String| own.get(name.as_str()).is_some_and(|pod| !pod.terminating);
    let names = workload.pods_to_delete.iter().cloned();
    let (left, gone): (Vec<_>, Vec<_>) = names.partition(is_there);
    if gone.is_empty() {
        return;
    }
    let unknown = gone.iter().filter(|name| !own.contains_key(name.as_str()));
    draft.events.extend(not_found(unknown.collect()));
    draft.patch_workload(WorkloadPatch {
        pods_to_delete: Some(left),
        ..WorkloadPatch::default()
    });
}

/// Names that an event tells; it says how many there are besides.
const NAMES_TOLD: usize = 5;

/// What is told of names in podsToDelete that no pod has.
fn not_found(names: Vec<&String>) -> Option<Event> {
    let message = match names[..] {
        [] => return None,
        [name] => {
            format!("{name}, which is not a pod of this workload; it is removed from the list")
        }
        _ => {
            let told: Vec<_> = names
                .iter()
                .take(NAMES_TOLD)
                .map(|it| it.as_str())
                .collect();
            let others = match names.len().saturating_sub(NAMES_TOLD) {
                0 => String::new(),
                others => format!(" and {others} more"),
            };
            format!(
                "{}{others}, which are not pods of this workload; they are removed from the list",
                told.join(", ")
            )
        }
    };
    Some(Event {
        warning: true,
        reason: "PodNotFound".to_owned(),
        message: format!("podsToDelete names {message}"),
    })
}
