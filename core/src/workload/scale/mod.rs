//! How many pods there should be, which ones are deleted, and which ones a rollout reaches.

pub(super) mod batch;
pub(super) mod claims;
pub(super) mod ordinal_range;
pub(super) mod ordinals;
pub(super) mod scale_in;
pub(super) mod sizes;
pub(super) mod slots;
pub(super) mod to_update;
