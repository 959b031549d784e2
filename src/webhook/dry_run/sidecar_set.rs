//! The dry run of a SidecarSet, which validates its containers as those of a pod template.

use serde_json::{Value, json};

use gamekeeper_core::admission::Finding;
use gamekeeper_core::sidecar_set::without_options;

/// The fields of a SidecarSet that a pod has, too.
const FIELDS: [&str; 4] = ["initContainers", "containers", "volumes", "imagePullSecrets"];
/// The prefixes of these fields' paths: in findings about a workload's template, and in a set.
const IN_TEMPLATE: &str = "spec.template.spec.";
const IN_SET: &str = "spec.";

/// Whether an object is a SidecarSet.
pub(super) fn is_sidecar_set(object: &Value) -> bool {
    object["kind"] == "SidecarSet" && object["spec"].is_object()
}

/// Whether new pods would get something different.
pub(super) fn differs(set: &Value, old: &Value) -> bool {
    FIELDS.iter().any(|field| set["spec"][field] != old["spec"][field])
}

/// The template of a pod that has only the set's containers.
pub(super) fn template(set: &Value) -> Value {
    let mut spec = json!({});
    for field in FIELDS {
        let items = set["spec"][field].as_array().into_iter().flatten();
        let items: Vec<Value> = items.map(without_options).collect();
        if !items.is_empty() {
            spec[field] = Value::Array(items);
        }
    }
    if spec["containers"].is_null() {
        // A pod needs at least one container that is not an init container.
        spec["containers"] = json!([{"name": "gamekeeper-dry-run", "image": "any"}]);
    }
    json!({"metadata": {}, "spec": spec})
}

/// Converts a finding about the set's template into a finding about the set.
pub(super) fn finding_in_set(finding: &Finding) -> Finding {
    let field = match finding.field.strip_prefix(IN_TEMPLATE) {
        Some(rest) => format!("{IN_SET}{rest}"),
        None => "spec".to_owned(),
    };
    Finding::error(field, finding.message.replace(IN_TEMPLATE, IN_SET))
}
