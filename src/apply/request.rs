//! One request to the API server, and what its answer means for a plan.

use std::time::Duration;

use http::{Method, Request, StatusCode, header};
use kube::Client;
use kube::client::Body;
use kube::core::Status;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use gamekeeper_core::api::names::FIELD_MANAGER;

/// The timeout of one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// What we want of an object that was written: its metadata is enough.
const ACCEPT_METADATA: &str =
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";

/// How a body is to be understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// A whole object, or delete options.
    Object,
    /// RFC 6902, with tests.
    JsonPatch,
    /// RFC 7396.
    MergePatch,
    /// Kubernetes' own, which merges lists by key.
    StrategicPatch,
}

impl Content {
    fn mime(self) -> &'static str {
        match self {
            Content::Object => "application/json",
            Content::JsonPatch => "application/json-patch+json",
            Content::MergePatch => "application/merge-patch+json",
            Content::StrategicPatch => "application/strategic-merge-patch+json",
        }
    }
}

/// The metadata of the object in a response.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ResponseMetadata {
    pub uid: String,
    pub resource_version: String,
    pub generation: i64,
    /// When it began to be Terminating.
    pub deletion_timestamp: Option<String>,
    owner_references: Vec<Owner>,
    annotations: Annotations,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Owner {
    uid: String,
    controller: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Annotations {
    /// [`RUN_WORKLOAD_UID`](gamekeeper_core::api::names::RUN_WORKLOAD_UID).
    #[serde(rename = "gamekeeper.tkex.tencent.com/workload-uid")]
    workload: Option<String>,
}

impl ResponseMetadata {
    /// Whether it is a HookRun that was made for a workload and that nothing controls any more, as
    /// a deletion of the workload that orphans leaves it.
    pub(crate) fn is_left_over_run(&self) -> bool {
        let is_controlled = self.owner_references.iter().any(|owner| owner.controller);
        self.annotations.workload.is_some() && !is_controlled
    }

    /// Whether the object with this uid controls it.
    pub(crate) fn is_controlled_by(&self, uid: &str) -> bool {
        let mut owners = self.owner_references.iter();
        owners.any(|owner| owner.controller && owner.uid == uid)
    }

    /// The resourceVersion as a number.
    pub(crate) fn version(&self) -> u64 {
        self.resource_version.parse().unwrap_or_default()
    }
}

/// Why a request did not do what it was to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    /// The world is not as it was decided on: plan again.
    #[error("the object has changed in the meantime: {0}")]
    Conflict(String),
    /// An object of this name exists.
    #[error("{0}")]
    AlreadyExists(String),
    /// There is no such object.
    #[error("{0}")]
    NotFound(String),
    /// The API server will not have it.
    #[error("{0}")]
    Rejected(String),
    /// The server has no time for it: nothing was done.
    #[error("{message}")]
    Busy {
        /// Why.
        message: String,
        /// When the server wants to be asked again.
        after: Option<Duration>,
    },
    /// A failure, or no answer: whether it was done is unknown.
    #[error("{message}")]
    Unavailable {
        /// Why.
        message: String,
        /// When the server wants to be asked again.
        after: Option<Duration>,
    },
}

/// Sends requests.
#[derive(Clone)]
pub(crate) struct Requests {
    client: Client,
}

impl Requests {
    pub(crate) fn new(client: Client) -> Self {
        Self { client }
    }

    /// Reads an object's metadata, not from a cache.
    pub(crate) async fn get(&self, path: &str) -> Result<ResponseMetadata, Refusal> {
        self.send(Method::GET, path, Content::Object, Vec::new())
            .await
    }

    /// Creates an object; an unknown field is an error.
    pub(crate) async fn create(
        &self,
        collection: &str,
        body: Vec<u8>,
    ) -> Result<ResponseMetadata, Refusal> {
        let path = format!("{collection}?fieldValidation=Strict&fieldManager={FIELD_MANAGER}");
        self.send(Method::POST, &path, Content::Object, body).await
    }

