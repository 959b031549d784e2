//! The common interface for planning the two kinds of workload.

use crate::api::{GameDeployment, GameStatefulSet, GameWorkload};
use crate::plan::decision::Plan;
use crate::plan::workload::InvalidWorkload;
use crate::plan::world::World;
use crate::plan::{game_deployment, game_stateful_set};

/// A workload that can be planned for.
pub trait Planned: GameWorkload {
    /// Makes a plan for the workload.
    ///
    /// # Errors
    /// If its spec is invalid. Then nothing may be done.
    fn plan(&self, world: &World) -> Result<Plan<Self::Status>, InvalidWorkload>;
}

impl Planned for GameDeployment {
    fn plan(&self, world: &World) -> Result<Plan<Self::Status>, InvalidWorkload> {
        game_deployment::plan(self, world)
    }
}

impl Planned for GameStatefulSet {
    fn plan(&self, world: &World) -> Result<Plan<Self::Status>, InvalidWorkload> {
        game_stateful_set::plan(self, world)
    }
}
