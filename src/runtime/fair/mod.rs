//! Fairness among namespaces: the work of one tenant never delays that of another.
//!
//! Where tenants share a resource, their work is either limited by a [`NamespaceLimiter`] (concurrent
//! calls, requests and reconciles), limited by a [`ByteRate`] (what is written to etcd), or waits in a [`RoundRobin`] queue
//! (work for a few threads, and the [`Streams`] of the connection for writes).

mod byte_rate;
mod limiter;
mod round_robin;
mod streams;

pub(crate) use byte_rate::ByteRate;
pub(crate) use limiter::{Capacity, NamespaceLimiter, Permit};
pub(crate) use round_robin::RoundRobin;
pub(crate) use streams::{SendBefore, Stream, Streams, TooLate};
