//! Admission: what is wrong with a manifest, told before it is stored.
//!
//! Two layers of rules. The first is in the CRDs, and the API server itself enforces it;
//! [`Schemas`] says the same offline. The second is what a CRD cannot say, because it takes a parser
//! (conditions, paths), or a look at another object (templates and the workloads that name them):
//! [`check`]. The webhook and the linter both ask here, so that both use the same words.
//!
//! Pure: no client, clock or async. Parsing conditions takes a deep stack: call all of it on a
//! thread with a stack of [`STACK_BYTES`](crate::expr::STACK_BYTES).

mod finding;
mod hooks;
mod labels;
mod metrics;
mod pods;
mod schema;
#[cfg(test)]
mod tests;
mod workloads;

use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::api::{GameDeployment, GameStatefulSet, HookRun, HookTemplate};

pub use finding::{Finding, Severity, lies_in};
pub use labels::is_dns_label;
pub use schema::{Schemas, unknown_fields};

/// The kinds that are checked.
pub const KINDS: [&str; 4] = [
    "GameDeployment",
    "GameStatefulSet",
    "HookRun",
    "HookTemplate",
];

/// The HookTemplates that a workload can name.
pub struct Templates<'a> {
    /// Finds one by its name.
    pub find: &'a dyn Fn(&str) -> Option<Arc<HookTemplate>>,
    /// Where it was looked for, as a message says it.
    pub place: &'static str,
}

/// What is wrong with an object, beyond what its CRD says. Kinds that are not ours are fine.
pub fn check(object: &Value, templates: &Templates) -> Vec<Finding> {
    let kind = object["kind"].as_str().unwrap_or_default();
    let checked = match kind {
        "HookTemplate" => read(object).map(|it: HookTemplate| metrics::of_template(&it.spec)),
        "HookRun" => read(object).map(|it: HookRun| metrics::of_run(&it.spec)),
        "GameDeployment" => {
            read(object).map(|it: GameDeployment| workloads::of_deployment(&it, templates))
        }
        "GameStatefulSet" => {
            read(object).map(|it: GameStatefulSet| workloads::of_set(&it, templates))
        }
        _ => return Vec::new(),
    };
    let mut findings = checked.unwrap_or_else(|unreadable| vec![unreadable]);
    findings.extend(schema::unknown_to_us(kind, object));
    findings
}

/// Reads an object. One that its schema takes and we cannot read was made for another version.
fn read<K: DeserializeOwned>(object: &Value) -> Result<K, Finding> {
    K::deserialize(object).map_err(|error| {
        let message = format!("this version of the operator cannot decode it: {error}");
        Finding::error("", message).as_warning()
    })
}
