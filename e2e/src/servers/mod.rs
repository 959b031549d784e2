//! Servers and proxies on this machine that the operator connects to.

pub(crate) mod authority;
pub mod connect_proxy;
pub mod hook_server;
pub mod metrics_api;
pub mod raw_server;
pub mod registry;
