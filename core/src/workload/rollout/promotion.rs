//! `kubectl game promote --full`: a user lets a rollout skip the remaining canary steps.
//!
//! Like a pause, a promotion is an annotation on the workload. It names the revision and the step list, so
//! that it does not apply to a later rollout. It is written together with `paused: false`, because a
//! promotion has no effect while a user or a step pauses the rollout. The hooks of pods, the budget and the
//! partition still apply.

use serde::{Deserialize, Serialize};

use crate::api::{AnnotationLimits, names};
use crate::observed::RevisionName;
use crate::workload::spec::Workload;
use crate::write::WorkloadPatch;

/// The annotation that makes a rollout skip its steps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Promotion {
    /// The update revision.
    pub revision: String,
    /// The hash of the step list, as in status.currentStepHash.
    pub step_hash: String,
}

/// Whether a user promoted the rollout to `update`, with the current step list.
pub(super) fn is_promoted(workload: &Workload, update: RevisionName) -> bool {
    let text = workload.annotations.get(names::PROMOTE_ANNOTATION);
    let promotion = text.and_then(|text| AnnotationLimits::SMALL.read(text));
    promotion.is_some_and(|promotion: Promotion| {
        promotion.revision == update.as_str() && Some(promotion.step_hash) == workload.step_hash()
    })
}

/// Removes the annotation, if there is one.
pub(super) fn forget(workload: &Workload) -> Option<WorkloadPatch> {
    let exists = workload.annotations.contains_key(names::PROMOTE_ANNOTATION);
    exists.then(|| WorkloadPatch::annotation(names::PROMOTE_ANNOTATION, None))
}
