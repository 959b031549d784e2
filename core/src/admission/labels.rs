//! Labels and annotations: the keys that Kubernetes accepts, and the values of those that the operator reads.

use std::collections::BTreeMap;

use super::Finding;
use crate::api::names::{COST_SORT_METHOD, DELETION_ALLOW};

const KEY: &str = "must be a key such as example.com/team or team: letters, digits, '-', '_' and \
                   '.', with a letter or digit at both ends";

/// Whether a string is a valid label or annotation key: `[PREFIX/]NAME`.
pub(super) fn is_key(key: &str) -> bool {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    let is_name_character = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let is_letter_or_digit = |c: char| c.is_ascii_alphanumeric();
    let is_name = (1..=63).contains(&name.len())
        && name.chars().all(is_name_character)
        && name.starts_with(is_letter_or_digit)
        && name.ends_with(is_letter_or_digit);
    is_name && prefix.is_none_or(is_subdomain)
}

fn is_subdomain(name: &str) -> bool {
    name.len() <= 253 && name.split('.').all(is_dns_label)
}

/// Whether a name is a DNS label.
pub fn is_dns_label(name: &str) -> bool {
    let is_letter_or_digit = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    (1..=63).contains(&name.len())
        && name.chars().all(|c| is_letter_or_digit(c) || c == '-')
        && name.starts_with(is_letter_or_digit)
        && name.ends_with(is_letter_or_digit)
}

/// Finds the invalid keys of a field.
pub(super) fn invalid_keys<'a>(
    field: &str,
    keys: impl Iterator<Item = &'a String>,
) -> Vec<Finding> {
    keys.filter(|key| !is_key(key)).map(|key| Finding::invalid(field, key, KEY)).collect()
}

/// Finds labels and annotations of a workload that have an unknown value.
pub(super) fn check_workload(
    labels: Option<&BTreeMap<String, String>>,
    annotations: Option<&BTreeMap<String, String>>,
) -> Vec<Finding> {
    let require_one_of =
        |field: &str, map: Option<&BTreeMap<String, String>>, key: &str, values: [&str; 2]| {
            let value = map?.get(key)?;
            let [first, second] = values;
            (!values.contains(&value.as_str())).then(|| {
                Finding::invalid(
                    format!("{field}.{key}"),
                    value,
                    format!("must be {first} or {second}"),
                )
            })
        };
    let labels = require_one_of("metadata.labels", labels, DELETION_ALLOW, ["Always", "Cascading"]);
    let methods = ["ascend", "descend"];
    let annotations =
        require_one_of("metadata.annotations", annotations, COST_SORT_METHOD, methods);
    labels.into_iter().chain(annotations).collect()
}
