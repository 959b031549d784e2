//! What a plan has to do for the answer of a pod's hook.

use jiff::Timestamp;

use crate::api::names::HookPoint;
use crate::api::{HookRun, WaitReason};
use crate::observed::Pod;
use crate::workload::decision::Concern;
use crate::workload::hooks::run_maker::{CannotMake, Heading};
use crate::write::Rehearsal;

/// What the answer of a pod's hook needs.
pub struct Need<'a> {
    /// The pod that was asked about.
    pub(super) pod: &'a Pod,
    /// The point of its hook.
    pub(super) point: HookPoint,
    /// What becomes of the pod's run.
    pub(super) run: RunNeed<'a>,
    /// The annotation game-pod-deleting; None if the pod does not need it.
    pub(super) mark: Option<Mark>,
    /// Why the pod waits; None unless it is guarded and waits for its PreDelete hook.
    pub(super) wait: Option<Wait>,
    /// When the answer changes although nothing happens.
    pub(super) wake: Option<Timestamp>,
}

/// What becomes of the run of a pod.
pub(super) enum RunNeed<'a> {
    /// There is none, or it is deleted, so that the next plan can start another one.
    Nothing,
    /// It is kept.
    Keep(&'a HookRun),
    /// It is kept, and the pod waits for it.
    Await(&'a HookRun),
    /// It did not end Successful. It is kept until it runs again: at this time, or when a user asks for it.
    Refused(&'a HookRun, Option<Timestamp>),
    /// One is started.
    Start(Box<Start>),
    /// None can be created, and this concern is blocked.
    CannotStart(Concern, CannotMake),
}

/// A run to start.
pub(super) struct Start {
    /// What identifies the run.
    pub heading: Heading,
    /// The dry runs that precede it.
    pub rehearsal: Option<Rehearsal>,
    /// Whether the pod has its mark already, and keeps it even if the run is left to a later plan.
    pub is_marked: bool,
}

/// The annotations of a pod whose hook runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    /// Since when the pod waits for its deletion, which a second annotation shows; None if it does not.
    pub since: Option<Timestamp>,
}

/// Why a guarded pod waits for its PreDelete hook.
pub(super) struct Wait {
    pub reason: WaitReason,
    /// The reason as a sentence.
    pub message: String,
}
