//! `retry: true`: unsuccessful hooks are run again, so users need not delete HookRuns by hand.
//!
//! One patch sets `retry` back to false and records the hook points and the workload's generation in an
//! annotation. Next, the unsuccessful runs of these points that were created up to that generation are
//! deleted. Finally, the annotation is removed. A crash in between loses nothing, and a run created after
//! the retry is never mistaken for an earlier one.
//!
//! The hook of a canary step has no field. `kubectl game retry` writes the annotation itself, and the rollout ends it
//! together with its pause, once the unsuccessful run is gone.

use kube::ResourceExt;
use serde::{Deserialize, Serialize};

use crate::workload::spec::Workload;
use crate::write::WorkloadPatch;

use crate::api::names::{self, HookPoint};
use crate::api::{AnnotationLimits, HookPhase, HookRun};

/// A retry in progress, as stored in an annotation of the workload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retry {
    /// The workload's generation when the retry began.
    generation: i64,
    /// The hook points to retry, as in the type label of HookRuns.
    points: Vec<String>,
}

impl Retry {
    /// The retry in progress, if any.
    pub fn of(workload: &Workload) -> Option<Self> {
        AnnotationLimits::SMALL.read(workload.annotations.get(names::RETRY_ANNOTATION)?)
    }

    /// The annotation of a workload of this generation that requests a retry of the hook of its canary step; `current` is
    /// the annotation that it already has.
    pub fn of_step(generation: i64, current: Option<&String>) -> String {
        let current = current.and_then(|text| AnnotationLimits::SMALL.read::<Self>(text));
        let points = current.map_or_else(Vec::new, |it| it.points);
        let step = HookPoint::Step.as_str();
        let others = points.into_iter().filter(|it| it != step);
        let retry = Self { generation, points: others.chain([step.to_owned()]).collect() };
        serde_json::to_string(&retry).unwrap_or_default()
    }

    /// Whether it covers the hook of the canary step.
    pub fn is_of_step(&self) -> bool {
        self.points.iter().any(|name| name == HookPoint::Step.as_str())
    }

    /// Ends the retry of the step's hook, and leaves that of other hook points.
    pub fn end_of_step(mut self) -> WorkloadPatch {
        self.points.retain(|name| name != HookPoint::Step.as_str());
        if self.points.is_empty() {
            return end();
        }
        let text = serde_json::to_string(&self).unwrap_or_default();
        WorkloadPatch::annotation(names::RETRY_ANNOTATION, Some(text))
    }

    /// Whether this retry covers a run of this hook point: whether the point is to be retried, and the run is
    /// unsuccessful and was created before the retry.
    pub fn covers(&self, point: HookPoint, run: &HookRun) -> bool {
        let generation =
            run.annotations().get(names::RUN_GENERATION).and_then(|it| it.parse::<i64>().ok());
        self.points.iter().any(|name| name == point.as_str())
            && generation.is_none_or(|generation| generation <= self.generation)
            && matches!(run.phase(), HookPhase::Failed | HookPhase::Error | HookPhase::Inconclusive)
    }
}

/// Begins a retry if the user has requested one.
pub(crate) fn begin(workload: &Workload) -> Option<WorkloadPatch> {
    let requested = workload.hooks.points_to_retry();
    if requested.is_empty() {
        return None;
    }
    let new = requested.iter().map(|point| point.as_str().to_owned());
    let old = Retry::of(workload).map_or(Vec::new(), |retry| retry.points);
    let mut points: Vec<String> = new.chain(old).collect();
    points.sort();
    points.dedup();
    let retry = Retry { generation: workload.generation, points };
    let text = serde_json::to_string(&retry).unwrap_or_default();
    Some(WorkloadPatch {
        retry_off: requested,
        ..WorkloadPatch::annotation(names::RETRY_ANNOTATION, Some(text))
    })
}

/// Ends a retry by removing the annotation.
pub(crate) fn end() -> WorkloadPatch {
    WorkloadPatch::annotation(names::RETRY_ANNOTATION, None)
}
