//! What the rules decide, and the plan that is put together from it.

mod blocked;
mod decided;
mod draft;
mod failures;

pub use blocked::{Blocked, Concern, Obstacles};
pub use decided::{Decided, Decision};
pub use draft::Draft;
pub use failures::Failures;
