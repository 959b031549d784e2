//! `retry: true`: hooks that ended badly are run again, without anybody deleting HookRuns by hand.
//!
//! One patch sets `retry` back to false and notes the generation; then the ended, unsuccessful runs
//! of that point made up to that generation go; then the note goes. A crash in between loses
//! nothing, and a run made after the retry is never taken for one before it.

use kube::ResourceExt;
use serde::{Deserialize, Serialize};

use crate::plan::decision::WorkloadPatch;
use crate::plan::workload::Workload;

use crate::api::names::{self, HookPoint};
use crate::api::{HookPhase, HookRun};

/// A retry under way: the note on the workload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retry {
    /// The workload's generation when it was asked for.
    generation: i64,
    /// Type labels of the points.
    points: Vec<String>,
}

impl Retry {
    /// The retry under way, if any.
    pub fn of(workload: &Workload) -> Option<Self> {
        serde_json::from_str(workload.annotations.get(names::RETRY_ANNOTATION)?).ok()
    }

    /// Whether a run of that point is to be run again.
    pub fn covers(&self, point: HookPoint, run: &HookRun) -> bool {
        let made_at = run
            .annotations()
            .get(names::RUN_GENERATION)
            .and_then(|it| it.parse::<i64>().ok());
        self.points.iter().any(|name| name == point.as_str())
            && made_at.is_none_or(|made_at| made_at <= self.generation)
            && matches!(
                run.phase(),
                HookPhase::Failed | HookPhase::Error | HookPhase::Inconclusive
            )
    }
}

/// Begins a retry when the user asks for one.
pub fn begin(workload: &Workload) -> Option<WorkloadPatch> {
    let retry_off = workload.hooks.retries();
    if retry_off.is_empty() {
        return None;
    }
    let new = retry_off.iter().map(|point| point.as_str().to_owned());
    let old = Retry::of(workload).map_or(Vec::new(), |retry| retry.points);
    let mut points: Vec<String> = new.chain(old).collect();
    points.sort();
    points.dedup();
    let note = Retry {
        generation: workload.generation,
        points,
    };
    let text = serde_json::to_string(&note).unwrap_or_default();
    Some(WorkloadPatch {
        retry_off,
        ..WorkloadPatch::annotation(names::RETRY_ANNOTATION, Some(text))
    })
}

/// Takes the note off.
pub fn end() -> WorkloadPatch {
    WorkloadPatch::annotation(names::RETRY_ANNOTATION, None)
}
