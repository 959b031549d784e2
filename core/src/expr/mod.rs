//! The expressions in metrics: paths that select from a response, and conditions on the selection.
//!
//! Users write them, and they are evaluated in the operator's process. So all parts have hard limits, and every
//! problem is an error with a suggested fix, never a result.

mod condition;
mod deep_stack;
mod document;
pub mod field;
pub mod jsonpath;
mod writable;

pub use condition::{Condition, ConditionError, Subject};
pub use deep_stack::{Panicked, STACK_BYTES, on_deep_stack};
pub use document::{Document, DocumentError, InvalidByte, JsonFault, brief, without_mark};
pub use writable::writable;
