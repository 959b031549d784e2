//! The plan for a GameStatefulSet, from top to bottom.
//!
//! It differs from the plan for a GameDeployment in ordinals and volumes; everything else is shared code.

use std::cell::OnceCell;
use std::cmp::Reverse;
use std::collections::HashSet;

use crate::api::{GameStatefulSet, GameStatefulSetStatus, WorkloadStatus};
use crate::observed::{Pod, PodPhase, PodUid};
use crate::workload::deletion;
use crate::workload::hooks::{Asked, Hooks, Intent, Needs};
use crate::workload::outline::{Beginning, begin, conclude, stop, without_revision};
use crate::workload::pods::active;
use crate::workload::pods::creation::{max_creations, pod_with_ordinal};
use crate::workload::protection::Vacated;
use crate::workload::rollout::Rollout;
use crate::workload::scale::batch::Batch;
use crate::workload::scale::claims::{Claims, Readiness};
use crate::workload::scale::ordinals::{Ordinals, Reach};
use crate::workload::scale::sizes::{Sizes, Sizing};
use crate::workload::scale::slots::Place;
use crate::workload::spec::identity;
use crate::workload::spec::identity::Identity;
use crate::workload::spec::{InvalidWorkload, Workload};
use crate::workload::update;
use crate::workload::update::budget::Budget;
use crate::workload::update::follow::follow;
use crate::workload::update::held::Held;
use crate::workload::update::new_pods::{Created, NewPods};
use crate::workload::update::{Requested, Scene};
use crate::workload::world::World;
use crate::write::{Attempt, Change, DeletionReason, Plan, Write};

/// Plans the next actions for a GameStatefulSet.
///
/// # Errors
/// If its spec is invalid. In that case nothing may be done, because any action might be wrong.
pub fn plan(
    gsts: &GameStatefulSet,
    world: &World,
) -> Result<Plan<GameStatefulSetStatus>, InvalidWorkload> {
    let workload = Workload::of_game_stateful_set(gsts)?.guarded_if(world.guards_pods);
    let workload = workload.held_by(&world.memory.failures, world.now);
    if workload.guard_marks.deleting {
        return Ok(deletion::plan(&workload, world, gsts.status.as_ref()));
    }
    let identity = Identity::of(gsts);
    let old_status = gsts.status.as_ref();
    let Beginning { own, hooks, found, mut draft } = begin(&workload, world);
    let Some(revisions) = found.revisions else {
        let status =
            without_revision(&workload, world, &own, found.collisions, old_status, &mut draft);
        return Ok(stop(&workload, world, &own, hooks, draft, old_status, status));
    };
    let ordinals = Ordinals::new(&workload, identity, world, &own);
    let active = active(&own);
    let regular = ordinals.regular_of(&active);
    let sizing = Sizing {
        workload: &workload,
        world,
        revisions: &revisions,
        active: &active,
        counted: &regular,
    };
    let choose = |rollout: &Rollout| ordinals.choose(&sizing, rollout);
    let (sizes, rollout_draft) = sizing.settle(choose);
    draft.merge(rollout_draft);
    let Some(mut sizes) = sizes else {
        return Ok(stop(&workload, world, &own, hooks, draft, old_status, None));
    };
    sizes.kept.sort_by_cached_key(|pod| Reverse(ordinals.ordinal_of(pod)));
    let scene = Scene {
        workload: &workload,
        world,
        revisions: &revisions,
        own: &own,
        sizes: &sizes,
        batch: Batch::of(&workload, world, &own, &sizes.victims),
        to_update: ordinals.to_update(&revisions, &sizes),
        acceptance: OnceCell::new(),
        in_place_refusal: OnceCell::new(),
    };
    let mut claims = Claims::new(&workload, identity, world);

    let wanted = ordinals.wanted(sizes.surge);
    let needs_replacement = |pod: &Pod| {
        sizes.may_create_at_revision_of(pod) && wanted.contains(ordinals.ordinal_of(pod))
    };
    let held = Held::of(&own, needs_replacement, i64::MAX, world);
    let mut vacated = Vacated::of(&workload, world);
    let mut created = create(&scene, &ordinals, &vacated, &mut claims);
    // Creating or deleting a pod in order relies on the others being available, so no pod update starts in the same
    // plan. A creation that was refused does not hold updates back: it is attempted again when no update starts.
    let is_refused = world.memory.failures.of(Attempt::CreatePod).is_some();
    let can_create = !is_refused && created.obstacles.scale.is_none();
    let leaving = ordinals.leaving(&sizes.victims, can_create);
    // The pod of a reserved ordinal may come back, and must find its claims unchanged.
    let keeps_claims = |ordinal| wanted.contains(ordinal) || workload.reserved.contains(&ordinal);
    let mut removal =
        Removal { scene: &scene, ordinals: &ordinals, leaving, claims: &mut claims, hooks: &hooks };
    let mut needs = Needs::default();
    let removals = removal.remove(held.others(&own), keeps_claims).into_decision(&mut needs);
    let scales = !removals.is_empty() || (!created.pods.is_empty() && !is_refused);
    // Deleting the pod of a reserved ordinal relies on its substitute, so the substitute is not updated in the same
    // plan.
    let mut budget = match (identity.ordered && scales) || removals.iter().any(deletes_reserved) {
        true => Budget::spent(),
        false => Budget::of(&scene),
    };
    let open = update::replace_requested(&scene, Requested::Open, &mut budget, &hooks);
    let mut replacements = open.into_decision(&mut needs);
    let updates = update::update_pods(&scene, &mut budget, &hooks).into_decision(&mut needs);
    let refused = update::replace_requested(&scene, Requested::Refused, &mut budget, &hooks);
    replacements.extend(refused.into_decision(&mut needs));
    let mut attempts = updates.decided.writes.iter().filter_map(Write::attempt);
    let is_updating = attempts.any(Attempt::updates) || !replacements.is_empty();
    if identity.ordered && is_updating {
        created.pods.clear();
    }
    draft.extend(removals);
    draft.extend(replacements);
    draft.extend(created.pods.into_iter().map(Write::create_pod));
    draft.block(created.obstacles);
    draft.waits_for = created.waits_for;
    draft.add_updates(updates.decided);
    draft.add_updates(follow(&scene, &updates.changing, &hooks).into_decision(&mut needs));
    draft.extend(repair(&scene, &ordinals, &identity, &mut claims));
    draft.extend(claims.settle(&own, keeps_claims));
    vacated.add(&workload, world, &own, &draft);
    draft.wake_at(vacated.wake());
    let show = |status| whole_status(status, &sizes, &vacated);
    Ok(conclude(&scene, &held, &hooks, needs, draft, old_status, show))
}

