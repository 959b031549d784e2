//! What a plan has to do for the answer of a pod's hook.

use jiff::Timestamp;

use crate::api::names::HookPoint;
use crate::api::{HookRun, WaitReason};
use crate::observed::Pod;
use crate::workload::hooks::Intent;
use crate::workload::hooks::intent::OwnedTarget;
use crate::write::Rehearsal;

/// What the answer of a pod's hook needs.
pub(super) struct Need<'a> {
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
    /// When the deadline of a pod that waits passes.
    pub(super) deadline: Option<Timestamp>,
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
}

/// The intent whose hook is started.
pub(super) struct Start {
    pub target: OwnedTarget,
    pub modified: Vec<String>,
    pub changes: Option<String>,
    pub rehearsal: Option<Rehearsal>,
    pub deletes: bool,
    /// Whether the pod has its mark already, and keeps it even if the start is left to a later plan.
    pub is_marked: bool,
}

/// The annotations of a pod whose hook runs.
#[derive(Clone, Copy)]
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

impl<'a> Need<'a> {
    pub(super) fn nothing(pod: &'a Pod, point: HookPoint) -> Self {
        Self { pod, point, run: RunNeed::Nothing, mark: None, wait: None, deadline: None }
    }
}

impl Start {
    pub(super) fn of(intent: &Intent, is_marked: bool) -> Self {
        Self {
            target: OwnedTarget::from(intent.target),
            modified: intent.modified.to_vec(),
            changes: intent.changes.map(str::to_owned),
            rehearsal: intent.rehearsal.cloned(),
            deletes: intent.deletes,
            is_marked,
        }
    }
}

impl Wait {
    /// It waits for the hook to end.
    pub(super) fn for_hook() -> Self {
        Self { reason: WaitReason::HookRunning, message: String::new() }
    }

    /// The hook cannot be run.
    pub(super) fn cannot_run(message: String) -> Self {
        Self { reason: WaitReason::HookCannotRun, message }
    }
}
