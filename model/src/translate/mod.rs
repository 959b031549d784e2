//! Translates between the model's small numbers and the real objects of the planner.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;
use std::sync::Arc;

use gamekeeper_core::api::names::{self, WorkloadKind};
use gamekeeper_core::api::{
    CanaryStrategy, GameDeployment, GameDeploymentStatus, HookTemplate, PodManagementPolicy,
};
use gamekeeper_core::workload;
use gamekeeper_core::write;
use serde_json::{Value, json};

use self::naming::*;
pub use self::naming::{
    clock, container_index, image_in, parse_uid, rev_of_image, time_of, wake_time,
};
pub use self::objects::{DEADLINE, FULL_QUOTA_OF_PODS, PRIORITY_CLASS};
pub use self::settings::as_stateful_set;
use super::scope::{Quota, Scope};
use super::sidecars::Sets;
use super::state::*;

mod naming;
mod objects;
mod settings;
mod writes;

/// The constant objects of a scope, and the tables of strings and statuses.
pub struct Translator {
    /// The podManagementPolicy of a GameStatefulSet; None for a GameDeployment.
    stateful_set: Option<PodManagementPolicy>,
    moves_off_nodes: bool,
    quota: Option<Quota>,
    base: GameDeployment,
    step_lists: Vec<Value>,
    templates: Vec<Value>,
    revisions: Vec<String>,
    hook_template: Arc<HookTemplate>,
    texts: RefCell<Table<String>>,
    statuses: RefCell<Table<GameDeploymentStatus>>,
    pub sets: Sets,
}

/// Values by index. Index 0 is the empty value.
struct Table<T> {
    indices: HashMap<String, u16>,
    values: Vec<T>,
}

impl<T: Default + Clone> Table<T> {
    fn new(empty: String) -> Self {
        Self { indices: HashMap::from([(empty, 0)]), values: vec![T::default()] }
    }

    fn index(&mut self, key: String, value: T) -> u16 {
        let next = u16::try_from(self.values.len()).expect("the table is small");
        let index = *self.indices.entry(key).or_insert(next);
        if index == next {
            self.values.push(value);
        }
        index
    }
}

/// The fields of a status on which decisions depend.
fn decisive(status: &GameDeploymentStatus) -> GameDeploymentStatus {
    GameDeploymentStatus {
        update_revision: status.update_revision.clone(),
        collision_count: status.collision_count,
        current_step_index: status.current_step_index,
        current_step_hash: status.current_step_hash.clone(),
        canary: status.canary.clone(),
        pause_conditions: status.pause_conditions.clone(),
        creating_in_batches: status.creating_in_batches,
        surge_replicas: status.surge_replicas,
        ..GameDeploymentStatus::default()
    }
}

impl Translator {
    pub fn new(scope: &Scope) -> Self {
        let templates: Vec<Value> =
            (0..scope.templates).map(|rev| settings::template(scope, rev)).collect();
        let empty_status = GameDeploymentStatus::default();
        let empty_status = serde_json::to_string(&empty_status).expect("JSON");
        let mut translator = Self {
            stateful_set: scope.stateful_set,
            moves_off_nodes: scope.moves_off_nodes,
            quota: scope.quota,
            base: settings::base(scope),
            step_lists: scope.steps.iter().map(|steps| settings::step_list(steps)).collect(),
            templates,
            revisions: Vec::new(),
            hook_template: Arc::new(
                serde_json::from_value(json!({
                    "metadata": {"name": TEMPLATE},
                    "spec": {"metrics": [
                        {"name": "check", "provider": {"web": {"url": "http://127.0.0.1"}}},
                    ]},
                }))
                .expect("a HookTemplate"),
            ),
            texts: RefCell::new(Table::new(String::new())),
            statuses: RefCell::new(Table::new(empty_status)),
            sets: Sets::new(scope),
        };
        let names = (0..scope.templates).map(|rev| translator.name_of(rev));
        translator.revisions = names.collect();
        translator
    }

    fn kind(&self) -> WorkloadKind {
        match self.stateful_set {
            Some(_) => WorkloadKind::GameStatefulSet,
            None => WorkloadKind::GameDeployment,
        }
    }

    /// The name that the planner gives to a revision.
    fn name_of(&self, rev: Rev) -> String {
        let mut gd = self.base.clone();
        gd.spec.template = self.templates[usize::from(rev)].clone().into();
        let plan = workload::game_deployment::plan(&gd, &self.bare_world(0)).expect("a plan");
        let name = plan.writes.iter().find_map(|it| match it.change() {
            write::Change::CreateRevision(revision) => Some(revision.name.clone()),
            _ => None,
        });
        name.expect("a revision is created first")
    }

