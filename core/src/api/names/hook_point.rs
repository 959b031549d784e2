//! The points at which hooks run, and how bk-bcs spells them in labels, fields and names of HookRuns.

use super::unique::{MAX_NAME, shorten};

/// The point in the life of a pod or rollout at which a hook runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum HookPoint {
    /// A canary step.
    Step,
    /// Before a pod is deleted.
    PreDelete,
    /// Before a pod is updated in place.
    PreInplace,
    /// After a pod was updated in place, before it gets traffic.
    PostInplace,
}

impl HookPoint {
    /// The points in a pod's life.
    pub const OF_PODS: [HookPoint; 3] =
        [HookPoint::PreDelete, HookPoint::PreInplace, HookPoint::PostInplace];

    /// Value of the label [`type_label`](super::WorkloadKind::type_label) (bk-bcs).
    pub fn as_str(self) -> &'static str {
        match self {
            HookPoint::Step => "Step",
            HookPoint::PreDelete => "PreDelete",
            HookPoint::PreInplace => "PreInplace",
            HookPoint::PostInplace => "PostInplace",
        }
    }

    /// Value of the label [`RUN_TYPE_LABEL`](super::RUN_TYPE_LABEL) (bk-bcs).
    pub fn type_value(self) -> &'static str {
        match self {
            HookPoint::Step => "canary-step",
            HookPoint::PreDelete => "pre-delete-step",
            HookPoint::PreInplace => "pre-inplace-step",
            HookPoint::PostInplace => "post-inplace-step",
        }
    }

    /// Whether a pod has the annotation [`DELETING_ANNOTATION`](super::DELETING_ANNOTATION) while its hook at this
    /// point runs.
    pub fn marks_pods(self) -> bool {
        matches!(self, HookPoint::PreDelete | HookPoint::PreInplace)
    }

    /// Field of a workload's spec that holds the hook at this point; None for a step.
    pub fn strategy_field(self) -> Option<&'static str> {
        match self {
            HookPoint::Step => None,
            HookPoint::PreDelete => Some("preDeleteUpdateStrategy"),
            HookPoint::PreInplace => Some("preInplaceUpdateStrategy"),
            HookPoint::PostInplace => Some("postInplaceUpdateStrategy"),
        }
    }

    /// The point for which [`as_str`](Self::as_str) returns this value of a label.
    pub fn parse(label: &str) -> Option<Self> {
        let mut points = [HookPoint::Step].into_iter().chain(Self::OF_PODS);
        points.find(|point| point.as_str() == label)
    }

    /// The prefix of a HookRun's name (bk-bcs).
    fn prefix(self) -> &'static str {
        match self {
            HookPoint::Step => "canary-step-hook",
            HookPoint::PreDelete => "pre-delete-hook",
            HookPoint::PreInplace => "pre-inplace-hook",
            HookPoint::PostInplace => "post-inplace-hook",
        }
    }

    /// Name of a HookRun: `part` is the step's index, the instance id or the ordinal.
    ///
    /// A name that is too long is truncated and ends in a hash of the full name, so that it stays unique.
    pub fn run_name(self, revision: &str, part: &str, template: &str) -> String {
        shorten(format!("{}-{revision}-{part}-{template}", self.prefix()), MAX_NAME)
    }
}
