//! Requests to the API server, and what their responses mean for a plan.

use std::time::Duration;

use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Bytes;
use kube::Client;
use kube::client::Body;
use kube::core::Status;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::{Instant, timeout};

use crate::runtime::fair::{SendBefore, TooLate};
use gamekeeper_core::api::names::FIELD_MANAGER;
use gamekeeper_core::text::truncate;
pub(crate) use gamekeeper_core::write::{Content, Refusal};

/// The timeout of one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// The longest response that is read, in bytes: longer than any object. What clients create decides how long a list is.
const MAX_RESPONSE: usize = 16 << 20;
/// The longest message of a refusal, in characters. The API server quotes what it refuses, however long that is, and
/// refusals are remembered, logged and shown in conditions and events.
const MAX_MESSAGE: usize = 2_000;
const JSON: &str = "application/json";
/// The Accept header for responses that contain only metadata.
const ACCEPT_METADATA: &str =
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
/// The same for lists.
const ACCEPT_LIST_OF_METADATA: &str =
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

/// The body of a request.
enum Payload {
    /// A whole object, delete options, or nothing.
    Object(Vec<u8>),
    Patch(Content, Vec<u8>),
    /// An object to apply on the server's side.
    Apply(Vec<u8>),
}

impl Payload {
    /// The content type, and the bytes.
    fn into_parts(self) -> (&'static str, Vec<u8>) {
        match self {
            Payload::Object(body) => (JSON, body),
            Payload::Patch(Content::JsonPatch, body) => ("application/json-patch+json", body),
            Payload::Patch(Content::MergePatch, body) => ("application/merge-patch+json", body),
            Payload::Patch(Content::StrategicPatch, body) => {
                ("application/strategic-merge-patch+json", body)
            }
            Payload::Apply(body) => ("application/apply-patch+yaml", body),
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
    /// The annotation [`RUN_WORKLOAD_UID`](gamekeeper_core::api::names::RUN_WORKLOAD_UID).
    #[serde(rename = "gamekeeper.tkex.tencent.com/workload-uid")]
    workload: Option<String>,
}

impl ResponseMetadata {
    /// Whether the object is a HookRun whose workload was deleted with `--cascade=orphan`.
    pub(crate) fn is_orphaned_run(&self) -> bool {
        let is_controlled = self.owner_references.iter().any(|owner| owner.controller);
        self.annotations.workload.is_some() && !is_controlled
    }

    /// Whether the object with this uid controls this one.
    pub(crate) fn is_controlled_by(&self, uid: &str) -> bool {
        let mut owners = self.owner_references.iter();
        owners.any(|owner| owner.controller && owner.uid == uid)
    }

    /// Whether the object with this uid is an owner of this one.
    pub(crate) fn is_owned_by(&self, uid: &str) -> bool {
        self.owner_references.iter().any(|owner| owner.uid == uid)
    }

    /// Whether this is still the object of that uid, at that generation, and is being deleted only if it was then.
    pub(crate) fn is_still(&self, uid: &str, generation: i64, deleting: bool) -> bool {
        self.uid == uid
            && self.generation == generation
            && self.deletion_timestamp.is_some() == deleting
    }

    /// The resourceVersion as a number; 0 if it is not a number.
    pub(crate) fn version(&self) -> u64 {
        self.resource_version.parse().unwrap_or_default()
    }
}

pub(crate) type RequestResult = Result<ResponseMetadata, Refusal>;

/// How much of a stored object a response contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reads {
    Metadata,
    Object,
}

/// An object as the API server stored it, or would store it.
#[derive(Debug)]
pub(crate) struct Stored {
    pub metadata: ResponseMetadata,
    /// The object, or the part of it that the response contains.
    pub object: Value,
}

/// How an object is deleted.
struct DeleteOptions<'a> {
    uid: &'a str,
    version: Option<u64>,
    propagation: &'static str,
    grace_seconds: Option<u32>,
}

