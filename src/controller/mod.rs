//! Thin loops: read the cache, plan, apply, wait for the next change.
//!
//! A controller decides nothing. It connects the cache ([`crate::cache`]), the planner
//! ([`gamekeeper_core::plan`]) and the applier ([`crate::apply`]). Many objects are reconciled side by side; an
//! error or panic in one never stops another.

mod hook_run;
mod planners;
mod queue;
mod workload;
mod world;

use std::sync::Arc;

use crate::apply::events::EventRecorder;
use crate::apply::{Applier, Metrics};
use crate::cache::Cache;

pub use hook_run::{HookMetrics, HookRuns, RunOwner, point};
pub use planners::Planners;
pub use queue::{Queue, Queues, Reconciled, Requeue, work};
pub use workload::Workloads;

/// What a controller of workloads works with.
#[derive(Clone)]
pub struct Shared {
    /// What the cluster looks like.
    pub cache: Arc<Cache>,
    /// Writes that a plan asks for.
    pub applier: Applier,
    /// Where events are told.
    pub events: EventRecorder,
    /// Where durations are counted.
    pub metrics: Metrics,
    /// Threads on which plans are made.
    pub planners: Arc<Planners>,
}
