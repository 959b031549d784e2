//! What users write in a metric besides its call: paths into the answer, and conditions on what
//! they select.
//!
//! All of it comes from people, and is evaluated in the process that decides whether players are
//! thrown out of a match. So each part has hard limits, and whatever goes wrong is an error with a
//! fix in it, never a result.

mod condition;
mod deep_stack;
mod document;
pub mod field;
pub mod jsonpath;
mod writable;

pub use condition::*;
pub use deep_stack::{Panicked, STACK_BYTES, on_deep_stack};
pub use document::*;
pub use writable::writable;
