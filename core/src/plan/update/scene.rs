//! What the rules of an update read.

use std::cell::OnceCell;

use super::acceptance::Acceptance;
use crate::plan::observed::Pod;
use crate::plan::revision::Revisions;
use crate::plan::rollout::Rollout;
use crate::plan::scale::moves::Moves;
use crate::plan::workload::Workload;
use crate::plan::world::World;

/// Everything that update rules read.
pub struct Scene<'a> {
    /// The workload.
    pub workload: &'a Workload<'a>,
    /// What was seen.
    pub world: &'a World,
    /// Its revisions.
    pub revisions: &'a Revisions<'a>,
    /// How far the rollout may go.
    pub rollout: &'a Rollout,
    /// Pods that stay: no victims, not Terminating, not ended. In the order of their turns.
    pub kept: &'a [&'a Pod],
    /// Which of them are to be at the update revision and are not.
    pub moves: Moves<'a>,
    /// What the API server thinks of the update revision, once that was looked up.
    pub acceptance: OnceCell<Acceptance>,
}
