//! The common interface for planning the two kinds of workload.

use crate::api::{GameDeployment, GameStatefulSet, GameWorkload};
use crate::workload::spec::InvalidWorkload;
use crate::workload::world::World;
use crate::workload::{game_deployment, game_stateful_set};
use crate::write::Plan;

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
