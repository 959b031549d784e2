//! The state that is walked: what the API server holds, what the operator has seen of it, and what
//! the operator is doing.
//!
//! Everything is a small number. A moment counts tens of seconds, a template (and its revision) is
//! its place in the scope's list, a pod's uid is its age. Real objects are made from that only to
//! ask the planner (`translate`).

use std::rc::Rc;

use gamekeeper_core::api::HookPhase;
use gamekeeper_core::api::names::HookPoint;
use gamekeeper_core::plan::PodPhase;

mod sync;

pub use self::sync::*;

/// A moment, in tens of seconds since the beginning.
pub type Time = u8;
/// A pod's uid; the younger, the higher.
pub type Uid = u8;
/// A pod's name.
pub type Name = u8;
/// A template, and the revision that stands for it.
pub type Rev = u8;
/// A text of the operator (an annotation's value), by its place in the table of texts.
pub type Text = u16;
/// The part of a status that decisions rest on, by its place in the table of statuses.
pub type Status = u16;

/// Everything.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub clock: Time,
    pub workload: Kind<Workload>,
    pub pods: Kind<Vec<Pod>>,
    pub runs: Kind<Vec<Run>>,
    /// Revisions, that with the highest number last.
    pub revisions: Kind<Vec<Rev>>,
    pub operator: Operator,
    pub left: Left,
    pub memory: Memory,
}

/// Objects of one kind: as they are, and as the operator has seen them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Kind<T> {
    pub now: Rc<T>,
    pub seen: Seen<T>,
}

/// What the operator's cache shows of a kind.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Seen<T> {
    /// What is there now.
    Now,
    /// What was there before.
    Before(Rc<T>),
    /// Less than the operator has written, or than its leader election demands: it must wait.
    TooOld,
}

impl<T: Clone + PartialEq> Kind<T> {
    pub fn new(now: T) -> Self {
        Self {
            now: Rc::new(now),
            seen: Seen::Now,
        }
    }

    /// Somebody else's change. `seen_before`: the cache caught up right before it.
    pub fn change(&mut self, lags: bool, seen_before: bool) -> &mut T {
        if lags && (seen_before || self.seen == Seen::Now) {
            self.seen = Seen::Before(self.now.clone());
        }
        Rc::make_mut(&mut self.now)
    }

    /// A write of the operator: it plans again only when its cache shows that.
    pub fn write(&mut self, lags: bool) -> &mut T {
        if lags {
            self.seen = Seen::TooOld;
        }
        Rc::make_mut(&mut self.now)
    }

    /// A new leader's cache: it has to catch up with what is there now.
    pub fn forget(&mut self, lags: bool) {
        if lags {
            self.seen = Seen::TooOld;
        }
    }

    /// What the cache shows; None when the operator must wait for it.
    pub fn view(&self) -> Option<&Rc<T>> {
        match &self.seen {
            Seen::Now => Some(&self.now),
            Seen::Before(before) => Some(before),
            Seen::TooOld => None,
        }
    }

    /// The cache catches up if it must, or when it is told to.
    pub fn catch_up(&mut self, wanted: bool) {
        if wanted || self.seen == Seen::TooOld {
            self.seen = Seen::Now;
        }
    }

    /// A cache that shows what is there is up to date, however it came to that.
    pub fn tidy(&mut self) {
        if matches!(&self.seen, Seen::Before(before) if *before == self.now) {
            self.seen = Seen::Now;
        }
    }
}

/// The workload.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Workload {
    pub generation: u8,
    pub replicas: u8,
    pub template: Rev,
    pub paused: bool,
    /// Whether `paused` has its value from an apply.
    pub by_apply: bool,
    pub partition: u8,
    /// Version of the pod hooks' arguments.
    pub hook: u8,
    /// Whether the pod hooks are configured.
    pub hooked: bool,
    /// Points whose retry is set, one bit each.
    pub retry: u8,
    /// Which of the scope's step lists it has.
    pub steps: u8,
    /// podsToDelete.
    pub named: Vec<Name>,
    /// The annotation of the operator's pause; 0 for none.
    pub pause_note: Text,
    /// The annotation of a retry; 0 for none.
    pub retry_note: Text,
    /// The annotation of a full promotion; 0 for none.
    pub promote_note: Text,
    pub status: Status,
}

/// The bit that stands for a point's retry.
pub fn retry_bit(point: HookPoint) -> u8 {
    match point {
        HookPoint::PreDelete => 1,
        HookPoint::PreInplace => 2,
        HookPoint::PostInplace => 4,
        HookPoint::Step => 0,
    }
}