    /// Asks whether an object could be created.
    pub(crate) async fn create_dry(
        &self,
        collection: &str,
        body: Vec<u8>,
    ) -> Result<ResponseMetadata, Refusal> {
        let path =
            format!("{collection}?dryRun=All&fieldValidation=Strict&fieldManager={FIELD_MANAGER}");
        self.send(Method::POST, &path, Content::Object, body).await
    }

    pub(crate) async fn patch(
        &self,
        path: &str,
        content: Content,
        body: Vec<u8>,
    ) -> Result<ResponseMetadata, Refusal> {
        let path = format!("{path}?fieldManager={FIELD_MANAGER}");
        self.send(Method::PATCH, &path, content, body).await
    }

    pub(crate) async fn put(&self, path: &str, body: Vec<u8>) -> Result<ResponseMetadata, Refusal> {
        let path = format!("{path}?fieldManager={FIELD_MANAGER}");
        self.send(Method::PUT, &path, Content::Object, body).await
    }

    /// Deletes an object if it is still the one with this uid.
    pub(crate) async fn delete(&self, path: &str, uid: &str) -> Result<ResponseMetadata, Refusal> {
        self.delete_within(path, uid, None, None).await
    }

    /// Deletes an object if it still has this uid and (where one is given) this resourceVersion.
    pub(crate) async fn delete_at(
        &self,
        path: &str,
        uid: &str,
        version: Option<u64>,
    ) -> Result<ResponseMetadata, Refusal> {
        self.delete_within(path, uid, version, None).await
    }

    /// Deletes a pod at once, without waiting for its node, if it is still the one with this uid.
    pub(crate) async fn force_delete(
        &self,
        path: &str,
        uid: &str,
    ) -> Result<ResponseMetadata, Refusal> {
        self.delete_within(path, uid, None, Some(0)).await
    }

    async fn delete_within(
        &self,
        path: &str,
        uid: &str,
        version: Option<u64>,
        seconds: Option<u32>,
    ) -> Result<ResponseMetadata, Refusal> {
        let version = version.map(|version| version.to_string());
        let options = serde_json::json!({
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": uid, "resourceVersion": version},
            "propagationPolicy": "Background",
            "gracePeriodSeconds": seconds,
        });
        self.send(Method::DELETE, path, Content::Object, to_bytes(&options))
            .await
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        content: Content,
        body: Vec<u8>,
    ) -> Result<ResponseMetadata, Refusal> {
        let patched = method == Method::PATCH;
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::ACCEPT, ACCEPT_METADATA)
            .header(header::CONTENT_TYPE, content.mime())
            .body(Body::from(body))
            .map_err(|error| unavailable(error.to_string()))?;
        let exchange = async {
            let response = self.client.send(request).await?;
            let (head, body) = response.into_parts();
            Ok::<_, kube::Error>((head, body.collect_bytes().await?))
        };
        let (head, body) = timeout(REQUEST_TIMEOUT, exchange)
            .await
            .map_err(|_| {
                unavailable(format!(
                    "no response within {} s",
                    REQUEST_TIMEOUT.as_secs()
                ))
            })?
            .map_err(|error| unavailable(error.to_string()))?;
        if head.status.is_success() {
            return Ok(metadata(&body));
        }
        let after = head.headers.get(header::RETRY_AFTER);
        let after = after.and_then(|seconds| seconds.to_str().ok()?.parse().ok());
        let status = serde_json::from_slice(&body).unwrap_or_else(|_| Status {
            message: String::from_utf8_lossy(&body).into_owned(),
            ..Status::default()
        });
        let after = after.map(Duration::from_secs);
        Err(Refusal::of(head.status, status, patched, after))
    }
}

fn unavailable(message: String) -> Refusal {
    Refusal::Unavailable {
        message,
        after: None,
    }
}

