//! What gamekeeper knows and decides: the API's types, every decision about pods, hooks and revisions,
//! conditions and paths of hooks, and what is wrong with a manifest.
//!
//! No client, no async runtime and no I/O, which `Cargo.toml` shows: what is decided here is a function
//! of what was observed. Modules use only those to their left: `api <- expr, plan <- admission <- lint`.

pub mod admission;
pub mod api;
pub mod causes;
pub mod expr;
pub mod lint;
pub mod plan;
