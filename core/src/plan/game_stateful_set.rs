//! The plan for a GameStatefulSet, told from top to bottom.
//!
//! What differs from a GameDeployment is ordinals and volumes; everything else is the same code.

use std::cell::OnceCell;
use std::cmp::Reverse;

use crate::api::{GameStatefulSet, GameStatefulSetStatus, WorkloadStatus};
use crate::plan::decision::{Action, DeletionReason, Draft, Obstacles, Plan, PodRef};
use crate::plan::hooks::guard::may_touch;
use crate::plan::hooks::{Hooks, Intent, guard, retry};
use crate::plan::observed::{Pod, PodPhase};
use crate::plan::pods::creation::pod_with_ordinal;
use crate::plan::pods::{active, own_pods};
use crate::plan::rollout::Rollout;
use crate::plan::scale::claims::{Claims, Readiness};
use crate::plan::scale::ordinals::{Ordinals, Reach};
use crate::plan::scale::sizes::{Settled, Sizes, Sizing};
use crate::plan::status::conclusion;
use crate::plan::status::conclusion::{close, prune_revisions};
use crate::plan::update::Scene;
use crate::plan::update::budget::Budget;
use crate::plan::update::follow::follow;
use crate::plan::update::held::Held;
use crate::plan::update::new_pods::{NewPods, Place};
use crate::plan::workload::identity::Identity;
use crate::plan::workload::{InvalidWorkload, Workload, identity};
use crate::plan::world::{Attempt, World};
use crate::plan::{revision, update};

