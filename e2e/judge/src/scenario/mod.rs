//! Builds audit logs for the judge's own tests: a small simulated cluster that logs each write. This file contains
//! the workload; [`pods`], [`kubelet`], [`hook_runs`] and [`budget`] contain the rest.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};

use self::log::{Log, merge};
use crate::{Violation, names, violations};

mod budget;
mod hook_runs;
mod kubelet;
pub(crate) mod log;
mod pods;

/// Name and uid of the workload.
const GAME: &str = "game";
/// User name of the operator.
pub(crate) const OPERATOR: &str = "system:serviceaccount:x:gamekeeper";

/// A simulated cluster with its log.
#[derive(Clone)]
pub(crate) struct Scenario {
    log: Log,
    workload: Value,
    pods: BTreeMap<String, Value>,
    runs: BTreeMap<String, Value>,
    /// The budget with its resourceVersion.
    budget: Option<(Value, u64)>,
    /// When operators were started.
    starts: Vec<Timestamp>,
}

impl Scenario {
    /// A GameDeployment with this spec, and all its pods ready at revision `v1`.
    pub(crate) fn with(spec: Value) -> Self {
        let mut scenario = Self::without_pods("GameDeployment", spec);
        for letter in (b'a'..).take(scenario.replicas()) {
            scenario.create(&(letter as char).to_string(), "v1");
        }
        scenario.wait(5);
        scenario
    }

    /// A GameDeployment with four pods at revision `v1` and update revision `v2`.
    pub(crate) fn updating(strategy: Value) -> Self {
        let mut scenario = Self::with(json!({"replicas": 4, "updateStrategy": strategy}));
        scenario.status(json!({"updateRevision": "v2"}));
        scenario.wait(2);
        scenario
    }

    /// A GameStatefulSet with this spec, and all its pods ready at revision `v1`.
    pub(crate) fn stateful_set(spec: Value) -> Self {
        let mut scenario = Self::without_pods("GameStatefulSet", spec);
        for ordinal in 0..scenario.replicas() {
            scenario.create(&format!("{GAME}-{ordinal}"), "v1");
            scenario.wait(2);
        }
        scenario.wait(5);
        scenario
    }

    fn replicas(&self) -> usize {
        let replicas = self.workload["spec"]["replicas"].as_u64();
        replicas.expect("replicas") as usize
    }

    /// A workload of this kind with this spec, before its first pod is created.
    pub(crate) fn without_pods(kind: &'static str, spec: Value) -> Self {
        let mut scenario = Scenario {
            log: Log::new(),
            workload: json!({
                "kind": kind,
                "metadata": {"name": GAME, "uid": GAME, "generation": 1},
                "spec": spec,
            }),
            pods: BTreeMap::new(),
            runs: BTreeMap::new(),
            budget: None,
            starts: Vec::new(),
        };
        let created = scenario.workload.clone();
        let plural = scenario.plural();
        scenario.workload = scenario.log.write("user", "create", &plural, "", GAME, created);
        scenario.status(json!({"updateRevision": "v1", "canary": {"revision": "v1"}}));
        scenario
    }

    fn plural(&self) -> String {
        let kind = self.workload["kind"].as_str().unwrap_or_default();
        format!("{}s", kind.to_lowercase())
    }

