//! The operator's own pause: a note on the workload, written in one patch with `paused: true`.
//!
//! The note tells it from a user's pause. It says which revision, step list and step it belongs to,
//! so that it ends with them.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::api::PauseReason;
use crate::api::names;
use crate::plan::decision::WorkloadPatch;
use crate::plan::workload::Workload;

/// The note on the workload that makes a pause the operator's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PauseNote {
    /// The update revision.
    pub revision: String,
    /// The step list.
    pub step_hash: String,
    /// The step.
    pub index: i32,
    /// Why.
    pub reason: PauseReason,
    /// Since when.
    pub time: Timestamp,
    /// Set together with `paused: false` when the duration is over, so that a user's pause right
    /// after it is not taken for ours.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub over: bool,
    /// Set when an apply wrote `paused: false` and the operator paused again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub apply_ignored: bool,
}

/// The operator's pause, if there is one.
pub fn note_of(workload: &Workload) -> Option<PauseNote> {
    serde_json::from_str(workload.annotations.get(names::PAUSE_ANNOTATION)?).ok()
}

/// Pauses: the annotation and `paused: true` in one patch.
pub fn pause(note: &PauseNote) -> WorkloadPatch {
    WorkloadPatch {
        paused: Some(true),
        ..write(note)
    }
}

/// Ends a pause whose duration is over: marks the annotation in the patch that sets `paused: false`.
pub fn end(note: &PauseNote) -> WorkloadPatch {
    WorkloadPatch {
        paused: Some(false),
        ..write(&PauseNote {
            over: true,
            ..note.clone()
        })
    }
}

fn write(note: &PauseNote) -> WorkloadPatch {
    let text = serde_json::to_string(note).unwrap_or_default();
    WorkloadPatch::annotation(names::PAUSE_ANNOTATION, Some(text))
}

/// Takes the note off and leaves `paused` as it is.
pub fn drop_note() -> WorkloadPatch {
    WorkloadPatch::annotation(names::PAUSE_ANNOTATION, None)
}

/// Takes the operator's pause off a rollout that is no more. After a pause that was over, `paused` is
/// the user's, and stays.
pub fn lift(workload: &Workload, note: &PauseNote) -> WorkloadPatch {
    WorkloadPatch {
        paused: (workload.paused && !note.over).then_some(false),
        ..drop_note()
    }
}
