//! How the plans for both kinds of workload begin, and how they end.

use std::collections::HashSet;

use crate::api::WorkloadStatus;
use crate::observed::{Pod, RevisionName};
use crate::workload::decision::{Concern, Draft, Obstacles};
use crate::workload::hooks::run_maker::CannotMake;
use crate::workload::hooks::{Awaited, Hooks, Needs, Settled, retry};
use crate::workload::pods::{OwnPods, own_pods};
use crate::workload::protection::{move_off_nodes, protect};
use crate::workload::revision::FoundRevisions;
use crate::workload::spec::Progress;
use crate::workload::spec::Workload;
use crate::workload::status::{Reasons, causes, conclusion, events};
use crate::workload::update::Scene;
use crate::workload::update::held::Held;
use crate::workload::world::World;
use crate::workload::{revision, status};
use crate::write::{Plan, Write};

/// What every plan begins with.
pub(super) struct Beginning<'a> {
    /// The workload's pods.
    pub own: Vec<&'a Pod>,
    /// Its hooks.
    pub hooks: Hooks<'a>,
    /// Its revisions.
    pub found: FoundRevisions<'a>,
    /// What has been decided so far.
    pub draft: Draft,
}

/// Begins a plan.
pub(super) fn begin<'a>(workload: &'a Workload<'a>, world: &'a World) -> Beginning<'a> {
    let OwnPods { pods, writes } = own_pods(workload, world);
    let mut found = revision::find(workload, world);
    let mut draft = Draft::default();
    draft.patch_workload(retry::begin(workload));
    draft.extend(writes);
    draft.extend(std::mem::take(&mut found.writes));
    draft.block(Obstacles { update: workload.held.clone(), ..Obstacles::default() });
    let guarding = protect(workload, world, &pods);
    draft.extend(guarding.writes);
    draft.patch_workload(guarding.patch);
    draft.wake_at(guarding.wake);
    draft.extend(move_off_nodes(workload, world, &pods));
    Beginning { own: pods, hooks: Hooks::new(workload, world), found, draft }
}

/// Ends a plan that cannot decide yet which pods to update, because the update revision has to be created or HookRuns
/// of an earlier rollout have to be deleted first.
pub(super) fn stop<'a, S: Clone + Default + PartialEq + AsRef<WorkloadStatus>>(
    workload: &Workload,
    world: &World,
    own: &[&'a Pod],
    hooks: Hooks<'a>,
    mut draft: Draft,
    old_status: Option<&S>,
    status: Option<S>,
) -> Plan<S> {
    draft.extend(hooks.settle(hooks.keep_only_removals(own), own).writes);
    draft.patch_workload(hooks.end_retry());
    close(workload, world, own, draft, old_status, status)
}

/// The status while no revision of the template exists: the old one with a new collision count, and, if the API server
/// refuses the revision, with the reason. None if nothing has changed.
pub(super) fn without_revision<S: Clone + Default + AsMut<WorkloadStatus>>(
    workload: &Workload,
    world: &World,
    own: &[&Pod],
    collisions: i32,
    old_status: Option<&S>,
    draft: &mut Draft,
) -> Option<S> {
    let mut whole = old_status.cloned().unwrap_or_default();
    let status = whole.as_mut();
    let previous = std::mem::replace(&mut status.collision_count, collisions);
    let Some(by) = &workload.held else {
        return (previous != collisions).then_some(whole);
    };
    status.observed_generation = workload.generation;
    let (conditions, wake) = status::blocked(workload, world, own, by, &status.conditions);
    let shown = status.clone();
    status.conditions = conditions;
    status.causes = causes::of_removals(Vec::new(), &status.conditions, Some(&shown));
    draft.wake_at(wake);
    Some(whole)
}