    /// The operator sets the owner of a claim.
    pub(crate) fn own_claim(&mut self, name: &str, kind: &str, uid: &str) {
        let owner = json!({"kind": kind, "name": "owner", "uid": uid, "controller": true});
        let claim = json!({
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "uid": name, "ownerReferences": [owner]},
        });
        self.log.write(OPERATOR, "patch", "persistentvolumeclaims", "", name, claim);
    }

    /// The operator deletes a claim.
    pub(crate) fn delete_claim(&mut self, name: &str) {
        let gone = json!({"kind": "Status"});
        self.log.write(OPERATOR, "delete", "persistentvolumeclaims", "", name, gone);
    }

    /// The operator deletes a ControllerRevision.
    pub(crate) fn delete_revision(&mut self, name: &str) {
        let gone = json!({"kind": "Status"});
        self.log.write(OPERATOR, "delete", "controllerrevisions", "", name, gone);
    }

    /// The operator writes an event. The log contains no body of it.
    pub(crate) fn write_event(&mut self) {
        self.log.write(OPERATOR, "create", "events", "", "event", json!({}));
    }

    /// Lets time pass.
    pub(crate) fn wait(&mut self, seconds: i64) {
        self.log.wait(seconds);
    }

    /// The time.
    pub(crate) fn now(&self) -> Timestamp {
        self.log.now
    }

    fn write_workload(&mut self, user: &str, subresource: &str) {
        let (workload, plural) = (self.workload.clone(), self.plural());
        self.workload = self.log.write(user, "patch", &plural, subresource, GAME, workload);
    }

    /// A user patches the spec of the workload.
    pub(crate) fn spec(&mut self, user: &str, patch: Value) {
        merge(&mut self.workload["spec"], &patch);
        let generation = self.workload["metadata"]["generation"].as_i64().unwrap_or(0);
        self.workload["metadata"]["generation"] = json!(generation + 1);
        self.write_workload(user, "");
    }

    /// A user deletes the workload. A finalizer keeps it.
    pub(crate) fn delete_workload(&mut self) {
        self.show_deletion();
        self.write_workload("user", "");
    }

    /// A user deletes the workload, and the response is not complete yet.
    pub(crate) fn show_deletion(&mut self) {
        self.workload["metadata"]["finalizers"] = json!(["guard"]);
        self.workload["metadata"]["deletionTimestamp"] = json!(self.log.now);
    }

    /// A user deletes the workload, which nothing keeps.
    pub(crate) fn remove_workload(&mut self) {
        let (plural, gone) = (self.plural(), json!({"kind": "Status"}));
        self.log.write("user", "delete", &plural, "", GAME, gone);
    }

    /// The operator pauses the workload, and annotates it as paused by the operator.
    pub(crate) fn pause(&mut self) {
        self.workload["metadata"]["annotations"] = json!({names::PAUSE: "x"});
        self.spec(OPERATOR, json!({"updateStrategy": {"paused": true}}));
    }

    /// The annotation of the operator's pause says that it has ended.
    pub(crate) fn end_pause(&mut self, user: &str) {
        self.workload["metadata"]["annotations"] = json!({names::PAUSE: r#"{"over":true}"#});
        self.write_workload(user, "");
    }

    /// A user fully promotes the rollout to a revision.
    pub(crate) fn promote(&mut self, user: &str, revision: &str, steps: &str) {
        let promotion = json!({"revision": revision, "stepHash": steps}).to_string();
        self.workload["metadata"]["annotations"] = json!({names::PROMOTE: promotion});
        self.write_workload(user, "");
    }

    /// A user applies a manifest with these fields.
    pub(crate) fn apply(&mut self, patch: Value) {
        self.spec("user", patch);
        if let Some(event) = self.log.events.last_mut() {
            event.uri.push_str("?fieldManager=kubectl-client-side-apply");
        }
    }

    /// The operator writes the status.
    pub(crate) fn status(&mut self, patch: Value) {
        if self.workload.get("status").is_none() {
            self.workload["status"] = json!({});
        }
        merge(&mut self.workload["status"], &patch);
        self.write_workload(OPERATOR, "status");
    }

    /// An operator that does not use leader election starts.
    pub(crate) fn start_operator(&mut self) {
        self.starts.push(self.log.now);
    }

    /// An operator becomes the leader.
    pub(crate) fn acquire_lease(&mut self) {
        let lease = json!({
            "kind": "Lease", "metadata": {"name": "gamekeeper"},
            "spec": {"holderIdentity": "x", "acquireTime": self.log.now},
        });
        self.log.write(OPERATOR, "update", "leases", "", "gamekeeper", lease);
    }

    /// The operator reports a settled workload.
    pub(crate) fn settle(&mut self) {
        let replicas = &self.workload["spec"]["replicas"];
        let generation = &self.workload["metadata"]["generation"];
        self.status(json!({
            "observedGeneration": generation, "replicas": replicas, "readyReplicas": replicas,
            "availableReplicas": replicas, "updatedReplicas": replicas,
            "updatedReadyReplicas": replicas,
        }));
    }

    /// The operator writes the same status again.
    pub(crate) fn repeat_status(&mut self) {
        self.log.version -= 1;
        self.write_workload(OPERATOR, "status");
    }

    /// The operator records a revision whose template has these annotations.
    pub(crate) fn record_template(&mut self, revision: &str, annotations: Value) {
        let template = json!({"metadata": {"annotations": annotations}});
        let revision_object = json!({
            "kind": "ControllerRevision",
            "metadata": {"name": revision, "ownerReferences": [{"controller": true, "uid": GAME}]},
            "data": {"spec": {"template": template}},
        });
        self.log.write(OPERATOR, "create", "controllerrevisions", "", revision, revision_object);
    }

    /// The violations that the judge finds.
    pub(crate) fn verdict(&self) -> Vec<Violation> {
        violations(&self.log.events, &self.starts, |user| user == OPERATOR)
    }

    /// The rules that are violated.
    pub(crate) fn broken(&self) -> Vec<&'static str> {
        self.verdict().iter().map(|found| found.rule).collect()
    }
}
