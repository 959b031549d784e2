//! The attempts at the steps of the walk: which ones start, which must wait, and which are canceled.
//!
//! Invariant 12: a script starts only on a node where no other script runs.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::passed::waits_for_state;
use super::{OnNode, Walk};
use crate::api::names::{HOOKS_NAMESPACE, RUN_STEP};
use crate::api::{HookPhase, HookRun, LifecycleStep, StepScope};
use crate::lifecycle::ClusterNode;
use crate::lifecycle::attempt::{self, Failure, Progress};
use crate::lifecycle::run::{Task, TaskKey, retry, task_of};
use crate::lifecycle::scene::Scene;
use crate::observed::time::earlier;
use crate::write::{Trial, Write};

impl<'a> Walk<'a> {
    /// Deletes running and failed runs that no step needs anymore: those of another phase, a deleted node, or an
    /// edited script. A run that is being deleted exists until its script has ended, so its node stays busy.
    pub(crate) fn cancel_unwanted(&mut self, steps: &[LifecycleStep]) {
        let tasks = steps.iter().flat_map(|step| self.tasks(*step));
        let tasks: Vec<(Task, String)> = tasks.map(|task| (task, task.hash(self.scene))).collect();
        let wanted: HashSet<TaskKey> = tasks.iter().map(|(task, hash)| task.key(hash)).collect();
        for run in &self.scene.world.runs {
            let is_wanted = task_of(run).is_some_and(|task| wanted.contains(&task));
            // A successful run is kept until its TTL has passed, so that its log can be read.
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

    /// The tasks of a step. There are none if the step is skipped, is not configured, or has no script.
    fn tasks(&self, step: LifecycleStep) -> Vec<Task<'a>> {
        if self.reason_to_skip(step).is_some() || waits_for_state(step) {
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

    pub(super) fn attempts(&self, task: Task, hash: &str) -> Vec<&'a HookRun> {
        self.runs.get(&task.key(hash)).cloned().unwrap_or_default()
    }

    fn delete(&mut self, run: &HookRun) {
        if run.metadata.deletion_timestamp.is_none() {
            self.plan.writes.push(Write::cancel_script(run));
        }
    }

    /// Advances a step on a node: if an attempt is due and may start, starts it.
    pub(super) fn drive(&mut self, task: Task<'a>) -> OnNode {
        let scene = self.scene;
        let hash = task.hash(scene);
        let attempts = self.attempts(task, &hash);
        let node = &task.node.name;
        match attempt::progress(&attempts, retry(scene), scene.world.now) {
            Progress::Passed => OnNode::Passed,
            Progress::Failed { failure, next } => {
                self.plan.wake = earlier(self.plan.wake, Some(next));
                let due_at = next.strftime("%H:%M:%SZ");
                OnNode::Failed(format!("{}, next at {due_at}", describe(scene, task, &failure)))
            }
            Progress::Running { attempt, obstacle, failure } => {
                let lost_node = task.node.lost.then(|| format!("node {node} is lost"));
                let obstacle = lost_node.or(obstacle).map(|why| format!(": {why}"));
                let obstacle = obstacle.unwrap_or_default();
                in_progress(scene, task, attempt, failure, &obstacle)
            }
            Progress::Due { attempt, failure } => match self.start(task, attempt) {
                Ok(()) => in_progress(scene, task, attempt, failure, ""),
                Err(why) => match failure {
                    Some(failure) => {
                        OnNode::FailedBefore(format!("{}; {why}", describe(scene, task, &failure)))
                    }
                    None => OnNode::Waiting(why),
                },
            },
        }
    }

    /// Starts an attempt, or returns why it may not start yet.
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
        if self.free_slots == 0 {
            return Err(format!(
                "node {name} waits, because scripts run on {} nodes (spec.features.parallelism)",
                self.busy.len()
            ));
        }
        let run = task.hook_run(scene, attempt)?;
        let run_name = run.metadata.name.as_ref();
        let refusal = run_name.and_then(|name| scene.world.memory.refused.get(name));
        self.busy.insert(uid.clone());
        self.free_slots -= 1;
        let trial = Trial {
            pod: job_pod(&run),
            drained_node: self.must_be_drained_for(task.step, task.node).then(|| name.clone()),
        };
        self.plan.writes.push(Write::start_script(run, trial));
        match refusal {
            // An earlier request to create the run was refused. This plan tries again anyway.
            Some(why) => Err(format!("the API server refuses to run it on node {name}: {why}")),
            None => Ok(()),
        }
    }
}

/// The pod that a run's Job will create.
fn job_pod(run: &HookRun) -> Value {
    let mut metrics = run.spec.metrics.iter();
    let job = metrics.find_map(|metric| metric.provider.job.as_ref());
    let spec = job.and_then(|job| job.spec.read::<Value>().ok());
    let template = spec.map(|spec| spec["template"].clone()).unwrap_or_default();
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "namespace": HOOKS_NAMESPACE, "name": run.metadata.name,
            "labels": template["metadata"]["labels"],
        },
        "spec": template["spec"],
    })
}

/// Whether a run's script may be running.
pub(super) fn is_live(run: &HookRun) -> bool {
    let belongs_to_step = attempt::annotation(run, RUN_STEP).is_some();
    belongs_to_step && !run.phase().is_completed()
}

fn describe(scene: &Scene, task: Task, failure: &Failure) -> String {
    let (script, node) = (task.description(scene), &task.node.name);
    let Failure { attempt, why } = failure;
    format!("{script} on node {node} failed: {why}; attempt {attempt}")
}

fn in_progress(
    scene: &Scene,
    task: Task,
    attempt: u32,
    failure: Option<Failure>,
    obstacle: &str,
) -> OnNode {
    match failure {
        Some(failure) => OnNode::FailedBefore(format!(
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