impl<'a> DeleteOptions<'a> {
    /// The object with this uid is deleted first, and then its dependents.
    fn of(uid: &'a str) -> Self {
        Self { uid, version: None, propagation: "Background", grace_seconds: None }
    }
}

#[derive(Clone)]
pub(crate) struct Requests {
    client: Client,
    /// The latest time at which a request may be sent.
    send_before: Option<SendBefore>,
}

impl Requests {
    pub(crate) fn new(client: Client) -> Self {
        Self { client, send_before: None }
    }

    /// The same, for requests that rest on a proof which expires at this time. Requests that have to wait longer are not
    /// sent.
    pub(crate) fn sent_before(&self, deadline: Instant) -> Self {
        Self { client: self.client.clone(), send_before: Some(SendBefore(deadline)) }
    }

    /// Reads an object's metadata with a quorum read.
    pub(crate) async fn get(&self, path: &str) -> RequestResult {
        self.send(Method::GET, path, Payload::Object(Vec::new())).await
    }

    /// Reads an object, and returns those of its fields that `T` has. This is a quorum read, unless
    /// the path has a resourceVersion.
    pub(crate) async fn read<T: DeserializeOwned>(&self, path: &str) -> Result<T, Refusal> {
        self.read_within(path, JSON, MAX_RESPONSE).await
    }

    /// The same, for a list of which only the metadata of its objects are read.
    pub(crate) async fn read_list_of_metadata<T: DeserializeOwned>(
        &self,
        path: &str,
    ) -> Result<T, Refusal> {
        self.read_within(path, ACCEPT_LIST_OF_METADATA, MAX_RESPONSE).await
    }

    /// The same, unless the response is longer than `max` bytes. Many may be read at a time.
    pub(crate) async fn read_short<T: DeserializeOwned>(
        &self,
        path: &str,
        max: usize,
    ) -> Result<T, Refusal> {
        self.read_within(path, JSON, max).await
    }

    async fn read_within<T: DeserializeOwned>(
        &self,
        path: &str,
        accept: &str,
        max: usize,
    ) -> Result<T, Refusal> {
        let nothing = Payload::Object(Vec::new());
        let body = self.exchange(Method::GET, path, accept, nothing, max).await?;
        serde_json::from_slice(&body).map_err(|error| Refusal::Rejected(error.to_string()))
    }

    /// Creates an object; an unknown field is an error.
    pub(crate) async fn create(
        &self,
        collection: &str,
        body: Vec<u8>,
        reads: Reads,
    ) -> Result<Stored, Refusal> {
        let path = format!("{collection}?fieldValidation=Strict&fieldManager={FIELD_MANAGER}");
        self.store(Method::POST, &path, Payload::Object(body), reads).await
    }

    /// Like [`Self::create`], but as a server-side dry run.
    pub(crate) async fn dry_run_create(
        &self,
        collection: &str,
        body: Vec<u8>,
        reads: Reads,
    ) -> Result<Stored, Refusal> {
        let path =
            format!("{collection}?dryRun=All&fieldValidation=Strict&fieldManager={FIELD_MANAGER}");
        self.store(Method::POST, &path, Payload::Object(body), reads).await
    }

    pub(crate) async fn patch(&self, path: &str, content: Content, body: Vec<u8>) -> RequestResult {
        let path = format!("{path}?fieldManager={FIELD_MANAGER}");
        self.send(Method::PATCH, &path, Payload::Patch(content, body)).await
    }

    /// Checks with a server-side dry run whether an object may be patched.
    pub(crate) async fn dry_run_patch(
        &self,
        path: &str,
        content: Content,
        body: Vec<u8>,
    ) -> RequestResult {
        let path = format!("{path}?dryRun=All&fieldManager={FIELD_MANAGER}");
        self.send(Method::PATCH, &path, Payload::Patch(content, body)).await
    }

