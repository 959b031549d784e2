//! Why a request to the API server failed.

use std::time::Duration;

/// Why a request failed. `after` is the server's Retry-After.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A precondition does not hold: plan again.
    #[error("the object has changed in the meantime: {0}")]
    Conflict(String),
    /// An object with the name exists.
    #[error("{0}")]
    AlreadyExists(String),
    /// There is no such object, or no such kind of object.
    #[error("{0}")]
    NotFound(String),
    /// The request is invalid or forbidden.
    #[error("{0}")]
    Rejected(String),
    /// Nothing can be created in a namespace that is being deleted.
    #[error("{0}")]
    NamespaceTerminating(String),
    /// The server is too busy: nothing was done.
    #[error("{message}")]
    Busy {
        /// The server's message.
        message: String,
        /// How long it asks to wait.
        after: Option<Duration>,
    },
    /// The request was not sent, because what it rests on may have changed while it waited: plan again.
    #[error("the request waited too long for its turn; it was not sent")]
    Late,
    /// The server failed or did not respond: it is unknown whether the write was made.
    #[error("{message}")]
    Unavailable {
        /// What went wrong.
        message: String,
        /// How long the server asks to wait.
        after: Option<Duration>,
    },
}
