//! A scope: the configuration of the workload, and bounds on what may happen.

use gamekeeper_core::api::names::HookPoint;
use gamekeeper_core::api::{ContainerOrder, PodManagementPolicy, UpdateStrategyType};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::sidecars::{SetChange, SidecarScope};
use super::state::{Cascade, Name, Node, Remaining, Rev, Time};

/// The configuration of the workload, and bounds on what may happen.
#[derive(Clone, Debug)]
pub struct Scope {
    /// The policy of a GameStatefulSet; None for a GameDeployment.
    pub stateful_set: Option<PodManagementPolicy>,
    pub replicas: u8,
    pub strategy: UpdateStrategyType,
    pub max_unavailable: Amount,
    pub max_surge: Amount,
    pub partition: u8,
    /// The number of indexes for pods, starting with index 0; 0 if pods have no indexes.
    pub indexes: u8,
    /// The size of the batches in which the first pods of an empty cluster are created; 0 if the cluster is settled
    /// at the start.
    pub batch: u8,
    pub pre_delete: bool,
    pub pre_inplace: bool,
    pub post_inplace: bool,
    /// Whether pods are initially guarded against other clients.
    pub protected: bool,
    /// Whether the operator moves pods off nodes that are about to be removed.
    pub moves_off_nodes: bool,
    /// The number of pods on the node whose state users may change. These are the first pods.
    pub pods_on_node: u8,
    /// The time between closing the gate and changing the pod.
    pub grace: Time,
    /// The number of containers in a pod.
    pub containers: usize,
    /// The order in which containers get their new images.
    pub order: ContainerOrder,
    /// The images of each template's containers, if they differ from the template's number.
    pub images: Vec<[Rev; 2]>,
    /// Whether the kubelet of the node on which the first pods run restarts containers for a hot patch.
    pub hot_patch_restarts: bool,
    /// How long a pod must be ready to be available.
    pub min_ready: Time,
    /// Step lists between which users may switch. The first one is used at the start.
    pub steps: Vec<Vec<Step>>,
    /// The number of templates.
    pub templates: u8,
    /// A template that the API server refuses.
    pub refused: Option<Rev>,
    /// A template for whose pods a quota has no room, except for one that replaces another.
    pub quota: Option<Quota>,
    /// A template whose pods never become ready.
    pub broken: Option<Rev>,
    /// Whether the image of a second container may be pulled slowly, so that the game already runs while the pod is
    /// still Pending.
    pub late_sidecars: bool,
    /// Whether containers may crash and restart. Each crash counts as one of `remaining.breaks`.
    pub container_crashes: bool,
    /// How far the operator's clock may be ahead when it records the end of a hook; 0 if it is never ahead.
    pub ahead: Time,
    /// The changes that users may make.
    pub user: Vec<User>,
    /// How far each tick advances the clock, in reverse order.
    pub ticks: Vec<Time>,
    pub remaining: Remaining,
    pub lags: Lags,
    /// The SidecarSet, if there is one.
    pub sidecars: Option<SidecarScope>,
}

/// A quota that is full with the pods of another template.
#[derive(Clone, Copy, Debug)]
pub struct Quota {
    /// The template that it refuses.
    pub rev: Rev,
    pub kind: QuotaKind,
}

/// What a quota counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaKind {
    /// Pods.
    Pods,
    /// Pods, and another quota refuses them in any case. The API server names the first quota that is exceeded.
    Second,
    /// An amount of which the template's pods take twice as much as others.
    Twice,
    /// Pods of the template's PriorityClass, which is full with those of other workloads.
    Scoped,
}

impl Quota {
    /// Whether it may have room for a pod that replaces another.
    pub fn may_have_room(self) -> bool {
        matches!(self.kind, QuotaKind::Pods | QuotaKind::Second)
    }

    /// How much of it a pod of this revision takes.
    pub fn amount(self, rev: Rev) -> u8 {
        1 + u8::from(self.kind == QuotaKind::Twice && rev == self.rev)
    }
}

/// Which caches lag.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lags {
    pub workload: bool,
    pub pods: bool,
    pub runs: bool,
    pub revisions: bool,
}

/// A number, or a percentage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    Number(u8),
    Percent(u8),
}

/// A canary step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Partition(Amount),
    /// With or without a duration.
    Pause(Option<Time>),
    Hook,
}

