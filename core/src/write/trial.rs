//! What must be known before a write that cannot be undone is sent: dry runs of what it begins.

use serde_json::Value;

use super::request::Request;
use super::{Attempt, InPlacePatch};
use crate::observed::PodRef;

/// What must be true before a script starts, because that cannot be undone.
#[derive(Clone, Debug, PartialEq)]
pub struct Trial {
    /// The pod that the script's Job will create: a dry run must accept it. Otherwise, a refusal would only be visible in
    /// events of the Job.
    pub pod: Value,
    /// The node that must have been drained: no game pod may be left on it. The cache may miss one.
    pub drained_node: Option<String>,
}

/// What a pod leaves service for. Dry runs on that very pod must accept it before the pod's gate is closed, or a hook asks
/// its players to leave: they would leave for a change that the API server, a quota or a policy refuses.
#[derive(Clone, Debug, PartialEq)]
pub struct Rehearsal {
    /// What a refusal blocks.
    pub attempt: Attempt,
    /// The uid of the pod.
    pub pod: String,
    /// What the pod leaves service for: the target of its update, or [`Rehearsal::DELETION`].
    pub goal: String,
    /// The requests that end what the write begins.
    requests: Vec<Request>,
}

impl Rehearsal {
    /// The goal of a deletion.
    pub const DELETION: &str = "deletion";

    /// The deletion of a pod.
    pub fn of_deletion(attempt: Attempt, pod: &PodRef) -> Self {
        Self {
            attempt,
            pod: pod.uid.clone(),
            goal: Self::DELETION.to_owned(),
            requests: vec![Request::try_to_delete(pod)],
        }
    }

    /// A change of a pod in place: the patch of all its containers, and the new resources of some.
    pub fn of_change(goal: &str, patch: &InPlacePatch, resources: &[(String, Value)]) -> Self {
        let resize = (!resources.is_empty()).then(|| Request::try_to_resize(&patch.pod, resources));
        let requests = [Request::try_to_change(patch)].into_iter().chain(resize);
        Self {
            attempt: Attempt::ChangePod,
            pod: patch.pod.uid.clone(),
            goal: goal.to_owned(),
            requests: requests.collect(),
        }
    }

    /// The dry runs.
    pub fn requests(&self) -> &[Request] {
        &self.requests
    }
}
