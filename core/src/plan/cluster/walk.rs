//! Walks through the steps of a phase: which ones have passed, which one is in progress, and which may start.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::attempt::{self, Failure, Progress};
use super::conditions::{self, LifecycleReason, StepState};
use super::run::{Task, retry};
use super::scene::{Scene, is_same_version};
use super::{ClusterAction, ClusterNode, ClusterPlan, NodeRecord};
use crate::api::names::{RUN_NODE_UID, RUN_STEP};
use crate::api::{ClusterPhase, ClusterStatus, HookPhase, HookRun, LifecycleStep, StepScope};
use crate::plan::decision::Event;
use crate::plan::time::earlier;

/// The state of a step on one node.
enum OnNode {
    Passed,
    /// Not started, or in progress.
    Waiting(String),
    Failed(String),
}

pub struct Walk<'a> {
    pub(super) scene: &'a Scene<'a>,
    pub(super) plan: ClusterPlan,
    states: Vec<(LifecycleStep, StepState)>,
    /// Uids of nodes on which a script may be running.
    busy: BTreeSet<String>,
    /// How many more scripts may start now.
    free: usize,
    /// The records of nodes by uid, including what this plan adds.
    records: BTreeMap<String, NodeRecord>,
    passed_steps: Vec<LifecycleStep>,
    /// Uids of the nodes that are being upgraded.
    pub(super) selected: BTreeSet<String>,
}

impl<'a> Walk<'a> {
    pub fn new(scene: &'a Scene<'a>) -> Self {
        let live = scene.world.runs.iter().filter(|run| is_live(run));
        let busy: BTreeSet<String> = live
            .filter_map(|run| attempt::annotation(run, RUN_NODE_UID))
            .map(str::to_owned)
            .collect();
        let parallelism = usize::try_from(scene.features.parallelism).unwrap_or(1);
        Self {
            scene,
            plan: ClusterPlan::default(),
            states: Vec::new(),
            free: parallelism.max(1).saturating_sub(busy.len()),
            busy,
            records: BTreeMap::new(),
            passed_steps: scene.old.passed_steps.clone(),
            selected: BTreeSet::new(),
        }
    }

    /// Deletes running and failed runs that no step needs anymore: those of another phase, a deleted node, or an
    /// edited script. Their nodes stay busy until the cache shows the deletion.
    pub fn cancel_unwanted(&mut self, steps: &[LifecycleStep]) {
        let tasks = steps.iter().flat_map(|step| self.tasks(*step));
        let tasks: Vec<(Task, String)> = tasks.map(|task| (task, task.hash(self.scene))).collect();
        for run in &self.scene.world.runs {
            let is_wanted = tasks.iter().any(|(task, hash)| task.is_of(run, hash));
            // A successful run is kept for its log, until its TTL has passed.
            if !is_wanted && run.phase() != HookPhase::Successful {
                self.delete(run);
            }
        }
        for (task, hash) in &tasks {
            for run in attempt::outdated(&self.attempts(*task, hash)) {
                self.delete(run);
            }
        }
    }

