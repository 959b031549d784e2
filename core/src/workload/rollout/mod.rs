//! How far a rollout may go: canary steps, pauses, promotion.

mod canary;
pub(super) mod pause;
mod promotion;
mod undo;

pub use canary::Rollout;
pub(super) use canary::{Advance, Counts, advance};
pub use pause::OwnPause;
pub use promotion::Promotion;
