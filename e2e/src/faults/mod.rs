//! A world that lies and is late: a proxy between an operator and the API server that does to
//! requests, answers and watches what a script says, and a wall clock that jumps.
//!
//! [`Script`] is the value that says what goes wrong; a test writes one, or a seed does ([`seeded()`]).
//! [`FaultProxy`] plays it. Between the two there is no other knob: what a proxy did can be said
//! again by its script.

pub mod asked;
pub mod clock;
mod proxy;
mod refusal;
pub mod script;
mod seeded;
mod tally;
#[cfg(test)]
mod tests;
mod watch;

pub use proxy::FaultProxy;
pub use script::{Fault, Often, Script, WatchFault, Which};
pub use seeded::seeded;
pub use tally::Tally;
