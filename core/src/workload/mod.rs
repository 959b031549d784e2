//! The planner of GameDeployments and GameStatefulSets: every decision about their pods, hooks and revisions.
//!
//! Start at [`game_deployment::plan`] and [`game_stateful_set::plan`], which read from top to bottom.
//! [`guard::may_touch`](crate::guard::may_touch) alone decides when a pod may be deleted or changed. ARCHITECTURE.md says what each module is
//! for, and in which order they use each other.

mod decision;
mod deletion;
pub mod game_deployment;
pub mod game_stateful_set;
mod hooks;
mod in_place;
mod outline;
mod planned;
mod pods;
mod protection;
mod revision;
mod rollout;
mod scale;
mod spec;
mod status;
#[cfg(test)]
mod tests;
mod update;
mod world;

pub use decision::Failures;
pub use hooks::retry::Retry;
pub use hooks::run_maker::{CannotMake, OPERATOR_ARGUMENTS};
pub use hooks::{makes_same_plan, token_hook};
pub use in_place::{changing, has_sidecars, progress_in_other_pod, record_of_other_pod};
pub use planned::Planned;
pub use protection::{EndedMatch, Ending, delays_removal, ended_in_spite_of_the_guard};
pub use revision::Revisions;
pub use rollout::{OwnPause, Promotion, Rollout};
pub use spec::{InvalidWorkload, Workload, managed_fields_to_keep};
pub use status::unreadable::{unreadable_conditions, unreadable_message};
pub use update::why_sidecars_are_held;
pub use world::{
    Backoff, GuardState, GuardedPlayers, Memory, RefusedChange, Replacement, Revision, Tally,
    Verdict, World,
};
