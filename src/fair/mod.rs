//! Fairness among namespaces: what one tenant asks for keeps no other one waiting.
//!
//! Wherever work of several tenants waits for the same thing, it is either limited by [`Turns`] (calls,
//! requests and looks under way at a time) or served in [`Rounds`] (what a few threads or a queue take up
//! one after the other).

mod rounds;
mod turns;

pub use rounds::Rounds;
pub use turns::{Sizes, Turn, Turns};
