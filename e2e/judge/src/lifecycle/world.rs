//! Replays the writes, and keeps track of Clusters, nodes and scripts.
//!
//! Whether a script was successful is read from the status of its pod, which the kubelet reports, and not from the
//! HookRun, whose status the operator writes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use super::object::{Cluster, is_cordoned, owner};
use super::step::{Phase, Step};
use crate::names;
use crate::object::{annotation, condition, has_ended, is_terminating, phase, text, uid};
use crate::replay::history::Write;
use crate::replay::world::LAG;

/// The cluster at one point in time.
#[derive(Debug, Default)]
pub(crate) struct World {
    /// Clusters by uid.
    pub(crate) clusters: BTreeMap<String, Timeline>,
    /// Nodes by name.
    pub(crate) nodes: BTreeMap<String, Timeline>,
    /// The client that cordoned a node, by the node's uid.
    pub(crate) cordoned_by: BTreeMap<String, String>,
    /// HookRuns of Clusters by uid, deleted ones included.
    pub(crate) runs: BTreeMap<String, Run>,
    /// The uid of the HookRun of each Job, by the Job's uid.
    jobs: BTreeMap<String, String>,
    /// The scripts that were successful.
    pub(crate) passed: Vec<Task>,
}

/// The versions of an object.
#[derive(Debug, Default)]
pub(crate) struct Timeline {
    versions: Vec<(Timestamp, Arc<Value>)>,
}

/// An attempt at a step on a node.
#[derive(Debug)]
pub(crate) struct Run {
    /// Its name.
    pub(crate) name: String,
    /// The step on the node.
    pub(crate) task: Task,
    /// The node's name.
    pub(crate) node: String,
    /// Whether it is deleted, or its measurement is complete.
    is_closed: bool,
    /// Whether its Job still exists; None if it never had one.
    job: Option<Existence>,
    /// The uids of its pods, including Terminating ones.
    pods: BTreeSet<String>,
    /// Whether its script has ended, according to the Job or its pod.
    has_ended: bool,
}

/// Whether an object exists.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Existence {
    Exists,
    Deleted,
}

impl Run {
    /// Whether its script may be running, or may still start.
    fn is_live(&self) -> bool {
        !self.has_ended
            && match self.job {
                None => !self.is_closed,
                Some(Existence::Exists) => true,
                Some(Existence::Deleted) => !self.pods.is_empty(),
            }
    }
}

/// A step on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Task {
    /// Uid of the Cluster.
    pub(crate) cluster_uid: String,
    /// Uid of the node.
    pub(crate) node_uid: String,
    /// The step.
    pub(crate) step: &'static Step,
    /// The number of the upgrade, for a step of an upgrade.
    pub(crate) upgrade: Option<i64>,
}

impl Timeline {
    /// The newest version.
    pub(crate) fn newest(&self) -> Option<&Value> {
        self.versions.last().map(|(_, object)| &**object)
    }

    /// The versions on which a request that was received at this time may be based. The client may have read the object
    /// as much as [`LAG`] earlier.
    pub(crate) fn seen_at(&self, received: Timestamp) -> impl DoubleEndedIterator<Item = &Value> {
        let oldest = received - LAG;
        let known = self.versions.iter().rposition(|(at, _)| *at <= oldest);
        let seen = &self.versions[known.unwrap_or(0)..];
        seen.iter().map(|(_, object)| &**object)
    }

    /// Whether a client must have known that the object exists when it sent a request that was received at this time.
    pub(crate) fn is_known_at(&self, received: Timestamp) -> bool {
        self.versions.first().is_some_and(|(at, _)| *at + LAG < received)
    }
}

impl World {
    /// The attempt that a write creates.
    pub(crate) fn created(&self, write: &Write) -> Option<Run> {
        let is_creation = write.plural == "hookruns" && write.verb == "create";
        let run = write.after.as_ref().filter(|_| is_creation)?;
        let cluster = owner(run, "Cluster")?;
        let step = Step::named(annotation(run, names::LIFECYCLE_STEP)?)?;
        let newest = self.clusters.get(cluster).and_then(Timeline::newest);
        let upgrade = newest.and_then(|it| Cluster(it).upgrade());
        let [node, node_uid] = [names::LIFECYCLE_NODE, names::LIFECYCLE_NODE_UID]
            .map(|key| annotation(run, key).unwrap_or_default().to_owned());
        Some(Run {
            name: text(run, "/metadata/name").to_owned(),
            task: Task {
                cluster_uid: cluster.to_owned(),
                node_uid,
                step,
                upgrade: upgrade.filter(|_| step.phase == Phase::Upgrade),
            },
            node,
            is_closed: false,
            job: None,
            pods: BTreeSet::new(),
            has_ended: false,
        })
    }

