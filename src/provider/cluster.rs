//! What measurements read from the cluster, and write to it: the run's pod, and Secrets.

use std::time::Duration;

use http::{Request, header};
use k8s_openapi::ByteString;
use kube::Client;
use serde::Deserialize;
use serde_json::Value;
use tokio::time::timeout;

use crate::api::SecretKeyRef;

/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Label of the Secrets that hooks may read.
const HOOK_ACCESS: &str = "tkex.tencent.com/hook-access";

/// The cluster, as far as hooks may see it.
#[derive(Clone)]
pub(super) struct Cluster {
    client: Client,
}

#[derive(Deserialize)]
struct Secret {
    metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
    #[serde(default)]
    data: std::collections::BTreeMap<String, ByteString>,
}

impl Cluster {
    pub(super) fn new(client: Client) -> Self {
        Cluster { client }
    }

    /// Reads a pod.
    pub(super) async fn pod(&self, namespace: &str, name: &str) -> Result<Value, String> {
        let path = pod_path(namespace, name)?;
        let request = Request::get(path)
            .body(Vec::new())
            .map_err(|error| error.to_string())?;
        self.ask(&format!("pod {name}"), request).await
    }

    /// Merges a patch into a pod.
    pub(super) async fn patch_pod(
        &self,
        namespace: &str,
        name: &str,
        patch: &Value,
    ) -> Result<(), String> {
        let path = format!(
            "{}?fieldManager=gamekeeper-hooks",
            pod_path(namespace, name)?
        );
        let request = Request::patch(path)
            .header(header::CONTENT_TYPE, "application/merge-patch+json")
            .body(patch.to_string().into_bytes())
            .map_err(|error| error.to_string())?;
        self.ask::<Value>(&format!("pod {name}"), request)
            .await
            .map(drop)
    }

    /// Reads a key of a Secret that is labelled for hooks.
    pub(super) async fn secret(
        &self,
        namespace: &str,
        key: &SecretKeyRef,
    ) -> Result<String, String> {
        let SecretKeyRef { name, key } = key;
        let what = format!("secret {name}");
        let path = format!(
            "/api/v1/namespaces/{}/secrets/{}",
            safe(namespace)?,
            safe(name)?
        );
        let request = Request::get(path)
            .body(Vec::new())
            .map_err(|error| error.to_string())?;
        let mut secret: Secret = self.ask(&what, request).await?;
        let labels = secret.metadata.labels.unwrap_or_default();
        if labels.get(HOOK_ACCESS).map(String::as_str) != Some("true") {
            return Err(format!(
                "{what} is not for hooks: label it {HOOK_ACCESS}=true"
            ));
        }
        let value = secret
            .data
            .remove(key)
            .ok_or_else(|| format!("{what} has no key {key}"))?;
        String::from_utf8(value.0).map_err(|_| format!("{what}: key {key} is no text"))
    }

    async fn ask<T: for<'de> Deserialize<'de>>(
        &self,
        what: &str,
        request: Request<Vec<u8>>,
    ) -> Result<T, String> {
        match timeout(PATIENCE, self.client.request(request)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(kube::Error::Api(status))) => Err(status.message),
            Ok(Err(error)) => Err(format!("{what}: {error}")),
            Err(_) => Err(format!("{what}: the API server does not answer")),
        }
    }
}

fn pod_path(namespace: &str, name: &str) -> Result<String, String> {
    Ok(format!(
        "/api/v1/namespaces/{}/pods/{}",
        safe(namespace)?,
        safe(name)?
    ))
}

/// A name that can stand in a path; arguments could hold anything.
fn safe(name: &str) -> Result<&str, String> {
    let valid = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
    match !name.is_empty() && name != "." && name != ".." && name.chars().all(valid) {
        true => Ok(name),
        false => Err(format!("{name:?} is no name of an object")),
    }
}
