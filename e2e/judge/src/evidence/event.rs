//! One line of the audit log.

use anyhow::{Context, Result};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

/// A finished request that asked for a change.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    /// create, update, patch, delete or deletecollection.
    pub verb: String,
    /// Path and query of the request.
    #[serde(rename = "requestURI")]
    pub uri: String,
    /// The client's user.
    pub user: User,
    /// The client's program.
    #[serde(default)]
    pub user_agent: String,
    /// The object; None for requests that are about none.
    #[serde(default)]
    pub object_ref: Option<ObjectRef>,
    /// How it ended.
    #[serde(default)]
    pub response_status: Option<ResponseStatus>,
    /// The object that was sent, at level RequestResponse.
    #[serde(default)]
    pub request_object: Option<Value>,
    /// The object that came back, at level RequestResponse.
    #[serde(default)]
    pub response_object: Option<Value>,
    /// When the API server got the request.
    #[serde(rename = "requestReceivedTimestamp")]
    pub received: Timestamp,
    /// When it had answered.
    #[serde(rename = "stageTimestamp")]
    pub done: Timestamp,
    /// How far the request was: RequestReceived, ResponseStarted or ResponseComplete.
    pub stage: String,
}

/// The user of a client.
#[derive(Clone, Debug, Deserialize)]
pub struct User {
    /// Name as the API server authenticated it.
    pub username: String,
}

/// The object that a request is about.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectRef {
    /// Plural name of the resource.
    pub resource: String,
    /// Namespace; empty for what has none.
    #[serde(default)]
    pub namespace: String,
    /// Name; empty for a create, whose body has it.
    #[serde(default)]
    pub name: String,
    /// status, scale, resize, ...
    #[serde(default)]
    pub subresource: String,
}

/// How a request ended.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct ResponseStatus {
    /// HTTP status.
    #[serde(default)]
    pub code: u16,
    /// Why it was refused.
    #[serde(default)]
    pub message: String,
}

impl Event {
    /// Reads a line.
    pub(crate) fn parse(line: &[u8]) -> Result<Self> {
        serde_json::from_slice(line).with_context(|| {
            let start = &line[..line.len().min(200)];
            format!("this is no audit event: {}", String::from_utf8_lossy(start))
        })
    }

    /// Whether it is the end of a request that asked for a change, dry runs aside.
    pub fn is_write(&self) -> bool {
        self.stage == "ResponseComplete"
            && matches!(
                self.verb.as_str(),
                "create" | "update" | "patch" | "delete" | "deletecollection"
            )
            && !self.uri.contains("dryRun=All")
    }

    /// Plural name of the resource; empty for what is about no object.
    pub fn resource(&self) -> &str {
        self.object_ref.as_ref().map_or("", |about| &about.resource)
    }

    /// HTTP status of the answer.
    pub fn code(&self) -> u16 {
        self.response_status
            .as_ref()
            .map_or(0, |status| status.code)
    }

    /// What the API server says of a write that some role should have allowed. (Quotas and dying
    /// namespaces answer with the same status.)
    pub fn missing_permission(&self) -> Option<&str> {
        let message = self.response_status.as_ref()?.message.as_str();
        let lacks_role = self.code() == 403 && message.contains(" cannot ");
        lacks_role.then_some(message)
    }

    /// Whether the API server did what it was asked for.
    pub fn succeeded(&self) -> bool {
        (200..300).contains(&self.code())
    }
}
