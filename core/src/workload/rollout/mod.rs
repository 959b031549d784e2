//! How far a rollout may go: canary steps, pauses, promotion.

mod canary;
pub mod pause;
mod promotion;
mod undo;

pub use canary::{Advance, Counts, Rollout, advance};
pub use pause::OwnPause;
pub use promotion::Promotion;
