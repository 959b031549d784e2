//! Every decision: a pure function of what was seen to what is to be done.
//!
//! No client, no async and no clock of its own (`now` is part of what was seen), so that what a
//! reconcile will do can be printed, compared, and walked by a model checker.
//!
//! Start at [`game_deployment::plan`] and [`game_stateful_set::plan`], which tell a plan from top to
//! bottom; what differs between the two is [`scale`] here, and [`ordinals`] and [`claims`] there. When may a pod be
//! deleted or changed? [`guard::may_touch`] says so, and nothing else does.

mod acceptance;
mod action;
mod backoff;
mod budget;
mod canary;
mod claim;
mod claims;
mod conclusion;
mod draft;
mod duration;
mod events;
mod failures;
mod follow;
pub mod game_deployment;
pub mod game_stateful_set;
mod guard;
mod hook_maker;
pub mod hook_run;
mod hooks;
mod hot_patch;
mod identity;
mod in_place;
mod limits;
mod manifest_resume;
mod method;
mod ordinals;
mod pause;
mod pod;
mod pods;
mod promotion;
pub mod quantity;
mod quota;
mod retry;
mod revision;
mod scale;
mod sizes;
mod status;
#[cfg(test)]
mod tests;
mod update;
mod workload;
mod world;

pub use action::*;
pub use backoff::Backoff;
pub use canary::Rollout;
pub use claim::*;
pub use duration::*;
pub use failures::*;
pub use hook_maker::{CannotMake, OPERATOR_ARGUMENTS};
pub use hooks::is_read_alike;
pub use pod::*;
pub use promotion::Promotion;
pub use revision::{Revisions, canonical, recorded_template};
pub use workload::{InvalidWorkload, Planned, Workload, duration};
pub use world::*;
