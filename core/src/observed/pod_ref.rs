//! The pod that an action concerns, and whether it must be unchanged since it was observed.

use jiff::Timestamp;

use super::Pod;

/// The pod that an action concerns. Its fields are preconditions of the write.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PodRef {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Uid.
    pub uid: String,
    /// Its resourceVersion when it was observed, if the write requires that the pod has not changed since then.
    pub version: Option<u64>,
    /// Until when the write may be sent, if it rests on the success of a hook: players may join later.
    pub allowed_until: Option<Timestamp>,
}

impl PodRef {
    /// A reference to a pod.
    pub fn of(pod: &Pod) -> Self {
        Self {
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            uid: pod.uid.clone(),
            version: None,
            allowed_until: None,
        }
    }

    /// A reference to a pod as it was observed: the write fails if the pod has changed since.
    pub fn unchanged(pod: &Pod) -> Self {
        Self { version: Some(pod.resource_version), ..Self::of(pod) }
    }
}
