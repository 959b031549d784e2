//! The model checker: explores everything that can happen in small clusters.
//!
//! The real planner runs in a model in which caches lag, the operator crashes between any two writes, hooks
//! succeed or fail, and users change the spec at any time. Every interleaving is explored, and each write and
//! state is checked against the invariants (`judge`, `pauses`). For every state, `fair` also checks that the
//! cluster settles once nothing else happens. `fault` contains deliberate bugs, each of which must be found.
//! Longer histories in larger clusters are sampled at random (`random`).

#![cfg(test)]

mod describe;
mod explore;
mod fair;
mod fault;
mod fingerprint;
mod judge;
mod kubelet;
mod lifecycle;
mod model;
mod operator;
mod pauses;
mod proof;
mod random;
mod renumber;
mod scope;
mod scopes;
mod sidecars;
mod start;
mod state;
mod translate;
mod user;
mod writes;
