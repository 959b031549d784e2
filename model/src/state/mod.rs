//! A state of the model: the objects in the API server, what the operator has observed of them, and what the
//! operator is doing.
//!
//! Everything is a small number. Times are in tens of seconds, a template (and its revision) is its index in
//! the scope's list, and uids grow with each new pod. Real objects are created only for the planner (`translate`).

use std::rc::Rc;

use gamekeeper_core::api::names::HookPoint;
use gamekeeper_core::api::{HookPhase, UpdateStrategyType};

use crate::scope::Scope;

mod cache;
mod pod;
mod reconcile;
mod sidecars;

pub use self::cache::{Kind, Seen};
pub use self::pod::{Closing, Container, Each, Gate, Origin, Pod, Record, Requester, Turn};
pub use self::reconcile::*;
pub use self::sidecars::*;

/// A time, in tens of seconds since the start.
pub type Time = u8;
/// A pod's uid. A younger pod has a higher one.
pub type Uid = u8;
/// A pod's name.
pub type Name = u8;
/// A template and its revision.
pub type Rev = u8;
/// The value of an annotation, as an index into the table of strings.
pub type Text = u16;
/// The part of a status on which decisions depend, as an index into the table of statuses.
pub type Status = u16;

/// A state of the model.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub clock: Time,
    pub workload: Kind<Workload>,
    pub pods: Kind<Vec<Pod>>,
    pub runs: Kind<Vec<Run>>,
    /// Revisions, by number.
    pub revisions: Kind<Vec<Rev>>,
    /// The SidecarSet. Both planners observe it through one cache.
    pub sidecar_set: Kind<SidecarSet>,
    pub allotter: Allotter,
    /// The PodDisruptionBudget of guarded pods. The operator does not watch it.
    pub budget: Option<Budget>,
    pub node: Node,
    /// Whether a policy of the cluster refuses the operator's deletions of pods.
    pub denied: bool,
    pub operator: Operator,
    pub remaining: Remaining,
    pub memory: Memory,
}

/// The PodDisruptionBudget of guarded pods, which selects them by their label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Budget {
    /// maxUnavailable; None if the budget instead has a minAvailable that no number of pods reaches.
    pub max_unavailable: Option<u8>,
    /// Whether pods that are not ready may always be evicted.
    pub unready_evictable: bool,
}

/// The state of the node on which the first pods run. All other pods run on nodes to which nothing happens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Node {
    #[default]
    Fine,
    Cordoned,
    /// It has the taint that an autoscaler sets on a node before it removes the node.
    Going,
    /// It has a taint that the pods tolerate.
    Tolerated,
    /// Its kubelet has not responded, but for less time than the pods tolerate.
    Silent,
    /// Its kubelet has not responded for longer than the pods tolerate.
    Lost,
}

impl Node {
    /// Whether the node counts as about to be removed, so that pods should leave it.
    pub fn is_going(self) -> bool {
        matches!(self, Node::Cordoned | Node::Going)
    }

    /// Whether its kubelet does not respond.
    pub fn is_silent(self) -> bool {
        matches!(self, Node::Silent | Node::Lost)
    }
}

/// The workload.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Workload {
    pub generation: u8,
    pub replicas: u8,
    pub template: Rev,
    pub paused: bool,
    pub strategy: UpdateStrategyType,
    /// Whether the value of `paused` comes from an apply.
    pub by_apply: bool,
    pub partition: u8,
    /// Version of the pod hooks' arguments.
    pub hook: u8,
    /// Whether the pod hooks are configured.
    pub hooked: bool,
    /// Hook points whose `retry` is true, one bit each.
    pub retry: u8,
    /// Its step list, as an index into the scope's step lists.
    pub steps: u8,
    pub pods_to_delete: Vec<Name>,
    /// reserveOrders, one bit per ordinal.
    pub reserved: u8,
    /// The annotation of the operator's pause; 0 for none.
    pub pause_annotation: Text,
    /// The annotation of a retry; 0 for none.
    pub retry_annotation: Text,
    /// The annotation of a full promotion; 0 for none.
    pub promote_annotation: Text,
    pub status: Status,
    /// status.protection.waiting: the pods that wait for their deletion, and since when.
    pub waits: Vec<(Uid, Time)>,
    pub guard: Guard,
}

/// spec.protection of the workload, its finalizer, and its deletion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Guard {
    /// Whether its pods should be guarded.
    pub wanted: bool,
    pub finalizer: bool,
    pub deletion: Option<Cascade>,
    /// Whether the workload no longer exists.
    pub deleted: bool,
}

