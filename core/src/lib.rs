//! The pure part of gamekeeper: the API types, all decisions about pods, hooks and revisions, the conditions and
//! paths of hooks, and the validation of manifests.
//!
//! It has no client, no async runtime, no clock and no I/O: decisions are functions of the observed state, so what a
//! reconcile will do can be printed, compared, and explored by a model checker.
//!
//! There are four planners: [`workload`], [`sidecar_set`], [`hook_run`] and [`lifecycle`] (of Clusters).

// What another crate cannot reach is not `pub`, so that the compiler finds what nothing uses.
#![cfg_attr(not(test), warn(unreachable_pub))]

pub mod admission;
pub mod advice;
pub mod api;
pub mod causes;
pub mod expr;
pub mod go_json;
pub mod guard;
pub mod hook_run;
pub mod kstatus;
pub mod lifecycle;
pub mod lint;
pub mod observed;
pub mod revision;
pub mod sidecar_set;
#[cfg(test)]
mod simulated;
pub mod text;
pub mod workload;
pub mod write;
