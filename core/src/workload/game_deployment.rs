//! The plan for a GameDeployment, from top to bottom.

use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};

use crate::api::{GameDeployment, GameDeploymentStatus};
use crate::observed::Pod;
use crate::workload::decision::Obstacles;
use crate::workload::deletion;
use crate::workload::hooks::{Asked, Hooks, Intent, Needs};
use crate::workload::in_place::is_at;
use crate::workload::outline::{Beginning, begin, conclude, stop, without_revision};
use crate::workload::pods::active;
use crate::workload::pods::creation::{PodNames, max_creations};
use crate::workload::pods::index;
use crate::workload::pods::index::{Indexes, NoIndex};
use crate::workload::revision::Revisions;
use crate::workload::rollout::Rollout;
use crate::workload::scale::batch::Batch;
use crate::workload::scale::scale_in;
use crate::workload::scale::scale_in::{ScaleIn, Waiting};
use crate::workload::scale::sizes::{Sizes, Sizing};
use crate::workload::scale::slots::Slots;
use crate::workload::scale::to_update::ToUpdate;
use crate::workload::spec::{InvalidWorkload, Workload};
use crate::workload::update;
use crate::workload::update::budget::Budget;
use crate::workload::update::follow::follow;
use crate::workload::update::held::Held;
use crate::workload::update::new_pods::{Created, NewPods};
use crate::workload::update::{Requested, Scene};
use crate::workload::world::World;
use crate::write::{DeletionReason, Event, Plan, WorkloadPatch, Write};

/// Plans the next actions for a GameDeployment.
///
/// # Errors
/// If its spec is invalid. In that case nothing may be done, because any action might be wrong.
pub fn plan(
    gd: &GameDeployment,
    world: &World,
) -> Result<Plan<GameDeploymentStatus>, InvalidWorkload> {
    let workload = Workload::of_game_deployment(gd)?.guarded_if(world.guards_pods);
    let workload = workload.held_by(&world.memory.failures, world.now);
    if workload.guard_marks.deleting {
        return Ok(deletion::plan(&workload, world, gd.status.as_ref()));
    }
    let old_status = gd.status.as_ref();
    let Beginning { own, hooks, found, mut draft } = begin(&workload, world);
    let Some(revisions) = found.revisions else {
        let status =
            without_revision(&workload, world, &own, found.collisions, old_status, &mut draft);
        return Ok(stop(&workload, world, &own, hooks, draft, old_status, status));
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
    let (sizes, rollout_draft) = sizing.settle(choose);
    draft.merge(rollout_draft);
    let Some(mut sizes) = sizes else {
        return Ok(stop(&workload, world, &own, hooks, draft, old_status, None));
    };
    sizes.kept.sort_by_cached_key(|pod| order.rank(pod, Waiting::No));
    let (update, target) = (revisions.update.name(), sizes.rollout.target);
    let slots = Slots {
        surge: sizes.surge,
        replacement_surge: sizes.replacement_surge,
        // Orphans that are being adopted are not replaced in the meantime.
        held: draft.adoptions() as i64,
        ..Slots::new(workload.replicas, target, &sizes.kept, update)
    };
    let scene = Scene {
        workload: &workload,
        world,
        revisions: &revisions,
        own: &own,
        sizes: &sizes,
        batch: Batch::of(&workload, world, &own, &sizes.victims),
        to_update: to_update(&slots, &revisions, &sizes),
        acceptance: OnceCell::new(),
        in_place_refusal: OnceCell::new(),
    };

    let may_create = |pod: &Pod| sizes.may_create_at_revision_of(pod);
    let held = Held::of(&own, may_create, slots.missing(), world);
    let slots = Slots { held: slots.held + held.count(), ..slots };
    let mut needs = Needs::default();
    draft.extend(remove(&scene, &held, &hooks).into_decision(&mut needs));
    let Created { pods, obstacles, waits_for } = create(&scene, slots);
    draft.extend(pods.into_iter().map(Write::create_pod));
    draft.block(obstacles);
    draft.waits_for = waits_for;
    draft.block(Obstacles { scale: index::why_invalid(&workload), ..Obstacles::default() });
    let mut budget = Budget::of(&scene);
    let open = update::replace_requested(&scene, Requested::Open, &mut budget, &hooks);
    draft.extend(open.into_decision(&mut needs));
    let updates = update::update_pods(&scene, &mut budget, &hooks).into_decision(&mut needs);
    let refused = update::replace_requested(&scene, Requested::Refused, &mut budget, &hooks);
    draft.extend(refused.into_decision(&mut needs));
    draft.add_updates(updates.decided);
    draft.add_updates(follow(&scene, &updates.changing, &hooks).into_decision(&mut needs));
    if let Some(pruned) = prune_names(&workload, &own) {
        draft.patch_workload(pruned.patch);
        draft.events.extend(pruned.event);
    }
    Ok(conclude(&scene, &held, &hooks, needs, draft, old_status, |status| status))
}

/// The old pods to update: those that the partition does not keep. Old pods that surge pods have replaced are
/// deleted instead.
fn to_update<'a>(slots: &Slots, revisions: &Revisions, sizes: &Sizes<'a>) -> ToUpdate<'a> {
    let is_old = |pod: &&&Pod| !is_at(pod, revisions.update.name());
    ToUpdate {
        old: sizes.kept.iter().filter(is_old).copied().collect(),
        count: slots.to_update(),
        in_place: slots.missing_updated(),
        not_recreated: HashSet::new(),
    }
}

