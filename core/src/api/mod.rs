//! The API that users see: the four kinds of group `tkex.tencent.com/v1alpha1`, their defaults,
//! and the names, labels and annotations on everything the operator makes.
//!
//! No I/O and no clock: everything here is data. The Rust types are the single source of the CRDs
//! (`gamekeeper crds`); names, casing and enum values are those of bk-bcs, so its manifests apply.

mod authentication;
mod condition;
mod game_deployment;
mod game_stateful_set;
mod hook;
mod hook_options;
mod hook_run;
mod hook_template;
mod metric;
pub mod names;
mod provider;
mod raw_json;
mod schema;
mod update_strategy;
mod workload;
mod workload_status;

pub use authentication::*;
pub use condition::{ConditionType, Reason};
pub use game_deployment::*;
pub use game_stateful_set::*;
pub use hook::*;
pub use hook_options::*;
pub use hook_run::*;
pub use hook_template::*;
pub use metric::*;
pub use provider::*;
pub use raw_json::{RawJson, json_memory};
pub use schema::crds;
pub use update_strategy::*;
pub use workload::GameWorkload;
pub use workload_status::*;

/// The API group of all kinds.
pub const GROUP: &str = "tkex.tencent.com";
/// The only served version.
pub const VERSION: &str = "v1alpha1";
/// `group/version`, as it stands in manifests and owner references.
pub const API_VERSION: &str = "tkex.tencent.com/v1alpha1";