    /// The tasks of a step that are configured and not skipped.
    fn tasks(&self, step: LifecycleStep) -> Vec<Task<'a>> {
        if self.reason_to_skip(step).is_some() || is_observed(step) {
            return Vec::new();
        }
        let scene = self.scene;
        match step.scope() {
            StepScope::FirstMaster => {
                let master = scene.master.as_ref().ok();
                let master = master.map(|node| Task { step, node });
                master.into_iter().collect()
            }
            StepScope::Nodes => {
                let nodes = scene.nodes.iter();
                nodes.map(|(node, _)| Task { step, node }).collect()
            }
        }
    }

    fn attempts(&self, task: Task, hash: &str) -> Vec<&'a HookRun> {
        let runs = self.scene.world.runs.iter();
        let runs = runs.filter(|run| task.is_of(run, hash));
        runs.map(|run| &**run).collect()
    }

    fn delete(&mut self, run: &HookRun) {
        if run.metadata.deletion_timestamp.is_none() {
            self.plan.actions.push(ClusterAction::DeleteHookRun {
                name: run.metadata.name.clone().unwrap_or_default(),
                uid: run.metadata.uid.clone().unwrap_or_default(),
            });
        }
    }

    /// Why a step has nothing to do: the user skips it, or it is not configured.
    fn reason_to_skip(&self, step: LifecycleStep) -> Option<LifecycleReason> {
        let features = self.scene.features;
        let is_configured = match step {
            LifecycleStep::EnsureCopyFiles => !features.files.is_empty(),
            LifecycleStep::EnsureNodesReady | LifecycleStep::EnsureUpgrade => true,
            step => step.command(&features.hooks).is_some(),
        };
        if features.skip_conditions.contains(&step) {
            Some(LifecycleReason::Skip)
        } else if !is_configured {
            Some(LifecycleReason::NotConfigured)
        } else {
            None
        }
    }

    /// Walks through steps. Returns whether all have passed and are recorded.
    pub fn steps(&mut self, steps: &[LifecycleStep]) -> bool {
        let mut is_open = true;
        // A failing node blocks no other node, but a cluster hook blocks all of them.
        let mut nodes_may_start = true;
        for step in steps {
            let (is_over, state) = match step.scope() {
                StepScope::Nodes => self.on_nodes(*step, nodes_may_start),
                StepScope::FirstMaster => self.on_master(*step, is_open),
            };
            is_open &= is_over;
            if step.scope() == StepScope::FirstMaster {
                nodes_may_start &= is_open;
            }
            self.states.push((*step, state));
        }
        is_open
    }

    /// Shows these steps as waiting, except those that were walked through.
    pub fn waiting(&mut self, steps: &[LifecycleStep]) {
        for step in steps {
            if !self.states.iter().any(|(known, _)| known == step) {
                let state = StepState::new(LifecycleReason::Waiting, STEPS_BEFORE);
                self.states.push((*step, state));
            }
        }
    }

    fn on_master(&mut self, step: LifecycleStep, is_open: bool) -> (bool, StepState) {
        if let Some(reason) = self.reason_to_skip(step) {
            return (true, StepState::new(reason, ""));
        }
        if self.scene.old.passed_steps.contains(&step) {
            return (true, StepState::new(LifecycleReason::Passed, ""));
        }
        if self.is_installed() && LifecycleStep::INSTALL.contains(&step) {
            let message = "the hook was added after the install";
            return (
                true,
                StepState::new(LifecycleReason::NotConfigured, message),
            );
        }
        if !is_open {
            return (
                false,
                StepState::new(LifecycleReason::Waiting, STEPS_BEFORE),
            );
        }
        let scene = self.scene;
        let master = match &scene.master {
            Ok(master) => master,
            Err(why) => {
                return (
                    false,
                    StepState::new(LifecycleReason::NoMaster, why.clone()),
                );
            }
        };
        if scene.old.first_master.as_ref() != Some(&master.name) {
            // The first master is recorded first.
            let message = format!("the first master is {}", master.name);
            return (false, StepState::new(LifecycleReason::Waiting, message));
        }
        let state = match self.drive(Task { step, node: master }) {
            OnNode::Passed => {
                self.passed_steps.push(step);
                let message = format!("on node {}", master.name);
                StepState::new(LifecycleReason::Passed, message)
            }
            OnNode::Waiting(message) => self.held(message),
            OnNode::Failed(message) => StepState::new(failed(step), message),
        };
        (false, state)
    }

    fn on_nodes(&mut self, step: LifecycleStep, may_start: bool) -> (bool, StepState) {
        let scene = self.scene;
        if scene.nodes.is_empty() {
            let message = "no node has the labels of spec.features.nodeSelector";
            return (false, StepState::new(LifecycleReason::Waiting, message));
        }
        let reason = self.reason_to_skip(step);
        let (mut passed, mut is_over) = (0, true);
        let mut states = Vec::new();
        for (node, record) in &scene.nodes {
            if self.has_passed(step, node, record) {
                passed += 1;
                continue;
            }
            is_over = false;
            if !may_start || !self.is_reached(step, node, record) {
                continue;
            }
            if let Some(why) = self.undrained_for(step, node) {
                states.push(OnNode::Waiting(why));
                continue;
            }
            if is_observed(step) {
                states.push(OnNode::Waiting(self.unobserved(step, node)));
                continue;
            }
            let state = self.drive(Task { step, node });
            if matches!(state, OnNode::Passed) {
                passed += 1;
                let upgrade = scene.upgrade_of(step);
                self.record_of(node, record).pass(step, upgrade);
                self.plan.events.push(Event {
                    warning: false,
                    reason: LifecycleReason::Passed.to_string(),
                    message: format!("{step} passed on node {}", node.name),
                });
            }
            states.push(state);
        }
        (is_over, self.state(step, reason, passed, states))
    }

    /// The state of a step over all nodes: the first failure, otherwise what is in progress.
    fn state(
        &self,
        step: LifecycleStep,
        reason: Option<LifecycleReason>,
        passed: usize,
        states: Vec<OnNode>,
    ) -> StepState {
        let all = self.scene.nodes.len();
        if let Some(reason) = reason {
            return StepState::new(reason, "");
        }
        let count = format!("passed on {passed} of {all} nodes");
        if passed == all {
            return StepState::new(LifecycleReason::Passed, count);
        }
        let mut waiting = None;
        for state in states {
            match state {
                OnNode::Failed(message) => {
                    return StepState::new(failed(step), format!("{message}; {count}"));
                }
                OnNode::Waiting(message) if waiting.is_none() => waiting = Some(message),
                OnNode::Waiting(_) | OnNode::Passed => {}
            }
        }
        let waiting = waiting.unwrap_or_else(|| STEPS_BEFORE.to_owned());
        self.held(format!("{waiting}; {count}"))
    }

    fn held(&self, message: String) -> StepState {
        let reason = match self.scene.cluster.spec.paused {
            true => LifecycleReason::Paused,
            false => LifecycleReason::Waiting,
        };
        StepState::new(reason, message)
    }

    /// Whether a step has passed on a node and is recorded.
    fn has_passed(&self, step: LifecycleStep, node: &ClusterNode, record: &NodeRecord) -> bool {
        if self.reason_to_skip(step).is_some() {
            return true;
        }
        let has_version = || self.has_new_kubelet(node);
        match (step, self.scene.upgrade_of(step)) {
            (LifecycleStep::EnsureUpgrade, _) => has_version(),
            // If a kubelet was upgraded before its turn, only PostUpgrade runs on its node.
            (LifecycleStep::EnsurePreUpgradeHook, Some(number)) => {
                record.has_upgraded(step, number) || has_version()
            }
            (_, Some(number)) => record.has_upgraded(step, number),
            (LifecycleStep::EnsureNodesReady, None) if node.ready => true,
            (_, None) => record.installed || record.passed.contains(&step),
        }
    }

    /// What a step of an upgrade waits for until its node is drained; None for any other step.
    fn undrained_for(&self, step: LifecycleStep, node: &ClusterNode) -> Option<String> {
        let is_of_upgrade = LifecycleStep::UPGRADE.contains(&step);
        is_of_upgrade.then(|| self.undrained(node)).flatten()
    }

    /// Whether the kubelet of a node has the version of the upgrade in progress.
    pub(super) fn has_new_kubelet(&self, node: &ClusterNode) -> bool {
        let upgrade = self.scene.upgrade.as_ref();
        upgrade.is_some_and(|it| is_same_version(&node.version, &it.to))
    }

    /// The record of a node with what this plan changes.
    pub(super) fn record_of(
        &mut self,
        node: &ClusterNode,
        written: &NodeRecord,
    ) -> &mut NodeRecord {
        let record = self.records.entry(node.uid.clone());
        record.or_insert_with(|| written.clone())
    }

    /// What a step without a script waits for.
    fn unobserved(&self, step: LifecycleStep, node: &ClusterNode) -> String {
        let ClusterNode { name, version, .. } = node;
        match (step, &self.scene.upgrade) {
            (LifecycleStep::EnsureUpgrade, Some(upgrade)) => {
                format!("node {name} has version {version}, not yet {}", upgrade.to)
            }
            _ => format!("node {name} is not ready"),
        }
    }

    /// Selects the nodes to upgrade now: masters first, then by name, up to `parallelism`. While a script of the
    /// upgrade fails, no further node starts.
    pub fn select_nodes(&mut self) {
        let scene = self.scene;
        let Some(number) = scene.upgrade.as_ref().map(|it| it.number) else {
            return;
        };
        let of_nodes = LifecycleStep::UPGRADE.into_iter();
        let of_nodes: Vec<_> = of_nodes
            .filter(|it| it.scope() == StepScope::Nodes)
            .collect();
        let mut nodes: Vec<_> = scene.nodes.iter().collect();
        nodes.sort_by_key(|(node, _)| !node.is_control_plane());
        nodes.retain(|(node, record)| {
            let mut steps = of_nodes.iter();
            record.installed && !steps.all(|step| self.has_passed(*step, node, record))
        });
        let runs = |node: &ClusterNode| -> Vec<&HookRun> {
            let steps = of_nodes.iter().map(|step| Task { step: *step, node });
            steps
                .flat_map(|task| self.attempts(task, &task.hash(scene)))
                .collect()
        };
        let has_begun = |node: &ClusterNode, record: &NodeRecord| {
            record.upgrade == Some(number) || !runs(node).is_empty()
        };
        let mut all = nodes.iter().flat_map(|(node, _)| runs(node));
        let fails = all.any(|run| run.phase().has_failed());
        let parallelism = usize::try_from(scene.features.parallelism)
            .unwrap_or(1)
            .max(1);
        let selected = nodes.iter().take(parallelism);
        let selected = selected.filter(|(node, record)| !fails || has_begun(node, record));
        let selected: BTreeSet<String> = selected.map(|(node, _)| node.uid.clone()).collect();
        self.selected = selected;
    }

    /// Forgets which cluster hooks of an upgrade have passed: they run again in the next one.
    pub fn forget_upgrade(&mut self) {
        self.passed_steps
            .retain(|it| !LifecycleStep::UPGRADE.contains(it));
    }

    /// Reports that the version was set back after a kubelet had been upgraded.
    pub fn report_late_revert(&mut self) {
        let scene = self.scene;
        let (Some(last), Some(version)) = (&scene.old.upgrade, &scene.cluster.spec.version) else {
            return;
        };
        if is_same_version(&last.to, version) {
            return;
        }
        let mut nodes = scene.nodes.iter();
        let Some((node, _)) = nodes.find(|(node, _)| is_same_version(&node.version, &last.to))
        else {
            return;
        };
        let message = format!(
            "node {} has version {} already, and scripts cannot be undone; set spec.version to {} again, or bring the \
             node back to {version}",
            node.name, node.version, last.to
        );
        let state = StepState::new(LifecycleReason::FailedUpdate, message);
        self.states.push((LifecycleStep::EnsureUpgrade, state));
    }

    /// Whether a node has reached a step: the steps before it have passed there, and the node is selected if it is a
    /// step of an upgrade.
    fn is_reached(&self, step: LifecycleStep, node: &ClusterNode, record: &NodeRecord) -> bool {
        let is_of_upgrade = LifecycleStep::UPGRADE.contains(&step);
        let table: &[LifecycleStep] = match is_of_upgrade {
            true => &LifecycleStep::UPGRADE,
            false => &LifecycleStep::INSTALL,
        };
        if is_of_upgrade && !self.selected.contains(&node.uid) {
            return false;
        }
        let mut before = table
            .iter()
            .copied()
            .take_while(|it| *it != step)
            .filter(|it| it.scope() == StepScope::Nodes);
        before.all(|it| self.has_passed(it, node, record))
    }

    /// Advances a step on a node: starts the attempt that is due, if one may start.
    fn drive(&mut self, task: Task<'a>) -> OnNode {
        let scene = self.scene;
        let hash = task.hash(scene);
        let attempts = self.attempts(task, &hash);
        let node = &task.node.name;
        match attempt::progress(&attempts, retry(scene), scene.world.now) {
            Progress::Passed => OnNode::Passed,
            Progress::Failed { failure, next } => {
                self.plan.wake = earlier(self.plan.wake, Some(next));
                let at = next.strftime("%H:%M:%SZ");
                OnNode::Failed(format!("{}, next at {at}", describe(scene, task, &failure)))
            }
            Progress::Running {
                attempt,
                obstacle,
                failure,
            } => {
                let lost = task.node.lost.then(|| format!("node {node} is lost"));
                let obstacle = lost.or(obstacle).map(|why| format!(": {why}"));
                let obstacle = obstacle.unwrap_or_default();
                in_progress(scene, task, attempt, failure, &obstacle)
            }
            Progress::Due { attempt, failure } => match self.start(task, attempt) {
                Ok(()) => in_progress(scene, task, attempt, failure, ""),
                Err(why) => match failure {
                    Some(failure) => {
                        OnNode::Failed(format!("{}; {why}", describe(scene, task, &failure)))
                    }
                    None => OnNode::Waiting(why),
                },
            },
        }
    }

    /// Starts an attempt, or says why it may not start yet.
    fn start(&mut self, task: Task<'a>, attempt: u32) -> Result<(), String> {
        let scene = self.scene;
        let ClusterNode { name, uid, .. } = task.node;
        if scene.cluster.spec.paused {
            return Err("spec.paused is true".to_owned());
        }
        if task.node.lost {
            return Err(format!("node {name} is lost"));
        }
        if self.busy.contains(uid) {
            return Err(format!("another script is running on node {name}"));
        }
        if self.free == 0 {
            return Err(format!(
                "node {name} waits, because scripts run on {} nodes (spec.features.parallelism)",
                self.busy.len()
            ));
        }
        let run = task.run(scene, attempt)?;
        let refused = run.metadata.name.as_ref();
        let refused = refused.and_then(|name| scene.world.refused.get(name));
        self.busy.insert(uid.clone());
        self.free -= 1;
        self.plan
            .actions
            .push(ClusterAction::CreateHookRun(Box::new(run)));
        match refused {
            // The attempt is repeated nevertheless.
            Some(why) => Err(format!(
                "the API server refuses to run it on node {name}: {why}"
            )),
            None => Ok(()),
        }
    }

    /// Records what has passed on each node, and removes the taint of nodes whose install is complete.
    pub fn admit_installed_nodes(&mut self) {
        let scene = self.scene;
        let cluster_hooks_passed = self.has_passed_before_nodes();
        for (node, written) in &scene.nodes {
            let mut record = self.records.remove(&node.uid).unwrap_or(written.clone());
            let mut steps = LifecycleStep::INSTALL
                .into_iter()
                .filter(|step| step.scope() == StepScope::Nodes);
            if cluster_hooks_passed && steps.all(|step| self.has_passed(step, node, &record)) {
                record.installed = true;
            }
            if record != *written {
                let has_changed = record.cordoned != written.cordoned;
                self.plan.actions.push(ClusterAction::RecordNode {
                    node: Arc::clone(node),
                    record: Some(record.text()),
                    cordon: has_changed.then_some(record.cordoned),
                });
            } else if record.installed && node.not_installed.is_some() {
                self.plan
                    .actions
                    .push(ClusterAction::AdmitNode(Arc::clone(node)));
            }
        }
    }

    /// Whether the cluster hook that precedes the nodes' scripts has passed.
    fn has_passed_before_nodes(&self) -> bool {
        let step = LifecycleStep::EnsurePreClusterInstallHook;
        self.is_installed()
            || self.reason_to_skip(step).is_some()
            || self.scene.old.passed_steps.contains(&step)
    }

    /// Whether the install of the cluster is complete: install hooks that are added later do not run.
    fn is_installed(&self) -> bool {
        matches!(
            self.scene.old.phase,
            ClusterPhase::Running | ClusterPhase::Upgrading
        )
    }

    /// Removes this Cluster's records from all nodes. Returns whether none are left.
    pub fn remove_records(&mut self) -> bool {
        let mut is_over = true;
        for node in &self.scene.world.nodes {
            let written = NodeRecord::of(node, self.scene.uid);
            if written != NodeRecord::empty(node, self.scene.uid) {
                is_over = false;
                self.plan.actions.push(ClusterAction::RecordNode {
                    node: Arc::clone(node),
                    record: None,
                    cordon: written.cordoned.then_some(false),
                });
            }
        }
        is_over
    }

    /// The version to record when an install or upgrade is complete.
    fn version(&self) -> Option<String> {
        let wanted = self.scene.cluster.spec.version.clone();
        wanted.or_else(|| self.scene.old.version.clone())
    }

    /// The plan, with the status that results.
    pub fn end(self, phase: ClusterPhase) -> ClusterPlan {
        let scene = self.scene;
        let installed = scene.nodes.iter().filter(|(_, record)| record.installed);
        let installed = installed.count();
        let is_recorded = phase == ClusterPhase::Running && installed == scene.nodes.len();
        let count = |nodes: usize| i32::try_from(nodes).unwrap_or(i32::MAX);
        let mut old = scene.old.conditions.clone();
        if phase != ClusterPhase::Upgrading {
            // Drops the conditions of a canceled upgrade.
            let is_of_upgrade = |it: &str| {
                LifecycleStep::UPGRADE
                    .iter()
                    .any(|step| step.to_string() == it)
            };
            old.retain(|it| it.status == "True" || !is_of_upgrade(&it.type_));
        }
        let now = scene.world.now;
        let status = ClusterStatus {
            observed_generation: scene.cluster.metadata.generation.unwrap_or_default(),
            phase,
            first_master: scene.master.as_ref().ok().map(|it| it.name.clone()),
            version: match phase {
                ClusterPhase::Running => self.version(),
                _ => scene.old.version.clone(),
            },
            upgrade: scene.upgrade.clone().or_else(|| scene.old.upgrade.clone()),
            passed_steps: self.passed_steps,
            nodes: count(scene.nodes.len()),
            installed_nodes: count(installed),
            conditions: conditions::of_steps(scene.cluster, &old, &self.states, is_recorded, now),
        };
        conditions::finish(scene.cluster, status, self.plan)
    }
}

