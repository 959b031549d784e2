//! Gamekeeper: the operator that runs game servers on Kubernetes without ever killing a match.
//!
//! Layers, each using only those to its left: `api <- plan <- cache, apply, provider <- controller
//! <- manager <- main`. ARCHITECTURE.md tells where to start.

pub mod admission;
pub mod api;
pub mod apply;
pub mod cache;
pub mod causes;
pub mod controller;
pub mod expr;
pub mod fair;
pub mod inbound;
pub mod lint;
pub mod manager;
pub mod metrics;
pub mod plan;
pub mod provider;
pub mod rehearsal;
pub mod webhook;