fn metadata(body: &[u8]) -> ResponseMetadata {
    #[derive(Default, Deserialize)]
    struct Object {
        #[serde(default)]
        metadata: ResponseMetadata,
    }
    // A deletion may be answered by a Status, whose metadata says nothing.
    let object: Object = serde_json::from_slice(body).unwrap_or_default();
    object.metadata
}

/// JSON as Kubernetes takes it.
pub(crate) fn to_bytes<T: Serialize>(value: &T) -> Vec<u8> {
    // Only maps with keys that are not text fail to serialize; our types have none.
    serde_json::to_vec(value).unwrap_or_default()
}

impl Refusal {
    /// What a status means. A patch that is refused by its own test, or names another uid, is a
    /// conflict, although the server calls it invalid.
    fn of(code: StatusCode, status: Status, patched: bool, after: Option<Duration>) -> Self {
        let message = status.message.clone();
        match code {
            StatusCode::CONFLICT if status.reason == "AlreadyExists" => {
                Refusal::AlreadyExists(message)
            }
            StatusCode::CONFLICT => Refusal::Conflict(message),
            StatusCode::NOT_FOUND => Refusal::NotFound(message),
            StatusCode::UNPROCESSABLE_ENTITY if patched && is_precondition(&status) => {
                Refusal::Conflict(message)
            }
            StatusCode::TOO_MANY_REQUESTS => Refusal::Busy { message, after },
            StatusCode::REQUEST_TIMEOUT => Refusal::Unavailable { message, after },
            code if code.is_server_error() => Refusal::Unavailable { message, after },
            _ => Refusal::Rejected(message),
        }
    }
}

/// Whether a patch was refused because something was not as it was decided on.
fn is_precondition(status: &Status) -> bool {
    let Some(details) = &status.details else {
        return true;
    };
    // A JSON patch that does not apply names no object at all.
    details.kind.is_empty() || details.causes.iter().any(|it| it.field == "metadata.uid")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn refusal(code: u16, status: Value, patched: bool) -> Refusal {
        let status = serde_json::from_value(status).unwrap();
        Refusal::of(StatusCode::from_u16(code).unwrap(), status, patched, None)
    }

    #[test]
    fn a_test_that_failed_and_another_uid_mean_plan_again() {
        let failed_test = json!({"reason": "Invalid", "details": {}, "message": "m"});
        let other_uid = json!({"reason": "Invalid", "details": {
            "kind": "Pod",
            "causes": [{"reason": "FieldValueInvalid", "field": "metadata.uid", "message": "m"}],
        }});
        for status in [failed_test, other_uid] {
            assert!(matches!(refusal(422, status, true), Refusal::Conflict(_)));
        }
        let conflict = json!({"reason": "Conflict"});
        assert!(matches!(
            refusal(409, conflict, false),
            Refusal::Conflict(_)
        ));
    }

    #[test]
    fn an_invalid_object_is_rejected_with_the_servers_words() {
        let status = json!({"reason": "Invalid", "message": "no such image", "details": {
            "kind": "Pod",
            "causes": [{"reason": "FieldValueInvalid", "field": "spec.image", "message": "m"}],
        }});
        let expected = Refusal::Rejected("no such image".into());
        assert_eq!(refusal(422, status.clone(), true), expected);
        assert_eq!(refusal(422, status, false), expected);
        let quota = json!({"reason": "Forbidden", "message": "exceeded quota"});
        let expected = Refusal::Rejected("exceeded quota".into());
        assert_eq!(refusal(403, quota, false), expected);
    }

    #[test]
    fn too_many_requests_and_a_failing_server_mean_later() {
        for code in [408, 500, 503, 504] {
            let refused = refusal(code, json!({}), false);
            assert!(matches!(refused, Refusal::Unavailable { .. }), "{code}");
        }
        assert!(matches!(
            refusal(429, json!({}), false),
            Refusal::Busy { .. }
        ));
    }
}
