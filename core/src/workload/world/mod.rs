//! The input of a plan: everything observed at one moment.

mod backoff;
mod guard_state;
mod memory;
mod players;
mod refused_change;
mod verdict;

pub use backoff::Backoff;
pub use guard_state::GuardState;
pub use memory::{Memory, Tally};
pub use players::GuardedPlayers;
pub(super) use players::Player;
pub use refused_change::RefusedChange;
pub use verdict::{Replacement, Verdict};

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use crate::api::{HookRun, HookTemplate, JsonText};
use crate::observed::{Claim, LostNode, OldKubelet, Pod, RevisionName, Taint};
use crate::sidecar_set::{Sidecars, UnreadableSet};

/// Everything observed about one workload at one moment. The workload itself is a separate argument,
/// because its kind decides which planner is used.
#[derive(Clone, Debug)]
pub struct World {
    /// The current time.
    pub now: Timestamp,
    /// Pods that the workload controls, and orphans in its namespace that its selector matches. Of an
    /// orphan, only name, uid, labels, resourceVersion, phase and whether it is Terminating are known.
    pub pods: Vec<Arc<Pod>>,
    /// HookRuns that the workload controls.
    pub runs: Vec<Arc<HookRun>>,
    /// The workload's ControllerRevisions.
    pub revisions: Vec<Arc<Revision>>,
    /// HookTemplates of the namespace by name.
    pub templates: BTreeMap<String, Arc<HookTemplate>>,
    /// Names of HookTemplates of the namespace that cannot be decoded.
    pub unreadable_templates: BTreeSet<String>,
    /// Deletion cost of the nodes that have one.
    pub node_costs: BTreeMap<String, i64>,
    /// Lost nodes that pods are bound to.
    pub lost_nodes: BTreeMap<String, LostNode>,
    /// The kubelets of nodes that pods are bound to, if they cannot make every change in a running pod.
    pub old_kubelets: BTreeMap<String, OldKubelet>,
    /// Nodes that pods are bound to and that are going to be removed, with the taints that announce the removal.
    pub going_nodes: BTreeMap<String, Arc<[Taint]>>,
    /// The workload's claims by name: those that are named after its pods, and those that it owns.
    pub claims: BTreeMap<String, Arc<Claim>>,
    /// The SidecarSets that reach the workload's namespace, sorted by name.
    pub sidecars: Vec<Arc<Sidecars>>,
    /// Those that reach it as well, but cannot be decoded.
    pub unreadable_sidecars: Vec<Arc<UnreadableSet>>,
    /// What the API server said about earlier writes.
    pub memory: Memory,
    /// PriorityClass of new guarded pods whose template specifies none.
    pub priority_class: Option<Arc<str>>,
    /// Whether pods may be guarded. They may not if the chart was installed without the policy that guards them.
    pub guards_pods: bool,
}

/// A ControllerRevision of the workload.
#[derive(Clone, Debug, PartialEq)]
pub struct Revision {
    /// Name: `WORKLOAD-HASH`.
    pub name: String,
    /// Uid.
    pub uid: String,
    /// Increases with each use; the update revision has the highest number.
    pub number: i64,
    /// The pod template.
    pub template: JsonText,
    /// Whether the workload controls the revision; an orphan that the workload's selector matches is adopted.
    pub controlled: bool,
}

impl Revision {
    /// Its name, as a [`RevisionName`].
    pub fn name(&self) -> RevisionName<'_> {
        RevisionName::of(&self.name)
    }
}
