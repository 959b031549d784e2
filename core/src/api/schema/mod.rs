//! The parts of the CRDs' schemas that cannot be derived from the types.
//!
//! Bounds, enums and list keys are attributes in the types. Everything else is a CEL rule with a message
//! that names the fix. Each rule is on the deepest field that it concerns: the API server's ratcheting
//! then allows writes to old objects as long as that field does not change. Rules on the root of an
//! object apply on create only, because every write changes the root.
//!
//! Defaults are in the schema, except within lists: kubectl and GitOps tools compare a list as a whole,
//! and would always find a difference if its items had defaults. There, the description of a field
//! states what its absence means.
//!
//! The API server refuses a CRD whose rules might cost too much, so the lists and strings that rules
//! read have an upper bound. API servers before 1.34 assume that an integer-or-string field may be
//! megabytes long, so rules on such fields must not iterate over the string.
//!
//! A rule must also compile on the oldest API server that is supported, which lacks newer functions, and
//! has other names for fields that are called like reserved words of CEL (`escaped`).

mod cluster_rules;
mod core;
mod crds;
mod fields;
mod hook_rules;
mod rules;
#[cfg(test)]
mod rules_of_old_servers;
mod sidecar_rules;
#[cfg(test)]
mod tests;
mod workload_rules;

pub(super) use cluster_rules::{no_credentials, node_path, node_selector, relative_path};
pub(super) use core::{
    job_spec, json_object, object_meta, pod_template, sidecar_containers, sidecar_volumes,
    volume_claim_templates,
};
pub use crds::crds;
pub(super) use fields::{
    any_list, any_object, batch, command, delay, interval, label_selector, limit, merged_by,
    patch_policy, pause_duration, pod_annotations, pod_selector, pods_or_percentage,
    possibly_empty_selector, pull_secrets, template_name, url,
};
pub(super) use hook_rules::{
    arguments_have_values, ca_or_insecure, in_braces, job_rules, metric_rules, one_timeout,
    one_value, patched_fields, rules_by_metric_name, some_time_to_live, web_rules,
};
pub(crate) use rules::escaped;
pub(super) use rules::{exactly_one_of, immutable};
pub(super) use sidecar_rules::{
    cold_upgrade, policy_always, revision_by_name, sidecar_container_rules, sidecar_set_name,
    sidecar_set_rules, sidecar_update_rules,
};
pub(super) use workload_rules::{
    always_restarted, deadline_after_first_rerun, dns_label_name, game_deployment_limits,
    game_stateful_set_limits, no_deadline, selector_matches_template, workload_name,
};
