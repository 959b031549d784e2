//! The operator's part of a state: its memory, and the plan that it carries out.

use std::rc::Rc;

use gamekeeper_core::write::DeletionReason;

use super::*;

/// The operator: its memory, and the plan that it carries out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Operator {
    /// Revisions that the API server has accepted, one bit each.
    pub accepted: u8,
    /// The revision of the SidecarSet with which they were accepted.
    pub accepted_with: Option<Rev>,
    /// A revision that the API server has refused.
    pub refused: Option<Refused>,
    /// Whether the budget exists, if that is known. The policies are always in force in the model.
    pub budget: Option<bool>,
    /// The kinds of deletions that were refused last time.
    pub denied: Denied,
    pub reconcile: Option<Rc<Reconcile>>,
}

/// The kinds of deletions of pods that the API server refused last time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Denied {
    /// Deletions for an update.
    pub updates: bool,
    /// All others.
    pub removals: bool,
}

impl Denied {
    /// Records whether a deletion for this reason was refused.
    pub fn record(&mut self, reason: DeletionReason, refused: bool) {
        match reason {
            DeletionReason::Update => self.updates = refused,
            _ => self.removals = refused,
        }
    }
}

/// The verdict on a revision that the API server has refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Refused {
    pub rev: Rev,
    /// When.
    pub at: Time,
    /// Whether a quota refused it because there are too many pods.
    pub full: bool,
    pub trial: Trial,
}

/// Whether a pod was given up for a pod of a refused revision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Trial {
    #[default]
    Untried,
    Awaited,
    Failed,
}

/// A plan that is being carried out.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reconcile {
    /// Writes before the status, in any order.
    pub before: Vec<Write>,
    /// The status, if `after` must wait for it.
    pub status: Option<Status>,
    /// The waiting pods in that status.
    pub waits: Vec<(Uid, Time)>,
    /// Writes after the status, in any order.
    pub after: Vec<Write>,
    /// Whether any write of `after` has been made.
    pub begun: bool,
    /// Whether a quorum GET precedes `after`.
    pub get_first: bool,
    /// The workload for which the plan was made.
    pub planned: Rc<Workload>,
    /// The workload at the time of the quorum GET.
    pub judged: Option<Rc<Workload>>,
    /// When the plan was made.
    pub at: Time,
    /// Pods that were available in the view, one bit per uid.
    pub seen_available: u32,
    /// Pods that were ready in the view, available or not, one bit per uid.
    pub seen_ready: u32,
    /// Pods that this reconcile has made unavailable, one bit per uid.
    pub touched: u32,
    /// Ordinals that were observed to have a pod, one bit each, if ordinals are reserved.
    pub seen_ordinals: u32,
}

/// What a write requires of its pod.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Unchanged {
    /// Nothing.
    Any,
    /// Its resourceVersion: the pod is as it was observed.
    Since(Rc<Pod>),
    /// Its resourceVersion, but the pod has changed since the plan, so that the write will be refused even if it changes back.
    Never,
}

impl Unchanged {
    pub fn allows(&self, pod: &Pod) -> bool {
        match self {
            Self::Any => true,
            Self::Since(seen) => **seen == *pod,
            Self::Never => false,
        }
    }

    /// The pod as it was observed.
    pub fn pod_mut(&mut self) -> Option<&mut Pod> {
        match self {
            Self::Since(seen) => Some(Rc::make_mut(seen)),
            Self::Any | Self::Never => None,
        }
    }

    /// Whether the pod, which may not exist, is no longer as it was observed.
    fn is_broken_by(&self, pod: Option<&Pod>) -> bool {
        matches!(self, Self::Since(_)) && !pod.is_some_and(|pod| self.allows(pod))
    }
}

impl Write {
    /// What the write requires of the pod that it is about.
    pub fn unchanged(&self) -> Option<(Uid, &Unchanged)> {
        match self {
            Self::DeletePod(uid, _, seen)
            | Self::CloseGate(uid, .., seen)
            | Self::Finish(uid, _, seen) => Some((*uid, seen)),
            Self::Patch(patch) => Some((patch.pod, &patch.unchanged)),
            _ => None,
        }
    }

