//! Lifecycle hooks of a Cluster: which script runs on which node, and which steps have passed.
//!
//! Each phase has a table of steps ([`LifecycleStep::INSTALL`], `UPGRADE`, `DELETE`). Every reconcile walks it from
//! the top ([`walk`]). What has passed is recorded before anything that depends on it begins: for a node, in an
//! annotation of the node ([`record`]); for the Cluster, in its status. An attempt at a step on a node is a HookRun.
//! Its name identifies the step, the node and the attempt ([`run`]), so a new leader finds it, and no attempt is
//! started twice.
//!
//! Invariant 12, in detail: a step begins only after those before it have passed; there is at most one live run per
//! node; cluster hooks run on the first master only; nothing is recorded without a Successful run; the finalizer is
//! removed last; and a settled Cluster is not written to.

mod attempt;
mod check;
mod conditions;
mod drain;
mod memory;
mod paths;
mod record;
mod run;
mod scene;
#[cfg(test)]
mod tests;
mod walk;
mod world;

pub use check::{ClusterProblem, problems};
pub use conditions::{LifecycleReason, READY};
pub use memory::{Memory, Tally};
pub use record::NodeRecord;
pub use world::{ClusterNode, ClusterWorld, GamePod};

use crate::api::names::LIFECYCLE_FINALIZER;
use crate::api::{Cluster, ClusterPhase, ClusterStatus, LifecycleStep};
use crate::write::{Plan, WorkloadPatch, Write};

use self::conditions::StepState;
use self::scene::Scene;
use self::walk::Walk;

/// What a plan for a Cluster contains. The status is written before anything that depends on it.
pub type ClusterPlan = Plan<ClusterStatus>;

/// What to do for a Cluster now.
pub fn plan(cluster: &Cluster, world: &ClusterWorld) -> ClusterPlan {
    let is_deleted = cluster.metadata.deletion_timestamp.is_some();
    let has_finalizer = has_finalizer(cluster);
    let scene = match scene::resolve(cluster, world) {
        // Without the finalizer, nothing has started.
        _ if is_deleted && !has_finalizer => return ClusterPlan::nothing(),
        Ok(scene) => scene,
        // The finalizer was copied from the older Cluster.
        Err(_) if is_deleted && world.older_cluster.is_some() && has_no_traces(cluster, world) => {
            return change_finalizer(cluster, world, false);
        }
        Err(state) => return blocked(cluster, world, state),
    };
    if !has_finalizer {
        return change_finalizer(cluster, world, true);
    }
    match scene.upgrade {
        _ if is_deleted => delete(&scene),
        Some(_) => upgrade(&scene),
        None => install(&scene),
    }
}

/// Orders Clusters; only the first one runs scripts. That is the oldest one or, of those created in the same second, one
/// that has begun and therefore has the finalizer.
pub fn seniority(cluster: &Cluster) -> impl Ord + use<> {
    let created = cluster.metadata.creation_timestamp.as_ref();
    let has_begun = has_finalizer(cluster);
    let name = cluster.metadata.name.clone();
    (created.map(|it| it.0), !has_begun, name)
}

/// Whether there are neither runs nor records of a Cluster.
fn has_no_traces(cluster: &Cluster, world: &ClusterWorld) -> bool {
    let uid = cluster.metadata.uid.as_deref().unwrap_or_default();
    let mut nodes = world.nodes.iter();
    world.runs.is_empty() && nodes.all(|it| NodeRecord::of(it, uid) == NodeRecord::empty(it, uid))
}

