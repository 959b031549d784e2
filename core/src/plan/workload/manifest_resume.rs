//! Whether `paused: false` was set by a person or came with a manifest.
//!
//! A GitOps tool applies the whole manifest again at each sync. If that ended a canary's pause, every sync would
//! promote the build. So `paused: false` resumes a rollout only if a person intended it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};
use serde_json::Value;

use crate::api::names::{self, LAST_APPLIED};

/// Field managers of commands with which users change single fields, and the operator's own.
const DELIBERATE: [&str; 4] = [
    names::FIELD_MANAGER,
    names::PLUGIN_FIELD_MANAGER,
    "kubectl-edit",
    "kubectl-patch",
];

/// Whether spec.updateStrategy.paused got its value from an apply: server-side (the field belongs
/// to an Apply entry), or client-side (it is in the last-applied annotation, and no deliberate
/// command has written it since).
pub fn paused_came_with_an_apply(meta: &ObjectMeta) -> bool {
    let owners: Vec<&ManagedFieldsEntry> = meta
        .managed_fields
        .iter()
        .flatten()
        .filter(|entry| owns_paused(entry))
        .collect();
    if owners.iter().any(|entry| is_deliberate(entry)) {
        return false;
    }
    owners
        .iter()
        .any(|entry| entry.operation.as_deref() == Some("Apply"))
        || last_applied_has_paused(meta)
}

fn is_deliberate(entry: &ManagedFieldsEntry) -> bool {
    entry.operation.as_deref() != Some("Apply")
        && entry
            .manager
            .as_deref()
            .is_some_and(|manager| DELIBERATE.contains(&manager))
}

fn owns_paused(entry: &ManagedFieldsEntry) -> bool {
    entry
        .fields_v1
        .as_ref()
        .and_then(|fields| fields.0.pointer("/f:spec/f:updateStrategy/f:paused"))
        .is_some()
}

fn last_applied_has_paused(meta: &ObjectMeta) -> bool {
    meta.annotations
        .as_ref()
        .and_then(|annotations| annotations.get(LAST_APPLIED))
        .and_then(|text| serde_json::from_str::<Value>(text).ok())
        .is_some_and(|manifest| manifest.pointer("/spec/updateStrategy/paused").is_some())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn came_with_an_apply(manager: &str, operation: &str, in_last_applied: bool) -> bool {
        let annotations = if in_last_applied {
            json!({LAST_APPLIED: r#"{"spec":{"updateStrategy":{"paused":false}}}"#})
        } else {
            json!({LAST_APPLIED: r#"{"spec":{"replicas":3}}"#})
        };
        let meta = json!({
            "annotations": annotations,
            "managedFields": [
                {"manager": "other", "operation": "Apply", "fieldsV1": {"f:spec": {"f:replicas": {}}}},
                {"manager": manager, "operation": operation,
                 "fieldsV1": {"f:spec": {"f:updateStrategy": {"f:paused": {}}}}},
            ],
        });
        paused_came_with_an_apply(&serde_json::from_value(meta).expect("metadata"))
    }

    #[test]
    fn an_applied_value_does_not_resume() {
        for (manager, operation, in_last_applied, expected) in [
            ("kubectl-patch", "Update", false, false),
            ("kubectl-patch", "Update", true, false),
            ("kubectl-game", "Update", true, false),
            ("gamekeeper", "Update", true, false),
            ("dashboard", "Update", false, false),
            ("kubectl-client-side-apply", "Update", true, true),
            ("argocd-controller", "Update", true, true),
            ("argocd-controller", "Apply", false, true),
            ("kubectl-patch", "Apply", false, true),
        ] {
            assert_eq!(
                came_with_an_apply(manager, operation, in_last_applied),
                expected,
                "{manager} {operation}, in last-applied: {in_last_applied}"
            );
        }
    }
}
