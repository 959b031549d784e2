//! The operator's part of a state: what it remembers, and the plan that it carries out.

use std::rc::Rc;

use gamekeeper_core::plan::DeletionReason;

use super::*;

/// The operator: its memory, and the plan that it carries out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Operator {
    /// Revisions that the API server took, one bit each.
    pub accepted: u8,
    /// A revision that it refused, and when.
    pub refused: Option<(Rev, Time)>,
    pub sync: Option<Rc<Sync>>,
}

/// A plan that is being carried out.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Sync {
    /// Writes that come before the status, in any order.
    pub before: Vec<Write>,
    /// The status, when it must be written first.
    pub status: Option<Status>,
    /// Writes that come after it, in any order.
    pub after: Vec<Write>,
    /// Whether the first of them was made.
    pub begun: bool,
    /// Whether a quorum GET comes before them.
    pub get_first: bool,
    /// The workload that was planned for.
    pub planned: Rc<Workload>,
    /// The workload as it was when the quorum GET was due.
    pub judged: Option<Rc<Workload>>,
    /// When it was planned.
    pub at: Time,
    /// Pods that were seen available, one bit a uid.
    pub seen_available: u32,
    /// Pods that were seen ready, available or not yet, one bit a uid.
    pub seen_ready: u32,
    /// Pods whose availability this sync has ended, one bit a uid.
    pub touched: u32,
}

/// The pod as it was seen, where a write rests on nothing having happened to it since. (That it came
/// to be the same again in between, which its resourceVersion would tell, does no harm.)
pub type Unchanged = Option<Rc<Pod>>;

impl Sync {
    /// Notes a pod whose availability a write ends.
    pub fn touch(&mut self, write: &Write) {
        match write {
            Write::DeletePod(uid, ..) | Write::CloseGate(uid, ..) => self.touched |= 1 << uid,
            Write::Patch(patch) => self.touched |= 1 << patch.pod,
            _ => {}
        }
    }
}

/// A write of the operator.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Write {
    Workload(WorkloadChange),
    CreateRevision(Rev),
    RenumberRevision(Rev),
    DeleteRevision(Rev),
    DryRun(Rev),
    CreatePod {
        rev: Rev,
        gate: bool,
        /// Where pods have one, which is their name.
        ordinal: Option<Name>,
    },
    DeletePod(Uid, DeletionReason, Unchanged),
    Mark(Uid),
    Unmark(Uid),
    CreateRun(RunId),
    DeleteRun(RunId),
    /// And what follows at once.
    CloseGate(Uid, Rev, Option<Box<Patch>>, Unchanged),
    OpenGate(Uid),
    Patch(Box<Patch>),
    Finish(Uid, Record),
}

/// A change of the workload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct WorkloadChange {
    pub paused: Option<bool>,
    pub pause_note: Option<Text>,
    pub retry_note: Option<Text>,
    pub promote_note: Option<Text>,
    pub retry_off: u8,
    pub named: Option<Vec<Name>>,
}

/// An in-place change of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Patch {
    pub pod: Uid,
    pub unchanged: Unchanged,
    pub from_rev: Rev,
    pub rev: Rev,
    /// Image tested, and wanted.
    pub image: Option<(Rev, Rev)>,
    pub unmark: bool,
    /// Whether the annotation of hot patches is set or removed.
    pub hot: Option<bool>,
    pub record: Record,
}