    /// Creates or restores an object by server-side apply.
    pub(crate) async fn apply(&self, path: &str, body: Vec<u8>) -> Result<Stored, Refusal> {
        let path = format!("{path}?fieldManager={FIELD_MANAGER}&force=true");
        self.store(Method::PATCH, &path, Payload::Apply(body), Reads::Object).await
    }

    pub(crate) async fn put(&self, path: &str, body: Vec<u8>) -> RequestResult {
        let path = format!("{path}?fieldManager={FIELD_MANAGER}");
        self.send(Method::PUT, &path, Payload::Object(body)).await
    }

    /// Deletes an object. Its uid and, if given, its resourceVersion are preconditions.
    pub(crate) async fn delete(
        &self,
        path: &str,
        uid: &str,
        version: Option<u64>,
    ) -> RequestResult {
        let options = DeleteOptions { version, ..DeleteOptions::of(uid) };
        self.delete_with(path, options).await
    }

    /// Deletes an object after its dependents. Until they are deleted, it exists and is Terminating.
    pub(crate) async fn delete_after_dependents(&self, path: &str, uid: &str) -> RequestResult {
        let options = DeleteOptions { propagation: "Foreground", ..DeleteOptions::of(uid) };
        self.delete_with(path, options).await
    }

    /// Deletes a pod immediately, without waiting for its kubelet.
    pub(crate) async fn force_delete(&self, path: &str, uid: &str) -> RequestResult {
        let options = DeleteOptions { grace_seconds: Some(0), ..DeleteOptions::of(uid) };
        self.delete_with(path, options).await
    }

    /// Deletes an object without preconditions. This is safe for an object whose name is never reused.
    pub(crate) async fn delete_unconditionally(&self, path: &str) -> RequestResult {
        self.send(Method::DELETE, path, Payload::Object(Vec::new())).await
    }

    /// Checks with a server-side dry run whether an object may be deleted.
    pub(crate) async fn dry_run_delete(&self, path: &str) -> RequestResult {
        let path = format!("{path}?dryRun=All");
        self.send(Method::DELETE, &path, Payload::Object(Vec::new())).await
    }

    async fn delete_with(&self, path: &str, options: DeleteOptions<'_>) -> RequestResult {
        let version = options.version.map(|version| version.to_string());
        let body = serde_json::json!({
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": options.uid, "resourceVersion": version},
            "propagationPolicy": options.propagation,
            "gracePeriodSeconds": options.grace_seconds,
        });
        self.send(Method::DELETE, path, Payload::Object(to_bytes(&body))).await
    }

    async fn send(&self, method: Method, path: &str, payload: Payload) -> RequestResult {
        let exchange = self.exchange(method, path, ACCEPT_METADATA, payload, MAX_RESPONSE);
        Ok(metadata(&exchange.await?))
    }

    /// Sends a request that stores an object, and returns what is stored.
    async fn store(
        &self,
        method: Method,
        path: &str,
        payload: Payload,
        reads: Reads,
    ) -> Result<Stored, Refusal> {
        let accept = match reads {
            Reads::Metadata => ACCEPT_METADATA,
            Reads::Object => JSON,
        };
        let body = self.exchange(method, path, accept, payload, MAX_RESPONSE).await?;
        let object = serde_json::from_slice(&body).unwrap_or_default();
        Ok(Stored { metadata: metadata(&body), object })
    }

