//! The providers of metrics: each makes one call and returns its outcome. No state of a run is kept here;
//! [`gamekeeper_core::hook_run`] decides what an outcome means for the run.

mod address;
mod arguments;
mod authentication;
mod call_permit;
mod cluster;
mod command_output;
mod connection;
mod container_status;
mod exec;
mod filling;
mod http;
mod job;
mod judge;
mod keys;
mod kubernetes;
mod lookups;
mod measure;
mod own_pod;
mod prometheus;
mod query_result;
mod remote_command;
mod secrets;
#[cfg(test)]
mod tests;
mod tls;
mod tokens;
mod web;

pub use exec::Commands;
pub use http::HttpOptions;
pub use measure::{Call, Probe, ProbeError};
