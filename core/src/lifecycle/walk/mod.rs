//! Walks through the steps of a phase, from the top, and collects the results: actions, and a state per step.
//!
//! [`passed`] decides which steps have passed, [`attempts`] starts scripts, [`upgrade`] selects the nodes to upgrade,
//! [`records`] records on each node what has passed there, and [`end`] adds the status.

mod attempts;
mod end;
mod passed;
mod records;
mod upgrade;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use self::attempts::is_live;
use self::passed::waits_for_state;
use super::attempt;
use super::conditions::{LifecycleReason, StepState};
use super::run::{Task, TaskKey, task_of};
use super::scene::Scene;
use super::{ClusterNode, ClusterPlan, NodeRecord};
use crate::api::names::RUN_NODE_UID;
use crate::api::{HookRun, LifecycleStep, StepScope};
use crate::write::Event;

/// The state of a step on one node.
enum OnNode {
    Passed,
    /// Not started, or in progress.
    Waiting(String),
    /// An attempt has failed, and the next one is not due yet.
    Failed(String),
    /// An attempt has failed, and the next one is in progress, or may not start yet.
    FailedBefore(String),
}

pub(super) struct Walk<'a> {
    pub(super) scene: &'a Scene<'a>,
    pub(super) plan: ClusterPlan,
    states: Vec<(LifecycleStep, StepState)>,
    /// The attempts at each task, found once: there are as many tasks as nodes and steps.
    runs: HashMap<TaskKey, Vec<&'a HookRun>>,
    /// Uids of nodes on which a script may be running.
    busy: BTreeSet<String>,
    /// How many more scripts may start now.
    free_slots: usize,
    /// The new records of the nodes whose records this plan may change, by the node's uid.
    records: BTreeMap<String, NodeRecord>,
    passed_steps: Vec<LifecycleStep>,
    /// Uids of the nodes that are being upgraded.
    pub(super) selected: BTreeSet<String>,
}

impl<'a> Walk<'a> {
    pub(super) fn new(scene: &'a Scene<'a>) -> Self {
        let live = scene.world.runs.iter().filter(|run| is_live(run));
        let nodes = live.filter_map(|run| attempt::annotation(run, RUN_NODE_UID));
        // The pod of a run on a deleted node is removed some time after the node.
        let existing: HashSet<&str> =
            scene.world.nodes.iter().map(|node| node.uid.as_str()).collect();
        let exists = |uid: &&str| existing.contains(uid);
        let busy: BTreeSet<String> = nodes.filter(exists).map(str::to_owned).collect();
        let parallelism = usize::try_from(scene.features.parallelism).unwrap_or(1);
        let mut runs: HashMap<TaskKey, Vec<&HookRun>> = HashMap::new();
        for run in &scene.world.runs {
            if let Some(task) = task_of(run) {
                runs.entry(task).or_default().push(run);
            }
        }
        Self {
            scene,
            runs,
            plan: ClusterPlan::nothing(),
            states: Vec::new(),
            free_slots: parallelism.max(1).saturating_sub(busy.len()),
            busy,
            records: BTreeMap::new(),
            passed_steps: scene.old.passed_steps.clone(),
            selected: BTreeSet::new(),
        }
    }

    /// Walks through steps. Returns whether all have passed and are recorded.
    pub(super) fn steps(&mut self, steps: &[LifecycleStep]) -> bool {
        let mut all_are_over = true;
        // A script that fails on a node blocks no other node (except in upgrades: see `select_nodes`), but a cluster
        // hook blocks all nodes until it has passed.
        let mut nodes_may_start = true;
        for step in steps {
            let (is_over, state) = match step.scope() {
                StepScope::Nodes => self.on_nodes(*step, nodes_may_start),
                StepScope::FirstMaster => self.on_master(*step, all_are_over),
            };
            all_are_over &= is_over;
            if step.scope() == StepScope::FirstMaster {
                nodes_may_start &= all_are_over;
            }
            self.states.push((*step, state));
        }
        all_are_over
    }

    /// Shows these steps as waiting, except those that were walked through.
    pub(super) fn show_waiting(&mut self, steps: &[LifecycleStep]) {
        for step in steps {
            if !self.states.iter().any(|(known, _)| known == step) {
                let state = StepState::new(LifecycleReason::Waiting, STEPS_BEFORE);
                self.states.push((*step, state));
            }
        }
    }