/// Whether a pod is deleted because its ordinal is reserved.
fn deletes_reserved(write: &Write) -> bool {
    matches!(write.change(), Change::DeletePod(it) if it.reason == DeletionReason::Reserved)
}

/// Deletes surplus pods when it is their turn and their hook allows it, pods that have ended, and guarded pods on lost
/// nodes. A pod whose claims are to be deleted with it is not deleted before it owns them.
struct Removal<'s, 'a> {
    scene: &'s Scene<'a>,
    ordinals: &'s Ordinals<'a>,
    /// Pods whose turn it is to be deleted for good.
    leaving: HashSet<PodUid<'a>>,
    claims: &'s mut Claims<'a>,
    hooks: &'s Hooks<'a>,
}

impl<'a> Removal<'_, 'a> {
    fn remove(
        &mut self,
        pods: Vec<&'a Pod>,
        keeps_claims: impl Fn(i64) -> bool,
    ) -> Asked<'a, Vec<Write>> {
        let mut needs = Needs::default();
        let deletions = pods.into_iter().filter_map(|pod| {
            let (reason, possible) = self.reason(pod)?;
            let intent = Intent { possible, ..Intent::removal(self.scene.world.now) };
            let permit = self.hooks.may_touch(pod, &intent).into_decision(&mut needs)?;
            let ordinal = self.ordinals.ordinal_of(pod);
            let may_delete = keeps_claims(ordinal) || self.claims.transfer(&permit, ordinal);
            may_delete.then(|| Write::delete_pod(permit, reason))
        });
        let deletions = deletions.collect();
        Asked::new(deletions, needs)
    }

    /// Why a pod is to be deleted, and whether its turn has come. None if the pod is to be kept.
    fn reason(&self, pod: &Pod) -> Option<(DeletionReason, bool)> {
        if pod.ended() {
            return Some((DeletionReason::of_ended_pod(pod), true));
        }
        if self.hooks.is_on_lost_node(pod) {
            return Some((DeletionReason::NodeLost, true));
        }
        let is_victim = self.scene.sizes.victims.contains(&pod.uid());
        is_victim.then(|| {
            let reason = match self.scene.workload.is_reserved(pod) {
                true => DeletionReason::Reserved,
                false => DeletionReason::ScaleIn,
            };
            (reason, self.leaving.contains(&pod.uid()))
        })
    }
}