    /// Applies a write.
    pub(crate) fn apply(&mut self, write: &Write) {
        match write.plural.as_str() {
            "clusters" => track(&mut self.clusters, write, uid),
            "nodes" => {
                self.apply_cordon(write);
                track(&mut self.nodes, write, |node| text(node, "/metadata/name"));
            }
            "hookruns" => self.apply_run(write),
            "jobs" => self.apply_job(write),
            "pods" => self.apply_pod(write),
            _ => {}
        }
    }

    fn apply_cordon(&mut self, write: &Write) {
        let Some(node) = &write.after else { return };
        let was_cordoned = write.before.as_ref().is_some_and(|it| is_cordoned(it));
        match is_cordoned(node) {
            true if !was_cordoned => {
                let uid = uid(node).to_owned();
                self.cordoned_by.insert(uid, write.user.clone());
            }
            true => {}
            false => {
                self.cordoned_by.remove(uid(node));
            }
        }
    }

    fn apply_run(&mut self, write: &Write) {
        if let Some(run) = self.created(write) {
            let run_uid = write.after.as_ref().map(|it| uid(it).to_owned());
            self.runs.insert(run_uid.unwrap_or_default(), run);
            return;
        }
        let Some(object) = write.after.as_ref().or(write.before.as_ref()) else {
            return;
        };
        let is_deleted = write.after.as_ref().is_none_or(|it| is_terminating(it));
        let phases = ["Successful", "Failed", "Error", "Inconclusive"];
        let is_completed = phases.contains(&phase(object));
        if let Some(run) = self.runs.get_mut(uid(object)) {
            run.is_closed |= is_deleted || is_completed;
        }
    }

    fn apply_job(&mut self, write: &Write) {
        let Some(job) = write.after.as_ref().or(write.before.as_ref()) else {
            return;
        };
        let Some(run_uid) = owner(job, "HookRun") else {
            return;
        };
        self.jobs.insert(uid(job).to_owned(), run_uid.to_owned());
        let Some(run) = self.runs.get_mut(run_uid) else {
            return;
        };
        let is_complete = ["Complete", "Failed"]
            .iter()
            .any(|it| condition(job, it).is_some_and(|it| text(it, "/status") == "True"));
        run.has_ended |= is_complete;
        run.job = Some(match &write.after {
            Some(_) => Existence::Exists,
            None => Existence::Deleted,
        });
    }

    fn apply_pod(&mut self, write: &Write) {
        let Some(pod) = write.after.as_ref().or(write.before.as_ref()) else {
            return;
        };
        let run_uid = owner(pod, "Job").and_then(|job| self.jobs.get(job));
        let Some(run) = run_uid.and_then(|it| self.runs.get_mut(it)) else {
            return;
        };
        run.has_ended |= has_ended(pod);
        match write.after.is_some() {
            true => run.pods.insert(uid(pod).to_owned()),
            false => run.pods.remove(uid(pod)),
        };
        if phase(pod) == "Succeeded" && !self.passed.contains(&run.task) {
            self.passed.push(run.task.clone());
        }
    }

    /// The versions of a Cluster on which a write may be based.
    pub(crate) fn cluster(&self, uid: &str, write: &Write) -> Vec<Cluster<'_>> {
        let known = self.clusters.get(uid).into_iter();
        known.flat_map(|it| it.seen_at(write.received)).map(Cluster).collect()
    }

    /// The versions of a node on which a write may be based.
    pub(crate) fn node(&self, node_uid: &str, write: &Write) -> Vec<&Value> {
        let has_uid = |node: &&Timeline| node.newest().is_some_and(|it| uid(it) == node_uid);
        let known = self.nodes.values().find(has_uid).into_iter();
        known.flat_map(|it| it.seen_at(write.received)).collect()
    }

    /// The attempts whose scripts may be running on nodes that exist.
    pub(crate) fn live(&self) -> impl Iterator<Item = &Run> {
        let newest = self.nodes.values().filter_map(Timeline::newest);
        let nodes: BTreeSet<&str> = newest.map(uid).collect();
        let is_live = move |run: &&Run| run.is_live() && nodes.contains(&*run.task.node_uid);
        self.runs.values().filter(is_live)
    }
}

/// Adds a version of an object, or forgets an object that no longer exists.
fn track(known: &mut BTreeMap<String, Timeline>, write: &Write, key: impl Fn(&Value) -> &str) {
    if let Some(object) = &write.after {
        let timeline = known.entry(key(object).to_owned()).or_default();
        if timeline.newest().is_some_and(|it| uid(it) != uid(object)) {
            timeline.versions.clear();
        }
        timeline.versions.push((write.done, object.clone()));
    } else if let Some(object) = &write.before {
        known.remove(key(object));
    }
}
