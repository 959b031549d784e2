//! The operator's own pause: an annotation on the workload, written in one patch with `paused: true`.
//!
//! The annotation distinguishes this pause from a user's. It names the revision, step list and step, so that
//! the pause ends when one of them changes.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::api::{AnnotationLimits, PauseReason, names};
use crate::workload::spec::Workload;
use crate::write::WorkloadPatch;

/// The annotation that makes a pause the operator's own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OwnPause {
    /// The update revision.
    pub revision: String,
    /// The hash of the step list.
    pub step_hash: String,
    /// The index of the step.
    pub index: i32,
    /// Why the rollout is paused.
    pub reason: PauseReason,
    /// When the pause began.
    pub time: Timestamp,
    /// Set together with `paused: false` when the duration is over or a user resumes the rollout with the plugin, so that
    /// a user's pause right afterwards is not mistaken for the operator's, and that a user can resume while `paused: false`
    /// of an apply is ignored.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub over: bool,
    /// Set when an apply wrote `paused: false` and the operator paused again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub apply_ignored: bool,
}

impl OwnPause {
    /// The pause in the annotations of a workload.
    pub fn of(annotations: &BTreeMap<String, String>) -> Option<Self> {
        AnnotationLimits::SMALL.read(annotations.get(names::PAUSE_ANNOTATION)?)
    }

    /// This pause, once it has ended.
    pub fn ended(&self) -> Self {
        Self { over: true, ..self.clone() }
    }
}

/// Pauses: writes the annotation and `paused: true` in one patch.
pub(crate) fn set(pause: &OwnPause) -> WorkloadPatch {
    WorkloadPatch { paused: Some(true), ..write(pause) }
}

/// Ends a pause whose duration is over: sets `over` in the annotation and `paused: false` in one patch.
pub(crate) fn end(pause: &OwnPause) -> WorkloadPatch {
    WorkloadPatch { paused: Some(false), ..write(&pause.ended()) }
}

fn write(pause: &OwnPause) -> WorkloadPatch {
    let text = serde_json::to_string(pause).unwrap_or_default();
    WorkloadPatch::annotation(names::PAUSE_ANNOTATION, Some(text))
}

/// Removes the annotation and leaves `paused` as it is.
pub(crate) fn remove() -> WorkloadPatch {
    WorkloadPatch::annotation(names::PAUSE_ANNOTATION, None)
}

/// Ends a pause so that its step begins again.
pub(crate) fn begin_again() -> WorkloadPatch {
    WorkloadPatch { paused: Some(false), ..remove() }
}

/// Ends the pause of another rollout. If its duration was over, `paused` belongs to the user and stays.
pub(crate) fn lift(workload: &Workload, pause: &OwnPause) -> WorkloadPatch {
    WorkloadPatch { paused: (workload.paused && !pause.over).then_some(false), ..remove() }
}