/// Adds the finalizer at the beginning, or removes it at the end of a deletion. Other finalizers are kept.
fn change_finalizer(cluster: &Cluster, world: &ClusterWorld, add: bool) -> ClusterPlan {
    let all = cluster.metadata.finalizers.iter().flatten();
    let others = all.filter(|it| *it != LIFECYCLE_FINALIZER).cloned();
    let added = add.then(|| LIFECYCLE_FINALIZER.to_owned());
    let finalizers = Some(others.chain(added).collect());
    let patch = WorkloadPatch { finalizers, ..WorkloadPatch::default() };
    let writes = vec![Write::patch_workload(patch)];
    let Some(refused) = &world.memory.refused_write else {
        return ClusterPlan { writes, ..ClusterPlan::nothing() };
    };
    let told = blocked(cluster, world, conditions::refused(refused));
    match refused.held_until(world.now) {
        Some(_) => told,
        None => ClusterPlan { writes, ..told },
    }
}

fn has_finalizer(cluster: &Cluster) -> bool {
    let mut finalizers = cluster.metadata.finalizers.iter().flatten();
    finalizers.any(|it| it == LIFECYCLE_FINALIZER)
}

/// The plan while nothing may start: a condition states why.
fn blocked(cluster: &Cluster, world: &ClusterWorld, state: StepState) -> ClusterPlan {
    let old = cluster.status.clone().unwrap_or_default();
    let status = ClusterStatus {
        observed_generation: cluster.metadata.generation.unwrap_or_default(),
        conditions: conditions::with_ready(cluster, &old.conditions, &state, world.now),
        ..old
    };
    conditions::finish(cluster, status, &[], ClusterPlan::nothing(), world)
}

/// The install of the Cluster, and of nodes that join later.
fn install(scene: &Scene) -> ClusterPlan {
    let mut walk = Walk::new(scene);
    walk.cancel_unwanted(&LifecycleStep::INSTALL);
    let is_over = walk.steps(&LifecycleStep::INSTALL);
    walk.cordon_nodes();
    walk.uncordon_others();
    walk.record_and_admit_nodes();
    walk.report_late_revert();
    // The phase stays Running while a node that has joined is being installed.
    let phase = match is_over || scene.old.phase != ClusterPhase::Initializing {
        true => ClusterPhase::Running,
        false => ClusterPhase::Initializing,
    };
    walk.end(phase)
}

/// The upgrade, node by node; a node that joins meanwhile is installed first.
fn upgrade(scene: &Scene) -> ClusterPlan {
    let mut walk = Walk::new(scene);
    if !scene.has_begun() {
        // The upgrade is recorded before its first script starts, so that its number is never reused.
        walk.cancel_unwanted(&LifecycleStep::INSTALL);
        walk.forget_upgrade_hooks();
        walk.show_waiting(&LifecycleStep::UPGRADE);
        return walk.end(ClusterPhase::Upgrading);
    }
    let steps: Vec<LifecycleStep> =
        LifecycleStep::INSTALL.into_iter().chain(LifecycleStep::UPGRADE).collect();
    walk.cancel_unwanted(&steps);
    let is_installed = walk.steps(&LifecycleStep::INSTALL);
    walk.select_nodes();
    let is_over = walk.steps(&LifecycleStep::UPGRADE) && is_installed;
    walk.cordon_nodes();
    walk.uncordon_others();
    walk.move_pods();
    walk.record_and_admit_nodes();
    if is_over {
        walk.forget_upgrade_hooks();
        return walk.end(ClusterPhase::Running);
    }
    walk.end(ClusterPhase::Upgrading)
}

/// The deletion: PreClusterDelete, the removal of the nodes' records, PostClusterDelete, and finally the removal of
/// the finalizer.
fn delete(scene: &Scene) -> ClusterPlan {
    let mut walk = Walk::new(scene);
    let [pre_delete, post_delete] = LifecycleStep::DELETE;
    walk.cancel_unwanted(&LifecycleStep::DELETE);
    let is_over = walk.steps(&[pre_delete]) && walk.remove_records() && walk.steps(&[post_delete]);
    if is_over {
        return change_finalizer(scene.cluster, scene.world, false);
    }
    walk.show_waiting(&[post_delete]);
    walk.end(ClusterPhase::Terminating)
}
