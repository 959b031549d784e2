//! A pod, its containers, and the progress of its in-place updates.

use gamekeeper_core::observed::PodPhase;

use super::{Mark, Name, Rev, Time, Uid};
use crate::scope::Scope;

/// A pod.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pod {
    pub uid: Uid,
    pub name: Name,
    pub rev: Rev,
    pub containers: Each<Container>,
    /// Whether the kubelet has observed the newest spec.
    pub observed: bool,
    pub phase: PodPhase,
    /// Whether a container runs.
    pub up: bool,
    /// Whether its containers are ready.
    pub healthy: bool,
    /// Since when it has been Ready.
    pub ready: Option<Time>,
    pub terminating: bool,
    /// Whether the garbage collector has removed its owner reference.
    pub orphan: bool,
    /// Whether it has the label of guarded pods.
    pub guarded: bool,
    /// Whether a user released it from its guard.
    pub released: bool,
    /// Who requested its replacement.
    pub move_requested: Option<Requester>,
    /// Whether it is on the node whose state the model changes.
    pub on_node: bool,
    /// Whether that node was silent, and its kubelet has yet to report again.
    pub unreported: bool,
    /// Whether Kubernetes has tried to delete it because its node was lost.
    pub disrupted: bool,
    /// Since when it has waited for its PreDelete hook.
    pub waiting_since: Option<Time>,
    /// Whether it has the annotation game-pod-deleting.
    pub marked: bool,
    /// Whether it has the hot-patch annotation.
    pub hot: bool,
    pub gate: Gate,
    /// Its index, if pods have indexes.
    pub index: Option<u8>,
    pub record: Option<Record>,
    /// The mark of the SidecarSet, if the set was considered when the pod was created.
    pub mark: Option<Mark>,
}

impl Pod {
    /// Whether it is neither terminating nor ended.
    pub fn is_active(&self) -> bool {
        !self.terminating && !self.has_ended()
    }

    pub fn has_ended(&self) -> bool {
        matches!(self.phase, PodPhase::Failed | PodPhase::Succeeded)
    }

    /// Whether it has been changed in place, other than by a hot patch, and the update is not complete.
    pub fn is_patched(&self) -> bool {
        let Some(record) = self.record.as_ref().filter(|record| !record.hot) else {
            return false;
        };
        match self.gate {
            Gate::Closed(since) => record.closed_at == Some(since),
            Gate::Absent => !record.done,
            Gate::Open | Gate::Unset => false,
        }
    }

    /// Whether an in-place update is in progress.
    pub fn is_updating(&self) -> bool {
        matches!(self.gate, Gate::Closed(_)) || self.is_patched()
    }

    /// Whether its hot patch restarted a container.
    pub fn was_restarted_by_hot_patch(&self) -> bool {
        let Some(record) = self.record.as_ref().filter(|it| it.hot && !it.done) else {
            return false;
        };
        let mut containers = self.containers.iter().flatten().zip(record.from.iter().flatten());
        containers.any(|(it, from)| from.restarts.is_some_and(|before| it.restarts > before))
    }

    /// Whether its containers run the images of its revisions, and the kubelet has observed the spec.
    pub fn runs_its_revisions(&self, scope: &Scope) -> bool {
        let [template_containers @ .., sidecar] = &self.containers;
        let runs = |it: &Container, rev| it.runs == it.image && it.image == rev;
        let sidecars = sidecar.iter().zip(&self.mark);
        self.observed
            && template_containers
                .iter()
                .enumerate()
                .filter_map(|(index, it)| Some((index, it.as_ref()?)))
                .all(|(index, it)| runs(it, scope.image(self.rev, index)))
            && sidecars.into_iter().all(|(it, mark)| runs(it, mark.at))
    }
}

/// Who requested the replacement of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Requester {
    User,
    /// The operator, because the pod's node is about to be removed.
    Operator,
}

/// One value for each container of a pod: those of the template, in order, then that of the SidecarSet. Pods may
/// have fewer containers.
pub type Each<T> = [Option<T>; 3];

/// A container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Container {
    /// Image in its spec.
    pub image: Rev,
    /// Image that runs.
    pub runs: Rev,
    pub restarts: u8,
}

/// A pod's readiness gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Gate {
    Absent,
    Unset,
    Open,
    Closed(Closing),
}

/// When a gate was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Closing {
    pub at: Time,
    /// The number of this closing among those at the same time, from 0.
    pub nth: u8,
}

/// What the last in-place update changed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    pub rev: Rev,
    pub closed_at: Option<Closing>,
    pub patched_at: Time,
    pub hot: bool,
    pub done: bool,
    /// The revision of the SidecarSet, if its container was changed.
    pub sidecar: Option<Rev>,
    pub from: Each<Origin>,
}

/// What ran before an in-place update.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Origin {
    pub image: Rev,
    /// Restarts of the container that ran; None if none did.
    pub restarts: Option<u8>,
    /// Whether the container was not observed to be ready with `image`.
    pub unfinished: bool,
    pub turn: Turn,
}

/// The progress of a container whose image changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Turn {
    /// Its spec has the new image.
    Set,
    /// It gets this image once the containers before it have theirs.
    Next(Rev),
    /// It was observed to run its new image, and the next container may get its own.
    Passed,
}
