//! Builds audit logs for the judge's own tests: a small simulated cluster that logs each write.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};

use self::log::{Log, merge};
use crate::{Violation, names, violations};

pub(crate) mod log;

/// Name and uid of the workload.
const GAME: &str = "game";
/// Name of its budget.
const BUDGET: &str = "game-guarded-x";
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
        let mut scenario = Self::of("GameDeployment", spec);
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
    pub(crate) fn of_set(spec: Value) -> Self {
        let mut scenario = Self::of("GameStatefulSet", spec);
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
    pub(crate) fn of(kind: &'static str, spec: Value) -> Self {
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
        scenario.workload = scenario
            .log
            .write("user", "create", &plural, "", GAME, created);
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
        self.log
            .write(OPERATOR, "patch", "persistentvolumeclaims", "", name, claim);
    }

    /// The operator deletes a claim.
    pub(crate) fn delete_claim(&mut self, name: &str) {
        let gone = json!({"kind": "Status"});
        self.log
            .write(OPERATOR, "delete", "persistentvolumeclaims", "", name, gone);
    }

    /// The operator deletes a ControllerRevision.
    pub(crate) fn delete_revision(&mut self, name: &str) {
        let gone = json!({"kind": "Status"});
        self.log
            .write(OPERATOR, "delete", "controllerrevisions", "", name, gone);
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
        self.workload = self
            .log
            .write(user, "patch", &plural, subresource, GAME, workload);
    }

    /// A user patches the spec of the workload.
    pub(crate) fn spec(&mut self, user: &str, patch: Value) {
        merge(&mut self.workload["spec"], &patch);
        let generation = self.workload["metadata"]["generation"]
            .as_i64()
            .unwrap_or(0);
        self.workload["metadata"]["generation"] = json!(generation + 1);
        self.write_workload(user, "");
    }

    /// A user deletes the workload, whose finalizer keeps it.
    pub(crate) fn delete_workload(&mut self) {
        self.workload["metadata"]["finalizers"] = json!(["guard"]);
        self.workload["metadata"]["deletionTimestamp"] = json!(self.log.now);
        self.write_workload("user", "");
    }

    /// The operator pauses the workload, with its annotation.
    pub(crate) fn pause(&mut self) {
        self.workload["metadata"]["annotations"] = json!({names::PAUSE: "x"});
        self.spec(OPERATOR, json!({"updateStrategy": {"paused": true}}));
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
            event
                .uri
                .push_str("?fieldManager=kubectl-client-side-apply");
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
        self.log
            .write(OPERATOR, "update", "leases", "", "gamekeeper", lease);
    }

    /// The operator applies the budget of the workload. If nothing changes, the budget keeps its version.
    pub(crate) fn apply_budget(&mut self) {
        self.write_budget(json!({}));
    }

    /// The operator annotates the budget of the workload.
    pub(crate) fn annotate_budget(&mut self) {
        self.write_budget(json!({"x": "y"}));
    }

    fn write_budget(&mut self, annotations: Value) {
        let metadata =
            json!({"name": BUDGET, "labels": {names::GUARDED: GAME}, "annotations": annotations});
        let budget = json!({"kind": "PodDisruptionBudget", "metadata": metadata, "spec": {}});
        let unchanged = self.budget.take().filter(|(it, _)| *it == budget);
        let newest = self.log.version;
        if let Some((_, version)) = &unchanged {
            self.log.version = version - 1;
        }
        self.log.write(
            OPERATOR,
            "patch",
            "poddisruptionbudgets",
            "",
            BUDGET,
            budget.clone(),
        );
        self.budget = Some((budget, self.log.version));
        self.log.version = self.log.version.max(newest);
    }

    /// The operator deletes the budget of the workload.
    pub(crate) fn delete_budget(&mut self) {
        self.delete_budget_by(OPERATOR);
    }

    /// A user deletes the budget of the workload.
    pub(crate) fn delete_budget_by(&mut self, user: &str) {
        let gone = json!({"kind": "Status"});
        self.log
            .write(user, "delete", "poddisruptionbudgets", "", BUDGET, gone);
        self.budget = None;
    }

    /// The operator checks whether the guard is in force.
    pub(crate) fn check_guard(&mut self, is_in_force: bool) {
        let status = json!({"kind": "Status"});
        self.log.write(
            OPERATOR,
            "delete",
            "poddisruptionbudgets",
            "",
            BUDGET,
            status,
        );
        let event = self.log.events.last_mut().expect("an event");
        event.uri.push_str("?dryRun=All");
        if is_in_force {
            let status = event.response_status.as_mut().expect("a status");
            status.code = 403;
        }
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

    /// The operator creates a pod, which becomes ready.
    pub(crate) fn create(&mut self, name: &str, revision: &str) {
        self.create_only(name, revision);
        self.set_ready(name, true);
    }

    /// The operator creates a pod with an index.
    pub(crate) fn create_with_index(&mut self, name: &str, index: &str) {
        self.create_annotated(name, "v1", json!({names::INDEX: index}));
    }

    /// The operator creates a pod.
    pub(crate) fn create_only(&mut self, name: &str, revision: &str) {
        self.create_annotated(name, revision, json!({}));
    }

    /// The operator records the template of a revision, with these annotations.
    pub(crate) fn record_template(&mut self, revision: &str, annotations: Value) {
        let template = json!({"metadata": {"annotations": annotations}});
        let revision_object = json!({
            "kind": "ControllerRevision", "metadata": {"name": revision},
            "data": {"spec": {"template": template}},
        });
        self.log.write(
            OPERATOR,
            "create",
            "controllerrevisions",
            "",
            revision,
            revision_object,
        );
    }

    /// The operator changes labels of a pod, and replaces its annotations.
    pub(crate) fn change_metadata(&mut self, name: &str, labels: Value, annotations: Value) {
        let pod = self.pods.get_mut(name).expect("a pod");
        merge(&mut pod["metadata"]["labels"], &labels);
        pod["metadata"]["annotations"] = annotations;
        self.write_pod(OPERATOR, "patch", "", name);
    }

    /// The operator creates a pod with annotations.
    pub(crate) fn create_annotated(&mut self, name: &str, revision: &str, annotations: Value) {
        let which = match self.workload["kind"] == "GameStatefulSet" {
            true => names::IDENTITY[2],
            false => names::INSTANCE,
        };
        let pod = json!({
            "kind": "Pod",
            "metadata": {
                "name": name, "uid": format!("uid-{name}"),
                "labels": {names::REVISION: revision, which: name},
                "annotations": annotations,
                "ownerReferences": [{"controller": true, "uid": GAME}],
            },
            "spec": {
                "readinessGates": [{"conditionType": names::GATE}],
                "containers": [{"name": "main", "image": format!("image-{revision}")}],
            },
        });
        let pod = self.log.write(OPERATOR, "create", "pods", "", name, pod);
        self.pods.insert(name.to_owned(), pod);
    }

    /// The kubelet reports the phase of a pod, and whether its container runs.
    pub(crate) fn reports(&mut self, name: &str, phase: &str, runs: bool) {
        let state = if runs { "running" } else { "waiting" };
        let mut status = json!({"name": "main", "ready": runs, "state": {}});
        status["state"][state] = json!({});
        let pod = self.pods.get_mut(name).expect("a pod");
        pod["status"]["phase"] = json!(phase);
        pod["status"]["containerStatuses"] = json!([status]);
        self.write_pod("kubelet", "patch", "status", name);
    }

    /// Kubernetes is about to delete a pod for this reason.
    pub(crate) fn disrupt(&mut self, name: &str, reason: &str) {
        let pod = self.pods.get_mut(name).expect("a pod");
        let conditions = pod["status"]["conditions"].as_array_mut();
        conditions
            .expect("conditions")
            .push(json!({"type": "DisruptionTarget", "status": "True", "reason": reason}));
        self.write_pod("kubelet", "patch", "status", name);
    }

    /// A user labels a pod.
    pub(crate) fn label(&mut self, name: &str, key: &str, value: &str) {
        self.set_metadata("labels", name, key, value);
    }

    /// A user annotates a pod.
    pub(crate) fn annotate(&mut self, name: &str, key: &str, value: &str) {
        self.set_metadata("annotations", name, key, value);
    }

    /// The operator sets the mark of SidecarSet `log` on a pod.
    pub(crate) fn mark(&mut self, name: &str, mark: &Value) {
        let key = format!("{}log", names::SIDECARS);
        let pod = self.pods.get_mut(name).expect("a pod");
        pod["metadata"]["annotations"][key] = json!(mark.to_string());
        self.write_pod(OPERATOR, "patch", "", name);
    }

    /// The operator updates the container `log` of a pod to a revision of its SidecarSet.
    pub(crate) fn update_sidecar(&mut self, name: &str, revision: &str) {
        let pod = self.pods.get_mut(name).expect("a pod");
        pod["spec"]["containers"][1]["image"] = json!(format!("image-{revision}"));
        self.mark(name, &json!({"at": revision, "in": ["log"]}));
    }

    /// Like [`Self::update_sidecar`], but also changes the game's image.
    pub(crate) fn update_sidecar_and_game(&mut self, name: &str, revision: &str) {
        let pod = self.pods.get_mut(name).expect("a pod");
        pod["spec"]["containers"][0]["image"] = json!("image-other");
        self.update_sidecar(name, revision);
    }

    fn set_metadata(&mut self, map: &str, name: &str, key: &str, value: &str) {
        let pod = self.pods.get_mut(name).expect("a pod");
        pod["metadata"][map][key] = json!(value);
        self.write_pod("user", "patch", "", name);
    }

    /// Adds a resourceVersion precondition to the next request.
    pub(crate) fn if_unchanged(&mut self) -> &mut Self {
        self.log.request = json!({"preconditions": {"uid": "x", "resourceVersion": "1"}});
        self
    }

    fn write_pod(&mut self, user: &str, verb: &str, subresource: &str, name: &str) {
        let pod = self.pods[name].clone();
        let pod = self.log.write(user, verb, "pods", subresource, name, pod);
        self.pods.insert(name.to_owned(), pod);
    }

    fn set_conditions(&mut self, user: &str, name: &str, gate: bool, ready: bool) {
        let text = |yes| if yes { "True" } else { "False" };
        let pod = self.pods.get_mut(name).expect("a pod");
        pod["status"]["phase"] = json!("Running");
        pod["status"]["conditions"] = json!([
            {"type": "Ready", "status": text(ready), "lastTransitionTime": self.log.now},
            {"type": names::GATE, "status": text(gate)},
        ]);
        self.write_pod(user, "patch", "status", name);
    }

    /// The kubelet reports a pod as ready or not ready.
    pub(crate) fn set_ready(&mut self, name: &str, ready: bool) {
        self.set_conditions("kubelet", name, true, ready);
    }

    /// The operator closes a pod's gate, and the kubelet updates Ready.
    pub(crate) fn close_gate(&mut self, name: &str) {
        self.set_conditions(OPERATOR, name, false, true);
        self.set_conditions("kubelet", name, false, false);
    }

    /// The operator opens a pod's gate, and the kubelet updates Ready.
    pub(crate) fn open_gate(&mut self, name: &str) {
        self.set_conditions(OPERATOR, name, true, false);
        self.set_conditions("kubelet", name, true, true);
    }

    /// The kubelet reports the image that a pod's container runs.
    pub(crate) fn runs_image(&mut self, name: &str, image: &str, ready: bool) {
        let pod = self.pods.get_mut(name).expect("a pod");
        let id = format!("containerd://0#{image}");
        pod["status"]["containerStatuses"] =
            json!([{"name": "main", "containerID": id, "ready": ready}]);
        self.write_pod("kubelet", "patch", "status", name);
    }

    /// A user adds a container to a pod.
    pub(crate) fn add_container(&mut self, pod: &str, name: &str) {
        let spec = &mut self.pods.get_mut(pod).expect("a pod")["spec"];
        let containers = spec["containers"].as_array_mut().expect("containers");
        containers.push(json!({"name": name, "image": "image-v1"}));
        self.write_pod("user", "patch", "", pod);
    }

    /// A user removes the readiness gate from a pod.
    pub(crate) fn remove_gate(&mut self, pod: &str) {
        let spec = &mut self.pods.get_mut(pod).expect("a pod")["spec"];
        spec["readinessGates"] = json!([]);
        self.write_pod("user", "patch", "", pod);
    }

    /// The kubelet has restarted a container of a pod that is ready.
    pub(crate) fn restarted(&mut self, name: &str) {
        let pod = self.pods.get_mut(name).expect("a pod");
        pod["status"]["containerStatuses"][0]["restartCount"] = json!(1);
        self.write_pod("kubelet", "patch", "status", name);
    }

    /// The kubelet reports which images a pod's containers were started from.
    pub(crate) fn run_images(&mut self, name: &str, images: [&str; 2]) {
        let pod = self.pods.get_mut(name).expect("a pod");
        let statuses = [0, 1].map(|place| {
            let id = format!("containerd://{place}#{}", images[place]);
            let name = &pod["spec"]["containers"][place]["name"];
            json!({"name": name, "containerID": id, "ready": true, "state": {"running": {}}})
        });
        pod["status"]["containerStatuses"] = json!(statuses);
        self.write_pod("kubelet", "patch", "status", name);
    }

    /// The kubelet reports a container as not ready.
    pub(crate) fn unready_container(&mut self, name: &str, place: usize) {
        let pod = self.pods.get_mut(name).expect("a pod");
        pod["status"]["containerStatuses"][place]["ready"] = json!(false);
        self.write_pod("kubelet", "patch", "status", name);
    }

    /// The operator changes the image of another container.
    pub(crate) fn change_container(&mut self, name: &str, place: usize, revision: &str) {
        let pod = self.pods.get_mut(name).expect("a pod");
        pod["spec"]["containers"][place]["image"] = json!(format!("image-{revision}"));
        self.write_pod(OPERATOR, "patch", "", name);
    }

    /// The operator changes a pod to a revision, and changes the images of two containers at once.
    pub(crate) fn change_all(&mut self, name: &str, revision: &str) {
        let pod = self.pods.get_mut(name).expect("a pod");
        pod["spec"]["containers"][1]["image"] = json!(format!("image-{revision}"));
        self.change(name, revision);
    }

    /// The operator changes a pod to a revision.
    pub(crate) fn change(&mut self, name: &str, revision: &str) {
        let pod = self.pods.get_mut(name).expect("a pod");
        pod["metadata"]["labels"][names::REVISION] = json!(revision);
        pod["spec"]["containers"][0]["image"] = json!(format!("image-{revision}"));
        self.write_pod(OPERATOR, "patch", "", name);
    }

    /// The operator hot patches a pod.
    pub(crate) fn hot_patch(&mut self, name: &str, revision: &str) {
        let pod = self.pods.get_mut(name).expect("a pod");
        pod["metadata"]["annotations"] = json!({names::HOT_PATCH: "true"});
        self.change(name, revision);
    }

    /// The operator deletes a pod.
    pub(crate) fn delete(&mut self, name: &str) {
        self.delete_by(OPERATOR, name);
    }

    /// A user deletes a pod.
    pub(crate) fn delete_by(&mut self, user: &str, name: &str) {
        let pod = self.pods.get_mut(name).expect("a pod");
        pod["metadata"]["deletionTimestamp"] = json!(self.log.now);
        pod["metadata"]["deletionGracePeriodSeconds"] = json!(30);
        self.write_pod(user, "delete", "", name);
    }

    /// The kubelet has stopped a pod's containers, and deletes it.
    pub(crate) fn end(&mut self, name: &str) {
        let pod = self.pods.get_mut(name).expect("a pod");
        pod["metadata"]["deletionGracePeriodSeconds"] = json!(0);
        self.write_pod("kubelet", "delete", "", name);
    }

    /// The operator creates a HookRun for a pod.
    pub(crate) fn run(&mut self, pod: &str, point: &str, target: &str) {
        self.run_by(OPERATOR, pod, point, target);
    }

    /// A user creates a HookRun for a pod.
    pub(crate) fn run_by(&mut self, user: &str, pod: &str, point: &str, target: &str) {
        let prefix = point.to_lowercase();
        let name = format!("{prefix}-{pod}-{}-test", self.log.version);
        let run = json!({
            "kind": "HookRun",
            "metadata": {
                "name": name, "uid": name,
                "labels": {names::RUN_TYPE[0]: point},
                "ownerReferences": [{"controller": true, "uid": GAME}],
                "annotations": {
                    names::RUN_POD_UID: format!("uid-{pod}"),
                    names::RUN_TARGET: target,
                    names::RUN_WORKLOAD_UID: GAME,
                },
            },
            "status": {"phase": "Running"},
        });
        let run = self.log.write(user, "create", "hookruns", "", &name, run);
        self.runs.insert(format!("{pod}/{point}"), run);
    }

    /// A HookRun ends.
    pub(crate) fn finish(&mut self, pod: &str, point: &str, phase: &str) {
        self.end_run(pod, point, phase, self.log.now);
    }

    fn end_run(&mut self, pod: &str, point: &str, phase: &str, at: Timestamp) {
        let mut run = self.runs[&format!("{pod}/{point}")].clone();
        run["status"] = json!({"phase": phase, "finishedAt": at});
        let name = run["metadata"]["name"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        let run = self
            .log
            .write(OPERATOR, "patch", "hookruns", "status", &name, run);
        self.runs.insert(format!("{pod}/{point}"), run);
    }

    /// A HookRun succeeds, according to a clock that is ahead by this many seconds.
    pub(crate) fn finish_ahead(&mut self, pod: &str, point: &str, seconds: i64) {
        self.wait(seconds);
        let ahead = self.log.now;
        self.wait(-seconds);
        self.end_run(pod, point, "Successful", ahead);
    }

    /// The operator creates a HookRun, which succeeds.
    pub(crate) fn pass(&mut self, pod: &str, point: &str, target: &str) {
        self.run(pod, point, target);
        self.finish(pod, point, "Successful");
    }

    /// The operator deletes a HookRun.
    pub(crate) fn drop_run(&mut self, pod: &str, point: &str) {
        self.drop_run_by(OPERATOR, pod, point);
    }

    /// A user deletes a HookRun.
    pub(crate) fn drop_run_by(&mut self, user: &str, pod: &str, point: &str) {
        let run = self.runs.remove(&format!("{pod}/{point}")).expect("a run");
        let name = run["metadata"]["name"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        let gone = json!({"kind": "Status"});
        self.log.write(user, "delete", "hookruns", "", &name, gone);
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
