//! Gamekeeper: the operator that runs game servers on Kubernetes without ever killing a match.
//!
//! Layers, each using only those to its left: `gamekeeper_core <- runtime <- kinds, provider <- reconcile <- metrics
//! <- manager <- main`. ARCHITECTURE.md describes them.
//!
//! Only what the binary and the integration tests use is public.
#![warn(unreachable_pub)]

pub mod kinds;
pub mod manager;
mod metrics;
pub mod node_hook;
pub mod provider;
mod reconcile;
pub mod runtime;
pub mod try_run;
pub mod unguard;
mod webhook;
