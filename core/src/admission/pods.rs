//! Pod templates: the part of the API server's validation that needs no server. The operator always does a dry run
//! before it changes a running pod; these findings come earlier.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::Finding;
use super::labels;
use crate::api::names::claim_template_name;

const DNS_LABEL: &str = "must be a DNS label: lower case letters, digits and '-', with a letter or \
                         digit at both ends, at most 63 characters";

/// Checks the template at field `at`. `claims` are the claim templates, which also define volumes.
pub(super) fn check_template(at: &str, template: &Value, claims: &[Value]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for map in ["labels", "annotations"] {
        let field = format!("{at}.metadata.{map}");
        let entries = template["metadata"][map].as_object().into_iter();
        findings.extend(labels::invalid_keys(&field, entries.flat_map(Map::keys)));
    }
    findings.extend(check_spec(&format!("{at}.spec"), &template["spec"], claims));
    findings
}

/// Checks the containers in the spec at field `at`, which is the spec of a pod template or of a SidecarSet.
pub(super) fn check_spec(at: &str, spec: &Value, claims: &[Value]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let claims = claims.iter().map(claim_template_name);
    let volumes = Volumes {
        field: format!("{at}.volumes"),
        names: names(&spec["volumes"]).chain(claims).collect(),
    };
    let regular: BTreeSet<&str> = names(&spec["containers"]).collect();
    for list in ["initContainers", "containers"] {
        for (index, container) in spec[list].as_array().into_iter().flatten().enumerate() {
            let field = format!("{at}.{list}[{index}]");
            findings.extend(check_container(&field, container, &volumes));
            let name = container["name"].as_str().unwrap_or_default();
            // The CRD refuses duplicates within a list.
            if list == "initContainers" && regular.contains(name) {
                let fix = "is also the name of a regular container; rename one of them";
                findings.push(Finding::duplicate(format!("{field}.name"), name, fix));
            }
        }
    }
    findings
}

/// The volumes of a spec, and the field to which more can be added.
struct Volumes<'a> {
    field: String,
    names: BTreeSet<&'a str>,
}

fn names(list: &Value) -> impl Iterator<Item = &str> {
    let items = list.as_array().into_iter().flatten();
    items.filter_map(|item| item["name"].as_str())
}

fn check_container(field: &str, container: &Value, volumes: &Volumes) -> Vec<Finding> {
    let mut findings = Vec::new();
    let name = container["name"].as_str().unwrap_or_default();
    if !labels::is_dns_label(name) {
        findings.push(Finding::invalid(format!("{field}.name"), name, DNS_LABEL));
    }
    let image = container["image"].as_str().unwrap_or_default();
    if image.is_empty() {
        let message = "Required value: set the image of the container";
        findings.push(Finding::error(format!("{field}.image"), message));
    } else if image.trim() != image {
        let fix = "must not have leading or trailing whitespace";
        findings.push(Finding::invalid(format!("{field}.image"), image, fix));
    }
    findings.extend(check_quantities(field, &container["resources"]));
    let mounts = container["volumeMounts"].as_array().into_iter().flatten();
    for (index, mount) in mounts.enumerate() {
        let name = mount["name"].as_str().unwrap_or_default();
        if !name.is_empty() && !volumes.names.contains(name) {
            let list = &volumes.field;
            let message = format!("Not found: {name:?}: no volume has this name; add it to {list}");
            let field = format!("{field}.volumeMounts[{index}].name");
            findings.push(Finding::error(field, message));
        }
    }
    findings
}

/// Finds quantities that are neither strings nor numbers. A structural schema cannot require "a string or a number",
/// and the API server does not name the field.
fn check_quantities(field: &str, resources: &Value) -> Vec<Finding> {
    let lists = ["limits", "requests"].into_iter();
    let all = lists.flat_map(|list| {
        let quantities = resources[list].as_object().into_iter().flatten();
        quantities.map(move |(name, quantity)| (list, name, quantity))
    });
    let invalid = all.filter(|(_, _, it)| it.is_boolean() || it.is_array() || it.is_object());
    invalid
        .map(|(list, name, quantity)| {
            let why =
                format!("Invalid value: {quantity}: must be a quantity, such as 500m, 2 or 1Gi");
            Finding::error(format!("{field}.resources.{list}.{name}"), why)
        })
        .collect()
}

/// Checks the names of claim templates.
pub(super) fn check_claims(claims: &[Value]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut seen = BTreeSet::new();
    for (index, name) in claims.iter().map(claim_template_name).enumerate() {
        let field = format!("spec.volumeClaimTemplates[{index}].metadata.name");
        if !labels::is_dns_label(name) {
            findings.push(Finding::invalid(&field, name, DNS_LABEL));
        }
        if !seen.insert(name) {
            findings.push(Finding::duplicate(field, name, "rename one of the two"));
        }
    }
    findings
}
