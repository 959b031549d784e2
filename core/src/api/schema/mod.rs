//! The schemas of the CRDs: what the types' derives cannot say by themselves.
//!
//! What OpenAPI can say (bounds, enums, keys of lists) stands on the types as attributes. What it
//! cannot say is a CEL rule with a message that names the fix. A rule stands on the deepest field
//! it concerns, so that the API server's ratcheting lets old objects be written as long as that
//! field stays as it is; the one on the root binds on create only.
//!
//! Defaults stand in the schema, except inside of lists: kubectl and GitOps tools compare lists as a
//! whole and would find them changed for ever. There the description says what an absent field means.
//!
//! A CRD whose rules might cost too much is refused, so lists and texts that rules look at have an
//! upper bound. Servers before 1.34 take integer-or-string fields for megabytes of text whatever
//! their bound: rules on those use nothing that walks through the text.

mod core;
mod crds;
mod fields;
mod hook_rules;
mod rules;
#[cfg(test)]
mod tests;
mod workload_rules;

pub(super) use core::{job_spec, json_object, object_meta, pod_template, volume_claim_templates};
pub use crds::crds;
pub(super) use fields::{
    delay, interval, label_selector, pause_duration, pods_or_percentage, template_name, url,
};
pub(super) use hook_rules::*;
pub(super) use rules::{exactly_one_of, immutable};
pub(super) use workload_rules::*;
