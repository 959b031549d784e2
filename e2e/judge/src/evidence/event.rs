//! One line of the audit log.

use anyhow::{Context, Result};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

/// A request in the audit log.
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
    /// The user for whom the client made the request (kubectl --as).
    #[serde(default)]
    pub impersonated_user: Option<User>,
    /// The client's user agent.
    #[serde(default)]
    pub user_agent: String,
    /// The object; None for a request without one.
    #[serde(default)]
    pub object_ref: Option<ObjectRef>,
    /// The status of the response.
    #[serde(default)]
    pub response_status: Option<ResponseStatus>,
    /// The body of the request, at level RequestResponse.
    #[serde(default)]
    pub request_object: Option<Value>,
    /// The body of the response, at level RequestResponse.
    #[serde(default)]
    pub response_object: Option<Value>,
    /// When the API server received the request.
    #[serde(rename = "requestReceivedTimestamp")]
    pub received: Timestamp,
    /// When the response was complete.
    #[serde(rename = "stageTimestamp")]
    pub done: Timestamp,
    /// The stage: RequestReceived, ResponseStarted or ResponseComplete.
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
    /// Namespace; empty for a cluster-scoped object.
    #[serde(default)]
    pub namespace: String,
    /// Name; empty for a create, whose body contains it.
    #[serde(default)]
    pub name: String,
    /// status, scale, resize, ...
    #[serde(default)]
    pub subresource: String,
}

/// The status of a response.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct ResponseStatus {
    /// HTTP status.
    #[serde(default)]
    pub code: u16,
    /// The error message.
    #[serde(default)]
    pub message: String,
}

impl Event {
    /// Parses a line of the log.
    pub(crate) fn parse(line: &[u8]) -> Result<Self> {
        serde_json::from_slice(line).with_context(|| {
            let start = &line[..line.len().min(200)];
            format!("not an audit event: {}", String::from_utf8_lossy(start))
        })
    }

    /// Whether this is a completed write other than a dry run.
    pub fn is_write(&self) -> bool {
        self.stage == "ResponseComplete"
            && matches!(
                self.verb.as_str(),
                "create" | "update" | "patch" | "delete" | "deletecollection"
            )
            && !self.is_dry_run()
    }

    /// Whether nothing is stored. A client asks for this in the query, or for a deletion also in the body.
    fn is_dry_run(&self) -> bool {
        let body = self.request_object.as_ref();
        let in_body = body.and_then(|it| it.get("dryRun")?.as_array());
        self.uri.contains("dryRun=All") || in_body.is_some_and(|it| !it.is_empty())
    }

    /// Whether this is a completed dry run of a deletion, with which the operator checks whether a guard is in force.
    pub fn is_dry_deletion(&self) -> bool {
        self.stage == "ResponseComplete" && self.verb == "delete" && self.is_dry_run()
    }

    /// Name of the user for whom the request was made.
    pub fn username(&self) -> &str {
        let user = self.impersonated_user.as_ref().unwrap_or(&self.user);
        &user.username
    }

    /// Plural name of the resource; empty for a request without an object.
    pub fn resource(&self) -> &str {
        self.object_ref.as_ref().map_or("", |it| &it.resource)
    }

    /// HTTP status of the response.
    pub fn code(&self) -> u16 {
        self.response_status.as_ref().map_or(0, |status| status.code)
    }

    /// The message of a write that was refused because of a missing permission. (Quotas and terminating
    /// namespaces cause the same HTTP status.)
    pub fn missing_permission(&self) -> Option<&str> {
        let message = self.response_status.as_ref()?.message.as_str();
        let lacks_role = self.code() == 403 && message.contains(" cannot ");
        lacks_role.then_some(message)
    }

    /// The name of a HookRun whose creation was refused because its namespace is being deleted.
    pub(crate) fn run_refused_in_terminating_namespace(&self) -> Option<&str> {
        let is_creation = self.is_write() && self.verb == "create" && self.resource() == "hookruns";
        let message = self.response_status.as_ref()?.message.as_str();
        let is_refused = self.code() == 403 && message.contains("because it is being terminated");
        // hookruns.tkex.tencent.com "NAME" is forbidden: ...
        let name = message.split('"').nth(1);
        name.filter(|_| is_creation && is_refused)
    }

    /// Whether the HTTP status is a success.
    pub fn succeeded(&self) -> bool {
        (200..300).contains(&self.code())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_dry_run_is_not_a_write() {
        for (uri, body, is_dry_run) in [
            ("/x", json!({}), false),
            ("/x", json!({"dryRun": []}), false),
            ("/x?dryRun=All", json!({}), true),
            // As kubectl delete --dry-run=server sends it.
            ("/x", json!({"dryRun": ["All"]}), true),
        ] {
            let event = json!({
                "stage": "ResponseComplete", "verb": "delete", "requestURI": uri, "requestObject": body,
                "user": {"username": "u"}, "requestReceivedTimestamp": "2026-01-01T00:00:00Z",
                "stageTimestamp": "2026-01-01T00:00:00Z",
            });
            let event: Event = serde_json::from_value(event).expect("an event");
            let expected = (!is_dry_run, is_dry_run);
            assert_eq!((event.is_write(), event.is_dry_deletion()), expected, "{uri} {body}");
        }
    }
}