    /// A world that contains only the HookTemplate.
    fn bare_world(&self, now: Time) -> workload::World {
        workload::World {
            now: clock(now),
            pods: Vec::new(),
            runs: Vec::new(),
            revisions: Vec::new(),
            templates: BTreeMap::from([(TEMPLATE.to_owned(), self.hook_template.clone())]),
            unreadable_templates: BTreeSet::new(),
            node_costs: BTreeMap::new(),
            lost_nodes: BTreeMap::new(),
            priority_class: None,
            guards_pods: true,
            old_kubelets: BTreeMap::new(),
            claims: BTreeMap::new(),
            sidecars: Vec::new(),
            unreadable_sidecars: Vec::new(),
            memory: workload::Memory::default(),
            going_nodes: BTreeMap::new(),
        }
    }

    pub fn revision_name(&self, rev: Rev) -> &str {
        &self.revisions[usize::from(rev)]
    }

    /// The revision with this name; None if the name is empty.
    pub fn revision_of(&self, name: &str) -> Option<Rev> {
        if name.is_empty() {
            return None;
        }
        let index = self.revisions.iter().position(|it| it == name);
        Some(index.expect("a revision of the model") as Rev)
    }

    pub fn status_value(&self, status: Status) -> GameDeploymentStatus {
        self.statuses.borrow().values[usize::from(status)].clone()
    }

    pub fn status_id(&self, status: &GameDeploymentStatus) -> Status {
        let status = decisive(status);
        let key = serde_json::to_string(&status).expect("JSON");
        self.statuses.borrow_mut().index(key, status)
    }

    /// The fields of a status that the rules need.
    pub fn facts(&self, status: Status) -> Facts {
        let table = self.statuses.borrow();
        let status = &table.values[usize::from(status)];
        let number = |number: i32| u8::try_from(number).expect("a small number");
        Facts {
            update: self.revision_of(&status.update_revision),
            stable: self.revision_of(&status.canary.revision),
            index: status.current_step_index.map(number),
            steps: status.current_step_hash.as_deref().map(|it| self.text_id(it)),
            held: status.canary.held_replicas.map(number),
            surge: number(status.surge_replicas),
        }
    }

    fn text_id(&self, text: &str) -> Text {
        self.texts.borrow_mut().index(text.to_owned(), text.to_owned())
    }

    /// The annotation for a full promotion of a template with a step list.
    pub fn promotion(&self, rev: Rev, steps: u8) -> Text {
        let steps = json!({"steps": self.step_lists[usize::from(steps)]});
        let canary: CanaryStrategy = serde_json::from_value(steps).expect("steps");
        let steps = serde_json::to_vec(&canary.steps).expect("JSON");
        let annotation = workload::Promotion {
            revision: self.revision_name(rev).to_owned(),
            step_hash: names::safe_hash(&steps),
        };
        self.text_id(&serde_json::to_string(&annotation).expect("JSON"))
    }

    /// The string with this index.
    pub fn text(&self, text: Text) -> String {
        self.texts.borrow().values[usize::from(text)].clone()
    }
}

/// The fields of a status that the rules need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    pub update: Option<Rev>,
    pub stable: Option<Rev>,
    pub index: Option<u8>,
    /// Hash of the step list.
    pub steps: Option<Text>,
    pub held: Option<u8>,
    /// Surge pods.
    pub surge: u8,
}

impl Facts {
    /// Whether a rollout is in progress.
    pub fn is_rolling(&self) -> bool {
        self.stable.is_some() && self.stable != self.update
    }

    /// Whether both statuses belong to the same rollout.
    pub fn is_same_rollout(&self, other: &Facts) -> bool {
        self.is_rolling()
            && other.is_rolling()
            && (self.update, self.steps) == (other.update, other.steps)
    }
}

/// What the operator's caches show.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct View {
    pub now: Time,
    pub workload: Rc<Workload>,
    pub pods: Rc<Vec<Pod>>,
    pub runs: Rc<Vec<Run>>,
    pub revisions: Rc<Vec<Rev>>,
    pub sidecar_set: SidecarSet,
    pub accepted: u8,
    pub refused: Option<Refused>,
    pub budget: Option<bool>,
    pub denied: Denied,
    pub node: Node,
}
