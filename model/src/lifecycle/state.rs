//! The API server, the operator's caches and its plan in progress.

use std::collections::{BTreeMap, BTreeSet};

use gamekeeper_core::api::names::{RUN_NODE_UID, RUN_STEP};
use gamekeeper_core::api::{Cluster, HookPhase, HookRun, HookRunStatus, LifecycleStep};
use gamekeeper_core::lifecycle::ClusterNode;
use gamekeeper_core::write::{Change, Write};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

use super::fault::Fault;
use super::moves::Move;
use super::start::joining_node;

/// The number of nodes, and bounds on what may happen.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scope {
    pub workers: usize,
    pub failures: usize,
    pub crashes: usize,
    pub deletions: usize,
    pub joins: usize,
    pub losses: usize,
    pub edits: usize,
    pub pauses: usize,
    /// Changes of the version, which alternate between upgrade and revert.
    pub version_changes: usize,
    /// Kubelets that are upgraded before their turn.
    pub early_kubelets: usize,
}

/// The objects that the API server stores, or that a cache shows.
#[derive(Clone, Debug)]
pub struct Objects {
    pub cluster: Option<Cluster>,
    pub nodes: Vec<ClusterNode>,
    pub runs: Vec<HookRun>,
}

/// The operator's caches: one for each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cache {
    Cluster,
    Nodes,
    Runs,
}

/// A write of a plan, or the GET before writes that cannot be undone.
#[derive(Clone, Debug)]
pub enum Step {
    Status(Box<Cluster>),
    Get,
    Act(Box<Write>),
}

#[derive(Clone, Debug)]
pub struct State {
    pub stored: Objects,
    pub cached: Objects,
    /// The caches that must show the operator's own writes before it plans again.
    pub own_writes: Vec<Cache>,
    /// The rest of the plan.
    pub pending: Vec<Step>,
    /// The Cluster that the plan was made for.
    pub planned_for: Option<Cluster>,
    /// The nodes that the plan was made for.
    pub planned_nodes: Vec<ClusterNode>,
    /// The Cluster as the last quorum GET of this plan returned it.
    pub confirmed: Option<Cluster>,
    /// What may still happen.
    pub remaining: Scope,
    /// The deliberate bug, if any.
    pub fault: Option<Fault>,
    /// Scripts that have passed.
    pub passed: BTreeSet<Success>,
    /// The number of the upgrade that each run was created for, by the run's name.
    pub upgrades: BTreeMap<String, i64>,
    /// The last resourceVersion that was assigned. New uids contain it.
    pub last_resource_version: u64,
}

/// A script that has passed: its step, the uid of its node and, for a step of an upgrade, the number of the upgrade.
pub type Success = (LifecycleStep, String, Option<i64>);

/// The versions between which a user switches.
pub const VERSIONS: [&str; 2] = ["1.36.3", "1.37.0"];

pub const NOW: Timestamp = Timestamp::constant(1_767_225_600, 0);

/// The finish time of scripts whose backoff is over.
pub const LONG_AGO: Timestamp = Timestamp::UNIX_EPOCH;

impl State {
    /// A key that is equal for equivalent states. Instead of resource versions, it contains whether they are outdated.
    pub fn key(&self) -> String {
        let objects = |it: &Objects| {
            let mut cluster = it.cluster.clone();
            if let Some(cluster) = &mut cluster {
                cluster.metadata.resource_version = None;
            }
            let nodes: Vec<_> = it
                .nodes
                .iter()
                .map(|node| {
                    (
                        &node.name,
                        node.ready,
                        node.lost,
                        (&node.version, node.unschedulable),
                        &node.record,
                        node.not_installed_taint_index,
                    )
                })
                .collect();
            let runs: Vec<_> = it
                .runs
                .iter()
                .map(|run| {
                    let finished = run.status.as_ref().and_then(|it| it.finished_at.as_ref());
                    let is_canceled = run.metadata.deletion_timestamp.is_some();
                    (&run.metadata.name, run.phase(), finished.map(|it| it.0), is_canceled)
                })
                .collect();
            format!("{} {nodes:?} {runs:?}", json!(cluster))
        };
        let pending: Vec<String> = self.pending.iter().map(|it| self.pending_key(it)).collect();
        format!(
            "{}\n{}\n{:?} {pending:?} {:?} {:?} {:?}",
            objects(&self.stored),
            objects(&self.cached),
            self.own_writes,
            self.outdated(),
            self.remaining,
            self.passed,
        )
    }

