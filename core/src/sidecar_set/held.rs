//! Why a workload holds updates of sidecars back, in which case SidecarSets give its pods no tokens.

use std::fmt;

use crate::api::UpdateStrategyType;

/// Why a workload holds updates of sidecars back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeldBy {
    /// Its pods keep what they have: with OnDelete until a user deletes them, and with HotPatchUpdate because the
    /// containers of a hot-patched pod must not be restarted.
    Type(UpdateStrategyType),
    /// It is paused, by a user or by a canary step.
    Pause,
    /// Its rollout has canary steps left. A restart of sidecars would disturb what the steps measure.
    Step,
}

impl HeldBy {
    /// What holds updates of sidecars back; None if nothing does.
    pub fn of(type_: UpdateStrategyType, paused: bool, has_steps_left: bool) -> Option<Self> {
        use UpdateStrategyType::{HotPatchUpdate, InplaceUpdate, OnDelete, RollingUpdate};
        match type_ {
            OnDelete | HotPatchUpdate => Some(Self::Type(type_)),
            RollingUpdate | InplaceUpdate if paused => Some(Self::Pause),
            RollingUpdate | InplaceUpdate => has_steps_left.then_some(Self::Step),
        }
    }

    /// Whether this holds back the update of a pod. Canary steps do not hold back pods that are not ready: such a pod
    /// may wait for a fixed sidecar, and a step may wait for the pod.
    pub fn holds(self, is_ready: bool) -> bool {
        self != Self::Step || is_ready
    }
}

/// A workload that holds updates of sidecars back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// KIND NAMESPACE/NAME.
    pub workload: String,
    /// Why.
    pub by: HeldBy,
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let workload = &self.workload;
        match self.by {
            HeldBy::Type(type_) => write!(f, "{workload} has updateStrategy.type {type_:?}"),
            HeldBy::Pause => write!(f, "{workload} is paused"),
            HeldBy::Step => write!(f, "{workload} is at a canary step"),
        }
    }
}
