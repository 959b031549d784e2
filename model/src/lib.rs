//! The model check: small worlds, in which everything that can happen is made to happen.
//!
//! The real planner plans for a world in which caches lag, processes crash between any two writes,
//! hooks succeed or fail, and the user changes his mind at any moment; each interleaving is walked,
//! and judged by what must always hold (`judge`, `pauses`). From the states on the way it is seen
//! that all comes to rest when the world stands still (`fair`). `fault` has deliberate bugs, each
//! of which must be found. Longer histories in larger worlds are tried at random (`random`).

#![cfg(test)]

mod explore;
mod fair;
mod fault;
mod fingerprint;
mod judge;
mod kubelet;
mod model;
mod operator;
mod pauses;
mod proof;
mod random;
mod renumber;
mod scope;
mod scopes;
mod start;
mod state;
mod telling;
mod translate;
mod user;
mod writes;
