//! Gamekeeper: the operator that runs game servers on Kubernetes without ever killing a match.
//!
//! Layers, each using only those to its left: `gamekeeper_core <- cache, apply, provider <- controller <- manager
//! <- main`. ARCHITECTURE.md describes them.
//!
//! Only what the binary and the integration tests use is public.
#![warn(unreachable_pub)]

mod apply;
pub mod cache;
mod controller;
mod evaluation_pool;
mod fair;
mod go_json;
mod inbound;
mod jitter;
mod log_limiter;
pub mod manager;
mod metrics;
pub mod node_hook;
mod objects;
pub mod provider;
mod threads;
pub mod try_run;
pub mod unguard;
mod webhook;