/// A change by a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum User {
    Scale(u8),
    Template(Rev),
    Pause,
    Resume,
    /// A full promotion.
    Promote,
    /// An apply of a manifest with `paused: false`.
    Apply,
    Retry(HookPoint),
    /// The pod hooks get other arguments.
    Hook(u8),
    /// The pod hooks are removed.
    Unhook,
    Partition(u8),
    Steps(u8),
    /// Adds this pod to podsToDelete.
    PodToDelete(Name),
    /// Adds this ordinal to reserveOrders.
    Reserve(Name),
    /// Removes this ordinal from reserveOrders.
    Unreserve(Name),
    /// Pods are updated in another way.
    Strategy(UpdateStrategyType),
    /// spec.protection is switched on or off.
    Guard(bool),
    /// kubectl delete of the workload.
    DeleteWorkload(Cascade),
    /// kubectl game move.
    Move(Name),
    /// A user or a hook changes the annotation game-pod-deleting of a pod.
    Mark(Name, bool),
    /// A user or a backup changes the annotation that shows since when a pod has waited.
    Since(Name, Option<Time>),
    /// kubectl delete pod. The policy refuses it for guarded pods.
    Delete(Name),
    /// An eviction, which the policy does not see. The budget refuses it for guarded pods.
    Evict(Name),
    /// kubectl game release pod/NAME.
    Release(Name),
    /// The node of the first pods gets another state.
    Node(Node),
    /// A policy of the cluster begins or ceases to refuse the operator's deletions of pods.
    Deny(bool),
    /// The workload is deleted with `--cascade=orphan` and applied again: its status and the operator's
    /// annotations are lost.
    Recreate,
    /// The SidecarSet is changed.
    Sidecars(SetChange),
}

impl Amount {
    pub fn resolve(self, total: i64, round_up: bool) -> i64 {
        match self {
            Amount::Number(number) => i64::from(number),
            Amount::Percent(percent) if round_up => (i64::from(percent) * total + 99) / 100,
            Amount::Percent(percent) => i64::from(percent) * total / 100,
        }
    }

    pub fn to_int_or_string(self) -> IntOrString {
        match self {
            Amount::Number(number) => IntOrString::Int(i32::from(number)),
            Amount::Percent(percent) => IntOrString::String(format!("{percent}%")),
        }
    }

    /// How many of these replicas a partition of this size keeps at the old revision.
    pub fn kept(self, replicas: i64) -> i64 {
        let kept = self.resolve(replicas, true).min(replicas);
        match self {
            Amount::Percent(percent) if percent < 100 => kept.min((replicas - 1).max(0)),
            _ => kept,
        }
    }
}

impl Default for Scope {
    fn default() -> Self {
        Self {
            stateful_set: None,
            replicas: 3,
            strategy: UpdateStrategyType::RollingUpdate,
            max_unavailable: Amount::Number(1),
            max_surge: Amount::Number(0),
            partition: 0,
            indexes: 0,
            batch: 0,
            pre_delete: false,
            pre_inplace: false,
            post_inplace: false,
            protected: false,
            moves_off_nodes: false,
            pods_on_node: 0,
            grace: 0,
            containers: 1,
            order: ContainerOrder::DisOrdered,
            images: Vec::new(),
            hot_patch_restarts: false,
            min_ready: 0,
            steps: vec![Vec::new()],
            templates: 2,
            refused: None,
            quota: None,
            broken: None,
            late_sidecars: false,
            container_crashes: false,
            ahead: 0,
            user: Vec::new(),
            ticks: Vec::new(),
            remaining: Remaining { user: 2, crashes: 1, breaks: 0, failures: 1, ticks: 0 },
            lags: Lags::default(),
            sidecars: None,
        }
    }
}

impl Scope {
    /// Whether pods are created and deleted one at a time.
    pub fn is_ordered(&self) -> bool {
        self.stateful_set == Some(PodManagementPolicy::OrderedReady)
    }

    /// The image of a container of a template.
    pub fn image(&self, template: Rev, container: usize) -> Rev {
        let images = self.images.get(usize::from(template));
        images.and_then(|images| images.get(container)).copied().unwrap_or(template)
    }

    /// Whether a hook is configured at a point.
    pub fn has_hook(&self, point: HookPoint) -> bool {
        match point {
            HookPoint::PreDelete => self.pre_delete,
            HookPoint::PreInplace => self.pre_inplace,
            HookPoint::PostInplace => self.post_inplace,
            HookPoint::Step => true,
        }
    }

    /// Whether pods may break, or be deleted by someone other than the operator.
    pub fn has_surprises(&self) -> bool {
        let deletes =
            |user: &User| matches!(user, User::Delete(_) | User::Evict(_) | User::Node(_));
        self.remaining.breaks > 0 || self.user.iter().any(deletes)
    }

    /// Whether users may reserve ordinals.
    pub fn reserves(&self) -> bool {
        let reserves = |user: &User| matches!(user, User::Reserve(_));
        self.user.iter().any(reserves)
    }

    pub fn max_unavailable(&self, replicas: u8) -> i64 {
        let (unavailable, surge) = self.limits(replicas);
        if unavailable == 0 && surge == 0 { 1 } else { unavailable }
    }

    pub fn max_surge(&self, replicas: u8) -> i64 {
        self.limits(replicas).1
    }

    fn limits(&self, replicas: u8) -> (i64, i64) {
        let replicas = i64::from(replicas);
        let surge = self.max_surge.resolve(replicas, true);
        (self.max_unavailable.resolve(replicas, surge == 0), surge)
    }
}