/// Deletes victims, pods that have ended and pods on lost nodes, if they may be deleted.
fn remove<'a>(scene: &Scene<'a>, held: &Held<'a>, hooks: &Hooks<'a>) -> Asked<'a, Vec<Write>> {
    let mut needs = Needs::default();
    let pods = held.others(scene.own).into_iter();
    let deletions = pods.filter_map(|pod| {
        let reason = if pod.ended() {
            DeletionReason::of_ended_pod(pod)
        } else if scene.sizes.victims.contains(&pod.uid()) {
            DeletionReason::ScaleIn
        } else if hooks.is_on_lost_node(pod) {
            DeletionReason::NodeLost
        } else {
            return None;
        };
        let permit = hooks.may_touch(pod, &Intent::removal(scene.world.now));
        Some(Write::delete_pod(permit.into_decision(&mut needs)?, reason))
    });
    let deletions = deletions.collect();
    Asked::new(deletions, needs)
}

/// Creates the missing pods: as many at the update revision as the rollout allows and the API server accepts, and the
/// others at the stable revision.
fn create(scene: &Scene, slots: Slots) -> Created {
    let Scene { workload, world, .. } = scene;
    let mut new_pods = NewPods::new(scene);
    let slots = Slots { surge: new_pods.surge(), ..slots };
    if slots.missing() == 0 {
        return Created { pods: Vec::new(), obstacles: new_pods.obstacles, waits_for: None };
    }
    let mut names = PodNames::new(workload, world);
    let mut indexes = Indexes::new(workload, world);
    let mut pods = Vec::new();
    let mut waits_for = None;
    let most = max_creations(workload);
    let wanted = usize::try_from(slots.missing()).map_or(most, |it| it.min(most));
    let room = scene.batch.room(wanted);
    if room < wanted {
        waits_for = scene.batch.waits_for();
    }
    for place in slots.places().take(room) {
        let Some(revision) = new_pods.revision_at(place) else {
            continue;
        };
        match indexes.take() {
            Ok(index) => pods.push(names.new_pod(revision, index)),
            Err(no_index) => {
                match no_index {
                    NoIndex::Awaited(why) => waits_for = Some(why),
                    NoIndex::Blocked(why) => new_pods.obstacles.scale = Some(why),
                }
                break;
            }
        }
    }
    Created { pods, obstacles: new_pods.obstacles, waits_for }
}

/// The removal of obsolete names from podsToDelete.
struct PrunedNames {
    /// Removes them, all in one write.
    patch: WorkloadPatch,
    /// Reports names that no pod has.
    event: Option<Event>,
}

/// Removes from podsToDelete the names of pods that do not exist or are Terminating.
fn prune_names(workload: &Workload, own: &[&Pod]) -> Option<PrunedNames> {
    if workload.pods_to_delete.is_empty() {
        return None;
    }
    let own: HashMap<&str, &Pod> = own.iter().map(|pod| (pod.name.as_str(), *pod)).collect();
    let is_needed = |name: &String| own.get(name.as_str()).is_some_and(|pod| !pod.terminating);
    let names = workload.pods_to_delete.iter().cloned();
    let (needed, obsolete): (Vec<_>, Vec<_>) = names.partition(is_needed);
    if obsolete.is_empty() {
        return None;
    }
    let unknown = obsolete.iter().filter(|name| !own.contains_key(name.as_str()));
    Some(PrunedNames {
        event: not_found(unknown.collect()),
        patch: WorkloadPatch { pods_to_delete: Some(needed), ..WorkloadPatch::default() },
    })
}

/// The maximum number of names that an event lists. The other names are only counted.
const MAX_NAMES_IN_EVENT: usize = 5;

/// The event about names in podsToDelete that no pod has.
fn not_found(names: Vec<&String>) -> Option<Event> {
    let message = match names[..] {
        [] => return None,
        [name] => {
            format!("{name}, which is not a pod of this workload; it is removed from the list")
        }
        _ => {
            let listed: Vec<_> =
                names.iter().take(MAX_NAMES_IN_EVENT).map(|it| it.as_str()).collect();
            let others = match names.len().saturating_sub(MAX_NAMES_IN_EVENT) {
                0 => String::new(),
                others => format!(" and {others} more"),
            };
            format!(
                "{}{others}, which are not pods of this workload; they are removed from the list",
                listed.join(", ")
            )
        }
    };
    Some(Event {
        warning: true,
        reason: "PodNotFound".to_owned(),
        message: format!("podsToDelete names {message}"),
    })
}
