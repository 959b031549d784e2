//! A pod that a SidecarSet selects, as far as the set is concerned.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use super::held::Held;
use super::set::Sidecars;
use crate::observed::{Pod, SidecarMark, SidecarMarks};

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

/// A write that the API server has refused: it would have changed a pod on behalf of a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedWrite {
    /// The API server's message.
    pub message: String,
    /// When it is tried again.
    pub retry_at: Timestamp,
}

/// The state of the hook that must succeed before a token is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TokenHook {
    /// It has not been started, or there is none.
    #[default]
    None,
    /// It has not ended.
    Running,
    /// It was successful at this time.
    Passed(Timestamp),
    /// It ended without success.
    Refused,
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
    /// The marks of the SidecarSets that were considered when it was created.
    pub marks: SidecarMarks,
    /// Whether the kubelet reports it as ready.
    pub ready: bool,
    /// Whether it is updated by one of our workloads, which controls it or may adopt it. The set updates other pods
    /// itself.
    pub own: bool,
    /// The pod with its containers, if the set itself updates it.
    pub running: Option<Arc<Pod>>,
    /// Whether it is being updated in place.
    pub changing: Changing,
    /// When to check again whether its update is complete, even if the pod does not change until then.
    pub look_again: Option<Timestamp>,
    /// The last write for the set, if it was refused.
    pub refused: Option<RefusedWrite>,
    /// Whether its kubelet would ignore the new images, because some of them are for native sidecars.
    pub kubelet_ignores: bool,
    /// Whether it has the annotation of hot patches, although its workload no longer makes any. Its containers may differ
    /// from those that its kubelet would start for its spec, so that a change of one of them would restart the others.
    pub hot_patched: bool,
    /// Whether the set no longer selects it, although it has a token of the set.
    pub deselected: bool,
    /// Its workload, if the workload holds updates of sidecars back.
    pub held: Option<Arc<Held>>,
    /// The state of the hook of its update, if it has a token for the newest revision.
    pub hook: TokenHook,
}

impl MatchedPod {
    /// NAMESPACE/NAME.
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// Whether it is ready with the sidecars that its spec names. While a kubelet pulls an image, it reports the old
    /// container as ready.
    pub(super) fn is_ready(&self) -> bool {
        self.ready && self.changing != Changing::Sidecars
    }

    /// Whether no write is attempted now, because the API server has refused the last one.
    pub(super) fn is_refused(&self, now: Timestamp) -> bool {
        let refused = self.refused.as_ref();
        refused.is_some_and(|it| it.retry_at > now)
    }

    /// The mark of a set, if the set selects the pod and the pod has its containers.
    pub fn mark(&self, set: &Sidecars) -> Option<&SidecarMark> {
        let mark = self.marks.get(&set.name).filter(|_| !self.deselected);
        mark.filter(|mark| mark.is_injected())
    }
}