impl Guard {
    /// Whether the workload is deleted and nothing keeps it from being removed.
    pub fn is_deletion_complete(self) -> bool {
        let is_collecting = matches!(self.deletion, Some(Cascade::Orphan | Cascade::Foreground));
        let is_kept = self.finalizer || is_collecting;
        self.deletion.is_some() && !is_kept
    }
}

impl Workload {
    /// Whether its new pods should be guarded.
    pub fn is_guarded(&self, scope: &Scope) -> bool {
        self.guard.wanted && self.hooked && scope.pre_delete
    }
}

/// How the workload is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cascade {
    Background,
    /// The workload stays until the garbage collector has deleted its pods.
    Foreground,
    Orphan,
    /// Like `Orphan`, once the garbage collector has finished. From then on, nothing shows how the workload was
    /// deleted.
    Orphaned,
}

impl Workload {
    /// The first ordinals that are not reserved.
    pub fn ordinals(&self, count: i64) -> Vec<Name> {
        let ordinals = (0..).filter(|ordinal| !self.is_reserved(*ordinal));
        ordinals.take(usize::try_from(count).unwrap_or(0)).collect()
    }

    /// Whether an ordinal is reserved.
    pub fn is_reserved(&self, ordinal: Name) -> bool {
        ordinal < 8 && self.reserved & (1 << ordinal) != 0
    }
}

/// The bit of a hook point in [`Workload::retry`].
pub fn retry_bit(point: HookPoint) -> u8 {
    match point {
        HookPoint::PreDelete => 1,
        HookPoint::PreInplace => 2,
        HookPoint::PostInplace => 4,
        HookPoint::Step => 0,
    }
}

/// A HookRun.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Run {
    pub id: RunId,
    pub phase: HookPhase,
    pub finished: Time,
}

/// The identity of a HookRun.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RunId {
    pub point: HookPoint,
    /// The revision in its name.
    pub rev: Rev,
    /// The pod's name, or the step's index.
    pub name: Name,
    /// The pod's uid; None for a step's run.
    pub pod: Option<Uid>,
    /// The target revision of the guarded action; None for a scale-in.
    pub target: Option<Rev>,
    /// The revision of the SidecarSet to which the guarded action updates the pod.
    pub sidecars: Option<Rev>,
    /// The containers that the guarded action changes in place, one bit each; None for any other action.
    pub changes: Option<u8>,
    /// Version of the hook's arguments.
    pub hook: u8,
    /// The workload's generation when the HookRun was created.
    pub generation: u8,
}

impl RunId {
    /// Whether both HookRuns have the same name in the API server.
    pub fn has_same_name(&self, other: &RunId) -> bool {
        (self.point, self.rev, self.name) == (other.point, other.rev, other.name)
    }
}

/// Bounds on what may still happen.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Remaining {
    pub user: u8,
    /// Crashes of the operator's process.
    pub crashes: u8,
    /// Pods that break.
    pub breaks: u8,
    /// Hooks that fail.
    pub failures: u8,
    pub ticks: u8,
}

/// What the checker remembers in order to check later writes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Memory {
    /// The operator's current or last pause.
    pub pause: Option<OwnPause>,
    /// Whether a user set `paused: true`.
    pub user_paused: bool,
    /// spec.replicas when the last partition step was entered.
    pub replicas_at_partition: u8,
    /// The workload's generation at the start of the rollout.
    pub rollout_since: u8,
    /// During a user's pause of a rollout without steps: its template, and how many pods had it when the
    /// operator first observed the pause.
    pub held: Option<(Rev, u8)>,
    /// The status that was lost, until the operator writes another one.
    pub lost: Status,
    /// If the first pods are created in batches: whether all pods have been available at the same time.
    pub all_available: bool,
    /// The ordinals of surge pods, one bit each: pods that were created above replicas. Cleared when the user changes
    /// the number of pods or the reserved ordinals.
    pub surge: u32,
}

/// A pause by the operator.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OwnPause {
    pub template: Rev,
    pub steps: u8,
    pub index: u8,
    pub at: Time,
    /// Whether the user has resumed.
    pub resumed: bool,
    /// Whether a user has changed the rollout since, so the operator may pause at this step again.
    pub outdated: bool,
}

impl State {
    /// The last status, even if it was lost.
    pub fn last_status(&self) -> Status {
        match self.workload.now.status {
            0 => self.memory.lost,
            status => status,
        }
    }

    pub fn pod(&self, uid: Uid) -> Option<&Pod> {
        self.pods.now.iter().find(|pod| pod.uid == uid)
    }
}