/// Creates the missing pods whose turn it is. A pod's claims are created before the pod. Pods that the rollout has
/// reached are created at the update revision, if the API server accepts it; the others at the stable revision.
fn create(scene: &Scene, ordinals: &Ordinals, vacated: &Vacated, claims: &mut Claims) -> Created {
    let mut new_pods = NewPods::new(scene);
    let mut pods = Vec::new();
    let reach = Reach::of(ordinals, &scene.sizes.rollout);
    let room = reach.room(ordinals.updated(scene.revisions, scene.sizes));
    let regular = ordinals.regular();
    let surge = new_pods.surge();
    let missing = ordinals.missing(surge, max_creations(scene.workload));
    let reached = ordinals.reached(&missing, &reach, room);
    let batch_room = scene.batch.room(missing.len());
    let is_batch_full = batch_room < missing.len();
    let is_vacated = |ordinal: &i64| vacated.has(&scene.workload.pod_name(*ordinal));
    let (awaited, missing): (Vec<_>, Vec<_>) = missing.into_iter().partition(is_vacated);
    for ordinal in missing.into_iter().take(batch_room) {
        let place = if !regular.contains(ordinal) {
            Place::Surge
        } else if reached.contains(&ordinal) {
            Place::Reached
        } else {
            Place::Kept
        };
        let Some(revision) = new_pods.revision_at(place) else {
            continue;
        };
        match claims.prepare(ordinal) {
            Readiness::Ready => {
                pods.push(pod_with_ordinal(scene.workload, scene.world, ordinal, revision))
            }
            Readiness::Awaited => {}
            Readiness::Blocked(blocked) => {
                new_pods.obstacles.scale.get_or_insert(blocked);
            }
        }
    }
    Created {
        pods,
        obstacles: new_pods.obstacles,
        waits_for: match awaited.is_empty() {
            true => scene.batch.waits_for().filter(|_| is_batch_full),
            false => vacated.waits_for(),
        },
    }
}

/// Repairs what belongs to a pod's identity: labels, and claims that were deleted before the pod was scheduled. Where
/// the user allows it, also frees the ordinals of pods that cannot terminate because their node is lost.
fn repair(
    scene: &Scene,
    ordinals: &Ordinals,
    identity: &Identity,
    claims: &mut Claims,
) -> Vec<Write> {
    let mut writes = Vec::new();
    for pod in scene.own {
        let ordinal = ordinals.ordinal_of(pod);
        let lost_nodes = &scene.world.lost_nodes;
        let lost_node = pod.node.as_ref().and_then(|node| lost_nodes.get(node));
        let is_unreachable = lost_node.is_some_and(|node| node.unreachable);
        if pod.terminating {
            let is_forced = identity.forced_off_lost_nodes && is_unreachable;
            writes.extend(Write::force_deletion(pod).filter(|_| is_forced));
            continue;
        }
        let labels: Vec<_> = identity::labels(&pod.name, ordinal)
            .into_iter()
            .filter(|(key, value)| pod.labels.get(*key) != Some(value))
            .map(|(key, value)| (key.to_owned(), value))
            .collect();
        if !labels.is_empty() {
            writes.push(Write::label_pod(pod, labels));
        }
        if pod.phase == PodPhase::Pending && pod.node.is_none() {
            claims.prepare(ordinal);
        }
    }
    writes
}

/// The status of a GameStatefulSet: the status of any workload, and the fields that only a GameStatefulSet has.
fn whole_status(
    mut workload: WorkloadStatus,
    sizes: &Sizes,
    vacated: &Vacated,
) -> GameStatefulSetStatus {
    if let Some(protection) = &mut workload.protection {
        protection.vacated = vacated.status();
    }
    let is_current = |pod: &&&Pod| pod.revision() == sizes.stable;
    let current = sizes.active.iter().filter(is_current).count();
    GameStatefulSetStatus { current_replicas: i32::try_from(current).unwrap_or(i32::MAX), workload }
}
