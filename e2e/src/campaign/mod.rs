//! The campaign: histories generated from seeds. Each has its own namespace, and its own operator behind
//! a [`FaultProxy`](crate::faults::FaultProxy).
//!
//! In a [`History`], users change the workload, hooks answer yes and no, the operator is killed and its
//! clock jumps, while the proxy injects faults. Then the faults stop, hooks answer yes, and the workload
//! must settle. The judge reads the audit log. [`play()`] plays a history, [`Figures`] adds up results.
//!
//! [`guard`] is another campaign: what other clients do to guarded pods.
//!
//! A history is a value: it can be printed, and its seed reproduces it. The processes are real, so their
//! timing differs from run to run.

mod figures;
pub mod guard;
mod history;
mod play;
mod settle;
mod stimulus;
mod workload;

pub use figures::Figures;
pub use history::History;
pub use play::{Outcome, play};
pub use stimulus::Stimulus;
pub use workload::Kind;
