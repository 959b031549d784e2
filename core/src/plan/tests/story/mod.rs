//! A simulated cluster for stories, which carries out plans as an API server would.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use serde::Serialize;
use serde_json::{Value, json};

use crate::api::names::{self, HookPoint};
use crate::api::{
    GameDeployment, GameStatefulSet, HookPhase, HookRun, HookTemplate, WorkloadStatus,
};
use crate::plan::*;

mod kubelet;
mod user;
mod view;

pub struct Story<K = GameDeployment> {
    pub object: K,
    pub world: World,
    /// The actions of all plans, in order.
    pub done: Vec<Action>,
    /// Actions that were refused because their pod has changed since it was observed.
    pub refused: Vec<Action>,
    /// Why the API server refuses dry runs.
    pub dry_run_refusal: Option<String>,
    /// How many pods a quota has room for.
    pub quota: Option<usize>,
    /// Why the kubelet rejects new pods.
    pub rejection: Option<String>,
    /// Whether the kubelets act after each reconcile: new and changed pods start and become ready.
    pub kubelets_run: bool,
    /// The budget that guards pods.
    pub budget: Option<Value>,
    /// The PodDisruptionBudgets of other clients.
    pub other_budgets: Vec<OtherBudget>,
    /// Whether the chart's policies are in force.
    pub has_policies: bool,
    /// Whether deleted pods stay Terminating until [`Story::end_terminating`].
    pub slow_to_end: bool,
    clock: u64,
    /// The positions at which pods were last found, by uid. Worlds may be large.
    positions: HashMap<String, usize>,
    /// Names of pods and HookRuns when the plan was made, and of those that it created.
    taken: HashSet<String>,
}

/// A GameDeployment `game` with this number of pods, and a spec merged in.
pub fn story(replicas: i32, spec: Value) -> Story {
    begin(replicas, spec)
}

/// A GameStatefulSet `game` with this number of pods, and a spec merged in.
pub fn set(replicas: i32, spec: Value) -> Story<GameStatefulSet> {
    begin(replicas, spec)
}

fn begin<K: Planned + Serialize>(replicas: i32, spec: Value) -> Story<K> {
    let mut manifest = json!({
        "apiVersion": "tkex.tencent.com/v1alpha1", "kind": K::KIND.as_str(),
        "metadata": {"name": "game", "namespace": "default", "uid": "uid-game", "generation": 1, "resourceVersion": "1"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "game"}},
            "template": {
                "metadata": {"labels": {"app": "game"}},
                "spec": {"containers": [{"name": "game", "image": "game:v1"}]},
            },
        },
    });
    merge(&mut manifest["spec"], spec);
    let world = World {
        priority_class: None,
        now: "2026-01-01T00:00:00Z".parse().expect("time"),
        pods: Vec::new(),
        runs: Vec::new(),
        revisions: Vec::new(),
        templates: BTreeMap::new(),
        unreadable_templates: BTreeSet::new(),
        node_costs: BTreeMap::new(),
        lost_nodes: BTreeMap::new(),
        old_kubelets: BTreeMap::new(),
        going_nodes: BTreeMap::new(),
        claims: BTreeMap::new(),
        sidecars: Vec::new(),
        verdicts: BTreeMap::new(),
        taken: BTreeSet::new(),
        failures: Failures::default(),
        backoff: None,
        guard: None,
    };
    let mut story = Story {
        object: serde_json::from_value(manifest).expect("manifest"),
        world,
        done: Vec::new(),
        refused: Vec::new(),
        dry_run_refusal: None,
        quota: None,
        rejection: None,
        kubelets_run: true,
        budget: None,
        other_budgets: Vec::new(),
        has_policies: true,
        slow_to_end: false,
        clock: 100,
        positions: HashMap::new(),
        taken: HashSet::new(),
    };
    story.template("test");
    story
}

pub fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                if value.is_null() {
                    into.remove(&key);
                } else {
                    merge(into.entry(key).or_insert(Value::Null), value);
                }
            }
        }
        (into, from) => *into = from,
    }
}

