//! What users write in a metric besides its call: paths into the answer, and conditions on what
//! they select.
//!
//! All of it comes from people, and is evaluated in the process that decides whether players are
//! thrown out of a match. So each part has hard limits, and whatever goes wrong is an error with a
//! mend in it, never a result.

mod condition;
mod document;
mod guard;
pub mod jsonpath;

pub use condition::*;
pub use document::*;
pub use guard::*;
