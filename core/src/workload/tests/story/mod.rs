//! A simulated cluster for stories: it makes plans, carries them out ([`api_server`]) and lets kubelets ([`kubelet`])
//! and users ([`user`]) act.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use serde::Serialize;
use serde_json::{Value, json};

use crate::api::names::{self, HookPoint};
use crate::api::{
    ConditionType, GameDeployment, GameStatefulSet, HookPhase, HookRun, HookTemplate,
    WorkloadStatus,
};
use crate::observed::*;
use crate::simulated::carry_out;
use crate::workload::*;
use crate::write::*;

mod api_server;
mod kubelet;
mod user;
mod view;

pub struct Story<K = GameDeployment> {
    pub object: K,
    pub world: World,
    /// The actions of all plans, in order, including those that were refused.
    pub done: Vec<Write>,
    /// Actions that were refused because their pod has changed since it was observed.
    pub refused: Vec<Write>,
    /// Why the API server refuses dry runs.
    pub dry_run_refusal: Option<String>,
    /// The kind of write that the API server refuses.
    pub refuses: Option<Attempt>,
    /// Which change of which pod the API server refuses.
    pub refuses_change: Option<RefusedStep>,
    /// An image with which pods are refused, and why: dry runs of pods that are not created may accept it, or may fail for
    /// another reason.
    pub creation_refusal: Option<(String, String)>,
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
    /// Whether the chart's policy is in force.
    pub has_policy: bool,
    /// Whether deleted pods stay Terminating until [`Story::end_terminating`].
    pub slow_to_end: bool,
    /// Whether a pod was removed since garbage was last collected.
    leaves_garbage: bool,
    clock: u64,
    /// The position at which each pod was last found, by uid, because searching a large world is slow.
    positions: HashMap<String, usize>,
    /// Names of all pods and HookRuns that existed when the plan was made, or that the plan created.
    taken: HashSet<String>,
}

/// A step on the way of a pod that the API server refuses.
#[derive(Clone, Debug)]
pub struct RefusedStep {
    /// The pod's uid.
    pub pod: String,
    pub step: Step,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// The dry runs before it leaves service.
    Rehearsal,
    /// A patch of its containers, when so many patches have been accepted.
    Patch { after: usize },
    /// Its resize.
    Resize,
}

/// A GameDeployment `game` with this number of pods. `spec` is merged into its spec.
pub fn story(replicas: i32, spec: Value) -> Story {
    begin(replicas, spec)
}

/// A GameStatefulSet `game` with this number of pods. `spec` is merged into its spec.
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
        guards_pods: true,
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
        unreadable_sidecars: Vec::new(),
        memory: Memory::default(),
    };
    let mut story = Story {
        object: serde_json::from_value(manifest).expect("manifest"),
        world,
        done: Vec::new(),
        refused: Vec::new(),
        dry_run_refusal: None,
        creation_refusal: None,
        refuses: None,
        refuses_change: None,
        quota: None,
        rejection: None,
        kubelets_run: true,
        budget: None,
        other_budgets: Vec::new(),
        has_policy: true,
        slow_to_end: false,
        leaves_garbage: false,
        clock: 100,
        positions: HashMap::new(),
        taken: HashSet::new(),
    };
    story.template("test");
    story
}

pub fn merge(target: &mut Value, patch: Value) {
    match (target, patch) {
        (Value::Object(target), Value::Object(patch)) => {
            for (key, value) in patch {
                if value.is_null() {
                    target.remove(&key);
                } else {
                    merge(target.entry(key).or_insert(Value::Null), value);
                }
            }
        }
        (target, patch) => *target = patch,
    }
}

/// A workload that is not Ready says why.
fn assert_is_explained(status: &WorkloadStatus) {
    let ready = status.condition(ConditionType::Ready);
    let is_explained = ready.is_none_or(|it| it.status == "True") || !status.causes.is_empty();
    assert!(is_explained, "not Ready, without a cause: {status:#?}");
}

impl<K: Planned + Serialize> Story<K> {
    pub fn plan(&self) -> Plan<K::Status> {
        self.object.plan(&self.world).expect("plan")
    }

    /// Makes a plan and carries it out. Returns whether anything changed.
    pub fn reconcile(&mut self) -> bool {
        let World { memory, revisions, sidecars, .. } = &mut self.world;
        memory.begin_plan(revisions, sidecars);
        let plan = self.plan();
        let World { memory, now, .. } = &mut self.world;
        for until in
            memory.failures.held(*now).filter_map(|it| memory.failures.held_until(it, *now))
        {
            assert!(plan.wake.is_some_and(|wake| wake <= until), "nothing attempts it again");
        }
        if plan.status.is_some() {
            memory.retain_failures(&plan.writes, *now);
        }
        let mut memory = std::mem::take(memory);
        let mut changed = !plan.writes.is_empty() || plan.status.is_some();
        self.taken = self.names().into_iter().chain(self.runs()).collect();
        carry_out(plan, &mut memory, self);
        self.world.memory = memory;
        if std::mem::take(&mut self.leaves_garbage) {
            self.collect_garbage();
        }
        if self.kubelets_run {
            changed |= self.advance_kubelets();
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

    /// Ends Terminating pods, and collects garbage.
    pub fn end_terminating(&mut self) -> &mut Self {
        self.world.pods.retain(|pod| !pod.terminating);
        self.collect_garbage();
        self
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// The pod, with a new resource version, because the caller changes it.
    fn pod(&mut self, pod: &PodRef) -> Option<&mut Pod> {
        let position = self.position(&pod.uid)?;
        let found = Arc::make_mut(&mut self.world.pods[position]);
        found.resource_version = self.clock;
        (found.name == pod.name).then_some(found)
    }

    /// The position of a pod, searched backward from its last position, because pods are only added at the end.
    fn position(&mut self, uid: &str) -> Option<usize> {
        let pods = &self.world.pods;
        let last = pods.len().checked_sub(1)?;
        let known = self.positions.get(uid);
        let start = known.map_or(last, |known| *known.min(&last));
        let mut positions = (0..=start).rev().chain(start..pods.len());
        let position = positions.find(|position| pods[*position].uid == uid)?;
        self.positions.insert(uid.to_owned(), position);
        Some(position)
    }

    fn is_unchanged(&mut self, pod: &PodRef) -> bool {
        let position = self.position(&pod.uid);
        let current = position.map(|position| self.world.pods[position].resource_version);
        current.is_some_and(|current| pod.version.is_none_or(|seen| seen == current))
    }
}