    /// A step's part of the key. Instead of resource versions, it contains whether they are outdated.
    fn pending_key(&self, step: &Step) -> String {
        match step {
            Step::Status(cluster) => json!(cluster.status).to_string(),
            Step::Get => {
                let planned_for = self.planned_for.as_ref();
                format!("get {:?}", planned_for.map(|it| it.metadata.generation))
            }
            Step::Act(write) => self.write_key(write.change()),
        }
    }

    fn write_key(&self, change: &Change) -> String {
        match change {
            Change::CreateHookRun(run) => {
                let nodes: Vec<&str> =
                    self.planned_nodes.iter().map(|it| it.name.as_str()).collect();
                format!("create {:?} for {nodes:?}", run.metadata.name)
            }
            Change::Delete { name, .. } => format!("delete {name}"),
            Change::SetMetadata { pod, .. } => format!("move {}", pod.name),
            Change::PatchNode(patch) => {
                let mut nodes = self.stored.nodes.iter();
                let is_current = nodes.any(|it| it.resource_version == patch.resource_version);
                format!("record {} {:?} {is_current}", patch.name, patch.record)
            }
            Change::AdmitNode { name, .. } => format!("admit {name}"),
            Change::PatchWorkload(patch) => format!("finalizers {:?}", patch.finalizers),
            change => panic!("no plan of a Cluster makes this write: {change:?}"),
        }
    }

    /// For each kind, whether its cache differs from what is stored. Last, whether the pending plan was made for a
    /// different version of the Cluster.
    pub fn outdated(&self) -> [bool; 4] {
        let version =
            |it: &Option<Cluster>| it.as_ref().and_then(|it| it.metadata.resource_version.clone());
        let stored = version(&self.stored.cluster);
        [
            stored != version(&self.cached.cluster),
            self.stored.nodes != self.cached.nodes,
            self.stored.runs != self.cached.runs,
            !self.pending.is_empty() && stored != version(&self.planned_for),
        ]
    }

    pub(super) fn next_resource_version(&mut self) -> String {
        self.last_resource_version += 1;
        self.last_resource_version.to_string()
    }

    /// Makes a move. Fails if it violates a rule.
    pub fn make(&mut self, next: Move) -> Result<(), String> {
        match next {
            Move::Plan => self.plan(),
            Move::Write => self.write()?,
            Move::Crash => {
                self.remaining.crashes -= 1;
                // A new leader begins with caches that have caught up.
                self.pending.clear();
                self.own_writes.clear();
                self.cached = self.stored.clone();
            }
            Move::CatchUp(cache) => self.catch_up(cache),
            Move::End(run, phase) => self.end(run, phase),
            Move::Remove(run) => {
                self.stored.runs.remove(run);
            }
            Move::Wait(run) => {
                if let Some(status) = &mut self.stored.runs[run].status {
                    status.finished_at = Some(Time(LONG_AGO));
                }
            }
            Move::Delete => {
                self.remaining.deletions -= 1;
                self.edit(|cluster| cluster.metadata.deletion_timestamp = Some(Time(NOW)));
                self.remove_if_done();
            }
            Move::Edit => {
                self.remaining.edits -= 1;
                self.edit(|cluster| {
                    let hooks = &mut cluster.spec.features.hooks;
                    let is_original = hooks.pre_install.as_deref() == Some("/b");
                    hooks.pre_install = Some(if is_original { "/b x" } else { "/b" }.to_owned());
                });
            }
            Move::SetVersion => {
                self.remaining.version_changes -= 1;
                self.edit(|cluster| {
                    let is_old = cluster.spec.version.as_deref() == Some(VERSIONS[0]);
                    cluster.spec.version = Some(VERSIONS[usize::from(is_old)].to_owned());
                });
            }
            Move::Kubelet(node) => self.upgrade_kubelet(node),
            Move::Pause => {
                self.remaining.pauses -= 1;
                self.edit(|cluster| cluster.spec.paused = !cluster.spec.paused);
            }
            Move::Join => {
                self.remaining.joins -= 1;
                let version = self.next_resource_version();
                let node = ClusterNode { resource_version: version, ..joining_node() };
                self.stored.nodes.push(node);
            }
            Move::Lose(node) => {
                self.remaining.losses -= 1;
                let version = self.next_resource_version();
                let node = &mut self.stored.nodes[node];
                (node.ready, node.lost, node.resource_version) = (false, true, version);
            }
            Move::DeleteNode(node) => {
                self.stored.nodes.remove(node);
            }
        }
        Ok(())
    }

