//! A simulated cluster of a few nodes, which carries out plans. The tests decide how scripts end.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use crate::api::names::{NODE_RECORD, RUN_NODE, RUN_STEP};
use crate::api::{Cluster, ClusterPhase, ClusterStatus, HookRun, HookRunStatus};
use crate::lifecycle::{ClusterNode, ClusterPlan, ClusterWorld, GamePod, Memory, READY, plan};
use crate::observed::Kind;
use crate::simulated::{Made, Server, carry_out};
use crate::write::{Change, Refusal, Write};

pub struct Sim {
    pub cluster: Cluster,
    pub nodes: Vec<ClusterNode>,
    pub runs: Vec<HookRun>,
    pub now: Timestamp,
    pub events: Vec<String>,
    pub memory: Memory,
    /// Why the API server refuses a write.
    pub refuses: fn(&Change) -> Option<&'static str>,
    /// The name of an older Cluster.
    pub older_cluster: Option<String>,
    pub pods: Vec<GamePod>,
    next_uid: u32,
}

pub fn node(name: &str) -> ClusterNode {
    let os = ("kubernetes.io/os".to_owned(), "linux".to_owned());
    ClusterNode {
        name: name.to_owned(),
        uid: format!("{name}-uid"),
        resource_version: "1".to_owned(),
        created: Some(Timestamp::UNIX_EPOCH),
        labels: [os].into(),
        addresses: vec![format!("10.0.0.{}", name.len())],
        ready: true,
        version: "v1.18.3".to_owned(),
        ..ClusterNode::default()
    }
}

pub fn master(name: &str) -> ClusterNode {
    let mut master = node(name);
    let label = "node-role.kubernetes.io/control-plane".to_owned();
    master.labels.insert(label, String::new());
    master
}

/// A Cluster like that in examples/lifecycle/directories, with these features replaced or added.
pub fn example_cluster(features: &Value) -> Cluster {
    let mut all = json!({
        "sources": [
            {"path": "hooks/pre", "configMap": {"name": "hooks-pre"}},
            {"path": "hooks/post", "configMap": {"name": "hooks-post"}},
        ],
        "files": [
            {"src": "hooks/pre", "dst": "/tmp/hooks/pre"},
            {"src": "hooks/post", "dst": "/tmp/hooks/post"},
        ],
        "hooks": {
            "PreInstall": "/tmp/hooks/pre/pre-install",
            "PostInstall": "/tmp/hooks/post/post-install",
            "PreClusterInstall": "/tmp/hooks/pre/cluster-pre-install",
            "PostClusterInstall": "/tmp/hooks/post/cluster-post-install --quick",
        },
    });
    for (key, value) in features.as_object().into_iter().flatten() {
        all[key] = value.clone();
    }
    let cluster = json!({
        "apiVersion": "tkex.tencent.com/v1alpha1", "kind": "Cluster",
        "metadata": {
            "name": "xa", "uid": "xa-uid", "generation": 1,
            "labels": {"location": "xa"},
            "annotations": {
                "node.alpha.kubernetes.io/test": "hello",
                "kubectl.kubernetes.io/last-applied-configuration": "{}",
            },
        },
        "spec": {"version": "1.18.3", "features": all},
    });
    serde_json::from_value(cluster).expect("a Cluster")
}

impl Server for Sim {
    type Status = ClusterStatus;

    fn now(&self) -> Timestamp {
        self.now
    }

    fn kind(&self) -> Kind {
        Kind::Cluster
    }

    fn generation(&self) -> Option<i64> {
        self.cluster.metadata.generation
    }

    fn write_status(&mut self, status: ClusterStatus) {
        let ready = status.conditions.iter().find(|it| it.type_ == READY);
        if ready.is_some_and(|it| it.status == "True") {
            assert_eq!(status.phase, ClusterPhase::Running);
            assert_eq!(status.installed_nodes, status.nodes);
        }
        self.cluster.status = Some(status);
    }

    fn make(&mut self, write: &Write) -> Result<Made, Refusal> {
        match (self.refuses)(write.change()) {
            Some(why) => Err(Refusal::Rejected(why.to_owned())),
            None => {
                self.act(write);
                Ok(Made::default())
            }
        }
    }
}

impl Sim {
    pub fn new(features: &Value) -> Self {
        Self {
            cluster: example_cluster(features),
            nodes: vec![master("master-0"), node("world-1"), node("world-22")],
            runs: Vec::new(),
            now: "2026-01-01T14:00:00Z".parse().expect("a time"),
            events: Vec::new(),
            memory: Memory::default(),
            refuses: |_| None,
            older_cluster: None,
            pods: Vec::new(),
            next_uid: 0,
        }
    }

    pub fn plan(&self) -> ClusterPlan {
        let world = ClusterWorld {
            now: self.now,
            nodes: self.nodes.iter().cloned().map(Arc::new).collect(),
            runs: self.runs.iter().cloned().map(Arc::new).collect(),
            older_cluster: self.older_cluster.clone(),
            image: "gamekeeper:1".to_owned(),
            game_pods: self.pods.clone(),
            memory: self.memory.clone(),
        };
        plan(&self.cluster, &world)
    }

    /// Makes and carries out plans until nothing changes. Deleted runs exist until then, because their scripts are
    /// still running.
    pub fn settle(&mut self) {
        for _ in 0..50 {
            if self.reconcile() {
                continue;
            }
            let runs = self.runs.len();
            self.runs.retain(|run| run.metadata.deletion_timestamp.is_none());
            if self.runs.len() == runs {
                return;
            }
        }
        panic!("the plans do not settle: {:?}", self.plan());
    }

