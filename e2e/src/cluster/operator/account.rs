//! The service account of an operator, with the permissions of the chart's roles and no others.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use judge::object::text;
use serde_json::{Value, json};

use crate::cluster::control_plane::ControlPlane;
use crate::wait::eventually;

/// How long an operator can use its token.
const TOKEN_SECONDS: i64 = 4 * 60 * 60;

/// Creates a service account with the operator's roles. Accounts in the same namespace share these roles.
pub(super) async fn grant(plane: &ControlPlane, namespace: &str, account: &str) -> Result<()> {
    let moved_to_account = |object: &Value| {
        let mut object = object.clone();
        move_to(&mut object, namespace, account);
        object
    };
    let permissions = plane.permissions.iter();
    let permissions = permissions.filter(|object| object["kind"] != "ClusterRole");
    let permissions: Vec<Value> = permissions.map(moved_to_account).collect();
    let created = permissions.iter().map(async |object| {
        match plane.create(&collection(object), object).await {
            Err(error) if already_exists(&error) => Ok(()),
            created => created.map(drop),
        }
    });
    try_join_all(created).await?;
    let user = format!("system:serviceaccount:{namespace}:{account}");
    let bindings = permissions.iter().filter(|object| object["roleRef"].is_object());
    try_join_all(bindings.map(|binding| until_in_force(plane, namespace, &user, binding))).await?;
    Ok(())
}

/// Waits until the API server's authorizer, which caches roles and bindings, grants what a binding's role allows.
async fn until_in_force(
    plane: &ControlPlane,
    namespace: &str,
    user: &str,
    binding: &Value,
) -> Result<()> {
    let reference = &binding["roleRef"];
    let mut roles = plane.permissions.iter();
    let role = roles
        .find(|it| it["kind"] == reference["kind"] && it["metadata"]["name"] == reference["name"]);
    let rule = &role.with_context(|| format!("the chart has no {reference}"))?["rules"][0];
    let (resource, subresource) = match text(rule, "/resources/0").split_once('/') {
        Some(pair) => pair,
        None => (text(rule, "/resources/0"), ""),
    };
    let review = json!({"spec": {"user": user, "resourceAttributes": {
        "namespace": namespace, "verb": rule["verbs"][0], "group": rule["apiGroups"][0],
        "resource": resource, "subresource": subresource, "name": rule["resourceNames"][0],
    }}});
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    eventually("a role is in force", Duration::from_secs(60), async || {
        let response = plane.create(path, &review).await?;
        ensure!(response["status"]["allowed"] == true, "{response}");
        Ok(())
    })
    .await
}

/// A token of a service account.
pub(super) async fn token(plane: &ControlPlane, namespace: &str, account: &str) -> Result<String> {
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token");
    let request = json!({"spec": {"expirationSeconds": TOKEN_SECONDS}});
    let response = plane.create(&path, &request).await?;
    let token = response["status"]["token"].as_str();
    Ok(token.context("the response has no token")?.to_owned())
}

/// The API path at which an object is created.
fn collection(object: &Value) -> String {
    let plural = format!("{}s", text(object, "/kind").to_lowercase());
    let api = match text(object, "/apiVersion") {
        "v1" => "/api/v1".to_owned(),
        version => format!("/apis/{version}"),
    };
    match text(object, "/metadata/namespace") {
        "" => format!("{api}/{plural}"),
        namespace => format!("{api}/namespaces/{namespace}/{plural}"),
    }
}

fn already_exists(error: &anyhow::Error) -> bool {
    let status = error.downcast_ref::<kube::Error>();
    matches!(status, Some(kube::Error::Api(status)) if status.is_already_exists())
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
