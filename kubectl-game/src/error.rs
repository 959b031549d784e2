//! Errors, with messages for the user of the command.

use std::time::Duration;

use gamekeeper_core::causes::with_causes;
use http::StatusCode;
use kube::core::Status;

use crate::view::cut;

/// How many characters of a response are shown if it does not come from Kubernetes.
const MAX_BODY: usize = 200;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{0}")]
    Usage(String),
    /// The command makes no sense for this workload in its current state.
    #[error("{0}")]
    Refused(String),
    #[error("{0}")]
    NotFound(String),
    /// The kubeconfig cannot be used.
    #[error("kubeconfig: {0}")]
    Config(String),
    /// An error response from the API server.
    #[error("{}", server_message(.0))]
    Server(Box<Status>),
    /// The errors of several objects.
    #[error("{}", lines(.0))]
    Several(Vec<Error>),
    #[error("cannot reach the cluster: {0}")]
    Unreachable(String),
    /// An object or a response has an unexpected form.
    #[error("{0}")]
    Unexpected(String),
    #[error("cannot write YAML: {0}")]
    Yaml(#[from] serde_yaml_ng::Error),
    #[error("cannot write: {0}")]
    Print(#[from] std::io::Error),
}

/// Fails because the command makes no sense for a workload in its current state.
pub fn refuse<T>(why: impl Into<String>) -> Result<T, Error> {
    Err(Error::Refused(why.into()))
}

/// The message in kubectl's form.
fn server_message(status: &Status) -> String {
    if is_not_kubernetes(status) {
        return foreign_message(status);
    }
    let message = &status.message;
    match status.reason.as_str() {
        "" => format!("Error from server: {message}"),
        UNPARSED => format!("Error from server ({}): {message}", code_and_reason(status)),
        reason => format!("Error from server ({reason}): {message}"),
    }
}

/// The reason that kube sets if it cannot parse an error.
const UNPARSED: &str = "Failed to parse error data";

/// The plain text of the API server itself: for a kind that it does not serve, and when it is too busy.
const PLAIN_TEXT: [&str; 2] = ["404 page not found", "Too many requests, please try again later."];

/// Whether a response comes from a proxy in front of the API server.
fn is_not_kubernetes(status: &Status) -> bool {
    status.reason == UNPARSED && !PLAIN_TEXT.contains(&status.message.as_str())
}

fn lines(errors: &[Error]) -> String {
    let lines: Vec<String> = errors.iter().map(Error::to_string).collect();
    lines.join("\nerror: ")
}

fn foreign_message(status: &Status) -> String {
    let body = match cut(&status.message, MAX_BODY) {
        body if body.is_empty() => body,
        body => format!(": {body}"),
    };
    let code = code_and_reason(status);
    format!("Error from server ({code}): this is not a Kubernetes response{body}")
}

/// A status code with its name in HTTP, if it has one.
fn code_and_reason(status: &Status) -> String {
    let code = StatusCode::from_u16(status.code).ok();
    let reason = code.and_then(|code| code.canonical_reason());
    let reason = reason.map_or_else(String::new, |reason| format!(" {reason}"));
    format!("{}{reason}", status.code)
}

impl Error {
    pub fn no_response(limit: Duration) -> Self {
        Error::Unreachable(format!("no response within {limit:?}"))
    }

    /// Whether the server does not serve the kind, or has no object with the requested name.
    pub fn is_404(&self) -> bool {
        matches!(self, Error::Server(status) if status.code == 404 && !is_not_kubernetes(status))
    }

    /// Whether the user lacks the permission for a request.
    pub fn is_forbidden(&self) -> bool {
        matches!(self, Error::Server(status) if status.code == 403)
    }

    /// Whether another client has changed the object in the meantime.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Error::Server(status) if status.code == 409)
    }

    /// Whether the server has refused the content of a write.
    pub fn is_invalid(&self) -> bool {
        matches!(self, Error::Server(status) if status.code == 422)
    }

    /// Whether the resource version of a watch is too old.
    pub fn is_expired(&self) -> bool {
        matches!(self, Error::Server(status) if status.code == 410)
    }

    /// Whether a retry would fail again.
    pub fn is_final(&self) -> bool {
        match self {
            Error::Server(status) => {
                (400..500).contains(&status.code) && ![409, 410, 429].contains(&status.code)
            }
            Error::Unreachable(_) => false,
            _ => true,
        }
    }
}

impl From<kube::Error> for Error {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Error::Server(status),
            kube::Error::SerdeError(error) => {
                Error::Unexpected(format!("unexpected response from the server: {error}"))
            }
            other => Error::Unreachable(with_causes(&other)),
        }
    }
}

impl From<kube::runtime::watcher::Error> for Error {
    fn from(error: kube::runtime::watcher::Error) -> Self {
        use kube::runtime::watcher::Error as Watch;
        match error {
            Watch::InitialListFailed(error)
            | Watch::WatchStartFailed(error)
            | Watch::WatchFailed(error) => error.into(),
            Watch::WatchError(status) => Error::Server(status),
            other @ Watch::NoResourceVersion => Error::Unexpected(other.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An error as kube makes it from a response that is not JSON.
    fn unparsed(code: u16, body: &str) -> Error {
        let status = Status::failure(body, "Failed to parse error data").with_code(code);
        kube::Error::Api(status.boxed()).into()
    }

    #[test]
    fn plain_text_of_the_api_server_is_not_taken_for_that_of_a_proxy() {
        for (code, body, expected) in [
            (
                429,
                "Too many requests, please try again later.",
                "(429 Too Many Requests): Too many requests, please try again later.",
            ),
            (404, "404 page not found", "(404 Not Found): 404 page not found"),
            (429, "<html>", "(429 Too Many Requests): this is not a Kubernetes response: <html>"),
            (404, "", "(404 Not Found): this is not a Kubernetes response"),
        ] {
            let error = unparsed(code, body).to_string();
            assert_eq!(error, format!("Error from server {expected}"));
        }
    }
}