impl<K: Planned + Serialize> Story<K> {
    pub fn plan(&self) -> Plan<K::Status> {
        self.object.plan(&self.world).expect("plan")
    }

    /// Makes a plan and carries it out. Returns whether anything changed.
    pub fn reconcile(&mut self) -> bool {
        let plan = self.plan();
        let (before, after): (Vec<_>, Vec<_>) = plan
            .actions
            .into_iter()
            .partition(|action| action.phase() == Phase::Before);
        let mut changed = !before.is_empty() || !after.is_empty() || plan.status.is_some();
        self.taken = self.names().into_iter().chain(self.runs()).collect();
        before.into_iter().for_each(|action| self.carry_out(action));
        if let Some(status) = plan.status {
            *self.object.status_mut() = Some(status);
        }
        let deletes = |it: &Action| matches!(it, Action::DeletePod(_) | Action::ForceDeletePod(_));
        let leaves_garbage = after.iter().any(deletes);
        let backs_off = after.iter().any(|action| match action {
            Action::DeletePod(it) => it.reason == DeletionReason::EndedAtOnce,
            _ => false,
        });
        if backs_off {
            self.world.backoff = Some(Backoff::after(self.world.backoff, self.world.now));
        }
        after.into_iter().for_each(|action| self.carry_out(action));
        if leaves_garbage {
            self.collect_garbage();
        }
        if self.kubelets_run {
            changed |= self.kubelet_follows();
        }
        changed
    }

    /// Makes and carries out plans until nothing changes.
    pub fn settle(&mut self) -> &mut Self {
        for _ in 0..500 {
            if !self.reconcile() {
                return self;
            }
        }
        panic!("never settles: {:#?}", self.plan());
    }

    /// Ends Terminating pods, and collects the garbage.
    pub fn end_terminating(&mut self) -> &mut Self {
        self.world.pods.retain(|pod| !pod.terminating);
        self.collect_garbage();
        self
    }

    fn collect_garbage(&mut self) {
        let pods: BTreeSet<String> = self.pods().iter().map(|pod| pod.uid.clone()).collect();
        let is_there = |owner: &ClaimOwner| owner.kind != "Pod" || pods.contains(&owner.uid);
        self.world
            .claims
            .retain(|_, claim| claim.owners.is_empty() || claim.owners.iter().any(is_there));
    }

    /// The message with which a full quota refuses an additional pod.
    fn quota_refusal(&self) -> Option<String> {
        let pods = self.world.pods.len();
        let quota = self.quota.filter(|quota| pods >= *quota)?;
        Some(format!(
            "exceeded quota: q, requested: pods=1, used: pods={pods}, limited: pods={quota}"
        ))
    }

