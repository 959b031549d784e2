//! Admission: the validation of manifests before they are stored.
//!
//! There are two layers of rules. The API server enforces the rules of the CRDs; the linter checks them offline with
//! [`Schemas`]. [`check`] applies the other rules, which need a parser (conditions, paths) or another object (the
//! HookTemplates of a workload). The webhook and the linter both call it, and thus report the same messages.
//!
//! Pure: no client, no clock, no async. The parser of conditions needs a deep stack: call these functions on a thread
//! with a stack of [`STACK_BYTES`](crate::expr::STACK_BYTES).

mod clusters;
mod exec;
mod finding;
mod hooks;
mod indexes;
mod labels;
mod metrics;
mod neighbors;
mod pods;
mod protection;
mod schema;
mod sidecar_sets;
#[cfg(test)]
mod tests;
mod workloads;

use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::api::{Cluster, GameDeployment, GameStatefulSet, HookRun, HookTemplate, SidecarSet};

pub use exec::disabled_commands;
pub use finding::{Finding, Severity, lies_in};
pub use labels::is_dns_label;
pub use neighbors::{Namespaces, Neighbor, conflicts_with_workloads, namespace};
pub use protection::another_budget;
pub use schema::{Schemas, unknown_fields};
pub use sidecar_sets::{conflicts_of_sidecar_sets, sidecar_set, unknown_revision};

/// The kinds that are checked.
pub const KINDS: [&str; 6] =
    ["Cluster", "GameDeployment", "GameStatefulSet", "HookRun", "HookTemplate", "SidecarSet"];

/// The HookTemplates that a workload can name.
pub struct Templates<'a> {
    /// Finds a template by its name.
    pub find: &'a dyn Fn(&str) -> Option<Arc<HookTemplate>>,
    /// Where the templates were looked up, as worded in messages.
    pub place: &'static str,
}

/// Checks an object against the rules that its CRD cannot express. Finds nothing if its kind is not in [`KINDS`].
pub fn check(object: &Value, templates: &Templates) -> Vec<Finding> {
    let kind = object["kind"].as_str().unwrap_or_default();
    let checked = match kind {
        "Cluster" => read(object).map(|it: Cluster| clusters::check_cluster(&it.spec)),
        "HookTemplate" => read(object).map(|it: HookTemplate| metrics::check_template(&it.spec)),
        "HookRun" => read(object).map(|it: HookRun| metrics::check_run(&it.spec)),
        "GameDeployment" => {
            read(object).map(|it: GameDeployment| workloads::check_game_deployment(&it, templates))
        }
        "GameStatefulSet" => read(object)
            .map(|it: GameStatefulSet| workloads::check_game_stateful_set(&it, templates)),
        "SidecarSet" => {
            read(object).map(|it: SidecarSet| sidecar_sets::check_sidecar_set(&it, object))
        }
        _ => return Vec::new(),
    };
    let mut findings = checked.unwrap_or_else(|unreadable| vec![unreadable]);
    findings.extend(schema::unknown_in_core_types(kind, object));
    findings
}

/// Decodes an object. A failure is only a warning, because an object that matches its schema but cannot be decoded was
/// written for another version of the operator.
fn read<K: DeserializeOwned>(object: &Value) -> Result<K, Finding> {
    K::deserialize(object).map_err(|error| {
        let message = format!("this version of the operator cannot decode it: {error}");
        Finding::error("", message).as_warning()
    })
}
