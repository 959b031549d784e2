//! What measurements read from the cluster, and write to it: the run's pod, Secrets, and Jobs.

use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request, header};
use k8s_openapi::ByteString;
use kube::Client;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::job::{Job, Pod};
use crate::api::SecretKeyRef;
use crate::fair::{Sizes, Turns};

/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Requests at a time; more wait for their turn.
const REQUESTS: Sizes = Sizes {
    all: 64,
    most: 48,
    own: 4,
};
/// Pods of a Job that are looked at: anybody may give pods its label.
const PODS_OF_JOB: usize = 20;
/// Who writes, in managed fields.
const FIELD_MANAGER: &str = "gamekeeper-hooks";
/// Label of the Secrets that hooks may read.
const HOOK_ACCESS: &str = "tkex.tencent.com/hook-access";

/// The cluster, as far as hooks may see it.
#[derive(Clone)]
pub(super) struct Cluster {
    client: Client,
    turns: Arc<Turns>,
}

/// Why the API server did not do what it was asked.
struct Refused {
    /// HTTP status; 0 where there was none.
    code: u16,
    message: String,
}

impl Refused {
    fn without_answer(message: String) -> Self {
        Refused { code: 0, message }
    }
}

impl From<Refused> for String {
    fn from(refused: Refused) -> String {
        refused.message
    }
}

#[derive(Deserialize)]
struct List {
    items: Vec<Pod>,
}

#[derive(Deserialize)]
struct Secret {
    metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
    #[serde(default)]
    data: std::collections::BTreeMap<String, ByteString>,
}

impl Cluster {
    pub(super) fn new(client: Client) -> Self {
        Cluster {
            client,
            turns: Arc::new(Turns::new(REQUESTS)),
        }
    }

    /// Reads a pod.
    pub(super) async fn pod(&self, namespace: &str, name: &str) -> Result<Value, String> {
        let path = path("/api/v1", namespace, "pods", name)?;
        Ok(self.get(&format!("pod {name}"), &path).await?)
    }

    /// Merges a patch into a pod.
    pub(super) async fn patch_pod(
        &self,
        namespace: &str,
        name: &str,
        patch: &Value,
    ) -> Result<(), String> {
        let path = path("/api/v1", namespace, "pods", name)?;
        let path = format!("{path}?fieldManager={FIELD_MANAGER}");
        let what = format!("pod {name}");
        let patch = patch.to_string().into_bytes();
        self.send::<IgnoredAny>(&what, Method::PATCH, &path, patch)
            .await?;
        Ok(())
    }

    /// Creates a Job; None where there is one of that name already.
    pub(super) async fn create_job(
        &self,
        namespace: &str,
        job: String,
    ) -> Result<Option<Job>, String> {
        let path = path("/apis/batch/v1", namespace, "jobs", "")?;
        let path = format!("{path}?fieldValidation=Strict&fieldManager={FIELD_MANAGER}");
        match self
            .send("the job", Method::POST, &path, job.into_bytes())
            .await
        {
            Ok(job) => Ok(Some(job)),
            Err(Refused { code: 409, .. }) => Ok(None),
            Err(refused) => Err(refused.into()),
        }
    }

    /// Reads a Job; None where there is none.
    pub(super) async fn job(&self, namespace: &str, name: &str) -> Result<Option<Job>, String> {
        let path = path("/apis/batch/v1", namespace, "jobs", name)?;
        match self.get(&format!("job {name}"), &path).await {
            Ok(job) => Ok(Some(job)),
            Err(Refused { code: 404, .. }) => Ok(None),
            Err(refused) => Err(refused.into()),
        }
    }

    /// Deletes a Job with its pods, if there is one.
    pub(super) async fn delete_job(&self, namespace: &str, name: &str) -> Result<(), String> {
        let path = path("/apis/batch/v1", namespace, "jobs", name)?;
        let options = json!({
            "apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background",
        });
        let what = format!("job {name}");
        let options = options.to_string().into_bytes();
        let answer = self.send::<IgnoredAny>(&what, Method::DELETE, &path, options);
        match answer.await {
            Ok(_) | Err(Refused { code: 404, .. }) => Ok(()),
            Err(refused) => Err(refused.into()),
        }
    }

    /// Pods of a Job, the first of them.
    pub(super) async fn pods_of_job(&self, namespace: &str, job: &str) -> Result<Vec<Pod>, String> {
        let path = path("/api/v1", namespace, "pods", "")?;
        let path = format!(
            "{path}?limit={PODS_OF_JOB}&labelSelector=batch.kubernetes.io/job-name={}",
            safe(job)?
        );
        let list: List = self.get(&format!("pods of job {job}"), &path).await?;
        Ok(list.items)
    }

    /// Reads a key of a Secret that is labelled for hooks.
    pub(super) async fn secret(
        &self,
        namespace: &str,
        key: &SecretKeyRef,
    ) -> Result<String, String> {
        let SecretKeyRef { name, key } = key;
        let what = format!("secret {name}");
        let path = path("/api/v1", namespace, "secrets", name)?;
        let mut secret: Secret = self.get(&what, &path).await?;
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

    async fn get<T: for<'de> Deserialize<'de>>(
        &self,
        what: &str,
        path: &str,
    ) -> Result<T, Refused> {
        self.send(what, Method::GET, path, Vec::new()).await
    }

    async fn send<T: for<'de> Deserialize<'de>>(
        &self,
        what: &str,
        method: Method,
        path: &str,
        body: Vec<u8>,
    ) -> Result<T, Refused> {
        let failed =
            |why: &dyn std::fmt::Display| Refused::without_answer(format!("{what}: {why}"));
        let content = match method {
            Method::PATCH => "application/merge-patch+json",
            _ => "application/json",
        };
        let request = Request::builder().method(method).uri(path);
        let request = request.header(header::CONTENT_TYPE, content).body(body);
        let request = request.map_err(|error| failed(&error))?;
        let _turn = self.turns.take(namespace_of(path)).await;
        match timeout(PATIENCE, self.client.request(request)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(kube::Error::Api(status))) => Err(Refused {
                code: status.code,
                message: status.message,
            }),
            Ok(Err(error)) => Err(failed(&error)),
            Err(_) => Err(failed(&"the API server does not answer")),
        }
    }
}

/// The path of an object, or of a collection where the name is empty.
fn path(api: &str, namespace: &str, resource: &str, name: &str) -> Result<String, String> {
    let namespace = safe(namespace)?;
    Ok(match name {
        "" => format!("{api}/namespaces/{namespace}/{resource}"),
        name => format!("{api}/namespaces/{namespace}/{resource}/{}", safe(name)?),
    })
}

/// The namespace of a path of an object or collection.
fn namespace_of(path: &str) -> &str {
    let after = path.split_once("/namespaces/").map(|(_, after)| after);
    after
        .and_then(|it| it.split('/').next())
        .unwrap_or_default()
}

/// A name that can stand in a path; arguments could hold anything.
fn safe(name: &str) -> Result<&str, String> {
    let valid = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
    match !name.is_empty() && name != "." && name != ".." && name.chars().all(valid) {
        true => Ok(name),
        false => Err(format!("{name:?} is no name of an object")),
    }
}
