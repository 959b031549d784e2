//! The input to the update rules.

use std::cell::OnceCell;

use super::acceptance::Acceptance;
use crate::observed::Pod;
use crate::workload::revision::Revisions;
use crate::workload::scale::batch::Batch;
use crate::workload::scale::sizes::Sizes;
use crate::workload::scale::to_update::ToUpdate;
use crate::workload::spec::Workload;
use crate::workload::world::World;

/// Everything that the update rules read.
pub struct Scene<'a> {
    /// The workload.
    pub workload: &'a Workload<'a>,
    /// What was observed.
    pub world: &'a World,
    /// The workload's revisions.
    pub revisions: &'a Revisions<'a>,
    /// All pods of the workload.
    pub own: &'a [&'a Pod],
    /// How many pods there should be, and how far the rollout may go.
    pub sizes: &'a Sizes<'a>,
    /// The batch of the initial creation.
    pub batch: Batch<'a>,
    /// The pods that the rollout may update now.
    pub to_update: ToUpdate<'a>,
    /// Whether the API server accepts the update revision, once that has been determined.
    pub acceptance: OnceCell<Acceptance>,
}