    fn record_verdict(&mut self, revision: String, refusal: Option<String>) {
        let verdict = match refusal {
            Some(message) => Verdict::Refused {
                message,
                at: self.world.now,
            },
            None => Verdict::Accepted,
        };
        self.world.verdicts.insert(revision, verdict);
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    fn pod(&mut self, pod: &PodRef) -> Option<&mut Pod> {
        let position = self.position(&pod.uid)?;
        let found = Arc::make_mut(&mut self.world.pods[position]);
        found.resource_version = self.clock;
        (found.name == pod.name).then_some(found)
    }

    /// The position of a pod, searched backwards from its last position, because pods are only added at the end.
    fn position(&mut self, uid: &str) -> Option<usize> {
        let pods = &self.world.pods;
        let last = pods.len().checked_sub(1)?;
        let before = self.positions.get(uid);
        let before = before.map_or(last, |before| *before.min(&last));
        let mut positions = (0..=before).rev().chain(before..pods.len());
        let position = positions.find(|position| pods[*position].uid == uid)?;
        self.positions.insert(uid.to_owned(), position);
        Some(position)
    }

    fn is_unchanged(&mut self, pod: &PodRef) -> bool {
        let position = self.position(&pod.uid);
        let found = position.map(|position| self.world.pods[position].resource_version);
        found.is_some_and(|found| pod.version.is_none_or(|seen| seen == found))
    }

    pub fn carry_out(&mut self, action: Action) {
        self.done.push(action.clone());
        let (now, tick) = (self.world.now, self.tick());
        if action.pod().is_some_and(|pod| !self.is_unchanged(pod)) {
            self.refused.push(action);
            return;
        }
        match action {
            Action::PatchWorkload(patch) => self.patch_workload(patch),
            Action::CreateRevision(NewRevision {
                name,
                number,
                template,
                ..
            }) => {
                let uid = format!("uid-{name}");
                let revision = Revision {
                    name,
                    uid,
                    number,
                    template,
                    controlled: true,
                };
                self.world.revisions.push(Arc::new(revision));
            }
            Action::RenumberRevision { name, number } => {
                let revision = self
                    .world
                    .revisions
                    .iter_mut()
                    .find(|it| it.name == name)
                    .expect("revision");
                Arc::make_mut(revision).number = number;
            }
            Action::DeleteRevision { name, .. } => {
                self.world.revisions.retain(|it| it.name != name)
            }
            Action::AdoptRevision { name, .. } => {
                let revisions = self.world.revisions.iter_mut();
                for revision in revisions.filter(|it| it.name == name) {
                    Arc::make_mut(revision).controlled = true;
                }
            }
            Action::AdoptPod(pod) => {
                self.pod(&pod).expect("pod").controller = Some("uid-game".to_owned())
            }
            Action::ReleasePod(pod) => self.pod(&pod).expect("pod").controller = None,
            Action::DryRun { revision, .. } => {
                let refusal = self
                    .quota_refusal()
                    .or_else(|| self.dry_run_refusal.clone());
                self.record_verdict(revision, refusal);
            }
            Action::CreatePod(new) => {
                let refusal = self.quota_refusal();
                self.record_verdict(new.revision.clone(), refusal.clone());
                let World { failures, pods, .. } = &mut self.world;
                match refusal {
                    Some(message) => failures.record(Attempt::CreatePod, message),
                    None => {
                        let is_new = self.taken.insert(new.name.clone());
                        assert!(is_new, "{} exists already", new.name);
                        failures.retain(|attempt| attempt != Attempt::CreatePod);
                        pods.push(Arc::new(created_pod(&new, now, tick)));
                    }
                }
            }
            Action::DeletePod(deletion) if self.slow_to_end => {
                self.pod(&deletion.pod).expect("pod").terminating = true;
            }
            Action::DeletePod(Deletion { pod, .. }) | Action::ForceDeletePod(pod) => {
                let position = self.position(&pod.uid).expect("pod");
                self.world.pods.remove(position);
            }
            Action::LabelPod { pod, labels } => {
                self.pod(&pod).expect("pod").labels.extend(labels);
            }
            Action::GuardPod { pod, label, .. } => {
                let labels = &mut self.pod(&pod).expect("pod").labels;
                let key = names::GUARDED_LABEL.to_owned();
                match label {
                    Some(label) => labels.insert(key, label),
                    None => labels.remove(&key),
                };
            }
            Action::CreateClaim(new) => self.create_claim(&new, tick),
            Action::OwnClaim(change) => self.own_claim(change),
            Action::RequestMove { pod, requested } => {
                let pod = self.pod(&pod).expect("pod");
                pod.move_requested = requested.then_some(MoveRequest::NodeGoing);
            }
            Action::MarkDeleting { pod, since } => {
                let pod = self.pod(&pod).expect("pod");
                (pod.marked_deleting, pod.waiting_since) = (true, since);
            }
            Action::UnmarkDeleting(pod) => {
                let pod = self.pod(&pod).expect("pod");
                (pod.marked_deleting, pod.waiting_since) = (false, None);
            }
            Action::CreateHookRun(run) => self.create_run(*run, tick),
            Action::DeleteHookRun { uid, .. } => {
                self.world
                    .runs
                    .retain(|run| run.metadata.uid.as_ref() != Some(&uid));
            }
            Action::CloseGate { pod, .. } => {
                let pod = self.pod(&pod).expect("pod");
                pod.gate = Gate::Closed(Timestamp::from_second(now.as_second()).expect("time"));
                pod.ready_since = None;
            }
            Action::OpenGate(pod) => self.pod(&pod).expect("pod").gate = Gate::Open,
            Action::PatchInPlace(patch) => self.patch_pod(patch),
            Action::ResizePod { pod, resources } => {
                let pod = self.pod(&pod).expect("pod");
                for (name, wanted) in resources {
                    let container = pod
                        .containers
                        .iter_mut()
                        .find(|it| it.name == name)
                        .expect("container");
                    container.resources = wanted.to_string().into();
                }
            }
            Action::FinishInPlace { pod, record } => {
                self.pod(&pod).expect("pod").record = Some(Arc::new(record));
            }
            Action::ApplyBudget(budget) => {
                self.budget = Some(budget.budget);
                self.world.guard = Some(self.probed());
            }
            Action::ProbeGuard { .. } => {
                let was_open = matches!(self.world.guard, Some(GuardState::NotInForce { .. }));
                let found = self.probed();
                let regained = was_open && matches!(found, GuardState::InForce { .. });
                self.world.guard = (!regained).then_some(found);
            }
            Action::DeleteBudget { .. } => {
                self.budget = None;
                self.world.guard = Some(GuardState::NoBudget);
            }
        }
    }

    fn patch_workload(&mut self, patch: WorkloadPatch) {
        let mut change = json!({});
        if let Some(paused) = patch.paused {
            change["updateStrategy"]["paused"] = json!(paused);
        }
        for point in patch.retry_off {
            let field = match point {
                HookPoint::PreDelete => "preDeleteUpdateStrategy",
                HookPoint::PreInplace => "preInplaceUpdateStrategy",
                _ => "postInplaceUpdateStrategy",
            };
            change[field]["retry"] = json!(false);
        }
        if let Some(names) = patch.pods_to_delete {
            change["scaleStrategy"]["podsToDelete"] = json!(names);
        }
        self.user(change);
        if let Some(finalizers) = patch.finalizers {
            self.object.meta_mut().finalizers = Some(finalizers);
        }
        let annotations = self.object.annotations_mut();
        for (key, value) in patch.annotations {
            match value {
                Some(value) => annotations.insert(key, value),
                None => annotations.remove(&key),
            };
        }
    }

    /// The API server's response to a dry run that deletes the budget.
    fn probed(&self) -> GuardState {
        let at = self.world.now;
        match (&self.budget, self.has_policies) {
            (None, _) => GuardState::NoBudget,
            (Some(_), true) => GuardState::InForce {
                at,
                others: self.other_budgets.clone(),
            },
            (Some(_), false) => {
                let message = "no policy".to_owned();
                GuardState::not_in_force(self.world.guard.as_ref(), message, at)
            }
        }
    }

    fn create_claim(&mut self, new: &NewClaim, tick: u64) {
        let claim = Claim {
            namespace: "default".to_owned(),
            name: new.name.clone(),
            uid: format!("uid-{}-{tick}", new.name),
            resource_version: tick,
            terminating: false,
            owners: new.claim["metadata"]["ownerReferences"]
                .as_array()
                .into_iter()
                .flatten()
                .map(claim_owner)
                .collect(),
        };
        let old = self.world.claims.insert(new.name.clone(), Arc::new(claim));
        assert!(old.is_none(), "claim exists already");
    }

    fn own_claim(&mut self, change: ClaimOwnership) {
        let claim = self.world.claims.get_mut(&change.name).expect("claim");
        let claim = Arc::make_mut(claim);
        assert_eq!(claim.uid, change.uid);
        claim
            .owners
            .retain(|owner| !change.remove.contains(&owner.uid));
        claim.owners.extend(change.add.iter().map(claim_owner));
    }

    fn create_run(&mut self, mut run: HookRun, tick: u64) {
        let name = run.metadata.name.clone().expect("name");
        assert!(self.taken.insert(name), "HookRun exists already");
        run.metadata.uid = Some(format!("uid-run-{tick}"));
        run.metadata.creation_timestamp = Some(Time(self.world.now));
        self.world.runs.push(Arc::new(run));
    }

    fn patch_pod(&mut self, patch: InPlacePatch) {
        let pod = self.pod(&patch.pod).expect("pod");
        assert_eq!(pod.revision().as_str(), patch.from_revision);
        for (key, mark) in &patch.tokens {
            let set = key.strip_prefix(names::SIDECARS_PREFIX).expect("a mark");
            assert_eq!(pod.sidecars[set].text(), *mark);
        }
        for image in &patch.images {
            let container = pod
                .containers
                .iter_mut()
                .find(|it| it.name == image.name)
                .expect("container");
            container.image = image.to.clone();
        }
        if !patch.images.is_empty() {
            pod.generation += 1;
        }
        for (key, value) in patch.labels {
            match value {
                Some(value) => pod.labels.insert(key, value),
                None => pod.labels.remove(&key),
            };
        }
        for (key, value) in patch.annotations {
            match key.as_str() {
                names::DELETING_ANNOTATION => pod.marked_deleting = value.is_some(),
                names::WAITING_SINCE_ANNOTATION => pod.waiting_since = None,
                names::HOT_PATCH_ANNOTATION => pod.hot_patched = value.is_some(),
                names::BCS_IN_PLACE_GRACE => pod.postponed = None,
                _ => {
                    let mark = value.map(|value| BTreeMap::from([(key, value)]));
                    pod.sidecars
                        .extend(mark.iter().flat_map(crate::plan::sidecar_marks));
                }
            }
        }
        pod.record = Some(Arc::new(patch.record));
    }
}

fn claim_owner(reference: &Value) -> ClaimOwner {
    let text = |field: &str| reference[field].as_str().expect("text").to_owned();
    ClaimOwner {
        kind: text("kind"),
        name: text("name"),
        uid: text("uid"),
        controller: reference["controller"] == true,
    }
}

fn created_pod(new: &NewPod, now: Timestamp, tick: u64) -> Pod {
    let labels: BTreeMap<String, String> =
        serde_json::from_value(new.pod["metadata"]["labels"].clone()).expect("labels");
    let items = |list: &str| {
        new.pod["spec"][list]
            .as_array()
            .cloned()
            .unwrap_or_default()
    };
    let lists = [("containers", false), ("initContainers", true)].into_iter();
    let containers = lists.flat_map(|(list, init)| {
        let containers = items(list).into_iter().enumerate();
        containers.map(move |(index, it)| (index, init, it))
    });
    let containers = containers.map(|(index, init, it)| Container {
        name: it["name"].as_str().expect("name").to_owned(),
        index,
        init,
        image: it["image"].as_str().expect("image").to_owned(),
        resources: it["resources"].to_string().into(),
        status: Some(ContainerStatus {
            image: it["image"].as_str().expect("image").to_owned(),
            image_id: String::new(),
            container_id: format!("container-{tick}-{index}"),
            restart_count: 0,
            ready: false,
            running: false,
            started_at: None,
            resources_applied: true,
        }),
    });
    Pod {
        namespace: "default".to_owned(),
        name: new.name.clone(),
        uid: format!("uid-{}-{tick}", new.name),
        resource_version: tick,
        generation: 1,
        created: now,
        terminating: false,
        labels,
        controller: Some("uid-game".to_owned()),
        deletion_cost: 0,
        annotated: true,
        marked_deleting: false,
        waiting_since: None,
        move_requested: None,
        released: false,
        disruption: None,
        hot_patched: false,
        index: new.pod["metadata"]["annotations"][names::INDEX_ID]
            .as_str()
            .map(|index| index.parse().expect("an index")),
        sidecars: serde_json::from_value(new.pod["metadata"]["annotations"].clone()).map_or_else(
            |_| BTreeMap::new(),
            |annotations| sidecar_marks(&annotations),
        ),
        record: None,
        postponed: None,
        node: Some("node".to_owned()),
        phase: PodPhase::Pending,
        ended_at_once: None,
        ready_since: None,
        gate: if new.pod["spec"]["readinessGates"].is_array() {
            Gate::Unset
        } else {
            Gate::None
        },
        pod_ip: Some("127.9.0.1".to_owned()),
        host_ip: Some("127.0.0.1".to_owned()),
        observed_generation: 1,
        containers: containers.collect(),
        resize: Resize::Settled,
        first_status: None,
    }
}
