//! A Cluster with its references resolved: the selected nodes, the first master, the upgrade in progress.

use std::sync::Arc;

use super::conditions::{LifecycleReason, StepState};
use super::{ClusterNode, ClusterWorld, NodeRecord, problems};
use crate::api::{
    Cluster, ClusterFeatures, ClusterPhase, ClusterStatus, ClusterUpgrade, LifecycleStep,
};

/// A Cluster that can be planned for.
pub(super) struct Scene<'a> {
    pub cluster: &'a Cluster,
    pub world: &'a ClusterWorld,
    pub features: &'a ClusterFeatures,
    pub uid: &'a str,
    /// The status before this plan.
    pub old: ClusterStatus,
    /// The nodes that `nodeSelector` selects, sorted by name, with what has passed there.
    pub nodes: Vec<(Arc<ClusterNode>, NodeRecord)>,
    /// The upgrade that is in progress.
    pub upgrade: Option<ClusterUpgrade>,
    /// The first master, or why there is none.
    pub master: Result<Arc<ClusterNode>, String>,
}

/// Resolves a Cluster; an error states why nothing may start.
pub(super) fn resolve<'a>(
    cluster: &'a Cluster,
    world: &'a ClusterWorld,
) -> Result<Scene<'a>, StepState> {
    if let Some(older) = &world.older_cluster {
        return Err(StepState::new(
            LifecycleReason::AnotherCluster,
            format!("Cluster {older} is older, and only one can run scripts; delete one of them"),
        ));
    }
    let problems = problems(&cluster.spec);
    let is_deleted = cluster.metadata.deletion_timestamp.is_some();
    if let Some(problem) = problems.first()
        && !(is_deleted && deletes_without_script(cluster))
    {
        return Err(StepState::new(LifecycleReason::InvalidSpec, problem.to_string()));
    }
    let uid = cluster.metadata.uid.as_deref().unwrap_or_default();
    let old = cluster.status.clone().unwrap_or_default();
    let features = &cluster.spec.features;
    let is_selected = |node: &&Arc<ClusterNode>| {
        let mut wanted = features.node_selector.iter();
        wanted.all(|(key, value)| node.labels.get(key) == Some(value))
    };
    let nodes = world.nodes.iter().filter(is_selected).cloned();
    let nodes = nodes.map(|node| {
        let record = NodeRecord::of(&node, uid);
        (node, record)
    });
    let mut nodes: Vec<_> = nodes.collect();
    nodes.sort_by(|(a, _), (b, _)| a.name.cmp(&b.name));
    let master = master(cluster, world, &old, is_deleted);
    let upgrade = upgrade(cluster, &old).filter(|_| !is_deleted);
    Ok(Scene { cluster, world, features, uid, old, nodes, upgrade, master })
}

impl Scene<'_> {
    /// The number of the upgrade that a step belongs to.
    pub(super) fn upgrade_of(&self, step: LifecycleStep) -> Option<i64> {
        let upgrade = self.upgrade.as_ref();
        let upgrade = upgrade.filter(|_| LifecycleStep::UPGRADE.contains(&step));
        upgrade.map(|it| it.number)
    }

    /// Whether the upgrade has been recorded: only then may its scripts start.
    pub(super) fn has_begun(&self) -> bool {
        self.old.phase == ClusterPhase::Upgrading && self.old.upgrade == self.upgrade
    }
}

/// The upgrade that the spec requests: the one in progress, or a new one with the next number; None if the Cluster
/// already has the version, or if spec.version or the recorded version is not set.
fn upgrade(cluster: &Cluster, old: &ClusterStatus) -> Option<ClusterUpgrade> {
    let (wanted, version) = (cluster.spec.version.as_ref()?, old.version.as_ref()?);
    if is_same_version(wanted, version) {
        return None;
    }
    let last = old.upgrade.as_ref();
    let in_progress =
        last.filter(|it| old.phase == ClusterPhase::Upgrading && is_same_version(&it.to, wanted));
    Some(in_progress.cloned().unwrap_or_else(|| ClusterUpgrade {
        number: last.map_or(0, |it| it.number) + 1,
        to: wanted.clone(),
    }))
}

/// Whether two versions are equal apart from a leading v and a suffix, such as v1.36.3+k3s1 and 1.36.3.
pub(super) fn is_same_version(one: &str, other: &str) -> bool {
    let core = |version: &str| {
        let version = version.trim_start_matches('v');
        let end = version.find(['-', '+']).unwrap_or(version.len());
        version[..end].to_owned()
    };
    core(one) == core(other)
}

/// Whether the deletion has no script to run.
fn deletes_without_script(cluster: &Cluster) -> bool {
    let features = &cluster.spec.features;
    LifecycleStep::DELETE.iter().all(|step| {
        step.command(&features.hooks).is_none() || features.skip_conditions.contains(step)
    })
}

/// The first master. If the spec names one, it is the node with that address. Otherwise it is the recorded node while
/// that node exists; a deletion ignores the node that was recorded before it began. If there is no such node, it is the
/// oldest control-plane node.
fn master(
    cluster: &Cluster,
    world: &ClusterWorld,
    old: &ClusterStatus,
    is_deleted: bool,
) -> Result<Arc<ClusterNode>, String> {
    let mut nodes = world.nodes.iter();
    if let Some(machine) = cluster.spec.machines.first() {
        // If several nodes share the address, the same one is always chosen.
        let found = nodes.filter(|node| node.addresses.contains(&machine.ip));
        let found = found.min_by_key(|node| &node.name);
        return found.cloned().ok_or_else(|| {
            format!(
                "spec.machines[0].ip: no node has the address {}; correct it, or remove machines to take the \
                 oldest control-plane node",
                machine.ip
            )
        });
    }
    let is_same_phase = is_deleted == (old.phase == ClusterPhase::Terminating);
    let known = old.first_master.as_deref().filter(|_| is_same_phase);
    if let Some(node) = nodes.find(|node| Some(node.name.as_str()) == known) {
        return Ok(Arc::clone(node));
    }
    let masters = world.nodes.iter().filter(|node| node.is_control_plane());
    let oldest = masters.min_by_key(|node| (node.created, node.name.clone()));
    oldest.cloned().ok_or_else(|| {
        "no node has the label node-role.kubernetes.io/control-plane; set spec.machines[0].ip to the address \
         of the node on which cluster hooks run"
            .to_owned()
    })
}
