//! Whether `paused: false` was set by a person or came with a manifest.
//!
//! A GitOps tool applies the whole manifest again at each sync. If that ended a canary's pause, every sync would
//! promote the build. So `paused: false` resumes a rollout only if a person intended it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{FieldsV1, ManagedFieldsEntry, ObjectMeta};
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};
use serde_json::json;

use crate::api::names::{self, LAST_APPLIED};

/// Field managers of commands with which users change single fields, and the operator's own. As `argocd-server`, Argo CD
/// carries out the actions of its users; it syncs as `argocd-controller`.
const DELIBERATE: [&str; 5] = [
    names::FIELD_MANAGER,
    names::PLUGIN_FIELD_MANAGER,
    "kubectl-edit",
    "kubectl-patch",
    "argocd-server",
];

/// Whether spec.updateStrategy.paused got its value from an apply: server-side (the field belongs
/// to an Apply entry), or client-side (it is in the last-applied annotation, and no deliberate
/// command has written it since).
pub(super) fn paused_came_with_an_apply(meta: &ObjectMeta) -> bool {
    let owners: Vec<&ManagedFieldsEntry> =
        meta.managed_fields.iter().flatten().filter(|entry| owns_paused(entry)).collect();
    if owners.iter().any(|entry| is_deliberate(entry)) {
        return false;
    }
    owners.iter().any(|entry| entry.operation.as_deref() == Some("Apply"))
        || last_applied_has_paused(meta)
}

fn is_deliberate(entry: &ManagedFieldsEntry) -> bool {
    entry.operation.as_deref() != Some("Apply")
        && entry.manager.as_deref().is_some_and(|manager| DELIBERATE.contains(&manager))
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
        .and_then(|text| serde_json::from_str::<Applied>(text).ok())
        .is_some_and(|applied| applied.spec.update_strategy.paused.is_some())
}

/// The part of an applied manifest that is read. The rest may be any JSON that fits into an annotation, and would take
/// eighty times its length as maps.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Applied {
    spec: AppliedSpec,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct AppliedSpec {
    update_strategy: AppliedStrategy,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct AppliedStrategy {
    #[serde(deserialize_with = "is_there")]
    paused: Option<()>,
}

/// Some if the field is there, whatever its value.
fn is_there<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<()>, D::Error> {
    IgnoredAny::deserialize(deserializer).map(|_| Some(()))
}

/// The managed fields of a workload without the fields that do not matter here. They name each field of the template,
/// and take as much memory as the template would as maps.
pub fn managed_fields_to_keep(fields: Vec<ManagedFieldsEntry>) -> Vec<ManagedFieldsEntry> {
    let owners = fields.into_iter().filter(owns_paused);
    let slim = owners.map(|entry| ManagedFieldsEntry {
        fields_v1: Some(FieldsV1(json!({"f:spec": {"f:updateStrategy": {"f:paused": {}}}}))),
        ..entry
    });
    slim.collect()
}

#[cfg(test)]
mod tests {
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
            ("argocd-server", "Update", true, false),
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
