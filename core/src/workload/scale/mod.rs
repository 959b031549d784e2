//! How many pods there should be, which ones are deleted, and which ones a rollout reaches.

pub mod batch;
pub mod claims;
pub mod ordinal_range;
pub mod ordinals;
pub mod scale_in;
pub mod sizes;
pub mod slots;
pub mod to_update;