/// Ends a plan, with its status.
pub(super) fn conclude<'a, S: Clone + Default + PartialEq + AsRef<WorkloadStatus>>(
    scene: &Scene<'a>,
    held: &Held,
    hooks: &Hooks<'a>,
    needs: Needs<'a>,
    mut draft: Draft,
    old_status: Option<&S>,
    into_status: impl FnOnce(WorkloadStatus) -> S,
) -> Plan<S> {
    let update = scene.revisions.update.name();
    draft.add_updates(scene.dry_run().into());
    draft.wake_at(held.wake());
    let Settled { writes, awaited } = hooks.settle(needs, scene.own);
    draft.wake_at(awaited.wake);
    draft.extend(writes);
    draft.patch_workload(hooks.end_retry());
    draft.extend(unused_revisions(scene));
    draft.block(held.obstacles(update, scene.sizes.stable));
    draft.block(obstacles_of_hooks(scene, &awaited));
    draft.block(draft.refusals(&scene.world.memory.failures, scene.world.now));
    let (counts, wake) = status::count(scene.workload, scene.sizes.active, update, scene.world.now);
    draft.wake_at(wake);
    let places = scene.sizes.active.len() as i64 + held.count() + draft.adoptions() as i64;
    let obstacles = std::mem::take(&mut draft.obstacles);
    let reasons = Reasons { obstacles, waits_for: draft.waits_for.take() };
    let (status, wake) = conclusion::status(
        scene,
        counts,
        status::active(scene.workload, places),
        &awaited,
        reasons,
        old_status.map(AsRef::as_ref),
    );
    draft.wake_at(wake);
    let status = Some(into_status(status));
    close(scene.workload, scene.world, scene.own, draft, old_status, status)
}

/// Deletes revisions to which neither a pod nor the status refers, if they exceed the history limit.
fn unused_revisions(scene: &Scene) -> Vec<Write> {
    let Scene { workload, world, .. } = scene;
    let mut named: HashSet<RevisionName> = world.pods.iter().map(|pod| pod.revision()).collect();
    named.extend([scene.revisions.update.name(), scene.sizes.stable]);
    named.extend(workload.progress.stable());
    revision::prune(workload, &world.revisions, &named)
}

/// What is blocked because a hook cannot be run.
fn obstacles_of_hooks(scene: &Scene, awaited: &Awaited) -> Obstacles {
    let step_problem = scene.sizes.rollout.problem.as_ref();
    let pod_problem = |concern| {
        let mut problems = awaited.problems.iter();
        problems.find_map(|(affected, problem)| (*affected == concern).then_some(problem))
    };
    Obstacles {
        update: step_problem.or(pod_problem(Concern::Update)).map(CannotMake::blocked),
        scale: pod_problem(Concern::Scale).map(CannotMake::blocked),
        upkeep: None,
    }
}

/// Closes the plan. Invariant 8: an unchanged status is not written again. A status is not written at all if this
/// plan changes the workload that it was derived from.
fn close<S: Clone + Default + PartialEq + AsRef<WorkloadStatus>>(
    workload: &Workload,
    world: &World,
    own: &[&Pod],
    mut draft: Draft,
    old_status: Option<&S>,
    status: Option<S>,
) -> Plan<S> {
    draft.hold(&world.memory.failures, world.now);
    let old = old_status.cloned().unwrap_or_default();
    let changed = status.filter(|new| old_status.is_none() || *new != old);
    let status = changed.filter(|_| !draft.changes_workload());
    let mut status_first = false;
    if let Some(new) = &status {
        let (old, new) = (old.as_ref(), new.as_ref());
        let steps = workload.steps.len();
        draft.events.extend(events::of_change(old, new, steps));
        // A change by the user is acknowledged before pods change, so that a pause shows immediately.
        status_first = Progress::of(old) != Progress::of(new)
            || old.observed_generation != new.observed_generation
            || workload.waits.differ(new, own);
    }
    Plan {
        wake: draft.wake,
        events: std::mem::take(&mut draft.events),
        writes: draft.into_writes(),
        status,
        status_first,
    }
}
