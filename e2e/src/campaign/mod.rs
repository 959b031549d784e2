//! The campaign: histories that a seed writes, each in a namespace of its own with its own operator
//! behind a [`FaultProxy`](crate::faults::FaultProxy).
//!
//! In a [`History`] users change their mind, hooks say yes and no, the operator is killed and its
//! clock jumps, while the proxy plays faults. Then the faults stop and hooks say yes; all must
//! settle. The judge reads the audit log. [`play()`] plays one, [`Figures`] adds them up.
//!
//! A history is a value: what it prints says what was done, and its seed makes it again. The
//! processes that it meets are real, so what they do in between is not the same each time.

mod figures;
mod history;
mod moment;
mod play;
mod settle;
mod workload;

pub use figures::Figures;
pub use history::History;
pub use moment::Moment;
pub use play::{Ended, play};
pub use workload::Kind;
