//! The API server, the operator's caches and its plan in progress.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gamekeeper_core::api::names::{LIFECYCLE_FINALIZER, RUN_NODE, RUN_NODE_UID, RUN_STEP};
use gamekeeper_core::api::{Cluster, HookPhase, HookRun, HookRunStatus, LifecycleStep};
use gamekeeper_core::plan::cluster::{ClusterAction, ClusterNode, ClusterWorld, plan};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use super::fault::Fault;
use super::moves::Move;
use super::rules;

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
    /// Changes of the version, there and back.
    pub versions: usize,
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

/// A kind. Each has its own cache.
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
    Act(ClusterAction),
}

#[derive(Clone, Debug)]
pub struct State {
    pub stored: Objects,
    pub cached: Objects,
    /// The kinds of which the cache must show the operator's own writes before it plans again.
    pub own: Vec<Cache>,
    /// The rest of the plan, and the Cluster that it was made for.
    pub pending: Vec<Step>,
    pub planned_for: Option<Cluster>,
    /// The nodes that the plan was made for.
    pub planned_nodes: Vec<ClusterNode>,
    /// The Cluster as the last quorum GET of this plan returned it.
    pub confirmed: Option<Cluster>,
    /// What may still happen.
    pub left: Scope,
    /// The deliberate bug, if any.
    pub fault: Option<Fault>,
    /// Scripts that have passed.
    pub passed: BTreeSet<Success>,
    /// The number of the upgrade that each run was created for, by the run's name.
    pub upgrades: BTreeMap<String, i64>,
    /// The last version and uid that were assigned.
    pub version: u64,
}

/// A script that has passed: its step, the uid of its node, and for a step of an upgrade the upgrade's number.
pub type Success = (LifecycleStep, String, Option<i64>);

/// The versions between which a user switches.
pub const VERSIONS: [&str; 2] = ["1.36.3", "1.37.0"];

pub const NOW: Timestamp = Timestamp::constant(1_767_225_600, 0);

/// The end of scripts whose backoff is over.
pub const LONG_AGO: Timestamp = Timestamp::UNIX_EPOCH;

fn node(name: &str, more: &[&str]) -> ClusterNode {
    let labels = more.iter().chain(&["kubernetes.io/os=linux"]);
    let labels = labels.filter_map(|it| it.split_once('='));
    ClusterNode {
        name: name.to_owned(),
        uid: format!("{name}-uid"),
        created: Some(LONG_AGO),
        labels: labels
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect(),
        ready: true,
        version: VERSIONS[0].to_owned(),
        ..ClusterNode::default()
    }
}

/// The hooks of an install and of a deletion, or those of an upgrade. All together would lead to too many states.
fn hooks(scope: &Scope) -> Value {
    let keys: &[&str] = match scope.versions {
        0 => &[
            "PreClusterInstall",
            "PreInstall",
            "PostClusterInstall",
            "PreClusterDelete",
            "PostClusterDelete",
        ],
        _ => &[
            "PreClusterUpgrade",
            "PreUpgrade",
            "PostUpgrade",
            "PostClusterUpgrade",
        ],
    };
    keys.iter().map(|key| (*key, "/b")).collect()
}

/// A node that joins.
pub fn joined() -> ClusterNode {
    ClusterNode {
        not_installed: Some(0),
        ..node("late", &[])
    }
}

impl State {
    pub fn start(scope: &Scope, fault: Option<Fault>) -> Self {
        let parallelism = if scope.versions > 0 { 1 } else { 2 };
        let cluster = json!({
            "apiVersion": "tkex.tencent.com/v1alpha1", "kind": "Cluster",
            "metadata": {"name": "xa", "uid": "xa-uid", "generation": 1, "resourceVersion": "1"},
            "spec": {"version": VERSIONS[0], "features": {
                "parallelism": parallelism,
                "files": [{"src": "a/b", "dst": "/b"}],
                "skipConditions": ["EnsureCopyFiles"],
                "hooks": hooks(scope),
                "upgrade": {"strategy": {"drainNodeBeforeUpgrade": scope.versions > 0}},
            }},
        });
        let cluster: Cluster = serde_json::from_value(cluster).expect("a Cluster");
        let mut nodes = vec![node("master", &["node-role.kubernetes.io/control-plane="])];
        nodes.extend((0..scope.workers).map(|it| node(&format!("worker-{it}"), &[])));
        let stored = Objects {
            cluster: Some(cluster),
            nodes,
            runs: Vec::new(),
        };
        State {
            cached: stored.clone(),
            stored,
            own: Vec::new(),
            pending: Vec::new(),
            planned_for: None,
            planned_nodes: Vec::new(),
            confirmed: None,
            left: *scope,
            fault,
            passed: BTreeSet::new(),
            upgrades: BTreeMap::new(),
            version: 1,
        }
    }