/// The message of a step that has not started.
const STEPS_BEFORE: &str = "the steps before it have not passed";

/// Whether a step has no script, but waits for a state of the nodes.
fn is_observed(step: LifecycleStep) -> bool {
    matches!(
        step,
        LifecycleStep::EnsureNodesReady | LifecycleStep::EnsureUpgrade
    )
}

/// Whether a run's script may be running.
fn is_live(run: &HookRun) -> bool {
    let is_of_step = attempt::annotation(run, RUN_STEP).is_some();
    is_of_step && !run.phase().is_completed()
}

fn failed(step: LifecycleStep) -> LifecycleReason {
    if LifecycleStep::DELETE.contains(&step) {
        LifecycleReason::FailedDelete
    } else if LifecycleStep::UPGRADE.contains(&step) {
        LifecycleReason::FailedUpdate
    } else {
        LifecycleReason::FailedInit
    }
}

fn describe(scene: &Scene, task: Task, failure: &Failure) -> String {
    let (what, node) = (task.description(scene), &task.node.name);
    let Failure { attempt, why } = failure;
    format!("{what} on node {node} failed: {why}; attempt {attempt}")
}

fn in_progress(
    scene: &Scene,
    task: Task,
    attempt: u32,
    failure: Option<Failure>,
    obstacle: &str,
) -> OnNode {
    match failure {
        Some(failure) => OnNode::Failed(format!(
            "{}, attempt {attempt} in progress{obstacle}",
            describe(scene, task, &failure)
        )),
        None => OnNode::Waiting(format!(
            "{} on node {}, attempt {attempt} in progress{obstacle}",
            task.description(scene),
            task.node.name
        )),
    }
}