    /// The same, also of the write that follows it.
    fn unchanged_mut(&mut self) -> Vec<(Uid, &mut Unchanged)> {
        match self {
            Self::CloseGate(uid, _, next, seen) => {
                let next = next.iter_mut().map(|patch| (patch.pod, &mut patch.unchanged));
                [(*uid, seen)].into_iter().chain(next).collect()
            }
            Self::DeletePod(uid, _, seen) | Self::Finish(uid, _, seen) => vec![(*uid, seen)],
            Self::Patch(patch) => vec![(patch.pod, &mut patch.unchanged)],
            _ => Vec::new(),
        }
    }
}

impl Reconcile {
    /// Observes the pods: a pod that changes and changes back has another resourceVersion than before.
    pub fn observe(self: &mut Rc<Self>, pods: &[Pod]) {
        let find = |uid| pods.iter().find(|pod| pod.uid == uid);
        let is_void = |write: &Write| {
            write.unchanged().is_some_and(|(uid, seen)| seen.is_broken_by(find(uid)))
        };
        if !self.before.iter().chain(&self.after).any(is_void) {
            return;
        }
        let Self { before, after, .. } = Rc::make_mut(self);
        for (uid, seen) in before.iter_mut().chain(after).flat_map(Write::unchanged_mut) {
            if seen.is_broken_by(find(uid)) {
                *seen = Unchanged::Never;
            }
        }
    }

    /// Records the pod that a write makes unavailable.
    pub fn touch(&mut self, write: &Write) {
        match write {
            Write::DeletePod(uid, ..) | Write::CloseGate(uid, ..) => self.touched |= 1 << uid,
            Write::Patch(patch) => self.touched |= 1 << patch.pod,
            _ => {}
        }
    }
}

/// A write of the operator.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Write {
    Workload(WorkloadChange),
    CreateRevision(Rev),
    RenumberRevision(Rev),
    DeleteRevision(Rev),
    DryRun(Rev),
    CreatePod {
        rev: Rev,
        gate: bool,
        /// The ordinal of a pod of a GameStatefulSet, which is also its name.
        ordinal: Option<Name>,
        /// Its index, if pods have indexes.
        index: Option<u8>,
        /// The revision of the SidecarSet that it gets.
        sidecar: Option<Rev>,
    },
    DeletePod(Uid, DeletionReason, Unchanged),
    /// With the time since which the pod has waited for its hook.
    Mark(Uid, Option<Time>),
    Unmark(Uid),
    CreateRun(RunId),
    DeleteRun(RunId),
    /// With the patch that follows it.
    CloseGate(Uid, Rev, Option<Box<Patch>>, Unchanged),
    OpenGate(Uid),
    Patch(Box<Patch>),
    Finish(Uid, Record, Unchanged),
    /// The label of guarded pods is set or removed.
    Label(Uid, bool),
    /// A pod is adopted. Only a deletion with `--cascade=orphan` creates orphans.
    Adopt(Uid),
    /// The replacement of a pod is requested because of its node, or the request is withdrawn.
    RequestMove(Uid, bool),
    /// The budget is created or deleted.
    Budget(Option<Budget>),
}

/// A change of the workload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct WorkloadChange {
    pub paused: Option<bool>,
    pub pause_annotation: Option<Text>,
    pub retry_annotation: Option<Text>,
    pub promote_annotation: Option<Text>,
    /// Hook points whose `retry` becomes false, one bit each.
    pub retry_off: u8,
    pub pods_to_delete: Option<Vec<Name>>,
    pub finalizer: Option<bool>,
}

/// An in-place change of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Patch {
    pub pod: Uid,
    pub unchanged: Unchanged,
    pub from_rev: Rev,
    pub rev: Rev,
    /// Per container, the expected image and the new one.
    pub images: Each<(Rev, Rev)>,
    pub unmark: bool,
    /// True sets the hot-patch annotation, false removes it.
    pub hot: Option<bool>,
    pub record: Record,
    /// The mark with the token that the patch tests, if it changes the sidecar.
    pub token: Option<Mark>,
    /// The mark that the patch sets.
    pub mark: Option<Mark>,
}

impl Patch {
    /// The containers whose image changes with this patch or, in their turn, later; one bit each.
    pub fn changed_containers(&self) -> u8 {
        let containers = self.images.iter().zip(&self.record.from).enumerate();
        let changed = containers.filter(|(_, (image, from))| {
            let waits = |from: &Origin| matches!(from.turn, Turn::Next(_));
            image.is_some() || from.as_ref().is_some_and(waits)
        });
        changed.fold(0, |all, (index, _)| all | 1 << index)
    }
}
