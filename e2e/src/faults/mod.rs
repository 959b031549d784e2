//! Fault injection: a proxy between an operator and the API server that disturbs requests, responses
//! and watches, and a wall clock that jumps.
//!
//! A [`Script`] describes all faults of the proxy. A test writes one, or generates one from a seed
//! ([`seeded()`]). [`FaultProxy`] plays it. The proxy has no other settings, so playing a script again
//! reproduces the proxy's behavior.

pub mod clock;
mod proxy;
mod refusal;
pub mod request;
pub mod script;
mod seeded;
mod tally;
#[cfg(test)]
mod tests;
mod watch;

pub use proxy::FaultProxy;
pub use script::{Fault, Frequency, Requests, Script, WatchFault};
pub use seeded::seeded;
pub use tally::Tally;
