//! Servers on this machine that the operator calls, or goes through.

pub(crate) mod authority;
pub mod connect_proxy;
pub mod hook_server;
pub mod raw_server;