    /// Sends a request, and returns the body of the response, unless it is longer than `max` bytes.
    async fn exchange(
        &self,
        method: Method,
        path: &str,
        accept: &str,
        payload: Payload,
        max: usize,
    ) -> Result<Bytes, Refusal> {
        let is_patch = method == Method::PATCH;
        let (content_type, body) = payload.into_parts();
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::ACCEPT, accept)
            .header(header::CONTENT_TYPE, content_type)
            .body(Body::from(body))
            .map_err(|error| unavailable(error.to_string()))?;
        if let Some(deadline) = self.send_before {
            request.extensions_mut().insert(deadline);
        }
        let exchange = async {
            let response = self.client.send(request).await?;
            let (head, body) = response.into_parts();
            Ok::<_, kube::Error>((head, Limited::new(body, max).collect().await))
        };
        let (head, body) = timeout(REQUEST_TIMEOUT, exchange)
            .await
            .map_err(|_| {
                unavailable(format!("no response within {} s", REQUEST_TIMEOUT.as_secs()))
            })?
            .map_err(|error| match error {
                kube::Error::Service(error) if error.is::<TooLate>() => Refusal::Late,
                error => unavailable(error.to_string()),
            })?;
        let body = body.map_err(|error| match error.is::<LengthLimitError>() {
            true => Refusal::Rejected(format!("the response is longer than {} MiB", max >> 20)),
            false => unavailable(error.to_string()),
        })?;
        let body = body.to_bytes();
        if head.status.is_success() {
            return Ok(body);
        }
        let after = head.headers.get(header::RETRY_AFTER);
        let after = after.and_then(|seconds| seconds.to_str().ok()?.parse().ok());
        let status = serde_json::from_slice(&body).unwrap_or_else(|_| Status {
            message: String::from_utf8_lossy(&body).into_owned(),
            ..Status::default()
        });
        let after = after.map(Duration::from_secs);
        Err(refusal(head.status, status, is_patch, after))
    }
}

fn unavailable(message: String) -> Refusal {
    Refusal::Unavailable { message, after: None }
}

fn metadata(body: &[u8]) -> ResponseMetadata {
    #[derive(Default, Deserialize)]
    struct Object {
        #[serde(default)]
        metadata: ResponseMetadata,
    }
    // The response to a deletion may be a Status, whose metadata is empty.
    let object: Object = serde_json::from_slice(body).unwrap_or_default();
    object.metadata
}

pub(crate) fn to_bytes<T: Serialize>(value: &T) -> Vec<u8> {
    // Only maps with keys that are not strings fail to serialize; our types have none.
    serde_json::to_vec(value).unwrap_or_default()
}

/// What an error response means. A patch whose test fails or whose uid differs is a conflict, although the
/// server calls it invalid.
fn refusal(code: StatusCode, status: Status, is_patch: bool, after: Option<Duration>) -> Refusal {
    let message = truncate(&status.message, MAX_MESSAGE);
    match code {
        StatusCode::CONFLICT if status.reason == "AlreadyExists" => Refusal::AlreadyExists(message),
        StatusCode::CONFLICT => Refusal::Conflict(message),
        StatusCode::NOT_FOUND => Refusal::NotFound(message),
        StatusCode::UNPROCESSABLE_ENTITY if is_patch && is_failed_precondition(&status) => {
            Refusal::Conflict(message)
        }
        StatusCode::FORBIDDEN if is_in_terminating_namespace(&status) => {
            Refusal::NamespaceTerminating(message)
        }
        StatusCode::TOO_MANY_REQUESTS => Refusal::Busy { message, after },
        StatusCode::REQUEST_TIMEOUT => Refusal::Unavailable { message, after },
        code if code.is_server_error() => Refusal::Unavailable { message, after },
        _ => Refusal::Rejected(message),
    }
}

/// Whether a creation was refused because its namespace is being deleted.
fn is_in_terminating_namespace(status: &Status) -> bool {
    let causes = status.details.iter().flat_map(|it| &it.causes);
    causes.into_iter().any(|it| it.reason == "NamespaceTerminating")
}