    /// Makes a plan and carries it out. Returns whether another one follows at once.
    pub fn reconcile(&mut self) -> bool {
        let plan = self.plan();
        let has_writes = !plan.writes.is_empty();
        let changes = has_writes || plan.status.is_some();
        let events = plan.events.iter();
        self.events.extend(events.map(|it| format!("{}: {}", it.reason, it.message)));
        let mut memory = std::mem::take(&mut self.memory);
        memory.retain_refused(&plan.writes);
        carry_out(plan, &mut memory, self);
        let forgets = memory.forgets_refusal(has_writes, self.now);
        self.memory = memory;
        changes || forgets
    }

    fn act(&mut self, write: &Write) {
        match write.change() {
            Change::PatchWorkload(patch) => {
                self.cluster.metadata.finalizers =
                    patch.finalizers.clone().filter(|it| !it.is_empty());
            }
            Change::CreateHookRun(run) => {
                let mut run = HookRun::clone(run);
                assert!(
                    !self.runs.iter().any(|it| it.metadata.name == run.metadata.name),
                    "created twice: {:?}",
                    run.metadata.name
                );
                let node = annotation(&run, RUN_NODE);
                let live = self.live();
                assert!(!live.iter().any(|it| it.1 == node), "two runs on {node}");
                self.next_uid += 1;
                run.metadata.uid = Some(format!("run-{}", self.next_uid));
                run.metadata.creation_timestamp = Some(Time(self.now));
                self.runs.push(run);
            }
            Change::Delete { uid, .. } => {
                let mut runs = self.runs.iter_mut();
                let found = runs.find(|run| run.metadata.uid.as_ref() == Some(uid));
                found.expect("a run").metadata.deletion_timestamp = Some(Time(self.now));
            }
            Change::SetMetadata { pod, .. } => {
                let mut pods = self.pods.iter_mut();
                let found = pods.find(|it| it.uid == pod.uid).expect("a pod");
                found.move_requested = true;
            }
            Change::PatchNode(patch) => {
                let found = self.nodes.iter_mut().find(|it| it.uid == patch.uid);
                let found =
                    found.unwrap_or_else(|| panic!("{NODE_RECORD} of a node that does not exist"));
                assert_eq!(found.resource_version, patch.resource_version);
                found.record.clone_from(&patch.record);
                found.unschedulable = patch.cordon.unwrap_or(found.unschedulable);
            }
            Change::AdmitNode { uid, .. } => {
                let mut nodes = self.nodes.iter_mut();
                let found = nodes.find(|it| it.uid == *uid).expect("a node");
                found.not_installed_taint_index = None;
            }
            change => panic!("no plan of a Cluster makes this write: {change:?}"),
        }
    }

    /// The step and node of each run that is in progress.
    pub fn live(&self) -> Vec<(String, String)> {
        let live = self.runs.iter().filter(|run| !run.phase().is_completed());
        live.map(|run| (annotation(run, RUN_STEP), annotation(run, RUN_NODE))).collect()
    }

    pub fn run_of(&mut self, node: &str) -> &mut HookRun {
        let mut runs = self.runs.iter_mut();
        let found =
            runs.find(|run| !run.phase().is_completed() && annotation(run, RUN_NODE) == node);
        found.unwrap_or_else(|| panic!("no run on {node}"))
    }

    /// Ends the run on a node: successfully, or with this failure of its Job.
    pub fn end(&mut self, node: &str, failure: Option<&str>) {
        let now = self.now;
        let run = self.run_of(node);
        let phase = if failure.is_some() { "Failed" } else { "Successful" };
        let measurement = json!({
            "phase": phase, "value": "job-1",
            "message": failure.map(|why| format!("job job-1 failed: {why}")),
        });
        let status = json!({
            "phase": phase, "finishedAt": now.to_string(),
            "metricResults": [{"name": "script", "phase": phase, "measurements": [measurement]}],
        });
        let status: HookRunStatus = serde_json::from_value(status).expect("a status");
        run.status = Some(status);
        self.settle();
    }

    /// Lets all runs pass until no new one starts. Returns their steps and nodes, in order.
    pub fn pass_all(&mut self) -> Vec<String> {
        let mut ran = Vec::new();
        self.settle();
        while let Some((step, node)) = self.live().first().cloned() {
            ran.push(format!("{step} {node}"));
            self.end(&node, None);
        }
        ran
    }

    pub fn wait(&mut self, seconds: i64) {
        self.now += SignedDuration::from_secs(seconds);
        self.settle();
    }

    /// Status, reason and message of a condition.
    pub fn condition(&self, type_: &str) -> String {
        let status = self.cluster.status.as_ref().expect("a status");
        let found = status.conditions.iter().find(|it| it.type_ == type_);
        let found = found.unwrap_or_else(|| panic!("no condition {type_}"));
        format!("{} {}: {}", found.status, found.reason, found.message)
    }

    pub fn delete(&mut self) {
        self.cluster.metadata.deletion_timestamp = Some(Time(self.now));
        self.settle();
    }

    pub fn is_deleted(&self) -> bool {
        let is_terminating = self.cluster.metadata.deletion_timestamp.is_some();
        is_terminating && self.cluster.metadata.finalizers.is_none()
    }
}

fn annotation(run: &HookRun, key: &str) -> String {
    let annotations = run.metadata.annotations.as_ref();
    annotations.and_then(|it| it.get(key)).cloned().unwrap_or_default()
}