/// A pod.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pod {
    pub uid: Uid,
    pub name: Name,
    pub rev: Rev,
    /// Image of its spec.
    pub image: Rev,
    /// Image that runs.
    pub runs: Rev,
    pub restarts: u8,
    /// Whether the kubelet has looked at the newest spec.
    pub observed: bool,
    pub phase: PodPhase,
    /// Whether a container runs.
    pub up: bool,
    /// Whether its containers are ready.
    pub healthy: bool,
    /// Since when it is Ready.
    pub ready: Option<Time>,
    pub terminating: bool,
    pub marked: bool,
    pub hot: bool,
    pub gate: Gate,
    pub record: Option<Record>,
}

/// A pod's readiness gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Gate {
    Absent,
    Unset,
    Open,
    Closed(Closure),
}

/// When a gate was closed: the moment, and the how manieth closure at that moment it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Closure {
    pub at: Time,
    pub nth: u8,
}

/// What the last in-place update changed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    pub rev: Rev,
    pub closed_at: Option<Closure>,
    pub patched_at: Time,
    pub hot: bool,
    pub done: bool,
    pub from: Option<Origin>,
}

/// What ran before an in-place update.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Origin {
    pub image: Rev,
    /// Restarts of the container that ran; None when none did.
    pub restarts: Option<u8>,
    pub unfinished: bool,
}

/// A HookRun.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Run {
    pub id: RunId,
    pub phase: HookPhase,
    pub finished: Time,
}

/// What a HookRun is made with.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RunId {
    pub point: HookPoint,
    /// The revision in its name.
    pub rev: Rev,
    /// The pod's name, or the step's index.
    pub name: Name,
    /// The pod's uid; None for a step's run.
    pub pod: Option<Uid>,
    /// The revision that the guarded action leads to; None for a deletion for good.
    pub target: Option<Rev>,
    /// Version of the hook's arguments.
    pub hook: u8,
    /// The workload's generation when it was made.
    pub generation: u8,
}

impl RunId {
    /// Whether the API server knows both by one name.
    pub fn has_name_of(&self, other: &RunId) -> bool {
        (self.point, self.rev, self.name) == (other.point, other.rev, other.name)
    }
}

/// What may still happen: it bounds the walk.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Left {
    pub user: u8,
    pub crashes: u8,
    /// Pods that break by themselves.
    pub breaks: u8,
    /// Hooks that fail.
    pub failures: u8,
    pub ticks: u8,
}

/// What only the checker remembers, to judge by.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Memory {
    /// The operator's pause that stands, or stood last.
    pub pause: Option<OwnPause>,
    /// Whether `paused: true` is the user's.
    pub user_paused: bool,
    /// spec.replicas when the last partition step was entered.
    pub replicas_at_partition: u8,
    /// The workload's generation that the rollout was begun for.
    pub rollout_since: u8,
    /// While a user pauses a rollout without steps: its template, and how many pods were at it when
    /// the operator first saw that.
    pub held: Option<(Rev, u8)>,
    /// The status that was lost, until the operator shows another one.
    pub lost: Status,
}

/// A pause that the operator made.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OwnPause {
    pub template: Rev,
    pub steps: u8,
    pub index: u8,
    pub at: Time,
    /// Whether the user has resumed.
    pub resumed: bool,
    /// Whether the user has changed the rollout since: then it may pause at this step again.
    pub outdated: bool,
}

impl Pod {
    /// A pod that neither goes nor has ended.
    pub fn is_active(&self) -> bool {
        !self.terminating && !self.has_ended()
    }

    pub fn has_ended(&self) -> bool {
        matches!(self.phase, PodPhase::Failed | PodPhase::Succeeded)
    }

    /// Whether its change in place was made and is not over yet.
    pub fn is_patched(&self) -> bool {
        let Some(record) = self.record.as_ref().filter(|record| !record.hot) else {
            return false;
        };
        match self.gate {
            Gate::Closed(since) => record.closed_at == Some(since),
            Gate::Absent => !record.done,
            Gate::Open | Gate::Unset => false,
        }
    }

    /// Whether an update in place has begun and is not over yet.
    pub fn is_under_way(&self) -> bool {
        matches!(self.gate, Gate::Closed(_)) || self.is_patched()
    }

    /// Whether what runs is what its spec says, as far as the kubelet has come.
    pub fn runs_its_spec(&self) -> bool {
        self.observed && self.runs == self.image
    }
}

impl State {
    /// The status that decisions have to rest on, also when it was lost.
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
