//! The service account of an operator, with the permissions of the chart's roles and no others.

use anyhow::Result;
use serde_json::{Value, json};

use crate::cluster::control_plane::ControlPlane;

/// Creates a service account with the operator's roles.
pub(super) async fn grant(plane: &ControlPlane, namespace: &str, account: &str) -> Result<()> {
    let mut permissions = plane.permissions.clone();
    permissions.retain(|object| object["kind"] != "ClusterRole");
    for object in &mut permissions {
        move_to(object, namespace, account);
    }
    plane.apply(&permissions).await
}

/// Moves an object of the chart to another namespace and service account. ClusterRoles are shared.
fn move_to(object: &mut Value, namespace: &str, account: &str) {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let moved = match object["kind"].as_str().unwrap_or_default() {
        "ServiceAccount" => account.to_owned(),
        "RoleBinding" => format!("{name}-{account}"),
        "ClusterRoleBinding" => format!("{name}-{account}-{namespace}"),
        _ => name.to_owned(),
    };
    object["metadata"]["name"] = json!(moved);
    if object["metadata"]["namespace"].is_string() {
        object["metadata"]["namespace"] = json!(namespace);
    }
    if object["subjects"].is_array() {
        object["subjects"][0]["namespace"] = json!(namespace);
        object["subjects"][0]["name"] = json!(account);
    }
}
