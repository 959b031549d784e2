//! `kubectl game promote --full`: a user lets a rollout skip the canary steps that are left.
//!
//! Like a pause, a promotion is a note on the workload. It says which revision and step list it is
//! about, so that it speaks for no later rollout, and is written together with `paused: false`: a
//! pause, whoever makes it, holds it back. Hooks of pods, budget and partition are as ever.

use serde::{Deserialize, Serialize};

use crate::api::names;
use crate::plan::decision::{Draft, WorkloadPatch};
use crate::plan::workload::Workload;

/// The note that makes a rollout skip its steps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Promotion {
    /// The update revision.
    pub revision: String,
    /// The step list, as status.currentStepHash has it.
    pub step_hash: String,
}

/// Whether the rollout to `update` skips its steps. A note of another rollout is taken off.
pub fn is_promoted(workload: &Workload, update: &str, draft: &mut Draft) -> bool {
    let Some(text) = workload.annotations.get(names::PROMOTE_ANNOTATION) else {
        return false;
    };
    let is_own =
        |note: Promotion| note.revision == update && Some(note.step_hash) == workload.step_hash();
    if !serde_json::from_str(text).is_ok_and(is_own) {
        forget(workload, draft);
        return false;
    }
    !workload.paused
}

/// Takes the note off when there is nothing left to skip.
pub fn forget(workload: &Workload, draft: &mut Draft) {
    if workload.annotations.contains_key(names::PROMOTE_ANNOTATION) {
        draft.patch_workload(WorkloadPatch {
            annotations: vec![(names::PROMOTE_ANNOTATION.to_owned(), None)],
            ..WorkloadPatch::default()
        });
    }
}