/// Whether a patch was refused because of a precondition.
fn is_failed_precondition(status: &Status) -> bool {
    let Some(details) = &status.details else {
        return true;
    };
    // The error of a JSON patch that does not apply names no object.
    details.kind.is_empty() || details.causes.iter().any(|it| it.field == "metadata.uid")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn refusal(code: u16, status: Value, is_patch: bool) -> Refusal {
        let status = serde_json::from_value(status).unwrap();
        super::refusal(StatusCode::from_u16(code).unwrap(), status, is_patch, None)
    }

    /// The API server quotes an invalid value of any length.
    #[test]
    fn the_message_of_a_refusal_is_cut() {
        let message = format!("Invalid value: {}", "x".repeat(1 << 20));
        for (code, reason) in [
            (409, "AlreadyExists"),
            (409, "Conflict"),
            (404, "NotFound"),
            (422, "Invalid"),
            (403, "Forbidden"),
            (429, "TooManyRequests"),
            (503, "ServiceUnavailable"),
        ] {
            let status = json!({"message": message, "reason": reason});
            let shown = refusal(code, status, false).to_string();
            assert!(shown.contains("Invalid value: xxx") && shown.ends_with("..."), "{code}");
            assert!(shown.len() < 2_100, "{code}: {} bytes", shown.len());
        }
    }

    /// Clients decide how long a list is.
    #[tokio::test]
    async fn a_response_that_is_too_long_is_not_read() {
        let server = tower::service_fn(|request: Request<Body>| {
            let length = if request.uri().path() == "/long" { 3 << 20 } else { 1 << 20 };
            let text = format!("\"{}\"", "x".repeat(length - 2));
            std::future::ready(Ok::<_, std::convert::Infallible>(http::Response::new(Body::from(
                text.into_bytes(),
            ))))
        });
        let requests = Requests::new(Client::new(server, "games"));
        let read = requests.read_short::<String>("/short", 1 << 20).await;
        assert_eq!(read.map(|it| it.len()), Ok((1 << 20) - 2));
        let long = requests.read_short::<String>("/long", 1 << 20).await;
        let why = "the response is longer than 1 MiB".to_owned();
        assert_eq!(long, Err(Refusal::Rejected(why)));
    }

    #[test]
    fn a_failed_test_in_a_patch_and_a_different_uid_are_conflicts() {
        let failed_test = json!({"reason": "Invalid", "details": {}, "message": "m"});
        let other_uid = json!({"reason": "Invalid", "details": {
            "kind": "Pod",
            "causes": [{"reason": "FieldValueInvalid", "field": "metadata.uid", "message": "m"}],
        }});
        for status in [failed_test, other_uid] {
            assert!(matches!(refusal(422, status, true), Refusal::Conflict(_)));
        }
        let conflict = json!({"reason": "Conflict"});
        assert!(matches!(refusal(409, conflict, false), Refusal::Conflict(_)));
    }

    #[test]
    fn a_rejection_keeps_the_servers_message() {
        let status = json!({"reason": "Invalid", "message": "no such image", "details": {
            "kind": "Pod",
            "causes": [{"reason": "FieldValueInvalid", "field": "spec.image", "message": "m"}],
        }});
        let expected = Refusal::Rejected("no such image".into());
        assert_eq!(refusal(422, status.clone(), true), expected);
        assert_eq!(refusal(422, status, false), expected);
        let cause = json!({"reason": "NamespaceTerminating", "field": "metadata.namespace"});
        let terminating = json!({"message": "m", "details": {"causes": [cause]}});
        let expected = Refusal::NamespaceTerminating("m".into());
        assert_eq!(refusal(403, terminating, false), expected);
        let quota = json!({"reason": "Forbidden", "message": "exceeded quota"});
        let expected = Refusal::Rejected("exceeded quota".into());
        assert_eq!(refusal(403, quota, false), expected);
    }

    #[test]
    fn busy_and_failing_servers_are_distinguished() {
        for code in [408, 500, 503, 504] {
            let refused = refusal(code, json!({}), false);
            assert!(matches!(refused, Refusal::Unavailable { .. }), "{code}");
        }
        assert!(matches!(refusal(429, json!({}), false), Refusal::Busy { .. }));
    }
}
