//! Every decision: a pure function of what was seen to what is to be done.
//!
//! No client, no async and no clock of its own (`now` is part of what was seen), so that what a
//! reconcile will do can be printed, compared, and walked by a model checker.

mod action;
mod duration;
pub mod hook_run;
mod pod;
mod world;

pub use action::*;
pub use duration::*;
pub use pod::*;
pub use world::*;
