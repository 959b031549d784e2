//! Deliberate bugs, each of which the checker must find. They corrupt what the planner sees or decides, or how a plan
//! is carried out.

use std::sync::Arc;

use gamekeeper_core::api::{Cluster, ClusterPhase, HookPhase, HookRun, HookRunStatus, Machine};
use gamekeeper_core::lifecycle::{ClusterNode, ClusterPlan, ClusterWorld, NodeRecord};
use gamekeeper_core::write::{Change, NodePatch, Write};
use jiff::{SignedDuration, Timestamp};

/// A deliberate bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Scripts start without a quorum GET before them.
    NoQuorumGet,
    /// A plan is made before the cache shows the operator's own writes.
    OwnWritesUnseen,
    /// A canceled script counts as ended before it has ended.
    CanceledMeansEnded,
    /// A run in progress counts as passed.
    RunningMeansPassed,
    /// A failed run counts as passed.
    FailureMeansPassed,
    /// A failed run is never repeated.
    NeverRetried,
    /// The operator does not wait for the first hook of the cluster.
    FirstHookIgnored,
    /// Cluster hooks run on a worker.
    WorkerIsMaster,
    /// `paused` is ignored.
    PauseIgnored,
    /// Scripts start on lost nodes.
    LossIgnored,
    /// The taint is removed before the install is complete.
    TaintRemovedFirst,
    /// Delete hooks are ignored.
    DeleteHooksIgnored,
    /// The finalizer is removed although nodes have records.
    RecordsIgnored,
    /// Steps that passed in an earlier upgrade count for the current one.
    AnyUpgradeCounts,
    /// The upgrade of a node starts before the upgrade of the previous node is complete.
    NodesAtOnce,
    /// PostUpgrade does not wait for the kubelet.
    KubeletIgnored,
    /// A node is not cordoned before its upgrade.
    CordonIgnored,
    /// A node is not uncordoned after its upgrade.
    CordonKept,
    /// An upgrade continues after the version was set back.
    RevertIgnored,
    /// The status is written even when the Cluster is settled.
    StatusAlwaysWritten,
}

impl Fault {
    /// Corrupts what the planner sees.
    pub fn corrupt_input(self, cluster: &mut Cluster, world: &mut ClusterWorld) {
        let is_deleted = cluster.metadata.deletion_timestamp.is_some();
        let status = cluster.status.get_or_insert_default();
        let upgrade = status.upgrade.clone();
        let hooks = &mut cluster.spec.features.hooks;
        match self {
            Self::CanceledMeansEnded => {
                let is_kept = |run: &Arc<HookRun>| run.metadata.deletion_timestamp.is_none();
                world.runs.retain(is_kept);
            }
            Self::RunningMeansPassed => end_runs(world, |phase| !phase.is_completed()),
            Self::FailureMeansPassed => end_runs(world, HookPhase::has_failed),
            Self::NeverRetried => world.now = Timestamp::UNIX_EPOCH - SignedDuration::from_hours(1),
            Self::FirstHookIgnored => hooks.pre_cluster_install = None,
            Self::WorkerIsMaster => {
                let machine = Machine { ip: "10.0.0.1".to_owned(), ..Machine::default() };
                cluster.spec.machines = vec![machine];
                change_nodes(world, |node| {
                    if !node.is_control_plane() {
                        node.addresses = vec!["10.0.0.1".to_owned()];
                    }
                });
            }
            Self::PauseIgnored => cluster.spec.paused = false,
            Self::LossIgnored => change_nodes(world, |node| node.lost = false),
            Self::DeleteHooksIgnored if is_deleted => {
                (hooks.pre_cluster_delete, hooks.post_cluster_delete) = (None, None);
            }
            Self::RecordsIgnored if is_deleted => change_nodes(world, |node| node.record = None),
            Self::AnyUpgradeCounts => change_nodes(world, |node| {
                let record = node.record.as_deref().unwrap_or_default();
                if let (Ok(mut record), Some(upgrade)) =
                    (serde_json::from_str::<NodeRecord>(record), &upgrade)
                    && record.upgrade.is_some()
                {
                    record.upgrade = Some(upgrade.number);
                    node.record = Some(record.text());
                }
            }),
            Self::CordonIgnored => change_nodes(world, |node| node.unschedulable = true),
            Self::NodesAtOnce => cluster.spec.features.parallelism = 2,
            Self::KubeletIgnored => change_nodes(world, |node| {
                let has_begun = node.record.as_deref().is_some_and(|it| it.contains("upgraded"));
                if let (true, Some(upgrade)) = (has_begun, &upgrade) {
                    node.version.clone_from(&upgrade.to);
                }
            }),
            Self::RevertIgnored => {
                if let (ClusterPhase::Upgrading, Some(upgrade)) = (status.phase, upgrade) {
                    cluster.spec.version = Some(upgrade.to);
                }
            }
            _ => {}
        }
    }

    /// Corrupts what the planner decides.
    pub fn corrupt_output(self, plan: &mut ClusterPlan, world: &ClusterWorld) {
        match self {
            Self::TaintRemovedFirst => {
                let admitted = world.nodes.iter().filter_map(|node| {
                    let taint = node.not_installed_taint_index?;
                    Some(Write::admit_node(node.name.clone(), node.uid.clone(), taint))
                });
                plan.writes.extend(admitted);
            }
            Self::CordonKept => {
                for write in &mut plan.writes {
                    if let Change::PatchNode(patch) = write.change() {
                        let cordon = patch.cordon.filter(|cordon| *cordon);
                        *write = Write::patch_node(NodePatch { cordon, ..patch.clone() });
                    }
                }
            }
            Self::StatusAlwaysWritten => {
                plan.status.get_or_insert_default();
            }
            _ => {}
        }
    }
}

fn change_nodes(world: &mut ClusterWorld, change: impl Fn(&mut ClusterNode)) {
    for node in &mut world.nodes {
        change(Arc::make_mut(node));
    }
}

/// Shows runs in some phases as Successful.
fn end_runs(world: &mut ClusterWorld, is_affected: impl Fn(HookPhase) -> bool) {
    for run in &mut world.runs {
        if is_affected(run.phase()) {
            Arc::make_mut(run).status =
                Some(HookRunStatus { phase: HookPhase::Successful, ..HookRunStatus::default() });
        }
    }
}