    /// A key that is equal for equivalent states. Of resource versions, it matters only whether they are outdated.
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
                        node.not_installed,
                    )
                })
                .collect();
            let runs: Vec<_> = it
                .runs
                .iter()
                .map(|run| {
                    let finished = run.status.as_ref().and_then(|it| it.finished_at.as_ref());
                    (&run.metadata.name, run.phase(), finished.map(|it| it.0))
                })
                .collect();
            format!("{} {nodes:?} {runs:?}", json!(cluster))
        };
        let pending: Vec<String> = self.pending.iter().map(|it| self.pending_key(it)).collect();
        format!(
            "{}\n{}\n{:?} {pending:?} {:?} {:?} {:?}",
            objects(&self.stored),
            objects(&self.cached),
            self.own,
            self.is_outdated(),
            self.left,
            self.passed,
        )
    }

    /// The key of a write. Instead of the versions that it is based on, it contains whether they are outdated.
    fn pending_key(&self, step: &Step) -> String {
        match step {
            Step::Status(cluster) => json!(cluster.status).to_string(),
            Step::Get => {
                let planned_for = self.planned_for.as_ref();
                format!("get {:?}", planned_for.map(|it| it.metadata.generation))
            }
            Step::Act(ClusterAction::CreateHookRun(run)) => {
                let nodes: Vec<&str> = self
                    .planned_nodes
                    .iter()
                    .map(|it| it.name.as_str())
                    .collect();
                format!("create {:?} for {nodes:?}", run.metadata.name)
            }
            Step::Act(ClusterAction::DeleteHookRun { name, .. }) => format!("delete {name}"),
            Step::Act(ClusterAction::MovePod(pod)) => format!("move {}", pod.name),
            Step::Act(ClusterAction::RecordNode { node, record, .. }) => {
                let mut nodes = self.stored.nodes.iter();
                let is_new = nodes.any(|it| it.resource_version == node.resource_version);
                format!("record {} {record:?} {is_new}", node.name)
            }
            Step::Act(ClusterAction::AdmitNode(node)) => format!("admit {}", node.name),
            Step::Act(ClusterAction::SetFinalizer(on)) => format!("finalizer {on}"),
        }
    }

    /// Whether the cache of each kind, and the pending plan, differ from what is stored.
    pub fn is_outdated(&self) -> [bool; 4] {
        let version = |it: &Option<Cluster>| {
            it.as_ref()
                .and_then(|it| it.metadata.resource_version.clone())
        };
        let stored = version(&self.stored.cluster);
        [
            stored != version(&self.cached.cluster),
            self.stored.nodes != self.cached.nodes,
            self.stored.runs != self.cached.runs,
            !self.pending.is_empty() && stored != version(&self.planned_for),
        ]
    }

    fn next_version(&mut self) -> String {
        self.version += 1;
        self.version.to_string()
    }

    /// Makes a move. Fails if it violates a rule.
    pub fn make(&mut self, next: Move) -> Result<(), String> {
        match next {
            Move::Plan => self.plan(),
            Move::Write => self.write()?,
            Move::Crash => {
                self.left.crashes -= 1;
                // A new leader begins with caches that have caught up.
                self.pending.clear();
                self.own.clear();
                self.cached = self.stored.clone();
            }
            Move::CatchUp(cache) => self.catch_up(cache),
            Move::End(run, phase) => self.end(run, phase),
            Move::Wait(run) => {
                if let Some(status) = &mut self.stored.runs[run].status {
                    status.finished_at = Some(Time(LONG_AGO));
                }
            }
            Move::Delete => {
                self.left.deletions -= 1;
                self.edit(|cluster| cluster.metadata.deletion_timestamp = Some(Time(NOW)));
                self.remove_if_done();
            }
            Move::Edit => {
                self.left.edits -= 1;
                self.edit(|cluster| {
                    let hooks = &mut cluster.spec.features.hooks;
                    let changed = hooks.pre_install.as_deref() == Some("/b");
                    hooks.pre_install = Some(if changed { "/b x" } else { "/b" }.to_owned());
                });
            }
            Move::SetVersion => {
                self.left.versions -= 1;
                self.edit(|cluster| {
                    let is_old = cluster.spec.version.as_deref() == Some(VERSIONS[0]);
                    cluster.spec.version = Some(VERSIONS[usize::from(is_old)].to_owned());
                });
            }
            Move::Kubelet(node) => self.upgrade_kubelet(node),
            Move::Pause => {
                self.left.pauses -= 1;
                self.edit(|cluster| cluster.spec.paused = !cluster.spec.paused);
            }
            Move::Join => {
                self.left.joins -= 1;
                let version = self.next_version();
                let node = ClusterNode {
                    resource_version: version,
                    ..joined()
                };
                self.stored.nodes.push(node);
            }
            Move::Lose(node) => {
                self.left.losses -= 1;
                let version = self.next_version();
                let node = &mut self.stored.nodes[node];
                (node.ready, node.lost, node.resource_version) = (false, true, version);
            }
            Move::DeleteNode(node) => {
                self.stored.nodes.remove(node);
            }
        }
        Ok(())
    }

    /// A kubelet gets the version of the spec.
    fn upgrade_kubelet(&mut self, node: usize) {
        if !self.is_awaited(&self.stored.nodes[node]) {
            self.left.early_kubelets -= 1;
        }
        let wanted = self.wanted_version().unwrap_or_default();
        let version = self.next_version();
        let node = &mut self.stored.nodes[node];
        (node.version, node.resource_version) = (wanted, version);
    }

    /// The version in the spec.
    pub fn wanted_version(&self) -> Option<String> {
        self.stored.cluster.as_ref()?.spec.version.clone()
    }

    /// Whether a condition says that the kubelet of a node is waited for.
    pub fn is_awaited(&self, node: &ClusterNode) -> bool {
        let status = self
            .stored
            .cluster
            .as_ref()
            .and_then(|it| it.status.as_ref());
        let mut conditions = status.into_iter().flat_map(|status| &status.conditions);
        let is_of_step = |type_: &str| type_ == LifecycleStep::EnsureUpgrade.to_string();
        let words = format!("node {} has version", node.name);
        conditions.any(|it| is_of_step(&it.type_) && it.message.contains(&words))
    }

    /// A change of the spec by a user.
    fn edit(&mut self, change: impl FnOnce(&mut Cluster)) {
        let version = self.next_version();
        if let Some(cluster) = &mut self.stored.cluster {
            change(cluster);
            cluster.metadata.generation = cluster.metadata.generation.map(|it| it + 1);
            cluster.metadata.resource_version = Some(version);
        }
    }

    fn remove_if_done(&mut self) {
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
        self.own.retain(|own| *own != cache);
    }

    fn end(&mut self, run: usize, phase: HookPhase) {
        let run = &mut self.stored.runs[run];
        run.status = Some(HookRunStatus {
            phase,
            finished_at: Some(Time(NOW)),
            ..HookRunStatus::default()
        });
        match phase {
            HookPhase::Successful => {
                let step = LifecycleStep::parse(&annotation(run, RUN_STEP)).expect("a step");
                let name = run.metadata.name.as_ref();
                let upgrade = name.and_then(|name| self.upgrades.get(name));
                let success = (step, annotation(run, RUN_NODE_UID), upgrade.copied());
                self.passed.insert(success);
            }
            _ => self.left.failures -= 1,
        }
    }

    fn plan(&mut self) {
        let Some(cluster) = self.cached.cluster.clone() else {
            return;
        };
        let mut seen = cluster.clone();
        let mut world = ClusterWorld {
            now: NOW,
            nodes: self.cached.nodes.iter().cloned().map(Arc::new).collect(),
            runs: self.cached.runs.iter().cloned().map(Arc::new).collect(),
            older: None,
            image: "gamekeeper:1".to_owned(),
            game_pods: Vec::new(),
            refused: BTreeMap::new(),
        };
        if let Some(fault) = self.fault {
            fault.corrupt_input(&mut seen, &mut world);
        }
        let mut plan = plan(&seen, &world);
        if let Some(fault) = self.fault {
            fault.corrupt_output(&mut plan, &world);
        }
        let status = plan.status.map(|status| {
            let status = Some(status);
            Step::Status(Box::new(Cluster {
                status,
                ..cluster.clone()
            }))
        });
        let get = plan.actions.iter().any(ClusterAction::is_irrevocable);
        let get = get.then_some(Step::Get);
        let get = get.filter(|_| self.fault != Some(Fault::NoQuorumGet));
        let actions = plan.actions.into_iter().map(Step::Act);
        self.pending = status.into_iter().chain(get).chain(actions).collect();
        self.planned_for = Some(cluster);
        self.confirmed = None;
        self.planned_nodes.clone_from(&self.cached.nodes);
    }

    /// Whether a plan would write something.
    pub fn has_work(&self) -> bool {
        let mut after = self.clone();
        after.plan();
        !after.pending.is_empty()
    }

    /// Makes the next write of the plan. If its precondition does not hold, the rest is dropped.
    fn write(&mut self) -> Result<(), String> {
        let step = self.pending.remove(0);
        rules::check(self, &step)?;
        if !self.carry_out(step) {
            self.pending.clear();
        }
        Ok(())
    }

    fn carry_out(&mut self, step: Step) -> bool {
        match step {
            Step::Status(wanted) => {
                let version = self.next_version();
                let stored = self.stored.cluster.as_mut();
                let Some(stored) = stored
                    .filter(|it| it.metadata.resource_version == wanted.metadata.resource_version)
                else {
                    return false;
                };
                stored.status = wanted.status;
                stored.metadata.resource_version = Some(version.clone());
                self.own_version(version);
                self.own.push(Cache::Cluster);
                true
            }
            Step::Get => {
                let key = |it: &Option<Cluster>| {
                    let metadata = it.as_ref().map(|it| &it.metadata);
                    metadata.map(|it| (it.generation, it.deletion_timestamp.is_some()))
                };
                self.confirmed.clone_from(&self.stored.cluster);
                key(&self.stored.cluster) == key(&self.planned_for)
            }
            Step::Act(action) => self.act(action),
        }
    }

    /// Our own writes do not make the rest of the plan outdated.
    fn own_version(&mut self, version: String) {
        if let Some(cluster) = &mut self.planned_for {
            cluster.metadata.resource_version = Some(version);
        }
    }

    fn act(&mut self, action: ClusterAction) -> bool {
        match action {
            ClusterAction::SetFinalizer(on) => {
                let planned_for = self.planned_for.as_ref();
                let wanted = planned_for.and_then(|it| it.metadata.resource_version.clone());
                let version = self.next_version();
                let stored = self.stored.cluster.as_mut();
                let Some(stored) = stored.filter(|it| it.metadata.resource_version == wanted)
                else {
                    return false;
                };
                stored.metadata.finalizers = on.then(|| vec![LIFECYCLE_FINALIZER.to_owned()]);
                stored.metadata.resource_version = Some(version);
                self.remove_if_done();
                self.own.push(Cache::Cluster);
            }
            ClusterAction::CreateHookRun(mut run) => {
                let name = run.metadata.name.clone();
                let step = LifecycleStep::parse(&annotation(&run, RUN_STEP));
                if step.is_some_and(|step| LifecycleStep::UPGRADE.contains(&step)) {
                    let planned_for = self.planned_for.as_ref();
                    let status = planned_for.and_then(|it| it.status.as_ref());
                    let number = status.and_then(|it| Some(it.upgrade.as_ref()?.number));
                    self.upgrades.extend(name.clone().zip(number));
                }
                if !self.stored.runs.iter().any(|it| it.metadata.name == name) {
                    run.metadata.uid = name.map(|name| format!("{name}-{}", self.version));
                    self.stored.runs.push(*run);
                }
                self.own.push(Cache::Runs);
            }
            ClusterAction::DeleteHookRun { uid, .. } => {
                self.stored
                    .runs
                    .retain(|run| run.metadata.uid.as_ref() != Some(&uid));
                self.own.push(Cache::Runs);
            }
            // There are no pods in the model.
            ClusterAction::MovePod(_) => {}
            ClusterAction::RecordNode {
                node,
                record,
                cordon,
            } => {
                let version = self.next_version();
                let Some(stored) = self.unchanged(&node) else {
                    return false;
                };
                stored.unschedulable = cordon.unwrap_or(stored.unschedulable);
                (stored.record, stored.resource_version) = (record, version);
                self.own.push(Cache::Nodes);
            }
            ClusterAction::AdmitNode(node) => {
                let version = self.next_version();
                let mut nodes = self.stored.nodes.iter_mut();
                let Some(stored) = nodes.find(|it| it.uid == node.uid) else {
                    return false;
                };
                (stored.not_installed, stored.resource_version) = (None, version);
                self.own.push(Cache::Nodes);
            }
        }
        self.own.dedup();
        true
    }

    fn unchanged(&mut self, node: &ClusterNode) -> Option<&mut ClusterNode> {
        let mut nodes = self.stored.nodes.iter_mut();
        nodes.find(|it| it.uid == node.uid && it.resource_version == node.resource_version)
    }

    /// The name of the node that a run is on.
    pub fn node_of(run: &HookRun) -> String {
        annotation(run, RUN_NODE)
    }
}

/// An annotation of a run.
pub fn annotation(run: &HookRun, key: &str) -> String {
    let annotations = run.metadata.annotations.as_ref();
    annotations
        .and_then(|it| it.get(key))
        .cloned()
        .unwrap_or_default()
}
