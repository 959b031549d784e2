//! The judge: reads the API server's audit log and says, from outside and without asking the
//! operator, whether the invariants of the project held.
//!
//! `log` reads the file, `witness` and `unanswered` find the writes that nobody got an answer for,
//! `history` puts the writes in the order in which they took effect, `world` replays them, `rules`
//! look at each of the operator's writes in the world it met, and `judge` runs them all. `counts`
//! tells how many writes of which sort there were.
//!
//! One tolerance runs through all of it: a writer cannot know what changed while its request was
//! on the way. So a write is judged by every version of the workload that was the newest at some
//! moment of the second before the request came in ([`world::LAG`]), and is wrong only if it is
//! wrong under each of them.

pub mod counts;
pub mod event;
pub mod history;
pub mod judge;
pub mod leadership;
pub mod log;
pub mod names;
pub mod object;
mod rebuild;
mod rules;
#[cfg(test)]
mod story;
pub mod unanswered;
pub mod witness;
pub mod workload;
pub mod world;

pub use counts::Counts;
pub use event::Event;
pub use judge::{Violation, judge};
pub use log::AuditLog;
pub use unanswered::unanswered;
pub use witness::Witness;
