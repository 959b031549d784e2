//! The SidecarSet, its mark on pods, and its planner.

use super::*;

/// The index of the set's container among those of a pod.
pub const SIDECAR: usize = 2;

/// The SidecarSet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SidecarSet {
    pub exists: bool,
    /// The image of its container, which is also its revision.
    pub image: Rev,
    pub paused: bool,
    pub partition: u8,
}

impl SidecarSet {
    /// The revision that new pods get.
    pub fn revision(&self) -> Option<Rev> {
        self.exists.then_some(self.image)
    }
}

/// The set's mark on a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mark {
    /// The revision of the set that the pod has.
    pub at: Rev,
    pub token: Option<Rev>,
    /// When the pod last got a token.
    pub since: Option<Time>,
}

impl Mark {
    /// The mark of a new pod.
    pub fn new(at: Rev) -> Self {
        Self { at, token: None, since: None }
    }
}

/// The set's planner, which runs independently of the workload's planner.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Allotter {
    /// Its cache of pods. The planner waits until the cache shows its own writes.
    pub pods: Seen<Vec<Pod>>,
    /// The remaining writes of its plan, in any order.
    pub writes: Vec<MarkWrite>,
    /// What these writes are checked against.
    pub judged: Option<Judged>,
}

/// What the set's planner knew when it planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Judged {
    /// The set that the quorum GET returned.
    pub set: SidecarSet,
    /// The pods with the set's container, one bit per uid.
    pub matched: u32,
    /// The matched pods that were ready, or not ready because of their update.
    pub counted: u32,
    /// The counted pods whose update would take another slot of maxUnavailable. A pod whose sidecar has been changed
    /// already has its slot.
    pub charged: u32,
}

/// A write of the set's planner.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MarkWrite {
    pub pod: Uid,
    /// The mark that the patch tests.
    pub from: Mark,
    pub to: Mark,
    /// Whether the write changes the image as well, as in pods of other controllers.
    pub updates: bool,
}

impl State {
    /// The pods that the set's planner observes.
    pub fn pods_of_allotter(&self) -> &Rc<Vec<Pod>> {
        match &self.allotter.pods {
            Seen::Before(pods) => pods,
            Seen::Now | Seen::TooOld => &self.pods.now,
        }
    }
}

impl Pod {
    /// Whether an update of its sidecar may be in progress: it has a token, or the update is not complete.
    pub fn may_be_updating_sidecar(&self) -> bool {
        self.mark.is_some_and(|mark| mark.token.is_some()) || self.changes_sidecar()
    }

    /// Whether its sidecar has been changed and the update is not complete.
    pub fn changes_sidecar(&self) -> bool {
        let is_changed = |record: &Record| record.sidecar.is_some();
        self.is_patched() && self.record.as_ref().is_some_and(is_changed)
    }
}
