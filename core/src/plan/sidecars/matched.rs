//! A pod that a SidecarSet selects, as far as the set is concerned.

use std::collections::BTreeMap;

use super::set::Sidecars;
use crate::plan::observed::{SidecarMark, SidecarMarks};

/// Whether a pod is being updated in place, as far as a set is concerned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Changing {
    /// It is not.
    #[default]
    No,
    /// Its gate is closed, and nothing has been changed yet.
    Begins,
    /// Containers of the set are being changed.
    Sidecars,
    /// Only other containers are being changed.
    Others,
}

/// A pod in a namespace that the set reaches. Pods that have ended or are Terminating do not count.
#[derive(Clone, Debug, Default)]
pub struct MatchedPod {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Uid.
    pub uid: String,
    /// resourceVersion.
    pub version: u64,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// The SidecarSets that were considered when it was created.
    pub marks: SidecarMarks,
    /// Whether it is ready.
    pub ready: bool,
    /// Whether one of our workloads controls it, or may adopt it, and updates its containers.
    pub own: bool,
    /// Whether it is being updated in place.
    pub changing: Changing,
    /// Whether its kubelet would ignore the new images, because native sidecars are among them.
    pub kubelet_ignores: bool,
}

impl MatchedPod {
    /// NAMESPACE/NAME.
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// The mark of a set, if the pod has its containers.
    pub fn mark(&self, set: &Sidecars) -> Option<&SidecarMark> {
        self.marks.get(&set.name).filter(|mark| mark.is_injected())
    }
}
