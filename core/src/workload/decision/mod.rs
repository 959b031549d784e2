//! What the rules decide, and the plan that is put together from it.

mod blocked;
mod decided;
mod draft;
mod failures;

pub(super) use blocked::{Blocked, Concern, Obstacles};
pub(super) use decided::{Decided, Decision};
pub(super) use draft::Draft;
pub use failures::Failures;
