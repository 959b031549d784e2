//! Replays the log: the writes in order, and the state of the namespace at each write.

pub(crate) mod history;
mod rebuild;
pub(crate) mod workload;
pub(crate) mod world;

pub use rebuild::{is_partial, rebuild};
