//! Builds audit logs for the tests of the rules about Clusters: two nodes, a Cluster, and its scripts.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::lifecycle_violations;
use crate::names;
use crate::object::{text, uid};
use crate::scenario::OPERATOR;
use crate::scenario::log::{Log, merge};

/// The first master.
pub(crate) const MASTER: &str = "master";
/// The other node.
pub(crate) const WORKER: &str = "worker";

/// A simulated cluster with its log.
#[derive(Clone)]
pub(crate) struct Scenario {
    log: Log,
    cluster: Value,
    nodes: BTreeMap<&'static str, Value>,
    runs: usize,
}

/// A script that is running: its HookRun, Job and pod.
#[must_use]
pub(crate) struct Attempt {
    run: Value,
    job: Value,
    pod: Value,
}

impl Scenario {
    /// A Cluster with these features, and two nodes on which nothing has run.
    pub(crate) fn with(features: Value) -> Self {
        let mut scenario = Scenario {
            log: Log::new(),
            cluster: json!({
                "kind": "Cluster",
                "metadata": {"name": "xa", "uid": "xa", "finalizers": [names::LIFECYCLE_FINALIZER]},
                "spec": {"version": "1.36.3", "features": features},
            }),
            nodes: BTreeMap::new(),
            runs: 0,
        };
        scenario.create_node(MASTER);
        scenario.create_node(WORKER);
        scenario.write_cluster("user", "create", "");
        scenario.status(json!({"phase": "Initializing", "firstMaster": MASTER}));
        scenario.wait(2);
        scenario
    }

    /// A Cluster with the hooks PreClusterInstall, PreInstall and PostClusterInstall.
    pub(crate) fn installing() -> Self {
        Self::with(json!({"hooks": {
            "PreClusterInstall": "/a", "PreInstall": "/b", "PostClusterInstall": "/c",
        }}))
    }

    /// A Cluster with the hooks PreUpgrade and PostUpgrade, during an upgrade that drains nodes.
    pub(crate) fn upgrading() -> Self {
        let mut scenario = Self::with(json!({
            "hooks": {"PreUpgrade": "/a", "PostUpgrade": "/b"},
            "upgrade": {"strategy": {"drainNodeBeforeUpgrade": true}},
        }));
        for node in [MASTER, WORKER] {
            scenario.record(node, json!({"installed": true}));
        }
        scenario.status(json!({"phase": "Running", "version": "1.36.3"}));
        scenario.spec(json!({"version": "1.37.0"}));
        let upgrade = json!({"number": 1, "to": "1.37.0"});
        scenario.status(json!({"phase": "Upgrading", "upgrade": upgrade}));
        scenario.wait(2);
        scenario
    }

    /// Lets time pass. Once more than a second has passed, the operator must know what has happened.
    pub(crate) fn wait(&mut self, seconds: i64) {
        self.log.wait(seconds);
    }

    fn create_node(&mut self, name: &'static str) {
        let node = json!({
            "kind": "Node",
            "metadata": {"name": name, "uid": name, "labels": {"kubernetes.io/os": "linux"}},
            "spec": {"taints": [{"key": names::NOT_INSTALLED}]},
            "status": {
                "conditions": [{"type": "Ready", "status": "True"}],
                "nodeInfo": {"kubeletVersion": "v1.36.3"},
            },
        });
        let node = self.log.write("user", "create", "nodes", "", name, node);
        self.nodes.insert(name, node);
    }

    /// A client changes a node.
    pub(crate) fn change_node(&mut self, user: &str, name: &'static str, patch: Value) {
        let mut node = self.nodes[name].clone();
        merge(&mut node, &patch);
        let node = self.log.write(user, "patch", "nodes", "", name, node);
        self.nodes.insert(name, node);
    }

    /// A client cordons or uncordons a node.
    pub(crate) fn cordon(&mut self, user: &str, name: &'static str, is_cordoned: bool) {
        let mut patch = json!({"spec": {"unschedulable": is_cordoned}});
        if user == OPERATOR {
            patch["metadata"] =
                json!({"annotations": {names::NODE_RECORD: record(json!({}), name)}});
        }
        self.change_node(user, name, patch);
    }

    /// The operator records what has passed on a node.
    pub(crate) fn record(&mut self, name: &'static str, fields: Value) {
        let annotations = json!({names::NODE_RECORD: record(fields, name)});
        self.change_node(OPERATOR, name, json!({"metadata": {"annotations": annotations}}));
    }

    /// The kubelet of a node is upgraded.
    pub(crate) fn upgrade_kubelet(&mut self, name: &'static str) {
        let info = json!({"nodeInfo": {"kubeletVersion": "v1.37.0"}});
        self.change_node("kubelet", name, json!({"status": info}));
    }

    fn write_cluster(&mut self, user: &str, verb: &str, subresource: &str) {
        let cluster = self.cluster.clone();
        self.cluster = self.log.write(user, verb, "clusters", subresource, "xa", cluster);
    }

