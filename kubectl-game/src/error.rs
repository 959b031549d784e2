//! What goes wrong, in words for whoever typed the command.

use kube::core::Status;

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
    if status.reason.is_empty() {
        format!("Error from server: {}", status.message)
    } else {
        format!("Error from server ({}): {}", status.reason, status.message)
    }
}

impl Error {
    /// Whether the object was changed by somebody else in the meantime.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Error::Server(status) if status.code == 409)
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
            other => Error::Unreachable(chain(&other)),
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

/// An error with its causes: the first one alone often says only that something failed.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut words = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !words.contains(&more) {
            words = format!("{words}: {more}");
        }
        cause = error.source();
    }
    words
}
