//! Gamekeeper: the operator that runs game servers on Kubernetes without ever killing a match.
//!
//! Layers, each using only those to its left: `api <- plan <- cache, apply, provider <- controller
//! <- manager <- main`. ARCHITECTURE.md tells where to start.

pub mod apply;
pub mod cache;
pub mod controller;
pub mod evaluation_pool;
pub mod fair;
pub mod inbound;
pub mod manager;
pub mod metrics;
pub mod objects;
pub mod provider;
pub mod try_run;
pub mod webhook;
