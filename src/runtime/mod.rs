//! What other operators take from a library: watches and their stores, the work queue, fairness between namespaces, the
//! client of the API server and the lease, limits on inbound requests, and metric families. Nothing here knows what is
//! planned.

pub(crate) mod client;
pub(crate) mod connection;
pub(crate) mod control;
pub(crate) mod descriptors;
pub(crate) mod evaluation_pool;
pub(crate) mod fair;
pub(crate) mod fence;
pub(crate) mod inbound;
pub(crate) mod jitter;
pub(crate) mod lease;
pub(crate) mod log_limiter;
pub(crate) mod memory;
pub(crate) mod metrics;
pub(crate) mod objects;
pub(crate) mod queue;
pub mod reflector;
pub(crate) mod request;
pub(crate) mod request_metrics;
pub mod store;
pub(crate) mod threads;
pub(crate) mod turns;
pub mod watch;
