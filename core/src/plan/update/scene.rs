//! What the rules of an update read.

use std::cell::OnceCell;

use super::acceptance::Acceptance;
use crate::plan::observed::Pod;
use crate::plan::revision::Revisions;
use crate::plan::scale::batch::Batch;
use crate::plan::scale::moves::Moves;
use crate::plan::scale::sizes::Sizes;
use crate::plan::workload::Workload;
use crate::plan::world::World;

/// Everything that update rules read.
pub struct Scene<'a> {
    /// The workload.
    pub workload: &'a Workload<'a>,
    /// What was observed.
    pub world: &'a World,
    /// Its revisions.
    pub revisions: &'a Revisions<'a>,
    /// All of its pods.
    pub own: &'a [&'a Pod],
    /// How many pods there are to be, and how far the rollout may go.
    pub sizes: &'a Sizes<'a>,
    /// The batch of the first pods.
    pub batch: Batch<'a>,
    /// Which pods are to be at the update revision and are not.
    pub moves: Moves<'a>,
    /// What the API server thinks of the update revision, once that was looked up.
    pub acceptance: OnceCell<Acceptance>,
}
