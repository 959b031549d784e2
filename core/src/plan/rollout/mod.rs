//! How far a rollout may go: canary steps, pauses, promotion.

mod canary;
pub mod pause;
mod promotion;

pub use canary::{Counts, Rollout, advance};
pub use promotion::Promotion;
