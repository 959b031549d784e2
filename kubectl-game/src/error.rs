//! What goes wrong, in words for whoever typed the command.

use std::time::Duration;

use gamekeeper_core::causes::with_causes;
use http::StatusCode;
use kube::core::Status;

use crate::view::cut;

/// Longest part of an answer that is shown when it is not Kubernetes'.
const BODY: usize = 200;

/// Why a command did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The command line asks for something that there is not.
    #[error("{0}")]
    Usage(String),
    /// What was asked for makes no sense for this workload as it is.
    #[error("{0}")]
    Refused(String),
    /// There is no such workload.
    #[error("{0}")]
    NotFound(String),
    /// The kubeconfig cannot be used.
    #[error("kubeconfig: {0}")]
    Config(String),
    /// The API server said no.
    #[error("{}", said(.0))]
    Server(Box<Status>),
    /// There was no answer.
    #[error("cannot reach the cluster: {0}")]
    Unreachable(String),
    /// An answer that makes no sense.
    #[error("{0}")]
    Odd(String),
    /// An object that cannot be written as YAML.
    #[error("cannot write YAML: {0}")]
    Yaml(#[from] serde_yaml_ng::Error),
    /// What was to be printed could not be.
    #[error("cannot write: {0}")]
    Print(#[from] std::io::Error),
}

/// As kubectl puts it.
fn said(status: &Status) -> String {
    if is_foreign(status) {
        return not_of_kubernetes(status);
    }
    if status.reason.is_empty() {
        format!("Error from server: {}", status.message)
    } else {
        format!("Error from server ({}): {}", status.reason, status.message)
    }
}

/// Whether an answer is not that of a Kubernetes API server, but of something before it. What kube then
/// calls the reason is none.
pub fn is_foreign(status: &Status) -> bool {
    status.reason == "Failed to parse error data" && status.message != "404 page not found"
}

fn not_of_kubernetes(status: &Status) -> String {
    let code = StatusCode::from_u16(status.code).ok();
    let reason = code.and_then(|code| code.canonical_reason());
    let reason = reason.map(|reason| format!(" {reason}"));
    let mut words = format!(
        "Error from server ({}{}): this is not a Kubernetes response",
        status.code,
        reason.unwrap_or_default()
    );
    let body = cut(&status.message, BODY);
    if !body.is_empty() {
        words = format!("{words}: {body}");
    }
    words
}

impl Error {
    /// That nothing was heard for so long.
    pub fn no_answer(limit: Duration) -> Self {
        Error::Unreachable(format!("no response within {limit:?}"))
    }

    /// Whether the object was changed by somebody else in the meantime.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Error::Server(status) if status.code == 409)
    }

    /// Whether a watch asked for what the server no longer knows.
    pub fn is_expired(&self) -> bool {
        matches!(self, Error::Server(status) if status.code == 410)
    }

    /// Whether asking again is of no use.
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
                Error::Odd(format!("unexpected response from the server: {error}"))
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
            other @ Watch::NoResourceVersion => Error::Odd(other.to_string()),
        }
    }
}
