//! The calls of metrics: each makes one call and tells what came of it. No state of a run is kept
//! here; [`crate::plan::hook_run`] decides what an outcome means for the run.

mod address;
mod arguments;
mod http;
mod judge;
mod measure;
#[cfg(test)]
mod tests;
mod web;

pub use arguments::Arguments;
pub use http::{Http, HttpOptions};
pub use measure::{Call, Probe, ProbeError};