    /// A user changes the spec.
    pub(crate) fn spec(&mut self, patch: Value) {
        merge(&mut self.cluster["spec"], &patch);
        self.write_cluster("user", "patch", "");
        self.wait(2);
    }

    /// The operator writes the status.
    pub(crate) fn status(&mut self, patch: Value) {
        merge(&mut self.cluster, &json!({"status": {}}));
        merge(&mut self.cluster["status"], &patch);
        self.write_cluster(OPERATOR, "update", "status");
    }

    /// The operator writes the same status again.
    pub(crate) fn repeat_status(&mut self) {
        self.log.version -= 1;
        self.write_cluster(OPERATOR, "update", "status");
    }

    /// The operator records that scripts of the cluster have passed.
    pub(crate) fn record_on_cluster(&mut self, steps: &[&str]) {
        self.status(json!({"passedSteps": steps}));
    }

    /// A user deletes the Cluster.
    pub(crate) fn delete(&mut self) {
        self.cluster["metadata"]["deletionTimestamp"] = json!(self.log.now);
        self.write_cluster("user", "delete", "");
        self.status(json!({"phase": "Terminating"}));
        self.wait(2);
    }

    /// The operator removes the finalizer.
    pub(crate) fn remove_finalizer(&mut self) {
        self.cluster["metadata"]["finalizers"] = json!([]);
        self.write_cluster(OPERATOR, "patch", "");
    }

    /// The operator starts a script; its pod runs.
    pub(crate) fn start(&mut self, step: &str, node: &'static str) -> Attempt {
        self.runs += 1;
        let name = format!("{step}-{node}-{}", self.runs);
        let object = |kind: &str, owner: &str, owner_uid: &str| {
            json!({"kind": kind, "metadata": {
                "name": name, "uid": format!("{name}-{kind}"),
                "annotations": {
                    names::LIFECYCLE_STEP: step, names::LIFECYCLE_NODE: node, names::LIFECYCLE_NODE_UID: node,
                },
                "ownerReferences": [{"kind": owner, "uid": owner_uid}],
            }})
        };
        let run = object("HookRun", "Cluster", "xa");
        let job = object("Job", "HookRun", uid(&run));
        let mut pod = object("Pod", "Job", uid(&job));
        pod["status"] = json!({"phase": "Running"});
        let run = self.log.write(OPERATOR, "create", "hookruns", "", &name, run);
        let job = self.log.write(OPERATOR, "create", "jobs", "", &name, job);
        let pod = self.log.write("controller", "create", "pods", "", &name, pod);
        Attempt { run, job, pod }
    }

    /// A script ends.
    pub(crate) fn end(&mut self, attempt: Attempt, is_successful: bool) {
        let Attempt { mut run, mut job, mut pod } = attempt;
        let (pod_phase, condition, phase) = match is_successful {
            true => ("Succeeded", "Complete", "Successful"),
            false => ("Failed", "Failed", "Failed"),
        };
        let name = text(&run, "/metadata/name").to_owned();
        pod["status"] = json!({"phase": pod_phase});
        self.log.write("kubelet", "patch", "pods", "status", &name, pod);
        job["status"] = json!({"conditions": [{"type": condition, "status": "True"}]});
        self.log.write("controller", "update", "jobs", "status", &name, job);
        run["status"] = json!({"phase": phase});
        self.log.write(OPERATOR, "patch", "hookruns", "status", &name, run);
    }

    /// The operator deletes a HookRun, and the garbage collector its Job. The script's pod is Terminating.
    pub(crate) fn cancel(&mut self, attempt: &mut Attempt) {
        let Attempt { run, pod, .. } = attempt;
        let name = text(run, "/metadata/name").to_owned();
        self.log.write(OPERATOR, "delete", "hookruns", "", &name, json!({}));
        self.log.write("controller", "delete", "jobs", "", &name, json!({}));
        pod["metadata"]["deletionTimestamp"] = json!(self.log.now);
        pod["metadata"]["deletionGracePeriodSeconds"] = json!(5);
        *pod = self.log.write("controller", "delete", "pods", "", &name, pod.clone());
    }

    /// The kubelet removes the pod of a canceled script.
    pub(crate) fn end_pod(&mut self, attempt: &Attempt) {
        let name = text(&attempt.run, "/metadata/name").to_owned();
        self.log.write("kubelet", "delete", "pods", "", &name, json!({}));
    }

    /// A script runs, and succeeds.
    pub(crate) fn run(&mut self, step: &str, node: &'static str) {
        let attempt = self.start(step, node);
        self.end(attempt, true);
    }

    /// The rules that are violated.
    pub(crate) fn broken(&self) -> Vec<&'static str> {
        let found = lifecycle_violations(&self.log.events, |user| user == OPERATOR);
        found.iter().map(|found| found.rule).collect()
    }
}

/// The record on a node, as the text of its annotation.
fn record(mut fields: Value, node: &str) -> String {
    merge(&mut fields, &json!({"cluster": "xa", "node": node}));
    fields.to_string()
}
