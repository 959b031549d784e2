//! Fairness among namespaces: the work of one tenant never delays that of another.
//!
//! Where tenants share a resource, their work is either limited by a [`NamespaceLimiter`] (concurrent
//! calls, requests and reconciles) or waits in a [`RoundRobin`] queue (work for a few threads, and the [`Streams`] of the
//! connection for writes).

mod limiter;
mod round_robin;
mod streams;

pub(crate) use limiter::{Capacity, NamespaceLimiter, Permit};
pub(crate) use round_robin::RoundRobin;
pub(crate) use streams::{SendBefore, Stream, Streams, TooLate};