/// What is to be done about a GameStatefulSet.
///
/// # Errors
/// When its spec cannot be planned for: nothing may be done then, because anything might be wrong.
pub fn plan(
    gsts: &GameStatefulSet,
    world: &World,
) -> Result<Plan<GameStatefulSetStatus>, InvalidWorkload> {
    if gsts.metadata.deletion_timestamp.is_some() {
        return Ok(Plan::nothing());
    }
    let workload = Workload::of_game_stateful_set(gsts)?;
    let identity = Identity::of(gsts);
    let shown = gsts.status.as_ref();
    let common = shown.map(|shown| &shown.workload);
    let mut draft = Draft::default();
    retry::begin(&workload, &mut draft);
    let own = own_pods(&workload, world, &mut draft);
    let mut hooks = Hooks::new(&workload, world);
    let mut collisions = workload.progress.collision_count;
    let Some(revisions) = revision::find(&workload, world, &mut collisions, &mut draft) else {
        hooks.keep_only_removals(&own, &mut draft);
        let collided = conclusion::collided(common, collisions);
        let collided = collided.map(|workload| GameStatefulSetStatus {
            workload,
            ..shown.cloned().unwrap_or_default()
        });
        return Ok(close(&workload, draft, shown, collided));
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
        .sort_by_cached_key(|pod| Reverse(ordinals.of(pod)));
    let scene = Scene {
        workload: &workload,
        world,
        revisions: &revisions,
        rollout: &sizes.rollout,
        kept: &sizes.kept,
        moves: ordinals.moves(&revisions, &sizes),
        acceptance: OnceCell::new(),
    };
    let mut claims = Claims::new(&workload, identity, world);

    let wanted = ordinals.wanted(sizes.surge);
    let is_replaced = |pod: &Pod| sizes.makes(pod) && wanted.contains(&ordinals.of(pod));
    let held = Held::of(&own, is_replaced, i64::MAX, world, &mut draft);
    remove(
        &held.others(&own),
        &ordinals,
        &sizes,
        world,
        &mut claims,
        &mut hooks,
        &mut draft,
    );
    let mut obstacles = create(&scene, &sizes, &ordinals, &claims, &mut draft);
    // A pod that is made or removed in order rests on the others being available: no update of them
    // starts now. One that was refused is made when none of them is to be updated.
    let is_refused = world.failures.of(Attempt::CreatePod).is_some();
    let scales = draft.has(|action| match action {
        Action::CreatePod(_) => !is_refused,
        action => matches!(action, Action::DeletePod(_)),
    });
    let mut budget = match identity.ordered && scales {
        true => Budget::spent(),
        false => Budget::of(&scene),
    };
    let not_moved = update::move_pods(&scene, &mut budget, &mut hooks, &mut draft);
    if identity.ordered && draft.has(|action| Attempt::of(action).is_some_and(Attempt::updates)) {
        draft.create_no_pods();
    }
    let not_finished = follow(world.now, &own, &mut hooks, &mut draft);
    repair(&own, &ordinals, &claims, &identity, world, &mut draft);
    claims.settle(&own, |ordinal| wanted.contains(&ordinal), &mut draft);
    hooks.settle(&own, &mut draft);
    prune_revisions(&workload, world, &revisions, &sizes, &mut draft);

    obstacles.update = obstacles.update.or(not_moved).or(not_finished);
    held.tell(revisions.update.name(), sizes.stable, &mut obstacles);
    let status = conclusion::status(&scene, &sizes, &hooks, obstacles, common, &mut draft);
    Ok(close(&workload, draft, shown, Some(show(status, &sizes))))
}

/// Deletes pods that are too many, as their turn comes and their hook allows it, and pods that
/// ended by themselves.
fn remove<'a>(
    own: &[&'a Pod],
    ordinals: &Ordinals<'a>,
    sizes: &Sizes<'a>,
    world: &World,
    claims: &mut Claims<'a>,
    hooks: &mut Hooks<'a>,
    draft: &mut Draft,
) {
    let wanted = ordinals.wanted(sizes.surge);
    for pod in own.iter().filter(|pod| !pod.terminating) {
        let ordinal = ordinals.of(pod);
        let (possible, reason) = if pod.ended() {
            (true, DeletionReason::of_end(pod))
        } else if sizes.victims.contains(&pod.uid()) {
            (ordinals.may_go(pod), DeletionReason::ScaleIn)
        } else {
            continue;
        };
        let intent = Intent {
            possible,
            ..guard::removal(world.now)
        };
        if let Some(cleared) = may_touch(pod, &intent, hooks, draft)
            && (wanted.contains(&ordinal) || claims.give(&cleared, ordinal, draft))
        {
            draft.push(cleared.delete(reason));
        }
    }
}

/// Creates the pods that are missing and whose turn it is, each after its claims: at the update
/// revision those that the rollout reaches, if the API server takes them, else at the stable one.
fn create(
    scene: &Scene,
    sizes: &Sizes,
    ordinals: &Ordinals,
    claims: &Claims,
    draft: &mut Draft,
) -> Obstacles {
    let mut new_pods = NewPods::new(scene, sizes.stable);
    let reach = Reach::of(ordinals, scene.rollout);
    let mut room = reach.room(ordinals.updated(scene.revisions, sizes));
    let surge = new_pods.surge(sizes.surge);
    for ordinal in ordinals.missing(surge, draft.room()) {
        let place = if !ordinals.regular().contains(&ordinal) {
            Place::Surge
        } else if reach.covers(ordinal) && room > 0 {
            Place::Reached
        } else {
            Place::Kept
        };
        let Some(revision) = new_pods.made_at(place, draft) else {
            continue;
        };
        if place == Place::Reached && revision.name() == scene.revisions.update.name() {
            room -= 1;
        }
        match claims.prepare(ordinal, draft) {
            Readiness::Ready => {}
            Readiness::Awaited => continue,
            Readiness::Blocked(blocked) => {
                new_pods.obstacles.scale.get_or_insert(blocked);
                continue;
            }
        }
        let pod = pod_with_ordinal(scene.workload, ordinal, revision);
        draft.push(Action::CreatePod(pod));
    }
    new_pods.obstacles
}

/// Mends what belongs to a pod's identity: its labels, and claims that are gone before it started.
/// Frees ordinals whose pod cannot end because its node is lost, where the user allows it.
fn repair(
    own: &[&Pod],
    ordinals: &Ordinals,
    claims: &Claims,
    identity: &Identity,
    world: &World,
    draft: &mut Draft,
) {
    for pod in own {
        let ordinal = ordinals.of(pod);
        let is_lost = pod
            .node
            .as_ref()
            .is_some_and(|it| world.lost_nodes.contains(it));
        if pod.terminating {
            if identity.forced_off_lost_nodes && is_lost {
                draft.push(Action::ForceDeletePod(PodRef::of(pod)));
            }
            continue;
        }
        let labels: Vec<_> = identity::labels(&pod.name, ordinal)
            .into_iter()
            .filter(|(key, value)| pod.labels.get(*key) != Some(value))
            .map(|(key, value)| (key.to_owned(), value))
            .collect();
        if !labels.is_empty() {
            let pod = PodRef::of(pod);
            draft.push(Action::LabelPod { pod, labels });
        }
        if pod.phase == PodPhase::Pending && pod.node.is_none() {
            claims.prepare(ordinal, draft);
        }
    }
}

fn show(workload: WorkloadStatus, sizes: &Sizes) -> GameStatefulSetStatus {
    let is_current = |pod: &&&Pod| pod.revision() == sizes.stable;
    let current = sizes.active.iter().filter(is_current).count();
    GameStatefulSetStatus {
        current_revision: workload.canary.revision.clone(),
        current_replicas: i32::try_from(current).unwrap_or(i32::MAX),
        workload,
    }
}