    /// Upgrades a kubelet to the version in the spec.
    fn upgrade_kubelet(&mut self, node: usize) {
        if !self.is_awaited(&self.stored.nodes[node]) {
            self.remaining.early_kubelets -= 1;
        }
        let wanted = self.wanted_version().unwrap_or_default();
        let version = self.next_resource_version();
        let node = &mut self.stored.nodes[node];
        (node.version, node.resource_version) = (wanted, version);
    }

    /// The version in the spec.
    pub fn wanted_version(&self) -> Option<String> {
        self.stored.cluster.as_ref()?.spec.version.clone()
    }

    /// Whether a condition shows that the operator waits for the kubelet of a node.
    pub fn is_awaited(&self, node: &ClusterNode) -> bool {
        let status = self.stored.cluster.as_ref().and_then(|it| it.status.as_ref());
        let mut conditions = status.into_iter().flat_map(|status| &status.conditions);
        let is_of_step = |type_: &str| type_ == LifecycleStep::EnsureUpgrade.to_string();
        let subject = format!("node {} ", node.name);
        let is_about_node = |it: &str| it.contains(&subject) && it.contains("has version");
        conditions.any(|it| is_of_step(&it.type_) && is_about_node(&it.message))
    }

    /// Changes the Cluster, as a user would.
    fn edit(&mut self, change: impl FnOnce(&mut Cluster)) {
        let version = self.next_resource_version();
        if let Some(cluster) = &mut self.stored.cluster {
            change(cluster);
            cluster.metadata.generation = cluster.metadata.generation.map(|it| it + 1);
            cluster.metadata.resource_version = Some(version);
        }
    }

    /// Removes the Cluster if it is being deleted and has no finalizer left.
    pub(super) fn remove_if_done(&mut self) {
        self.stored.cluster.take_if(|cluster| {
            let finalizers = cluster.metadata.finalizers.as_deref().unwrap_or_default();
            cluster.metadata.deletion_timestamp.is_some() && finalizers.is_empty()
        });
    }

    fn catch_up(&mut self, cache: Cache) {
        match cache {
            Cache::Cluster => self.cached.cluster.clone_from(&self.stored.cluster),
            Cache::Nodes => self.cached.nodes.clone_from(&self.stored.nodes),
            Cache::Runs => self.cached.runs.clone_from(&self.stored.runs),
        }
        self.own_writes.retain(|it| *it != cache);
    }

    fn end(&mut self, run: usize, phase: HookPhase) {
        let run = &mut self.stored.runs[run];
        run.status =
            Some(HookRunStatus { phase, finished_at: Some(Time(NOW)), ..HookRunStatus::default() });
        match phase {
            HookPhase::Successful => {
                let step = LifecycleStep::parse(&annotation(run, RUN_STEP)).expect("a step");
                let name = run.metadata.name.as_ref();
                let upgrade = name.and_then(|name| self.upgrades.get(name));
                let success = (step, annotation(run, RUN_NODE_UID), upgrade.copied());
                self.passed.insert(success);
            }
            _ => self.remaining.failures -= 1,
        }
    }
}

/// An annotation of a run; empty if the run does not have it.
pub fn annotation(run: &HookRun, key: &str) -> String {
    let annotations = run.metadata.annotations.as_ref();
    annotations.and_then(|it| it.get(key)).cloned().unwrap_or_default()
}
