//! The pure part of gamekeeper: the API types, all decisions about pods, hooks and revisions, the conditions and
//! paths of hooks, and the validation of manifests.
//!
//! It has no client, no async runtime and no I/O: decisions are functions of the observed state. Modules use only
//! those to their left: `api <- hook_run <- plan <- lifecycle <- expr
//! <- admission <- lint`.

pub mod admission;
pub mod api;
pub mod causes;
pub mod expr;
pub mod hook_run;
pub mod lifecycle;
pub mod lint;
pub mod plan;
pub mod text;
