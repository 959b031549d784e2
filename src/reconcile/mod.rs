//! Thin loops: read the cache ([`crate::kinds`]), plan ([`gamekeeper_core`]), apply ([`apply`]), wait for the next change.
//!
//! Nothing is decided here. What answers of the API server mean is decided by each planner
//! ([`Remember`](gamekeeper_core::write::Remember)); the loop keeps what it is to remember. Many objects are reconciled at
//! the same time; an error or panic in one never stops another.

pub(crate) mod apply;
mod cluster;
mod hook_run;
mod memories;
mod planners;
mod refused;
mod set_workloads;
mod sidecar_set;
mod unreadable;
mod workload;
mod world;

use std::sync::Arc;

use crate::kinds::Cache;
use crate::reconcile::apply::{Applier, Metrics};

pub(crate) use cluster::Clusters;
pub(crate) use hook_run::{HookMetrics, HookRuns, RunOwner, point};
pub(crate) use planners::Planners;
pub(crate) use sidecar_set::SidecarSets;
pub(crate) use unreadable::UnreadableReporter;
pub(crate) use workload::Workloads;

/// What the controllers of workloads share.
#[derive(Clone)]
pub(crate) struct Shared {
    pub cache: Arc<Cache>,
    pub applier: Applier,
    pub unreadable: UnreadableReporter,
    pub metrics: Metrics,
    pub planners: Arc<Planners>,
}
