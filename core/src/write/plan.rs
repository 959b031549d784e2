//! What a reconcile decides on, and in which order it is carried out.

use jiff::Timestamp;

use super::Write;

/// What one reconcile will do.
///
/// Order: writes of [`Phase::Before`](super::Phase::Before), in parallel; the status, if it must be written first; a quorum
/// GET of the workload, if a write needs a [`Proof`](super::Proof); writes of [`Phase::After`](super::Phase::After), in parallel.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan<S> {
    /// What to do.
    pub writes: Vec<Write>,
    /// The status to show; None leaves the old one.
    pub status: Option<S>,
    /// Whether the status must be written before writes of [`Phase::After`](super::Phase::After), because they depend on
    /// it (step index, stable revision, held replicas), or because it acknowledges a new generation.
    /// Otherwise it is only informational, and is written at most once a second.
    pub status_first: bool,
    /// When to plan again even if no change is observed.
    pub wake: Option<Timestamp>,
    /// Events to publish.
    pub events: Vec<Event>,
}

impl<S> Plan<S> {
    /// A plan that does nothing.
    pub fn nothing() -> Self {
        Self {
            writes: Vec::new(),
            status: None,
            status_first: false,
            wake: None,
            events: Vec::new(),
        }
    }
}

/// A Kubernetes event about the workload.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Whether its type is Warning rather than Normal.
    pub warning: bool,
    /// The reason, in CamelCase.
    pub reason: String,
    /// A message for users.
    pub message: String,
}