    fn on_master(&mut self, step: LifecycleStep, may_start: bool) -> (bool, StepState) {
        if let Some(reason) = self.reason_to_skip(step) {
            return (true, StepState::new(reason, ""));
        }
        if self.scene.old.passed_steps.contains(&step) {
            return (true, StepState::new(LifecycleReason::Passed, ""));
        }
        if self.is_installed() && LifecycleStep::INSTALL.contains(&step) {
            let message = "the hook was added after the install";
            return (true, StepState::new(LifecycleReason::NotConfigured, message));
        }
        if !may_start {
            return (false, StepState::new(LifecycleReason::Waiting, STEPS_BEFORE));
        }
        let scene = self.scene;
        let master = match &scene.master {
            Ok(master) => master,
            Err(why) => {
                return (false, StepState::new(LifecycleReason::NoMaster, why.clone()));
            }
        };
        if scene.old.first_master.as_ref() != Some(&master.name) {
            // The first master is recorded before its first script starts.
            let message = format!("the first master is {}", master.name);
            return (false, StepState::new(LifecycleReason::Waiting, message));
        }
        let state = match self.drive(Task { step, node: master }) {
            OnNode::Passed => {
                self.passed_steps.push(step);
                let message = format!("on node {}", master.name);
                StepState::new(LifecycleReason::Passed, message)
            }
            OnNode::Waiting(message) => self.waiting_or_paused(message),
            OnNode::Failed(message) => StepState::failed(failure_reason(step), message),
            OnNode::FailedBefore(message) => StepState::new(failure_reason(step), message),
        };
        (false, state)
    }

    fn on_nodes(&mut self, step: LifecycleStep, may_start: bool) -> (bool, StepState) {
        let scene = self.scene;
        if scene.nodes.is_empty() {
            let message = "no node has the labels of spec.features.nodeSelector";
            return (false, StepState::new(LifecycleReason::Waiting, message));
        }
        let skip_reason = self.reason_to_skip(step);
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
            if let Some(why) = self.why_undrained_for(step, node) {
                states.push(OnNode::Waiting(why));
                continue;
            }
            if waits_for_state(step) {
                states.push(OnNode::Waiting(self.reason_to_wait(step, node)));
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
        (is_over, self.state(step, skip_reason, passed, states))
    }

    /// The state of a step across all nodes: the first failure, otherwise what is in progress.
    fn state(
        &self,
        step: LifecycleStep,
        skip_reason: Option<LifecycleReason>,
        passed: usize,
        states: Vec<OnNode>,
    ) -> StepState {
        let all = self.scene.nodes.len();
        if let Some(reason) = skip_reason {
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
                    return StepState::failed(failure_reason(step), message).with_count(&count);
                }
                OnNode::FailedBefore(message) => {
                    return StepState::new(failure_reason(step), message).with_count(&count);
                }
                OnNode::Waiting(message) if waiting.is_none() => waiting = Some(message),
                OnNode::Waiting(_) | OnNode::Passed => {}
            }
        }
        let waiting = waiting.unwrap_or_else(|| STEPS_BEFORE.to_owned());
        self.waiting_or_paused(waiting).with_count(&count)
    }

    fn waiting_or_paused(&self, message: String) -> StepState {
        let reason = match self.scene.cluster.spec.paused {
            true => LifecycleReason::Paused,
            false => LifecycleReason::Waiting,
        };
        StepState::new(reason, message)
    }

    /// What a step without a script waits for.
    fn reason_to_wait(&self, step: LifecycleStep, node: &ClusterNode) -> String {
        let ClusterNode { name, version, .. } = node;
        match (step, &self.scene.upgrade) {
            (LifecycleStep::EnsureUpgrade, Some(upgrade)) => {
                format!("node {name} has version {version}, not yet {}", upgrade.to)
            }
            _ => format!("node {name} is not ready"),
        }
    }
}

/// The message of a step that has not started.
const STEPS_BEFORE: &str = "the steps before it have not passed";

fn failure_reason(step: LifecycleStep) -> LifecycleReason {
    if LifecycleStep::DELETE.contains(&step) {
        LifecycleReason::FailedDelete
    } else if LifecycleStep::UPGRADE.contains(&step) {
        LifecycleReason::FailedUpdate
    } else {
        LifecycleReason::FailedInit
    }
}
